"""Layered layout of a nested graph: the positions of boxes and lines in a picture.

In: a tree of :class:`Box` (leaves with a size, boxes with children) and edges between leaves, in an order in which
every edge goes forward. Out: positions of all boxes, and the :class:`Line` pieces of the edges. Every box is laid out
on its own and is a single item of the box around it, so that boxes never overlap, and a folded box is simply a leaf.

The method for each box is that of Sugiyama: layers by longest path; edges over several layers get a *bend* in each
layer, which all edges of the same value share; barycentre sweeps order the layers; then each layer is placed as near
to its neighbours as the order allows (least squares, pooling adjacent violators). Lines are straight inside a layer
and curve only between layers, so they never cross a box or its title.

With ``sideways`` the layout goes from left to right: width and height of boxes are exchanged, they are laid out, and
then exchanged back. Titles stay horizontal, so they get a strip of their own on the side of a box that is then the
upper one.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

#: Pixels for a box's border, its title, the space sideways, between layers, and straight before an arrow head.
PAD, TITLE, SPACE, GAP, TIP = 14.0, 24.0, 18.0, 26.0, 6.0
SWEEPS = 12


@dataclass(eq=False)
class Box:
    """A leaf, or a titled box with children. ``x`` and ``y`` are the top left corner after :func:`layout`."""

    key: Any
    width: float = 0.0
    height: float = 0.0
    children: list[Box] = field(default_factory=list)
    title: str = ""
    title_width: float = 0.0
    x: float = 0.0
    y: float = 0.0
    #: The positions, from the left border, where values enter at the top or leave at the bottom; a leaf has none.
    entries: dict[Hashable, float] = field(default_factory=dict)
    exits: dict[Hashable, float] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def entry(self, value: Hashable) -> float:
        """The distance from the left border at which ``value`` enters."""
        return self.entries.get(value, self.width / 2)

    def exit(self, value: Hashable) -> float:
        """The distance from the left border at which ``value`` leaves."""
        return self.exits.get(value, self.width / 2)


@dataclass(eq=False)
class Line:
    """A piece of an edge: down from (x0, y0) to bend0, a curve to (x1, bend1), and down to y1. In a layout from left
    to right, x and y are exchanged."""

    value: Hashable
    x0: float
    y0: float
    bend0: float
    x1: float
    bend1: float
    y1: float
    ends: bool  # it ends at a leaf, with an arrow head

    def move(self, dx: float, dy: float) -> None:
        """Shift the line."""
        self.x0, self.x1 = self.x0 + dx, self.x1 + dx
        self.y0, self.bend0 = self.y0 + dy, self.bend0 + dy
        self.bend1, self.y1 = self.bend1 + dy, self.y1 + dy


@dataclass(eq=False)
class _Slot:
    """A place in a layer: a child (``box``), or a bend, entry or exit of a value (``box`` None)."""

    value: Hashable
    box: Box | None = None
    is_entry: bool = False
    is_exit: bool = False
    layer: int = 0
    x: float = 0.0  # the position of the left border
    above: list[tuple[_Slot, Hashable]] = field(default_factory=list)
    below: list[tuple[_Slot, Hashable]] = field(default_factory=list)

    @property
    def width(self) -> float:
        return self.box.width if self.box else 0.0

    @property
    def is_source(self) -> bool:
        """Whether it is a child that reads nothing."""
        return self.box is not None and not self.above

    def top(self, value: Hashable) -> float:
        """The x at which ``value`` enters."""
        return self.x + (self.box.entry(value) if self.box else 0.0)

    def bottom(self, value: Hashable) -> float:
        """The x at which ``value`` leaves."""
        return self.x + (self.box.exit(value) if self.box else 0.0)


#: An edge inside one box: from a child (None: the box's entry) to a child (None: its exit), and the value.
_Edge = tuple[Box | None, Box | None, Hashable]


def layout(root: Box, edges: Iterable[tuple[Hashable, Hashable]], sideways: bool = False) -> None:
    """Place everything in ``root``. ``edges`` are pairs of leaf keys, all of which go forward in the order of the
    tree."""
    paths: dict[Hashable, list[Box]] = {}
    stack = [[root]]
    order: list[Box] = []
    while stack:
        path = stack.pop()
        if path[-1].children:
            order.append(path[-1])
            stack += [[*path, child] for child in path[-1].children]
        else:
            paths[path[-1].key] = path
            if sideways:
                _turn(path[-1])
    inner: dict[Box, dict[_Edge, None]] = {box: {} for box in order}
    for source, target in edges:
        a, b = paths[source], paths[target]
        common = next(i for i, (p, q) in enumerate(zip(a, b)) if p is not q)
        for box, child in zip(a[common:], a[common + 1 :]):
            inner[box][child, None, source] = None
        for box, child in zip(b[common:], b[common + 1 :]):
            inner[box][None, child, source] = None
        inner[a[common - 1]][a[common], b[common], source] = None
    for box in reversed(order):  # inner boxes first
        _arrange(box, list(inner[box]), is_root=box is root, sideways=sideways)
    for box in order:
        for child in box.children:
            child.x, child.y = child.x + box.x, child.y + box.y
        for line in box.lines:
            line.move(box.x, box.y)
    if sideways:
        for box in (*order, *(path[-1] for path in paths.values())):
            _turn(box)


def _turn(box: Box) -> None:
    box.width, box.height, box.x, box.y = box.height, box.width, box.y, box.x


def _arrange(box: Box, edges: Sequence[_Edge], is_root: bool, sideways: bool) -> None:
    """Give ``box`` its size, and its children and lines their places in it."""
    layers = _layers(box, edges)
    _order(layers)
    _place(layers)
    slots = [slot for layer in layers for slot in layer]
    entries = [s for s in layers[0] if s.is_entry]
    exits = [s for s in layers[-1] if s.is_exit]
    pad = 4.0 if is_root else PAD
    across = 0.0 if sideways else box.title_width
    left = min(s.x for s in slots) - (TITLE if sideways and not is_root else pad)
    if entries and not sideways:  # keeps the title clear of incoming lines
        left = min(left, min(s.x for s in entries) - across - PAD)
    right = max(max(s.x + s.width for s in slots) + pad, left + across + PAD)
    for slot in slots:
        slot.x -= left
    strip = 0.0 if sideways else TITLE  # its height; incoming lines are straight there
    start = 0.0 if entries else pad if is_root or sideways else TITLE
    tops, bottoms = _rows(layers, start, strip)
    missing = box.title_width + PAD - bottoms[-1] - (0.0 if exits else pad)
    if sideways and missing > 0:  # the title is longer than what is below it
        bottoms[-1] += missing
        tops[-1] += missing
    box.width, box.height = right - left, bottoms[-1] + (0.0 if exits else pad)
    box.entries = {s.value: s.x for s in entries}
    box.exits = {s.value: s.x for s in exits}
    for slot in slots:
        if slot.box:
            middle = (tops[slot.layer] + bottoms[slot.layer]) / 2
            slot.box.x, slot.box.y = slot.x, middle - slot.box.height / 2
    for slot in slots:
        for above, value in slot.above:
            start, end = above.bottom(value), slot.top(value)
            if slot.box and not slot.box.children and len(slot.above) > 1:
                reach = slot.width * 0.3  # several lines enter a leaf next to each other
                end = min(max(start, end - reach), end + reach)
            y0 = tops[above.layer] if above.is_entry else bottoms[above.layer]
            if above.box:
                y0 = above.box.y + above.box.height
            y1 = slot.box.y if slot.box else bottoms[slot.layer]
            ends = slot.box is not None and not slot.box.children
            bends = bottoms[above.layer], tops[slot.layer] - (TIP if ends else 0.0)
            box.lines.append(Line(value, start, y0, bends[0], end, bends[1], y1, ends))


def _rows(layers: list[list[_Slot]], start: float, strip: float) -> tuple[list[float], list[float]]:
    """The top and bottom of each layer, with more room between layers if lines go far sideways. ``start`` is above
    the first layer, and ``strip`` is the height of entries."""
    tops: list[float] = []
    bottoms: list[float] = []
    for layer in layers:
        far = max((abs(u.bottom(v) - s.top(v)) for s in layer for u, v in s.above), default=0.0)
        gap = start if not tops else GAP
        if layer[0].is_exit or (layers[0][0].is_entry and len(tops) == 1):
            gap = PAD
        tops.append((bottoms[-1] if bottoms else 0.0) + gap + (min(far / 6, GAP) if tops else 0.0))
        height = strip if layer[0].is_entry else max((s.box.height for s in layer if s.box), default=0.0)
        bottoms.append(tops[-1] + height)
    return tops, bottoms


def _layers(box: Box, edges: Sequence[_Edge]) -> list[list[_Slot]]:
    """The slots of a box in layers, linked by ``above`` and ``below``. Entries are the first layer and exits the
    last; a child is below everything that it reads, and a source is just above its first reader."""
    children = {child: _Slot(child.key, child) for child in box.children}
    entries = {value: _Slot(value, is_entry=True) for source, _, value in edges if source is None}
    exits = {value: _Slot(value, is_exit=True) for _, target, value in edges if target is None}
    reads: dict[_Slot, list[_Slot]] = {}
    readers: dict[_Slot, list[_Slot]] = {}
    joined: list[tuple[_Slot, _Slot, Hashable]] = []
    for source, target, value in edges:
        upper = entries[value] if source is None else children[source]
        lower = exits[value] if target is None else children[target]
        reads.setdefault(lower, []).append(upper)
        readers.setdefault(upper, []).append(lower)
        joined.append((upper, lower, value))
    for slot in children.values():  # in the order of the tree, every edge goes forward
        slot.layer = max((u.layer + 1 for u in reads.get(slot, ())), default=int(bool(entries)))
    bottom = max(slot.layer for slot in children.values())
    for slot in exits.values():
        slot.layer = bottom + 1
    for slot in reversed(children.values()):
        if slot not in reads and slot in readers:
            slot.layer = min(r.layer for r in readers[slot]) - 1
    slots = [*entries.values(), *children.values(), *exits.values()]
    number = {old: new for new, old in enumerate(sorted({slot.layer for slot in slots}))}
    layers: list[list[_Slot]] = [[] for _ in number]
    for slot in slots:
        slot.layer = number[slot.layer]
        layers[slot.layer].append(slot)
    bends: dict[tuple[_Slot, Hashable, int], _Slot] = {}
    for upper, lower, value in joined:
        last = upper
        for layer in range(upper.layer + 1, lower.layer):
            bend = bends.get((upper, value, layer))
            if bend is None:
                bend = bends[upper, value, layer] = _Slot(value, layer=layer)
                layers[layer].append(bend)
                _join(last, bend, value)
            last = bend
        _join(last, lower, value)
    for row in layers:
        row.sort(key=lambda slot: slot.is_source)  # weights are to the right of the data
    return layers


def _join(upper: _Slot, lower: _Slot, value: Hashable) -> None:
    upper.below.append((lower, value))
    lower.above.append((upper, value))


def _order(layers: list[list[_Slot]]) -> None:
    """Order each layer so that few lines cross, by barycentre sweeps; the best order found is kept."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        for upper, lower in pairwise(layers if down else layers[::-1]):
            rank = {slot: position for position, slot in enumerate(upper)}
            own = {slot: position for position, slot in enumerate(lower)}
            scale = len(upper) / len(lower)

            def centre(slot: _Slot) -> float:
                near = [rank[n] for n, _ in (slot.above if down else slot.below)]  # noqa: B023
                return sum(near) / len(near) if near else own[slot] * scale  # noqa: B023

            lower.sort(key=centre)
        count = _crossings(layers)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    layers[:] = best


