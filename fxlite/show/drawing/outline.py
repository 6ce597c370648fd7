"""The outline of a picture: the parts of a graph that are drawn, as nested boxes.

In: a graph. Out: an :class:`Outline`: a tree of :class:`Part` (nodes, in boxes for the calls of modules), in which
consecutive equal boxes are drawn once ("×12") and boxes below a depth are closed, and the edges between the visible
parts. Other files determine positions and colours.

A part stands for a range of the drawn nodes, and the ranges of the parts in a box follow each other. So edges always go
forward in the order of the tree, whatever is closed or folded.

Repeated stretches (twelve equal layers, an unrolled loop) are consecutive ranges with the same content: ops,
attributes, types and internal connections. Only the values of weights and the values that are read from outside may
differ, and indices may increase from one range to the next, as in the steps of a recurrent layer. Ranges are compared
by numbers: one for the node itself (op, attributes, types) and, for each operand, its distance from the start of the
range, or the number of the outside value. Stretches of up to ``_LONGEST_PERIOD`` ranges are tried, and ranges are
compared only if the hashes of their numbers agree, so that the time is linear in the number of nodes.

Some nodes are not drawn themselves, but shown on the nodes that read them: weights, elements of tuples (``getitem``),
and constants that only composite ops read, such as the initial zeros of an LSTM.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fxlite.graph.graph import Graph, Node
from fxlite.graph.node import map_nodes
from fxlite.ops.op import Op
from fxlite.show.comparison.compare import operands
from fxlite.show.comparison.pairing import call_key
from fxlite.show.text.pretty import type_text


# -- nodes that are shown on their readers ---------------------------------------------------------
def is_element(node: Node) -> bool:
    """True for a call that selects one value of a tuple."""
    return isinstance(node.target, Op) and node.target.name == "getitem"


def is_constant(node: Node) -> bool:
    """True for a call without operands whose value only composite ops read."""
    return (
        isinstance(node.target, Op)
        and node.target.kind == "creation"
        and bool(node.users)
        and not node.all_input_nodes
        and all(isinstance(user.target, Op) and user.target.kind == "composite" for user in node.users)
    )


def stands_on_readers(node: Node) -> bool:
    """True for nodes that are drawn only with ``weights=True``."""
    return node.op == "get_attr" or is_element(node) or is_constant(node)


def source_of(node: Node) -> Node:
    """The node that computes a value: the node itself, unless it is an element of a tuple."""
    while is_element(node):
        node = node.all_input_nodes[0]
    return node


# -- repetitions -----------------------------------------------------------------------------------
_LONGEST_PERIOD = 32
#: The fewest nodes that a fold has to save, for equal modules and for other stretches of nodes.
_FEWEST_IN_MODULES, _FEWEST_ELSEWHERE = 5, 12
#: Attributes that may count up or down from one stretch to the next.
_COUNTING = ("index", "start", "stop")
_BASE, _PRIME = 1_000_003, (1 << 61) - 1  # parameters of the hash of numbers

#: The rows of a range (the numbers of its nodes and of the values they read), and its indices.
Content = tuple[list[tuple[int, ...]], list[int]]


@dataclass(frozen=True)
class Repeat:
    """``times`` equal stretches of ``period`` ranges each, starting at range ``first``."""

    first: int
    period: int
    times: int


class Signatures:
    """Numbers for nodes and ranges of nodes that are equal if the content is. ``marks`` are facts by node that also
    count as content, and ``given`` has what nodes read if that is not their operands."""

    def __init__(
        self, nodes: Sequence[Node], marks: Mapping[Node, Hashable], given: Mapping[Node, Sequence[Node]]
    ) -> None:
        numbers: dict[Hashable, int] = defaultdict()
        numbers.default_factory = numbers.__len__  # type: ignore[attr-defined]
        self._place = {node: place for place, node in enumerate(nodes)}
        taken = [[self._taken(read) for read in given.get(node) or operands(node)] for node in nodes]
        self._reads = [[read for read, _ in reads] for reads in taken]
        self._indices = [
            [*_indices(node), *(index for _, indices in reads for index in indices)]
            for node, reads in zip(nodes, taken)
        ]
        self._numbers = [
            numbers[
                _own_key(node),
                tuple(type_text(read.type) for read in reads if stands_on_readers(read)),
                tuple(len(indices) for _, indices in also),
                marks.get(node),
            ]
            for node, reads, also in zip(nodes, self._reads, taken)
        ]
        self._hashes, self._powers = [0], [1]
        for number in self._numbers:
            self._hashes.append((self._hashes[-1] * _BASE + number + 1) % _PRIME)
            self._powers.append(self._powers[-1] * _BASE % _PRIME)

    def _taken(self, read: Node) -> tuple[Node, list[int]]:
        """The node that is drawn for an operand, and the indices that select the operand from it."""
        indices: list[int] = []
        while read not in self._place and is_element(read):
            indices += _indices(read)
            read = read.all_input_nodes[0]
        return read, indices

    def hash_of(self, start: int, stop: int) -> int:
        """A hash that is equal for ranges whose nodes have equal numbers."""
        return (self._hashes[stop] - self._hashes[start] * self._powers[stop - start]) % _PRIME

    def content(self, start: int, stop: int) -> Content:
        """The content of a range of nodes, and separately the indices in it."""
        outside: dict[Node, int] = {}
        rows = []
        for place in range(start, stop):
            row = [self._numbers[place]]
            for read in self._reads[place]:
                at = self._place.get(read, -1)
                inside = start <= at < stop
                row.append(at - start if inside else ~outside.setdefault(read, len(outside)))
            rows.append(tuple(row))
        return rows, [i for place in range(start, stop) for i in self._indices[place]]


def _own_key(node: Node) -> Hashable:
    class_name = node.scope.class_name if node.scope else ""
    if node.op == "get_attr":  # without the path, which differs
        return node.op, class_name, type_text(node.type)
    key: Hashable = call_key(node)
    if _indices(node):
        others = {k: v for k, v in node.kwargs.items() if k not in _COUNTING}
        kept = map_nodes((node.args, others), lambda _: None)
        key = node.op, node.target, repr(kept), tuple(k for k in _COUNTING if k in node.kwargs)
    return key, class_name, type_text(node.type)


def _indices(node: Node) -> list[int]:
    kwargs = node.kwargs
    return [kwargs[k] for k in _COUNTING if type(kwargs.get(k)) is int] if kwargs else []


def find_repeats(ranges: Sequence[range], signatures: Signatures) -> list[Repeat]:
    """The stretches with immediate repetitions, in order, none inside another one. ``ranges`` must be contiguous."""
    keys = [(len(r), signatures.hash_of(r.start, r.stop)) for r in ranges]
    found = []
    first = 0
    while first < len(ranges):
        best = None
        for period in range(1, min(_LONGEST_PERIOD, (len(ranges) - first) // 2) + 1):
            if keys[first] != keys[first + period]:
                continue
            repeat = Repeat(first, period, _times(ranges, keys, signatures, first, period))
            if _saves_enough(ranges, repeat) and (best is None or _saved(repeat) > _saved(best)):
                best = repeat
        if best is None:
            first += 1
        else:
            found.append(best)
            first += best.period * best.times
    return found


def _times(
    ranges: Sequence[range], keys: Sequence[tuple[int, int]], signatures: Signatures, first: int, period: int
) -> int:
    """How often the ``period`` ranges at ``first`` occur there in a row."""
    rows: list[tuple[int, ...]] | None = None
    indices: list[int] = []
    steps: list[int] | None = None
    times = 1
    for start in range(first + period, len(ranges) - period + 1, period):
        if keys[start : start + period] != keys[first : first + period]:
            break
        if rows is None:
            rows, indices = signatures.content(*_ends(ranges, first, period))
        next_rows, next_indices = signatures.content(*_ends(ranges, start, period))
        next_steps = [b - a for a, b in zip(indices, next_indices)]
        if next_rows != rows or (steps is not None and next_steps != steps):
            break
        indices, steps = next_indices, next_steps
        times += 1
    is_count = times > 2 or not any(steps or ())  # two different numbers do not show a pattern
    return times if is_count else 1


def _ends(ranges: Sequence[range], first: int, period: int) -> tuple[int, int]:
    """The start and stop of ``period`` ranges."""
    return ranges[first].start, ranges[first + period - 1].stop


def _saved(repeat: Repeat) -> int:
    return repeat.period * (repeat.times - 1)


def _saves_enough(ranges: Sequence[range], repeat: Repeat) -> bool:
    last = ranges[repeat.first + repeat.period - 1]
    length = last.stop - ranges[repeat.first].start
    is_module = repeat.period == 1 and length > 1
    fewest = _FEWEST_IN_MODULES if is_module else _FEWEST_ELSEWHERE
    return length * (repeat.times - 1) >= fewest


# -- the outline -----------------------------------------------------------------------------------
#: The most nodes and closed boxes that are drawn if the caller does not give a depth.
LIMIT = 300
_STRETCHES = 100  # the number of boxes into which a box with more parts is divided


@dataclass(eq=False)
class Part:
    """A node (without ``children``), or a box: the nodes ``start`` to ``stop`` of the outline.

    ``level`` is the number of module boxes around its contents. A part with ``times`` > 1 stands for that many equal
    ranges in a row, of which this is the first."""

    start: int
    stop: int
    title: str = ""
    times: int = 1
    level: int = 0
    is_open: bool = True
    parent: Part | None = None
    children: list[Part] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The stop of the last of the equal ranges."""
        return self.start + (self.stop - self.start) * self.times

    @property
    def is_drawn_whole(self) -> bool:
        """True for a node and for a closed box."""
        return not self.children or not self.is_open


