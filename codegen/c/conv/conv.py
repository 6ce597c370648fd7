"""C text of one two-dimensional convolution, with its epilogue; no im2col. Of an NCHW image:

    y[n, k, oh, ow] = sum over c, r, s of weight[k, c, r, s] * x[n, c,
        oh * stride + r * dilation - padding, ow * stride + s * dilation - padding]

In goes a `ConvSpec`; out comes a `Rendered` as from `gemm.py`: one ``static`` C function for that
node. Weights are packed once, when the model is compiled, by `pack_conv_weight`. There are these
plans, chosen by `plan_of`:

- "product": 1x1, stride 1, no padding is a matrix product, weight [K, C] times pixels [C, H*W];
- "winograd": 3x3 of stride 1 between 8 channels or more, by fewer products; see `tiles/winograd.h`;
  images with channels first or last;
- "channels": a tile is up to TILE_ROWS pixels of one output row times 32 output channels. Pixels
  are broadcast, so strides and dilations cost nothing and no image width wastes lanes; the tile is
  turned round before the epilogue, which runs along output rows;
- "pixels": a tile is up to 4 output channels times 4 rows of a vector of pixels; for few output
  channels per group, and for few products per output, as in the first layer of a network;
- "depthwise": a small kernel for each channel by itself; a tile is up to 8 rows of a vector of
  pixels, read in place; see `tiles/depthwise.h`;
- "implicit product" and "depthwise last": of images whose channels are last; see `conv_nhwc.py`.

For "channels" and "pixels" a padded image is first copied into the workspace with its zeros.
Where `conv_plan.reads_pairs` says so, operands are rounded to bf16: "product" by `tiles/bf16.h`,
"channels" and "implicit product" by `tiles/conv_bf16.h`, "winograd" by `tiles/winograd.h`. Where
the processor has AMX, `conv_amx.py` takes the place of all of these but "product".
One-dimensional convolutions come with a height of 1.
"""

from __future__ import annotations

from fxlite.codegen.c.conv.conv_channels import Channels
from fxlite.codegen.c.conv.conv_depthwise import Depthwise
from fxlite.codegen.c.conv.conv_direct import conv_function, put_fetch, put_first, put_rows
from fxlite.codegen.c.conv.conv_nhwc import DepthwiseLast, ImplicitProduct
from fxlite.codegen.c.conv.conv_pixels import Pixels
from fxlite.codegen.c.conv.conv_plan import (
    ConvSpec,
    pack_conv_weight,
    plan_of,
    product_pitch,
    reads_pairs,
    weight_index,
    winograd_tile,
)
from fxlite.codegen.c.conv.conv_winograd import put_winograd_sum, render_winograd
from fxlite.codegen.c.product.gemm import GemmSpec, Operand, Rendered, render_product
from fxlite.codegen.c.product.packed_operands import panel_columns
from fxlite.codegen.c.text.template_text import Lines, add, atom, expression, mentions, multiply
from fxlite.codegen.kernel.builder import symbol
from fxlite.scalar.index import Index

__all__ = [
    "ConvSpec",
    "pack_conv_weight",
    "plan_of",
    "render_conv",
    "render_conv_naive",
]


def render_conv(spec: ConvSpec) -> Rendered:
    """Print the function of one convolution. Its output must not be negative in size."""
    if "0" in (spec.n, *spec.output_size()) or spec.k == 0:
        body = ["    /* Nothing to compute. */"]
        return conv_function(spec, "An empty result.", body, "0", ())
    plan = plan_of(spec)
    if plan == "product":
        return _render_product(spec)
    m = winograd_tile(spec)
    if m:
        return render_winograd(spec, m)
    if plan == "depthwise":
        return Depthwise(spec).render()
    if plan == "depthwise last":
        return DepthwiseLast(spec).render()
    if plan == "implicit product":
        return ImplicitProduct(spec).render()
    return Channels(spec).render() if plan == "channels" else Pixels(spec).render()


