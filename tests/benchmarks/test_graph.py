"""The graph benchmark runs: every row, on a short chain and without the other toolkits."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

import pytest

from tests.benchmarks import graph
from tests.benchmarks.graph_tasks import Workload


def test_every_row_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(graph.WORKLOADS, "chain 1k", Workload("chain 1k", 40))
    # What was imported stays out of the collector's sight (tests/conftest.py), here and in the tests that follow.
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    page = tmp_path / "page.md"
    rows = graph.main(
        [
            "--workloads",
            "chain 1k",
            "--toolkits",
            "fxlite",
            "--rounds",
            "1",
            "--seconds",
            "0.001",
            "--output",
            str(page),
        ]
    )
    assert [row.name for row in rows] == list(graph.WANTED)
    assert all(row.nodes == 42 and row.values["fxlite"] > 0 for row in rows)
    assert [row.name for row in rows if row.ratio is not None] == ["pipeline, checked"]
    assert page.read_text().count("| chain 1k |") == len(rows)


def test_losses_are_named() -> None:
    kept = graph.Row("chain 10k", "trace", {"fxlite": 10.0, "torch.fx": 40.0}, 0.25, 0.35, 10)
    lost = graph.Row("chain 10k", "save", {"fxlite": 20.0, "torch.fx": 40.0}, 0.5, 0.3, 10)
    assert (kept.verdict, lost.verdict) == ("ok", "LOSS")
    options = argparse.Namespace(seconds=0.1, rounds=1)
    text = graph.markdown([kept, lost], options, 0.0)
    losses = text.partition("## Losses")[2].partition("##")[0]
    assert "chain 10k, save: 0.50, wanted ≤ 0.3" in losses and "trace" not in losses
