"""Where values lie in memory: in an arena, which they share in turns according to the steps in which
they are held, or over other values that nothing reads any more.

In: for each value its size, the first and last step at which it is held, and possibly another value
whose place it must take. Out: offsets in one block, if all sizes are numbers (:func:`pack`), or slots
whose sizes are formulas (:func:`in_slots`).

In: the groups of a program in order, and which of its inputs may be overwritten. Out: for each value
the node whose memory it takes (:func:`taken_over`): a part of an array that nothing reads any more is
written in place, and a loop works in the memory of its initial values. The groups record which operand
that was. A value is taken over only if no later group reads it, or anything that shares its memory.
"""

from __future__ import annotations

import bisect
import functools
import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from fxlite.codegen.kernel.lower import buffer_name, lower
from fxlite.codegen.program.control import known_index
from fxlite.graph.graph import Node
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.indexing import part_size, parts_of_update
from fxlite.passes.group import Group, part_of_control
from fxlite.scalar import expr
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Index
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

ALIGNMENT = 64

Span = tuple[int, int]
"""The first and the last step at which a value is held."""

#: Pairs of values held at one time, of each value and beside that, up to which they are packed:
#: what keeps the work near-linear.
_PAIRS_A_VALUE, _PAIRS = 16, 500_000


@dataclass(frozen=True)
class Extent:
    """A value of ``nbytes`` that is held from step ``first`` to step ``last``, both included."""

    nbytes: int
    first: int
    last: int


def pack(values: Sequence[Extent], same: Sequence[int] | None = None) -> list[int] | None:
    """The offset of each value in bytes; None if so many values are held at the same time that there are
    too many pairs of them. ``same`` has, for each value, the number of the value whose place it must take
    and which is never held at the same time, or its own number.

    Greedy by size (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference,
    2020, arXiv 2001.03288): the largest value comes first, and each goes into the smallest gap that holds
    it between the values placed earlier that are held at some common step. Of values of equal size, the
    one held longest comes first. Apart from sorting, the time is linear in the pairs held together."""
    together = _held_together(values)
    if together is None:
        return None
    place = range(len(values)) if same is None else same
    neighbours: dict[int, set[int]] = {}
    for number, others in enumerate(together):
        neighbours.setdefault(place[number], set()).update(place[other] for other in others)
    offsets: dict[int, int] = {}
    for number in sorted(neighbours, key=lambda n: _rank(values[n])):
        taken = sorted(
            (offsets[other], offsets[other] + values[other].nbytes) for other in neighbours[number] if other in offsets
        )
        offsets[number] = _smallest_gap(taken, values[number].nbytes)
    return [offsets[number] for number in place]


def ends(values: Sequence[Extent], offsets: Sequence[int], steps: int) -> list[int]:
    """For each step the end of the values held at it: the bytes after that are free."""
    beginning: dict[int, list[tuple[int, int]]] = {}
    for value, offset in zip(values, offsets):
        beginning.setdefault(value.first, []).append((-offset - value.nbytes, value.last))
    held: list[tuple[int, int]] = []  # a heap with the value that ends last on top
    found = []
    for step in range(steps):
        for entry in beginning.get(step, ()):
            heapq.heappush(held, entry)
        while held and held[0][1] < step:
            heapq.heappop(held)
        found.append(-held[0][0] if held else 0)
    return found


def _rank(value: Extent) -> tuple[int, int, int]:
    return -value.nbytes, value.first - value.last, value.first


def _smallest_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    """The offset of the smallest gap of at least ``nbytes`` between ranges in order of their starts; after
    all of them if there is none."""
    end, best, smallest = 0, None, None
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (smallest is None or gap < smallest):
            best, smallest = end, gap
        end = max(end, stop)
    return end if best is None else best


