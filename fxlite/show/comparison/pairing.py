"""Finds corresponding nodes of two graphs.

In: two graphs. Out: a dict from nodes of the first to nodes of the second. Nodes that compute the same from the same
inputs, or lead to the outputs in the same way, correspond to each other, whatever their names. Between two edits the
neighbourhood decides, then the order, then the name.

Structures are compared by numbers from a dict, from both ends of the graphs. The neighbourhoods are the colours of
Weisfeiler and Leman (1968), in which nodes that are already paired have unique colours. Nodes that are left between two
pairs are aligned as sequences, greedily and in a window. Last, where equal nodes may take each other's places, as those
of a layer that is used again, a node goes with what it reads; and pairs by name are taken if they leave fewer changes.
All steps take nearly linear time in the number of nodes.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from fxlite.graph.graph import Graph, Node
from fxlite.ops.op import Op
from fxlite.show.comparison.compare import operands

#: The number of steps that a neighbourhood reaches, and how often neighbourhoods and sequences are compared
#: again with the nodes paired meanwhile.
_RADIUS, _ROUNDS = 4, 3
#: The most nodes that are skipped where two sequences differ, by the number of nodes that must agree after.
_WINDOWS = {3: 64, 2: 16, 1: 8}

Pairs = dict[Node, Node]
Colours = dict[Node, Any]


def pair_nodes(a: Graph, b: Graph, renamed: Mapping[str, str], inputs_by_name: bool = False) -> Pairs:
    """The partner in ``b`` of each node of ``a`` that has one, without get_attr nodes.

    The two nodes of a pair have the same op, or read and feed the same nodes. ``renamed`` maps weights of ``b`` to the
    weights of ``a`` that had another path (new path -> old path). Inputs are paired by position or, with
    ``inputs_by_name``, by name if the names are the same."""
    numbers: dict[Hashable, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # type: ignore[attr-defined]
    old, new = _Side(a, {}, numbers), _Side(b, renamed, numbers)
    pairs = _pair_ends(a, b, inputs_by_name)
    for side, ends in ((old, list(pairs)), (new, list(pairs.values()))):
        side.look_at({node: ("end", number) for number, node in enumerate(ends)})

    def alike(one: Node, other: Node) -> bool:
        if old.call[one] != new.call[other]:
            return False
        return bool(old.down[one] == new.down[other] or old.up[one] == new.up[other])

    both, others = old.both(), new.both()
    by_name = dict(pairs)
    _pair_names(old, new, pairs, lambda one, other: bool(both[one] == others[other]))
    _pair_equal(old, new, pairs, both, others)
    _pair_names(old, new, pairs, alike)
    _pair_equal(old, new, pairs, old.down, new.down)
    _pair_equal(old, new, pairs, old.up, new.up)
    _pair_others(old, new, pairs, numbers)
    if not _cost(old, new, pairs):
        return pairs
    _pair_names(old, new, by_name, lambda one, other: bool(old.call[one] == new.call[other]))
    _pair_others(old, new, by_name, numbers)
    return min(_followed(old, new, pairs), pairs, by_name, key=lambda found: _cost(old, new, found))


def _pair_others(old: _Side, new: _Side, pairs: Pairs, numbers: dict[Hashable, int]) -> None:
    """Pair nodes by those around them that have partners."""
    for _ in range(_ROUNDS):
        count = len(pairs)
        _pair_neighbourhoods(old, new, pairs, numbers)
        _pair_sequences(old, new, pairs)
        if len(pairs) == count:
            break
    _pair_names(old, new, pairs, lambda x, y: (x.op, x.target) == (y.op, y.target))
    _pair_places(old, new, pairs)


class _Side:
    """One of the graphs, with numbers for its nodes.

    ``call`` numbers a node by its op and attributes, ``down`` by everything from which it is computed, and ``up`` by
    its weights and everything that is computed from it."""

    def __init__(self, graph: Graph, renamed: Mapping[str, str], numbers: dict[Hashable, int]) -> None:
        self.nodes = [n for n in graph.nodes if n.op != "get_attr"]
        self.order = {node: place for place, node in enumerate(self.nodes)}
        self.reads = {node: operands(node) for node in self.nodes}
        self.readers: dict[Node, list[tuple[Node, int]]] = {node: [] for node in self.nodes}
        self.weights: Colours = {}
        for node, read in self.reads.items():
            for position, operand in enumerate(read):
                if operand.op == "get_attr":
                    path = renamed.get(operand.target, operand.target)
                    self.weights[operand] = numbers["weight", path]
                else:
                    self.readers[operand].append((node, position))
        self.numbers = numbers
        self.moved = moved_modules({new: old for new, old in renamed.items() if not old.startswith("+")})
        self.call: Colours = {node: numbers[call_key(node)] for node in self.nodes}
        self.down: Colours = dict(self.weights)
        self.up: Colours = {}

    def look_at(self, ends: Mapping[Node, Hashable]) -> None:
        """Number all nodes from the inputs and from the outputs; ``ends`` have fixed numbers."""
        numbers, down, up = self.numbers, self.down, self.up
        for node in self.nodes:
            known = ends.get(node) or (self.call[node], *(down[n] for n in self.reads[node]))
            down[node] = numbers[known]
        for node in reversed(self.nodes):
            known = ends.get(node)
            if known is None:
                uses = sorted((up[user], position) for user, position in self.readers[node])
                # a node that is not read gets a unique number
                weights = tuple(self.weights[n] for n in self.reads[node] if n in self.weights)
                known = ("up", self.call[node], weights, *uses) if uses else ("dead", id(node))
            up[node] = numbers[known]

    def token(self, node: Node) -> int:
        """A number for the call of a node and its module, which has the path that it had in the first graph."""
        return self.numbers["token", self.call[node], moved_path(node.module_path, self.moved)]

    def read_by(self, node: Node) -> list[Hashable]:
        """The nodes that a node reads, and the numbers of weights."""
        return [self.weights.get(n, n) for n in self.reads[node]]

    def both(self) -> Colours:
        return {node: (self.down[node], self.up[node]) for node in self.nodes}


def call_key(node: Node) -> Hashable:
    """A key for the op, target and arguments of a node, without nodes and without the name of an input."""
    if node.op == "placeholder":
        return node.op
    target = node.target.name if isinstance(node.target, Op) else node.target
    args = tuple(map(_value_key, node.args))
    if not node.kwargs:
        return (node.op, target, args)
    return (node.op, target, args, tuple((k, _value_key(node.kwargs[k])) for k in sorted(node.kwargs)))


def _value_key(value: Any) -> Hashable:
    if isinstance(value, Node):
        return None
    if isinstance(value, (tuple, list)):
        return (isinstance(value, list), *map(_value_key, value))
    if isinstance(value, dict):
        return ("dict", *((key, _value_key(v)) for key, v in value.items()))
    return (type(value).__name__, repr(value))


# -- modules with another path ---------------------------------------------------------------------
Moved = Mapping[tuple[str, ...], tuple[str, ...]]


def moved_modules(renamed: Mapping[str, str]) -> Moved:
    """The other paths of modules, from those of their weights: 3 and 2, if ``3.fc.weight`` is ``2.fc.weight``."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path, other in renamed.items():
        before, after = path.split("."), other.split(".")
        while before and after and before[-1] == after[-1]:
            before.pop()
            after.pop()
        found.setdefault(tuple(before), tuple(after))
    return found


