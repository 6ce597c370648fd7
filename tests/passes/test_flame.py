"""Flame graphs of profiles: what is as wide as what."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn
from fxlite.base.location import Scope
from fxlite.passes.profiling.profile import Setting, Times, node_row, profile
from fxlite.passes.profiling.record import Profile

SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    def forward(self, x: Any) -> Any:
        return np.tanh(np.exp(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x: Any) -> Any:
        return np.sqrt(self.second(self.first(x)))


def made_up(gm: fx.GraphModule, seconds: list[float]) -> Profile:
    """A profile with a time for each call."""
    setting = Setting({}, None, 1)
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    rows = tuple(node_row(node, Times((each,), 0.0), setting) for node, each in zip(calls, seconds))
    return Profile("Net", "python", 1, {}, rows, (1.0,), (1.0,), 0, None)


def bars(svg: str) -> dict[str, tuple[float, float, float]]:
    """x, y and width by the name in the tooltip; of equal names the last."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and title.text is not None and box is not None
        place = (float(box.get("x", "")), float(box.get("y", "")), float(box.get("width", "")))
        found[title.text.partition(":")[0]] = place
    return found


def net() -> fx.GraphModule:
    return fx.symbolic_trace(Net(), x="f32[4]")


def test_bars_are_as_wide_as_their_time() -> None:
    found = bars(made_up(net(), [1.0, 2.0, 3.0, 2.0, 2.0]).to_flame_graph())
    assert found["Net"] == (0, 0, 1000)
    assert found["first"] == (0, 22, 300) and found["second"] == (300, 22, 500)
    assert found["exp"] == (0, 44, 100) and found["tanh"] == (100, 44, 200)
    assert found["sqrt"] == (800, 22, 200)


def test_what_is_too_narrow_is_put_together() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(np.tanh(np.sin(np.cos(x)))), x="f32[4]")
    found = bars(made_up(gm, [1.0, 4e-4, 4e-4, 1.0]).to_flame_graph())
    assert found.keys() == {"Net", "cos", "short ones", "exp"}
    assert abs(found["short ones"][2] - 0.4) < 0.01


def test_no_time_at_all() -> None:
    assert bars(made_up(net(), [0.0] * 5).to_flame_graph())["Net"] == (0, 0, 0)


def test_names_are_escaped(tmp_path: Path) -> None:
    gm = net()
    for node in gm.graph.find_nodes(op="call_function"):
        node.scope = Scope("<b>&", "<i>")
    path = tmp_path / "flame.svg"
    text = profile(gm, np.ones(4, np.float32), repeat=1).to_flame_graph(path)
    assert path.read_text() == text
    assert "<b>" not in text and re.search("&lt;b&gt;&amp;", text)
