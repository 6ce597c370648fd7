"""Passes, comparison, text and files on long chains: work grows with the size, not with its square.
It is counted in lines of Python, so no other program disturbs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import passes
from fxlite.files.serialize import from_bytes, to_bytes
from fxlite.graph.node import nodes_in
from fxlite.graph.node_store import Namer
from fxlite.passes.base import Example
from fxlite.passes.gallery import own_passes
from fxlite.show.comparison.compare import first_difference
from fxlite.show.comparison.graph_diff import diff
from tests.work import assert_linear

SMALL = 250


def chain(length: int) -> fx.GraphModule:
    """x -> composites, foldable and removable nodes, equal nodes ... of about ``length`` nodes."""
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[4]"))
    weight = graph.get_attr("weight", fx.parse_type("f32[4]"))
    folded = weight
    value = x
    for step in range(length // 8):
        folded = graph.call_function("mul", (folded, 0.5))
        value = graph.call_function("add", (value, folded))
        one = graph.call_function("exp", (value,))
        two = graph.call_function("exp", (value,))
        graph.call_function("log", (two,))
        value = graph.call_function("mul", (one, two))
        value = graph.call_function("silu" if step % 4 == 0 else "relu", (value,))
        value = graph.call_function("neg", (graph.call_function("neg", (value,)),))
    graph.output(value)
    return fx.GraphModule({"weight": np.ones(4, np.float32)}, graph)


def fan(length: int) -> fx.GraphModule:
    """One value with many readers, all equal, joined by one concat."""
    graph = fx.Graph()
    x = graph.call_function("exp", (graph.placeholder("x", fx.parse_type("f32[1]")),))
    readers = [graph.call_function("neg", (graph.call_function("silu", (x,)),)) for _ in range(length)]
    graph.output(graph.call_function("concat", (tuple(readers),)))
    return fx.GraphModule({}, graph)


def pattern(x: Any) -> Any:
    return -F.silu(x)


def _replace(gm: fx.GraphModule) -> None:
    fx.replace_pattern(gm, pattern, lambda x: x * 2)


def _diff_of_edited(gm: fx.GraphModule) -> None:
    """Every name is another, and every tenth node is followed by a new one."""
    edited = gm.copy()
    for number, node in enumerate(list(edited.graph.find_nodes(op="call_function"))):
        edited.graph.rename_node(node, f"value_{number}")
        if number % 10 == 0:
            with edited.graph.inserting_after(node):
                new = edited.graph.call_function("tanh", (node,))
            node.replace_all_uses_with(new, lambda user, new=new: user is not new)  # type: ignore[misc]
    found = diff(gm, edited)
    assert len(found.added) >= len(gm.graph) // 11 and len(found.changed) == 0


def _replace_pairs(gm: fx.GraphModule) -> None:
    def pairs(x: Any) -> Any:
        return -F.silu(x), -F.silu(x)

    fx.replace_pattern(gm, pairs, lambda x: (x * 2, x * 3))


def _rule_set(gm: fx.GraphModule) -> None:
    made = passes.Rule(pattern, "made", "exact")
    made.replacement(lambda x: F.silu(-x))
    passes.RuleSet([made])(gm)


WORK: dict[str, Callable[[fx.GraphModule], Any]] = {
    **passes.PASSES,
    "replace_pattern": _replace,
    "replace_pattern of pairs": _replace_pairs,
    "rule set": _rule_set,
    "explain": lambda gm: passes.explain(gm, lambda x: np.tanh(F.silu(x))),
    "first_difference": lambda gm: first_difference(gm, gm.copy()),
    "diff": lambda gm: diff(gm, passes.dce(gm)),
    "diff of edited": _diff_of_edited,
    "parse": lambda gm: fx.parse(gm.graph.text(full=True)),
    "save and load": lambda gm: from_bytes(to_bytes(gm)),
    "lint": lambda gm: gm.graph.lint(),
}


@pytest.mark.parametrize("name", WORK)
def test_time_is_linear(name: str) -> None:
    assert_linear(chain, WORK[name], SMALL)


@pytest.mark.parametrize(
    "name",
    [
        "cse",
        "dce",
        "simplify",
        "decompose",
        "replace_pattern",
        "replace_pattern of pairs",
        "rule set",
        "explain",
        "diff",
    ],
)
def test_many_readers(name: str) -> None:
    assert_linear(fan, WORK[name], SMALL)


# -- what each pass works at -----------------------------------------------------------------------
def in_a_row(example: fx.GraphModule, count: int) -> fx.GraphModule:
    """The program ``count`` times, each reading results of the one before where a type fits. Results that
    none reads are those of the whole."""
    graph, weights = _start(example)
    unread: list[fx.Node] = []
    for number in range(count):
        inputs: dict[fx.Node, fx.Node] = {}
        for place in example.graph.placeholders:
            fitting = [value for value in unread if value.type == place.type]
            inputs[place] = fitting[-1] if fitting else graph.placeholder(f"x_{number}_{place.name}", place.type)
        results = _append(graph, weights, example, number, inputs)
        unread = [value for value in unread if value not in inputs.values()] + results
    graph.output(tuple(unread))
    return fx.GraphModule(weights, graph)


def added_up(example: fx.GraphModule, count: int) -> fx.GraphModule:
    """The program ``count`` times on the same inputs, and the sum of their results."""
    graph, weights = _start(example)
    inputs = {place: graph.placeholder(place.name, place.type) for place in example.graph.placeholders}
    totals = _append(graph, weights, example, 0, inputs)
    for number in range(1, count):
        results = _append(graph, weights, example, number, inputs)
        totals = [graph.call_function("add", pair) for pair in zip(totals, results, strict=True)]
    graph.output(tuple(totals))
    return fx.GraphModule(weights, graph)


def _start(example: fx.GraphModule) -> tuple[fx.Graph, dict[str, Any]]:
    graph = fx.Graph()
    graph.declare_dims(example.graph.declared_dims)
    return graph, {}


def _append(
    graph: fx.Graph, weights: dict[str, Any], example: fx.GraphModule, number: int, inputs: dict[fx.Node, fx.Node]
) -> list[fx.Node]:
    """Add a copy of a program with weights of its own; returns its results. Leaf modules are shared."""
    values = dict(inputs)
    weights |= {call.target: example.get_submodule(call.target) for call in example.graph.find_nodes(op="call_module")}
    for read in example.graph.find_nodes(op="get_attr"):
        path = f"part_{number}.{read.target}"
        weights[path] = example.get_attribute(read.target)
        values[read] = graph.get_attr(path, read.type)
    return list(nodes_in((graph.graph_copy(example.graph, values),)))


COPIES = 12
OWN = [(p, n) for p in own_passes() for n in range(len(p.examples))]


@pytest.mark.parametrize("joined", [in_a_row, added_up], ids=lambda f: f.__name__)
@pytest.mark.parametrize("item, number", OWN, ids=[f"{p.name}-{n}" for p, n in OWN])
def test_on_many_examples(item: passes.Pass, number: int, joined: Callable[..., fx.GraphModule]) -> None:
    """Each pass on what it is for, many times over."""
    example: Example = item.examples[number]
    program = example.trace()
    assert_linear(lambda count: joined(program, count), lambda gm: item(gm, **example.options), COPIES)


def test_a_square_is_found() -> None:
    """Work of one line for each two nodes, beside much for each node."""

    def pairs(gm: fx.GraphModule) -> None:
        passes.cse(gm)
        for _ in gm.graph.nodes:
            for _ in gm.graph.nodes:
                pass

    with pytest.raises(AssertionError, match=r"4 times the size runs .* times as many lines"):
        assert_linear(chain, pairs, SMALL)


def test_names_of_bodies_are_found_at_once() -> None:
    """Bodies take none of the names outside, among which there may be many of one stem."""

    def make(count: int) -> Namer:
        outer = Namer()
        assert [outer.unique("where") for _ in range(count)][-1] == f"where_{count - 1}"
        return outer

    def work(outer: Namer) -> None:
        count = len(outer.taken)
        for _ in range(count):
            inner = Namer()
            inner.know(outer)
            assert inner.unique("where") == f"where_{count}"

    assert_linear(make, work, 100)
