"""``fxlite step``: keys, a pass that raises, passes without rewrites, 80 columns, a terminal."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fxlite.cli import step as step_command
from tests.command_line import enter_folder, run

NET = """
import numpy as np
from fxlite import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        return np.exp(self.bn(self.conv(x)) * 1) + 1 * x.mean()
"""
PASSES = """
def raises(gm):
    for node in gm.graph.find_nodes(op="call_function", target="exp"):
        node.replace_all_uses_with(node.args[0])
        raise RuntimeError("halfway")

def idle(gm):
    pass
"""


@pytest.fixture(autouse=True)
def _folder(registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_folder(tmp_path, monkeypatch, {"net": NET, "my_passes": PASSES}, columns=80)


def step(
    keys: str,
    passes: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *more: str,
    types: tuple[str, ...] = ("-i", "x=f32[B,3,2,2]"),
) -> tuple[int, list[str], str]:
    """Status, a text for each screen, errors."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(keys))
    status, out, err = run(capsys, "step", "net.py:Net", *types, "--passes", passes, *more)
    return status, re.split(r"^== ", out, flags=re.MULTILINE)[1:], err


def titles(screens: list[str]) -> list[str]:
    return [screen.splitlines()[0] for screen in screens]


def test_keys(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, screens, _ = step("nnnb<<b>>$0q", "fuse_conv_bn,simplify", capsys, monkeypatch)
    start = "before all passes, 3 rewrites to come"
    one, two, three = (
        "rewrite 1 of 3: fuse_conv_bn 1 of 1",
        "rewrite 2 of 3: simplify 1 of 2",
        "rewrite 3 of 3: simplify 2 of 2",
    )
    assert status == 0
    assert titles(screens) == [start, one, two, three, two, one, start, start, one, two, three, start]
    assert "this is the beginning" in screens[7]
    assert re.search(r"fuse_conv_bn +1 +batch_norm -1", screens[0])
    assert "- batch_norm: f32[B,4,2,2]" in screens[1] and "~ self.conv.weight" in screens[1]
    assert re.search(r"^-  mul +f32\[8,4,2,2\]", screens[2], re.MULTILINE)
    assert "results: the same, bit by bit" in screens[2]
    assert all(len(line) <= 80 for screen in screens for line in screen.splitlines())


def test_arrows_node_graph_values_and_unknown_keys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "\x1b[C\x1b[D/batch_norm\n/mul\n/mul_1\n/nobody\nvg\n\nx"
    status, screens, _ = step(keys, "fuse_conv_bn,simplify", capsys, monkeypatch)
    shown = [title[:9] for title in titles(screens)]
    assert status == 0
    assert shown == [
        "before al",
        "rewrite 1",
        "before al",
        "rewrite 1",
        "rewrite 2",
        "rewrite 3",
        "rewrite 3",
        "rewrite 3",
        "rewrite 3",
        "rewrite 3",
    ]
    assert "no rewrite is about a node 'nobody'" in screens[6]
    assert "results:" in screens[6] and "results:" not in screens[7]
    assert "def forward(self, x: f32[B,3,2,2]):" in screens[8]
    assert "'x' is none of the keys" in screens[9]


def test_a_pass_that_raises_midway(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was before it is there, and what it did is taken back."""
    status, screens, _ = step("nn\n", "fuse_conv_bn,my_passes.py:raises,simplify", capsys, monkeypatch)
    assert status == 1
    assert titles(screens)[0] == "before all passes, 1 rewrite to come"
    for screen in (screens[0], screens[2]):
        assert "pass raises failed, its input is as it was: RuntimeError: halfway" in screen
        assert "net.py:11" in screen
    assert titles(screens)[1] == titles(screens)[2] == "rewrite 1 of 1: fuse_conv_bn 1 of 1"


def test_passes_that_change_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, screens, _ = step("n/exp\nbvq", "my_passes.py:idle,dce", capsys, monkeypatch)
    assert status == 0 and len(screens) == 5
    assert "the passes change nothing" in screens[0] and "that was the last" in screens[1]
    assert "no rewrite is about a node 'exp'" in screens[2]


def test_without_types_data_and_wrong_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, screens, _ = step("vvn", "simplify", capsys, monkeypatch, types=())
    assert status == 0 and "give the types of the inputs, --input NAME=TYPE" in screens[1]
    status, screens, _ = step("n", "simplify", capsys, monkeypatch, "--size", "B=3")
    assert "f32[3,4,2,2]" in screens[1]
    for passes, more, text in (
        ("simplifi", (), "there is no pass 'simplifi'; did you mean simplify"),
        ("simplify", ("--size", "C=3"), "there is no named dim 'C'"),
        ("simplify", ("--data", "x=none.npy"), "there is no file none.npy"),
    ):
        status, screens, err = step("", passes, capsys, monkeypatch, *more)
        assert status == 1 and not screens and text in err


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_single_keys_of_a_terminal() -> None:
    """No line end is needed; the terminal is afterwards as it was."""
    import pty
    import termios

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stream:
        before = termios.tcgetattr(stream)
        keys = step_command.keys(stream)
        os.write(ours, b"n\x1b[Cq")
        assert [keys.key() for _ in range(3)] == ["n", "\x1b[C", "q"]
        assert termios.tcgetattr(stream) == before
    os.close(ours)


def test_the_terminal_shows_keys_on_each_screen() -> None:
    class Given:
        def __init__(self) -> None:
            self.keys = iter("nq")

        def key(self) -> str:
            return next(self.keys)

        def line(self) -> str:
            return ""

    import fxlite as fx
    from fxlite.passes.manager import PassManager
    from fxlite.passes.stepper import Rewrites

    gm = fx.symbolic_trace(lambda x: fx.ops.exp(x * 1), x="f32[4]")
    manager = PassManager(["simplify"])
    manager(gm)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    step_command.Viewer(Rewrites(gm, manager.report), None, "", console).run(Given())
    assert out.getvalue().count("n next") == 2
