"""Bounds of the integers in an array that follow from their computation. Arrays that are counted or repeated by such
integers have sizes with these bounds.

In: a traced value. Out: a size that is an upper (or lower) bound of all elements, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.graph.graph import Node
from fxlite.ops.op import lookup, normalize_axis
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

#: The number of elements for which a list or an array of computed size has room at first, how many times as many it has
#: room for after a call in which it had more, and the most that it may get.
FIRST_ROOM, MORE_ROOM, MOST_ROOM = 256, 16, 1 << 20

#: Comparisons: 1 if they hold when the first operand is the smaller one, -1 if the second is.
_SMALLER = {"<": 1, "<=": 1, ">": -1, ">=": -1}
#: How many calls above a value are examined.
_DEEPEST = 20
#: How many calls above a number are examined; there are many numbers.
_SHALLOW = 6


def most_of(value: Any) -> Dim | None:
    """A size that is an upper bound of all elements of a traced value; None if none is found."""
    return _most(value.node, _DEEPEST)


def limit_of(node: Node, side: int) -> Dim | None:
    """A size that is an upper (``side`` 1) or lower (0) bound of a number; None if none is found."""
    return _most(node, _SHALLOW) if side else _least(node)


def _most(node: Any, depth: int) -> Dim | None:
    if not isinstance(node, Node):
        return shapes.normalize(node) if type(node) is int or shapes.names(node) else None
    kind = node.type
    if not isinstance(kind, TensorType) or not (kind.dtype.is_bool or kind.dtype.is_integer):
        return None
    found = _of_call(node, depth) if depth and node.op == "call_function" else None
    if found is None and (kind.dtype.is_bool or kind.dtype.itemsize <= 2):
        found = 1 if kind.dtype.is_bool else int(np.iinfo(kind.dtype.numpy).max)
    return found


def _of_call(node: Node, depth: int) -> Dim | None:
    op, bound = node.target, node.bound

    def of(*names: str) -> list[Any]:
        return [_most(bound[name], depth - 1) for name in names]

    for known, rule in _RULES.items():
        if op is lookup(known):
            found = rule(bound, of)
            return None if found is None else shapes.normalize(found)
    return _largest(of(*_moved(node)))


def _moved(node: Node) -> list[str]:
    """The operands whose elements are all that a result consists of; none if it is computed from them."""
    op, bound = node.target, node.bound
    if not op.moves_values or op.kind == "reduction":
        return []
    operands = [name for name in op.tensor_kinds if name not in ("index", "indices")]
    return operands if all(isinstance(bound[name], Node) for name in operands) else []


def _largest(found: list[Any]) -> Dim | None:
    """An upper bound of a value that is bounded by one of these bounds."""
    return None if None in found or not found else shapes.maximum(*found) if len(found) > 1 else found[0]


def _smallest(found: list[Any]) -> Dim | None:
    """An upper bound of a value for which all of these bounds hold."""
    known = [f for f in found if f is not None]
    return None if not known else shapes.minimum(*known) if len(known) > 1 else known[0]


def _less(bound: Any, of: Any) -> Dim | None:
    """The bound of ``x % n``, which is less than n."""
    y = bound["y"]
    if type(y) is int:
        return y - 1 if y > 0 else None
    return _most(y, 1) if isinstance(y, Node) and y.target is lookup("full") else None


def _scaled(bound: Any, of: Any, by: Callable[[Any, int], Any]) -> Dim | None:
    """The bound of an operation with a number, such as ``x * 3`` or ``x // 2``, that is monotonic in x."""
    y, (most,) = bound["y"], of("x")
    return by(most, y) if type(y) is int and y > 0 and most is not None and shapes.at_least(most, 0) else None


def _along(bound: Any, of: Any) -> Dim | None:
    """The largest position along an axis, or in the whole array."""
    shape, axis = bound["x"].type.shape, bound["axis"]
    return (shapes.product(shape) if axis is None else shape[normalize_axis(axis, len(shape))]) - 1


def _added_up(bound: Any, of: Any) -> Dim | None:
    """The bound of a sum over axes, from the number of elements along them."""
    x, (most,) = bound["x"], of("x")
    shape, axis = x.type.shape, bound["axis"]
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    count = shapes.product(shape[normalize_axis(a, len(shape))] for a in axes)
    return None if most is None or not shapes.at_least(most, 0) else count * most


def _is_choice(bound: Any, larger: bool) -> bool:
    """Whether a ``where`` is the ``min(a, b)`` or ``max(a, b)`` of two numbers."""
    test, x, y = bound["condition"], bound["x"], bound["y"]
    symbol = test.target.symbol if isinstance(test, Node) and test.op == "call_function" else None
    order = _SMALLER.get(symbol or "")
    if order is None:
        return False
    one, other = (test.bound["x"], test.bound["y"])[:: -order if larger else order]
    return _is_same(one, x) and _is_same(other, y)


