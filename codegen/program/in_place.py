"""Which values are written over others: a part of an array that nothing reads any more is written
where it is, and a loop works in the memory of what it starts with.

In: the groups of a program in order, and which of its inputs may be overwritten. Out: for each
value the node whose memory it takes; the groups note which operand that was. A value is taken over
only if no group behind reads it, or what shares its memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from fxlite.graph.graph import Node
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.indexing import part_size
from fxlite.passes.group import Group, part_of_control
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


def taken_over(
    groups: Sequence[Group],
    stored: dict[Node, Node],
    results: Sequence[Node],
    writable: Collection[Node],
    kept: bool,
    owned: Mapping[Node, Node] = MappingProxyType({}),
) -> set[Node]:
    """Enter into ``stored`` which values take the memory of others. ``kept``: results have memory
    of the program, as in a body; else they have their own, and what leads to one lies there.
    ``owned``: what inputs hold in the end, which lies where they are if it can.
    Returns small values that would have to be kept for others to be taken over: elements and rows
    that a group behind computes, and what is written into a part of an array that it is made of."""
    early: set[Node] = set()
    first = {m: step for step, g in enumerate(groups) for m in g.members}
    holders: dict[Node, set[Node]] = {}  # values by the memory that they lie in
    for value, source in stored.items():
        holders.setdefault(source, set()).add(value)
    last = _last_reads(groups)
    outside = {*results, *owned.values()}
    ends = {end: node for node, end in owned.items()}
    ends = {end: node for end, node in ends.items() if end not in results and [*owned.values()].count(end) == 1}

    def is_free(memory: Node, step: int) -> bool:
        if memory.op != "call_function" and memory not in writable:
            return False
        return all(not (value in outside or last.get(value, -1) > step) for value in {memory, *holders.get(memory, ())})

    for step, group in enumerate(groups):
        for value, operand in [*candidates(group, kept), *_ending(group, ends)]:
            memory = stored.get(operand, operand)
            if value in stored or value.type != memory.type or not (value.type.rank or value in ends):
                continue
            if value in ends and memory is not ends[value]:
                continue  # it is computed where it can be, and copied
            if memory in group.taken.values():
                continue
            if not _reads_safely(group, value, operand, stored):
                if value.target.writes_part and value.args[1] in group.members:
                    early.add(value.args[1])  # as much as is written
                continue
            if not is_free(memory, step):
                shared = {memory, *holders.get(memory, ())}
                if not shared & outside and (memory.op == "call_function" or memory in writable):
                    late = {u for n in shared for u in n.users if first.get(u, -1) > step}
                    if late and all(_is_small(u, memory, group.root) for u in late):
                        early |= late
                continue
            if value in outside and value not in ends and not kept:
                if memory in writable:
                    continue
                for other in (memory, *holders.pop(memory, ())):  # it lies in the result
                    stored[other] = value
                    holders.setdefault(value, set()).add(other)
                last[value] = max(last.get(value, -1), len(groups))
            else:
                stored[value] = memory
                holders.setdefault(memory, set()).add(value)
            if operand in group.reads or group.kind == "control":
                group.taken[value] = operand  # else all of it is stored anew, whatever was there
    return early


def _ending(group: Group, ends: Mapping[Node, Node]) -> list[tuple[Node, Node]]:
    """(value, input) for what an owned input holds in the end, where the group computes it anew: of
    the same element of the input, or of none."""
    root = group.root
    if group.kind == "control" or group.beside is not None or root not in ends:
        return []
    reads = group.reads.get(ends[root])
    if reads is None or (group.kind == "loops" and reads == [group.index] and not root.target.writes_part):
        return [(root, ends[root])]
    return []


def _is_small(node: Node, memory: Node, before: Node) -> bool:
    """Whether a value is cheap to keep beside another, and computed before a third."""
    if not isinstance(node.type, TensorType) or node.target.kind == "control" or not node < before:
        return False
    return bool(node.type.rank < memory.type.rank)


def _last_reads(groups: Sequence[Group]) -> dict[Node, int]:
    found: dict[Node, int] = {}
    for step, group in enumerate(groups):
        for node in group.inputs:
            found[node] = step
    return found


def candidates(group: Group, is_body: bool) -> list[tuple[Node, Node]]:
    """(value, operand) for what a group could store over an operand. In a body also what is
    computed of the same element of an operand; functions have operands and results apart."""
    if group.kind == "control":
        pairs = [(part, _started(part)) for part in group.parts]
        return [(part, operand) for part, operand in pairs if operand is not None]
    if group.kind != "loops" or group.beside is not None:
        return []
    root = group.root
    if root.target.writes_part and isinstance(root.args[0], Node):
        return [(root, root.args[0])] if root.args[0] not in group.members else []
    if not is_body:
        return []
    return [(root, node) for node, reads in group.reads.items() if reads == [group.index]]


def _started(part: Node) -> Node | None:
    """What a result of a loop or condition is, before it runs: what a loop carries, or the operand
    of a condition that becomes it in a branch, written to in part or not at all."""
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
    """The input that a result of a body is, or is made of by writing parts of it; None for
    others."""
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
    """Whether a group may store over an operand while it reads: it reads no other element of it
    than the one that it stores next, or stores one only."""
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
    if not group.root.target.writes_part:
        return True
    others = [m for m in group.members if m is not group.root and operand in m.all_input_nodes]
    if group.root.all_input_nodes.count(operand) > 1:
        return False
    if not others and operand not in list(group.root.all_input_nodes)[1:]:
        return True
    return shapes.equal(part_size(group.root.arguments), 1)
