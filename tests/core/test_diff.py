"""What a diff shows: the nodes that differ and no others, in few lines, with weights and costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.show.comparison.changes import NodeChange
from fxlite.show.comparison.compare import first_difference
from fxlite.show.comparison.graph_diff import Fold, GraphDiff, diff, diff_lines, folded
from fxlite.show.text.reading import broken_code
from tests import models
from tests.browser import browser, no_serious_findings, opened
from tests.zoo import ZOO, Program


def trace(program: Any, **types: str) -> fx.GraphModule:
    return fx.symbolic_trace(program, **(types or {"x": "f32[3,4]"}))


def counts(found: GraphDiff) -> tuple[int, int, int]:
    """Numbers of nodes removed, added and changed."""
    return len(found.removed), len(found.added), len(found.changed)


def names(changes: Any) -> list[str]:
    return [change.name for change in changes]


def chain(ops: str, rename: bool = False) -> fx.GraphModule:
    """``"exp sin"`` as a graph; with ``rename`` under names that say nothing."""
    graph = fx.Graph()
    value = graph.placeholder("x", fx.parse_type("f32[4]"))
    for op in ops.split():
        value = graph.call_function(op, (value,))
    graph.output(value)
    if rename:
        for number, node in enumerate(graph.find_nodes(op="call_function")):
            graph.rename_node(node, f"n{97 * number % 89}")
    return fx.GraphModule({}, graph)


# -- nothing changed -------------------------------------------------------------------------------
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_copies_retraces_and_other_names_show_nothing(program: Program) -> None:
    gm, model, _ = program.trace()
    renamed = gm.copy()
    for number, node in enumerate(renamed.graph.nodes):
        renamed.graph.rename_node(node, f"value_{7919 * number % 1009}")
    again = fx.symbolic_trace(model, *program.make()[1])
    for other in (gm.copy(), renamed, again):
        found = diff(gm, other)
        assert not found and str(found) == "no difference", found
        assert counts(found) == (0, 0, 0) and not found.weights


@pytest.mark.parametrize("name", passes.PASSES)
def test_a_diff_is_empty_where_the_graphs_are_the_same(name: str) -> None:
    for program in ZOO:
        before = program.trace()[0]
        after = passes.PASSES[name](before)
        same = first_difference(before, after) is None
        assert bool(diff(before, after)) == (not same), f"{program.name}: {diff(before, after)}"
        assert bool(diff(after, before)) == (not same), program.name


def test_different_programs_differ() -> None:
    traced = [p.trace()[0] for p in ZOO]
    for a, b in combinations(traced, 2):
        assert diff(a, b)


def test_an_order_without_meaning_shows_nothing() -> None:
    def one(x: Any) -> Any:
        a = np.exp(x)
        return a + np.sin(x)

    def other(x: Any) -> Any:
        b = np.sin(x)
        return np.exp(x) + b

    assert not diff(trace(one), trace(other))


# -- few lines for small edits ---------------------------------------------------------------------
EDITS: list[tuple[str, str, tuple[int, int, int]]] = [
    ("exp sin tanh", "exp neg sin tanh", (0, 1, 0)),
    ("exp sin tanh", "neg exp sin tanh", (0, 1, 0)),
    ("exp sin tanh", "exp sin tanh neg", (0, 1, 0)),
    ("exp sin tanh", "exp tanh", (1, 0, 0)),
    ("exp sin tanh", "exp neg tanh", (0, 0, 1)),
    ("exp sin tanh", "exp silu", (2, 1, 0)),
    ("exp exp exp exp", "exp exp exp exp exp", (0, 1, 0)),
    ("exp exp exp exp exp", "exp exp exp exp", (1, 0, 0)),
    ("exp sin exp sin exp sin exp sin", "exp sin neg exp sin exp neg sin exp sin", (0, 2, 0)),
    ("exp sin cos tan exp sin cos tan", "neg exp sin cos tan exp sin cos tan neg", (0, 2, 0)),
    ("exp sin cos tan exp sin cos tan", "sin cos tan exp sin cos", (2, 0, 0)),
    (" ".join(["exp sin relu"] * 8), " ".join(["exp sin neg relu"] * 8), (0, 8, 0)),
    (" ".join(["exp sin relu"] * 8), " ".join(["tanh relu"] * 8), (16, 8, 0)),
    (" ".join(["exp sin relu"] * 8), " ".join(["exp sin relu"] * 9), (0, 3, 0)),
]


@pytest.mark.parametrize(("before", "after", "expected"), EDITS)
@pytest.mark.parametrize("rename", [False, True])
def test_edits_of_chains(before: str, after: str, expected: tuple[int, int, int], rename: bool) -> None:
    a, b = chain(before), chain(after, rename)
    assert counts(diff(a, b)) == expected, diff(a, b)
    removed, added, changed = expected
    assert counts(diff(b, a)) == (added, removed, changed)


@pytest.mark.parametrize("seed", range(20))
def test_scattered_insertions_cost_a_line_each(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ops = [str(op) for op in generator.choice(["exp", "sin", "cos", "tanh", "abs"], 300)]
    edited = list(ops)
    places = sorted({int(p) for p in generator.integers(1, 299, 10)}, reverse=True)
    for place in places:
        edited.insert(place, "neg")
    found = diff(chain(" ".join(ops)), chain(" ".join(edited), rename=True))
    assert counts(found) == (0, len(places), 0)
    assert {change.node.target.name for change in found.added} == {"neg"}


def test_an_inserted_node_is_one_line_whatever_reads_it() -> None:
    a = trace(lambda x: (lambda y: (y + 1, y * y, np.exp(y)))(np.sin(x)))
    b = a.copy()
    (sin,) = b.graph.find_nodes(op="call_function", target="sin")
    with b.graph.inserting_after(sin):
        new = b.graph.call_function("neg", (sin,))
    sin.replace_all_uses_with(new, lambda user: user is not new)
    found = diff(a, b)
    assert counts(found) == (0, 1, 0)
    assert [line for line in str(found).splitlines() if line[0] in "+-~"] == [
        "+ neg: f32[3,4] = -sin  # +12 FLOPs; +96 bytes; test_diff.py:" + str(new.loc.line if new.loc else 0)
    ]


def test_a_node_put_before_some_readers_only_shows_which() -> None:
    a = trace(lambda x: (lambda y: (y + 1, np.exp(y)))(np.sin(x)))
    b = a.copy()
    (sin,) = b.graph.find_nodes(op="call_function", target="sin")
    (exp,) = b.graph.find_nodes(op="call_function", target="exp")
    with b.graph.inserting_before(exp):
        exp.replace_input_with(sin, b.graph.call_function("neg", (sin,)))
    found = diff(a, b)
    assert counts(found) == (0, 1, 1) and found.changed[0].what == (("reads", "sin", "neg"),)


def test_a_fused_group() -> None:
    gm = trace(lambda x: np.tanh(F.softmax(np.exp(x * 2) + 1, dim=1)))
    fused = gm.copy()
    (softmax,) = fused.graph.find_nodes(op="call_function", target="softmax")
    with fused.graph.inserting_before(softmax):
        x = fused.graph.placeholders[0]
        new = fused.graph.call_function("silu", (x,))
    softmax.replace_all_uses_with(new)
    fused.graph.eliminate_dead_code()
    found = diff(gm, fused)
    assert names(found.removed) == ["mul", "exp", "add", "softmax"]
    assert names(found.added) == ["silu"] and not found.changed


def test_swapped_operands_and_rewired_nodes_are_changed() -> None:
    found = diff(trace(lambda x: x - np.exp(x)), trace(lambda x: np.exp(x) - x))
    (change,) = found.changed
    assert change.what == (("reads", "x", "exp"), ("reads", "exp", "x"))

    def one(x: Any) -> Any:
        a = np.exp(x)
        return np.log(a) + x

    def other(x: Any) -> Any:
        return np.exp(x) + np.exp(x) * 0  # the log is gone, and what was read is not its input

    assert diff(trace(one), trace(other)).changed


def test_removed_nodes_do_not_hide_another_reading() -> None:
    """log(a) goes; its reader now reads x, which is not what log read."""
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[4]"))
    a = graph.call_function("exp", (x,))
    log = graph.call_function("log", (a,))
    total = graph.call_function("add", (log, a))
    graph.output(total)
    before = fx.GraphModule({}, graph)
    bypass, wrong = before.copy(), before.copy()
    for gm, target in ((bypass, "exp"), (wrong, "x")):
        (old,) = gm.graph.find_nodes(op="call_function", target="log")
        old.replace_all_uses_with(next(n for n in gm.graph.nodes if n.name == target))
        gm.graph.erase_node(old)
    assert counts(diff(before, bypass)) == (1, 0, 0)
    assert counts(diff(before, wrong)) == (1, 0, 1)


def test_equal_nodes_that_become_one_are_removed_only() -> None:
    gm = trace(lambda x: np.tanh(np.exp(np.sin(x))) + np.cos(np.exp(np.sin(x))))
    found = diff(gm, passes.cse(gm))
    assert counts(found) == (2, 0, 0) and {n.node.target.name for n in found.removed} == {"exp", "sin"}
    assert counts(diff(passes.cse(gm), gm))[:2] == (0, 2)


def test_attributes_ops_and_types_that_change() -> None:
    a = trace(lambda x: np.exp(F.softmax(x, dim=1)).sum(axis=0))
    b = trace(lambda x: np.exp(F.softmax(x, dim=0)).sum(axis=1))
    found = diff(a, b)
    assert {c.name: c.what[0] for c in found.changed} == {
        "softmax": ("axis", "1", "0"),
        "sum": ("axis", "0", "1"),
        "output": ("type", "f32[4]", "f32[3]"),
    }
    assert ("type", "f32[4]", "f32[3]") in found.changed[1].what
    (change,) = diff(trace(lambda x: np.exp(np.sin(x))), trace(lambda x: np.exp(np.cos(x)))).changed
    assert change.what == (("op", "sin", "cos"),)


def test_a_change_of_type_alone_is_one_line() -> None:
    a, b = trace(lambda x: np.exp(x)), trace(lambda x: np.exp(x), x="f64[B,4]")
    assert "~ exp: f32[3,4] → f64[B,4] = ops.exp(x)" in str(diff(a, b))
    assert "~ return exp: f32[3,4] → f64[B,4]" in str(diff(a, b))


def test_inputs_and_defaults() -> None:
    def one(x: Any, y: Any) -> Any:
        return x - y

    def more(x: Any, z: Any, y: Any) -> Any:
        return x - y

    typed = {"x": "f32[3]", "y": "f32[3]"}
    found = diff(trace(one, **typed), trace(more, **typed, z="f32[3]"))
    assert counts(found) == (0, 1, 0) and names(found.added) == ["z"]
    assert diff(trace(one, **typed), trace(lambda y, x: x - y, **typed)).changed


def test_random_ops_in_another_order_are_a_change() -> None:
    def one(x: Any) -> Any:
        a = F.dropout(x, 0.1, True)
        return a + F.dropout(x, 0.2, True)

    def other(x: Any) -> Any:
        b = F.dropout(x, 0.2, True)
        return F.dropout(x, 0.1, True) + b

    (change,) = diff(trace(one), trace(other)).changed
    assert change.what == (("order", "before dropout_1", "after dropout"),)


# -- weights ---------------------------------------------------------------------------------------
def weighted(**arrays: Any) -> fx.GraphModule:
    """The sum of all weights; ``a__b`` is the path ``a.b``."""
    values = {path.replace("__", "."): np.asarray(v) for path, v in arrays.items()}
    graph = fx.Graph()
    total = graph.placeholder("x", fx.parse_type("f32[3]"))
    for path, value in values.items():
        read = graph.get_attr(path, fx.types.type_of(value))
        total = graph.call_function("add", (total, read))
    graph.output(total)
    return fx.GraphModule(values, graph)


ONES = np.ones(3, np.float32)
RAMP = np.arange(3, dtype=np.float32)


def test_weights_by_value() -> None:
    other = np.float32([1, 1.5, -1])
    found = diff(weighted(a__w=ONES), weighted(a__w=other))
    (change,) = found.weights
    assert (change.kind, change.path) == ("changed", "a.w")
    assert (change.differing, change.max_difference) == (2, 2.0)
    assert found and found.summary == "0 removed, 0 added, 0 changed; weights: 1 changed"
    assert "~ self.a.w f32[3]: differs in 2 of 3 elements, by at most 2" in str(found)
    assert not diff(weighted(w=ONES).graph, weighted(w=other).graph)  # graphs alone: no values


@pytest.mark.parametrize(
    ("one", "other", "differing", "largest"),
    [
        ([np.nan, 1, 2], [np.nan, 1, 2], None, None),
        ([np.nan, 1, 2], [0, 1, 3], 2, np.inf),
        ([np.inf, 1, 2], [np.inf, 1, 2.5], 1, 0.5),
        ([0.0, 1, 2], [-0.0, 1, 2], 1, 0.0),
    ],
)
def test_special_values(one: Any, other: Any, differing: Any, largest: Any) -> None:
    found = diff(weighted(w=np.float32(one)), weighted(w=np.float32(other))).weights
    expected = [] if differing is None else [(differing, largest)]
    assert [(w.differing, w.max_difference) for w in found] == expected


def test_renamed_weights_and_other_types() -> None:
    a = weighted(w=RAMP, v=np.float32(2), u=ONES * 4)
    b = weighted(moved__w=RAMP, v=np.float64(2), new=ONES * 5)
    found = {w.kind: w for w in diff(a, b).weights}
    assert (found["renamed"].old_path, found["renamed"].new_path) == ("w", "moved.w")
    assert (str(found["changed"].old_type), str(found["changed"].new_type)) == ("f32", "f64")
    assert (found["removed"].path, found["added"].path) == ("u", "new")
    renamed = diff(weighted(w=ONES), weighted(v=ONES))
    assert counts(renamed) == (0, 0, 0) and "~ self.w → self.v f32[3]: the same" in str(renamed)


def test_layers_after_one_that_was_removed_are_those_before() -> None:
    """Their paths count one less, and the norms, whose ones and zeros are those of every other, go with them."""

    def block() -> nn.Module:
        return nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh())

    blocks = [block() for _ in range(5)]
    whole, less = (
        fx.symbolic_trace(nn.Sequential(*(blocks[i] for i in kept)), x="f32[B,4]") for kept in (range(5), (0, 2, 3, 4))
    )
    found = fx.diff(whole, less)
    assert [change.name for change in found.removed] == ["layer_norm_1", "linear_1", "tanh_1"]
    assert not found.added and not found.changed
    by_kind = {
        kind: [(w.old_path, w.new_path) for w in found.weights if w.kind == kind] for kind in ("removed", "renamed")
    }
    assert all(path is not None and path.startswith("1.") for path, _ in by_kind["removed"])
    assert len(by_kind["removed"]) == 4 and len(found.weights) == 4 + 12
    assert ("2.0.weight", "1.0.weight") in by_kind["renamed"] and ("4.1.bias", "3.1.bias") in by_kind["renamed"]
    back = fx.diff(less, whole)
    assert [change.name for change in back.added] == ["layer_norm_1", "linear_1", "tanh_1"]
    assert not back.removed and not back.changed


class Stack(nn.Module):
    """Blocks in an order, with paths that do not depend on it."""

    def __init__(self, blocks: list[nn.Module], order: Any) -> None:
        super().__init__()
        self.blocks, self.order = nn.ModuleList(blocks), order

    def forward(self, x: Any) -> Any:
        for number in self.order:
            x = x + self.blocks[number](x)
        return x


@pytest.mark.parametrize(
    "order",
    ["0012345", "0122345", "0123455", "01012345", "01234501", "012345012345", "001122334455", "000111222333444555"],
)
@pytest.mark.parametrize("stack", [Stack, lambda blocks, order: nn.Sequential(*(blocks[i] for i in order))])
def test_a_layer_that_is_used_again_is_added_where_it_is(stack: Any, order: str) -> None:
    """Every other use of a layer is the one before, also where equal ops follow and paths count on. What is added is
    whole uses."""
    blocks = [nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh()) for _ in range(6)]
    once, again = (fx.symbolic_trace(stack(blocks, [*map(int, o)]), x="f32[B,4]") for o in ("012345", order))
    extra = len(again.graph.find_nodes(op="call_function")) - len(once.graph.find_nodes(op="call_function"))
    found = fx.diff(once, again)
    assert counts(found) == (0, extra, 0)
    assert counts(fx.diff(again, once)) == (extra, 0, 0)
    runs = re.findall(
        "[+]+",
        "".join("+" if row in found.added else " " for row in found.rows if getattr(row, "op", "") != "get_attr"),
    )
    assert all(len(run) % (extra // (len(order) - 6)) == 0 for run in runs)


def test_equal_zeros_are_not_the_same_weight() -> None:
    """A bias of zeros in another module is another weight, unless the module's others moved, too."""
    a = weighted(bn__scale=RAMP, bn__shift=ONES * 0)
    b = weighted(conv__scale=RAMP + 1, conv__bias=ONES * 0)
    assert {w.kind for w in diff(a, b).weights} == {"added", "removed"}
    c = weighted(norm__scale=RAMP, norm__shift=ONES * 0)
    renamed = {(w.kind, w.old_path, w.new_path) for w in diff(a, c).weights}
    assert renamed == {("renamed", "bn.scale", "norm.scale"), ("renamed", "bn.shift", "norm.shift")}


