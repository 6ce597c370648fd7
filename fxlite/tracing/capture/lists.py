"""Lists some of whose elements exist only under conditions that are not known while tracing:
``[v for v in x if v > 0]``, and ``found.append(v)`` in a branch.

In: the conditions and values of these elements. Out: a Python list with a :class:`Maybe` for each of them. Python's
``len``, ``sum``, ``math.prod``, ``any``, ``all``, ``min`` and ``max`` of such a list are computed. For NumPy, for
loops, and as a result of the program it is an array of the selected elements
(:mod:`fxlite.tracing.selections.masked`). Any other read of an element that may not exist raises an error.
"""

from __future__ import annotations

import builtins
import dataclasses
import math
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.ops.op import lookup
from fxlite.tracing.capture.answers import stacked
from fxlite.tracing.capture.places import HOW_TO_TAKE, Maybe, OrNone
from fxlite.tracing.capture.regions import is_leaf
from fxlite.tracing.capture.texts import OneText, holds_one_text
from fxlite.tracing.selections import growing
from fxlite.types import dtypes

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: Stands for an element that a comprehension leaves out.
DROPPED: Any = object()


def is_open(value: Any) -> bool:
    """Whether a value is a list some of whose elements may not exist."""
    return type(value) is list and any(type(part) is Maybe for part in value)


def refuse(tracer: Tracer, what: str) -> Any:
    """Raise the error for an unsupported operation on such a list."""
    raise tracer.error(f"{what} a list whose elements exist only under conditions not known while tracing", HOW_TO_TAKE)


# -- as an array -----------------------------------------------------------------------------------
def _parts(values: list[Any]) -> tuple[list[Any], list[Any]]:
    return (
        [part.truth if type(part) is Maybe else True for part in values],
        [part.value if type(part) is Maybe else part for part in values],
    )


def _dtypes(tracer: Tracer, value: Any) -> set[dtypes.DType]:
    if isinstance(value, (tuple, list)):
        return set[dtypes.DType]().union(*(_dtypes(tracer, part) for part in value))
    return {stacked(tracer, value).type.dtype} if is_leaf(value) else set()


def as_array(tracer: Tracer, values: list[Any]) -> Any:
    """The existing elements as an array."""
    truths, parts = _parts(values)
    if len(set[Any]().union(*(_dtypes(tracer, part) for part in parts))) != 1:
        refuse(tracer, "values that are not numbers, or have different types, are in")
    return stacked(tracer, parts)[lookup("cast")(stacked(tracer, truths), bool)]


def closed(value: Any, tracer: Tracer) -> Any:
    """A nested result with arrays in place of such lists, and numbers in place of texts that are one of several. These
    become texts again where the result of a call is what the program returns, as in fx.jit."""
    if isinstance(value, OneText) and tracer.is_finished:
        return value.code
    if isinstance(value, OrNone):
        if not tracer.is_finished:
            raise tracer.error(
                "the program returns a value or None, and which of them is not known while tracing",
                "return a number in place of None, or call the function through fx.jit",
            )
        return value.is_there, closed(value.value, tracer)
    if is_open(value):
        return as_array(tracer, value)
    rows = growing.rows_of(value)
    if rows is not None:
        return growing.result_of(rows)
    if not isinstance(value, OneText) and not dataclasses.is_dataclass(value):
        return pytree.with_parts(value, lambda part: closed(part, tracer))
    if holds_one_text(value):
        raise tracer.error(
            "the program returns a text that is one of several, and which one is not known while tracing",
            "return a number in its place, or, if it is in no dataclass, call the function through fx.jit",
        )
    return value


def listed(values: list[Any]) -> Callable[[Any], list[Any]]:
    """A function that converts an array to the list that the program returns."""
    _, parts = _parts(values)
    leaves = [leaf for part in parts for _, leaf in pytree.leaves(part)]
    plain = all(hasattr(v, "python_type") or isinstance(v, (int, float, complex)) for v in leaves)
    if isinstance(parts[0], tuple):
        return lambda array: [tuple(row) for row in (array.tolist() if plain else array)]
    return lambda array: array.tolist() if plain else list(array)


