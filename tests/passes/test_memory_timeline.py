"""Memory over time: lifetimes by hand, against the peak, as text and as a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.base.console import plain_text
from fxlite.base.errors import ArgumentError, GraphError
from fxlite.passes.costing.timeline import Axis, find_peak
from fxlite.types.shapes import parse
from tests.models import traced
from tests.zoo import ZOO
from tests.zoo.registry import Program


def program(x: Any) -> Any:
    wide = np.concatenate([x, x, x], axis=1)
    kept = np.exp(wide)[:, :4]  # a view keeps all of it
    return np.tanh(wide).sum(axis=1, keepdims=True) + kept


def test_by_hand() -> None:
    gm = fx.symbolic_trace(program, "f32[B,4]")
    timeline = passes.memory_timeline(gm, {"B": 2})
    assert timeline.steps == ("concat", "exp", "slice", "tanh", "sum", "add")
    assert [(b.node.name, b.nbytes, b.first, b.last) for b in timeline.buffers] == [
        ("concat", 96, 0, 3),
        ("exp", 96, 1, 5),
        ("tanh", 96, 3, 4),
        ("sum", 8, 4, 5),
        ("add", 32, 5, 5),
    ]
    assert timeline.held == (96, 192, 192, 288, 200, 136)
    assert timeline.peak == 288 and timeline.fullest == 3 and timeline.formula == parse("144*B")
    assert [b.node.name for b in timeline.at(3)] == ["concat", "exp", "tanh"]
    lines = plain_text(timeline, 60).splitlines()
    assert lines[1:3] == ["peak     288 bytes in 3 values while tanh runs, step 4", "formula  144*B"]
    assert lines[4:] == [
        f"{'':32}▼",
        f"all{'':11}▃▃▃▃▃▃▆▆▆▆▆▆▆▆▆▆▆▆██████▆▆▆▆▆▆▄▄▄▄▄▄",
        f"concat  96 B  {'':0}{'█' * 24}",
        f"exp     96 B  {'':6}{'█' * 30}",
        f"tanh    96 B  {'':18}{'█' * 12}",
        f"sum      8 B  {'':24}{'█' * 12}",
        f"add     32 B  {'':30}{'█' * 6}",
    ]


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_peak(program: Program) -> None:
    """The values of each step add up to what the walk over the graph finds."""
    gm, _, inputs = program.trace()
    interpreter = fx.Interpreter(gm)
    interpreter.run(*inputs)
    timeline = passes.memory_timeline(gm, interpreter.dims)
    found = find_peak(gm.graph, interpreter.dims)
    assert found is not None
    assert timeline.peak == found.nbytes and timeline.steps[timeline.fullest] == found.node.name
    expected = {node.name: nbytes for node, nbytes in found.values}
    assert {b.node.name: b.nbytes for b in timeline.at(timeline.fullest)} == expected
    for step in range(len(timeline.steps)):
        assert sum(b.nbytes for b in timeline.at(step)) == timeline.held[step]


def test_sizes() -> None:
    gm = fx.symbolic_trace(program, "f32[B,4]")
    with pytest.raises(GraphError, match=r"depends on B; give sizes: memory_timeline\(gm, {'B': 8}"):
        passes.memory_timeline(gm)
    with pytest.raises(ArgumentError, match="no named dim 'T'; it has B"):
        passes.memory_timeline(gm, {"B": 2, "T": 3})
    nothing = passes.memory_timeline(fx.symbolic_trace(lambda x: x, "f32[4]"))
    assert nothing.peak == 0 and "nothing is held" in str(nothing)
    assert "peak 0 bytes" in nothing.to_svg()


@pytest.mark.parametrize(("steps", "room"), [(1, 80), (5, 30), (40, 50), (50, 50), (789, 60), (7, 3)])
def test_axis(steps: int, room: int) -> None:
    """Every step has columns, every column steps, and both say so."""
    axis = Axis(steps, room)
    assert 0 < axis.columns <= max(room, 1)
    for step in range(steps):
        columns = range(axis.column(step), axis.end(step))
        assert columns and all(step in axis.steps_of(c) for c in columns)
    assert axis.column(0) == 0 and axis.end(steps - 1) == axis.columns


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["gpt_block", "lstm_tagger", "unet"])
def test_text_fits(name: str, width: int) -> None:
    gm = traced(name)
    timeline = passes.memory_timeline(gm, dict.fromkeys(passes.cost(gm).dims, 16))
    lines = plain_text(timeline, width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum("█" in line for line in lines) > 10


@pytest.mark.parametrize("name", ["gpt_block", "lstm_tagger"])
def test_picture(name: str, tmp_path: Path) -> None:
    """Well-formed, one area for each value (the smallest together), none outside the plot, and
    the highest point is the peak."""
    gm = traced(name)
    timeline = passes.memory_timeline(gm, dict.fromkeys(passes.cost(gm).dims, 16))
    text = timeline.to_svg(tmp_path / "memory.svg")
    assert (tmp_path / "memory.svg").read_text() == text
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    areas = [p.attrib["d"] for p in root.iter(f"{space}path") if "stroke-width" in p.attrib]
    titles = [t.text or "" for t in root.iter(f"{space}title")]
    assert len(areas) == len(titles) and len(areas) <= 201
    if name == "gpt_block":
        assert len(areas) == len(timeline.buffers)
        assert any(t.startswith("softmax: f32[B,4,T,T], 65,536 bytes\nsteps 19") for t in titles)
    points = [tuple(map(float, p)) for d in areas for p in re.findall(r"([-\d.]+),([-\d.]+)", d)]
    assert min(y for _, y in points) == 0 and max(y for _, y in points) == 320
    assert min(x for x, _ in points) == 0 and max(x for x, _ in points) == 900
    assert f"peak {timeline.peak:,} bytes" in text


def test_many_nodes() -> None:
    """20 000 steps: the picture stays small."""

    def chain(x: Any) -> Any:
        for _ in range(10_000):
            x = np.exp(x) - 1
        return x

    timeline = passes.memory_timeline(fx.symbolic_trace(chain, "f32[4]", loops="unroll"))
    assert timeline.peak == 32 and set(timeline.held[1:]) == {32}
    assert len(timeline.to_svg()) < 100_000 and len(str(timeline)) < 10_000
