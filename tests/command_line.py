"""What tests of the command line share: a folder with programs to be in, and running a command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fxlite.cli import main


def enter_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], columns: int = 100) -> Path:
    """Write the programs (module name -> text) into the folder, and go there, for one test; none of
    them is imported yet."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", str(columns))
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    try:
        status = main(arguments)
    except SystemExit as error:
        status = int(error.code or 0)
    shown = capsys.readouterr()
    return status, shown.out, shown.err
