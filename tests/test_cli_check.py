"""``fxlite check`` and ``fxlite trace --query``, as a build runs them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import fxlite as fx
from tests.command_line import enter_folder, run

NET = '''"""A small model."""
import numpy as np

import fxlite.nn.functional as F
from fxlite import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = np.maximum(self.bn(self.conv(x)), 0)
        y = np.exp(y).mean(axis=(2, 3))
        return self.fc(y)
'''
X = ("-i", "x=f32[B,1,8,8]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, as current folder."""
    return enter_folder(tmp_path, monkeypatch, {"net": NET}, 120)


def test_all_kinds_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = '--match "conv2d > batch_norm > relu" --no-match "dropout, [dtype=f64]"'
    limits = "--max-peak 20kB --max-flops 1M --max-weights 1KiB --max-nodes 40"
    command = f"check net.py:Net --size B=8 {queries} {limits} --lint"
    status, out, err = run(capsys, *shlex.split(command), *X)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "ok  match        conv2d > batch_norm > relu: 1 match",
        "ok  no match     dropout, [dtype=f64]: no matches",
        "ok  max peak     20 kB: 16.4 kB while batch_norm (bn (BatchNorm2d), net.py:16) runs",
        "ok  max flops    1 MFLOPs: " + out.splitlines()[3].partition(": ")[2],
        "ok  max weights  1.02 kB: 284 B in 8 weights",
        "ok  max nodes    40: 16 nodes",
        "ok  lint         the graph is sound",
        "7 checks passed",
    ]


def test_failures_name_the_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = '--match "conv2d > relu" --no-match "relu > exp"'
    limits = "--max-peak 10kB --max-flops 2k --max-weights 100B --max-nodes 3"
    status, out, err = run(capsys, *shlex.split(f"check net.py:Net --size B=8 {queries} {limits}"), *X)
    assert (status, err) == (1, "")
    for line in (
        "FAIL  match        conv2d > relu: no matches",
        "FAIL  no match     relu > exp: 1 match",
        "                     relu > exp: f32[B,4,8,8], net.py:17",
        "FAIL  max peak     10 kB: 16.4 kB while batch_norm (bn (BatchNorm2d), net.py:16) runs",
        "                     8.19 kB conv2d: f32[B,4,8,8], conv (Conv2d), net.py:16",
        "                     8.19 kB batch_norm: f32[B,4,8,8], bn (BatchNorm2d), net.py:16",
        "FAIL  max weights  100 B: 284 B in 8 weights",
        "                     144 B conv.weight",
        "FAIL  max nodes    3: 16 nodes",
        "6 of 6 checks failed",
    ):
        assert line in out.splitlines(), out
    assert "FAIL  max flops    2 kFLOPs: " in out
    assert "FLOPs conv2d: f32[B,4,8,8], conv (Conv2d), net.py:16" in out


def test_lint_alone_and_damage(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any check the graph's own rules are checked; what lint says is shown."""
    assert run(capsys, "check", "net.py:Net", *X)[:2] == (0, "ok  lint  the graph is sound\n1 check passed\n")

    def fails(self: fx.Graph) -> None:
        raise fx.errors.GraphError("2 violations:\n  relu is late")

    monkeypatch.setattr(fx.Graph, "lint", fails)
    status, out, _ = run(capsys, "check", "net.py:Net", *X, "--lint")
    assert status == 1
    assert "FAIL  lint  the graph is damaged" in out and "relu is late" in out


def test_a_limit_that_holds_for_all_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A formula is decided without --size where it can be; else the needed sizes are named."""
    program = "import numpy as np\ndef f(x): return np.exp(x).sum(axis=(0, 1))\n"
    (folder / "f.py").write_text(program)
    status, _, err = run(capsys, "check", "f.py:f", "-i", "x=f32[B,T]", "--max-peak", "1MB")
    assert status == 1
    assert "--max-peak: the value is 4*B*T + 4 B; give --size B=… --size T=…" in err
    status, out, _ = run(capsys, "check", "f.py:f", "-i", "x=f32[3,T]", "--size", "T=5", "--max-peak", "60")
    assert status == 1 and "60 B: 64 B while sum (f.py:2) runs" in out
    (folder / "f.py").write_text("def f(x): return x[:, :2]\n")
    status, out, _ = run(capsys, "check", "f.py:f", "-i", "x=f32[B,4]", "--max-peak", "1")
    assert status == 0 and "1 B: 0 B" in out


def test_a_misspelled_place_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A forbidden pattern in a module that does not exist never fails: a note says so."""
    status, out, _ = run(capsys, "check", "net.py:Net", *X, "--no-match", 'module("con") conv2d')
    assert status == 0
    assert "no node was made in a module 'con'; did you mean conv?" in out


def test_saved_graphs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.path.insert(0, str(folder))
    from net import Net  # type: ignore[import-not-found]

    fx.save(fx.symbolic_trace(Net().eval(), x="f32[B,1,8,8]"), "net.fxl")
    status, out, _ = run(capsys, "check", "net.fxl", "--no-match", "exp[bytes>1kB]", "--size=B=9")
    assert status == 1 and "exp: f32[B,4,8,8], net.py:17" in out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--no-match", "conv2"], 2, "there is no op 'conv2'; did you mean conv2d"),
        (["--no-match", "conv2d[padd=1]"], 2, "         ^^^^"),
        (["--max-peak", "1XB"], 2, "'1XB' is not a number of bytes; write 200MB, 64MiB, 5G or 1000000"),
        (["--max-flops", "1MB"], 2, "'1MB' is not a number of FLOPs; write 200MFLOPs, 5G or 1000000"),
        (["--max-nodes", "-3"], 2, "'-3' is not a count; write 100 or 5k"),
        (["--size", "B"], 2, "not of the form DIM=N"),
        (["--size", "C=3"], 1, "the program has no named dim 'C'; it has B"),
        (["--size", "B=3", "--size", "B=4"], 1, "--size B is given twice"),
        (["--match", "[bytes>1kB]"], 1, "(on the command line --size)"),
    ],
)
def test_errors(
    arguments: list[str], status: int, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, err = run(capsys, "check", "net.py:Net", *X, *arguments)
    assert found == status and message in err, err


def test_limits_need_types(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", "net.py:Net", "--no-match", "dropout", "--max-weights", "1M")[0] == 0
    status, _, err = run(capsys, "check", "net.py:Net", "--max-peak", "1M")
    assert status == 1 and 'needs types of its inputs: --input "x=f32[...]"' in err


# -- trace --query ---------------------------------------------------------------------------------
def test_trace_query(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "trace", "net.py:Net", *X, "--query", "relu, linear")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "relu: f32[B,4,8,8] = ops.relu(batch_norm)  # net.py:16",
        "linear: f32[B,3] = ops.linear(mean, self.fc.weight, self.fc.bias)  # fc (Linear), net.py:18",
        "# 2 matches",
    ]
    _, out, _ = run(capsys, "trace", "net.py:Net", *X, "--query", "batch_norm > relu > exp")
    found = [line.partition(":")[0] for line in out.splitlines() if not line.startswith((" ", ")", "# bn"))]
    assert found == ["batch_norm", "relu", "exp", "", "# 1 match"]
    _, out, _ = run(capsys, "trace", "net.py:Net", *X, "--query", "#rellu")
    assert out.splitlines() == ["# no node is named rellu; did you mean relu?", "# 0 matches"]
