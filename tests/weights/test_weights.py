"""Files of weights: each format read to what was written, loaded by path into modules, listed; and
refused, with nothing run, where they are damaged, name code, or say more than they hold."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import FileFormatError, OptionError
from fxlite.files.weights.read import weight_entries
from tests.command_line import run
from tests.weights import files


def written(folder: Path, name: str) -> Path:
    path = folder / name
    files.GOOD[name](path)
    return path


@pytest.mark.parametrize("name", files.GOOD)
def test_each_format_holds_what_was_written(name: str, tmp_path: Path) -> None:
    found = fx.load_weights(written(tmp_path, name))
    expected = {"w": files.ARRAYS["layer.0.weight"]} if name.endswith(".pt") else files.ARRAYS
    if name == "w.gguf":
        assert list(found) == ["layer.0.weight", "layer.0.bias", "blocks", "more"]
        expected = {k: v for k, v in expected.items() if k in found}
    for key, array in expected.items():
        assert found[key].dtype == array.dtype and found[key].shape == array.shape
        assert np.array_equal(found[key], array)


@pytest.mark.parametrize("name", ["w.safetensors", "w.npz", "w.gguf", "w.pt", "legacy.pt"])
def test_plain_numbers_stay_in_the_file(name: str, tmp_path: Path) -> None:
    for key, array in fx.load_weights(written(tmp_path, name)).items():
        if key not in ("blocks", "more", "empty"):  # GGUF's are computed
            owner: Any = array
            while isinstance(owner, np.ndarray):
                assert not owner.flags.owndata
                owner = owner.base
            assert not array.flags.writeable


def test_torch_reads_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32)
    state = {
        "whole": base.reshape(2, 3, 4),
        "transposed": base.reshape(4, 6).t(),
        "sliced": base[3:20:4],
        "repeated": torch.ones(3, 1).expand(3, 5),
        "bf16": torch.tensor([1.5, -2], dtype=torch.bfloat16),
        "bool": torch.tensor([True, False]),
        "complex": torch.tensor([1 + 2j]),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    for is_zip in (True, False):
        path = tmp_path / f"{is_zip}.bin"
        checkpoint = {"state_dict": state, "epoch": 3, "optimizer": {"state": {0: {"exp": base}}}}
        torch.save(checkpoint, path, _use_new_zipfile_serialization=is_zip)
        found = fx.load_weights(path)
        assert list(found) == list(state)
        for name, tensor in state.items():
            expected = tensor.detach().float().numpy() if name == "bf16" else tensor.detach().numpy()
            assert np.array_equal(found[name].astype(expected.dtype), expected), name
            assert name == "bf16" or found[name].dtype == expected.dtype


# -- GGUF's blocks, by the scalar loops of ggml-quants.c ---------------------------------------------
def half(data: bytes, at: int) -> float:
    return float(np.frombuffer(data[at : at + 2], np.float16)[0])


def k_scales(data: bytes, part: int) -> tuple[int, int]:
    q = data[4:16]
    if part < 4:
        return q[part] & 63, q[part + 4] & 63
    return (q[part + 4] & 15) | (q[part - 4] >> 6 << 4), (q[part + 4] >> 4) | (q[part] >> 6 << 4)


def decoded(kind: str, data: bytes) -> list[float]:
    """The numbers of one block."""
    d, wide = half(data, 0), kind[1]
    if kind == "q8_0":
        return [d * (b - 256 if b > 127 else b) for b in data[2:]]
    if kind in ("q4_0", "q4_1", "q5_0", "q5_1"):
        has_least = kind.endswith("1")
        start = 4 if has_least else 2
        fifth = int.from_bytes(data[start : start + 4], "little") if wide == "5" else 0
        packed = data[start + (4 if wide == "5" else 0) :]
        numbers = [(b & 15) for b in packed] + [b >> 4 for b in packed]
        numbers = [n | (fifth >> i & 1) << 4 for i, n in enumerate(numbers)]
        return [n * d + half(data, 2) if has_least else (n - (8 if wide == "4" else 16)) * d for n in numbers]
    if kind == "q6_K":
        d, made = half(data, 208), [0.0] * 256
        for i in range(256):
            h, quarter, l = i // 128, i % 128 // 32, i % 32
            byte = data[h * 64 + l + (32 if quarter % 2 else 0)]
            low = byte >> 4 if quarter > 1 else byte & 15
            high = data[128 + h * 32 + l] >> 2 * quarter & 3
            scale = struct.unpack_from("b", data, 192 + h * 8 + quarter * 2 + l // 16)[0]
            made[i] = d * scale * ((low | high << 4) - 32)
        return made
    made = []
    for i in range(256):
        part = i // 32
        byte = data[(48 if wide == "5" else 16) + i // 64 * 32 + i % 32]
        number = byte >> 4 if part % 2 else byte & 15
        if wide == "5":
            number |= (data[16 + i % 32] >> part & 1) << 4
        scale, least = k_scales(data, part)
        made.append(d * scale * number - half(data, 2) * least)
    return made


@pytest.mark.parametrize(
    ("kind", "number", "size", "nbytes"),
    [
        ("q4_0", 2, 32, 18),
        ("q4_1", 3, 32, 20),
        ("q5_0", 6, 32, 22),
        ("q5_1", 7, 32, 24),
        ("q8_0", 8, 32, 34),
        ("q4_K", 12, 256, 144),
        ("q5_K", 13, 256, 176),
        ("q6_K", 14, 256, 210),
    ],
)
def test_quantized_blocks(kind: str, number: int, size: int, nbytes: int, tmp_path: Path) -> None:
    drawn = bytearray(np.random.default_rng(1).bytes(3 * nbytes))
    for block in range(3):  # finite scales
        for at in (0, 2, nbytes - 2):
            drawn[block * nbytes + at : block * nbytes + at + 2] = np.float16(0.01 * (block + 1)).tobytes()
    path = tmp_path / "blocks"
    path.write_bytes(files.gguf_bytes([("x", number, (size, 3), bytes(drawn))]))
    (entry,) = weight_entries(path)
    assert (entry.dtype, entry.shape, entry.nbytes) == (kind, (3, size), 3 * nbytes)
    expected = [decoded(kind, bytes(drawn[i * nbytes : (i + 1) * nbytes])) for i in range(3)]
    np.testing.assert_allclose(entry.load(), np.array(expected, np.float32), rtol=1e-5, atol=1e-5)


# -- into a module -----------------------------------------------------------------------------------
def test_a_module_loads_a_path(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    path = tmp_path / "w.npz"
    weight = np.ones((3, 4), np.float32)
    np.savez(path, weight=weight, bias=np.zeros(3, np.float32))
    model.load_state_dict(path)
    assert np.array_equal(model.weight, weight)
    model.weight[0, 0] = 5  # a copy, and no longer the file

    np.savez(path, **{"module.weight": weight, "module.bias": weight[0, :3], "step": weight})
    with pytest.raises(ValueError, match=r"most names begin with 'module\.': give rename=lambda"):
        model.load_state_dict(path)
    model.load_state_dict(path, rename=lambda n: None if n == "step" else n.removeprefix("module."))
    assert np.array_equal(model.bias, weight[0, :3])
    with pytest.raises(OptionError, match=r"gives 'module\.weight' and 'step' one name, 'weight'"):
        model.load_state_dict(path, rename={"module.weight": "weight", "module.bias": "bias", "step": "weight"})
    nested = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"most names lack '0\.': give rename=lambda name: '0\.' \+ name"):
        nested.load_state_dict({"weight": weight, "bias": weight[0, :3]})


def test_the_command_lists_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.gguf"
    name = "model.layers.11.self_attention.output.projection.weight_of_a_long_name.that_goes_on"
    path.write_bytes(files.gguf_bytes([(name, 12, (256, 4096), bytes(144 * 4096)), ("b", 0, (3,), bytes(12))]))
    monkeypatch.setenv("COLUMNS", "80")
    status, shown, _ = run(capsys, "weights", str(path))
    assert status == 0
    assert max(map(len, shown.splitlines())) <= 80
    first, second = (line.split() for line in shown.splitlines()[1:-1:2])
    assert first[1:] == ["q4_K", "4096×256", "589,824"] and second == ["b", "f32", "3", "12"]
    assert "".join(line.split()[0] for line in shown.splitlines()[1:3]) == name
    assert shown.splitlines()[-1].split() == ["2", "arrays,", "1,048,579", "elements,", "589,836", "bytes"]


# -- refused -----------------------------------------------------------------------------------------
TENSOR = files.pickle_of_tensor(b"ctorch._utils\n_rebuild_tensor_v2\n")


class Attack:
    def __reduce__(self) -> Any:
        return (exec, ("import sys; sys.weights_canary = 1",))


def refused(path: Path, content: bytes, match: str) -> None:
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=match):
        fx.load_weights(path)
    assert not hasattr(sys, "weights_canary")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_code_is_not_run(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    refused(path, files.torch_zip_bytes(pickle.dumps({"w": Attack()}, protocol)), r"holds the global \w+\.exec")
    refused(path, pickle.dumps({"w": 1}, protocol), "is a pickle|not a safetensors")
    legacy = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    refused(path, legacy + pickle.dumps(Attack(), protocol), r"holds the global \w+\.exec")
    stream = io.BytesIO()
    np.savez(stream, w=np.array([Attack()], object))
    refused(path, stream.getvalue(), "has dtype object")


@pytest.mark.parametrize(
    ("pickled", "match"),
    [
        (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", r"holds the global os\.system, and only tensors"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}b.", "attributes are set on"),
        (b"\x80\x02(dK\x01i.", "the instruction"),
        (b"\x80\x02}(K\x01\x85K\x02u.", "a tuple is a key"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "an integer of"),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "bytes are to follow"),
        (b"\x80\x02]" + b"2\x86" * 40 + b".", "nested too deeply"),
        (TENSOR.replace(b"K\x03K\x04\x86", b"K\x03K\x05\x86"), "end after"),
        (TENSOR.replace(b"X\x01\x00\x00\x000X", b"X\x01\x00\x00\x001X"), "which is not there"),
        (TENSOR.replace(b"_tensor_v2", b"_qtensor"), r"global torch\._utils\._rebuild_qtensor"),
    ],
)
def test_pickles_that_are_not_tensors(pickled: bytes, match: str, tmp_path: Path) -> None:
    refused(tmp_path / "w.pt", files.torch_zip_bytes(pickled), match)


def test_an_index_names_files_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    for name in ("../w.safetensors", "/etc/passwd", "sub/w.safetensors", "..", "a\\b", "model.safetensors.index.json"):
        refused(path, json.dumps({"weight_map": {"w": name}}).encode(), "is not the name of a file beside it")
    for name in ("none.bin", "n" * 300):
        refused(path, json.dumps({"weight_map": {"w": name}}).encode(), f"names the file {name[:8]}.*, which is not")
    files.safetensors(tmp_path / "w.safetensors")
    refused(path, json.dumps({"weight_map": {"w": "w.safetensors"}}).encode(), "w is not in w.safetensors")
    refused(path, b'{"weights": 1}', "not an index of weights")


def test_what_unpacks_to_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXLITE_LOAD_LIMIT", "1")
    stream = io.BytesIO()
    np.savez_compressed(stream, w=np.zeros(1 << 20, np.float32))
    refused(tmp_path / "w.npz", stream.getvalue(), "unpacked it would have|more than")
    with zipfile.ZipFile(stream := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(1 << 24))
    refused(tmp_path / "w.pt", stream.getvalue(), "more than the")
    many = [(f"w{i}", 2, (3200,), b"") for i in range(100)]
    refused(tmp_path / "w.gguf", files.gguf_bytes(many) + bytes(1800), "have more bytes than the file")


def mutated(data: bytes, drawn: random.Random) -> bytes:
    """A truncation, or some bytes changed, cut out or repeated."""
    changed = bytearray(data)
    if drawn.random() < 0.2:
        return bytes(changed[: drawn.randrange(len(changed))])
    for _ in range(drawn.randint(1, 4)):
        at, kind = drawn.randrange(len(changed)), drawn.random()
        if kind < 0.6:
            changed[at] = drawn.choice([0, 255, 127, 128, drawn.randrange(256)])
        elif kind < 0.8:
            changed[at : at + 8] = struct.pack("<Q", drawn.choice([1 << 63, 1 << 31, 1 << 40, (1 << 64) - 1]))
        else:
            end = at + drawn.randint(1, 40)
            changed[at:end] = changed[at:end] * drawn.choice([0, 2])
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("name", files.GOOD)
def test_mutated_files_are_read_or_refused(name: str, tmp_path: Path, count: int = 250) -> None:
    good = written(tmp_path, name).read_bytes()
    path, drawn = tmp_path / ("index.json" if name.endswith(".json") else "mutated"), random.Random(name)
    outcomes = {"read": 0, "refused": 0}
    tracemalloc.start()
    try:
        for _ in range(count):
            path.write_bytes(mutated(good, drawn))
            try:
                fx.load_weights(path)
                outcomes["read"] += 1
            except FileFormatError as error:
                assert str(path.parent) in str(error) and str(error).isprintable()
                outcomes["refused"] += 1
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert outcomes["refused"] > count // 5
