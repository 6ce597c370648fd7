"""Regions: what computes some values before and after a rewrite, down to values that both share.

In: two *sides*, the program before and the program after, and pairs of values that should be equal.
Out: a :class:`Region` with the nodes of both sides in order and the inputs they share; structural
equality of values without running anything; and the region's form, equal for rewrites that differ
only in where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite.graph.graph import Node, nodes_in
from fxlite.passes.checking.edits import AnyCall, Pair
from fxlite.types.dtypes import DType

#: What a value is called that both sides share: a node, or another token.
Key = Hashable


class Side:
    """The program before, or after: calls of its nodes, its weights and leaf modules by path, and
    the values it shares with the other side, under the same key there: nodes that are not
    ``changed``, and what was proved to be equal."""

    def __init__(
        self,
        call: Callable[[Node], AnyCall],
        attribute: Callable[[str], Any],
        changed: Container[Node],
        training: bool,
    ) -> None:
        self.call = call
        self.attribute = attribute
        self.changed = changed
        self.training = training
        self.keys: dict[Node, Key] = {}  # of values that were proved to be equal
        self.numbers: dict[Node, Hashable] = {}  # equal for values that are computed alike
        self.filed: set[Node] = set()  # shared values that are found by how they are computed

    def key(self, node: Node) -> Key | None:
        """What the value is called on both sides; None if the other side does not have it."""
        found = self.keys.get(node)
        return node if found is None and node not in self.changed else found

    def is_drawn(self, node: Node, call: AnyCall) -> bool:
        """True for values no check can compute: inputs, results of leaf modules that both sides
        call, and of random ops that are on."""
        if call.op == "call_function":
            return call.target.kind == "random" and self.is_random(call)
        return call.op == "placeholder" or (call.op == "call_module" and self.key(node) is not None)

    def is_random(self, call: AnyCall) -> bool:
        """True if a call of a random op draws numbers."""
        arguments = call.target.named_arguments(call.args, call.kwargs)
        is_on = arguments.get("training", self.training)
        return is_on is not False and arguments.get("p", 0.5) != 0


@dataclass
class Half:
    """One side of a region: its nodes in order of execution, and its inputs by key."""

    nodes: list[Node] = field(default_factory=list)
    inputs: dict[Key, Node] = field(default_factory=dict)


@dataclass
class Region:
    """What computes the pairs on both sides. ``inputs`` are the values both stop at, by key, as
    nodes of one side. ``form`` is equal for regions that compute the same functions of inputs and
    weights of the same types; ``shapes`` are those of the weights, the first seen first."""

    pairs: tuple[Pair, ...]
    before: Half
    after: Half
    inputs: dict[Key, Node]
    shapes: tuple[Any, ...]
    calls: Hashable
    #: True if one side reads weights that the other does not, so that their values matter.
    has_weights: bool

    @property
    def form(self) -> Hashable:
        return (tuple([n.type for n in self.inputs.values()]), self.shapes, self.calls)

    @property
    def kind(self) -> Hashable:
        """The form without sizes."""
        types = [_without_sizes(n.type) for n in self.inputs.values()]
        return (tuple(types), tuple([(d, len(s)) for d, s in self.shapes]), self.calls)


def _without_sizes(type: Any) -> Any:
    if isinstance(type, tuple):
        return tuple(map(_without_sizes, type))
    return None if type is None else (type.dtype, len(type.shape))


def find_region(before: Side, after: Side, pairs: tuple[Pair, ...], opened: set[Key]) -> Region:
    """The region of some pairs. It stops at shared values, except those whose key is open."""
    inputs: dict[Key, Node] = {}
    weights: dict[int, Any] = {}
    lines: list[Any] = []
    halves, read = [], []
    for number, side in enumerate((before, after)):
        roots = [pair[number] for pair in pairs]
        half, seen = _walk(side, roots, opened, inputs, weights, lines)
        halves.append(half)
        read.append(seen)
    shapes = tuple([(a.dtype, a.shape) for a in weights.values() if hasattr(a, "shape")])
    return Region(pairs, halves[0], halves[1], inputs, shapes, tuple(lines), read[0] != read[1])


def _walk(
    side: Side, roots: list[Node], opened: set[Key], shared: dict[Key, Node],
    weights: dict[int, Any], lines: list[Any],
) -> tuple[Half, set[int]]:  # fmt: skip
    """One side of a region. Enters its inputs in ``shared``, its weights in ``weights`` and its
    calls, with values numbered, in ``lines``; returns the weights it reads, too."""
    half, read = Half(), set()
    keys, changed, call_of = side.keys, side.changed, side.call
    places: dict[Node, Any] = {}
    numbers = {key: i for i, key in enumerate(shared)}
    stack = roots[::-1]
    while stack:
        node = stack[-1]
        if node in places:
            stack.pop()
            continue
        call = call_of(node)
        op = call.op
        if op == "get_attr":
            weight = side.attribute(call.target)
            read.add(id(weight))
            weights.setdefault(id(weight), weight)
            lines.append(("weight", list(weights).index(id(weight))))
        else:
            key = keys.get(node)
            if key is None and node not in changed:
                key = node
            computed = op == "call_function" and call.target.kind != "random"
            if (key is not None and key not in opened) or (
                not computed and side.is_drawn(node, call)
            ):
                key = node if key is None else key
                half.inputs[key] = node
                shared.setdefault(key, node)
                places[node] = -1 - numbers.setdefault(key, len(numbers))
                continue
            waiting: list[Node] = []
            refs: list[Any] = []
            for value in call.args:
                if value.__class__ is Node:
                    place = places.get(value)
                    refs.append(place)
                    if place is None:
                        waiting.append(value)
                else:
                    refs.append(_places((value,), places, waiting))
            if op == "call_module":
                waiting += [n for n in nodes_in(call.kwargs) if n not in places]
            if waiting:
                stack += reversed(waiting)
                continue
            target = call.target if op == "call_function" else (op, call.target)
            kwargs = call.kwargs
            lines.append((target, tuple(refs), attributes_key(kwargs) if kwargs else ()))
        places[node] = len(half.nodes)
        half.nodes.append(node)
    lines.append(("results", tuple([places[root] for root in roots])))
    return half, read


def _places(args: Any, places: dict[Node, Any], waiting: list[Node]) -> Any:
    """Arguments as something hashable, nodes by their places; enters those without in
    ``waiting``."""
    found: list[Any] = []
    for value in args:
        kind = value.__class__
        if kind is Node:
            place = places.get(value)
            if place is None:
                waiting.append(value)
            found.append(place)
        elif kind is tuple or isinstance(value, (tuple, list)):
            found.append(_places(value, places, waiting))
        else:
            found.append((kind, repr(value)))
    return tuple(found)


class Opening:
    """Widens a region towards the program's inputs, step by step."""

    def __init__(self, before: Side, after: Side, pairs: Iterable[Pair]) -> None:
        self.sides = before, after
        self.pairs = tuple(pairs)
        self.opened: set[Key] = set()
        self.region = find_region(before, after, self.pairs, self.opened)

    def step(self, only_one_sided: bool = False) -> bool:
        """Compute the inputs, too (or those that one side alone has); False if none can be."""
        first, second = self.region.before.inputs, self.region.after.inputs
        grew = False
        for key in self.region.inputs:
            if only_one_sided and key in first and key in second:
                continue
            for side, inputs in zip(self.sides, (first, second)):
                node = inputs.get(key)
                if node is not None and not side.is_drawn(node, side.call(node)):
                    self.opened.add(key)
                    grew = True
        if grew:
            self.region = find_region(*self.sides, self.pairs, self.opened)
        return grew


