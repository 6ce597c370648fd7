"""Sizes that a model computes in floating point, such as ``floor(1.5 * H)``, as formulas of named sizes.

In: a traced value that is computed from named sizes and constants only. Out: an array of sizes and numbers, if the
formula is exact: the model computes that number in float32, as long as sizes and their products, times the denominators
of factors, are below 2**24. Factors are multiples of 1/1024. Other quotients are rounded by float32, so that an integer
must be made of them next.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from fxlite.base.on_demand import is_expression
from fxlite.graph.graph import Node, map_nodes
from fxlite.types import dtypes, shapes

_PARTS = 1024  # a factor is a multiple of one of these parts


class Inexact(Exception):
    """A formula that is not exact, or that sizes do not have."""


class Quotient:
    """``over / under``: sizes or numbers, of which ``under`` is positive. ``is_rounded``: floating point rounds it."""

    def __init__(self, over: Any, under: Any = 1, is_rounded: bool = False) -> None:
        self.over, self.under, self.is_rounded = shapes.normalize(over), shapes.normalize(under), is_rounded

    @property
    def size(self) -> Any:
        """The number, or the size as programs see it. Raises Inexact if it is neither."""
        if self.under != 1 or self.is_rounded:
            if type(self.over) is int and type(self.under) is int and not self.is_rounded:
                return self.over / self.under
            raise Inexact
        return shapes.for_user(self.over)

    def plus(self, other: Quotient) -> Quotient:
        """The sum."""
        _require_exact(self, other)
        over = self.over * other.under + other.over * self.under
        return Quotient(over, self.under * other.under)._reduced()

    def times(self, other: Quotient) -> Quotient:
        """The product."""
        _require_exact(self, other)
        return Quotient(self.over * other.over, self.under * other.under)._reduced()

    def by(self, other: Quotient) -> Quotient:
        """The quotient by a positive number or size."""
        _require_exact(self, other)
        if not shapes.decide(other.over, ">=", 0):
            raise Inexact
        return Quotient(self.over * other.under, self.under * other.over)._reduced()

    def floor(self) -> Quotient:
        """The largest integer that is not larger."""
        return self if self.under == 1 else Quotient(shapes.normalize(_whole(self.over, self.under)))

    def ceil(self) -> Quotient:
        """The smallest integer that is not smaller."""
        return self if self.under == 1 else Quotient(_whole(self.over + self.under - 1, self.under))

    def trunc(self) -> Quotient:
        """The integer towards zero, for numbers that are not negative."""
        if not shapes.decide(self.over, ">=", 0):
            raise Inexact
        return self.floor()

    def _reduced(self) -> Quotient:
        """The quotient as a size or a number, or as one with a power of two below, if it is; else a rounded one."""
        if type(self.over) is int and type(self.under) is int:
            part = Fraction(self.over, self.under)
            return Quotient(part.numerator, part.denominator, _PARTS % part.denominator != 0)
        whole = _whole(self.over, self.under)
        if shapes.normalize(whole * self.under - self.over) == 0:
            return Quotient(whole)
        return Quotient(self.over, self.under, type(self.under) is not int or _PARTS % self.under != 0)


def _require_exact(*values: Quotient) -> None:
    if any(v.is_rounded for v in values):
        raise Inexact


def _whole(over: Any, under: Any) -> Any:
    return shapes.normalize(shapes.for_user(over) // shapes.for_user(under))


def _of_number(value: Any) -> Quotient:
    if isinstance(value, Quotient):
        return value
    if is_expression(value):
        return Quotient(value)
    if isinstance(value, (bool, np.bool_)) or not np.isreal(value) or not np.isfinite(value):
        raise Inexact
    part = Fraction(float(value)) if isinstance(value, (float, np.floating)) else Fraction(int(value))
    if _PARTS % part.denominator:
        raise Inexact
    return Quotient(part.numerator, part.denominator)


def _extreme(choose: Callable[[Any, Any], Any]) -> Callable[[Quotient, Quotient], Quotient]:
    def larger_or_smaller(one: Quotient, other: Quotient) -> Quotient:
        _require_exact(one, other)
        if type(one.under) is not int or type(other.under) is not int:
            raise Inexact
        return Quotient(choose(one.over * other.under, other.over * one.under), one.under * other.under)._reduced()

    return larger_or_smaller


def _minus(one: Quotient, other: Quotient) -> Quotient:
    return one.plus(Quotient(-other.over, other.under, other.is_rounded))


_LARGER, _SMALLER = _extreme(shapes.maximum), _extreme(shapes.minimum)
#: Elementwise ops.
_ELEMENTWISE: dict[str, Callable[..., Quotient]] = {
    "add": Quotient.plus,
    "sub": _minus,
    "mul": Quotient.times,
    "div": Quotient.by,
    "floor": Quotient.floor,
    "ceil": Quotient.ceil,
    "trunc": Quotient.trunc,
    "neg": lambda x: Quotient(-x.over, x.under, x.is_rounded),
    "maximum": _LARGER,
    "minimum": _SMALLER,
}
_REDUCTIONS = {"min": _SMALLER, "max": _LARGER, "sum": Quotient.plus, "prod": Quotient.times}
#: Ops whose references move elements of any kind.
_MOVES = frozenset("stack concat reshape slice select squeeze unsqueeze permute expand take flatten".split())


def sizes_of(value: Any) -> np.ndarray[Any, Any] | None:
    """The array of sizes and numbers for a traced value; None if it is not an exact formula of named sizes."""
    try:
        found = _value(value.tracer, value.node)
        array = np.empty(found.shape, object)
        for place, element in np.ndenumerate(found):
            array[place] = element.size
    except (Inexact, ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
        return None
    is_number = all(type(v) in (int, float) for v in array.flat)
    return array.astype(value.dtype) if is_number else array


def _value(tracer: Any, last: Node) -> np.ndarray[Any, Any]:
    """The array of quotients for a node."""
    values: dict[Node, np.ndarray[Any, Any]] = {}
    work = [last]
    while work:
        node = work[-1]
        missing = [each for each in node.all_input_nodes if each not in values]
        if missing:
            work += missing
            continue
        work.pop()
        values[node] = _computed(tracer, node, values)
    return values[last]


def _computed(tracer: Any, node: Node, values: dict[Node, Any]) -> np.ndarray[Any, Any]:
    """The array for a node, from those of its operands. Raises Inexact for nodes that sizes are not computed with."""
    if node.op == "get_attr":
        path, _, name = node.target.rpartition(".")
        owner = tracer.root.get_submodule(path)
        return _quotients({**owner._parameters, **owner._buffers}[name])
    if node.op != "call_function" or node.is_impure():
        raise Inexact
    args, kwargs = map_nodes((node.args, dict(node.kwargs)), values.__getitem__)
    bound, name = node.target.bind(args, kwargs), node.target.name
    if name == "full":
        return _quotients(np.full(bound["shape"], bound["value"], object))
    if name == "cast":
        kind = dtypes.dtype(bound["dtype"])
        if not kind.is_integer and kind not in (dtypes.float32, dtypes.float64):
            raise Inexact
        return _each(Quotient.trunc, bound["x"]) if kind.is_integer else np.asarray(bound["x"], object)
    if name in _ELEMENTWISE:
        return _each(_ELEMENTWISE[name], *map(_quotients, bound.values()))
    if name in _REDUCTIONS:
        return _reduced(_REDUCTIONS[name], **bound)
    if name in _MOVES:
        return np.asarray(node.target.reference(**bound), object)
    raise Inexact


def _each(function: Callable[..., Quotient], *arrays: Any) -> np.ndarray[Any, Any]:
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


def _reduced(
    function: Callable[..., Quotient], x: np.ndarray[Any, Any], axis: Any = None, keepdims: bool = False
) -> np.ndarray[Any, Any]:
    """The reduction along axes."""
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in np.atleast_1d(axis)]
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    for a in sorted(axes, reverse=True):
        x = np.asarray(np.frompyfunc(function, 2, 1).reduce(x, axis=a), object)
    return x.reshape(kept) if keepdims else x


def _quotients(value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value, object)
    return np.asarray(np.frompyfunc(_of_number, 1, 1)(array), object)
