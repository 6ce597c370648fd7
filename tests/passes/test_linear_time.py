"""Passes, comparison, text and files on long chains: time grows with the size, not with its square.

Only ratios of times of one run are looked at: four times the nodes may take eight times as long.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import passes
from fxlite.comparison.compare import first_difference
from fxlite.comparison.graph_diff import diff
from fxlite.files.serialize import from_bytes, to_bytes

SMALL, FACTOR, ALLOWED = 5_000, 4, 8


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
    readers = [
        graph.call_function("neg", (graph.call_function("silu", (x,)),)) for _ in range(length)
    ]
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
    "parse": lambda gm: fx.parse(str(gm.graph)),
    "save and load": lambda gm: from_bytes(to_bytes(gm)),
    "lint": lambda gm: gm.graph.lint(),
}


CHAINS = (chain(SMALL), chain(SMALL * FACTOR))


def seconds(work: Callable[[fx.GraphModule], Any], gm: fx.GraphModule) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        work(gm)
        return time.perf_counter() - start
    finally:
        gc.enable()


@pytest.mark.parametrize("name", WORK)
def test_time_is_linear(name: str) -> None:
    work = WORK[name]
    ratios = []
    for _ in range(3):  # other processes disturb; one quiet run is enough
        ratios.append(seconds(work, CHAINS[1].copy()) / seconds(work, CHAINS[0].copy()))
        if ratios[-1] < ALLOWED:
            return
    pytest.fail(f"{name}: {FACTOR} times the nodes take {min(ratios):.1f} times as long")


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
    ratios = []
    for _ in range(3):
        small, large = fan(1_000), fan(4_000)
        ratios.append(seconds(WORK[name], large) / seconds(WORK[name], small))
        if ratios[-1] < ALLOWED:
            return
    pytest.fail(f"{name}: 4 times the readers take {min(ratios):.1f} times as long")
