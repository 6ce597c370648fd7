"""The benchmark on a GPU, as far as there needs to be none: its workloads and its page."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.benchmarks.cuda import NAMES, Row, main, page, workload


@pytest.mark.parametrize("name", NAMES)
def test_workloads_are_there(name: str) -> None:
    spec = workload(name)
    assert spec.name == name and spec.model


def rows() -> list[Row]:
    return [
        Row("mlp B=256", "a GPU", {"fxlite": 1e-3, "torch": 2e-3}, {"torch": 0.5, "torch TF32": 4.0}, 5e-4, 3, 1.0),
        Row("pointwise 4M", "a GPU", {"torch": 1e-3}, failed={"fxlite": "ValueError: wrong result"}),
        Row("lstm layer", "a GPU", {"fxlite": 8e-3}, {"torch": 2.0, "torch compiled": 8.0}, kernels={"k0": 3e-5}),
    ]


def test_the_page_has_losses_failures_and_what_was_not_measured() -> None:
    text = page(rows(), "a GPU.")
    assert "in float32: 2.00 over 2 workloads, 1 above 1." in text  # of the faster torch: 0.5 and 8
    assert "| mlp B=256 | 1.00 | 2.00 | – | – | 0.50 | 0.500 | 3 | 1.0 |" in text
    assert "- pointwise 4M, fxlite: ValueError: wrong result" in text and "`k0` 30 µs" in text
    assert "Not measured in this run: matmul 1024, " in text and "mlp" not in text.partition("Not measured")[2][:300]


def test_the_page_is_made_of_what_was_saved(tmp_path: Path) -> None:
    lines = [json.dumps("a GPU."), *(json.dumps(asdict(row)) for row in rows())]
    (tmp_path / "saved.jsonl").write_text("\n".join(lines) + "\n")
    found = main(["--load", str(tmp_path / "saved.jsonl"), "--output", str(tmp_path / "page.md")])
    assert found == rows() and (tmp_path / "page.md").read_text() == page(rows(), "a GPU.")
