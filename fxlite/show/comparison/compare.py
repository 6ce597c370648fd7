"""Comparing graphs: whether two are the same program, and where they first differ.

In: graphs or GraphModules. Out: a text that names the first difference (or None), or an AssertionError that also shows
both nodes, where they were made, and how they are reached.

The comparison ignores names (also those of inputs), and the order of nodes that do not depend on each other. It
includes ops, arguments, attributes, types, the paths of weights and, for GraphModules, their values. Random ops and
values that are not read are compared in order. :mod:`fxlite.show.comparison.graph_diff` shows what an edit changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, number_of
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import SubGraph
from fxlite.ops.op import Op
from fxlite.show.text.pretty import node_line, value_text
from fxlite.types import shapes

#: The most nodes that are shown on the way to a difference.
_LONGEST_WAY = 6


@dataclass(frozen=True)
class Difference:
    """A difference of two graphs: a description, the two nodes (None for a whole graph), and the nodes on the way
    from an output (or side effect) of the first graph."""

    text: str
    a: Node | None = None
    b: Node | None = None
    way: tuple[Node, ...] = ()

    def __str__(self) -> str:
        if self.a is None or self.b is None:
            return self.text
        lines = [self.text, *_node_lines("a", self.a), *_node_lines("b", self.b)]
        if len(self.way) > 1:
            names = [n.name for n in self.way]
            if len(names) > _LONGEST_WAY:
                names[2 : len(names) - _LONGEST_WAY + 3] = [f"… {len(names) - 5} more …"]
            lines.append(f"  reached from {' <- '.join(names)}")
        return "\n".join(lines)


def _node_lines(which: str, node: Node) -> list[str]:
    place = [f"     made at {node.loc}"] if node.loc is not None else []
    if place and node.loc is not None and node.loc.expression:
        place = [f"{place[0]}: {node.loc.expression}"]
    scope = f"  # {node.scope}" if node.scope is not None and node.scope.path else ""
    return [f"  {which}: {node_line(node)}{scope}", *place]


def first_difference(a: Graph | GraphModule, b: Graph | GraphModule) -> str | None:
    """The first difference of two graphs in one line; None if they are the same program."""
    found = find_difference(a, b)
    return None if found is None else found.text


def find_difference(
    a: Graph | GraphModule, b: Graph | GraphModule, *, check_weights: bool = True, rtol: float = 0.0, atol: float = 0.0
) -> Difference | None:
    """The first difference of two graphs; None if they are the same program.

    Walks over both at once from inputs, side effects and output, and pairs the nodes. For two GraphModules, the
    weights that are read are compared by value: bit by bit or, with a tolerance, ``|a - b| <= atol + rtol*|b|``,
    where NaN equals NaN."""
    graph_a, graph_b = graph_of(a), graph_of(b)
    modules = (a, b) if isinstance(a, GraphModule) and isinstance(b, GraphModule) else None
    weights = _Weights(modules if check_weights else None, rtol, atol)
    roots_a, roots_b = _roots(graph_a), _roots(graph_b)
    for kind in roots_a:
        counts = len(roots_a[kind]), len(roots_b[kind])
        if counts[0] != counts[1]:
            names = [", ".join(n.name for n in roots[kind][:6]) for roots in (roots_a, roots_b)]
            return Difference(f"{counts[0]} {kind} against {counts[1]}: ({names[0]}) against ({names[1]})")
    conditions = _condition_difference(graph_a, graph_b)
    if conditions is not None:  # before types and sizes, which contain the facts
        return conditions
    for with_types in (False, True):  # report the cause of a difference of types first
        walk = _Walk(weights, with_types)
        for kind in roots_a:
            for one, other in zip(roots_a[kind], roots_b[kind]):
                found = walk.compare(one, other)
                if found is not None:
                    return found
    return None


def _condition_difference(a: Graph, b: Graph) -> Difference | None:
    """The first condition on named dims that only one of the graphs has."""
    mine, theirs = a.conditions(), b.conditions()
    for one, other, which in ((mine, theirs, "first"), (theirs, mine, "second")):
        for guard in one:
            if guard not in other:
                return Difference(f"only the {which} graph says {guard.reason}")
    return None


@checked
def assert_same(
    a: Graph | GraphModule, b: Graph | GraphModule, *, check_weights: bool = True, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Raise AssertionError unless two graphs are the same program, whatever the names and the order of independent
    nodes.

    The message describes the difference, shows both nodes with their module and line, and how they are reached.
    Weights are compared bit by bit; ``rtol`` and ``atol`` allow them to differ, and with ``check_weights=False`` only
    their paths and types are compared."""
    found = find_difference(a, b, check_weights=check_weights, rtol=rtol, atol=atol)
    if found is not None:
        raise AssertionError(f"the graphs differ: {found}")


def graph_of(value: Any) -> Graph:
    """The graph of a GraphModule, or a graph itself. Raises ArgumentError for anything else."""
    if isinstance(value, GraphModule):
        return value.graph
    if isinstance(value, Graph):
        return value
    raise ArgumentError(f"expected a Graph or a GraphModule, not {type(value).__name__}")