@dataclass(frozen=True)
class Outline:
    """The drawn part of a graph: ``nodes`` in order, and the tree over them. ``drawn_as`` has, for the position of
    each node, that of the node that stands for it (itself, unless it is in a folded part)."""

    nodes: list[Node]
    root: Part
    drawn_as: list[int]
    #: For each node, the folded parts around it, outer ones first: the start, and the number of the copy.
    _copies: list[tuple[tuple[int, int], ...]]

    def __contains__(self, node: Node) -> bool:
        """Whether a node is one of ``nodes``, and not only shown on its readers."""
        return node in self._places

    @functools.cached_property
    def _places(self) -> dict[Node, int]:
        return {node: place for place, node in enumerate(self.nodes)}

    def parts(self, in_closed: bool = True) -> Iterator[Part]:
        """The parts below the root in order, outer ones first; ``in_closed``: including those in closed boxes."""
        stack = self.root.children[::-1]
        while stack:
            part = stack.pop()
            yield part
            if in_closed or part.is_open:
                stack += part.children[::-1]

    def visible(self) -> Iterator[Part]:
        """The parts that are drawn, without those in closed boxes."""
        return self.parts(in_closed=False)

    def node_edges(self) -> dict[tuple[int, int], None]:
        """Pairs of positions of drawn nodes: the node that is read, and its reader. Edges from one copy in a folded
        part to the next are left out."""
        edges: dict[tuple[int, int], None] = {}
        for reader, reads in enumerate(self._reads):
            for source, _ in reads:
                if not self._are_apart(source, reader):
                    edges[self.drawn_as[source], self.drawn_as[reader]] = None
        return edges

    @functools.cached_property
    def _reads(self) -> list[list[tuple[int, Node]]]:
        """For each node, the values that it reads: the position of the source, and the value, which is an element of
        the source if that is a tuple."""
        place = self._places
        rows = []
        for node in self.nodes:
            row = []
            for used in node.all_input_nodes:
                source = place.get(used if used in place else source_of(used))
                if source is not None:
                    row.append((source, used))
            rows.append(row)
        return rows

    @functools.cached_property
    def _read_last(self) -> list[int]:
        """For each node, the position of its last reader; -1 without one."""
        last = [-1] * len(self.nodes)
        for reader, reads in enumerate(self._reads):
            for source, _ in reads:
                last[source] = reader
        return last

    @functools.cached_property
    def _known_ends(self) -> dict[Part, tuple[list[Node], list[Node]]]:
        return {}

    def ends(self, part: Part) -> tuple[list[Node], list[Node]]:
        """The values that enter a box and those that leave it, without weights and constants."""
        found = self._known_ends.get(part)
        if found is None:
            reads = itertools.chain.from_iterable(self._reads[part.start : part.stop])
            entering = dict.fromkeys(value for source, value in reads if source < part.start)
            outside = itertools.chain.from_iterable(
                self._reads[reader] for reader in sorted(self._readers_behind(part))
            )
            leaving = dict.fromkeys(value for source, value in outside if part.start <= source < part.end)
            found = self._known_ends[part] = list(entering), list(leaving)
        return found

    def _readers_behind(self, part: Part) -> set[int]:
        """The positions of readers outside of a box of values from inside."""
        read = [self.nodes[p] for p in range(part.start, part.end) if self._read_last[p] >= part.end]
        readers: set[int] = set()
        while read:
            for user in read.pop().users:
                place = self._places.get(user)
                if place is None:
                    read.append(user)
                elif place >= part.end:
                    readers.add(place)
        return readers

    def _are_apart(self, one: int, other: int) -> bool:
        """True if the two are in different copies in a folded part."""
        for (fold_a, copy_a), (fold_b, copy_b) in zip(self._copies[one], self._copies[other]):
            if fold_a != fold_b:
                return False
            if copy_a != copy_b:
                return True
        return False

    def edges(self) -> list[tuple[Part, Part]]:
        """Pairs of visible parts, each once."""
        owner: list[Part] = [self.root] * len(self.nodes)
        for part in self.visible():
            if part.is_drawn_whole:
                owner[part.start : part.stop] = [part] * (part.stop - part.start)
        pairs = ((owner[a], owner[b]) for a, b in self.node_edges())
        return list(dict.fromkeys((a, b) for a, b in pairs if a is not b))


