"""Partitions by support: disjoint, supported, without circles, as large as can be, linear time."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import ops, passes
from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node
from tests.graphs import ops_of, trace
from tests.oracle import compare
from tests.work import assert_linear
from tests.zoo import ZOO, Program


def random_graph(seed: int, length: int, span: int | None = None) -> fx.GraphModule:
    """A graph of ``length`` supported ("add", "sin") and unsupported ("mul", "cos") calls that read
    up to two earlier values, at most ``span`` calls before."""
    generator = random.Random(seed)
    graph = fx.Graph()
    values = [graph.placeholder("x", fx.parse_type("f32[2]"))]
    for _ in range(length):
        near = values if span is None else values[-span:]
        arguments = tuple(generator.choice(near) for _ in range(generator.randint(1, 2)))
        names = ("add", "mul") if len(arguments) == 2 else ("sin", "cos")
        values.append(graph.call_function(generator.choice(names), arguments))
    leaves = tuple(v for v in values if not v.users)
    graph.output(leaves)
    return fx.GraphModule({}, graph)


def supported(node: Node) -> bool:
    return node.op == "call_function" and node.target.name in ("add", "sin")


def has_circle(nodes: list[Node], group_of: Callable[[Node], Any]) -> bool:
    """Whether groups depend on each other in a circle: Kahn's algorithm on the quotient."""
    edges = {(group_of(u), group_of(n)) for n in nodes for u in n.all_input_nodes}
    edges = {(a, b) for a, b in edges if a != b}
    left = {group_of(n) for n in nodes}
    while left:
        free = left - {b for a, b in edges if a in left}
        if not free:
            return True
        left -= free
    return False


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 16))
def test_random_graphs(seed: int, length: int) -> None:
    gm = random_graph(seed, length)
    parts = passes.partition(gm, supported)
    members = [n for p in parts for n in p.nodes]
    assert len(members) == len(set(members)), "disjoint"
    assert set(members) == {n for n in gm.graph.nodes if supported(n)}, "all that is supported"
    group = {n: f"partition {p.id}" for p in parts for n in p.nodes}
    nodes = list(gm.graph.nodes)
    assert not has_circle(nodes, lambda n: group.get(n, n.name))
    for node in members:  # as large as can be
        for used in node.all_input_nodes:
            a, b = group.get(used), group[node]
            if a is not None and a != b:
                both = {n: (a if g == b else g) for n, g in group.items()}
                assert has_circle(nodes, lambda n: both.get(n, n.name)), (  # noqa: B023
                    f"{a} and {b} could be one"
                )
    fused = passes.fuse_partitions(gm, parts)
    fused.graph.lint()
    x = np.array([0.5, -2], np.float32)
    with np.errstate(all="ignore"):
        compare("fused", fused(x), gm(x))
    assert not any(supported(n) for n in fused.graph.nodes)
    fx.assert_same(gm, passes.inline_modules(fused))


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_zoo(program: Program) -> None:
    gm, eager, inputs = program.trace()
    kinds = ("pointwise", "contraction", "composite")
    parts = passes.partition(gm, lambda n: n.target.kind in kinds)
    fused = passes.fuse_partitions(gm, parts)
    fused.graph.lint()
    compare("fused", fused(*inputs), eager(*inputs))
    fx.assert_same(gm, passes.inline_modules(fused))


def test_without_effort_partitions_are_smaller_but_right(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("fxlite.passes.cutting.partition")
    gm = random_graph(3, 300, 12)
    most = len(passes.partition(gm, supported))
    monkeypatch.setattr(module, "EFFORT", 0)
    parts = passes.partition(gm, supported)
    group = {n: f"partition {p.id}" for p in parts for n in p.nodes}
    assert len(parts) > most
    assert not has_circle(list(gm.graph.nodes), lambda n: group.get(n, n.name))


def test_a_detour_through_an_unsupported_node_divides() -> None:
    def program(x: Any) -> Any:
        a = np.sin(x)
        return a + np.cos(a)

    parts = passes.partition(trace(program), supported)
    assert [[n.name for n in p.nodes] for p in parts] == [["sin"], ["add"]]


def test_late_readers_are_not_kept_apart_by_unrelated_paths() -> None:
    def program(x: Any, y: Any) -> Any:
        slow = np.cos(np.sin(y))  # one change to unsupported, which does not read np.sin(x)
        return np.sin(x) + slow

    parts = passes.partition(trace(program, "f32[4]", "f32[4]"), supported)
    assert [[n.name for n in p.nodes] for p in parts] == [["sin"], ["sin_1", "add"]]


def test_elements_go_with_their_call() -> None:
    gm = trace(lambda x: ops.split(x, (2, 2), 1)[0] * 2)
    (part,) = passes.partition(gm, lambda n: n.target.name == "split")
    assert [n.target.name for n in part.nodes] == ["split", "getitem", "getitem"]
    assert passes.partition(gm, lambda n: n.target.name == "split", min_size=2) == []
    assert ops_of(passes.fuse_partitions(gm, [part])) == ["mul"]


def test_min_size_and_repr() -> None:
    gm = trace(lambda x: np.sin(np.cos(np.sin(np.sin(x)))))
    assert [len(p) for p in passes.partition(gm, supported)] == [2, 1]
    (large,) = passes.partition(gm, supported, min_size=2)
    assert repr(large) == "Partition(0: sin, sin_1)"


def test_partitions_of_another_graph_are_refused() -> None:
    gm = trace(lambda x: np.sin(x))
    with pytest.raises(ArgumentError, match="another graph"):
        passes.fuse_partitions(gm.copy(), passes.partition(gm, supported))


def tangled(gm: fx.GraphModule) -> None:
    passes.partition(gm, supported)


def split_all(gm: fx.GraphModule) -> None:
    passes.split_module(gm, lambda n: None if supported(n) else n.name)


def extract_half(gm: fx.GraphModule) -> None:
    passes.extract_subgraph(gm, list(gm.graph.nodes)[: len(gm.graph) // 2])


def inline_all(gm: fx.GraphModule) -> None:
    passes.inline_modules(gm)


CASES: dict[str, tuple[Callable[[int], fx.GraphModule], Callable[[fx.GraphModule], None]]] = {
    "chain": (lambda n: random_graph(1, n, 1), tangled),
    "near": (lambda n: random_graph(1, n, 8), tangled),
    "far": (lambda n: random_graph(1, n), tangled),
    "split": (lambda n: random_graph(1, n // 4, 8), split_all),
    "inline": (lambda n: passes.split_module(random_graph(1, n // 4, 8), lambda node: node.name), inline_all),
    "extract": (lambda n: random_graph(1, n, 8), extract_half),
}


@pytest.mark.parametrize("name", CASES)
def test_time_is_linear(name: str) -> None:
    make, work = CASES[name]
    assert_linear(make, work, 250)


@pytest.mark.slow
def test_a_hundred_thousand_nodes() -> None:
    gm = random_graph(1, 100_000, 8)
    parts = passes.partition(gm, supported)
    assert sum(len(p) for p in parts) == sum(map(supported, gm.graph.nodes))
