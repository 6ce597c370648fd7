"""Large pictures: equal parts drawn once, modules closed below a depth, and what colours say."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.show.drawing import draw
from fxlite.show.drawing.colours import CHANGES, DTYPES, OTHER, SHARES, SQNR, DrawError, css_class
from fxlite.show.drawing.outline import LIMIT, Outline, close_below, outline
from fxlite.show.drawing.picture import picture, texts, title
from tests import models

SVG = "{http://www.w3.org/2000/svg}"


class Step(nn.Module):
    """Seven nodes; one differs where ``power`` does."""

    def __init__(self, power: float = 2.0, width: int = 4) -> None:
        super().__init__()
        self.power = power
        self.up, self.down = nn.Linear(4, width), nn.Linear(width, 4)

    def forward(self, x: Any) -> Any:
        y = np.tanh(self.up(x)) ** self.power
        return np.exp(x + self.down(y)) - 1


def stack(*steps: Step) -> fx.Graph:
    return fx.symbolic_trace(nn.Sequential(*steps), x="f32[B,4]").graph


def shown(found: Outline) -> list[str]:
    """Titles of what is visible, names of the nodes without one."""
    return [title(p) or found.nodes[p.start].name for p in found.visible()]


def boxes(graph: fx.Graph, **options: Any) -> dict[str, tuple[str, list[str]]]:
    """Fill and texts of each node and closed box of a picture, by its name, a module's for a closed one."""
    tree = ElementTree.fromstring(draw.to_svg(graph, **options))
    found = {}
    for group in tree.iter(f"{SVG}g"):
        rect = group.findall(f"{SVG}rect")
        if group.find(f"{SVG}title") is not None:
            lines = {t.get("class"): "".join(t.itertext()) for t in group.iter(f"{SVG}text")}
            more = lines.get("more", "")
            name = more if more and not re.fullmatch(r"[\d,]+ nodes", more) else lines["name"]
            found[name.split()[0]] = (str(rect[-1].get("class")), list(lines.values()))
    return found


# -- folding ---------------------------------------------------------------------------------------
def test_equal_modules_in_a_row_are_drawn_once() -> None:
    found = outline(stack(Step(), Step(), Step()))
    assert titles(found) == ["", "0…2 (Step) ×3", ""]
    assert [f"{found.nodes[a].name} {found.nodes[b].name}" for a, b in found.node_edges()] == [
        "x linear",
        "linear tanh",
        "tanh pow",
        "pow linear_1",
        "x add",
        "linear_1 add",
        "add exp",
        "exp sub",
        "sub output",
    ]


def titles(found: Outline) -> list[str]:
    return [title(child) for child in found.root.children]


@pytest.mark.parametrize("other", [Step(power=3.0), Step(width=8)], ids=["an attribute", "a type inside"])
def test_modules_that_differ_are_drawn_each(other: Step) -> None:
    assert titles(outline(stack(Step(), other))) == ["", "0 (Step)", "1 (Step)", ""]


def test_modules_wired_otherwise_are_drawn_each() -> None:
    class Wired(nn.Module):
        def __init__(self, swapped: bool) -> None:
            super().__init__()
            self.swapped = swapped

        def forward(self, x: Any) -> Any:
            a, b = np.exp(x), np.exp(x + 1)
            y = b - a if self.swapped else a - b
            return np.tanh(np.tanh(y))

    same = nn.Sequential(Wired(True), Wired(True))
    other = nn.Sequential(Wired(True), Wired(False))
    assert "0…1 (Wired) ×2" in titles(outline(fx.symbolic_trace(same, x="f32[B]").graph))
    assert "1 (Wired)" in titles(outline(fx.symbolic_trace(other, x="f32[B]").graph))


def test_modules_that_are_not_traced_are_drawn_each() -> None:
    blocks = (nn.Sequential(*(nn.Dropout(p / 10) for p in range(6))) for _ in range(2))
    gm = fx.symbolic_trace(nn.Sequential(*blocks), x="f32[B]", leaf=nn.Dropout)
    assert titles(outline(gm.graph)) == ["", "0 (Sequential)", "1 (Sequential)", ""]