def outline(
    graph: Graph,
    left_out: Callable[[Node], bool] = stands_on_readers,
    fold: bool = True,
    marks: Mapping[Node, Hashable] | None = None,
) -> Outline:
    """The nodes of a graph in boxes, one for each call of a module; all boxes are open.

    ``left_out`` tells which nodes are not drawn; ``fold`` and ``marks`` are those of :func:`outline_of`."""
    return outline_of([n for n in graph.nodes if not left_out(n)], fold, marks)


def outline_of(
    nodes: list[Node],
    fold: bool = True,
    marks: Mapping[Node, Hashable] | None = None,
    reads: Mapping[Node, Sequence[Node]] | None = None,
) -> Outline:
    """The outline of some nodes in order, which may be those of several graphs.

    ``fold``: draw consecutive equal boxes and stretches once. ``marks``: nodes with different marks are not equal.
    ``reads``: what counts as read by a node, if not its operands; equal stretches read equal values."""
    paths = [tuple(n.scope.path.split(".")) if n.scope and n.scope.path else () for n in nodes]
    classes = {n.scope.path: n.scope.class_name for n in nodes if n.scope}
    signatures = Signatures(nodes, marks or {}, reads or {}) if fold else None
    root = Part(0, len(nodes))
    folded: list[Part] = []
    work = [(root, 0)]
    while work:
        part, depth = work.pop()
        below = {}
        for start, stop, inner in _calls(paths, part, depth):
            title, name = (".".join(paths[start][depth:inner]), classes.get(".".join(paths[start][:inner])))
            child = Part(start, stop, f"{title} ({name})" if title and name else title)
            part.children.append(child)
            below[child] = inner
        if signatures is not None and len(part.children) > 1:
            folded += _fold(part, signatures)
        for child in (c for p in part.children for c in (p.children or [p])):
            if child.stop - child.start > 1:
                work.append((child, below[child]))
    _connect(root)
    return Outline(nodes, root, *_copies(len(nodes), folded))


