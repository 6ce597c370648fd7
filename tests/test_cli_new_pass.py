"""``fxlite new-pass`` and passes of one's own on the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fxlite.cli import main
from fxlite.passes import PASSES

MODEL = """
import numpy as np

from fxlite.nn import functional as F


def model(x):
    return np.abs(-x) + x * F.sigmoid(x)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(PASSES)
    yield
    for name in PASSES.keys() - known:
        del PASSES[name]


@pytest.mark.parametrize(("options", "gone", "there"), [([], "neg:", "abs: "), (["--rule"], "sigmoid:", "silu: ")])
def test_scaffold_works_as_it_is(options: list[str], gone: str, there: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"scaffold_{len(options)}"
    assert main(["new-pass", name, "-o", "own", *options]) == 0
    out = capsys.readouterr().out
    assert f"pytest own/test_{name}.py" in out and f"--passes own/{name}.py:{name}" in out
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"own/test_{name}.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr
    trace = ["trace", "model.py:model", "--input", "x=f32[4]"]
    assert main(trace) == 0
    before = capsys.readouterr().out
    assert main([*trace, "--passes", f"cse,own/{name}.py:{name}"]) == 0
    after = capsys.readouterr().out
    assert gone in before and gone not in after and there in after


def test_scaffolded_files_are_in_the_project_s_style(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    main(["new-pass", "styled_pass"])
    main(["new-pass", "styled_rule", "--rule"])
    config = Path(__file__).parents[1] / "pyproject.toml"
    files = [str(p) for p in tmp_path.glob("*styled*.py")]
    assert len(files) == 4
    for command in (["check", "--ignore=I001"], ["format", "--check"]):  # order: by the folder
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", str(config), *files],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no-name", "'no-name' cannot be the name of a pass"),
        ("class", "'class' cannot be the name of a pass"),
        ("cse", "there is a pass cse already"),
        ("json", "json.py would hide the module json"),
        ("here", "here.py exists"),
    ],
)
def test_names_that_will_not_do(name: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("here.py").write_text("# mine")
    assert main(["new-pass", name]) == 1
    assert says in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"model.py", "here.py"}
    assert Path("here.py").read_text() == "# mine"


@pytest.mark.parametrize(
    ("passes", "says"),
    [
        ("cs", "there is no pass 'cs'; did you mean cse"),
        ("gone.py:p", "there is no file gone.py"),
        ("model.py:modell", "model.py has no 'modell'; did you mean model?"),
        ("model.py:np", "model.py:np is not a pass, but a module"),
    ],
)
def test_passes_that_are_not_there(passes: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "model.py:model", "--input", "x=f32[4]", "--passes", passes]) == 1
    assert says in capsys.readouterr().err
    assert main(["diff", "model.py:model", "--input", "x=f32[4]", "--passes", passes]) == 2
    assert says in capsys.readouterr().err


def test_a_plain_function_is_a_pass(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "def rename(gm):\n"
        "    for node in gm.graph.find_nodes(op='call_function'):\n"
        "        gm.graph.rename_node(node, f'my_{node.name}')\n"
    )
    command = ["--input", "x=f32[4]", "--passes", "mine.py:rename, dce"]
    assert main(["trace", "model.py:model", *command]) == 0
    assert re.search(r"my_abs: +f32\[4\]", capsys.readouterr().out)
