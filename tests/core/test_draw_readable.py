"""Pictures that can be read: contrast and colours, titles that no line crosses, what stands on a node, both
directions, and what people hear who do not see them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.show.drawing import draw, svg
from fxlite.show.drawing.colours import CHANGES, KINDS, SHARES, SQNR, Colour, DrawError, dark, every_colour
from fxlite.show.drawing.layout import layout
from fxlite.show.drawing.outline import is_element, outline
from fxlite.show.drawing.picture import laid_out, line_type, picture, texts
from tests import models
from tests.core.test_draw import SVG, apart, crosses, descendants, joined, random_tree

PAGES = {"light": "#ffffff", "dark": "#0d1117"}


# -- colours ---------------------------------------------------------------------------------------
def linear(colour: str) -> np.ndarray[Any, Any]:
    """Linear light of a colour written in sRGB (IEC 61966-2-1)."""
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """The contrast of WCAG 2.1: 1 to 21."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


#: What people see who lack a kind of cone: Machado, Oliveira and Fernandes, "A Physiologically-based Model for
#: Simulation of Color Vision Deficiency" (2009), severity 1.
SIGHTS = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def seen(colour: str, sight: str) -> np.ndarray[Any, Any]:
    """Where the colour stands in Oklab (Ottosson, 2020), in which distances are differences that people see."""
    light = np.clip(SIGHTS[sight] @ linear(colour), 0, 1)
    cones = np.cbrt(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
        @ light
    )
    return np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
        @ cones
    )


def nearest(colours: Iterable[Colour], sight: str) -> float:
    """The least distance of two of the colours: of their fills or of their borders, whichever is larger."""

    def distance(one: str, other: str) -> float:
        return float(np.linalg.norm(seen(one, sight) - seen(other, sight)))

    return min(max(map(distance, a, b)) for a, b in itertools.combinations(colours, 2))


def of_theme(colour: Colour, theme: str) -> Colour:
    return dark(colour) if theme == "dark" else colour


def inks(theme: str) -> dict[str, str]:
    """The fill of each kind of text."""
    found = {}
    for selector in (".title", ".small", ".heading", ".note", ".name", ".more", ".weight", ".type"):
        rule = svg._RULES[selector][theme == "dark"]
        found[selector] = re.findall(r"fill: (#\w{6})", rule)[0]
    return found


@pytest.mark.parametrize("theme", PAGES)
def test_texts_stand_out_from_all_that_is_behind_them(theme: str) -> None:
    """WCAG AA asks for 4.5 of texts."""
    written = inks(theme)
    for selector, ink in written.items():
        assert contrast(ink, PAGES[theme]) >= 4.5, selector
    for colour in every_colour():
        fill, _ = of_theme(colour, theme)
        for selector in (".name", ".more", ".weight", ".type", ".note"):
            assert contrast(written[selector], fill) >= 4.5, (selector, colour)


@pytest.mark.parametrize("theme", PAGES)
def test_titles_stand_out_in_boxes_in_boxes(theme: str) -> None:
    """Each box puts its tint on what is around it."""
    rule = svg._RULES[".box"][theme == "dark"]
    tint, share = re.findall(r"fill: (#\w{6}); fill-opacity: (\.\d+)", rule)[0]
    behind = np.array([int(PAGES[theme][at : at + 2], 16) for at in (1, 3, 5)], float)
    over = np.array([int(tint[at : at + 2], 16) for at in (1, 3, 5)], float)
    for _ in range(6):
        behind = behind + (over - behind) * float(share)
    assert contrast(inks(theme)[".title"], "#" + "".join(f"{round(v):02x}" for v in behind)) >= 4.5


@pytest.mark.parametrize("theme", PAGES)
def test_borders_and_lines_stand_out_from_the_page(theme: str) -> None:
    """WCAG asks for 3 of shapes that carry meaning."""
    for colour in every_colour():
        assert contrast(of_theme(colour, theme)[1], PAGES[theme]) >= 3, colour
    for selector in (".box", ".line"):
        stroke = re.findall(r"stroke: (#\w{6})", svg._RULES[selector][theme == "dark"])[0]
        assert contrast(stroke, PAGES[theme]) >= 3, selector


@pytest.mark.parametrize("theme", PAGES)
@pytest.mark.parametrize("sight", SIGHTS)
def test_kinds_can_be_told_apart(theme: str, sight: str) -> None:
    """0.02 is about the least difference that people see side by side."""
    kinds = [colour for kind, colour in KINDS.items() if kind not in ("input", "weight")]
    for table in (kinds, CHANGES.values(), [colour for _, colour in SQNR]):
        assert nearest([of_theme(colour, theme) for colour in dict.fromkeys(table)], sight) >= 0.035


