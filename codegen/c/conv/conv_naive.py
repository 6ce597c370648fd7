"""Plain loops of a convolution, to check the fast version against: the same parameters, packed
weights and epilogue, one thread.

In: a `ConvSpec`. Out: a `Rendered` with the parameters of the fast one.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxlite.codegen.c.conv.conv_plan import ConvSpec, input_planes, reads_pairs, weight_index, winograd_tile
from fxlite.codegen.c.conv.conv_walk import conv_function
from fxlite.codegen.c.conv.winograd_matrices import Tile, input_matrix, output_matrix
from fxlite.codegen.c.text.template_text import Rendered
from fxlite.codegen.kernel.builder import Body, Pointer, bare
from fxlite.scalar.index import Index


def render_conv_naive(spec: ConvSpec, extra: Sequence[str]) -> Rendered:
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