def _roots(graph: Graph) -> dict[str, list[Node]]:
    """The nodes from which the walk starts, by kind, in an order that does not depend on names."""
    found: dict[str, list[Node]] = {"inputs": [], "effects": [], "outputs": [], "unused values": []}
    for node in graph.nodes:
        if node.op == "placeholder":
            found["inputs"].append(node)
        elif node.op == "output":
            found["outputs"].append(node)
        elif node.op == "call_module" or node.is_impure():
            found["effects"].append(node)
        elif not node.users and node.op != "get_attr":
            found["unused values"].append(node)
    return found


class _Walk:
    """Pairs nodes of two graphs; a node has one partner."""

    def __init__(self, weights: _Weights, with_types: bool) -> None:
        self.weights = weights
        self.with_types = with_types
        self.partner: dict[Node, Node] = {}
        self.back: dict[Node, Node] = {}
        self.reader: dict[Node, Node | None] = {}  # for nodes of the first graph: the node from which it was reached

    def compare(self, a: Node, b: Node) -> Difference | None:
        """The first difference found from this pair on. This is a loop, so that depth does not matter."""
        work: list[tuple[Node, Node, Node | None]] = [(a, b, None)]
        while work:
            a, b, reader = work.pop()
            if self.partner.get(a) is b:
                continue
            self.reader.setdefault(a, reader)
            text = self._difference(a, b)
            if text is not None:
                return Difference(text, a, b, self._way(a))
            if a.op == "get_attr":
                continue
            self.partner[a], self.back[b] = b, a
            pairs = zip(operands(a), operands(b))
            work.extend(reversed([(one, other, a) for one, other in pairs]))
        return None

    def _difference(self, a: Node, b: Node) -> str | None:
        if a.op == b.op == "get_attr":  # several reads of one weight count as one
            return self.weights.compare(a, b, self.with_types)
        if a in self.partner or b in self.back:
            return _sharing(a, b, self.partner.get(a), self.back.get(b))
        return next((_told(a, b, *found) for found in differences(a, b, self.with_types)), None)

    def _way(self, node: Node) -> tuple[Node, ...]:
        way = [node]
        while (reader := self.reader[way[-1]]) is not None:
            way.append(reader)
        return tuple(reversed(way))


class _Weights:
    """Compares the weights of two modules, each once."""

    def __init__(self, modules: tuple[Any, Any] | None, rtol: float, atol: float) -> None:
        self.modules = modules
        self.tolerance = (rtol, atol)
        self.seen: set[str] = set()

    def compare(self, a: Node, b: Node, with_values: bool) -> str | None:
        if a.target != b.target:
            return f"{_at(a, b)}: reads self.{a.target} against self.{b.target}"
        if not with_values:
            return None
        if a.type != b.type:
            return f"self.{a.target}: type {a.type} against {b.type}"
        if self.modules is None or a.target in self.seen:
            return None
        self.seen.add(a.target)
        one, other = (module.get_attribute(a.target) for module in self.modules)
        if one is other:
            return None
        return self._array_difference(f"self.{a.target}", np.asarray(one), np.asarray(other))

    def _array_difference(self, name: str, a: Any, b: Any) -> str | None:
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{name}: {a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}"
        if a.tobytes() == b.tobytes():
            return None
        rtol, atol = self.tolerance
        if rtol or atol:
            x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
            differs = ~np.isclose(x, y, rtol, atol, equal_nan=True)
        else:
            differs = bits_differ(a, b)
        places = np.flatnonzero(differs)
        if not len(places):
            return None
        place = int(places[0])
        index = [int(i) for i in np.unravel_index(place, a.shape)] if a.shape else ""
        return f"{name}{index}: {a.reshape(-1)[place]} against {b.reshape(-1)[place]}"


