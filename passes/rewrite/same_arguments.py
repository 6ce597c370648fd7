"""When two calls of an op have the same attributes: spelled differently or on another rank.

In: nodes. Out: a truth value; used by pattern matching.
"""

from __future__ import annotations

import functools
from collections.abc import Container
from typing import Any

import sympy

from fxlite.graph.graph import Node
from fxlite.ops.op import Op
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

#: Attributes that name axes: compared modulo the rank.
_AXES = ("axis", "axes", "axis1", "axis2")


def same_number(a: Any, b: Any, node: Node | None) -> bool:
    """Equal numbers. Beside a float tensor ``2`` and ``2.0`` are the same operand."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return type(a) is type(b) and bool(a == b)
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        return type(a) is type(b) and bool(a == b)
    if repr(float(a)) != repr(float(b)):  # tells 0.0 from -0.0; NaN is NaN
        return False
    if type(a) is type(b):
        return a == b or a != a
    return node is not None and _is_float(node)


def _is_float(node: Node) -> bool:
    types = [n.type for n in node.all_input_nodes if isinstance(n.type, TensorType)]
    return bool(types) and all(t.dtype.is_float for t in types)


@functools.cache
def attribute_names(op: Op) -> tuple[str, ...]:
    """The parameters of an op that are no tensors."""
    return tuple(name for name in op.signature.parameters if name not in op.tensor_kinds)


def same_attributes(a: Node, b: Node, but: Container[str] = ()) -> bool:
    """True if two calls of the same op have equal attributes, those in ``but`` left aside; defaults
    are filled in, axes are compared modulo the rank of whichever node has a type."""
    mine, theirs = a.kwargs, b.kwargs
    if not mine and not theirs:
        return True
    return all(name in but or same_attribute(a, b, name) for name in attribute_names(a.target))


def same_attribute(a: Node, b: Node, name: str) -> bool:
    """True if two calls of the same op agree in one attribute."""
    op = a.target
    x, y = (n.kwargs.get(name, op.defaults.get(name)) for n in (a, b))
    if same_value(x, y):
        return True
    rank = (_rank(b) if _rank(b) is not None else _rank(a)) if name in _AXES else None
    if rank is None:
        return False
    return same_value(_normal_axis(op, x, rank), _normal_axis(op, y, rank))


def _rank(node: Node) -> int | None:
    """The rank the node's axes count in; None if unknown."""
    inputs = node.all_input_nodes
    if not inputs or not isinstance(inputs[0].type, TensorType):
        return None
    added: int = node.target.added_axes
    return inputs[0].type.rank + max(added, 0)


def _normal_axis(op: Any, axis: Any, rank: int) -> Any:
    if axis is None and op.kind == "reduction" and not op.name.startswith("arg"):
        return tuple(range(rank))
    if type(axis) is int and rank:
        axis = axis % rank
        return (axis,) if op.kind == "reduction" else axis
    if isinstance(axis, tuple) and rank and all(type(a) is int for a in axis):
        axes = tuple(a % rank for a in axis)
        return tuple(sorted(axes)) if op.kind == "reduction" else axes
    return axis


def same_value(a: Any, b: Any) -> bool:
    """Equal attributes: numbers by type and value, dims by value, tuples item by item."""
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b))
    if isinstance(a, sympy.Expr) or isinstance(b, sympy.Expr):
        known = (int, sympy.Expr)
        return isinstance(a, known) and isinstance(b, known) and shapes.equal(a, b)
    if type(a) in (int, float) and type(b) in (int, float):
        return repr(float(a)) == repr(float(b)) and (a == b or a != a)
    return type(a) is type(b) and bool(a == b)