def _is_same(one: Any, other: Any) -> bool:
    """Whether both are the same number: one node, or a size that was recorded twice."""
    if one is other or not isinstance(one, Node) or not isinstance(other, Node):
        return bool(one == other)
    return (
        one.op == other.op == "call_function"
        and one.target is other.target is lookup("full")
        and one.args == other.args
    )


def choices(node: Node, larger: bool) -> list[Any]:
    """The numbers of which a number is the smallest, or the ``larger`` one; none if it is computed otherwise."""
    if node.op != "call_function":
        return []
    op, bound = node.target, node.bound
    if op is lookup("maximum" if larger else "minimum") or (op is lookup("where") and _is_choice(bound, larger)):
        return [bound["x"], bound["y"]]
    return [bound["x"], 0] if larger and op is lookup("relu") else []


_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "cast": lambda bound, of: None if np.issubdtype(bound["dtype"].numpy, np.unsignedinteger) else of("x")[0],
    "clip": lambda bound, of: bound["max"] if type(bound["max"]) is int else _largest([*of("x"), bound["min"]]),
    "relu": lambda bound, of: _largest([*of("x"), 0]),
    "remainder": _less,
    "minimum": lambda bound, of: _smallest(of("x", "y")),
    "maximum": lambda bound, of: _largest(of("x", "y")),
    "where": lambda bound, of: (_smallest if _is_choice(bound, False) else _largest)(of("x", "y")),
    "scatter_set": lambda bound, of: _largest(of("x", "source")),
    "bitwise_and": lambda bound, of: bound["y"] if type(bound["y"]) is int and bound["y"] >= 0 else None,
    "add": lambda bound, of: None if None in of("x", "y") else sum(of("x", "y")),
    "sub": lambda bound, of: of("x")[0] - bound["y"] if type(bound["y"]) is int and None not in of("x") else None,
    "mul": lambda bound, of: _scaled(bound, of, lambda most, y: most * y),
    "floor_divide": lambda bound, of: _scaled(bound, of, lambda most, y: most // y),
    "sum": _added_up,
    "cumsum": _added_up,
    "argmax": _along,
    "argmin": _along,
    "argsort": _along,
    "flatnonzero": lambda bound, of: shapes.product(bound["x"].type.shape) - 1,
    "searchsorted": lambda bound, of: bound["x"].type.shape[-1],
    "arange": lambda bound, of: bound["stop"] - 1 if type(bound["step"]) is int and bound["step"] > 0 else None,
    "full": lambda bound, of: _most(bound["value"], 1),
}


def _least(node: Any, depth: int = _SHALLOW) -> Dim | None:
    """A size that is a lower bound of all elements; None if none is found."""
    if not isinstance(node, Node):
        return shapes.normalize(node) if type(node) is int or shapes.names(node) else None
    kind = node.type
    if not isinstance(kind, TensorType) or not (kind.dtype.is_bool or kind.dtype.is_integer):
        return None
    if kind.dtype.is_bool or kind.dtype.numpy.kind == "u":
        return 0
    if not depth or node.op != "call_function":
        return None
    bound = node.bound

    def of(*names: str) -> list[Any]:
        return [_least(bound[name], depth - 1) for name in names]

    for known, rule in _LEAST.items():
        if node.target is lookup(known):
            found: Dim | None = rule(bound, of)
            return found
    return _lower(of(*_moved(node)))


def _lower(found: list[Any]) -> Dim | None:
    """A lower bound of a value that has one of these lower bounds."""
    return None if None in found or not found else shapes.minimum(*found) if len(found) > 1 else found[0]


def _upper(found: list[Any]) -> Dim | None:
    """A lower bound of a value for which all of these lower bounds hold."""
    known = [f for f in found if f is not None]
    return None if not known else shapes.maximum(*known) if len(known) > 1 else known[0]


def _not_negative(found: list[Any]) -> Dim | None:
    return 0 if found[0] is not None and shapes.at_least(found[0], 0) else None


_LEAST: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda bound, of: 0,
    "clip": lambda bound, of: bound["min"] if type(bound["min"]) is int else None,
    "cast": lambda bound, of: of("x")[0] if bound["x"].type.dtype.itemsize < bound["dtype"].itemsize else None,
    "full": lambda bound, of: of("value")[0],
    "maximum": lambda bound, of: _upper(of("x", "y")),
    "minimum": lambda bound, of: _lower(of("x", "y")),
    "where": lambda bound, of: (_upper if _is_choice(bound, True) else _lower)(of("x", "y")),
    "sum": lambda bound, of: _not_negative(of("x")),
    "argmax": lambda bound, of: 0,
    "argmin": lambda bound, of: 0,
    "argsort": lambda bound, of: 0,
    "flatnonzero": lambda bound, of: 0,
    "searchsorted": lambda bound, of: 0,
}