def _held_together(values: Sequence[Extent]) -> list[list[int]] | None:
    """For each value the others held at some step with it; None if they are too many."""
    found: list[list[int]] = [[] for _ in values]
    ending: dict[int, list[int]] = {}
    held: dict[int, None] = {}
    left = _PAIRS_A_VALUE * len(values) + _PAIRS
    step = 0
    for number in sorted(range(len(values)), key=lambda n: values[n].first):
        for passed in range(step, values[number].first):
            for gone in ending.pop(passed, ()):
                del held[gone]
        step = values[number].first
        left -= len(held)
        if left < 0:
            return None
        for other in held:
            found[other].append(number)
        found[number].extend(held)
        held[number] = None
        ending.setdefault(values[number].last, []).append(number)
    return found


# -- slots -----------------------------------------------------------------------------------------
@dataclass
class Slot:
    """A piece of the arena that holds values one after another in time; ``sizes`` are the bytes that they
    take, each size once."""

    sizes: list[Dim] = field(default_factory=list)

    @property
    def size(self) -> Dim:
        """Bytes: the largest of the sizes, an int or an expression in dims."""
        return functools.reduce(shapes.maximum, self.sizes)

    def add(self, size: Dim) -> None:
        """Make room for a value of a size."""
        if size not in self.sizes:
            self.sizes.append(size)


def in_slots(
    sizes: Sequence[Dim], spans: Sequence[Span], same: Sequence[int] | None = None
) -> tuple[list[Slot], list[int]]:
    """The slots, and the slot of each value; for ``same`` see :func:`pack`.

    Walks the steps; a slot becomes free after the last reader of its value. A value takes the free slot
    of its size, or else the one that grows least, or else a new one. A value that must lie where another
    does takes that slot, which nothing else takes while one of them is held."""
    same = range(len(sizes)) if same is None else same
    slots: list[Slot] = []
    slot_of: dict[int, int] = {}
    free: list[int] = []
    sets: dict[int, list[Span]] = {}
    ending: dict[int, list[int]] = {}
    for number, first in enumerate(same):
        sets.setdefault(first, []).append(spans[number])
        ending.setdefault(spans[number][1], []).append(number)
    reserved: dict[int, list[Span]] = {}
    step = 0
    for number in sorted(range(len(sizes)), key=lambda n: spans[n][0]):
        for passed in range(step, spans[number][0]):
            free += [slot_of[gone] for gone in ending.pop(passed, ())]
        step, size, first = spans[number][0], sizes[number], same[number]
        choice = slot_of.get(first)
        if choice is None:
            fitting = [s for s in free if _is_free(reserved.get(s, []), sets[first])]
            choice = _best(fitting, slots, size)
            if choice is None:
                slots.append(Slot())
                free.append(choice := len(slots) - 1)
            if len(sets[first]) > 1:
                reserved[choice] = sorted(reserved.get(choice, []) + sets[first])
        free.remove(choice)
        slots[choice].add(size)
        slot_of[number] = choice
    return slots, [slot_of[number] for number in range(len(sizes))]


def in_fewest_slots(
    sizes: Sequence[Dim], spans: Sequence[Span], same: Sequence[int]
) -> tuple[list[Slot], list[int]] | None:
    """The result of :func:`in_slots`, found in another order, which may lead to fewer slots or more: values
    with the fewest possible slots come first (Brelaz, New Methods to Color the Vertices of a Graph,
    1979). None for too many values."""
    together = _held_together([Extent(0, *span) for span in spans])
    if together is None or len(set(same)) > _MOST_COLORED:
        return None
    neighbours: dict[int, set[int]] = {first: set() for first in same}
    for number, others in enumerate(together):
        neighbours[same[number]].update(same[other] for other in others)
    slots: list[Slot] = []
    slot_of: dict[int, int] = {}
    taken: dict[int, set[int]] = {first: set() for first in neighbours}
    while len(slot_of) < len(neighbours):
        left = (first for first in neighbours if first not in slot_of)
        first = max(left, key=lambda n: (len(taken[n]), len(neighbours[n]), -spans[n][0]))
        free = [slot for slot in range(len(slots)) if slot not in taken[first]]
        choice = _best(free, slots, sizes[first])
        if choice is None:
            slots.append(Slot())
            choice = len(slots) - 1
        slots[choice].add(sizes[first])
        slot_of[first] = choice
        for other in neighbours[first]:
            taken[other].add(choice)
    return slots, [slot_of[first] for first in same]