def _crossings(layers: list[list[_Slot]]) -> int:
    """The number of pairs of lines that cross between adjacent layers."""
    count = 0
    for upper, lower in pairwise(layers):
        rank = {slot: position for position, slot in enumerate(lower)}
        seen: list[int] = []
        for slot in upper:
            targets = sorted(rank[n] for n, _ in slot.below)
            count += sum(len(seen) - bisect_right(seen, target) for target in targets)
            for target in targets:
                insort(seen, target)
    return count


def _place(layers: list[list[_Slot]]) -> None:
    """Set the x of every slot. Sweeps go up and down; the last downward sweep makes chains of children exactly
    straight, and a final upward sweep straightens the bends next to them."""
    for layer in layers:
        x = 0.0
        for slot in layer:
            slot.x = x
            x += slot.width + SPACE
    for sweep in range(SWEEPS + 1):
        up = sweep % 2 == 0
        for layer in layers[::-1] if up else layers:
            _settle(layer, [_wish(slot, up, last=sweep == SWEEPS) for slot in layer])


def _wish(slot: _Slot, up: bool, last: bool) -> tuple[float, float]:
    """The preferred position of a slot, according to the layer below or above, and its weight: children have priority
    over bends and weights. In the last sweep only bends above bends move."""
    if last and (slot.box or not slot.below or any(s.box or s.is_exit for s, _ in slot.below)):
        return slot.x, 1e6 if slot.box else 1e-4
    total = weight = 0.0
    for other, value in slot.below if up else slot.above:
        here, there = (slot.bottom, other.top) if up else (slot.top, other.bottom)
        share = 1e-6 if other.is_source else 1.0 if other.box or other.is_entry else 1e-4
        total += share * (there(value) - (here(value) - slot.x))
        weight += share
    if weight == 0:
        return slot.x, 1e-6
    return total / weight, weight if slot.box else weight * 1e-4


def _settle(layer: list[_Slot], wanted: list[tuple[float, float]]) -> None:
    """Move the slots as near as possible to the wanted x while keeping order and distance: blocks of slots that touch
    are placed at the weighted mean of their wanted positions (pool adjacent violators)."""
    blocks: list[tuple[float, float, list[float]]] = []  # (sum of weight*x, weight, offsets)
    width = 0.0
    for slot, (x, weight) in zip(layer, wanted):
        block = (weight * (x - width), weight, [width])
        while blocks and blocks[-1][0] / blocks[-1][1] >= block[0] / block[1]:
            previous = blocks.pop()
            block = (previous[0] + block[0], previous[1] + block[1], previous[2] + block[2])
        blocks.append(block)
        width += slot.width + SPACE
    slots = iter(layer)
    for total, weight, offsets in blocks:
        for offset in offsets:
            next(slots).x = total / weight + offset
