"""What rewrites changed: each node's call before and after a stretch of the graph's journal, and
regions that compute values before and after a rewrite from inputs that both share.

In: a GraphModule and a position of its journal. Out: which nodes were created, erased and changed,
the call that each of them was before, the weights at that time, and the *claims* that together prove
the change right: pairs of values, before and after, that must be equal. The cost is proportional to
the number of edits.

In: two *sides*, the program before and the program after, and pairs of values that should be equal.
Out: a :class:`Region` with the nodes of both sides in order and the inputs they share; structural
equality of values without running anything; and the region's form, equal for rewrites that differ
only in their place in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node_store import undo_assign, undo_erase, undo_set_field
from fxlite.types.dtypes import DType


class Call(NamedTuple):
    """What computes a node's value."""

    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Any


def call_of(node: Node) -> Call:
    """A snapshot of a node's current call."""
    return Call(node.op, node.target, node.args, node.kwargs)


#: A node stands for its own call as it is now.
AnyCall: TypeAlias = Call | Node


class Pair(NamedTuple):
    """``before``'s value before the edits must equal ``after``'s value after them."""

    before: Node
    after: Node


@dataclass
class Claim:
    """Pairs that together imply that ``reader`` computes what it did before. ``pairs`` is None if more
    than the inputs of the reader changed, so that the reader itself must be checked. A claim that is
    not ``needed`` may fail although the program is right; if it holds, other regions can end there.
    A claim without ``reader`` is a guess from a node that was rewired and erased later."""

    reader: Node | None
    pairs: list[Pair] | None = None
    needed: bool = True


class Edits:
    """The net effect of a module's edits since ``start``.

    ``changed`` are the nodes that differ from before: created, erased, or with another call. Nodes
    that were created and erased again are not among them."""

    def __init__(self, gm: GraphModule, start: int) -> None:
        self.gm = gm
        self.original: dict[Node, Call] = {}
        self.created: set[Node] = set()
        self.erased: dict[Node, None] = {}
        self._entries: dict[tuple[int, str], Any] = {}
        self._groups: list[Any] = []  # keeps modules alive whose ids are keys
        rewritten = self._read(gm.graph.journal.records, start)
        for node in rewritten:
            if not node._erased and all(map(identical, self.original[node], call_of(node))):
                del self.original[node]
        self.changed: set[Node] = {*self.created, *self.erased, *self.original}
        self.new_weights = [n for n in self._readers_of_weights() if n not in self.changed]
        self.changed.update(self.new_weights)

    def __bool__(self) -> bool:
        return bool(self.changed)

    def _read(self, records: list[Any], start: int) -> list[Node]:
        """Read the journal; returns the nodes whose calls were written."""
        args: dict[Node, tuple[Any, Any]] = {}
        fields: dict[Node, dict[str, Any]] = {}
        for number in range(start, len(records)):
            record = records[number]
            if record.__class__ is not tuple:
                if record not in self.erased and record not in args:
                    self.created.add(record)
                continue
            function, subject = record[0], record[1]
            if function is undo_assign:
                if subject not in args:
                    args[subject] = record[2:]
            elif function is undo_set_field:
                if record[2] in ("op", "target"):
                    fields.setdefault(subject, {}).setdefault(record[2], record[3])
            elif function is undo_erase:
                if subject not in self.created:
                    self.erased[subject] = None
            elif function is GraphModule._restore_entry:
                self._note(record[2], record[3], record[4])
            elif function is GraphModule._restore_groups:
                _, _, module, groups = record
                for group, entries in zip(("_parameters", "_buffers", "_modules"), groups):
                    for name, value in entries.items():
                        self._note(module, name, (group, value))
        self.created = {n for n in self.created if not n._erased}
        self.erased = {n: None for n in self.erased if n._erased}
        rewritten = list(dict.fromkeys([*args, *fields]))
        for node in rewritten:
            old = fields.get(node, {})
            was_args, was_kwargs = args.get(node) or (node.args, node.kwargs)
            self.original[node] = Call(old.get("op", node.op), old.get("target", node.target), was_args, was_kwargs)
        for node in rewritten:
            if node in self.created or (node._erased and node not in self.erased):
                del self.original[node]
        return [n for n in rewritten if n in self.original]

    def _note(self, module: Any, name: str, entry: Any) -> None:
        self._groups.append(module)
        self._entries.setdefault((id(module), name), entry)

    def _readers_of_weights(self) -> list[Node]:
        """The get_attr nodes whose weight is no longer the same array."""
        if not self._entries:
            return []
        return [
            n
            for n in self.gm.graph.nodes
            if n.op == "get_attr"
            and n not in self.created
            and self.attribute_before(n.target) is not self.attribute_after(n.target)
        ]

    # -- before and after ----------------------------------------------------------------------
    def before(self, node: Node) -> AnyCall:
        """The call that a node was before the edits."""
        return self.original.get(node, node)

    def attribute_after(self, path: str) -> Any:
        """The weight or module at a path; None if there is none."""
        try:
            return self.gm.get_attribute(path)
        except AttributeError:
            return None

    def attribute_before(self, path: str) -> Any:
        """The weight or module that was at a path before the edits."""
        found: Any = self.gm
        for part in path.split("."):
            entry = self._entries.get((id(found), part), self)
            if entry is not self:
                found = None if entry is None else entry[1]
            else:
                groups = (vars(found)[g] for g in ("_parameters", "_buffers", "_modules"))
                found = next((g[part] for g in groups if part in g), None)
            if found is None:
                return None
        return found

    # -- what must hold ------------------------------------------------------------------------
    def claims(self) -> Iterator[Claim]:
        """The claims that imply that the program computes what it did before.

        A node whose call is unchanged computes the same value if its inputs do. So it suffices that
        every changed node which an unchanged one reads computes the same, and that results and calls
        with effects get the same inputs. Claims about other nodes with new inputs, most of which
        compute the same too, are not needed but let regions end early."""
        for node, old in self.original.items():
            pairs = changed_places(old, node, self.changed)
            if node._erased:
                alive = [p for p in pairs or () if not p.after._erased]
                if alive:
                    yield Claim(None, alive, needed=False)
            elif node.op == "placeholder":
                continue
            elif node.is_impure() or any(user not in self.changed for user in node.users):
                yield Claim(node, pairs)
            elif pairs is not None:
                yield Claim(node, pairs, needed=False)
        for node in self.new_weights:
            if any(user not in self.changed for user in node.users):
                yield Claim(node)