def test_one_weight_in_place_of_another_is_a_change() -> None:
    (change,) = diff(weighted(w=ONES), weighted(v=ONES * 2)).changed
    assert change.what == (("reads", "self.w", "self.v"),)


# -- costs -----------------------------------------------------------------------------------------
def test_costs_per_node_and_in_total() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Softmax(1))
    a = fx.symbolic_trace(model, x="f32[B,8]")
    b = a.copy()
    output = b.graph.output_node()
    with b.graph.inserting_before(output):
        new = b.graph.call_function("exp", (output.args[0],))
    output.args = (new,)
    found = diff(a, b)
    B = fx.dims("B")
    (added,) = found.added
    assert (added.old_cost.flops, added.new_cost.flops) == (0, 4 * B)
    assert added.new_cost.bytes == 2 * 4 * 4 * B
    assert found.before.flops == 4 * B * 17 + 20 * B and found.after.flops == 92 * B
    text = str(found)
    assert "+4*B FLOPs; +32*B bytes" in text and "88*B → 92*B  (+4*B)" in text
    concrete = diff(fx.symbolic_trace(model, x="f32[2,8]"), fx.symbolic_trace(model, x="f32[3,8]"))
    assert "FLOPs         176 → 264  (+50 %)" in str(concrete)


def test_unknown_costs_are_said_to_be_unknown() -> None:
    found = diff(fx.symbolic_trace(lambda x: np.exp(x)), fx.symbolic_trace(lambda x: -np.exp(x)))
    assert found.before.flops is None and found.to_json()["totals"]["flops"]["before"] is None
    assert "unknown" in str(found) and "unknown" in found.to_html()


