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
- "implicit product" and "depthwise last": of images whose channels are last; see
  `conv_panels.py` and `conv_depthwise.py`.

For "channels" and "pixels" a padded image is first copied into the workspace with its zeros.
Where `conv_plan.reads_pairs` says so, operands are rounded to bf16: "product" by `tiles/bf16.h`,
"channels" and "implicit product" by `tiles/conv_bf16.h`, "winograd" by `tiles/winograd.h`. Where
the processor has AMX, `conv_amx.py` takes the place of all of these but "product".
One-dimensional convolutions come with a height of 1.
"""

from __future__ import annotations

from fxlite.codegen.c.conv import conv_naive
from fxlite.codegen.c.conv.conv_depthwise import Depthwise, DepthwiseLast
from fxlite.codegen.c.conv.conv_finish import Axis, fetch, finish_joined
from fxlite.codegen.c.conv.conv_panels import Taps
from fxlite.codegen.c.conv.conv_pixels import Pixels
from fxlite.codegen.c.conv.conv_plan import ConvSpec, pack_conv_weight, plan_of, product_pitch, winograd_tile
from fxlite.codegen.c.conv.conv_walk import empty_result
from fxlite.codegen.c.conv.conv_winograd import Winograd
from fxlite.codegen.c.product.gemm import GemmSpec, Operand, render_product
from fxlite.codegen.c.product.gemm_walk import Place, Product
from fxlite.codegen.c.product.packed_operands import panel_columns
from fxlite.codegen.c.text.template_text import Rendered
from fxlite.codegen.kernel.builder import smaller, symbol
from fxlite.scalar.index import Index

__all__ = ["ConvSpec", "pack_conv_weight", "plan_of", "render_conv", "render_conv_naive"]


def render_conv(spec: ConvSpec) -> Rendered:
    """Print the function of one convolution. Its output must not be negative in size."""
    if (empty := empty_result(spec)) is not None:
        return empty
    plan = plan_of(spec)
    if plan == "product":
        return _render_product(spec)
    m = winograd_tile(spec)
    if m:
        return Winograd(spec, m).render()
    if plan == "pixels":
        return Pixels(spec).render()
    if plan == "depthwise":
        return Depthwise(spec).render()
    return DepthwiseLast(spec).render() if plan == "depthwise last" else Taps(spec).render()


def render_conv_naive(spec: ConvSpec) -> Rendered:
    """Print the plain loops: the same parameters, packed weights and epilogue; one thread."""
    return conv_naive.render_conv_naive(spec, render_conv(spec).extra_parameters)


def _render_product(spec: ConvSpec) -> Rendered:
    """A 1x1 convolution as the product weight [K, C] @ x [C, H * W], per image and group."""
    pitch, pixels, width = product_pitch(spec), spec.h * spec.w, panel_columns(spec.ctype)
    n, group = symbol("n"), symbol("group") if spec.groups > 1 else Index.of(0)
    first_row, first_channel = group * spec.group_outputs, group * spec.group_inputs
    batch = ("n", spec.n), ("group", Index.of(spec.groups))
    note = f"1x1, {spec.c} -> {spec.k} channels: weight [k, c] @ x [c, h * w]."
    product = GemmSpec(
        name=spec.name,
        ctype=spec.ctype,
        parameters=spec.parameters,
        batch=batch[: 2 if spec.groups > 1 else 1],
        m=Index.of(spec.group_outputs),
        n=pixels,
        k=Index.of(spec.group_inputs),
        a=Operand(spec.weight, first_row * pitch, Index.of(pitch), Index.of(1)),
        b=Operand(spec.x, (n * spec.c + first_channel) * pixels, pixels, Index.of(1)),
        epilogue=lambda total, row, column: "",
        comment=f"{spec.comment}\n{note}".lstrip(),
        bf16="a" if spec.bf16 else "",
    )

    def finish(printed: Product, at: Place) -> None:
        """The epilogue over a tile of `rows` output channels and `columns` pixels."""
        body = printed.body
        channel = Axis("k", first_row + at.row_0, at.rows, "i")
        pixel = Axis("ow", at.column_0, at.columns, "j")
        finish_joined(body, spec, at.sum, channel, pixel, n)
        behind = pixels - at.column_0 - width
        if spec.fetched and not behind <= 0:
            body.comment("For the next panel.")
            ahead = body.let("ahead", smaller(behind, width))
            corner = n, first_row + at.row_0, Index.of(0), at.column_0 + width
            fetch(body, spec, spec.output_size(), corner, at.rows, ahead)

    return render_product(product, finish)
