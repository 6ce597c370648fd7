"""The tutorials as pages: prose, code, what the code printed, and the pictures it drew.

In: the scripts of ``tutorials/``, in cells. Out: ``docs/tutorials/NAME.md`` and its pictures. Running all of them
takes minutes, so the pages are kept: ``python -m docs.site.tutorial_pages`` writes them again after a change of a
tutorial or of what is printed (``python -m docs.site.tutorial_pages 04`` some of them, and with ``--prose`` without
running them). Tests compare prose and code with the scripts, and the outputs with what the scripts print.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fxlite as fx

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "tutorials"
#: The largest graph that is drawn below the cell that traces it, in nodes.
LARGEST_PICTURE = 40
_MARK = "=== end of a cell ==="
_OUTPUT = re.compile(r"\n```text\n.*?^```\n", re.M | re.S)
_PICTURE = re.compile(r"\n!\[[^\]]*\]\(images/[^)]*\)\n")


@dataclass(frozen=True)
class Cell:
    """A part of a tutorial: prose, or code that begins behind ``line`` lines."""

    text: str
    line: int
    is_code: bool


def tutorials() -> list[Path]:
    """The scripts that have a page."""
    return sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))


def cells(path: Path) -> list[Cell]:
    """The cells of a script, behind its docstring."""
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("# %%")]
    found = []
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        is_code = "[markdown]" not in lines[start]
        text = "\n".join(lines[start + 1 : end])
        if not is_code:
            text = re.sub(r"^# ?", "", text, flags=re.M)
        found.append(Cell(text.strip("\n"), start + 1, is_code))
    return found


# -- running -------------------------------------------------------------------------------------------
def run(path: Path) -> tuple[list[str], dict[str, str]]:
    """What each cell of code printed, and all pictures by file name. Runs in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder, "t")
        scratch.mkdir()
        command = [sys.executable, "-m", "docs.site.tutorial_pages", "--cells", path, folder]
        environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8")
        if done.returncode:
            raise RuntimeError(f"{path.name} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr}")
        pictures = {p.name: p.read_text(encoding="utf-8") for p in sorted(Path(folder).glob("*.svg"))}
        printed = re.sub(rf"{re.escape(str(scratch))}(/tmp\w+)?", "/tmp/tutorial", done.stdout).replace(f"{ROOT}/", "")
    return printed.split(f"{_MARK}\n")[:-1], pictures


def _run_cells(path: Path, pictures: Path) -> None:
    """Run a script cell by cell. What it draws is kept in ``pictures`` under the number of the cell."""
    scratch = Path(tempfile.gettempdir())
    sys.path[0] = str(path.parent)
    sys.argv = [str(path)]
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    remove = shutil.rmtree
    kept: set[Path] = set()

    def keep_pictures(number: int) -> None:
        for drawn in sorted(set(scratch.rglob("*.svg")) - kept):
            shutil.copyfile(drawn, pictures / f"{path.stem[:2]}_{number:02}_{drawn.name}")
            kept.add(drawn)

    code = [cell for cell in cells(path) if cell.is_code]
    for number, cell in enumerate(code, 1):

        def remove_later(folder: Any, *others: Any, number: int = number, **options: Any) -> None:
            keep_pictures(number)
            remove(folder, *others, **options)

        shutil.rmtree = remove_later  # type: ignore[assignment]
        exec(compile("\n" * cell.line + cell.text, str(path), "exec", dont_inherit=True), namespace)
        keep_pictures(number)
        module = namespace.get("gm")
        if "gm = " in cell.text and isinstance(module, fx.GraphModule) and len(module.graph) <= LARGEST_PICTURE:
            module.graph.draw(str(pictures / f"{path.stem[:2]}_{number:02}_graph.svg"))
        sys.stdout.flush()
        sys.stdout.write(f"{_MARK}\n")
        sys.stdout.flush()


# -- pages ---------------------------------------------------------------------------------------------
def page(path: Path, printed: Sequence[str] = (), pictures: Sequence[str] = ()) -> str:
    """The page of a tutorial, with what its cells of code printed and drew."""
    about = " ".join(path.read_text(encoding="utf-8").split("\n\n")[0].strip('"').split())
    number, *words = path.stem.split("_")
    named = " ".join({"numpy": "NumPy", "c": "C"}.get(word, word) for word in words)
    parts = [f"# {int(number)}. {named[0].upper()}{named[1:]}", about]
    parts.append(f"This page shows `tutorials/{path.name}` and what it printed in its last run.")
    number = 0
    for cell in cells(path):
        if not cell.is_code:
            prose = cell.text.replace("](../docs/", "](../")
            parts.append(re.sub(r"^#", "##", prose, flags=re.M))
            continue
        number += 1
        parts.append(f"```python\n{cell.text}\n```")
        if printed and printed[number - 1].strip():
            parts.append(f"```text\n{printed[number - 1].rstrip()}\n```")
        mine = [p for p in pictures if p.startswith(f"{path.stem[:2]}_{number:02}_")]
        parts += [f"![{p[6:-4].replace('_', ' ')}](images/{p})" for p in mine]
    return "\n\n".join(parts) + "\n"


def without_outputs(text: str) -> str:
    """A page as it would be if its code printed and drew nothing."""
    return _PICTURE.sub("", _OUTPUT.sub("", text))


def outputs(text: str) -> str:
    """All that a page says was printed."""
    return "".join(found[9:-4] for found in _OUTPUT.findall(text))


def kept(text: str) -> tuple[list[str], list[str]]:
    """What a page says that its cells of code printed and drew."""
    printed, pictures = [], []
    for cell in re.split(r"^```python\n", text, flags=re.M)[1:]:
        behind = cell.partition("\n```\n")[2]
        found = _OUTPUT.match(behind)
        printed.append(found[0][9:-4] if found else "")
        pictures += re.findall(r"^!\[[^\]]*\]\(images/([^)]*)\)$", behind, re.M)
    return printed, pictures


def write_prose(path: Path) -> None:
    """Write the page of a tutorial of which only prose has changed: its outputs stay."""
    file = PAGES / f"{path.stem}.md"
    printed, pictures = kept(file.read_text(encoding="utf-8"))
    file.write_text(page(path, printed, pictures), encoding="utf-8")


def write(path: Path) -> None:
    """Run a tutorial and write its page."""
    printed, pictures = run(path)
    folder = PAGES / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{path.stem[:2]}_*.svg"):
        old.unlink()
    for name, text in pictures.items():
        (folder / name).write_text(text, encoding="utf-8")
    (PAGES / f"{path.stem}.md").write_text(page(path, printed, sorted(pictures)), encoding="utf-8")


def main(*arguments: str) -> None:
    """Write the pages of the tutorials whose numbers are given, or of all."""
    if arguments[:1] == ("--cells",):
        _run_cells(Path(arguments[1]), Path(arguments[2]))
        return
    prose = arguments[:1] == ("--prose",)
    for path in tutorials():
        if not arguments[prose:] or path.stem[:2] in arguments:
            (write_prose if prose else write)(path)
            sys.stdout.write(f"docs/tutorials/{path.stem}.md written\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
