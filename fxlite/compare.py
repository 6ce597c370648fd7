"""Comparing graphs: whether two compute the same in the same way, where they first differ, and what
an edit changed.

In: graphs or GraphModules. Out: a text naming the first difference (or None), an AssertionError,
or a :class:`GraphDiff` that prints removed, added and changed lines.

Names do not count (inputs' names neither), nor does the order of nodes that do not depend on each
other; ops, arguments, attributes, types, the paths of weights and (for GraphModules) their values
do. Random ops and values nobody reads are compared in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import shapes
from fxlite.graph import Graph, Node
from fxlite.graph_module import GraphModule
from fxlite.op import Op


def first_difference(a: Graph | GraphModule, b: Graph | GraphModule) -> str | None:
    """Where two graphs differ, in words; None where they are the same program.

    Walks both from inputs, effects and output at once, pairing the nodes it meets. For two
    GraphModules the weights that are read are compared by value."""
    graph_a, graph_b = _graph(a), _graph(b)
    modules = (a, b) if isinstance(a, GraphModule) and isinstance(b, GraphModule) else None
    roots_a, roots_b = _roots(graph_a), _roots(graph_b)
    for kind in roots_a:
        if len(roots_a[kind]) != len(roots_b[kind]):
            names = (", ".join(n.name for n in roots[kind][:6]) for roots in (roots_a, roots_b))
            counts = (len(roots_a[kind]), len(roots_b[kind]))
            return (
                f"{counts[0]} {kind} against {counts[1]}: ({next(names)}) against ({next(names)})"
            )
    for with_types in (False, True):  # what causes a difference of types is told first
        walk = _Walk(modules, with_types)
        for kind in roots_a:
            for one, other in zip(roots_a[kind], roots_b[kind]):
                found = walk.compare(one, other)
                if found is not None:
                    return found
    return None


def assert_same(a: Graph | GraphModule, b: Graph | GraphModule) -> None:
    """Raise AssertionError saying where two graphs differ."""
    found = first_difference(a, b)
    if found is not None:
        raise AssertionError(f"the graphs differ: {found}")


def _graph(value: Any) -> Graph:
    if isinstance(value, GraphModule):
        return value.graph
    if isinstance(value, Graph):
        return value
    raise TypeError(f"expected a Graph or a GraphModule, not {type(value).__name__}")


def _roots(graph: Graph) -> dict[str, list[Node]]:
    """Nodes to start from, by kind, in an order that does not depend on names."""
    found: dict[str, list[Node]] = {"inputs": [], "effects": [], "outputs": [], "unused values": []}
    for node in graph.nodes:
        if node.op == "placeholder":
            found["inputs"].append(node)
        elif node.op == "output":
            found["outputs"].append(node)
        elif node.is_impure():
            found["effects"].append(node)
        elif not node.users and node.op != "get_attr":
            found["unused values"].append(node)
    return found


class _Walk:
    """Pairs nodes of two graphs; a node has one partner."""

    def __init__(self, modules: tuple[Any, Any] | None, with_types: bool) -> None:
        self.modules = modules if with_types else None
        self.with_types = with_types
        self.partner: dict[Node, Node] = {}
        self.back: dict[Node, Node] = {}
        self.weights: set[str] = set()

    def compare(self, a: Node, b: Node) -> str | None:
        """The first difference met from this pair on; a loop, whatever the depth."""
        work = [(a, b)]
        while work:
            a, b = work.pop()
            if a.op == b.op == "get_attr":  # several reads of one weight count as one
                found = self._weight(a, b)
                if found is not None:
                    return found
                continue
            if a in self.partner or b in self.back:
                if self.partner.get(a) is b:
                    continue
                return _sharing(a, b, self.partner.get(a), self.back.get(b))
            self.partner[a], self.back[b] = b, a
            found = _local_difference(a, b, self.with_types)
            if found is not None:
                return found
            pairs = list(zip(_nodes(a), _nodes(b)))
            work.extend(reversed(pairs))
        return None

    def _weight(self, a: Node, b: Node) -> str | None:
        if a.target != b.target:
            return f"{_at(a, b)}: reads self.{a.target} against self.{b.target}"
        if self.with_types and a.type != b.type:
            return f"self.{a.target}: type {a.type} against {b.type}"
        if self.modules is None or a.target in self.weights:
            return None
        self.weights.add(a.target)
        values = [np.asarray(m.get_attribute(a.target)) for m in self.modules]
        return _array_difference(f"self.{a.target}", *values)


def _nodes(node: Node) -> Iterator[Node]:
    from fxlite.graph import nodes_in

    yield from nodes_in(node.args)
    yield from nodes_in(dict(sorted(node.kwargs.items())))


def _array_difference(name: str, a: Any, b: Any) -> str | None:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{name}: {a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}"
    if a.tobytes() == b.tobytes():
        return None
    bits = (
        np.ascontiguousarray(a).view(np.uint8).reshape(-1),
        np.ascontiguousarray(b).view(np.uint8),
    )
    place = int(np.flatnonzero(bits[0] != bits[1].reshape(-1))[0]) // a.itemsize
    index = [int(i) for i in np.unravel_index(place, a.shape)]
    return f"{name}{index}: {a.reshape(-1)[place]} against {b.reshape(-1)[place]}"


def _at(a: Node, b: Node) -> str:
    names = a.name if a.name == b.name else f"{a.name} against {b.name}"
    place = a.origin or b.origin
    return f"{names} ({place})" if place else names


def _sharing(a: Node, b: Node, partner: Node | None, back: Node | None) -> str:
    left = partner.name if partner is not None else "another value"
    right = back.name if back is not None else "another value"
    return (
        f"{_at(a, b)}: one graph reads the same value twice where the other reads two values "
        f"({a.name} was paired with {left}, {b.name} with {right})"
    )


def _title(node: Node) -> str:
    return node.target.name if isinstance(node.target, Op) else f"{node.op} {node.target}"


def _local_difference(a: Node, b: Node, with_types: bool = True) -> str | None:
    """How two nodes differ by themselves: op, target, attributes, structure of arguments, type."""
    if a.op != b.op or (a.target != b.target and a.op != "placeholder"):
        return f"{_at(a, b)}: {_title(a)} against {_title(b)}"
    for number, (x, y) in enumerate(zip(a.args, b.args)):
        found = _value_difference(x, y)
        if found is not None:
            return f"{_at(a, b)}: {_title(a)}, argument {number}: {found}"
    if len(a.args) != len(b.args):
        return f"{_at(a, b)}: {_title(a)} with {len(a.args)} arguments against {len(b.args)}"
    for key in dict.fromkeys([*a.kwargs, *b.kwargs]):
        if key not in a.kwargs or key not in b.kwargs:
            shown = [n.kwargs.get(key, "the default") for n in (a, b)]
            return f"{_at(a, b)}: {_title(a)}, {key}={shown[0]} against {key}={shown[1]}"
        found = _value_difference(a.kwargs[key], b.kwargs[key])
        if found is not None:
            return f"{_at(a, b)}: {_title(a)}, {key}={found}"
    if with_types and a.type != b.type and not types_equal(a.type, b.type):
        return f"{_at(a, b)}: type {a.type} against {b.type}"
    return None


def types_equal(a: Any, b: Any) -> bool:
    """Types equal up to the form of their dims; a namedtuple of them is a tuple."""
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        same = isinstance(a, list) == isinstance(b, list) and len(a) == len(b)
        return same and all(types_equal(x, y) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(types_equal(a[k], b[k]) for k in a)
    if a is None or b is None or not (hasattr(a, "shape") and hasattr(b, "shape")):
        return bool(a == b)
    return a.dtype is b.dtype and shapes.shapes_equal(a.shape, b.shape)


def _value_difference(a: Any, b: Any) -> str | None:
    """How two arguments differ, nodes apart (a node against a node is no difference here)."""
    if isinstance(a, Node) or isinstance(b, Node):
        both = isinstance(a, Node) and isinstance(b, Node)
        return None if both else f"{_show(a)} against {_show(b)}"
    for kind in (list, tuple):
        if isinstance(a, kind) and isinstance(b, kind):
            if len(a) != len(b):
                return f"{_show(a)} against {_show(b)}"
            return next((d for d in map(_value_difference, a, b) if d is not None), None)
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return f"keys {list(a)} against {list(b)}"
        return next((d for d in map(_value_difference, a.values(), b.values()) if d), None)
    same = type(a) is type(b) and ((bool(a == b) and repr(a) == repr(b)) or (a != a and b != b))
    if same or (shapes.names(a) and shapes.names(b) and shapes.equal(a, b)):
        return None
    return f"{_show(a)} against {_show(b)}"


def _show(value: Any) -> str:
    from fxlite.pretty import value_text

    return value_text(value)


# -- what changed ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class GraphDiff:
    """What changed from one graph to another: lines of nodes, weights included.

    ``lines`` is the whole in order, as (mark, text) with the marks "-", "+" and " ". ``added``,
    ``removed`` and ``changed`` hold the nodes; it is false where nothing changed."""

    added: list[Node]
    removed: list[Node]
    changed: list[tuple[Node, Node]]
    lines: list[tuple[str, str]]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @property
    def summary(self) -> str:
        parts = (
            f"{len(self.removed)} removed",
            f"{len(self.added)} added",
            f"{len(self.changed)} changed",
        )
        return ", ".join(parts) if self else "no difference"

    def __str__(self) -> str:
        shown = [f"{mark} {text}".rstrip() for mark, text in self.lines] if self else []
        return "\n".join([*shown, self.summary])

    __repr__ = __str__

    def __rich__(self) -> Any:
        from rich.text import Text

        styles = {"-": "red", "+": "green", " ": "dim"}
        shown = [Text(f"{m} {t}\n", style=styles[m]) for m, t in self.lines] if self else []
        return Text.assemble(*shown, Text(self.summary, style="bold"))


def diff(a: Graph | GraphModule, b: Graph | GraphModule) -> GraphDiff:
    """What changed from ``a`` to ``b``: nodes are paired by name, then by what they compute."""
    graph_a, graph_b = _graph(a), _graph(b)
    partner = _pair(graph_a, graph_b)  # node of b -> node of a
    paired = set(partner.values())
    removed = [n for n in graph_a.nodes if n not in paired]
    added = [n for n in graph_b.nodes if n not in partner]
    changed: list[tuple[Node, Node]] = []
    lines: list[tuple[str, str]] = []
    gone = iter(graph_a.nodes)
    for node in graph_b.nodes:
        old = partner.get(node)
        if old is None:
            lines.append(("+", _line(node)))
            continue
        if old in paired:  # removed nodes are shown where they stood
            for before in gone:
                if before is old:
                    break
                if before not in paired:
                    lines.append(("-", _line(before)))
        if _unchanged(old, node, partner):
            lines.append((" ", _line(node)))
        else:
            changed.append((old, node))
            lines += [("-", _line(old)), ("+", _line(node))]
    lines += [("-", _line(before)) for before in gone if before not in paired]
    return GraphDiff(added, removed, changed, lines)


def _line(node: Node) -> str:
    from fxlite.pretty import node_line

    text = node_line(node)
    return f"{text} = input" if node.op == "placeholder" else text


def _pair(a: Graph, b: Graph) -> dict[Node, Node]:
    """Partner in ``a`` of nodes in ``b``, in the order of both where possible."""
    by_name = {n.name: n for n in a.nodes}
    partner: dict[Node, Node] = {}
    for node in b.nodes:
        old = by_name.get(node.name)
        if node.op == "output":
            old = next((n for n in a.nodes if n.op == "output"), None)
        if old is not None and (old.op, old.target) == (node.op, node.target):
            partner[node] = old
    taken = set(partner.values())
    left: dict[Any, list[Node]] = defaultdict(list)
    for old in reversed(a.nodes):
        if old not in taken:
            left[(old.op, _title(old))].append(old)
    for node in b.nodes:
        waiting = left.get((node.op, _title(node)))
        if node not in partner and waiting and _unchanged(waiting[-1], node, partner):
            partner[node] = waiting.pop()
    return partner


def _unchanged(old: Node, new: Node, partner: dict[Node, Node]) -> bool:
    if _local_difference(old, new) is not None:
        return False
    return all(partner.get(y) is x for x, y in zip(_nodes(old), _nodes(new)))
