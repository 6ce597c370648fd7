"""``report.plot`` and ``report.listing``: costs as curves, and by module, op and node."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import fxlite as fx
from fxlite import passes
from fxlite.base.console import plain_text
from fxlite.base.errors import ArgumentError
from fxlite.passes import CostReport

MATRICES = ("f32[B,T,64]", "f32[64,64]", "f32[64,64]")


@pytest.fixture
def left() -> CostReport:
    return passes.cost(fx.symbolic_trace(lambda x, a, b: x @ a @ b, *MATRICES))


@pytest.fixture
def right() -> CostReport:
    return passes.cost(fx.symbolic_trace(lambda x, a, b: x @ (a @ b), *MATRICES))


def points(svg: str) -> list[list[tuple[float, float]]]:
    """The corners of the lines that are drawn."""
    lines = [e.attrib["d"] for e in ElementTree.fromstring(svg).iter() if "stroke-width" in e.attrib]
    return [[(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", d)] for d in lines]


def texts(svg: str) -> list[str]:
    return [e.text for e in ElementTree.fromstring(svg).iter() if e.text and e.tag.endswith("text")]


def test_a_line_has_the_values(left: CostReport, tmp_path: Path) -> None:
    svg = left.plot("flops", tmp_path / "x.svg", B=2, T=[100, 10, 50])
    assert (tmp_path / "x.svg").read_text() == svg
    assert "function: FLOPs, B=2" in texts(svg) and "T" in texts(svg)
    (line,) = points(svg)
    (right, top), bottom = line[-1], 320
    assert [x / right for x, _ in line] == pytest.approx([0.1, 0.5, 1], abs=1e-3)
    assert top == 0 and [(bottom - y) / bottom for _, y in line] == pytest.approx([0.1, 0.5, 1], abs=1e-3)


def test_two_lines_cross_where_it_begins_to_pay(left: CostReport, right: CostReport) -> None:
    svg = (right - left).plot("flops", T=range(1, 129), B=1)
    first, second = points(svg)
    above = [number + 1 for number, (a, b) in enumerate(zip(first, second)) if a[1] < b[1]]
    assert above[0] == 65 and above[-1] == 128, "from 65 on the first one is larger"
    assert "pays: T > 64" in texts(svg) and {"before", "after"} <= set(texts(svg))
    assert not any("pays" in text for text in texts((right - left).plot("flops", T=[1, 9], B=1)))
    assert not any("pays" in t for t in texts((right - left).plot("parameters", T=[1, 99], B=1)))


def test_bytes_have_a_unit(left: CostReport) -> None:
    assert any(text.endswith("kB") for text in texts(left.plot("peak", T=[1, 99], B=1)))
    assert not any(text.endswith("B") for text in texts(left.plot("intensity", T=[1, 99], B=1)))


def test_plot_errors(left: CostReport, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="there is no cost 'flop'"):
        left.plot("flop", tmp_path / "x.svg", T=[1, 2], B=1)
    with pytest.raises(ArgumentError, match="depend on B, too"):
        left.plot("flops", T=[1, 2])
    untyped = passes.cost(fx.symbolic_trace(lambda x: -x))
    with pytest.raises(ArgumentError, match="no named dim 'T'"):
        untyped.plot("flops", T=[1, 2])
    assert not (tmp_path / "x.svg").exists()


def test_listing(left: CostReport) -> None:
    by_op, by_node = (
        [line.split() for line in plain_text(left.listing(by)).split("\n\n")[1].splitlines()] for by in ("op", "node")
    )
    assert by_op == [["op", "calls", "FLOPs", "bytes"], ["matmul", "2", "16.4k*B*T", "1024*B*T", "+", "32.8k"]]
    assert [row[0] for row in by_node] == ["node", "matmul", "matmul_1"]
    assert by_node[1][1].startswith("test_cost_plot.py:") and by_node[1][2] == "8192*B*T"
    with pytest.raises(ArgumentError, match="listed by module, op, node, not by 'line'"):
        left.listing("line")
