"""Pictures: every node with its type, boxes that do not overlap, lines that join the right ones."""

from __future__ import annotations

import io
import random
import re
import shutil
import struct
import sys
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import nn
from fxlite.base.location import Scope
from fxlite.ops.op import REGISTRY
from fxlite.show.drawing import colours, draw, picture
from fxlite.show.drawing.layout import Box, layout
from fxlite.show.drawing.outline import Part, outline, stands_on_readers
from fxlite.show.drawing.svg import svg_text
from tests.zoo import ZOO

SVG = "{http://www.w3.org/2000/svg}"


class Residual(nn.Module):
    """A module with modules, a module of its own called twice, and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return self.norm(self.body(np.exp(self.body(x))) + x)


@pytest.fixture(scope="module")
def graph() -> fx.Graph:
    return fx.symbolic_trace(Residual().eval(), x="f32[B,4,8,8]").graph


def texts(svg: str) -> list[str]:
    """All texts of a picture, tooltips aside."""
    return ["".join(t.itertext()) for t in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def descendants(box: Any) -> list[Any]:
    """All boxes (or parts) in a box."""
    return [d for child in box.children for d in (child, *descendants(child))]


def titles(part: Part) -> list[str]:
    return [child.title for child in part.children]


# -- what is drawn ---------------------------------------------------------------------------------
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_every_node_is_drawn_with_its_type(program: Any) -> None:
    graph = program.trace()[0].graph
    shown = texts(draw.to_svg(graph, fold=False))
    for node in graph.nodes:
        if stands_on_readers(node):
            assert not {node.target, node.name}.intersection(shown)  # a row of a reader says its shape, too
        else:
            assert any(t.split()[0] == node.name for t in shown), node.name
            if isinstance(node.type, fx.TensorType):
                assert str(node.type) in shown


def test_weights_on_demand(graph: fx.Graph) -> None:
    assert "norm.weight" not in texts(draw.to_svg(graph))
    assert "norm.weight" in texts(draw.to_svg(graph, weights=True))
    assert "norm.weight" not in graph.to_dot()
    assert "norm.weight" in graph.to_dot(weights=True)


def test_modules_are_boxes(graph: fx.Graph) -> None:
    root = outline(graph).root
    assert titles(root) == ["", "body", "", "body", "", "norm (BatchNorm2d)", ""]  # called twice
    assert titles(root.children[1]) == ["0 (Conv2d)", "1 (ReLU)"]
    leaves = [d for d in descendants(root) if not d.children]
    assert [(d.start, d.stop) for d in leaves] == [(i, i + 1) for i in range(len(leaves))]
    assert len(leaves) == sum(n.op != "get_attr" for n in graph.nodes)


def test_a_box_that_would_hold_one_box_is_left_out() -> None:
    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            return np.exp(x) + 1

    model = nn.Sequential(nn.Sequential(Inner()))
    root = outline(fx.symbolic_trace(model, x="f32[4]").graph).root
    assert titles(root) == ["", "0.0 (Inner)", ""]
    assert len(root.children[1].children) == 2


def test_tooltips_say_line_and_origin(graph: fx.Graph) -> None:
    tree = ElementTree.fromstring(draw.to_svg(graph))
    tooltips = [t.text or "" for t in tree.iter(f"{SVG}title")]
    (norm,) = (t for t in tooltips if t.startswith("batch_norm"))
    assert "ops.batch_norm(" in norm
    assert "norm (BatchNorm2d), test_draw.py:" in norm


def test_kinds_have_colours_and_a_legend(graph: fx.Graph) -> None:
    for op in REGISTRY.values():
        assert op.kind in colours.KINDS
    shown = texts(draw.to_svg(graph))
    assert {"contraction", "pointwise", "composite"} <= set(shown)
    assert "reduction" not in shown


def test_characters_with_a_meaning_are_escaped() -> None:
    gm = fx.symbolic_trace(lambda x: x.astype("float64") < 1, x="f32[B]")
    svg = draw.to_svg(gm.graph)
    ElementTree.fromstring(svg)
    assert "x: f32[B]" in svg
    gm.graph.placeholders[0].scope = type(gm.graph.placeholders[0].scope or Scope("", ""))('a"b\\c<d>&', "K")
    ElementTree.fromstring(draw.to_svg(gm.graph))
    assert '"a\\"b\\\\c<d>& (K)\\nx\\nf32[B]"' in gm.graph.to_dot().replace("label=", "")


def test_without_types() -> None:
    graph = fx.symbolic_trace(lambda x, y: np.maximum(x, y)).graph
    shown = texts(draw.to_svg(graph))
    assert shown[:4] == ["x", "y", "maximum", "output"]


def test_long_types_are_cut() -> None:
    gm = fx.symbolic_trace(lambda x: np.split(x, 8), x="f32[16]")
    assert max(map(len, texts(draw.to_svg(gm.graph)))) <= 2 * picture.LONGEST


def test_long_and_deep_graphs() -> None:
    def chain(x: Any) -> Any:
        y = x
        for _ in range(1500):
            y = np.tanh(y)
        return y

    long = fx.symbolic_trace(chain, x="f32[B]").graph
    assert len(texts(draw.to_svg(long, fold=False, depth=1))) > 3000
    graph = fx.symbolic_trace(lambda x: np.exp(x) + x, x="f32[B]").graph
    for depth, node in enumerate(graph.nodes):
        path = ".".join(["m"] * 500 * (depth + 1))
        node.scope = Scope(path, "M")
    ElementTree.fromstring(draw.to_svg(graph))
    graph.to_dot()


# -- layout ----------------------------------------------------------------------------------------
def random_tree(seed: int, leaves: int, edges: int) -> tuple[Box, list[tuple[int, int]]]:
    """A tree of boxes around leaves 0..n-1 in order, and forward edges between them."""
    rng = random.Random(seed)
    root = Box("root")
    open_boxes = [root]
    for number in range(leaves):
        while len(open_boxes) > 1 and rng.random() < 0.4:
            open_boxes.pop()
        if rng.random() < 0.4:
            inner = Box(("box", number), title_width=rng.choice([0.0, 80.0]))
            open_boxes[-1].children.append(inner)
            open_boxes.append(inner)
        size = rng.choice([30.0, 60.0, 200.0]), rng.choice([20.0, 40.0])
        open_boxes[-1].children.append(Box(number, *size))
    pairs = {tuple(sorted(rng.sample(range(leaves), 2))) for _ in range(edges if leaves > 1 else 0)}
    return root, sorted(pairs)  # type: ignore[arg-type]


@given(st.integers(0, 10**6), st.integers(1, 25), st.integers(0, 40))
@settings(max_examples=80, deadline=None)
def test_layout(seed: int, leaves: int, edges: int) -> None:
    root, pairs = random_tree(seed, leaves, edges)
    layout(root, pairs)
    boxes = [root, *descendants(root)]
    for box in boxes:
        for child in box.children:
            assert box.x - 0.01 <= child.x
            assert child.x + child.width <= box.x + box.width + 0.01
            assert box.y - 0.01 <= child.y
            assert child.y + child.height <= box.y + box.height + 0.01
        for a, b in combinations(box.children, 2):
            assert apart(a, b), (a.key, b.key)
        for line in box.lines:
            assert line.y0 <= line.bend0 + 0.01 <= line.bend1 + 0.02 <= line.y1 + 0.03
            for child in box.children:
                assert not crosses(line, child)
    assert joined(root, boxes) == set(pairs)


def apart(a: Box, b: Box) -> bool:
    """True if the boxes do not overlap."""
    beside = a.x + a.width <= b.x + 0.01 or b.x + b.width <= a.x + 0.01
    return beside or a.y + a.height <= b.y + 0.01 or b.y + b.height <= a.y + 0.01


def crosses(line: Any, box: Box) -> bool:
    """True if a line touches the inside of a box: its two verticals, and the curve's bounds."""
    low, high = sorted((line.x0, line.x1))
    pieces = [
        (line.x0, line.x0, line.y0, line.bend0),
        (low, high, line.bend0, line.bend1),
        (line.x1, line.x1, line.bend1, line.y1),
    ]
    return any(
        left < box.x + box.width - 0.1
        and right > box.x + 0.1
        and top < box.y + box.height - 0.1
        and bottom > box.y + 0.1
        for left, right, top, bottom in pieces
    )


