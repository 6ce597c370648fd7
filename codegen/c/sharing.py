"""Groups of one form, which one C function computes: the steps of an unrolled loop, equal layers.

In: the groups of a program. Out: for each group that another group's function serves, that group,
and how far behind the other's its operands start. Two groups have one form if their members
are the same calls on the same types, wired in the same way. Which values are read may differ, and
also where a ``select`` or ``slice`` cuts an operand that nothing else in the group reads: the
function then gets a pointer further on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.types import shapes
from fxlite.types.shapes import Dim


@dataclass(frozen=True)
class Form:
    """``key`` is equal for groups of one form; ``operands`` are the values a group reads, and
    ``positions`` where along an axis each is cut (0 where that is part of the key)."""

    key: tuple[Any, ...]
    operands: tuple[Node, ...]
    positions: tuple[int, ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class Shared:
    """The number of the group whose function serves, and for each value that it reads the one to
    give in its place, with the number of elements to leave out at its start."""

    number: int
    operands: Mapping[Node, tuple[Node, Dim]]


def shared_functions(groups: Sequence[Group]) -> dict[int, Shared]:
    """By their numbers, the groups that need no function of their own. The one that gives the
    function of a form is that whose operands are cut first; groups with an operand cut before that
    have their own."""
    by_key: dict[tuple[Any, ...], list[tuple[int, Form]]] = {}
    for number, group in enumerate(groups):
        form = form_of(group)
        by_key.setdefault(form.key, []).append((number, form))
    found: dict[int, Shared] = {}
    for same in by_key.values():
        first, form = min(same, key=lambda pair: pair[1].positions)
        for number, other in same:
            steps = [b - a for a, b in zip(form.positions, other.positions)]
            if number == first or min(steps, default=0) < 0:
                continue
            starts = [shapes.normalize(n * stride) for n, stride in zip(steps, form.strides)]
            given = zip(form.operands, zip(other.operands, starts))
            found[number] = Shared(first, dict(given))
    return found


def form_of(group: Group) -> Form:
    """What a group computes, without the names of its values."""
    number: dict[Node, int] = {member: n for n, member in enumerate(group.members)}
    readers: dict[Node, int] = {}
    for member in group.members:
        for node in dict.fromkeys(member.all_input_nodes):
            readers[node] = readers.get(node, 0) + 1
    operands: dict[Node, int] = {}
    cuts: dict[Node, tuple[int, Dim]] = {}
    parts: list[Any] = []

    def place(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(place, value))
        if not isinstance(value, Node):
            return repr(value)
        if value in number:
            return number[value]
        return "operand", operands.setdefault(value, len(operands))

    for member in group.members:
        attributes = dict(member.kwargs)
        source = member.args[0] if member.args else None
        if isinstance(source, Node) and source not in number and readers[source] == 1:
            cut = _cut(member, source)
            if cut is not None:
                cuts[source] = cut
                attributes = {"axis": attributes["axis"], "step": attributes.get("step")}
        parts.append((member.target.name, member.type, place(member.args), repr(attributes)))
    anchor = None if group.anchor is None else number[group.anchor]
    beside = None if group.beside is None else repr(group.beside.kwargs)
    if group.kind == "control":
        beside = group.root.name  # no other has its text
    key = (number[group.root], anchor, beside, bool(group.taken), *parts, *map(_operand_key, operands))
    taken = [cuts.get(node, (0, 0)) for node in operands]
    return Form(key, tuple(operands), tuple(p for p, _ in taken), tuple(s for _, s in taken))


def _cut(member: Node, source: Node) -> tuple[int, Dim] | None:
    """Position and stride of a select or slice at known numbers; None for other calls."""
    first = member.target.starts_at
    if first is None:
        return None
    attributes = member.kwargs
    axis = attributes["axis"]
    position, stop = attributes.get(first, 0), attributes.get("stop")
    size = source.type.shape[axis]
    known = type(size) is int and type(position) is int and (stop is None or type(stop) is int)
    if not known or position < 0 or (stop is not None and stop < 0):
        return None
    inner = source.type.shape[axis % source.type.rank + 1 :]
    return position, shapes.product(inner)


def _operand_key(node: Node) -> tuple[Any, ...]:
    """What of an operand shows in the text of a function: its type, whether it is a weight, which
    may be packed, and a constant of rank 0, which is written as a number."""
    if node.op != "get_attr":
        return node.type, False
    owner = node.graph.owning_module
    if node.type.rank or owner is None:
        return node.type, True
    return node.type, True, repr(owner.get_attribute(node.target).item())
