"""Control flow: a condition with two branches, and loops, whose bodies are sub-graphs.

In: values, and sub-graphs (:class:`fxlite.graph.subgraph.SubGraph`) as attributes. Out: a tuple of
values. A loop *carries* values: its body takes those of the previous iteration and returns those of the
next one, with the same types. All other values that a body reads are *captured*: operands that every
iteration reads. Programs use ``fx.cond``, ``fx.while_loop``, ``fx.fori_loop``, ``fx.scan``, or Python's
own statements; the records in this file represent them in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, GraphError, ShapeError, number_of
from fxlite.base.state import most_iterations
from fxlite.ops.op import Op, Tensor, Tensors, op
from fxlite.ops.parameters import Attribute
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType


def _body_types(body: Any, types: Sequence[Any], what: str) -> tuple[TensorType, ...]:
    """The result types of a body for operands of these types. Raises an error if it expects others."""
    if not hasattr(body, "output_types"):
        raise ArgumentError(f"{what} must be a sub-graph, not {body!r}")
    taken = body.input_types
    if len(taken) != len(types):
        raise ArgumentError(f"{what} takes {number_of(len(taken), 'value')}, but gets {len(types)}")
    for number, (mine, given) in enumerate(zip(taken, types)):
        if mine != given:
            raise ShapeError(f"{what} takes {mine} as its value {number}, but gets {given}")
    return body.output_types  # type: ignore[no-any-return]


def _require_scalar(type: Any, name: str, wanted: dtypes.DType) -> None:
    if not isinstance(type, TensorType) or type.rank or type.dtype is not wanted:
        raise DTypeError(f"{name} must be {wanted.name}[], one number, not {type}")


def _invariant(before: Sequence[Any], after: Sequence[Any]) -> tuple[TensorType, ...]:
    """The types of carried values, which no iteration may change."""
    if not before:
        raise ArgumentError("a loop that carries no values has no results")
    if len(before) != len(after):
        raise GraphError(f"the body gives {number_of(len(after), 'value')} for {len(before)} carried ones")
    for number, (old, new) in enumerate(zip(before, after)):
        if old != new:
            raise ShapeError(f"carried value {number} is {old} before an iteration and {new} after")
    return tuple(before)


def _truth(value: Any) -> bool:
    return bool(np.asarray(value)[()])


def _tidy(record: Op, bodies: Sequence[str], operands: str, numbers: int) -> Callable[..., Any]:
    """The canonical form of a call: only values that some body reads are captured, each once, in the order
    of their first use, and the inputs of bodies have the types of the operands. ``numbers``: how many
    inputs of a body come before the carried values."""

    def canonical(**bound: Any) -> Any:
        carried, captured = bound.get("carried", ()), bound[operands]
        found = [bound[name] for name in bodies]
        start = numbers + len(carried)
        if not all(hasattr(body, "with_captured") for body in found):
            return None
        read = dict.fromkeys(n for body in found for n in body.reading_order(start))
        kept: list[Any] = []
        place: dict[int, int] = {}  # from a captured value that is read to its number among those kept
        for number in read:
            if number < len(captured):  # otherwise the type rule raises an error
                same = (n for n, value in enumerate(kept) if value is captured[number])
                place[number] = next(same, len(kept))
                kept += [captured[number]] if place[number] == len(kept) else []
        new = found
        if [*place.items()] != [(n, n) for n in range(len(captured))]:
            new = [body.with_captured(start, place) for body in found]
        types = [getattr(value, "type", None) for value in (*carried, *kept)]
        if all(isinstance(type, TensorType) for type in types):
            new = [body.fitted((*body.input_types[:numbers], *types)) for body in new]
        if all(one is other for one, other in zip(new, found)):
            return None
        return record, {**bound, operands: tuple(kept), **dict(zip(bodies, new))}

    return canonical


@op("control")
def cond(pred: Tensor, operands: Tensors, true_fn: Attribute, false_fn: Attribute) -> Any:
    """The results of ``true_fn(*operands)`` if ``pred`` is true, else those of ``false_fn(*operands)``. Only
    one of them runs.

    Raises DTypeError unless ``pred`` is a single bool, and ShapeError unless both return values of the
    same types."""
    return (true_fn if _truth(pred) else false_fn)(*operands)


@cond.infer
def _(pred: Any, operands: Any, true_fn: Any, false_fn: Any) -> tuple[TensorType, ...]:
    _require_scalar(pred, "pred", dtypes.bool_)
    chosen = _body_types(true_fn, operands, "true_fn")
    other = _body_types(false_fn, operands, "false_fn")
    if len(chosen) != len(other):
        raise ShapeError(f"true_fn gives {number_of(len(chosen), 'value')}, false_fn {len(other)}")
    for number, (one, two) in enumerate(zip(chosen, other)):
        if one != two:
            raise ShapeError(f"result {number} is {one} of true_fn and {two} of false_fn")
    return chosen


@op("control")
def while_loop(carried: Tensors, captured: Tensors, cond_fn: Attribute, body_fn: Attribute) -> Any:
    """The final carried values of a loop: while ``cond_fn(*carried, *captured)`` is true, they become
    ``body_fn(*carried, *captured)``.

    Raises DTypeError unless ``cond_fn`` returns a single bool, and ShapeError if an iteration changes the
    type of a carried value."""
    values, left = tuple(carried), most_iterations.get()
    while left != 0 and _truth(cond_fn(*values, *captured)[0]):
        values = body_fn(*values, *captured)
        left = None if left is None else left - 1
    return values


@while_loop.infer
def _(carried: Any, captured: Any, cond_fn: Any, body_fn: Any) -> tuple[TensorType, ...]:
    condition = _body_types(cond_fn, (*carried, *captured), "cond_fn")
    if len(condition) != 1:
        raise GraphError(f"cond_fn gives {number_of(len(condition), 'value')}, not one")
    _require_scalar(condition[0], "what cond_fn gives", dtypes.bool_)
    return _invariant(carried, _body_types(body_fn, (*carried, *captured), "body_fn"))


#: The type of a loop variable.
INDEX = TensorType((), dtypes.int64)


@op("control")
def fori_loop(lower: Tensor, upper: Tensor, carried: Tensors, captured: Tensors, body_fn: Attribute) -> Any:
    """The final carried values of a loop ``for i in range(lower, upper)``, in which they become
    ``body_fn(i, *carried, *captured)``; ``i`` is an i64.

    Raises DTypeError unless the bounds are integers, and ShapeError if an iteration changes the type of a
    carried value."""
    values, most = tuple(carried), most_iterations.get()
    first, end = int(np.asarray(lower)[()]), int(np.asarray(upper)[()])
    for i in range(first, end if most is None else min(end, first + most)):
        values = body_fn(np.int64(i), *values, *captured)
    return values


@fori_loop.infer
def _(lower: Any, upper: Any, carried: Any, captured: Any, body_fn: Any) -> tuple[TensorType, ...]:
    for name, bound in (("lower", lower), ("upper", upper)):
        if type(bound) is not int and (not isinstance(bound, TensorType) or bound.rank or not bound.dtype.is_integer):
            raise DTypeError(f"{name} must be one integer, not {bound}")
    types = (INDEX, *carried, *captured)
    return _invariant(carried, _body_types(body_fn, types, "body_fn"))


#: For each op: its bodies, in the order in which they run; the parameter with the values that they capture;
#: and the number of inputs of a body before the carried values.
BODIES = {
    cond: (("true_fn", "false_fn"), "operands", 0),
    while_loop: (("cond_fn", "body_fn"), "captured", 0),
    fori_loop: (("body_fn",), "captured", 1),
}
for _record, _parts in BODIES.items():
    _record.canonical(_tidy(_record, *_parts))