_MOST_COLORED = 300
"""The most values and sets of them; the time grows with the square of their number."""


def _is_free(reserved: Sequence[Span], spans: Sequence[Span]) -> bool:
    """Whether a slot that is ``reserved`` for some spans of steps, in order, is free during other spans."""
    for start, stop in spans:
        at = bisect.bisect_right(reserved, stop, key=lambda span: span[0])
        if at and reserved[at - 1][1] >= start:
            return False
    return True


def _best(free: list[int], slots: list[Slot], size: Dim) -> int | None:
    fitting = [i for i in free if any(shapes.at_least(own, size) for own in slots[i].sizes)]
    if fitting:
        numbers = [i for i in fitting if type(slots[i].size) is int]
        return min(numbers, key=lambda i: slots[i].size) if numbers else fitting[0]
    growing = [i for i in free if all(shapes.at_least(size, own) for own in slots[i].sizes)]
    return growing[-1] if growing else None


# -- in the memory of others -----------------------------------------------------------------------
def taken_over(
    groups: Sequence[Group],
    stored: dict[Node, Node],
    results: Sequence[Node],
    writable: Collection[Node],
    kept: bool,
    owned: Mapping[Node, Node] = MappingProxyType({}),
) -> set[Node]:
    """Record in ``stored`` which values take the memory of others. With ``kept``, results have memory of
    the program, as in a body; otherwise they have their own, and values that lead to one lie there.
    ``owned`` maps inputs to their final values, which lie in the inputs' memory if they can. Returns
    small values that would have to be kept for others to be taken over: elements and rows that a later
    group computes, and values written into a part of an array that they are computed from."""
    early: set[Node] = set()
    first = {m: step for step, g in enumerate(groups) for m in g.members}
    holders = _holders(stored)
    last = _last_reads(groups)
    outside = {*results, *owned.values()}
    ends = {end: node for node, end in owned.items()}
    ends = {end: node for end, node in ends.items() if end not in results and [*owned.values()].count(end) == 1}

    def is_free(memory: Node, step: int) -> bool:
        if memory.op != "call_function" and memory not in writable:
            return False
        return all(not (value in outside or last.get(value, -1) > step) for value in {memory, *holders.get(memory, ())})

    for step, group in enumerate(groups):
        early |= {n for n in _written_before(group) if is_free(stored.get(n.args[0], n.args[0]), step)}
        for value, operand in [*candidates(group, kept), *_ending(group, ends, stored)]:
            memory = stored.get(operand, operand)
            if value in stored or not _fits(value, memory) or not (value.type.rank or value in ends):
                continue
            finals = ends.keys() & {value, *holders.get(value, ())}
            if any(memory is not ends[final] for final in finals):
                continue  # it is computed wherever it can be, and copied
            if memory in group.taken.values():
                continue
            late = set[Node]()  # reads of the memory that would come too late
            if not is_free(memory, step):
                shared = {memory, *holders.get(memory, ())}
                late = {_smallest(u, group.root) for n in shared for u in n.users if first.get(u, -1) > step}
                is_own = memory.op == "call_function" or memory in writable
                if (
                    shared & outside
                    or not is_own
                    or not late
                    or not all(_is_small(u, memory, group.root) for u in late)
                ):
                    continue
            if not _reads_safely(group, value, operand, stored):
                if value.target.writes_part and value.args[1] in group.members:
                    early |= {value.args[1], *late}  # as much as is written
                elif group.kind == "scatter":
                    early |= {n for n in value.args[1:3] if n in group.members}
                continue
            if late:
                early |= late
                continue
            if value in outside and not finals and not kept:
                if memory in writable:
                    continue
                _move(memory, value, stored, holders)  # the operand lies in the result's memory
                last[value] = max(last.get(value, -1), len(groups))
            else:
                _move(value, memory, stored, holders)
            if operand in group.reads or group.kind == "control":
                group.taken[value] = operand  # otherwise all of it is stored again
    return early


