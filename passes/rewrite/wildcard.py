"""Equality of arguments (whether two calls of an op have the same attributes, perhaps spelled
differently or for another rank), and wildcards, which stand for keyword-only parameters of a pattern
while it is traced.

In: nodes, or an attribute of a pattern and that of a node. Out: a truth value, and the value that the
wildcard matches. A wildcard may also stand for a number that is an operand (``x * c``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.base.on_demand import is_expression, sympy
from fxlite.graph.graph import Node
from fxlite.graph.node import axes_rank
from fxlite.ops.op import Op, lookup
from fxlite.tracing.proxy import Proxy
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

# -- equal arguments -------------------------------------------------------------------------------
#: Attributes that name axes: compared modulo the rank.
_AXES = ("axis", "axes", "axis1", "axis2")


def same_number(a: Any, b: Any, node: Node | None) -> bool:
    """True for equal numbers. Next to a float tensor ``2`` and ``2.0`` are the same operand."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return type(a) is type(b) and bool(a == b)
    if isinstance(a, complex) or isinstance(b, complex):
        return type(a) is type(b) and repr(a) == repr(b)
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        return type(a) is type(b) and bool(a == b)
    if repr(float(a)) != repr(float(b)):  # 0.0 differs from -0.0, and NaN equals NaN
        return False
    if type(a) is type(b):
        return a == b or a != a
    return node is not None and _is_float(node)


def _is_float(node: Node) -> bool:
    is_float = False
    for used in node.all_input_nodes:
        if isinstance(used.type, TensorType):
            is_float = used.type.dtype.is_inexact
            if not is_float:
                break
    return is_float


@functools.cache
def attribute_names(op: Op) -> tuple[str, ...]:
    """The parameters of an op that are not tensors."""
    return tuple(name for name in op.signature.parameters if name not in op.tensor_kinds)


def same_attributes(a: Node, b: Node, but: Container[str] = ()) -> bool:
    """True if two calls of the same op have equal attributes, except for those in ``but``. Defaults are
    filled in, and axes are compared modulo the rank of whichever node has a type."""
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
    rank = (axes_rank(b) if axes_rank(b) is not None else axes_rank(a)) if name in _AXES else None
    if rank is None:
        return False
    return same_value(_normal_axis(op, x, rank), _normal_axis(op, y, rank))


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
    """True for equal attributes: numbers by type and value, dims by value, tuples item by item."""
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b))
    if is_expression(a) or is_expression(b):
        known = (int, sympy.Expr)
        return isinstance(a, known) and isinstance(b, known) and shapes.equal(a, b)
    if type(a) in (int, float) and type(b) in (int, float):
        return repr(float(a)) == repr(float(b)) and (a == b or a != a)
    if isinstance(a, complex):  # zeros of different sign differ, and NaN equals NaN
        return type(a) is type(b) and repr(a) == repr(b)
    return type(a) is type(b) and bool(a == b)


# -- wildcards -------------------------------------------------------------------------------------
UNBOUND: Any = type("Unbound", (), {"__repr__": lambda self: "UNBOUND"})()


class Wildcard:
    """Stands for an attribute (or a number) while a pattern is traced."""

    type = None  # as an operand it has no type
    is_wildcard = True

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _operator(op: str, reflected: bool) -> Callable[[Wildcard, Any], Any]:
    """The method for ``x * c`` or ``c * x``: a call of an op with a wildcard for a number."""

    def call(self: Wildcard, other: Any) -> Any:
        if not isinstance(other, Proxy):
            raise ArgumentError(
                f"{self.name} stands for any number: a pattern cannot compute with it, a replacement or condition can"
            )
        return lookup(op)(other, self) if reflected else lookup(op)(self, other)

    return call


_OPERATORS = "add sub mul truediv:div floordiv:floor_divide mod:remainder pow lt le gt ge"
for _pair in _OPERATORS.split():
    _method, _, _op = _pair.partition(":")
    setattr(Wildcard, f"__{_method}__", _operator(_op or _method, False))
    setattr(Wildcard, f"__r{_method}__", _operator(_op or _method, True))


#: Stands for any attribute and any number, each time for another one.
LITERAL = Wildcard("any literal")


def holds_wildcard(value: Any) -> bool:
    """True for a wildcard, and for a tuple that contains one."""
    if isinstance(value, tuple):
        return any(holds_wildcard(v) for v in value)
    return isinstance(value, Wildcard)


def bind_template(template: Any, value: Any, slots: list[Any], names: Mapping[str, int]) -> bool:
    """Bind the wildcards in an attribute to the values in their places."""
    if template is LITERAL:
        return True
    if isinstance(template, Wildcard):
        slot = names[template.name]
        if slots[slot] is UNBOUND:
            slots[slot] = value
            return True
        return same_value(slots[slot], value)
    if isinstance(template, tuple):
        if len(template) == 1 and isinstance(template[0], Wildcard) and isinstance(value, tuple):
            return bind_template(template[0], value, slots, names)  # reshape(s): s is the whole shape
        return (
            isinstance(value, tuple)
            and len(template) == len(value)
            and all(bind_template(t, v, slots, names) for t, v in zip(template, value))
        )
    return same_value(template, value)