def bits_differ(a: Any, b: Any) -> Any:
    """A mask of the elements of two arrays of the same type that have different bits."""
    word = min(a.itemsize, 8)
    one, other = (np.ascontiguousarray(v).reshape(-1).view(f"u{word}") for v in (a, b))
    differ = one != other
    return differ if word == a.itemsize else differ.reshape(-1, a.itemsize // word).any(axis=1)


def operands(node: Node) -> list[Node]:
    """The nodes that are read, with repetitions, in an order that does not depend on that of keywords."""
    found: list[Node] = []
    values = node._args
    if node._kwargs and node.op != "call_function":  # of an op, they are attributes
        values = (*values, *(node._kwargs[key] for key in sorted(node._kwargs)))
    for value in values:
        if isinstance(value, Node):  # the usual case
            found.append(value)
        elif isinstance(value, (tuple, list, dict)):
            found.extend(nodes_in(value))
    return found


# -- two nodes without their operands --------------------------------------------------------------
def differences(a: Node, b: Node, with_types: bool = True) -> Iterator[tuple[str, str, str]]:
    """The differences of two nodes themselves, as (what, the one, the other), where ``what`` is "op", "argument 1",
    "arguments", "type" or the name of an attribute. The nodes that they read, and names, are ignored."""
    same = a.op == b.op and a.target is b.target and a._kwargs is b._kwargs and a.type is b.type
    if same and _same_calls(a._args, b._args):
        return  # the usual case: one is a copy of the other
    if a.op != b.op or (a.target != b.target and a.op != "placeholder"):
        yield "op", title(a), title(b)
        if with_types and not types_equal(a.type, b.type):
            yield "type", str(a.type), str(b.type)
        return
    for number, (x, y) in enumerate(zip(a.args, b.args)):
        found = _value_difference(x, y)
        if found is not None:
            yield f"argument {number}", *found
    if len(a.args) != len(b.args):
        yield "arguments", str(len(a.args)), str(len(b.args))
    for key in dict.fromkeys([*a.kwargs, *b.kwargs]):
        if key not in a.kwargs or key not in b.kwargs:
            one, other = (value_text(n.kwargs[key]) if key in n.kwargs else "the default" for n in (a, b))
            yield key, one, other
            continue
        found = _value_difference(a.kwargs[key], b.kwargs[key])
        if found is not None:
            yield key, *found
    if with_types and not types_equal(a.type, b.type):
        yield "type", str(a.type), str(b.type)


def _same_calls(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether arguments are the very same but for nodes among them."""
    return len(a) == len(b) and all(x is y or x.__class__ is y.__class__ is Node for x, y in zip(a, b))


def title(node: Node) -> str:
    """``linear``, ``placeholder x``, ``output``: the op, or the opcode and target."""
    if node.op == "output":
        return node.op
    return node.target.name if isinstance(node.target, Op) else f"{node.op} {node.target}"


def types_equal(a: Any, b: Any) -> bool:
    """Whether types are equal, whatever the form of their dims; a namedtuple of types counts as a tuple."""
    if a is b:
        return True
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        same = isinstance(a, list) == isinstance(b, list) and len(a) == len(b)
        return same and all(types_equal(x, y) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(types_equal(a[k], b[k]) for k in a)
    if a is None or b is None or not (hasattr(a, "shape") and hasattr(b, "shape")):
        return bool(a == b)
    return a.dtype is b.dtype and shapes.shapes_equal(a.shape, b.shape)


def _inner_difference(a: SubGraph, b: SubGraph) -> tuple[str, str]:
    """The difference of two sub-graphs: their first calls that differ, or a description of each."""
    for one, other in zip_longest(a.calls, b.calls):
        if one is None or other is None or next(differences(one, other), None) is not None:
            return tuple("nothing" if n is None else node_line(n) for n in (one, other))  # type: ignore[return-value]
    return repr(a), repr(b)


def _value_difference(a: Any, b: Any) -> tuple[str, str] | None:
    """The difference of two arguments, except for nodes (two nodes count as equal here)."""
    if isinstance(a, Node) or isinstance(b, Node):
        both = isinstance(a, Node) and isinstance(b, Node)
        return None if both else (value_text(a), value_text(b))
    if isinstance(a, SubGraph) and isinstance(b, SubGraph):
        return None if a == b else _inner_difference(a, b)
    for kind in (list, tuple):
        if isinstance(a, kind) and isinstance(b, kind):
            if len(a) != len(b):
                return value_text(a), value_text(b)
            return next((d for d in map(_value_difference, a, b) if d is not None), None)
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return f"keys {list(a)}", f"keys {list(b)}"
        return next((d for d in map(_value_difference, a.values(), b.values()) if d), None)
    same = type(a) is type(b) and ((bool(a == b) and repr(a) == repr(b)) or (a != a and b != b))
    if same or (shapes.names(a) and shapes.names(b) and shapes.equal(a, b)):
        return None
    return value_text(a), value_text(b)


# -- text ------------------------------------------------------------------------------------------
def _at(a: Node, b: Node) -> str:
    names = a.name if a.name == b.name else f"{a.name} against {b.name}"
    place = a.origin or b.origin
    return f"{names} ({place})" if place else names


def _told(a: Node, b: Node, what: str, one: str, other: str) -> str:
    if what == "op":
        return f"{_at(a, b)}: {one} against {other}"
    if what == "type":
        return f"{_at(a, b)}: type {one} against {other}"
    if what == "arguments":
        return f"{_at(a, b)}: {title(a)} with {number_of(one, 'argument')} against {other}"
    sign = ": " if what.startswith("argument ") else "="
    return f"{_at(a, b)}: {title(a)}, {what}{sign}{one} against {other}"


def _sharing(a: Node, b: Node, partner: Node | None, back: Node | None) -> str:
    left = partner.name if partner is not None else "another value"
    right = back.name if back is not None else "another value"
    return (
        f"{_at(a, b)}: one graph reads the same value twice where the other reads two values "
        f"({a.name} was paired with {left}, {b.name} with {right})"
    )
