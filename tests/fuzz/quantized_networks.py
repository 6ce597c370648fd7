"""Random programs of several integer layers, for :mod:`tests.fuzz.quantized`: what makes an image
and what reads it, rows that carry their own scale, sums too long for one block, loops over time.

In: a NumPy generator. Out: a :class:`Program`. Layers are drawn by the choices that code is made
for: kernel, stride, dilation, padding and groups, channels that fill no vector, layouts, bounds of
a clip, scales of channels or of all, residuals, several readers, sizes that are named and empty
batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.ops.image.spatial import TO_LAST
from fxlite.ops.recurrent import GATES
from tests.fuzz.quantized_programs import Array, Program, operand, pick, rounding, typed

#: Numbers of channels: few, odd, and around the lanes of vectors.
_CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 40, 65)
#: Sizes of images, and of batches, one of which is empty.
_IMAGES: Mapping[str, tuple[int, ...]] = {
    "H": (1, 2, 3, 5, 6, 7, 8, 9, 13, 17, 19),
    "W": (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 34),
    "B": (0, 1, 1, 2, 3, 5),
}


# -- convolutions ----------------------------------------------------------------------------------
def _window(rng: np.random.Generator, groups: int) -> dict[str, Any]:
    """Attributes of a convolution, and its ``kernel``. Images of one pixel have a result."""
    kernel = tuple(int(rng.choice((1, 1, 2, 3, 3, 3, 5, 7))) for _ in range(2))
    if rng.random() < 0.5:
        kernel = (kernel[0], kernel[0])
    dilation = tuple(int(rng.choice((1, 1, 1, 2, 3))) for _ in range(2))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    before = [int(rng.integers(r // 2, r + 1)) for r in reach]
    padding = tuple((b, r - b + int(rng.choice((0, 0, 1)))) for b, r in zip(before, reach, strict=True))
    stride = tuple(int(rng.choice((1, 1, 1, 2, 3, 19))) for _ in range(2))
    if rng.random() < 0.7:
        stride = (stride[0], stride[0])
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def _channels(rng: np.random.Generator, channels: int) -> tuple[int, int]:
    """Groups and the number of results of a convolution that reads ``channels``."""
    kind = rng.random()
    if kind < 0.35:
        return channels, channels * pick(rng, 1, 1, 1, 2)
    if kind < 0.5:
        groups = pick(rng, *(g for g in (1, 2, 3, 4, 5, 8) if channels % g == 0))
        return groups, groups * int(rng.choice((1, 2, 3, 5, 8, 17)))
    return 1, int(rng.choice(_CHANNELS))


def _floats_of(rng: np.random.Generator, columns: int, form: str) -> Array:
    """Numbers of channels in float32, or one for all, of the channels' shape in the layout."""
    shape = (columns, 1, 1) if form == "NCHW" else (columns,)
    numbers = rng.standard_normal(shape if rng.random() < 0.7 else ()) * 10.0 ** rng.uniform(-2, 1)
    return numbers.astype(np.float32)


