"""Horizontal fusion: two reductions of the same elements are one kernel, which reads them once.

A normalization by ``x.min()`` and ``x.max()`` reads a large array from memory for each of them. If both reduce the
same operands and neither needs the other, one group stores both (:attr:`~fxlite.passes.group.Group.beside`), and their
loops become one (:func:`fxlite.codegen.kernel.loops.fused`).
"""

from __future__ import annotations

from collections.abc import Sequence

from fxlite.graph.graph import Node
from fxlite.passes.group import Group


def join_reductions(groups: Sequence[Group]) -> list[Group]:
    """The groups, in which the first of two alike reductions of the same operands stores the second one as well."""
    alike: dict[tuple[object, ...], Group] = {}
    found: list[Group] = []
    for group in groups:
        key = _key(group)
        first = alike.pop(key, None) if key is not None else None
        if first is None:
            if key is not None:
                alike[key] = group
            found.append(group)
            continue
        first.beside = group.root
        first.members = {**first.members, **group.members}
        for node, places in group.reads.items():
            first.reads.setdefault(node, []).extend(p for p in places if p not in first.reads[node])
    return found


def _key(group: Group) -> tuple[object, ...] | None:
    """What two groups must have in common; None if a group is not a reduction of all elements."""
    if group.kind != "loops" or group.beside is not None or group.root.type.rank or group.taken or group.needed:
        return None
    reductions = [node for node in group.members if node.target.kind == "reduction"]
    if len(reductions) != 1:
        return None
    (node,) = reductions
    operand = node.args[0]
    if not isinstance(operand, Node) or not operand.type.rank:
        return None
    target = node.target  # loops of all extremes are alike, and those of all sums
    if not (target.moves_values or target.role == "sum"):
        return None
    return (target.role, node.type.dtype, operand.type.shape, frozenset(group.inputs))