def _render_product(spec: ConvSpec) -> Rendered:
    """A 1x1 convolution as the product weight [K, C] @ x [C, H * W], per image and group."""
    grouped = spec.groups > 1
    pitch = product_pitch(spec)
    pixels = multiply(spec.h, spec.w)
    group_channel = multiply("group", str(spec.group_inputs)) if grouped else "0"
    group_row = multiply("group", str(spec.group_outputs)) if grouped else "0"
    product = GemmSpec(
        name=spec.name,
        ctype=spec.ctype,
        parameters=spec.parameters,
        batch=(
            ("n", expression(spec.n)),
            *((("group", Index.of(spec.groups)),) if grouped else ()),
        ),
        m=Index.of(spec.group_outputs),
        n=expression(pixels),
        k=Index.of(spec.group_inputs),
        a=Operand(spec.weight, expression(group_row) * pitch, Index.of(pitch), Index.of(1)),
        b=Operand(
            spec.x,
            (symbol("n") * spec.c + expression(group_channel)) * expression(pixels),
            expression(pixels),
            Index.of(1),
        ),
        epilogue=lambda total, row, column: "",
        comment="\n".join(
            text
            for text in (
                spec.comment,
                f"1x1, {spec.c} -> {spec.k} channels: weight [k, c] @ x [c, h * w].",
            )
            if text
        ),
        bf16="a" if spec.bf16 else "",
    )

    def finish(out: Lines, element: str) -> None:
        """The epilogue over a tile of `rows` output channels and `columns` pixels."""
        put_first(out, spec, "column_0")
        with out.block("for (int64_t i = 0; i < rows; i++)"):
            if mentions(spec.epilogue(element, "n", "k", "oh", "ow"), "k"):
                out.put(f"const int64_t k = {add(group_row, 'row_0', 'i')};")
            put_rows(out, spec, element, "j", "column_0", "columns")
        if spec.fetched:
            width = panel_columns(spec.ctype)
            rest = f"{atom(pixels)} - column_0 - {width}"
            out.put("/* For the next panel. */")
            out.put(f"const int64_t ahead = {rest} < {width} ? {rest} : {width};")
            channel = add(group_row, "row_0")
            put_fetch(out, spec, channel, "0", f"column_0 + {width}", "rows", "ahead")

    return render_product(product, finish)


def render_conv_naive(spec: ConvSpec) -> Rendered:
    """Print the plain loops: the same parameters, packed weights and epilogue; one thread."""
    extra = render_conv(spec).extra_parameters
    out = Lines()
    for name in extra:
        out.put(f"(void){name};")
    out_h, out_w = spec.output_size()
    out.put(f"const int64_t h = {spec.h}, w = {spec.w};")
    with out.loops([("n", spec.n), ("k", str(spec.k)), ("oh", out_h), ("ow", out_w)]):
        m = winograd_tile(spec)
        if m:
            put_winograd_sum(out, spec, m, weight_index(spec))
        else:
            _put_naive_sum(out, spec)
        out.put(spec.epilogue("sum", "n", "k", "oh", "ow"))
    note = "The plain loops, to check the fast version against."
    return conv_function(spec, note, out.lines, "0", extra)


def _put_naive_sum(out: Lines, spec: ConvSpec) -> None:
    """Declare the sum of one output element."""
    inputs = spec.group_inputs
    out.put(f"{spec.ctype} sum = 0;")
    out.put(f"const int64_t group = k / {spec.group_outputs};")
    with out.loops([("c", str(inputs)), ("r", str(spec.r)), ("s", str(spec.s))]):
        for name, position, tap, axis in (("i", "oh", "r", 0), ("j", "ow", "s", 1)):
            place = f"{position} * {spec.stride[axis]} + {tap} * {spec.dilation[axis]}"
            out.put(f"const int64_t {name} = {place} - {spec.padding[axis]};")
        c = "c / 2" if reads_pairs(spec) else "c"
        out.put(f"const int64_t depth = ({c} * {spec.r} + r) * {spec.s} + s;")
        out.put(f"const int64_t at = {weight_index(spec)};")
        out.put("if (i >= 0 && i < h && j >= 0 && j < w)")
        index = f"((n * {spec.c} + group * {inputs} + c) * h + i) * w + j"
        if spec.x_last:
            index = f"((n * h + i) * w + j) * {spec.c} + group * {inputs} + c"
        x, weight = f"{atom(spec.x)}[{index}]", f"{atom(spec.weight)}[at]"
        if reads_pairs(spec):
            x, weight = f"rounded_bf16({x})", f"half_of_pair({weight}, c % 2)"
        out.put(f"    sum += {x} * {weight};")