def _calls(paths: list[tuple[str, ...]], part: Part, depth: int) -> Iterator[tuple[int, int, int]]:
    """The start, stop and depth of the calls of modules (and single nodes) directly in a part: runs of nodes whose
    paths continue with the same name."""
    for name, run in itertools.groupby(range(part.start, part.stop), lambda i: paths[i][depth : depth + 1]):
        inside = list(run)
        if not name:
            yield from ((i, i + 1, depth) for i in inside)
            continue
        path, below = paths[inside[0]], depth + 1
        if len(inside) == 1:
            below = len(path)
        while below < len(path) and len({paths[i][below : below + 1] for i in inside}) == 1:
            below += 1  # skip a box that would only contain one box
        yield inside[0], inside[-1] + 1, below


# -- folding ---------------------------------------------------------------------------------------
def _fold(part: Part, signatures: Signatures) -> list[Part]:
    """Replace repetitions among the children of a part by the first one; returns these folded parts."""
    children = part.children
    repeats = find_repeats([range(c.start, c.stop) for c in children], signatures)
    kept: list[Part] = []
    folds: list[Part] = []
    position = 0
    for repeat in repeats:
        kept += children[position : repeat.first]
        position = repeat.first + repeat.period * repeat.times
        folds.append(_folded(children, repeat))
        kept.append(folds[-1])
    part.children = [*kept, *children[position:]]
    return folds