def changed_places(old: AnyCall, new: AnyCall, changed: set[Node]) -> list[Pair] | None:
    """The inputs of a call before and after, at the places where they may differ; None if more than
    the inputs differ: the call itself or the structure of its arguments."""
    is_module = old.op == "call_module"  # whose kwargs hold nodes
    same = identical(old.target, new.target) and (is_module or identical(old.kwargs, new.kwargs))
    if old.op != new.op or not same:
        return None
    pairs: list[Pair] = []
    work: list[tuple[Any, Any]] = [(old.args, new.args)]
    if is_module:
        work.append((dict(old.kwargs), dict(new.kwargs)))
    while work:
        a, b = work.pop()
        if a.__class__ is Node and b.__class__ is Node:
            if a is not b or a in changed:
                pairs.append(Pair(a, b))
        elif a is b:
            continue
        elif isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            if len(a) != len(b) or type(a) is not type(b):
                return None
            work.extend(zip(a, b))
        elif isinstance(a, dict) and isinstance(b, dict):
            if list(a) != list(b):
                return None
            work.extend((a[k], b[k]) for k in a)
        elif not identical(a, b):
            return None
    return pairs[::-1]


def identical(a: Any, b: Any) -> bool:
    """True if two arguments are identical: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(v, b[k]) for k, v in a.items())
    return bool(a == b) and (a.__class__ is not float or repr(a) == repr(b))


#: What a value is called that both sides share: a node, or another token.
Key = Hashable


# -- regions ---------------------------------------------------------------------------------------
class Side:
    """The program before or after: the calls of its nodes, its weights and leaf modules by path, and
    the values it shares with the other side, under the same key there. Shared values are those of
    nodes that are not ``changed``, and those that were proved equal."""

    def __init__(
        self, call: Callable[[Node], AnyCall], attribute: Callable[[str], Any], changed: Container[Node], training: bool
    ) -> None:
        self.call = call
        self.attribute = attribute
        self.changed = changed
        self.training = training
        self.keys: dict[Node, Key] = {}  # of values that were proved equal
        self.numbers: dict[Node, Hashable] = {}  # equal for values that are computed in the same way
        self.filed: set[Node] = set()  # shared values that can be found by how they are computed

    def key(self, node: Node) -> Key | None:
        """The key of the value on both sides; None if the other side does not have it."""
        found = self.keys.get(node)
        return node if found is None and node not in self.changed else found

    def is_drawn(self, node: Node, call: AnyCall) -> bool:
        """True for values that no check can compute: inputs, results of leaf modules that both sides
        call, and results of random ops that draw numbers."""
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
    """The nodes that compute the pairs on both sides. ``inputs`` are the values at which both stop,
    by key, as nodes of one side. ``form`` is equal for regions that compute the same functions of
    inputs and weights of the same types; ``shapes`` are the shapes of the weights in order of first
    use."""

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
    """The region of some pairs. It stops at shared values, except those whose key is in ``opened``."""
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
    side: Side, roots: list[Node], opened: set[Key], shared: dict[Key, Node], weights: dict[int, Any], lines: list[Any]
) -> tuple[Half, set[int]]:
    """Collect one side of a region. Adds its inputs to ``shared``, its weights to ``weights`` and its
    calls, with numbered values, to ``lines``; also returns the weights it reads."""
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
            if (key is not None and key not in opened) or (not computed and side.is_drawn(node, call)):
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
                    refs.append(places_of((value,), places, waiting))
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


def places_of(args: Any, places: dict[Node, Any], waiting: list[Node]) -> Any:
    """Arguments as a hashable value, with nodes given by their places; nodes without a place are
    added to ``waiting``."""
    found: list[Any] = []
    for value in args:
        kind = value.__class__
        if kind is Node:
            place = places.get(value)
            if place is None:
                waiting.append(value)
            found.append(place)
        elif kind is tuple or isinstance(value, (tuple, list)):
            found.append(places_of(value, places, waiting))
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
        """Extend the region so that it computes its inputs, or only those that one side alone has;
        returns False if none can be computed."""
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
    """Numbers values so that values with equal numbers are computed in the same way from shared ones:
    by the same op, attributes, weights and inputs (in any order for commutative ops)."""

    def __init__(self) -> None:
        self._known: dict[Any, Hashable] = {}
        self._alive: list[Any] = []  # keeps weights alive whose ids are part of a number

    def number(self, side: Side, root: Node) -> Hashable:
        """The number of a value. A shared value is its own number, and is also filed under how it is
        computed."""
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
            inputs = places_of(call.args, numbers, waiting)
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
    """The attributes of a call as a hashable value: 1, 1.0 and True differ, and so do 0.0 and
    -0.0."""
    found = []
    for name, value in kwargs.items():
        kind = value.__class__
        plain = kind is int or kind is bool or kind is DType or value is None
        found.append((name, kind, value if plain else repr(value)))
    return tuple(found)
