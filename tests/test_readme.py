"""The programs of the tour, of the guides and of the pages for newcomers print what stands below them, the README's
commands are the ones that CI runs, and its picture and its diff are what its commands make.

After a change of what is printed, ``python -m tests.test_readme`` writes the real outputs.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fxlite import backend, passes
from fxlite.cli import main
from fxlite.codegen.c import templates
from fxlite.ops.op import REGISTRY
from tests.codegen.compiling import c_file

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
TOUR = ROOT / "docs" / "tour.md"
HOME = ROOT / "docs" / "index.md"
PAGES = (
    TOUR,
    *(ROOT / "docs" / f"{name}.md" for name in ("quick_start", "from_torch_fx", "from_onnx", "from_jax", "from_tvm")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
)
#: What a page needs besides the base install.
NEEDED = {"from_onnx": "onnx"}
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.M | re.S)


def outputs(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Run the blocks of Python in one namespace, in the current folder, as one file ``model.py``.

    Yields each block with what it printed."""
    blocks = list(BLOCK.finditer(text))
    whole = "\n".join(block["code"] for block in blocks)
    linecache.cache["model.py"] = (len(whole), None, whole.splitlines(True), "model.py")
    namespace = {"__name__": "model", "__file__": "model.py"}
    line = 0
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = "\n" * line + block["code"]
            exec(compile(code, "model.py", "exec", dont_inherit=True), namespace)
        line += block["code"].count("\n") + 1
        yield block, printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_programs_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDED.get(page.stem, "numpy"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FXLITE_REPRO_DIR", str(tmp_path))
    checked = 0
    tables: tuple[dict[str, Any], ...] = (passes.PASSES, REGISTRY, backend._REGISTERED, templates.TEMPLATES)
    registered = [dict(table) for table in tables]
    try:
        for block, printed in outputs(page.read_text()):
            assert printed == (block["shown"] or ""), block["code"]
            checked += bool(printed)
    finally:  # they register passes, ops, back ends and templates
        for table, before in zip(tables, registered):
            table.clear()
            table.update(before)
    assert checked >= (8 if page == TOUR else 1)
    if page == TOUR:
        assert (tmp_path / "block.svg").read_text().startswith("<svg")


def commands() -> list[str]:
    """The README's shell commands."""
    return re.findall(r"^```sh\n(.*?)\n```", README.read_text(), re.M | re.S)


def test_two_commands_do_everything() -> None:
    main_job, tests = commands()
    assert "\n" not in main_job and "\n" not in tests
    for command in (main_job, tests):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    for word in shlex.split(main_job):
        if word.startswith("tutorials/"):
            assert (ROOT / word.partition(":")[0]).is_file(), word


def test_ci_runs_the_command_of_the_readme() -> None:
    tests = commands()[1].split(" && ")[-1].removeprefix(".venv/bin/python ")
    assert tests == "-m pytest -n 2"
    assert re.search(rf'^step tests "\$venv/bin/python" {re.escape(tests)}$', (ROOT / ".ci" / "run").read_text(), re.M)


def test_links_lead_somewhere() -> None:
    for page in (README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r'\]\(([^)#]+)\)|src(?:set)?="([^"]+)"', page.read_text()):
            target = next(filter(None, target))
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def drawn() -> list[str]:
    """The commands that draw the pictures of the README and of the site's first page."""
    text = README.read_text() + HOME.read_text()
    return list(dict.fromkeys(re.findall(r"`fxlite (trace [^`]*--draw docs/[^`]*)`", text)))


@pytest.mark.parametrize("command", drawn())
def test_pictures_are_what_their_commands_draw(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(drawn()) == 3
    arguments = shlex.split(command)
    picture = ROOT / arguments[-1]
    monkeypatch.chdir(ROOT)
    assert main([*arguments[:-1], str(tmp_path / "new.svg")]) == 0
    assert "new.svg written" in capsys.readouterr().out.replace("\n", "")
    assert (tmp_path / "new.svg").read_text() == picture.read_text(), f"run fxlite {command}"


def test_before_and_after_are_what_the_commands_make(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tutorials import digits

    text = README.read_text()
    (shown,) = re.findall(r"^```c\n(.*?)^```", text, re.M | re.S)
    assert c_file(digits.trained(), x="f32[B,1,8,8]").endswith(shown)
    pytest.importorskip("libcst", reason='pip install "fxlite[patch]"')
    (command, diff), *_ = re.findall(r"^```console\n\$ fxlite (.+?)\n(.*?)^```", text, re.M | re.S)
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == diff


def update() -> None:
    """Write what the programs print below them."""
    for page in PAGES:
        text = page.read_text()
        made, position = [], 0
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.environ["FXLITE_REPRO_DIR"] = folder
            for block, printed in outputs(text):
                shown = f"\n```text\n{printed}```\n" if printed else ""
                made += [text[position : block.start()], f"```python\n{block['code']}```\n{shown}"]
                position = block.end()
        page.write_text("".join([*made, text[position:]]))


if __name__ == "__main__":
    sys.exit(update())