def test_ramps_stay_ramps_on_a_dark_page() -> None:
    fills = [dark(colour)[0] for _, colour in SHARES]
    light = [float(linear(fill) @ [0.2126, 0.7152, 0.0722]) for fill in fills]
    assert light == sorted(light)


def test_a_picture_is_light_or_dark() -> None:
    text = draw.to_svg(models.traced("gpt_block").graph)
    light, _, night = text.partition("@media screen and (prefers-color-scheme: dark)")
    drawn = set(re.findall(r'<rect class="(k\w+)"', text))
    for css in drawn:
        assert f".fx-picture .{css} {{" in light and f".fx-picture .{css} {{" in night
    assert "fill=" not in text and "stroke=" not in text  # colours that no rule could change


# -- titles and lines ------------------------------------------------------------------------------
@pytest.mark.parametrize("direction", ["TB", "LR"])
@pytest.mark.parametrize("name", models.MODELS)
def test_no_line_crosses_a_title(name: str, direction: str) -> None:
    root, placed = laid_out(picture(models.traced(name).graph, direction=direction))
    lines = [line for box in (root, *(box for _, box in placed)) for line in box.lines]
    open_boxes = [box for part, box in placed if not part.is_drawn_whole]
    for box in open_boxes:
        strip = type(box)(None, box.title_width, 14.0, x=box.x + 9, y=box.y + 5)
        assert strip.x + strip.width <= box.x + box.width
        if direction == "LR":  # lines have x and y exchanged
            strip.x, strip.y, strip.width, strip.height = strip.y, strip.x, strip.height, strip.width
        assert not any(crosses(line, strip) for line in lines), box.title


@pytest.mark.parametrize("seed", range(40))
def test_from_left_to_right(seed: int) -> None:
    root, pairs = random_tree(seed, 3 + seed % 20, 2 * seed)
    layout(root, pairs, sideways=True)
    boxes = [root, *descendants(root)]
    for box in boxes:
        for a, b in itertools.combinations(box.children, 2):
            assert apart(a, b)
        for child in box.children:
            assert box.x - 0.01 <= child.x and child.x + child.width <= box.x + box.width + 0.01
            assert box.y - 0.01 <= child.y and child.y + child.height <= box.y + box.height + 0.01
    for box in boxes:  # lines have x and y exchanged
        box.x, box.y, box.width, box.height = box.y, box.x, box.height, box.width
    for box in boxes:
        assert not any(crosses(line, child) for line in box.lines for child in box.children)
    assert joined(root, boxes) == set(pairs)


def test_a_chain_from_left_to_right_is_wider_than_high() -> None:
    graph = fx.symbolic_trace(lambda x: np.exp(np.tanh(np.exp(x))), x="f32[B]").graph
    for direction, is_wide in (("TB", False), ("LR", True)):
        root = ElementTree.fromstring(draw.to_svg(graph, direction=direction))
        drawn = next(root.iter(f"{SVG}g"))
        shapes = [r for r in drawn.iter(f"{SVG}rect") if (r.get("class") or "").startswith("k")]
        places = {axis: {float(r.get(axis, "0")) for r in shapes} for axis in "xy"}
        assert (len(places["x"]) > len(places["y"])) == is_wide
    assert "rankdir=LR;" in graph.to_dot(direction="LR")


def test_an_unknown_direction() -> None:
    graph = fx.symbolic_trace(lambda x: x + 1, x="f32[B]").graph
    with pytest.raises(DrawError, match=r"direction='up'.*TB.*LR"):
        draw.to_svg(graph, direction="up")


# -- what stands on a node -------------------------------------------------------------------------
def lines_of(graph: fx.Graph, name: str, **options: Any) -> list[str]:
    drawn = picture(graph, **options)
    (part,) = (p for p in drawn.outline.parts() if not p.children and drawn.outline.nodes[p.start].name == name)
    return [text for _, text in texts(drawn, part)]