def moved_path(path: str, moved: Moved) -> str:
    """The other path of a module or a weight, if a module around it has another path; else the same path."""
    parts = path.split(".") if path else []
    for end in range(len(parts), -1, -1):
        if (other := moved.get(tuple(parts[:end]))) is not None:
            return ".".join([*other, *parts[end:]])
    return path


# -- methods to find pairs -------------------------------------------------------------------------
def _pair_ends(a: Graph, b: Graph, inputs_by_name: bool) -> Pairs:
    """Pair the outputs, and the inputs by position, or by name if one graph has more."""
    pairs: Pairs = {}
    old, new = a.placeholders, b.placeholders
    by_name = {n.target: n for n in new}
    is_same = inputs_by_name and by_name.keys() == {n.target for n in old}
    if len(old) != len(new) or is_same:
        old = [n for n in old if n.target in by_name]
        new = [by_name[n.target] for n in old]
    pairs.update(zip(old, new))
    outputs = [[n for n in graph.nodes if n.op == "output"] for graph in (a, b)]
    pairs.update(zip(*outputs))
    return pairs


def _left(old: _Side, new: _Side, pairs: Pairs) -> tuple[list[Node], list[Node]]:
    """The nodes without a partner."""
    taken = set(pairs.values())
    return [n for n in old.nodes if n not in pairs], [n for n in new.nodes if n not in taken]