def test_weights_do_not_keep_modules_from_being_equal() -> None:
    found = outline(stack(Step(), Step(), Step()), left_out=lambda node: False)
    assert [p.title for p in found.parts() if p.times > 1] == ["0…2 (Step)"]


def test_unfolded_on_demand() -> None:
    assert titles(outline(stack(Step(), Step()), fold=False)) == ["", "0 (Step)", "1 (Step)", ""]


def test_folds_in_folds() -> None:
    inner = nn.Sequential(*(nn.Sequential(Step(), Step()) for _ in range(3)))
    found = outline(fx.symbolic_trace(inner, x="f32[B,4]").graph)
    assert shown(found)[:3] == ["x", "0…2 ×3", "0…1 (Step) ×2"]
    assert sum(not p.children for p in found.parts()) == 9
    names = [(found.nodes[a].name, found.nodes[b].name) for a, b in found.node_edges()]
    assert ("sub", "output") in names  # of the last copy of the last copy
    assert not any(a == "sub" and b != "output" for a, b in names)


def test_stretches_of_several_modules_are_folded() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.ModuleList(Step() for _ in range(4)) for _ in range(2))

        def forward(self, x: Any) -> Any:
            for a, b in zip(self.a, self.b):
                x = np.sin(b(np.cos(a(x))))
            return x

    found = outline(fx.symbolic_trace(Net(), x="f32[B,4]").graph)
    assert titles(found) == ["", "×4", ""]
    assert [p.title for p in found.root.children[1].children] == ["a.0 (Step)", "", "b.0 (Step)", ""]


def test_steps_whose_indices_count_are_folded() -> None:
    def program(order: list[int]) -> Callable[[Any], Any]:
        def steps(x: Any) -> Any:
            y = x[0]
            for i in order:
                y = np.tanh(np.exp(np.sin(y * x[i])))
            return y

        return steps

    def folded(order: list[int]) -> list[int]:
        graph = fx.symbolic_trace(program(order), x="f32[8,B]").graph
        return [p.times for p in outline(graph).parts() if p.times > 1]

    assert folded([1, 2, 3, 4, 5, 6]) == [6]
    assert folded([6, 5, 4, 3, 2, 1]) == [6]
    assert folded([2, 4, 1, 6, 3, 5]) == []


def test_nodes_with_other_marks_are_not_equal() -> None:
    graph = stack(Step(), Step(), Step())
    marks = {next(n for n in graph.nodes if n.name == "tanh_2"): "changed"}
    assert titles(outline(graph, marks=marks)) == ["", "0…1 (Step) ×2", "2 (Step)", ""]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert", ["0…11 (EncoderLayer) ×12"]),
        ("lstm_tagger", []),
        ("lstm_cells", ["×11"]),
        ("resnet18", ["0…1 (BasicBlock) ×2"]),
        ("unet", []),
        ("gpt_block", []),
    ],
)
def test_models(name: str, expected: list[str]) -> None:
    found = outline(models.traced(name).graph)
    assert [title(p) for p in found.parts() if p.times > 1] == expected


# -- depth -----------------------------------------------------------------------------------------
def test_closed_modules_say_what_goes_in_and_out() -> None:
    graph = models.traced("resnet18").graph
    found = boxes(graph, depth=1)
    assert found["layer2"][1] == ["layer2", "16 nodes", "f32[B,64,56,56] → f32[B,128,28,28]"]
    assert "conv2d" in found  # the module of one node is that node
    assert "conv2d_7" not in found
    assert boxes(graph, depth=2)["0"][1][1] == "9 nodes"


def test_the_depth_is_said() -> None:
    assert "1 level of modules shown (depth=2 shows more)" in draw.to_svg(stack(Step()), depth=1)
    assert "levels of modules" not in draw.to_svg(stack(Step()), depth=2)