def test_a_layer_has_its_name_and_the_shapes_of_its_weights() -> None:
    graph = models.traced("resnet18").graph
    assert lines_of(graph, "conv2d_1") == [
        "conv1 (Conv2d)",
        "conv2d_1 padding=1",
        "weight [64,64,3,3]",
        "f32[B,64,56,56]",
    ]
    assert lines_of(graph, "linear") == ["fc (Linear)", "linear", "weight [1000,512]  bias [1000]", "f32[B,1000]"]
    assert lines_of(graph, "linear", weights=True) == ["linear", "f32[B,1000]"]  # in a box with its weights


def test_a_weight_that_is_no_layer_s_has_its_own_name() -> None:
    """An op's parameter, such as x, says nothing about a weight."""
    assert lines_of(models.traced("bert").graph, "slice") == [
        "slice axis=0 stop=T",
        "positions.weight [128,64]",
        "f32[T,64]",
    ]


def test_a_dtype_of_weights_that_is_another_is_said() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(np.ones(4, np.float64))

        def forward(self, x: Any) -> Any:
            return np.less(x, self.scale)

    (less,) = (n for n in fx.symbolic_trace(Table(), x="f64[B,4]").graph.nodes if n.op == "call_function")
    assert any(line.endswith(" f64[4]") for line in lines_of(less.graph, less.name))


def test_a_constant_that_is_a_number_is_told() -> None:
    graph = models.traced("gpt_block").graph
    assert lines_of(graph, "div")[1] == "y = 4"


def test_elements_of_tuples_and_states_of_zeros_are_left_out() -> None:
    graph = models.traced("lstm_tagger").graph
    found = outline(graph)
    assert not any(is_element(node) for node in found.nodes)
    assert {"full", "getitem"}.isdisjoint(node.name for node in found.nodes)
    pairs = {(found.nodes[a].name, found.nodes[b].name) for a, b in found.node_edges()}
    assert {("lstm", "concat"), ("lstm_1", "concat"), ("lstm", "stack")} <= pairs
    assert any("h0, c0 [B,48]" in line for line in lines_of(graph, "lstm"))
    assert "full" in {node.name for node in outline(graph, left_out=lambda node: False).nodes}


def test_elements_taken_otherwise_are_no_repeat() -> None:
    """Each step reads the first and the second part; the odd steps the other way round."""

    def steps(x: Any, turned: bool) -> Any:
        for step in range(6):
            a, b = np.split(x, 2)
            if turned and step % 2:
                a, b = b, a
            x = np.concatenate([np.tanh(np.exp(a)) - b, np.exp(b) * a])
        return x

    same, other = (fx.symbolic_trace(lambda x, t=t: steps(x, t), x="f32[8]").graph for t in (False, True))
    assert [p.times for p in outline(same).parts() if p.times > 1] == [6]
    assert [p.times for p in outline(other).parts() if p.times > 1] == [3]


def test_types_of_tuples_are_told_in_full() -> None:
    graph = models.traced("lstm_tagger").graph
    lstm = next(node for node in graph.nodes if node.name == "lstm")
    hints = [t.text or "" for t in ElementTree.fromstring(draw.to_svg(graph)).iter(f"{SVG}title")]
    (hint,) = (text for text in hints if text.startswith("lstm:"))
    assert hint.startswith(f"{line_type(lstm)} = ops.lstm(")
    assert "…" not in hint
    assert "weight_ih: lstm.weight_ih_l0: f32[192,32]" in hint


# -- counts, and what is heard ---------------------------------------------------------------------
@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("weights", [False, True])
def test_the_count_adds_up(name: str, weights: bool) -> None:
    graph = models.traced(name).graph
    count = picture(graph, weights=weights).count
    total, *parts = (int(number.replace(",", "")) for number in re.findall(r"(?<!×)\b\d[\d,]*", count))
    assert total == len(graph)
    assert not parts or sum(parts) == total
    closed = picture(graph, weights=weights, depth=1)
    names = [p for p in closed.outline.visible() if p.is_drawn_whole and not p.children]
    drawn = re.search(r": ([\d,]+) drawn", closed.count)
    assert len(names) == (int(drawn[1]) if drawn else len(graph))


def test_a_picture_has_a_name_and_a_description() -> None:
    graph = models.traced("resnet18").graph
    root = ElementTree.fromstring(draw.to_svg(graph))
    assert root.get("role") == "img"
    assert root.get("aria-label") == "Graph of 173 nodes: 64 drawn, 7 in equal copies (×N), 102 weights"
    told = root.findtext(f"{SVG}desc")
    assert told is not None
    for text in ("Inputs: x: f32[B,3,224,224]", "Result: f32[B,1000]", "layer4", "fc (Linear)"):
        assert text in told
