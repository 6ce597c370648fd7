"""The whole function of a matrix product: the comment that says how it is computed, what stands
before it, its head and its body.

In: the function under construction (`gemm._Gemm`) and the lines of its body. Out: a `Rendered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fxlite.codegen.c.product.gemm_fused import fused_tile
from fxlite.codegen.c.product.gemm_long import long_reason
from fxlite.codegen.c.product.gemm_spec import PackedOperand, Rendered, WidenedOperand
from fxlite.codegen.c.product.spelled import TextSpec
from fxlite.codegen.c.text.template_text import block_comment, divide_up, expression, signature

if TYPE_CHECKING:
    from fxlite.codegen.c.product.gemm import _Gemm


def gemm_function(
    g: _Gemm, body: Sequence[str], workspace: str, extra: tuple[str, ...]
) -> Rendered:
    """The function with this body, which takes the parameters ``extra`` beyond the caller's."""
    spec = g.spec
    tiles = f"m = {spec.m}, n = {spec.n}, k = {spec.k}; tiles of {g.tile_rows} x {g.width}."
    head = [
        *block_comment(spec.comment, tiles, _how(g), _precision(spec)),
        *(fused_tile(g) if g.fused else ()),
        *signature(spec.name, spec.parameters, extra),
    ]
    return Rendered("\n".join([*head, "{", *body, "}"]) + "\n", expression(workspace), extra)


def _how(g: _Gemm) -> str:
    """How the operands are read and the sums finished, a sentence each."""
    spec, said = g.spec, []
    if isinstance(spec.b, PackedOperand):
        said.append(f"The weight is packed, in panels of {g.width} columns.")
    elif isinstance(spec.b, WidenedOperand):
        cut = f", {divide_up(spec.k, g.blocks)} steps of K at a time" * (g.blocks > 1)
        said.append(f"Threads widen the weight to floats, once for a block of rows{cut}.")
    elif g.packs_b:
        said.append(f"Threads pack the right operand, a panel of {g.width} columns at a time.")
    else:
        said.append("The right operand is read in place, once or twice.")
    if spec.prologue_a is None and g.copies_a and not spec.bf16:
        near = "Rows of the left operand are copied first: their elements are not adjacent."
        far = "Left rows are copied first: 4 KiB or a multiple apart they share a cache set."
        if "left rows" in spec.measured:
            far = "Left rows are copied first."
        said.append(far if spec.a.col_stride == "1" else near)
    if g.long:
        said.append(long_reason(g.long))
    if g.fused:
        said.append("K is short: the epilogue runs in the registers of a tile.")
    return "\n".join(said)


def _precision(spec: TextSpec) -> str:
    """What operands are rounded to; nothing if to nothing."""
    if spec.split:
        return "Operands are split in two bf16; three of their four products are summed."
    if spec.a_is_bf16:
        return "The left operand is bf16, the weight rounded to it; sums are float."
    return "Operands are rounded to bf16, sums are float." if spec.bf16 else ""
