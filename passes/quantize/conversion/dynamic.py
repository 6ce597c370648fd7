"""How the operand of a dynamic product is rounded: which integers, and what shares a scale.

In: a product with a dynamic config. Out: :class:`Rows`, which convert writes as ops and
:func:`rounded_rows` computes in float.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fxlite.graph.graph import Node
from fxlite.ops.integer.dynamic_range import dynamic_scale
from fxlite.ops.integer.fake_quantization import fake_quantize
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.passes.quantize.schemes.roles import (
    carries,
    clip_bounds,
    depth,
    is_reducing,
    moved,
)
from fxlite.passes.quantize.schemes.scheme import Scheme
from fxlite.passes.rewrite.node_rule import is_call
from fxlite.types import dtypes


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
