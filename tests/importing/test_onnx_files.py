"""Damaged ONNX files are imported or refused with an error that says why: a few hundred of them
(python -m tests.onnx_files reads thousands). Weights that are larger than memory are mapped, or refused."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

import fxlite as fx
from fxlite.base.errors import ModelImportError

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402

from tests import onnx_files  # noqa: E402


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_damaged_files(start: int) -> None:
    outcomes = [onnx_files.outcome(seed) for seed in range(start, start + 50)]
    assert [o for o in outcomes if o not in ("imported", "refused")] == []
    assert "refused" in outcomes


def test_the_damage_reaches_all_parts() -> None:
    files = [onnx_files.damaged(seed)[1] for seed in range(200)]
    assert len(set(files)) > 190
    assert any(onnx_files.outcome(seed) == "imported" for seed in range(200))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
def test_weights_larger_than_memory(tmp_path: Path) -> None:
    weight = onnx.TensorProto(name="w", dims=[1 << 15, 1 << 15], data_type=1, data_location=1)
    weight.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(4 << 30)  # a file with a hole: it takes no space
    x, y = (helper.make_tensor_value_info(n, 1, ["B", 1 << 15]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "large", [x], [y], [weight])
    path = tmp_path / "large.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gm = fx.from_onnx(path)
    assert gm.get_attribute("w").shape == (1 << 15, 1 << 15)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 << 10, "it is mapped and not read"
    del gm
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), hard))
    try:
        with pytest.raises(ModelImportError, match=r"'w' is in 'w\.bin'.*4294967296 bytes do not fit into the memory"):
            fx.from_onnx(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_file_that_is_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.onnx"
    path.write_bytes(b"123")

    def read(_: Path) -> bytes:
        raise MemoryError

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(ModelImportError, match=r"large\.onnx has 3 bytes, more than .* external data"):
        fx.from_onnx(path)