def _folded(children: list[Part], repeat: Repeat) -> Part:
    first, last = children[repeat.first], children[repeat.first + repeat.period - 1]
    if repeat.period == 1:
        final = children[repeat.first + repeat.times - 1]
        first.title = _joined_titles(first.title, final.title)
        first.times = repeat.times
        return first
    inside = children[repeat.first : repeat.first + repeat.period]
    return Part(first.start, last.stop, times=repeat.times, children=inside)


def _joined_titles(first: str, last: str) -> str:
    """``layer.0 (Layer)`` and ``layer.5 (Layer)`` -> ``layer.0…5 (Layer)``."""
    if first == last:
        return first
    path, space, name = first.partition(" ")
    other = last.partition(" ")[0]
    return f"{path}…{other.rpartition('.')[2]}{space}{name}"


def _copies(count: int, folded: list[Part]) -> tuple[list[int], list[tuple[tuple[int, int], ...]]]:
    """For each node, the one that is drawn for it, and the copies that contain it, outer ones first."""
    around: list[list[Part]] = [[] for _ in range(count)]
    for part in folded:  # outer parts come before inner ones
        for place in range(part.start, part.end):
            around[place].append(part)
    drawn_as, copies = [], []
    for place in range(count):
        trail: list[tuple[int, int]] = []
        while len(trail) < len(around[place]):
            part = around[place][len(trail)]
            copy, offset = divmod(place - part.start, part.stop - part.start)
            place = part.start + offset
            trail.append((part.start, copy))
        drawn_as.append(place)
        copies.append(tuple(trail))
    return drawn_as, copies


# -- levels and closed boxes -----------------------------------------------------------------------
def _connect(box: Part) -> None:
    """Set the parents and levels in a box. A fold of several parts has no module, and does not count as a level."""
    stack = [box]
    while stack:
        part = stack.pop()
        for child in part.children:
            child.parent = part
            child.level = part.level + bool(child.children and child.title)
        stack += part.children


def close_below(found: Outline, depth: int | None) -> int | None:
    """Close the boxes ``depth`` levels down. With None, the depth is the largest that ``LIMIT`` allows; if there are
    more parts than that outside of all modules, consecutive ones are put into closed boxes.

    Returns the depth; None if all boxes are open, 0 if not even modules can be shown."""
    is_automatic, is_cut = depth is None, False
    if depth is None:
        if sum(not part.children for part in found.parts()) <= LIMIT:
            return None
        is_cut = _cut(found, found.root)
        depth = _deepest(found)
    is_any_closed = False
    for part in found.parts():
        part.is_open = part.level < depth
        is_any_closed |= bool(part.children) and not part.is_open
    if is_automatic:
        for part in found.parts():  # including those in closed boxes, which can be opened on a page
            _cut(found, part)
    return 0 if is_cut else depth if is_any_closed else None


def _cut(found: Outline, box: Part) -> bool:
    """Put the parts of a box, if there are more than ``LIMIT``, into closed boxes of consecutive ones; returns True
    if there were more."""
    if len(box.children) <= LIMIT:
        return False
    size = -(-len(box.children) // _STRETCHES)
    box.children = [_stretch(found, box.children[at : at + size]) for at in range(0, len(box.children), size)]
    _connect(box)
    return True


def _stretch(found: Outline, inside: list[Part]) -> Part:
    if len(inside) == 1:
        return inside[0]
    start, stop = inside[0].start, inside[-1].end
    title = f"{found.nodes[start].name} … {found.nodes[stop - 1].name}"
    return Part(start, stop, title, is_open=False, children=inside)


def _deepest(found: Outline) -> int:
    """The largest depth at which at most ``LIMIT`` parts are drawn; at least 1."""
    highest = max((part.level for part in found.parts()), default=0) + 2
    more = [0] * (highest + 1)  # for each depth: parts that appear minus parts that disappear
    for part in found.parts():
        above = part.parent.level if part.parent else 0
        more[above + 1] += 1
        if part.children:
            more[part.level + 1] -= 1
    drawn = list(itertools.accumulate(more))
    return max((depth for depth in range(1, highest) if drawn[depth] <= LIMIT), default=1)