# -- Python's functions ----------------------------------------------------------------------------
def length(tracer: Tracer, values: list[Any]) -> Any:
    """``len(found)``"""
    truths, _ = _parts(values)
    sure = sum(truth is True for truth in truths)
    number = sum((lookup("cast")(t, "i64") for t in truths if t is not True), sure)
    return tracer.python_number(number)


def _total(symbol: str, empty: int) -> Callable[..., Any]:
    def call(flow: Any, tracer: Tracer, values: list[Any], start: Any = empty) -> Any:
        total = start
        for truth, value in zip(*_parts(values)):
            total = flow.choose(truth, lambda v=value, t=total: flow.operated(symbol, t, v), lambda t=total: t)
        return total

    return call


def _any(flow: Any, tracer: Tracer, values: list[Any]) -> Any:
    return flow.or_(False, *(lambda t=t, v=v: flow.and_(t, lambda: flow.truth(v)) for t, v in zip(*_parts(values))))


def _all(flow: Any, tracer: Tracer, values: list[Any]) -> Any:
    return flow.and_(
        True, *(lambda t=t, v=v: flow.or_(flow.not_(t), lambda: flow.truth(v)) for t, v in zip(*_parts(values)))
    )


def _is_beyond(tracer: Tracer, relation: str, one: Any, other: Any) -> Any:
    """``one > other`` or ``one < other``, for numbers or, in lexicographic order, for tuples of numbers."""
    if is_leaf(one) and is_leaf(other):
        return lookup(relation)(one, other)
    if not (isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other)):
        refuse(tracer, "max() or min() compares values that are neither numbers nor tuples of equal length, in")
    found: Any = False
    for a, b in zip(one[::-1], other[::-1]):
        equal = lookup("logical_and")(_equal(tracer, a, b), found)
        found = lookup("logical_or")(_is_beyond(tracer, relation, a, b), equal)
    return found


def _equal(tracer: Tracer, one: Any, other: Any) -> Any:
    if is_leaf(one) and is_leaf(other):
        return lookup("eq")(one, other)
    return reduce(lookup("logical_and"), (_equal(tracer, a, b) for a, b in zip(one, other)), True)


def _extreme(relation: str) -> Callable[..., Any]:
    def call(flow: Any, tracer: Tracer, values: list[Any], key: Any = None, **options: Any) -> Any:
        truths, parts = _parts(values)
        keys = parts if key is None else [flow.call(key, part) for part in parts]
        found, first, best = truths[0], keys[0], parts[0]
        for truth, own, value in zip(truths[1:], keys[1:], parts[1:]):
            better = lookup("logical_or")(flow.not_(found), _is_beyond(tracer, relation, own, first))
            one, other = (own, value), (first, best)
            better = lookup("logical_and")(truth, better)
            first, best = flow.choose(better, lambda one=one: one, lambda other=other: other)
            found = lookup("logical_or")(found, truth)
        if "default" in options:
            return flow.choose(found, lambda: best, lambda: options["default"])
        what = f"{'max' if relation == 'gt' else 'min'}() arg is an empty sequence"
        none = flow.not_(found)
        return pytree.plain(best, lambda v: tracer.unless(v, none, ValueError(what)) if is_traced(v) else v)

    return call


def _same(flow: Any, tracer: Tracer, values: list[Any]) -> Any:
    return list(values)


#: ``f(flow, tracer, list, ...)`` by the function that a program calls with such a list.
OF_OPEN: dict[Any, Callable[..., Any]] = {
    builtins.len: lambda flow, tracer, values: length(tracer, values),
    builtins.sum: _total("Add", 0),
    math.prod: _total("Mult", 1),
    builtins.any: _any,
    builtins.all: _all,
    builtins.max: _extreme("gt"),
    builtins.min: _extreme("lt"),
    builtins.list: _same,
}
