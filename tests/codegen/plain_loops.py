"""The plain loops of products and convolutions, with which the fast templates are compared.

In: a `GemmSpec` or `ConvSpec`. Out: a `Rendered` with the parameters, packed weights and epilogue of the
fast one; it takes no workspace and one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxlite.codegen.c.conv.conv import render_conv
from fxlite.codegen.c.conv.conv_plan import (
    POINTS,
    ConvSpec,
    Tile,
    input_planes,
    number,
    outputs_per_tile,
    plan_of,
    product_pitch,
    reads_pairs,
    reads_runs,
    winograd_tile,
)
from fxlite.codegen.c.conv.conv_walk import conv_function
from fxlite.codegen.c.product.gemm import render_gemm, tile_of
from fxlite.codegen.c.product.gemm_spec import GemmSpec, Operand, PackedOperand, panel_columns
from fxlite.codegen.c.product.gemm_walk import Product
from fxlite.codegen.kernel.builder import Body, Pointer, Rendered, bare, rendered
from fxlite.codegen.kernel.text import atom
from fxlite.scalar.index import Index


# -- products --------------------------------------------------------------------------------------
def render_gemm_naive(spec: GemmSpec) -> Rendered:
    """Print the three-loop twin: the same parameters and epilogue, no workspace, one thread."""
    return _Naive(spec, render_gemm(spec).extra_parameters).render()


class _Naive(Product):
    """The three loops and the epilogue."""

    def __init__(self, spec: GemmSpec, extra: tuple[str, ...]) -> None:
        super().__init__(spec, tile_of(spec))
        self.spec, self.extra = spec, extra

    def render(self) -> Rendered:
        """They take no workspace and one thread."""
        spec, body = self.spec, self.body
        for name in self.extra:
            body.put(f"(void){name};")
        loops = [*spec.batch, ("row", spec.m), ("column", spec.n)]
        with body.shared(loops, "") as (*batch, row, column):
            self.name_batch(batch)
            body.put(f"{spec.ctype} sum = 0;")
            with body.loop("k", spec.k) as k:
                body.put(f"sum += {self.term(row, column, k)};")
            body.put(spec.epilogue("sum", row, column))
        said = spec.comment, "The plain loops, to check the fast version against."
        return rendered(spec.name, spec.parameters, said, body.lines(), extra=self.extra)

    def term(self, row: Index, column: Index, k: Index) -> str:
        """One product, in C."""
        spec, low = self.spec, ""
        step = k // 2 if spec.bf16 else k
        a = (spec.row_start(row) + k * spec.a.col_stride)[0] if spec.row_start else spec.a.at(row, k)
        if spec.bf16 == "a":
            a = spec.a.at(row, step)
        if isinstance(spec.b, Operand):
            b = spec.b.at(k, column)
        else:
            assert isinstance(spec.b, PackedOperand)  # what is widened has no naive twin
            part, width = self.depth * self.width, self.width
            start = Pointer(atom(spec.b.pointer)) + column // width * (part * self.kind.parts)
            start = start + step * width + column % width
            b, low = start[0], start[part]
        if spec.a_is_bf16:
            a = f"fx_f32_from_bf16({a})"
        if spec.bf16:
            pair, other = (a, b) if spec.bf16 == "a" else (b, a)
            half = f"half_of_pair({pair}, {bare(k % 2)})"
            if spec.split:
                a, b = other, f"({half} + half_of_pair({low}, {bare(k % 2)}))"
            else:
                a, b = f"rounded_bf16({other})", half
        return f"{atom(a)} * {b}"


# -- convolutions ----------------------------------------------------------------------------------
def render_conv_naive(spec: ConvSpec) -> Rendered:
    """Print the plain loops: the same parameters, packed weights and epilogue; one thread."""
    return _plain_loops(spec, render_conv(spec).extra_parameters)


def _plain_loops(spec: ConvSpec, extra: Sequence[str]) -> Rendered:
    """Print the plain loops; ``extra`` are the extra parameters of the fast version."""
    body, (out_h, out_w) = Body(), spec.output_size()
    for name in extra:
        body.put(f"(void){name};")
    loops = ("n", spec.n), ("k", spec.k), ("oh", out_h), ("ow", out_w)
    with body.shared(loops, "") as (n, k, oh, ow):
        m = winograd_tile(spec)
        if m:
            _put_winograd_sum(body, spec, m, n, k, oh, ow)
        else:
            _put_sum(body, spec, n, k, oh, ow)
        body.put(spec.epilogue("sum", n=n, k=k, oh=oh, ow=ow))
    return conv_function(spec, "The plain loops, to check the fast version against.", body)


def _pixel(spec: ConvSpec, n: Index, c: Index, i: Index, j: Index) -> str:
    """An element of the image."""
    place = ((n * spec.c + c) * spec.h + i) * spec.w + j
    if spec.x_last:
        place = ((n * spec.h + i) * spec.w + j) * spec.c + c
    return Pointer(spec.x)[place]


def _if_inside(spec: ConvSpec, i: Index, j: Index) -> str:
    """The head of a statement for pixels that are inside of the image."""
    ranges = zip((i, j), (spec.h, spec.w), strict=True)
    conditions = (f"{bare(x)} >= 0 && {bare(x)} < {bare(size)}" for x, size in ranges)
    return f"if ({' && '.join(conditions)})"


def _put_sum(body: Body, spec: ConvSpec, n: Index, k: Index, oh: Index, ow: Index) -> None:
    """Declare the sum of one output element."""
    inputs, pairs = spec.group_inputs, reads_pairs(spec)
    (down, across), (below, right), (top, left) = spec.stride, spec.dilation, spec.padding[:2]
    body.put(f"{spec.ctype} sum = 0;")
    with body.loop("c", inputs) as c, body.loop("r", spec.r) as r, body.loop("s", spec.s) as s:
        i = body.let("i", oh * down + r * below - top)
        j = body.let("j", ow * across + s * right - left)
        depth = ((c // 2 if pairs else c) * spec.r + r) * spec.s + s
        x = _pixel(spec, n, k // spec.group_outputs * inputs + c, i, j)
        weight = Pointer(spec.weight)[weight_index(spec, k, depth)]
        if pairs:
            x, weight = f"rounded_bf16({x})", f"half_of_pair({weight}, {bare(c % 2)})"
        with body.block(_if_inside(spec, i, j)):
            body.put(f"sum += {x} * {weight};")


def _put_winograd_sum(body: Body, spec: ConvSpec, m: Tile, n: Index, k: Index, oh: Index, ow: Index) -> None:
    """Declare the sum of one output element by plain loops: from the packed points of the weights,
    with the matrices of the transforms."""
    side = m + 2
    for name, matrix in (("b", input_matrix(m)), ("a", output_matrix(m))):
        rows = ", ".join("{" + ", ".join(map(repr, row)) + "}" for row in matrix.tolist())
        body.put(f"static const double {name}[{len(matrix)}][{side}] = {{{rows}}};")
    body.put("double sum = 0;")
    with body.loop("c", spec.c) as c, body.loop("point", side * side) as point:
        row, column = bare(point // side), bare(point % side)
        body.put("double value = 0;")
        with body.loop("r", side) as r, body.loop("s", side) as s:
            i = body.let("i", oh // m * m + r - spec.padding[0])
            j = body.let("j", ow // m * m + s - spec.padding[1])
            with body.block(_if_inside(spec, i, j)):
                factors = f"b[{row}][{bare(r)}] * b[{column}][{bare(s)}]"
                body.put(f"value += {factors} * {_pixel(spec, n, c, i, j)};")
        factors = f"a[{bare(oh % m)}][{row}] * a[{bare(ow % m)}][{column}]"
        pairs = reads_pairs(spec)
        depth = point * input_planes(spec) + (c // 2 if pairs else c)
        value, weight = "value", Pointer(spec.weight)[weight_index(spec, k, depth)]
        if pairs:
            value, weight = "rounded_bf16((float)value)", f"half_of_pair({weight}, {bare(c % 2)})"
        body.put(f"sum += {factors} * {value} * {weight};")


def weight_index(spec: ConvSpec, k: Index, depth: Index) -> Index:
    """Where the packed weight of output channel k and ``depth`` = (c * R + r) * S + s is; for
    Winograd's, that of channels c and k at a point, where ``depth`` = point * C + c. For bf16, c
    and C count pairs."""
    inputs = input_planes(spec)
    size = inputs * spec.r * spec.s
    plan = plan_of(spec)
    if spec.computed:
        return k * size + depth
    if plan == "product":
        return k * product_pitch(spec) + depth
    if plan == "depthwise":
        return k * size + depth
    if plan == "depthwise last":
        return depth * spec.k + k
    group, output = k // spec.group_outputs, k % spec.group_outputs
    if plan == "pixels":
        step = outputs_per_tile(spec)
        whole = -(-number(spec.group_outputs) // step) * step
        return (group * whole + output) * size + depth
    width = panel_columns(spec.ctype)
    if m := winograd_tile(spec):
        size = (m + 2) ** 2 * inputs
    if reads_runs(spec):
        taps = spec.r * spec.s
        depth = depth % taps * inputs + depth // taps
    whole = -(-number(spec.group_outputs) // width) * width
    panel = group * (whole // width) + output // width
    return (panel * size + depth) * width + output % width


def input_matrix(m: Tile) -> np.ndarray[Any, Any]:
    """B^T, [m+2, m+2]."""
    points = POINTS[m]
    rows = [np.poly([p for p in points if p != t])[::-1] for t in points]
    rows = [np.append(-row if m == 2 and t == 0 else row, 0) for row, t in zip(rows, points)]
    return np.array([*rows, np.poly(points)[::-1]])


def output_matrix(m: Tile) -> np.ndarray[Any, Any]:
    """A^T, [m, m+2]."""
    columns = [[t**power for power in range(m)] for t in POINTS[m]]
    return np.array([*columns, [0] * (m - 1) + [1]], float).T