# -- text ------------------------------------------------------------------------------------------
class Model(nn.Module):
    """Enough to have scopes, weights and lines that need breaking."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.bn = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        y = np.maximum(self.bn(self.conv(x)), 0).mean(axis=(2, 3))
        for _ in range(20):
            y = np.tanh(y)
        return F.softmax(self.fc(y), dim=1)


def model_diff(**options: Any) -> GraphDiff:
    gm = fx.symbolic_trace(Model().eval(), x="f32[B,3,32,32]")
    return diff(gm, passes.decompose(passes.fuse_conv_bn(gm)), **options)


@pytest.mark.parametrize("width", [80, 100])
def test_terminal_lines_fit(width: int) -> None:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(model_diff())
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    assert any(re.fullmatch(r"  … \d+ lines", line) for line in lines)
    assert all(line[:2] in ("- ", "+ ", "~ ", "  ") or line[0].isalnum() for line in lines)
    assert any("bn (BatchNorm2d), test_diff.py:" in line for line in lines)
    joined = " ".join(line[2:].strip() for line in lines if line.startswith("- "))
    assert "batch_norm: f32[B,16,32,32] = ops.batch_norm( conv2d," in joined


def test_long_types_names_and_places_fit() -> None:
    """Types of tuples, an operator between long names, and notes of one long part are broken, too."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a_module_with_a_long_name = nn.ParameterList([nn.Parameter(np.ones(6, np.float32))])

        def forward(self, x: Any) -> Any:
            y = np.split(x * self.a_module_with_a_long_name[0], 3, axis=-1)
            return y[0] + y[1] * y[2]

    gm = trace(Parts(), x="f32[B,T,6]")
    renamed = gm.copy()
    (product, *_) = renamed.graph.find_nodes(op="call_function")
    renamed.graph.rename_node(product, "a_product_with_a_name_that_is_long")
    product.target = "sub"
    for other in (passes.cast_floats(gm), renamed):
        text = "\n".join(str(item) for item in diff_lines(diff(gm, other), 60))
        assert max(map(len, text.splitlines())) <= 60, text
    assert "= (\n+     x - self.a_module_with_a_long_name[0]\n+ )\n" in text
    assert broken_code(f"y: f32[B] = {'a' * 30} + {'b' * 30}", 50) == [
        "y: f32[B] = (",
        f"    {'a' * 30}",
        f"    + {'b' * 30}",
        ")",
    ]