def _fits(value: Node, memory: Node) -> bool:
    """Whether a value has the elements of another, perhaps in another shape."""
    one, other = value.type, memory.type
    return one == other or (one.dtype is other.dtype and shapes.equal(*(shapes.product(t.shape) for t in (one, other))))


def _holders(stored: Mapping[Node, Node]) -> dict[Node, set[Node]]:
    """Values by the memory in which they lie."""
    holders: dict[Node, set[Node]] = {}
    for value, source in stored.items():
        holders.setdefault(source, set()).add(value)
    return holders


def _move(value: Node, memory: Node, stored: dict[Node, Node], holders: dict[Node, set[Node]]) -> None:
    """Record that a value, and everything in its memory (its views), lies in ``memory``."""
    for other in (value, *holders.pop(value, ())):
        stored[other] = memory
        holders.setdefault(memory, set()).add(other)


def _ending(group: Group, ends: Mapping[Node, Node], stored: Mapping[Node, Node]) -> list[tuple[Node, Node]]:
    """(value, operand) for the final value of an owned input, if the group computes it from the same element of one
    value in the input's memory, or from none."""
    root = group.root
    if group.kind == "control" or group.beside is not None or root not in ends:
        return []
    there = [node for node in group.reads if stored.get(node, node) is ends[root]] or [ends[root]]
    reads = group.reads.get(there[0])
    if reads is None or (group.kind == "loops" and reads == [group.index] and not root.target.writes_part):
        return [(root, there[0])] if len(there) == 1 else []
    return []


def _is_small(node: Node, memory: Node, before: Node) -> bool:
    """Whether a value is cheap to keep in addition to another, and is computed before a third."""
    if not isinstance(node.type, TensorType) or node.target.kind == "control" or not node < before:
        return False
    return bool(node.type.rank < memory.type.rank)


def _smallest(node: Node, before: Node) -> Node:
    """The smallest value by which alone others read a value, such as an element of a column, if it is computed before
    another value."""
    while len(node.users) == 1 and node.op == "call_function":
        (reader,) = node.users
        if reader.op != "call_function" or reader.target.kind != "gather" or node.target.kind != "gather":
            break
        if reader.args[0] is not node:
            break
        if not (reader < before and reader.type.rank < node.type.rank):
            break
        node = reader
    return node


def _last_reads(groups: Sequence[Group]) -> dict[Node, int]:
    found: dict[Node, int] = {}
    for step, group in enumerate(groups):
        for node in group.inputs:
            found[node] = step
    return found


def candidates(group: Group, is_body: bool) -> list[tuple[Node, Node]]:
    """(value, operand) for values that a group could store over an operand. In a body these include values
    computed from the same element of an operand; functions have operands and results apart."""
    if group.kind == "control":
        pairs = [(part, _started(part)) for part in group.parts]
        return [(part, operand) for part, operand in pairs if operand is not None]
    root = group.root
    if group.kind == "scatter" and isinstance(root.args[0], Node) and root.args[0] not in group.members:
        return [(root, root.args[0])]  # its other elements stay
    if group.kind != "loops" or group.beside is not None:
        return []
    if root.target.writes_part and isinstance(root.args[0], Node):
        return [(root, root.args[0])] if root.args[0] not in group.members else []
    if not is_body:
        return []
    return [(root, node) for node, reads in group.reads.items() if reads == [group.index]]


def _written_before(group: Group) -> list[Node]:
    """The writes of parts before the last one of a group, if they begin with a result of a loop or condition: in its
    memory, they take less time than a copy of all of it."""
    found: list[Node] = []
    node = group.root
    while group.kind == "loops" and node.op == "call_function" and node.target.writes_part:
        node = node.args[0]
        if not isinstance(node, Node) or node not in group.members:
            break
        found.append(node)
    return found[:1] if isinstance(node, Node) and part_of_control(node) is not None else []