# -- computed alike --------------------------------------------------------------------------------
class Numbering:
    """Numbers values so that those with equal numbers are computed alike from shared ones: the same
    op, attributes and inputs (of commutative ops in any order), the same weights."""

    def __init__(self) -> None:
        self._known: dict[Any, Hashable] = {}
        self._alive: list[Any] = []  # weights whose id is in a number

    def number(self, side: Side, root: Node) -> Hashable:
        """The number of a value. A shared value is its own number, under which it is also found by
        how it is computed."""
        numbers, stack = side.numbers, [root]
        while stack:
            node = stack[-1]
            key = side.key(node)
            if node in numbers and (key is None or node is not root or node in side.filed):
                stack.pop()
                continue
            if key is not None and node is not root:
                numbers[node] = key
                continue
            call = side.call(node)
            waiting: list[Node] = []
            inputs = _places(call.args, numbers, waiting)
            if waiting:
                stack.extend(waiting)
                continue
            structure = self._structure(side, node, call, inputs)
            if key is None:
                numbers[node] = self._known.setdefault(structure, ("value", len(self._known)))
            else:
                numbers[node] = self._known.setdefault(structure, key)
                side.filed.add(node)
        return numbers[root]

    def _structure(self, side: Side, node: Node, call: AnyCall, inputs: Any) -> Any:
        if call.op == "get_attr":
            weight = side.attribute(call.target)
            self._alive.append(weight)
            return ("weight", id(weight))
        if call.op != "call_function" or call.target.kind == "random":
            return ("itself", node)
        if call.target.commutative:
            inputs = tuple(sorted(inputs, key=repr))
        return (call.target, inputs, attributes_key(call.kwargs) if call.kwargs else ())


def attributes_key(kwargs: Mapping[str, Any]) -> Any:
    """The attributes of a call as something hashable: 1, 1.0 and True differ, as do 0.0 and
    -0.0."""
    found = []
    for name, value in kwargs.items():
        kind = value.__class__
        plain = kind is int or kind is bool or kind is DType or value is None
        found.append((name, kind, value if plain else repr(value)))
    return tuple(found)