def _convolution(
    rng: np.random.Generator, channels: int, form: str, dtype: str, zero: int
) -> tuple[str, int, Callable[[Any], Any], bool]:
    """Text, number of results and sums of a layer; whether a result is as large as the image."""
    groups, columns = _channels(rng, channels)
    window = _window(rng, groups)
    kernel = window.pop("kernel")
    weight = rng.integers(-128, 128, (columns, channels // groups, *kernel)).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, columns).astype(np.int32) if rng.random() < 0.5 else None
    reach = [d * (k - 1) for d, k in zip(window["dilation"], kernel, strict=True)]
    is_same = window["stride"] == (1, 1) and [sum(p) for p in window["padding"]] == reach

    def sums(q: Any) -> Any:
        return ops.int_conv2d(q, weight, bias, x_zero_point=zero, layout=form, **window)

    text = f"int_conv2d {dtype} {list(weight.shape)} {window} bias={bias is not None} zero={zero}"
    return text, columns, sums, is_same and columns == channels


def _activation(rng: np.random.Generator) -> tuple[str, Callable[[Any], Any], bool]:
    """An activation that is exact, and whether what it gives cannot be negative."""
    low = float(rng.uniform(-3, 1))
    return pick(  # type: ignore[no-any-return]
        rng,
        ("", lambda x: x, False),
        ("relu", ops.relu, True),
        ("relu6", lambda x: ops.clip(x, 0, 6), True),
        (f"clip({low}, 1.5)", lambda x: ops.clip(x, low, 1.5), low >= 0),
        ("minimum(0.5)", lambda x: ops.minimum(x, np.float32(0.5)), False),
    )


def images(rng: np.random.Generator) -> Program:
    """Convolutions of images that are quantized by their own range, or by a known one."""
    form, channels = pick(rng, "NCHW", "NHWC", "NHWC"), int(rng.choice(_CHANNELS))
    is_dynamic, known = bool(rng.random() < 0.6), bool(rng.random() < 0.5)
    sizes = "H,W" if not known else f"{rng.choice(_IMAGES['H'])},{rng.choice(_IMAGES['W'])}"
    batch = pick(rng, "B", "B", "1", "3")
    shape = f"{channels},{sizes}" if form == "NCHW" else f"{sizes},{channels}"
    layers, texts, previous_positive = [], [f"{form}, dynamic={is_dynamic}"], False
    for _ in range(int(rng.integers(1, 4))):
        positive = previous_positive and bool(rng.random() < 0.8)
        dtype, zero = ("u8", 0) if positive else ("i8", 0)
        if not is_dynamic:
            dtype, zero = operand(rng)
        text, columns, sums, fits = _convolution(rng, channels, form, dtype, zero)
        name, activation, previous_positive = _activation(rng)
        scale, offset = abs(_floats_of(rng, columns, form)), _floats_of(rng, columns, form)
        adds, pools = fits and bool(rng.random() < 0.7), bool(rng.random() < 0.15)
        step = float(2.0 ** rng.uniform(-6, 2))
        layers.append((dtype, zero, sums, activation, scale, offset, adds, pools, step))
        texts.append(f"{text}, {name}{', + x' * adds}{', pooled' * pools} step={step}")
        channels = columns
    shares, turns = bool(rng.random() < 0.3), bool(rng.random() < 0.2)

    def program(x: Any) -> Any:
        results = []
        for dtype, zero, sums, activation, scale, offset, adds, pools, step in layers:
            own: Any = np.float32(step)
            if is_dynamic:
                qmax = 255 if dtype == "u8" else 127
                own = ops.dynamic_scale(x, axis=(1, 2, 3), keepdims=True, qmax=qmax)
            limits = {"qmin": -127} if dtype == "i8" and is_dynamic else {}
            q = ops.quantize(x, own, zero, dtype, **limits)
            y = ops.dequantize(sums(q), own * scale) + offset
            y = activation(y + x if adds else y)
            if pools:
                y = ops.max_pool2d(y, 3, stride=1, padding=1, layout=form)
            if shares:
                results.append(y)
            x = y
        return (*results, ops.permute(x, TO_LAST) if turns else x)

    texts += ["several results"] * shares + ["permuted"] * turns
    return typed("\n  ".join(texts), program, _IMAGES, x=f"f32[{batch},{shape}]")


def stored(rng: np.random.Generator) -> Program:
    """Convolutions whose images stay integers: requantized, with a stored residual."""
    form, channels = pick(rng, "NCHW", "NHWC", "NHWC"), int(rng.choice(_CHANNELS))
    shape = f"{channels},H,W" if form == "NCHW" else f"H,W,{channels}"
    first_type, zero = operand(rng)
    layers, texts, dtype = [], [form], first_type
    for _ in range(int(rng.integers(1, 4))):
        text, columns, sums, fits = _convolution(rng, channels, form, dtype, zero)
        scale = abs(_floats_of(rng, columns, form)) * np.float32(1e-3)
        adds, limits = fits and bool(rng.random() < 0.7), rounding(rng)
        offset = int(pick(rng, 0, -128, 255, rng.integers(-128, 256)))
        layers.append((sums, scale, zero, adds, limits, offset))
        texts.append(f"{text}, {'residual' if adds else 'requantize'} {limits} zero={offset}")
        low, high = (-128, 127) if limits["dtype"] == "i8" else (0, 255)
        channels, dtype, zero = columns, limits["dtype"], min(max(offset, low), high)

    def program(q: Any) -> Any:
        for sums, scale, zero, adds, limits, offset in layers:
            total = sums(q)
            if adds:
                y = ops.dequantize(total, scale) + ops.dequantize(q, np.float32(0.03), zero)
                q = ops.quantize(y, np.float32(0.05), offset, **limits)
            else:
                q = ops.requantize(total, scale, offset, **limits)
        return q

    return typed("\n  ".join(texts), program, _IMAGES, q=f"{first_type}[B,{shape}]")


# -- rows ------------------------------------------------------------------------------------------
def rows(rng: np.random.Generator) -> Program:
    """Linear layers whose rows have their own scales, some of them u8; the scale may have other
    readers."""
    widths = [int(rng.choice((1, 3, 16, 17, 33, 64, 65, 130))) for _ in range(3)]
    weights = [rng.integers(-127, 128, (n, k)).astype(np.int8) for k, n in itertools.pairwise(widths)]
    biases = [rng.standard_normal(n).astype(np.float32) for n in widths[1:]]
    is_matmul, tells = bool(rng.random() < 0.4), bool(rng.random() < 0.3)
    shape = pick(rng, "B,", "1,", "2,B,")

    def program(x: Any, scale: Any) -> Any:
        told = []
        for number, (weight, bias) in enumerate(zip(weights, biases)):
            limits = {"dtype": "u8"} if number else {"qmin": -127}
            own = ops.dynamic_scale(x, axis=-1, keepdims=True, qmax=255 if number else 127)
            q = ops.quantize(x, own, **limits)
            sums = ops.int_matmul(q, weight.T) if is_matmul else ops.int_linear(q, weight)
            x = ops.relu(ops.dequantize(sums, own * scale) + bias)
            told += [own] * tells
        return (*told, x)

    return typed(
        f"rows of {widths}, matmul={is_matmul}, scales told={tells}",
        program,
        {"B": (0, 1, 2, 7, 8, 9, 31, 64)},
        x=f"f32[{shape}{widths[0]}]",
        scale="f32[]",
    )


def long_sums(rng: np.random.Generator) -> Program:
    """Sums that are computed block by block, by a weight or by another operand."""
    dtype, zero = operand(rng)
    depth, columns = int(rng.integers(8000, 17000)), int(rng.choice((1, 5, 16, 33)))
    weight = rng.integers(-128, 128, (columns, depth)).astype(np.int8)
    other, other_zero = pick(rng, ("i8", 0), ("i8", -3), ("u8", 0), ("u8", 200))
    kind = pick(rng, "linear", "right", "left", "both")
    given = rng.integers(0, 128, (depth, columns)).astype("i1" if other == "i8" else "u1")

    def program(x: Any, y: Any = None) -> Any:
        if kind == "linear":
            sums = ops.int_linear(x, weight, x_zero_point=zero)
        elif kind == "right":
            sums = ops.int_matmul(x, given, x_zero_point=zero, y_zero_point=other_zero)
        elif kind == "left":
            sums = ops.int_matmul(weight, ops.permute(x, (1, 0)), y_zero_point=zero)
        else:
            sums = ops.int_matmul(x, y, x_zero_point=zero, y_zero_point=other_zero)
        return sums, ops.requantize(sums, np.float32(1e-4), 3)

    y = f"{other}[{depth},{columns}]" if kind == "both" else None
    return typed(
        f"{kind} of {depth} x {columns}, zeros {zero}, {other_zero}",
        program,
        {"B": (0, 1, 2, 7, 17)},
        x=f"{dtype}[B,{depth}]",
        y=y,
    )


def known_right(rng: np.random.Generator) -> Program:
    """int_matmul with a right operand that is known, of any rank, and what is done with sums."""
    (dtype, zero), (other, other_zero) = operand(rng), operand(rng)
    depth, columns = (int(rng.choice((1, 3, 4, 5, 16, 31, 64, 65, 200))) for _ in range(2))
    lead = pick(rng, (), (), (2,))
    low, high = (-128, 128) if other == "i8" else (0, 256)
    right = rng.integers(low, high, (*lead, depth, columns)).astype("i1" if low else "u1")
    limits, offset = rounding(rng), int(rng.integers(-128, 256))
    shape = pick(rng, "B,", "2,B,", "1,", "B,2,1,")

    def program(x: Any, scale: Any) -> Any:
        sums = ops.int_matmul(x, right, x_zero_point=zero, y_zero_point=other_zero)
        return ops.requantize(sums, scale, offset, **limits), ops.dequantize(sums, scale)

    return typed(
        f"int_matmul(x, known {other}{list(right.shape)}), zeros {zero}, {other_zero}, {limits}",
        program,
        {"B": (0, 1, 2, 8, 17, 65)},
        x=f"{dtype}[{shape}{depth}]",
        scale="f32" + pick(rng, "[]", f"[{columns}]"),
    )


def weight_only(rng: np.random.Generator) -> Program:
    """Float products of integer weights. Small whole numbers and scales that are powers of two:
    such sums are exact in any order."""
    depth, columns = (int(rng.choice((1, 2, 5, 31, 32, 33, 64, 67, 200, 513))) for _ in range(2))
    bits, group = pick(rng, 8, 4), pick(rng, None, 2, 4, 5, 7, 32, 64)
    limit = 1 << (bits - 1)
    weight = rng.integers(-limit, limit, (columns, depth)).astype(np.int8)
    if bits == 4:
        weight = np.asarray(ops.pack_int4(np.pad(weight, ((0, 0), (0, depth % 2)))))
    parts = () if group is None else (-(-depth // group),)
    scale = np.exp2(rng.integers(-4, 2, (columns, *parts))).astype(np.float32)
    bias = rng.integers(-99, 99, columns).astype(np.float32) if rng.random() < 0.5 else None
    activation = pick(rng, lambda x: x, ops.relu)

    def program(whole: Any) -> Any:
        return activation(ops.linear_weight_only(whole, weight, scale, bias, bits, group))

    return typed(
        f"linear_weight_only [{columns},{depth}], {bits} bits, groups of {group}, bias={bias is not None}",
        program,
        {"B": (0, 1, 2, 5, 12, 13, 33, 70)},
        whole=f"f32[{pick(rng, 'B,', '', '2,B,', '1,')}{depth}]",
    )


def cells(rng: np.random.Generator) -> Program:
    """The loop of any recurrent layer, whose sigmoid and tanh have a tolerance: a state may become
    the next integer, which weighs little here."""
    mode = pick(rng, *GATES)
    size, steps = int(rng.choice((1, 3, 8, 16, 17, 33, 64, 65))), int(rng.integers(5))
    count = GATES[mode] * size
    weight = rng.integers(-127, 128, (count, size)).astype(np.int8)
    scale = (rng.uniform(0.2, 1, count) / (127 * size)).astype(np.float32)
    bias = rng.standard_normal(count).astype(np.float32) if rng.random() < 0.5 else None
    attributes: dict[str, Any] = {"mode": mode, "reverse": bool(rng.random() < 0.5)}
    if rng.random() < 0.6:
        attributes["state_scale"] = float(rng.uniform(0.01, 0.03))
        if rng.random() < 0.6:
            attributes["state_zero_point"] = int(rng.integers(100, 150))

    def program(small_gates: Any, small_state: Any, small_cell: Any) -> Any:
        cell = small_cell if mode == "lstm" else None
        return ops.int_recurrence(small_gates, weight, scale, small_state, cell, bias, **attributes)

    batch = pick(rng, "B", "B", "1", "2")
    state = f"f32[{batch},{size}]"
    return typed(
        f"int_recurrence, weight [{count},{size}], {attributes}",
        program,
        {"B": (0, 1, 2, 3, 7, 8, 9, 17)},
        tolerance=0.05,
        small_gates=f"f32[{steps},{batch},{count}]",
        small_state=state,
        small_cell=state,
    )


NETWORKS: tuple[Callable[[np.random.Generator], Program], ...] = (
    images,
    images,
    images,
    stored,
    stored,
    rows,
    long_sums,
    known_right,
    weight_only,
    cells,
)