def _pair_names(old: _Side, new: _Side, pairs: Pairs, fits: Callable[[Node, Node], bool]) -> None:
    """Pair nodes with the same name for which ``fits`` holds."""
    left, right = _left(old, new, pairs)
    by_name = {node.name: node for node in right}
    for node in left:
        other = by_name.get(node.name)
        if other is not None and fits(node, other):
            pairs[node] = other


def _pair_equal(old: _Side, new: _Side, pairs: Pairs, colours: Colours, others: Colours, single: bool = False) -> None:
    """Pair nodes with the same colour, in order; with ``single``, only those whose colour is unique in their graph."""
    left, right = _left(old, new, pairs)
    buckets: dict[Hashable, tuple[list[Node], list[Node]]] = defaultdict(lambda: ([], []))
    for node in left:
        buckets[colours[node]][0].append(node)
    for node in right:
        if others[node] in buckets:
            buckets[others[node]][1].append(node)
    for ones, twos in buckets.values():
        if not single or len(ones) == len(twos) == 1:
            pairs.update(zip(ones, twos))


def _pair_neighbourhoods(old: _Side, new: _Side, pairs: Pairs, numbers: dict[Hashable, int]) -> None:
    """Pair nodes with equal and unique neighbourhoods, the largest neighbourhoods first."""
    fixed: list[Colours] = [dict(old.weights), dict(new.weights)]
    for number, (one, other) in enumerate(pairs.items()):
        fixed[0][one] = fixed[1][other] = numbers["pair", number]
    left = _left(old, new, pairs)
    if not left[0] or not left[1]:
        return
    levels: list[list[Colours]] = []
    for side, known, nodes in zip((old, new), fixed, left):
        colours = {node: side.token(node) for node in nodes}
        levels.append([])
        for _ in range(_RADIUS):
            known.update(colours)
            colours = {node: numbers[_surroundings(side, known, node)] for node in nodes}
            levels[-1].append(colours)
    for colours, others in reversed(list(zip(*levels))):
        _pair_equal(old, new, pairs, colours, others, single=True)


def _surroundings(side: _Side, known: Colours, node: Node) -> Hashable:
    reads = tuple(known[n] for n in side.reads[node])
    uses = sorted((known[user], position) for user, position in side.readers[node])
    return (known[node], reads, tuple(uses))


def _pair_sequences(old: _Side, new: _Side, pairs: Pairs) -> None:
    """Align the nodes between pairs that are in the same order in both graphs."""
    known = sorted(pairs, key=old.order.__getitem__)
    kept = _longest_rising([new.order[pairs[node]] for node in known])
    taken = set(pairs.values())
    ends = [(old.order[n], new.order[pairs[n]]) for i, n in enumerate(known) if i in kept]
    ends.append((len(old.nodes), len(new.nodes)))
    start = (0, 0)
    for end in ends:
        left = [n for n in old.nodes[start[0] : end[0]] if n not in pairs]
        right = [n for n in new.nodes[start[1] : end[1]] if n not in taken]
        tokens = [old.token(n) for n in left], [new.token(n) for n in right]
        pairs.update((left[i], right[j]) for i, j in _aligned(*tokens))
        start = (end[0] + 1, end[1] + 1)


