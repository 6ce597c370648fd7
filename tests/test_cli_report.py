"""``fxlite report``."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxlite import compiler
from tests import command_line
from tests.command_line import enter_folder
from tests.roofs import ROOFS

NET = '''"""A small model."""
import numpy as np

from fxlite import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)

    def forward(self, x):
        return np.tanh(self.first(x))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, as current folder, on a machine with known roofs."""
    monkeypatch.setattr(compiler, "machine_roofs", lambda: ROOFS)
    return enter_folder(tmp_path, monkeypatch, {"net": NET})


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """`fxlite report` with these arguments."""
    return command_line.run(capsys, "report", *arguments)


def test_it_writes_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "net.py:Net", "-i", "x=f32[B,8]", "--size", "B=3", "-o", "r.html", "--repeat", "2")
    steps = [line.split()[0] for line in err.splitlines()]
    assert status == 0 and steps == ["trace", "optimize", "emit", "build", "roofs", "NumPy", "C", "costs", "page"]
    lines = out.splitlines()
    assert lines[0].endswith("B=3") and lines[-1] == "r.html written"
    assert " in NumPy" in lines[1] and " in C" in lines[2]
    text = (folder / "r.html").read_text()
    assert "k0_first" in text and '"name":"net.py"' in text and str(folder) not in text


def test_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("net.py:Net", "-i", "x=f32[B,8]", "-o", "r.html")
    status, out, _ = run(capsys, *arguments, "--no-profile")
    assert status == 0 and "Nothing was measured" in out
    status, out, _ = run(capsys, *arguments, "--backend", "python", "--repeat", "1")
    assert status == 0 and out.count("in NumPy") == 2
    assert "k0_first" not in (folder / "r.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "r.svg"), "one HTML page: -o r.html"),
        (("-o", "none/r.html"), "there is no folder none"),
        (("-o", "r.html", "--backend", "cuda"), "the kernels of 'cuda' cannot be timed; choose the back end 'c'"),
        (("-o", "r.html", "--size", "N=3"), "there is no named dim 'N'"),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    status, out, err = run(capsys, "net.py:Net", "-i", "x=f32[B,8]", *arguments)
    assert (status, out) == (1, "") and said in err
    assert not (folder / "r.html").exists()


def test_types_are_needed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "net.py:Net", "-o", "r.html")
    assert status == 1 and "needs types of its inputs" in err
