"""Damaged ONNX files: truncated, with changed bytes, with changed fields. Each is imported or refused with
an error of fxlite's that says why; nothing else may happen.

    python -m tests.onnx_files --count 3000 --seed 1

prints what was tried, and the seed and number of each file that did something else."""

from __future__ import annotations

import argparse
import random
import resource
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import FxliteError
from tests import onnx_cases

#: Official cases whose files are damaged: all kinds of messages.
CASES = (
    "test_add_bcast test_conv_with_strides_padding test_lstm_with_initial_bias test_reshape_zero_dim "
    "test_slice test_if test_scan_sum test_loop11 test_qlinearconv test_dequantizelinear_blocked "
    "test_resize_downsample_sizes_nearest test_attention_3d_gqa test_layer_normalization_4d_axis1 "
    "test_gather_elements_0 test_scatternd_add test_pad_axes test_constantofshape_int_zeros "
    "test_split_equal_parts_1d_opset18 test_einsum_transpose test_topk test_maxpool_2d_ceil "
    "test_sequence_insert_at_back test_cast_FLOAT_to_FLOAT8E4M3FN "
    "test_range_int32_type_negative_delta_expanded test_center_crop_pad_crop_expanded test_operator_addmm "
    "test_Embedding test_BatchNorm2d_eval"
).split()
#: Seconds and bytes that one file may take.
SECONDS, BYTES = 20, 6 << 30


def damaged(seed: int) -> tuple[str, bytes]:
    """The name of a case and its file, damaged."""
    draw = random.Random(seed)
    name = draw.choice([n for n in CASES if n in onnx_cases.cases()])
    return name, damage(_file(name), draw)


def damage(data: bytes, draw: random.Random) -> bytes:
    """A file, damaged: cut off, with other bytes or fields, or with a part elsewhere."""
    kind = draw.choice(("cut", "bytes", "bytes", "fields", "fields", "fields", "moved"))
    if kind == "cut":
        return data[: draw.randrange(len(data))]
    if kind == "bytes":
        held = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 4, 16))):
            held[draw.randrange(len(held))] = draw.randrange(256)
        return bytes(held)
    if kind == "moved":
        start, size, to = draw.randrange(len(data)), draw.randrange(1, 40), draw.randrange(len(data))
        part = data[start : start + size]
        return data[:to] + part + data[to:] if draw.random() < 0.5 else data[:start] + data[start + size :]
    return _with_other_fields(data, draw)


def _file(name: str) -> bytes:
    model = onnx_cases.cases()[name].model
    return model if isinstance(model, bytes) else bytes(model.SerializeToString())


def _with_other_fields(data: bytes, draw: random.Random) -> bytes:
    """The file with some numbers, texts and elements of lists that are others."""
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(data)
    places = list(_places(model))
    for _ in range(draw.choice((1, 1, 2, 3))):
        message, field, value = draw.choice(places)
        try:
            if isinstance(value, bool | int):
                setattr(message, field, draw.choice((0, 1, 2, 3, 7, -1, 16, 2**31 - 1, -(2**40), 2**62, value + 1)))
            elif isinstance(value, str):
                setattr(
                    message, field, draw.choice(("", "x", "no such", "Relu", "Loop", value + "_", "../../etc/passwd"))
                )
            elif isinstance(value, float):
                setattr(message, field, draw.choice((0.0, -1.0, 1e30, float("nan"), float("inf"))))
            elif len(value):
                if draw.random() < 0.5:
                    del value[draw.randrange(len(value))]
                elif isinstance(value[0], int):
                    value[draw.randrange(len(value))] = draw.choice((0, -1, 1, 5, 2**31, 2**62))
        except (ValueError, TypeError):
            pass  # a field that does not take it, or was deleted with the message around it
    return bytes(model.SerializeToString())


def _places(message: Any) -> Iterator[tuple[Any, str, Any]]:
    """(message, field, value) of all that is set in a message and those in it."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            repeated = hasattr(value, "add")
            if repeated:
                yield message, field.name, value
            for inner in value if repeated else [value]:
                yield from _places(inner)
        elif field.type != field.TYPE_BYTES:
            yield message, field.name, value


def outcome(seed: int) -> str:
    """What becomes of one file: "imported", "refused", or what else, which is wrong."""
    name, data = damaged(seed)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            fx.from_onnx(data)
        return "imported"
    except FxliteError as error:
        return "refused" if len(str(error)) > 20 else f"{seed} ({name}): says little: {error!r}"
    except Exception as error:  # what this looks for
        return f"{seed} ({name}): {type(error).__name__}: {str(error)[:120]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, _too_long)
    found: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        signal.alarm(SECONDS)
        said = outcome(seed)
        signal.alarm(0)
        found[said] += 1
        if said not in ("imported", "refused"):
            print(said, flush=True)
    print(", ".join(f"{found[k]} {k}" for k in ("imported", "refused")), f"of {given.count}")


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"it took {SECONDS} s")


if __name__ == "__main__":
    main()
