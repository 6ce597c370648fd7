"""What becomes integers while the program runs: operands of dynamic products, states of
recurrences.

In: a product with a dynamic config, or the range of the states of a recurrence and a weight as
integers. Out: :class:`Rows`, which integers, and what shares a scale, which convert writes as ops
and :func:`rounded_rows` computes in float; attributes of ``int_recurrence``, or its result. States
become integers in each step of the loop, so the runs that compute other products from rounded
floats call the integer op itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.ops.integer.quantized import dynamic_scale, fake_quantize
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.passes.quantize.schemes.parameters import QuantizedWeight
from fxlite.passes.quantize.schemes.roles import carries, clip_bounds, depth, is_reducing, moved
from fxlite.passes.quantize.schemes.scheme import Scheme
from fxlite.passes.rewrite.node_rule import is_call
from fxlite.types import dtypes


# -- operands of dynamic products ------------------------------------------------------------------
@dataclass(frozen=True)
class Rows:
    """Integers of ``dtype`` in ``qmin..qmax`` whose zero is 0; numbers that differ along ``axes``
    alone share a scale."""

    dtype: str
    qmin: int
    qmax: int
    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} per {'token' if len(self.axes) == 1 else 'image'}"


def rows_of(node: Node, scheme: Scheme) -> Rows:
    """The rows of a linear layer's operand, the images of a convolution's. What cannot be negative
    becomes u8 (0..255), half the step of i8, if int32 holds the sums."""
    x = node.arguments["x"]
    is_conv = node.target.name.startswith("conv")
    axes = tuple(range(1, x.type.rank)) if is_conv else (-1,)
    length = depth(node)
    fits = isinstance(length, int) and length <= largest_depth(dtypes.uint8, dtypes.int8)
    if fits and is_never_negative(x):
        return Rows("u8", 0, 255, axes)
    return Rows(scheme.dtype, *scheme.range, axes)


def is_never_negative(value: Node) -> bool:
    """True for the result of a relu and the like, also where it was moved or averaged since."""
    while True:
        bounds = clip_bounds(value)
        never = value.op == "call_function" and value.target.nonnegative
        if never or (bounds and bounds[0] is not None and bounds[0] >= 0):
            return True
        if value.op == "call_module" or is_call(value, "fake_quantize"):  # an observer
            value = value.args[0]
            continue
        sources = moved(value) if carries(value) or is_reducing(value) else []
        if len(sources) != 1 or bounds:
            return False
        value = sources[0]


def rounded_rows(x: Any, node: Node, scheme: Scheme) -> Any:
    """An operand of a dynamic product, as the floats that its integers stand for."""
    if x.size == 0:
        return x
    rows = rows_of(node, scheme)
    scale = dynamic_scale(x, rows.axes, True, rows.qmax)
    return fake_quantize(x, scale, dtype=rows.dtype, qmin=rows.qmin, qmax=rows.qmax)


# -- states of recurrences -------------------------------------------------------------------------
def state_scheme(scheme: Scheme) -> Scheme:
    """How states become integers where activations do by ``scheme``: i8 is symmetric."""
    return scheme if scheme.dtype == "u8" else replace(scheme, symmetric=True)


def state_attributes(scheme: Scheme, scale: Any, zero_point: Any) -> dict[str, Any]:
    """Attributes of ``int_recurrence`` for states of a range."""
    affine = {"state_zero_point": int(zero_point)} if scheme.dtype == "u8" else {}
    return {"state_scale": float(scale), **affine}


def row_scales(scale: Any, rows: int) -> Any:
    """A weight's scale for each of its rows."""
    return np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), (rows,)))


def integer_recurrence(
    args: Sequence[Any], kwargs: Mapping[str, Any], weight: QuantizedWeight,
    state: Mapping[str, Any],
) -> Any:  # fmt: skip
    """The result of a float recurrence with these arguments, computed in integers; ``state`` are
    the attributes that say how (none: dynamically)."""
    arguments = ops.recurrence.bind(args, kwargs)
    scales = row_scales(weight.scale, len(weight.integers))
    arguments |= {"weight_hh": weight.integers, "weight_scale": scales, **state}
    return ops.int_recurrence(**arguments)
