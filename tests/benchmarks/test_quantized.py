"""The benchmark of quantized models: a run without peers fills the page, a form that cannot be made
says why, and ratios are to the best int8 peer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import inference, quantized, quantized_files
from tests.benchmarks.quantized_engines import QUANTIZED
from tests.benchmarks.quantized_files import FORMS, calibration, files, prepare
from tests.benchmarks.quantized_page import DYNAMIC, FLOAT, STATIC, gain, shortfalls
from tests.benchmarks.results import Cell, Row, mean_ratio
from tests.benchmarks.timing import Block, Comparison, Timing
from tests.benchmarks.worker import First
from tests.benchmarks.workloads import sqnr, workloads
from tests.roofs import ROOFS


def row(workload: str, **seconds: float) -> Row:
    """Times by column."""
    names = {
        "static": STATIC,
        "float32": FLOAT,
        "torch": "torch static",
        "onnx": "ONNX Runtime dynamic",
        "weights": "fxlite weights int8",
    }
    classes = {FLOAT: "f32", "fxlite weights int8": "weights"}
    timings = {names[n]: Timing([Block(s, s, 3, 0.0)] * 5) for n, s in seconds.items()}
    cells = {e: Cell(First(1.0, 0.01, classes.get(e, "int8"), 40.0, 2.0)) for e in timings}
    return Row(workload, 1, cells, Comparison(timings, 1), ours=STATIC)


def test_the_ratio_is_to_the_best_int8_peer_and_the_gain_to_float() -> None:
    one = row("mlp B=32", static=1.0, float32=4.0, torch=3.0, onnx=2.0, weights=0.1)
    assert one.best_peer(STATIC) == "ONNX Runtime dynamic"
    assert one.ratio(STATIC) == pytest.approx(0.5)
    assert one.ratio("fxlite weights int8") is None, "weights alone are another class"
    assert gain(one, STATIC) == pytest.approx(4) and gain(one, FLOAT) is None
    assert mean_ratio([one], STATIC) == (pytest.approx(0.5), 1)


def test_what_falls_short_is_named() -> None:
    rows = [
        row("recommender B=16", static=1.0, float32=3.0, torch=2.0),
        row("bert T=128", static=1.2, float32=2.0, onnx=1.0),
        row("mlp B=1", static=1.0, float32=2.0, onnx=1.1),
    ]
    assert list(shortfalls(rows, [STATIC])) == [
        "recommender B=16, 1 thread: 3.00 times faster than float32, wanted ≥ 3.3",
        "bert T=128, 1 thread: fxlite static takes 1.20 of ONNX Runtime dynamic's time",
    ]


def test_a_run_without_peers_fills_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "machine_roofs", lambda refresh: ROOFS)
    output = tmp_path / "page.md"
    (found,) = quantized.main(
        ["--only", "mlp B=1", "--engines", FLOAT, STATIC, DYNAMIC, "--quick", "--threads", "1", "--output", str(output)]
    )
    for engine, least in ((FLOAT, 100), (STATIC, 25), (DYNAMIC, 25)):
        cell = found.cells[engine]
        assert not cell.failed and cell.first is not None
        assert cell.first.sqnr > least
    assert found.explanation is not None and found.explanation.kernels >= 3
    whole, small = (found.cells[e].first for e in (FLOAT, STATIC))
    assert whole is not None and small is not None
    assert whole.megabytes > 3.5 * small.megabytes
    text = output.read_text()
    assert "fxlite static, 1 thread: no int8 peer" in text
    assert text.count("| mlp B=1 |") == 7  # time, gain, why, accuracy, size, memory, first result


def test_a_form_that_cannot_be_made_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(job: Any, paths: list[Path]) -> None:
        paths[0].write_text("half of it")
        raise ValueError("no kernel\nsecond line")

    monkeypatch.setattr(
        quantized_files,
        "FORMS",
        {"fxlite static": (broken, ("static.fxl",)), "fxlite dynamic": FORMS["fxlite dynamic"]},
    )
    job = prepare("mlp B=1", tmp_path, with_onnx=False)
    with pytest.raises(RuntimeError, match=r"^ValueError: no kernel$"):
        files(job, "fxlite static")
    assert not (tmp_path / "static.fxl").exists()
    assert all(path.exists() for path in files(job, "fxlite dynamic"))
    batches = calibration(job)
    assert len(batches) == quantized_files.BATCHES and list(batches[0]) == list(job.inputs())
    assert np.array_equal(np.sort(batches[0]["x"].ravel()), np.sort(job.inputs()["x"].ravel()))
    assert not np.array_equal(batches[0]["x"], batches[1]["x"])


def test_forms_workloads_and_columns_are_there() -> None:
    assert set(quantized.NAMES) <= set(workloads())
    assert {form for form in FORMS if form.startswith("fxlite")} == {
        name for name, engine in QUANTIZED.items() if engine.is_ours
    }
    assert {STATIC, DYNAMIC, FLOAT} <= set(QUANTIZED)
    assert QUANTIZED["OpenVINO NNCF"].makers == ("nncf",)


def test_signal_to_noise() -> None:
    exact = [np.array([3.0, 4.0])]
    assert sqnr([np.array([3.0, 4.5])], exact) == pytest.approx(20)
    assert sqnr(exact, exact) == float("inf")
    assert np.isnan(sqnr([np.zeros(3)], exact))
