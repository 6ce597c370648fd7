"""The benchmark of NPBench's programs: C by hand computes what NumPy does, a wrong result has no time, and
losses are said."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pytest

from tests import npbench
from tests.benchmarks import numpy_engines, numpy_programs
from tests.benchmarks.numpy_programs import Row

OPTIONS = argparse.Namespace(engines=["numpy", "hand C"], seconds=0.0, rounds=1, budget=0.0)
needs_programs = pytest.mark.skipif(not npbench.names(), reason="NPBench is not in ../shared/programs")


@needs_programs
@pytest.mark.parametrize("name", numpy_engines._HANDS)
def test_loops_by_hand_compute_what_numpy_does(name: str) -> None:
    row = numpy_programs.measure(name, "small", 1, OPTIONS)
    assert not row.failed and row.seconds.keys() == {"numpy", "hand C"}


@needs_programs
def test_a_wrong_result_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(call: Any) -> Any:
        return lambda r: np.zeros_like(r)

    monkeypatch.setitem(numpy_engines._HANDS, "durbin", wrong)
    row = numpy_programs.measure("durbin", "small", 1, OPTIONS)
    assert row.failed == {"hand C": "wrong result: none of its results is NumPy's"}
    assert row.seconds.keys() == {"numpy"}


def test_what_is_said_of_rows() -> None:
    rows = [
        Row("a", "S", 1, {"numpy": 4.0, "fxlite": 1.0, "jax": 2.0}, {"fxlite": 1.5}, {"numpy": 0.25, "jax": 0.5}),
        Row("b", "S", 1, {"numpy": 1.0, "fxlite": 2.0}, {"fxlite": 1.5}, {"numpy": 2.0}),
    ]
    assert rows[0].best == "jax" and rows[0].ratio == 0.5
    assert [row.verdict for row in rows] == ["", "LOSS"]
    (line,) = numpy_programs.summary(rows)
    assert "geometric mean 1.00 of the best peer over 2 programs" in line and "1 above 1.2" in line
    assert "| b | S | 1 | 1000.0 | 2000.0 | – | – | – | – | 2.00 | – | 1.5 | LOSS |" in numpy_programs.markdown(
        rows, 0.0
    )


def test_no_page_is_made_of_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any) -> None:
    """Where NPBench is missing, a page that stands there stays."""
    monkeypatch.setattr(npbench, "FOLDER", tmp_path / "missing")
    page = tmp_path / "page.md"
    page.write_text("measured before")
    with pytest.raises(SystemExit):
        numpy_programs.main(["--output", str(page)])
    assert "there are no programs in" in capsys.readouterr().err and page.read_text() == "measured before"