def joined(root: Box, boxes: list[Box]) -> set[tuple[int, int]]:
    """Pairs of leaves that the lines join, found by following the lines of each value down."""
    leaves = {b.key: b for b in boxes if not b.children}
    lines = [line for box in boxes for line in box.lines]
    found = set()
    for key, leaf in leaves.items():
        own = [line for line in lines if line.value == key]
        ends = {(leaf.x + leaf.width / 2, leaf.y + leaf.height)}
        for line in sorted(own, key=lambda line: line.y0):
            if any(abs(line.x0 - x) < 0.1 and abs(line.y0 - y) < 0.1 for x, y in ends):
                ends.add((line.x1, line.y1))
                if line.ends:
                    found |= {
                        (key, other)
                        for other, b in leaves.items()
                        if abs(line.y1 - b.y) < 0.1 and b.x - 0.1 <= line.x1 <= b.x + b.width + 0.1
                    }
    return found


def test_a_chain_is_straight_and_a_skip_has_one_bend() -> None:
    root = Box("root", children=[Box(i, 40.0 + 20 * (i % 3), 20.0) for i in range(6)])
    layout(root, [*pairwise(range(6)), (0, 5)])
    centres = [child.x + child.width / 2 for child in root.children]
    assert max(centres) - min(centres) < 0.1
    rail = [line for line in root.lines if line.value == 0 and line.y1 > root.children[1].y + 30]
    assert len({round(line.x1, 2) for line in rail[:-1]}) == 1