# -- layers that change in the same way ------------------------------------------------------------
class Blocks(nn.Module):
    """Equal layers in a row, which all read one more value."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(count)])

    def forward(self, x: Any, y: Any) -> Any:
        for block in self.blocks:
            x = np.tanh(np.exp(np.sin(block(x)) * y) - x)
        return x


def with_changes(gm: fx.GraphModule, places: dict[int, str]) -> fx.GraphModule:
    """A copy in which the ``exp`` of some layers is another op, or is gone."""
    changed = gm.copy()
    for place, node in enumerate(changed.graph.find_nodes(op="call_function", target="exp")):
        if places.get(place) == "removed":
            node.replace_all_uses_with(node.args[0])
            changed.graph.erase_node(node)
        elif place in places:
            node.target = places[place]
    return changed


@pytest.mark.parametrize("change", ["sqrt", "removed"])
def test_layers_that_change_in_the_same_way_are_shown_once(change: str) -> None:
    gm = trace(Blocks(6), x="f32[3,4]", y="f32[4]")
    changed = with_changes(gm, dict.fromkeys(range(6), change))
    found, whole = diff(gm, changed), diff(gm, changed, fold=False)
    assert sum(counts(found)) == 6 and counts(found) == counts(whole) and found.to_json() == whole.to_json()
    marked = [[line for line in str(one).splitlines() if line[0] in "-+"] for one in (found, whole)]
    assert 6 * len(marked[0]) == len(marked[1])
    assert "  # ×6: the 6 nodes above occur 6 times; the last gives tanh_5\n" in str(found)
    assert "×6" not in str(whole)
    rows = [sorted(re.findall(r'<div class="row.*?</div>', one.to_html())) for one in (found, whole)]
    assert rows[0] == rows[1]  # on the page, they open with a click


def test_what_was_read_decides_too() -> None:
    """Of the values that are removed, one is made of another input than the others."""

    def program(odd: int) -> Callable[..., Any]:
        def run(x: Any, y: Any) -> Any:
            for place in range(9):
                x = np.tanh(np.sin(x) * np.exp(y if place == odd else x) - x)
            return x

        return run

    def folds(odd: int) -> list[str]:
        gm = trace(program(odd), x="f32[4]", y="f32[4]")
        changed = gm.copy()
        for node in changed.graph.find_nodes(op="call_function", target="exp"):
            sine = node.next
            while sine.target is not fx.ops.mul:
                sine = sine.next
            node.replace_all_uses_with(sine.args[0])
            changed.graph.erase_node(node)
        return re.findall(r"occur (\d) times", str(diff(gm, changed)))

    assert (folds(-1), folds(4)) == (["9"], ["4", "4"])


def test_names_of_modules_are_told() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return np.tanh(np.exp(np.sin(self.fc(x))) - x)

    gm = trace(nn.Sequential(*(Layer() for _ in range(5))))
    found = str(diff(gm, with_changes(gm, dict.fromkeys(range(5), "removed"))))
    assert "  # ×5: 1 … 4 change in the same way; the last gives tanh_4\n" in found
    found = str(diff(gm, with_changes(gm, {0: "removed", 1: "removed", 3: "sqrt", 4: "sqrt"})))
    assert "  # ×2: 1 changes in the same way; the last gives tanh_1\n" in found
    assert "  # ×2: 4 changes in the same way; the last gives tanh_4\n" in found


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(0, 5), st.sampled_from(["sqrt", "log", "removed"])))
def test_only_the_same_changes_are_folded(places: dict[int, str]) -> None:
    gm = trace(Blocks(6), x="f32[3,4]", y="f32[4]")
    found = diff(gm, with_changes(gm, places), context=2)
    kinds: list[str] = []
    for part in folded(found):
        inside = part.rows if isinstance(part, Fold) else [part]
        told = [row.new.target.name if row.new else "removed" for row in inside if isinstance(row, NodeChange)]
        if isinstance(part, Fold) and part.text:
            sizes = [size for size in range(1, len(told) + 1) if len(told) % size == 0]
            assert any(told == kinds[-size:] * (len(told) // size) for size in sizes)
        kinds += told
    assert kinds == [places[place] for place in sorted(places)]


def test_what_a_body_changed_is_its_own_diff() -> None:
    """Of a loop, the calls in its body that differ; of a new condition, what is in it."""

    def halved(x: Any) -> Any:
        return fx.while_loop(lambda x: x.sum() > 1, lambda x: (x * 0.5,), (x,))

    def other(x: Any) -> Any:
        def body(x: Any) -> Any:
            half = x * 0.25
            return (fx.cond(half.max() > 3, lambda y: y - 1, lambda y: y, (half,)),)

        return fx.while_loop(lambda x: x.sum() > 1, body, (x,))

    found = diff(trace(halved, x="f32[4]"), trace(other, x="f32[4]"))
    assert counts(found) == (0, 0, 1)
    lines = [" ".join(str(item).split("  #")[0].split()) for item in diff_lines(found, 100)]
    assert {"- mul: f32[4] = x_1 * 0.5", "+ mul: f32[4] = x_1 * 0.25", "+ sub: f32[4] = y - 1"} <= set(lines)
    assert not any("sub-graph" in line for line in lines)
    (node,) = found.to_json()["nodes"]
    assert node["bodies"]["body_fn"]["counts"]["added"] == 4 and "cond_fn" not in node["bodies"]
    assert "x_1 * 0.25" in found.to_html()


def test_layers_that_change_places_are_two_changes() -> None:
    layers = [nn.Linear(4, 4) for _ in range(3)]

    class Chosen(nn.Module):
        def __init__(self, order: str) -> None:
            super().__init__()
            self.layers, self.order = nn.ModuleList(layers), order

        def forward(self, x: Any) -> Any:
            for number in map(int, self.order):
                x = np.tanh(self.layers[number](x))
            return x

    found = diff(*(trace(Chosen(order), x="f32[B,4]") for order in ("012", "102")))
    assert counts(found) == (0, 0, 2)
    assert all(change.old_text != change.new_text for change in found.changed)


def test_context() -> None:
    a, b = chain("exp " * 50), chain("exp " * 25 + "neg " + "exp " * 25)
    for context, shown in ((0, 0), (3, 6), (10, 20), (100, 52)):
        lines = str(diff(a, b, context=context)).splitlines()
        unchanged = [line for line in lines if line.startswith("  ") and "…" not in line]
        assert len(unchanged) == shown
        folds = [int(line.split()[1]) for line in lines if "…" in line]
        assert len(unchanged) + sum(folds) == 52
    assert str(diff(a, b, context=25)).count("…") == 0  # one line is shown, not folded


def test_removed_nodes_stand_where_they_stood() -> None:
    a, b = chain("exp sin cos tanh"), chain("exp tanh")
    marks = [line[:5] for line in str(diff(a, b)).splitlines()[:6]]
    assert marks == ["  x: ", "  exp", "- sin", "- cos", "  tan", "  ret"]


def test_a_diff_stays_as_it_was_when_the_graph_is_edited() -> None:
    a, b = chain("exp sin"), chain("exp sin neg")
    found = diff(a, b)
    before = found.to_json()["nodes"][0]["after"]["text"], found.summary
    neg = b.graph.find_nodes(op="call_function", target="neg")[0]
    neg.replace_all_uses_with(neg.args[0])
    b.graph.erase_node(neg)
    assert (found.to_json()["nodes"][0]["after"]["text"], found.summary) == before
    assert "+ neg: f32[4] = -sin" in str(found)


# -- JSON ------------------------------------------------------------------------------------------
def test_json_follows_its_description() -> None:
    data = json.loads(json.dumps(model_diff().to_json(), allow_nan=False))
    assert (data["format"], data["version"], data["same"]) == ("fxlite.diff", 1, False)
    found = model_diff()
    assert data["counts"] | {"unchanged": 0} == {
        "removed": len(found.removed),
        "added": len(found.added),
        "changed": len(found.changed),
        "unchanged": 0,
        "weights": len(found.weights),
    }
    node = next(n for n in data["nodes"] if n["change"] == "removed")
    assert node["after"] is None and node["before"]["op"] == "call_function"
    assert node["before"]["scope"] == "bn" and node["before"]["class"] == "BatchNorm2d"
    assert node["before"]["file"] == __file__ and isinstance(node["before"]["line"], int)
    assert node["flops"]["after"] == 0 and node["flops"]["before"] == "65536*B + 32"
    assert {w["path_before"] for w in data["weights"] if w["change"] == "removed"} == {
        "bn.weight",
        "bn.bias",
        "bn.running_mean",
        "bn.running_var",
    }
    infinite = diff(weighted(w=ONES), weighted(w=ONES * np.nan)).to_json()
    assert infinite["weights"][0]["max_abs_difference"] == "inf"
    json.dumps(infinite, allow_nan=False)


# -- HTML ------------------------------------------------------------------------------------------
class Page(HTMLParser):
    """Checks that elements are closed in order, and collects what a page asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [str(v) for k, v in attrs if k in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_html_is_one_page_that_needs_nothing(tmp_path: Path) -> None:
    found = model_diff()
    path = tmp_path / "diff.html"
    text = found.to_html(path)
    assert path.read_text(encoding="utf-8") == text
    page = Page(text)
    assert not page.addresses and not {"script", "link", "img"} & set(page.tags)
    assert not re.search(r"https?://|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    shown = "".join(page.words)
    assert f"… {len(found.rows)}" not in shown and re.search(r"… \d+ unchanged nodes", shown)
    assert shown.count("tanh_10:") == 1  # folded, not left out
    assert found.summary in shown and "bn (BatchNorm2d), test_diff.py:" in shown
    assert "self.bn.running_mean f32[16]" in shown


def test_html_escapes_what_programs_write() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[3]"))
    graph.output({"</code><script>": x})
    Page(text := diff(fx.GraphModule({}, graph), trace(lambda x: x)).to_html())
    assert "<script>" not in text and "&lt;script&gt;" in text


@browser
@pytest.mark.parametrize(("dark", "size"), [(False, (1200, 800)), (True, (420, 800))])
def test_a_page_in_a_browser(tmp_path: Path, dark: bool, size: tuple[int, int]) -> None:
    """Layers that change in the same way open by keys; nothing is wider than the window."""
    gm = models.traced("bert")
    with opened(tmp_path, diff(gm, passes.merge_linears(gm)).to_html(), size, dark) as page:
        no_serious_findings(page)
        copies = page.locator("details", has=page.locator("summary", has_text="×12"))
        assert not copies.locator("text=query_key_value_11:").is_visible()
        copies.locator("summary").focus()
        page.keyboard.press("Enter")
        assert copies.locator("text=query_key_value_11:").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


# -- any graph -------------------------------------------------------------------------------------
BAD: list[Callable[[], Any]] = [
    lambda: diff(chain("exp"), 3),  # type: ignore[arg-type]
    lambda: diff(np.exp, chain("exp")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", BAD)
def test_only_graphs(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="expected a Graph"):
        call()


def test_empty_graphs() -> None:
    assert not diff(fx.Graph(), fx.Graph())
    assert counts(diff(fx.Graph(), chain("exp").graph)) == (0, 3, 0)
    assert counts(diff(chain("exp").graph, fx.Graph())) == (3, 0, 0)


def test_the_page_begins_with_the_nodes() -> None:
    """ResNet-18 has 120 weights that differ after fuse_conv_bn: two screens before the first node."""
    page = model_diff().to_html()
    assert page.index("<h2>Nodes</h2>") < page.index("<h2>Weights</h2>")