def _aligned(left: list[int], right: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of positions of equal tokens, increasing in both sequences. If the sequences differ, as few tokens as
    possible are skipped until some agree; if none agree nearby, a window of both is skipped."""
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            yield i, j
            i, j = i + 1, j + 1
        else:
            skip = _skipped(left, right, i, j)
            i, j = i + skip[0], j + skip[1]


def _skipped(left: list[int], right: list[int], i: int, j: int) -> tuple[int, int]:
    """The numbers of tokens to skip in both sequences, so that the next ones agree (or both sequences end)."""
    for length, window in _WINDOWS.items():
        window = min(window, len(left) - i + len(right) - j)
        for steps in range(1, window):
            for one in range(steps + 1):
                here = left[i + one : i + one + length]
                if here and here == right[j + steps - one : j + steps - one + length]:
                    return one, steps - one
    half = _WINDOWS[3] // 2
    return half, half


def _longest_rising(places: list[int]) -> set[int]:
    """The indices of a longest increasing subsequence, by patience sorting in O(n log n)."""
    tops: list[int] = []
    top_index: list[int] = []
    before: list[int] = []
    for index, place in enumerate(places):
        pile = bisect.bisect_left(tops, place)
        before.append(top_index[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(place)
            top_index.append(index)
        else:
            tops[pile], top_index[pile] = place, index
    found: set[int] = set()
    index = top_index[-1] if top_index else -1
    while index >= 0:
        found.add(index)
        index = before[index]
    return found


def _pair_places(old: _Side, new: _Side, pairs: Pairs) -> None:
    """Pair nodes of any op that read the same nodes and are read by the same nodes."""
    left, right = _left(old, new, pairs)

    def place(side: _Side, node: Node, partner: Callable[[Node], Any]) -> Hashable:
        reads = tuple(partner(n) for n in side.reads[node])
        uses = frozenset((partner(user), position) for user, position in side.readers[node])
        known = None not in reads and all(user is not None for user, _ in uses)
        return (node.op, reads, uses) if known and uses else None

    def partner_of_old(node: Node) -> Any:
        return pairs.get(node) or old.weights.get(node)

    taken = set(pairs.values())

    def partner_of_new(node: Node) -> Any:
        return node if node in taken else new.weights.get(node)

    waiting = {place(new, node, partner_of_new): node for node in right}
    waiting.pop(None, None)
    found = {place(old, node, partner_of_old): node for node in left}
    pairs.update({one: waiting[key] for key, one in found.items() if key in waiting})


# -- pairs that go with what they read -------------------------------------------------------------
def _followed(old: _Side, new: _Side, pairs: Pairs) -> Pairs:
    """The pairs, but for nodes of ``old`` whose partner reads other values than expected while an equal node without
    a partner reads those: that is their partner. The values expected are the partners of those that they read, or
    what an earlier reader reads instead."""
    found = dict(pairs)
    taken = set(pairs.values())
    instead: dict[Hashable, Hashable] = {}
    for node in old.nodes:
        read, other = old.read_by(node), found.get(node)
        if not read or node.op == "call_module" or node.is_impure():
            continue
        partners = [_partner(value, found) for value in read]
        expected = [instead.get(value, partner) for value, partner in zip(read, partners)]
        if other is None or new.read_by(other) not in (partners, expected):
            known = None if None in expected else next((value for value in expected if isinstance(value, Node)), None)
            readers = () if known is None else (reader for reader, _ in new.readers[known])
            for reader in readers:
                if reader not in taken and new.call[reader] == old.call[node] and new.read_by(reader) == expected:
                    taken.discard(found.get(node))
                    taken.add(reader)
                    found[node] = other = reader
                    break
        for value, partner, now in zip(read, partners, new.read_by(other) if other is not None else ()):
            if now != partner:
                instead.setdefault(value, now)
    return found


def _partner(value: Hashable, pairs: Pairs) -> Hashable:
    """What a value of the first graph is in the second: the partner of a node, and the same number for a weight."""
    return pairs.get(value) if isinstance(value, Node) else value


def _cost(old: _Side, new: _Side, pairs: Pairs) -> int:
    """About how many nodes of both graphs a diff shows as removed, added or changed."""
    taken = set(pairs.values())
    reads = {node: [*zip(old.read_by(node), new.read_by(other))] for node, other in pairs.items()}
    instead: dict[Hashable, set[Hashable]] = defaultdict(set)
    for before, after in (read for found in reads.values() for read in found):
        instead[before].add(after)

    def is_same(before: Hashable, after: Hashable) -> bool:
        is_replaced = isinstance(before, Node) and (before not in pairs or after not in taken)
        return _partner(before, pairs) == after or (is_replaced and len(instead[before]) == 1)

    changed = (
        old.call[n] != new.call[pairs[n]] or not all(is_same(*read) for read in found) for n, found in reads.items()
    )
    return len(old.nodes) + len(new.nodes) - 2 * len(pairs) + sum(map(bool, changed))
