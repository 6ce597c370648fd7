"""Traces NumPy's ways to write in place: ``y[i] = v``, ``y += v``, ``out=y``, ``np.copyto``, ``y.fill(v)``.

In: a traced destination, an index, and the value to write. Out: :func:`fxlite.tracing.writes.aliasing.write` with a
value in the dtype of the destination, so that all views of the memory change with it. The rules for casting and shapes
are those of NumPy; a write that NumPy rejects raises TraceError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import Op, broadcast_shapes
from fxlite.tracing.writes.aliasing import write
from fxlite.tracing.writes.scatter import chosen, prepared, set_item
from fxlite.tracing.writes.shared_memory import is_number, leave_in_doubt, view_of
from fxlite.types import dtypes, shapes

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy


def is_operand(value: Any) -> bool:
    """Whether an operator of a proxy accepts a value as its other operand."""
    kinds = (np.ndarray, np.generic, *dtypes.NUMBERS, shapes.NamedDim, list, tuple)
    return is_traced(value) or isinstance(value, kinds)


def is_no_number(value: Any) -> bool:
    """Whether NumPy compares a value as an object: it is not an operand, and has no comparison of its own."""
    kind: Any = type(value)
    is_plain = kind.__module__ == "builtins" or (kind.__eq__ is object.__eq__ and kind.__ne__ is object.__ne__)
    return is_plain and not is_operand(value)


# -- operators and out= ----------------------------------------------------------------------------
def in_place_operator(proxy: Proxy, op: Op, other: Any) -> Any:
    """``y += other``: writes into the memory of y, unless y is a NumPy number, which is immutable."""
    if not is_operand(other):
        return NotImplemented
    result, symbol = op(proxy, other), op.symbol
    number = is_number(proxy)
    if number is None:  # it is not known whether other values see the write
        memory = view_of(proxy).memory
        assert memory is not None
        if memory.refusal:
            write(proxy, result.node, what=f"'{symbol}='")  # raises
        leave_in_doubt(proxy.tracer, memory.family, f"'{symbol}=' changes it if it is an array, not if it is a number")
        proxy.tracer.writes.count += 1
    if number is not False:
        return result
    store(proxy, result, f"'{symbol}='", "same_kind", f"write y = y {symbol} ...")
    return proxy


def store(out: Any, result: Any, what: str, casting: str = "same_kind", instead: str = "", where: Any = True) -> Any:
    """Write ``result`` into ``out`` as NumPy's ``out=`` does, only ``where`` that is true; returns ``out``."""
    if not is_traced(out):
        tracer = result.tracer
        raise tracer.error(
            f"{what} writes into an array that exists before the program runs",
            "make the destination in the program: np.zeros_like(x), or fx.ops.zeros(shape, dtype)",
        )
    tracer = out.tracer
    if not out.is_typed:
        if where is not True:
            raise tracer.error(f"{what} with where= needs types", "give the input types")
        write(out, tracer.create_arg(result), what=what)
        return out
    destination = out.type
    if is_traced(result) and result.is_typed:
        shape = result.type.shape
        if not shapes.shapes_equal(broadcast_shapes(destination.shape, shape), destination.shape):
            raise tracer.error(
                f"{what} has a result of type {result.type}, which does not fit {out._node.name}: {destination}",
                instead,
                out._node,
            )
    value = prepared(tracer, destination, result, what, casting, instead)
    if where is not True:
        write(out, lambda node: chosen(tracer, where, value, node), what=what)
    else:
        write(out, value, what=what)
    return out


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """np.copyto."""
    found = next(v for v in (dst, src, where) if is_traced(v))
    if not is_traced(dst):
        store(dst, found, "np.copyto")
    store(dst, src, "np.copyto", casting, "cast the values first: .astype", where)


def fill(y: Proxy, value: Any) -> None:
    """``y.fill(value)``."""
    set_item(y, Ellipsis, value)