def test_crossing_lines_are_uncrossed() -> None:
    root = Box("root", children=[Box(i, 40.0, 20.0) for i in range(6)])
    layout(root, [(0, 5), (1, 4), (2, 3)])
    for above, below in ((0, 5), (1, 4), (2, 3)):
        assert root.children[above].x == pytest.approx(root.children[below].x)


# -- DOT and files ---------------------------------------------------------------------------------
def test_dot(graph: fx.Graph) -> None:
    text = graph.to_dot()
    drawn = [n for n in graph.nodes if n.op != "get_attr"]
    edges = {(a.name, b.name) for b in drawn for a in b.all_input_nodes if a in drawn}
    assert set(re.findall(r'^  "(\w+)" -> "(\w+)";$', text, re.M)) == edges
    assert set(re.findall(r'^ +"(\w+)" \[label=', text, re.M)) == {n.name for n in drawn}
    assert (
        '"batch_norm" [label="norm (BatchNorm2d)\\nbatch_norm\\nrunning_mean, running_var, … [4]\\nf32[B,4,8,8]"'
        in text
    )
    assert text.count("subgraph cluster_") == 2
    assert text.count("{") == text.count("}")


def test_files(graph: fx.Graph, tmp_path: Path) -> None:
    graph.draw(tmp_path / "a.SVG")
    graph.draw(str(tmp_path / "b.dot"))
    graph.draw(tmp_path / "c.html")
    assert (tmp_path / "a.SVG").read_text() == draw.to_svg(graph)
    assert (tmp_path / "b.dot").read_text() == graph.to_dot()
    assert (tmp_path / "c.html").read_text() == draw.to_html(graph, "c")


@pytest.mark.parametrize("name", ["a.htm", "a.jpeg", "svg"])
def test_unknown_endings(graph: fx.Graph, tmp_path: Path, name: str) -> None:
    with pytest.raises(draw.DrawError, match=r"\.svg, \.html, \.dot, \.png or \.pdf"):
        graph.draw(tmp_path / name)
    assert not list(tmp_path.iterdir())


def without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("resvg_py", "cairosvg"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(("ending", "library"), [("png", "resvg-py"), ("pdf", "cairosvg")])
def test_without_a_library(
    graph: fx.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, library: str
) -> None:
    without_libraries(monkeypatch)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    wanted = rf"(?s)a\.{ending}.*{library}.*dot.*\.svg.*\.html.*fxlite\[draw\]"
    with pytest.raises(draw.DrawError, match=wanted):
        graph.draw(tmp_path / f"a.{ending}")
    assert not list(tmp_path.iterdir())


FORMATS = [("png", b"\x89PNG", "resvg_py"), ("pdf", b"%PDF", "cairosvg")]


@pytest.mark.parametrize(("ending", "start"), [each[:2] for each in FORMATS])
def test_by_the_dot_program(
    graph: fx.Graph, tmp_path: Path, ending: str, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("dot") is None:
        pytest.skip("the program dot is not installed")
    without_libraries(monkeypatch)
    graph.draw(tmp_path / f"a.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes().startswith(start)


def ink(file: bytes) -> Any:
    """How bright a PNG is, in squares of 16 points."""
    from PIL import Image  # comes with cairosvg

    image = Image.open(io.BytesIO(file)).convert("L")
    return np.asarray(image.resize([side // 16 for side in image.size], Image.Resampling.BOX)).astype(int)


def test_a_pdf_looks_like_the_svg(graph: fx.Graph) -> None:
    """cairosvg knows one font and puts centred texts of several styles on top of each other."""
    cairosvg, resvg = (pytest.importorskip(name) for name in ("cairosvg", "resvg_py"))
    drawn = picture.picture(graph)
    shown = ink(bytes(resvg.svg_to_bytes(svg_string=svg_text(drawn))))
    apart = np.abs(shown - ink(cairosvg.svg2png(bytestring=svg_text(drawn, is_placed=True).encode())))
    assert apart.max() < 24 and apart.mean() < 1


@pytest.mark.parametrize(("ending", "start", "library"), FORMATS)
def test_by_a_library(
    graph: fx.Graph, tmp_path: Path, ending: str, start: bytes, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    graph.draw(tmp_path / f"a.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes().startswith(start)
    if ending == "png":  # twice the size of the SVG: width and height are the first numbers of a PNG
        size = struct.unpack(">II", (tmp_path / "a.png").read_bytes()[16:24])
        root = ElementTree.fromstring(draw.to_svg(graph))
        assert list(size) == [2 * int(root.get(side, "0")) for side in ("width", "height")]
