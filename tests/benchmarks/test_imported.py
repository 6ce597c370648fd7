"""The benchmark of models of other libraries: ratios in short, and a run on a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from tests.benchmarks import imported, inference
from tests.benchmarks.imported import COMPARED, MODELS, OURS
from tests.benchmarks.results import Cell, Row
from tests.benchmarks.timing import Block, Comparison, Timing
from tests.benchmarks.worker import First
from tests.benchmarks.workloads import Job
from tests.roofs import ROOFS


def row(model: str, **seconds: float) -> Row:
    """Times by column."""
    names = {"ours": OURS, "onnx": "ONNX Runtime", "openvino": "OpenVINO f32"}
    timings = {names[n]: Timing([Block(s, s, 3, 0.0)] * 5) for n, s in seconds.items()}
    cells = {e: Cell(First(1.0, 1e-6, "f32")) for e in timings}
    return Row(model, 1, cells, Comparison(timings, 1), ours=OURS)


def test_in_short_are_the_mean_the_wanted_part_and_the_largest() -> None:
    rows = [row("a", ours=1.0, onnx=2.0, openvino=4.0), row("b", ours=2.0, onnx=4.0, openvino=1.0)]
    line = imported._in_short(rows, 1)
    assert "**1.00** of the best peer's time over 2 models" in line
    assert "50% of them at most 1.00" in line and "the largest 2.00" in line


def test_there_are_models_of_every_library() -> None:
    libraries = [name.partition("/")[0] for name in MODELS]
    assert len(MODELS) >= 50
    assert set(libraries) == {"torchvision", "timm", "transformers", "diffusers"}


def test_a_run_without_peers_fills_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)

    def prepare(name: str, folder: Path, with_onnx: bool) -> Job:
        job = Job(name, folder)
        fx.to_onnx(fx.symbolic_trace(model, x="f32[2,8]"), job.onnx)
        np.savez(folder / "inputs.npz", x=x)
        np.savez(folder / "reference.npz", model(x))
        return job

    def rows(name: str, engines: Any, threads: Any, options: Any, roofs: Any, prepare: Any, ours: str) -> Any:
        job = prepare(name, tmp_path, True)
        return [inference.measure(job, engines, count, True, options, roofs, ours) for count in threads]

    monkeypatch.setattr(inference, "machine_roofs", lambda refresh: ROOFS)
    monkeypatch.setattr(inference, "_rows", rows)
    monkeypatch.setattr(imported, "prepare", prepare)
    monkeypatch.setattr(imported, "COMPARED", {OURS: COMPARED[OURS]})
    monkeypatch.setattr(imported, "MODELS", {"ours/small": None})
    path = tmp_path / "page.md"
    (found,) = imported.main(["--quick", "--threads", "1", "--output", str(path)])
    assert found.ran(OURS) and found.cells[OURS].first.error < 1e-6
    page = path.read_text()
    assert "| ours/small |" in page and "nothing was compared" in page and page.rstrip().endswith(".")
