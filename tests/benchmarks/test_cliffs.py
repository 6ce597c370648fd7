"""The cliffs benchmark: cases are the same again, run, and are not measured twice; a wrong result has no time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import cliffs
from tests.benchmarks.cliff_cases import FORMS, KINDS, NUMPY, draw


def test_a_seed_and_a_number_give_the_same_case() -> None:
    for kind in KINDS:
        drawn = [draw(kind, 1, number) for number in range(40)]
        assert drawn == [draw(kind, 1, number) for number in range(40)] != [draw(kind, 2, n) for n in range(40)]
        assert any(case.named for case in drawn) and all(case.kind == kind for case in drawn)
    assert {form.kind for form in FORMS} == set(KINDS)
    assert len({(form.kind, form.name) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_have_the_shapes_and_dtypes_of_the_types(kind: str) -> None:
    for number in range(20):
        case = draw(kind, 3, number)
        for name, array in case.arrays().items():
            dtype, _, rest = case.type_text(name).partition("[")
            sizes = [case.sizes.get(part, part) for part in rest.rstrip("]").split(",") if part]
            assert array.shape == tuple(map(int, sizes)) and NUMPY[dtype] == array.dtype


def test_cases_are_measured_saved_and_put_on_a_page(tmp_path: Path) -> None:
    saved, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    options = ["--kinds", "pointwise", "view", "--cases", "2", "--save", str(saved)]
    rows = cliffs.main(options)
    assert [row.kind for row in rows] == ["pointwise", "view"]
    assert all(row.ratio and row.seconds[cliffs.OURS] > 0 and "WRONG" not in str(row.failed) for row in rows)
    text = saved.read_text()
    assert cliffs.main([*options, "--output", str(page)]) == rows and saved.read_text() == text
    lines = page.read_text().replace("\\|", "|").splitlines()
    assert all(any(f"| {row.ratio:.2f} |" in line and row.case in line for line in lines) for row in rows)


def test_a_wrong_result_has_no_time() -> None:
    case = dataclasses.replace(draw("pointwise", 1, 0), text="x + 1", torch="x + 2", types={"x": "f32:MN"})
    case = dataclasses.replace(case, sizes={"M": 3, "N": 5}, named="", weights="")
    row = cliffs.measure(case, ("pointwise", 1, 0), 0.0, 1)
    assert row.best == "numpy" and row.seconds.keys() == {"numpy", "fxlite"}
    if "torch" not in row.failed or "No module" not in row.failed["torch"]:
        assert row.failed["torch"] == "WRONG: its result is another"
        assert cliffs.failures([row]) == [f"- torch, {row.form}, `{row.case}`: WRONG: its result is another"]


def test_peers_of_another_dtype_are_no_peers() -> None:
    ours = np.zeros(3)
    assert cliffs._difference(ours, ours.astype(np.float32)) == "its result is float32, not float64"
    assert cliffs._difference(ours, np.zeros((1, 3))) is None
    assert str(cliffs._difference(ours, np.zeros(4))).startswith("WRONG")


def test_the_distribution() -> None:
    ratios = (0.5, 2.0, 4.0, None)
    rows = [cliffs.Row("view", 1, n, "transpose", "x.T", ratio=ratio) for n, ratio in enumerate(ratios)]
    whole, view = cliffs.distribution(rows, lambda row: row.kind)
    assert whole == ["all", "3", "1.59", "2.00", "33%", "33%", "4.0"] and view[1:] == whole[1:]
