"""``fxlite bisect``: the first wrong pass of a pipeline is named, with its rewrite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fxlite.cli import bisect as bisect_command
from fxlite.cli import main
from fxlite.graph.graph_module import passes_of

MODEL = """
import numpy as np
from fxlite import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = np.exp(self.fc(x))
        return np.maximum(y * 1, 0) - np.exp(x)
"""
PASSES = """
from fxlite import passes

def broken(gm):
    for node in gm.graph.find_nodes(op="call_function", target="sub"):
        node.args = node.args[::-1]

def raises(gm):
    for node in gm.graph.find_nodes(op="call_function", target="sub"):
        gm.graph.erase_node(node)

@passes.graph_pass(exactness="changes")
def doubles(gm):
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function("add", (output.args[0], output.args[0])),)

def returns_twice(gm):
    gm.graph.output(gm.graph.placeholders[0])
"""


@pytest.fixture(autouse=True)
def _folder(registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "my_passes.py").write_text(PASSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FXLITE_REPRO_DIR", str(tmp_path / "repro"))


def bisect(capsys: pytest.CaptureFixture[str], passes: str, *options: str) -> tuple[int, str, str]:
    status = main(["bisect", "net.py:Net", "-i", "x=f32[B,4]", "--passes", passes, *options])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_right_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = bisect(capsys, "cse,simplify,dce", "--backend", "python")
    assert status == 0 and "3 passes, none is wrong" in out
    lines = out.splitlines()
    assert [line.split()[1] for line in lines[:4]] == ["traced", "cse", "simplify", "dce"]
    assert "mul -1" in lines[2] and "checked: 2 run" in lines[2]


def test_wrong_pass_is_named_with_its_rewrite(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = bisect(capsys, "simplify,my_passes.py:broken,dce")
    assert status == 1 and "WRONG  broken" in out and "dce" not in out
    assert "changed the result of sub: f32[B,4] = sub (net.py:12)" in out
    (file,) = Path("repro").glob("*.py")
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "expected" in run.stdout, run.stderr


@pytest.mark.parametrize(("name", "text"), [("raises", "cannot erase sub"), ("returns_twice", "left an invalid graph")])
def test_pass_that_does_not_run(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = bisect(capsys, f"cse,my_passes.py:{name}")
    assert status == 1 and f"WRONG  {name}" in out and text in out


def test_wrong_code_is_told_from_a_wrong_pass(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The back end here goes wrong on graphs without a ``mul``."""
    compiler = bisect_command.compile_program

    def wrong(module: Any, **options: Any) -> Any:
        function = compiler(module, **options)
        is_right = module.graph.find_nodes(op="call_function", target="mul")
        return function if is_right else lambda x: np.asarray(function(x)) + np.float32(1)

    monkeypatch.setattr(bisect_command, "compile_program", wrong)
    status, out, _ = bisect(capsys, "cse,simplify,dce", "--backend", "python", "--size", "B=2")
    assert status == 1 and "WRONG  simplify" in out and "ok     cse" in out
    assert "its result is right, interpreted; compiled with --backend python" in out
    assert Path("repro/Net_python.py").is_file()


def test_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean cse" in bisect(capsys, "csee")[2]
    assert "there is no file nowhere.py" in bisect(capsys, "nowhere.py:p")[2]
    assert bisect(capsys, "my_passes.py:brken")[0] == 1


def test_a_pass_that_means_to_change_results_speaks_for_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled behind it is compared with what it made, not with nothing."""
    passes = "my_passes.py:doubles,cse"
    status, out, _ = bisect(capsys, passes, "--backend", "python")
    assert status == 0 and "checked: types alone" in out
    real = bisect_command.compile_program

    def wrong(module: Any, **options: Any) -> Any:
        function = real(module, **options)
        is_behind = "doubles" in passes_of(module)
        return (lambda *args: function(*args) + 1) if is_behind else function

    monkeypatch.setattr(bisect_command, "compile_program", wrong)
    status, out, _ = bisect(capsys, passes, "--backend", "python")
    assert status == 1 and "WRONG" in out