def test_edges_lead_to_closed_boxes() -> None:
    found = picture(models.traced("resnet18").graph, depth=1).outline
    assert ("layer1", "layer2") in [(a.title, b.title) for a, b in found.edges()]
    assert len(found.edges()) == len(set(found.edges()))


def many_modules(stages: int, steps: int) -> fx.Graph:
    """Stages of steps that all differ."""
    made = [nn.Sequential(*(Step(width=1 + i + steps * k) for i in range(steps))) for k in range(stages)]
    return fx.symbolic_trace(nn.Sequential(*made), x="f32[B,4]").graph


def test_large_graphs_are_closed_by_themselves() -> None:
    graph = many_modules(12, 24)
    found = picture(graph)
    drawn = [p for p in found.outline.visible() if p.is_drawn_whole]
    assert len(drawn) == 12 * 24 + 2
    assert "2 drawn, 2,016 in closed boxes" in found.caption
    assert "2 levels of modules shown" in found.caption
    assert len([p for p in picture(graph, depth=3).outline.visible() if p.is_drawn_whole]) == 2018


def irregular(nodes: int) -> fx.Graph:
    """No modules, and nothing that repeats."""
    kinds = np.random.default_rng(0).integers(0, 4, nodes)
    functions = (np.exp, np.sin, np.cos, np.tanh)

    def program(x: Any) -> Any:
        first = x
        for number, kind in enumerate(kinds):
            x = functions[kind](x)
            if number % 97 == 0:
                x = x + first
        return x

    return fx.symbolic_trace(program, x="f32[B]").graph


def test_twenty_thousand_nodes() -> None:
    graph = irregular(20_000)
    found = picture(graph)
    drawn = [p for p in found.outline.visible() if p.is_drawn_whole]
    assert len(drawn) <= LIMIT
    assert drawn[0].start == 0
    assert drawn[-1].end == len(graph.nodes)
    assert all(a.end == b.start for a, b in pairwise(drawn))
    assert "consecutive ones are in a box" in found.caption
    assert all(len(p.children) <= LIMIT for p in found.outline.parts())
    assert len(draw.to_svg(graph)) < 10**6
    assert len(draw.to_html(graph)) < 10**7


def test_a_module_too_large_to_open_stays_closed() -> None:
    class Large(nn.Module):
        def forward(self, x: Any) -> Any:
            for number in range(1000):
                x = x * float(number * number)
            return x

    found = outline(fx.symbolic_trace(nn.Sequential(Large(), Step()), x="f32[B,4]").graph)
    assert close_below(found, None) == 1
    assert shown(found) == ["x", "0 (Large)", "1 (Step)", "output"]


# -- colours ---------------------------------------------------------------------------------------
def test_int8_stands_out() -> None:
    graph = fx.symbolic_trace(lambda x: x.astype("int8") + np.int8(1), x="f32[B]").graph
    found = boxes(graph, color="dtype")
    assert found["x"][0] == css_class(DTYPES["f32"])
    assert found["add"][0] == css_class(DTYPES["i8"])


def test_all_dtypes_have_a_colour() -> None:
    assert len({*DTYPES.values()}) == len(fx.dtypes.ALL)


def test_time() -> None:
    graph = stack(Step(), Step())
    times = {n: 1e-3 for n in graph.nodes if n.name.startswith("linear")} | {"exp_1": 0.096}
    found = boxes(graph, times=times)
    assert found["exp"][1][-1] == "96 ms · 96 %"  # the folded copy's time, too
    assert found["exp"][0] == css_class(SHARES[-1][1])
    assert found["linear"][1][-1] == "2 ms · 2.0 %"
    assert found["tanh"][0] == css_class(SHARES[0][1])
    assert boxes(graph, times=times, depth=1)["0…1"][1][-1] == "100 ms · 100 %"
    assert "100 ms in all" in draw.to_svg(graph, times=times)