def _started(part: Node) -> Node | None:
    """The initial value of a result of a loop or condition: the value that a loop carries, or the operand
    of a condition that a branch returns after writing parts of it, or none."""
    control = part_of_control(part)
    assert control is not None
    number, bodies = part.kwargs["index"], bodies_of(control)
    if control.target.name != "cond":
        carried = control.arguments["carried"]
        return carried[number]  # type: ignore[no-any-return]
    found = {chain_start(body, number) for body in bodies.values()} - {None}
    operands = control.arguments.get("operands", ())
    if len(found) != 1:
        return None
    (start,) = found
    assert start is not None
    return operands[start]  # type: ignore[no-any-return]


def chain_start(body: SubGraph, number: int) -> int | None:
    """The number of the input that a result of a body is, or from which it is made by writing parts; None
    for other results."""
    node = body.results[number]
    while node.op == "call_function":
        if node.target.writes_part and isinstance(node.args[0], Node):
            node = node.args[0]
            continue
        started = _started(node) if part_of_control(node) is not None else None
        if started is None:
            return None
        node = started
    return body.inputs.index(node) if isinstance(node.type, TensorType) and node.type.rank else None


def _reads_safely(group: Group, value: Node, operand: Node, stored: Mapping[Node, Node]) -> bool:
    """Whether a group may store over an operand while it reads it: it reads no element except the one
    that it stores next, or it stores only one."""
    if group.kind == "control":
        memory = stored.get(operand, operand)
        same = [n for n in group.inputs if stored.get(n, n) is memory]
        control = group.root
        uses = [n for args in control.args if isinstance(args, tuple) for n in args]
        return len(same) == 1 and uses.count(operand) == 1
    memory = stored.get(operand, operand)
    read = [n for n in group.inputs if stored.get(n, n) is memory]
    if read != [operand] and read:
        return False
    if group.kind == "scatter":  # what is scattered, and where to, may not be computed from it
        readers = [m for m in group.members if operand in m.all_input_nodes]
        return readers == [group.root] and group.root.all_input_nodes.count(operand) == 1
    if not group.root.target.writes_part:
        return True
    if group.reads.get(operand) == [group.index]:
        return True  # x[1:] += ...: each element is computed from itself
    others = [m for m in group.members if m is not group.root and operand in m.all_input_nodes]
    if group.root.all_input_nodes.count(operand) > 1:
        return False
    if not others and operand not in list(group.root.all_input_nodes)[1:]:
        return True
    return shapes.equal(part_size(group.root.arguments), 1) or _reads_beside(group, operand)


def _reads_beside(group: Group, operand: Node) -> bool:
    """Whether the values written to a part of an operand are computed from the same elements of it, and from
    elements outside the part, as in ``y[:, i] = y[:, i - 1] + ...``."""
    written: list[tuple[Index, Index] | None] = []  # for each axis the first element, and the one after the last
    positions = iter(group.root.arguments.get("positions", ()))
    for part, size in zip(parts_of_update(group.root.arguments), operand.type.shape, strict=True):
        if isinstance(part, tuple):
            first, _, length, step = part
            written.append((Index.of(first), first + Index.of(length)) if step == 1 else None)
            continue
        place = known_index(next(positions)) if part is None else Index.of(part)
        is_inside = place is not None and Index.of(0) <= place and place < Index.of(size)
        written.append((place, place + 1) if place is not None and is_inside else None)
    name = buffer_name(operand)
    loads = (n for n in expr.walk(lower(group).value) if isinstance(n, Load) and n.buffer == name)
    return all(
        load.index == group.index
        or any(part is not None and (at < part[0] or part[1] <= at) for at, part in zip(load.index, written))
        for load in loads
    )
