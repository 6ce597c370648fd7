"""The race of two checkouts: both run their own files, and every row of the workload is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import regress

ROOT = Path(__file__).parents[2]


def checkout(folder: Path, said: str) -> Path:
    """A checkout whose ``chain`` says when it is imported, and which is this one otherwise."""
    for name in ("fxlite", "passes", "codegen", "tutorials"):
        (folder / name).symlink_to(ROOT / name)
    benchmarks = folder / "tests" / "benchmarks"
    benchmarks.mkdir(parents=True)
    for file in (*(ROOT / "tests").glob("*.py"), *(ROOT / "tests" / "benchmarks").glob("*.py")):
        if file.name != "graph_models.py":
            (folder / file.relative_to(ROOT)).symlink_to(file)
    text = (ROOT / "tests" / "benchmarks" / "graph_models.py").read_text()
    (benchmarks / "graph_models.py").write_text(f"{text}\nprint({said!r})\n")
    return folder


def test_two_checkouts_take_turns(tmp_path, capfd):
    folders = [tmp_path / side for side in regress.SIDES]
    for folder in folders:
        folder.mkdir()
        checkout(folder, f"this is {folder.name}")
    options = ["--kinds", "graph", "--only", "chain 1k", "--rounds", "1", "--most", "1"]
    rows = regress.main([*map(str, folders), *options, "--seconds", "0.001"])
    said = capfd.readouterr()
    assert "this is before" in said.err and "this is after" in said.err
    names = {row.name for row in rows}
    assert {"chain 1k, fxlite, trace, 1", "chain 1k, fxlite, pipeline, checked, 1"} <= names
    assert all(row.ratio > 0 and row.low <= row.ratio <= row.high for row in rows)
    assert "geometric mean" in said.out and f"of {len(rows)}" in said.out


def test_a_folder_without_benchmarks_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="is no checkout of fxlite"):
        regress.main([str(tmp_path), str(ROOT)])
