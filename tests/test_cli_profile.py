"""``fxlite profile``, ``fxlite blame`` and ``fxlite info --roofs``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fxlite import compiler
from fxlite.codegen.runtime import roofs
from fxlite.show.node_cost import Roofs
from tests.command_line import enter_folder, run
from tests.roofs import ROOFS

NET = '''"""A small model."""
import numpy as np

from fxlite import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        y = np.tanh(self.first(x))
        return self.second(y)
'''
X = ("-i", "x=f32[B,8]", "--repeat", "2")


#: What standard error says of the work.
STEP = re.compile(r"measure +\d+ (calls in \w+|passes in turns) +\S+ m?s\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, as current folder, on a machine with known roofs."""
    monkeypatch.setattr(compiler, "machine_roofs", lambda: ROOFS)
    return enter_folder(tmp_path, monkeypatch, {"net": NET})


def rows(out: str) -> list[list[str]]:
    """The words of the lines of the table, its heading first."""
    lines = out.split("\n\n")[1].splitlines()
    return [line.split() for line in lines]


def test_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "profile", "net.py:Net", *X, "--size", "B=6")
    assert status == 0 and STEP.fullmatch(err)
    head = out.splitlines()
    assert head[0].startswith("Net: 3 nodes in Python, ") and head[0].endswith("B=6")
    assert [line.split()[0] for line in head[1:6]] == ["call", "measuring", "parts", "the", "roofs"]
    table = rows(out)
    assert table[0] == ["node", "module", "line", "median", "%", "FLOP/s", "B/s", "bound"]
    assert {row[0] for row in table[1:4]} == {"linear", "tanh", "linear_1"}
    (tanh,) = [row for row in table if row[0] == "tanh"]
    assert tanh[1] == "net.py:14"


def test_kernels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--backend", "c", "--threads", "1", "--size", "B=6")
    status, out, err = run(capsys, "profile", "net.py:Net", *X, *arguments)
    assert status == 0 and STEP.fullmatch(err)
    assert out.startswith("Net: 2 kernels in C, 1 thread, B=6\n")
    table = rows(out)
    assert {row[0] for row in table[1:3]} == {"k0_first", "k1_second"}
    (first,) = [row for row in table if row[0] == "k0_first"]
    assert first[1:4] == ["linear,", "tanh", "net.py:14"]


@pytest.mark.parametrize(
    ("by", "labels"),
    [("module", ["Net", "first", "second"]), ("op", ["linear", "tanh"]), ("line", ["net.py:14", "net.py:15"])],
)
def test_groups(folder: Path, capsys: pytest.CaptureFixture[str], by: str, labels: list[str]) -> None:
    status, out, _ = run(capsys, "profile", "net.py:Net", *X, "--by", by)
    assert status == 0
    table = rows(out)
    assert table[0][0] == by and sorted(row[0] for row in table[1:]) == sorted(labels)


def test_trace_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "profile", "net.py:Net", *X, "--trace", "t.json")
    assert status == 0 and out.endswith("t.json written\n")
    names = {event["name"] for event in json.loads((folder / "t.json").read_text())["traceEvents"]}
    assert names == {"Net", "first", "second", "linear", "tanh", "linear_1"}


def test_real_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(folder / "x.npy", np.ones((7, 8), np.float32))
    status, out, _ = run(capsys, "profile", "net.py:Net", *X, "--data", "x=x.npy")
    assert status == 0 and out.splitlines()[0].endswith("B=7")


@pytest.mark.parametrize("backend", ["python", "c"])
def test_blame(folder: Path, capsys: pytest.CaptureFixture[str], backend: str) -> None:
    status, out, err = run(capsys, "blame", "net.py:Net", *X, "--backend", backend)
    assert status == 0 and STEP.fullmatch(err)
    lines = out.splitlines()
    if backend == "c":
        assert lines.pop() == "a kernel's time is shared among its lines by their FLOPs"
    assert [line[23:] for line in lines] == NET.splitlines()  # the file, and nothing is left out
    timed = {int(line[17:21]): float(line[10:16].rstrip("%")) for line in lines if "%" in line[:17]}
    assert timed.keys() == {14, 15} and sum(timed.values()) == pytest.approx(100, abs=0.2)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["profile", "net.py:Net"], 1, 'needs types of its inputs: --input "x=f32[...]"'),
        (["profile", "net.py:Net", *X, "--size", "C=3"], 1, "there is no named dim 'C'"),
        (
            ["profile", "net.py:Net", *X, "--backend", "cuda"],
            1,
            "the kernels of 'cuda' cannot be timed; choose the back end 'c' or 'python'",
        ),
        (["profile", "net.py:Net", *X, "--backend", "d"], 1, "there is no back end 'd'"),
        (["profile", "net.py:Net", *X, "--by", "node"], 2, "invalid choice: 'node'"),
        (["profile", "net.py:Net", *X, "--repeat", "0"], 2, "not a number from 1 on"),
        (["profile", "net.py:Nett", *X], 1, "did you mean Net?"),
        (["blame", "net.fxl", *X], 1, "'net.fxl' names no source file; write FILE.py:NAME"),
    ],
)
def test_errors(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, message: str
) -> None:
    found, out, err = run(capsys, *arguments)
    assert found == status and message in err and out == ""


def test_info_roofs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure() -> Roofs:
        return ROOFS

    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    monkeypatch.setattr(roofs, "measure", measure)
    status, out, err = run(capsys, "info", "--roofs")
    assert (status, err) == (0, "")
    assert out.splitlines()[1].split() == ["fma_f32", "500", "GFLOP/s", "1", "TFLOP/s", "made", "up"]
    assert list((tmp_path / "roofs").iterdir())
    run(capsys, "info", "--clear-cache")
    assert not (tmp_path / "roofs").exists()


# -- what values decide ----------------------------------------------------------------------------
HALVE = '''"""A loop whose rounds depend on values."""


def halve(x):
    while x.sum() > 10:
        x = x * 0.5
    return x
'''


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("profile --backend python", "while_loop"),
        ("profile --backend c --by op", "while_loop"),
        ("blame --backend c", "def halve(x)"),
        ("report --backend c -o report.html", "report.html written"),
        ("cost", "while_loop_trips"),
        ("cost --size while_loop_trips=3", "FLOPs          32"),
        ("check --max-flops 32 --size while_loop_trips=3", "32 FLOPs"),
        ("check --max-flops 32 --size trips=3", "it has while_loop_trips"),
    ],
)
def test_rounds_that_values_decide(folder: Path, capsys: pytest.CaptureFixture[str], command: str, said: str) -> None:
    """Their FLOPs are unknown where they are measured, and can be asked for where they are a formula."""
    (folder / "halve.py").write_text(HALVE)
    name, *options = command.split()
    status, out, err = run(capsys, name, "halve.py:halve", "-i", "x=f32[4]", *options)
    assert said in out + err and "Traceback" not in err, out + err
    assert status == int("size trips" in command), err