def test_a_profile_paints_its_graph() -> None:
    gm = fx.symbolic_trace(Step(), x="f32[64,4]")
    profile = passes.profile(gm, np.ones((64, 4), np.float32))
    found = boxes(gm.graph, times=profile)
    assert all(re.fullmatch(r"[\d.]+ (ms|µs|ns) · .* %", found[n][1][-1]) for n in ("tanh", "exp"))


def test_change() -> None:
    before = stack(Step(), Step(), Step())
    after = before.copy()
    node = next(n for n in after.nodes if n.name == "exp_1")
    with after.inserting_after(node):
        new = after.call_function(fx.ops.relu, (node,))
    node.replace_all_uses_with(new)
    new.replace_input_with(new, node)
    tanh = next(n for n in after.nodes if n.name == "tanh_2")
    tanh.replace_all_uses_with(tanh.all_input_nodes[0])
    after.erase_node(tanh)
    found = boxes(after, changed_from=before)
    assert found["relu"][0] == css_class(CHANGES["added"])
    assert found["exp_1"][0] == css_class(CHANGES["unchanged"])
    assert "1 removed: tanh_2" in draw.to_svg(after, changed_from=before)
    power = next(n for n in after.nodes if n.name == "pow")
    power.args = (power.args[0], 3.0)
    found = boxes(after, changed_from=before, depth=1)
    assert found["0"][0] == css_class(CHANGES["changed"])
    assert found["2"][0] == css_class(CHANGES["unchanged"])


def test_scope() -> None:
    found = boxes(models.traced("resnet18").graph, color="scope", depth=1)
    fills = [found[name][0] for name in ("layer1", "layer2", "layer3", "layer4")]
    assert len(set(fills)) == 4


def test_sqnr() -> None:
    graph = stack(Step(), Step())
    ratios = {"linear": 35.0, "linear_2": 12.0, "exp": math.inf}
    found = boxes(graph, sqnr=ratios)
    assert found["linear"][0] == css_class(SQNR[0][1])  # the worse of both copies
    assert found["linear"][1][-1] == "12.0 dB" and found["exp"][1][-1] == "exact"
    assert found["exp"][0] == css_class(SQNR[-1][1]) and found["tanh"][0] == css_class(OTHER)
    assert boxes(graph, sqnr=ratios, depth=1)["0…1"][1][-1] == "12.0 dB"
    by_path = boxes(graph, sqnr={"1": 25.0}, fold=False)
    assert by_path["tanh"][0] == css_class(OTHER) and by_path["tanh_1"][1][-1] == "25.0 dB"
    text = draw.to_svg(graph, sqnr=ratios)
    assert all(row in text for row in ("&lt; 20 dB", "20–30 dB", "30–40 dB", "≥ 40 dB", "float"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"color": "red"}, "'red': a picture is coloured by op, dtype, time, change, scope"),
        ({"color": "sqnr"}, "needs sqnr="),
        ({"sqnr": {"nobody": 1.0}}, "sqnr= has nobody"),
        ({"color": "time"}, "needs times="),
        ({"color": "change"}, "needs changed_from="),
        ({"depth": 0}, "depth=0: at least one level"),
        ({"times": {"nobody": 1.0}}, "times= has nobody"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DrawError, match=re.escape(message)):
        draw.to_svg(stack(Step()), **options)


# -- files -----------------------------------------------------------------------------------------
def test_dot_has_closed_and_folded_boxes() -> None:
    text = draw.to_dot(models.traced("bert").graph, depth=2)
    assert '"linear …" [label="0…11 (EncoderLayer) ×12\\n20 nodes' in text
    assert '"linear …" -> "output";' in text


def test_pictures_are_the_same_each_time() -> None:
    graphs = [models.traced("bert").graph for _ in range(2)]
    for write in (draw.to_svg, draw.to_dot, draw.to_html):
        one, other = (write(graph) for graph in graphs)
        assert one == other


def test_titles_of_folded_parts_fit_their_boxes() -> None:
    found = picture(models.traced("bert").graph)
    for part in found.outline.visible():
        if part.is_drawn_whole:
            assert max(len(text) for _, text in texts(found, part)) <= 70
