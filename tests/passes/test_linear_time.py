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


def test_a_square_is_found() -> None:
    """Work of one line for each two nodes, beside much for each node."""

    def pairs(gm: fx.GraphModule) -> None:
        passes.cse(gm)
        for _ in gm.graph.nodes:
            for _ in gm.graph.nodes:
                pass

    with pytest.raises(AssertionError, match=r"4 times the size runs .* times as many lines"):
        assert_linear(chain, pairs, SMALL)
