"""The page of torch.compile's backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import imported, torch_compile


def row(name: str, first: tuple[float, float], later: tuple[float, float]) -> dict[str, object]:
    keys = ("fxlite", "inductor")
    return {"name": name, "first": dict(zip(keys, first)), "later": {"eager": 0.5, **dict(zip(keys, later))}}


def test_the_page_has_means_and_models(tmp_path: Path) -> None:
    rows = [row("a", (1.0, 4.0), (0.01, 0.02)), row("b", (4.0, 4.0), (0.02, 0.01))]
    path = tmp_path / "page.md"
    path.write_text("before\n" + "old\n".join(torch_compile.MARKS) + "behind\n")
    torch_compile.write(path, torch_compile.page(rows, "A machine."))
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("behind\n") and "old" not in text
    assert "takes **0.50** of inductor's processor time, and later calls **1.00**" in text
    assert "| a | 1.0 s | 4.0 s | 0.25 | 500.0 ms | 10.0 ms | 20.0 ms | 0.50 |" in text
    path.write_text("no marks")
    with pytest.raises(SystemExit, match="has no line"):
        torch_compile.write(path, "")


def test_the_models_are_those_of_other_libraries() -> None:
    assert len(torch_compile.MODELS) == 10 and set(torch_compile.MODELS) <= imported.MODELS.keys()
