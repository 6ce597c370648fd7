"""``fxlite cost`` and ``fxlite profile --passes``."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fxlite import compiler
from tests.command_line import enter_folder, run
from tests.roofs import ROOFS

NET = '''"""Two ways to multiply three matrices, and a model."""
import numpy as np

from fxlite import nn, passes


def two(x, a, b):
    return x @ a @ b


def one(x, a, b):
    return x @ (a @ b)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        return np.tanh(self.bn(self.conv(x)))


@passes.graph_pass
def nothing(gm):
    """Leave all as it is."""
'''
MATRICES = ("-i", "x=f32[T,64]", "-i", "a=f32[64,64]", "-i", "b=f32[64,64]")
NET_X = ("net.py:Net", "-i", "x=f32[B,3,N,N]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs, as current folder, on a machine with known roofs."""
    monkeypatch.setattr(compiler, "machine_roofs", lambda: ROOFS)
    return enter_folder(tmp_path, monkeypatch, {"net": NET})


def test_formulas_and_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "cost", *NET_X)
    assert (status, err) == (0, "")
    assert "FLOPs          48*B*N**2 + 8\n" in out and "├─ conv Conv2d" in out
    _, out, _ = run(capsys, "cost", *NET_X, "--size", "B=2", "--size", "N=10")
    assert out.startswith("Net: 3 calls, B=2, N=10\nFLOPs          9,608\n")


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        ("op", ["conv2d", "batch_norm", "tanh"]),
        ("node", ["conv2d", "batch_norm", "tanh"]),
        ("module", ["Net", "├─", "├─", "└─"]),
    ],
)
def test_by(folder: Path, capsys: pytest.CaptureFixture[str], by: str, labels: list[str]) -> None:
    status, out, _ = run(capsys, "cost", *NET_X, "--by", by)
    table = [line.split() for line in out.split("\n\n")[1].splitlines()]
    assert status == 0 and table[0][0] == by
    assert [row[0] for row in table[1:]] == labels


def test_two_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("cost", "net.py:two", "--compare", "net.py:one", *MATRICES)
    status, out, err = run(capsys, *options)
    assert (status, err) == (0, "")
    assert out.splitlines()[1].split() == ["FLOPs", "16.4k*T", "8192*T", "+", "524k", "-8192*T", "+", "524k"]
    assert out.endswith("\nFLOPs lower than before: T > 64\n")
    _, out, _ = run(capsys, *options, "--quantity", "peak")
    assert out.endswith("\npeak bytes lower than before: T > 64\n")


def test_a_range_and_its_plot(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("cost", "net.py:two", "--compare", "net.py:one", *MATRICES, "--draw", "cost.svg")
    status, out, _ = run(capsys, *options, "--range", "T=32,128")
    assert status == 0 and out.endswith("T > 64\ncost.svg written\n")
    assert [line.split()[:2] for line in out.splitlines()[:3]] == [["T", "FLOPs"], ["32", "524k"], ["128", "2.1M"]]
    texts = [e.text for e in ElementTree.parse(folder / "cost.svg").iter() if e.text]
    assert "pays: T > 64" in texts and "before" in texts and "after" in texts


def test_after_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for names in ("fuse_conv_bn", "standard"):
        status, out, _ = run(capsys, "cost", *NET_X, "--passes", names)
        assert status == 0
        (line,) = [s.split() for s in out.splitlines() if s.startswith("FLOPs")]
        # for each pixel 3 * 4 multiply-adds, 4 biases and tanh; batch norm 16 (and 8 once)
        assert line == ["FLOPs", "48*B*N**2", "+", "8", "32*B*N**2", "-16*B*N**2", "-", "8"]


def test_timeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--size", "B=1", "--size", "N=4")
    status, out, _ = run(capsys, "cost", *NET_X, "--timeline", *sizes, "--draw", "t.svg")
    assert status == 0 and out.splitlines()[1].startswith("peak     512 bytes in 2 values")
    assert ElementTree.parse(folder / "t.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--draw", "x.svg"), "--draw draws what --range or --timeline shows"),
        (("--compare", "net.py:Net", "--passes", "cse"), "not both"),
        (("--timeline", "--range", "B=1,2"), "--timeline shows one size"),
        (("--range", "B=1,2", "--by", "op"), "--by is for one size"),
        (("--timeline", "--by", "op"), "leave out --by"),
        (("--passes", "cse", "--by", "node"), "a comparison lists the modules that change"),
        (("--quantity", "bytes"), "--quantity is for --draw and for comparisons"),
        (("--size", "B=1", "--range", "B=1,2"), "--size and --range both give B"),
        (("--range", "B=1,2"), "the costs depend on N, too"),
        (("--size", "Q=1"), "the program has no named dim 'Q'"),
        (("--range", "B=1,2", "--size", "N=2", "--quantity", "flop", "--draw", "x.svg"), "there is no cost 'flop'"),
        (("--passes", "cze"), "there is no pass 'cze'; did you mean dce or cse"),
    ],
)
def test_wrong_options(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    status, _, err = run(capsys, "cost", *NET_X, *options)
    assert status == 1 and message in err and not (folder / "x.svg").exists()


@pytest.mark.parametrize("values", ["T", "T=", "T=0", "T=1,x", "T=-1"])
def test_wrong_ranges(folder: Path, capsys: pytest.CaptureFixture[str], values: str) -> None:
    status, _, err = run(capsys, "cost", *NET_X, "--range", values)
    assert status == 2 and "argument --range" in err


@pytest.mark.parametrize("backend", ["python", "c"])
def test_passes_measured(folder: Path, capsys: pytest.CaptureFixture[str], backend: str) -> None:
    options = ("--backend", backend, "--repeat", "2", "--size", "B=3", "--size", "N=4")
    status, out, err = run(capsys, "profile", *NET_X, *options, "--passes", "standard")
    assert status == 0 and re.fullmatch(r"measure +\d+ passes in turns +\S+ m?s\n", err)
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:3] == ["Net:", str(len(compiler.standard_passes())), "passes,"] and out.splitlines()[0].endswith(
        "B=3, N=4"
    )
    (fused,) = [line for line in lines if line[:1] == ["fuse_conv_bn"]]
    assert "-33.6%" in fused  # of the FLOPs: 16*3*4**2 + 8 of 48*3*4**2 + 8
    _, out, _ = run(capsys, "profile", *NET_X, *options, "--passes", "net.py:nothing,fuse_conv_bn")
    steps = [line.split()[0] for line in out.splitlines()[4:6]]
    assert steps == ["nothing", "fuse_conv_bn"]


def test_passes_have_a_table_of_their_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "profile", *NET_X, "--passes", "cse", "--by", "op")
    assert status == 1 and "leave out --by, --trace" in err
