"""CUDA C text of a product with a single row, C[1, n] = sum over k of A[1, k] * B[k, n], and its
epilogue: what a model computes that answers one question at a time.

In: the specs of the tiled products, :class:`CudaGemmSpec` and :class:`CudaInt8Spec`, with one row.
Out: a :class:`RenderedKernel`. Such a product reads each number of B once and is as fast as memory
is, and a tile of 64 rows would compute 63 for nothing. Here a warp computes a column: its lanes
read neighbours along k, add their shares in registers (of integers by ``__dp4a``, a quad in each
turn), and the 32 sums are added by shuffles.
"""

from __future__ import annotations

import re

from fxlite.codegen.cuda.gemm import (
    CudaGemmSpec,
    ProductSpec,
    RenderedKernel,
    atom,
    batch_blocks,
    indented,
    kernel_text,
    over_batch,
    tiles,
)
from fxlite.codegen.cuda.gemm_int8 import (
    QUAD,
    CudaInt8Spec,
    Int8Operand,
    byte_of,
    corrected,
    quad_of,
)

COLUMNS = 8  # per block, one for each warp
LANES = 32


def is_single_row(spec: ProductSpec) -> bool:
    """True for a product of one row whose columns lie along k in memory."""
    if spec.m != "1":
        return False
    if isinstance(spec, CudaInt8Spec):
        return spec.b.along_k and not spec.row_parts and not spec.k_parts
    return isinstance(spec, CudaGemmSpec) and spec.b.row_stride == "1"


def render_int8_gemv(spec: CudaInt8Spec) -> RenderedKernel:
    """The kernel for integers, exact.

    Raises:
        ValueError: a name of the spec is one that the kernel uses itself.
    """
    needed = [name for name, other in (("a", spec.b), ("b", spec.a)) if other.offset]
    sums = ["sums", *(f"{name}_sums" for name in needed)]
    k = atom(spec.k)
    words = [
        *(["const int64_t k = k_begin;"] if spec.a.in_quads or spec.b.in_quads else []),
        *_word("a_part", spec.a, k),
        *_word("b_part", spec.b, k),
        "sums = __dp4a(a_part, b_part, sums);",
        *(f"{name}_sums = __dp4a({name}_part, 0x01010101, {name}_sums);" for name in needed),
    ]
    product = [
        f"int {', '.join(f'{name} = 0' for name in sums)};",
        f"for (int64_t k_begin = {QUAD} * lane; k_begin < {k}; k_begin += {QUAD * LANES}) {{",
        *indented("\n".join(words), 1),
        "}",
        *(f"{name} = (int)fx_warp_sum((uint32_t){name});" for name in sums),
    ]
    return _in_warps(spec, product, "int32_t", corrected(spec, "sums", "a_sums", "b_sums"))


def render_gemv(spec: CudaGemmSpec) -> RenderedKernel:
    """The kernel for floats; a lane adds the terms of its share over ascending k.

    Raises:
        ValueError: a name of the spec is one that the kernel uses itself.
    """
    a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
    b = spec.prologue_b("k", "col") if spec.prologue_b else spec.b.at("k", "col")
    product = [
        f"{spec.ctype} sums = 0;",
        *(
            spec.share_b
            or (
                f"for (int64_t k = lane; k < {atom(spec.k)}; k += {LANES})",
                f"    sums += {a} * ({b});",
            )
        ),
    ]
    return _in_warps(spec, product, spec.ctype, "fx_warp_sum(sums)")


def _word(name: str, operand: Int8Operand, k: str) -> list[str]:
    """Lines that define the four signed bytes from ``k_begin`` on, 0 beyond k."""
    if operand.in_quads:
        return [f"const int {name} = {quad_of(operand)};"]
    return [
        f"int {name} = 0;",
        "#pragma unroll",
        f"for (int i = 0; i < {QUAD}; ++i) {{",
        "    const int64_t k = k_begin + i;",
        f"    if (k < {k}) {name} |= (int)(({byte_of(operand)} & 255u) << 8 * i);",
        "}",
    ]


def _in_warps(spec: ProductSpec, product: list[str], ctype: str, total: str) -> RenderedKernel:
    """A kernel of one warp for each column: the ``product`` for each of the batch, and what its
    first lane does with the ``total``."""
    finished = spec.epilogue("sum", "row", "col")
    body = [
        f"const int lane = threadIdx.x % {LANES};",
        *(
            ["const int64_t row = 0;"]
            if re.search(r"\brow\b", "".join([*product, finished]))
            else []
        ),
        f"const int64_t col = (int64_t)blockIdx.x * {COLUMNS} + threadIdx.x / {LANES};",
        f"if (col >= {atom(spec.n)}) return;  // the whole warp",
        *over_batch(
            spec,
            [
                *product,
                f"const {ctype} sum = {total};",
                "if (lane == 0) {",
                *indented(finished, 1),
                "}",
            ],
        ),
    ]
    grid = (tiles(spec.n, COLUMNS), "1", batch_blocks(spec))
    threads = COLUMNS * LANES
    text = kernel_text(spec, threads, body, "One warp for each column.")
    return RenderedKernel(text, grid, (threads, 1, 1), 0)
