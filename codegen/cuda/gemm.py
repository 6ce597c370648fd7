"""CUDA C text of one matrix product: C[m, n] = sum over k of A[m, k] * B[k, n], with its epilogue.

In: a :class:`CudaGemmSpec`, with sizes and addresses as C expressions and a callback that prints
what happens to a finished element. Out: a :class:`RenderedKernel`: one kernel that needs only
``prelude.cuh``, and the launch it wants. :func:`render_gemm` tiles through shared memory,
:func:`render_gemm_naive` is its twin with one thread per element and no shared memory.

A block of 256 threads computes 64 x 64 elements, each thread 4 x 4 of them in registers. A and B
pass through shared memory in slices of 16 along k, read in the order in which their elements are
adjacent in memory. Sums run over ascending k, so a result does not depend on the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.cuda.gemm_text import (
    MICRO,
    PITCH,
    THREADS,
    TILE,
    ProductSpec,
    RenderedKernel,
    atom,
    batch_blocks,
    block_position,
    finish,
    in_tiles,
    kernel_text,
    over_batch,
    times,
)

SLICE = 16  # elements along k per turn


@dataclass(frozen=True)
class Operand:
    """A strided matrix: element (row, column) is
    ``pointer[offset + row * row_stride + column * col_stride]``.

    All are C expressions; `offset` may use the batch variables.
    """

    pointer: str
    offset: str
    row_stride: str
    col_stride: str

    def at(self, row: str, column: str) -> str:
        """C expression of the element."""
        terms = [self.offset, times(row, self.row_stride), times(column, self.col_stride)]
        index = " + ".join(term for term in terms if term != "0") or "0"
        return f"{atom(self.pointer)}[{index}]"


@dataclass(frozen=True, kw_only=True)
class CudaGemmSpec(ProductSpec):
    """One product.

    Args:
        ctype: ``"float"`` or ``"double"``, in which the products are summed.
        a, b: A is [m, k], B is [k, n].
        prologue_a: (row, k) -> C expression of A's element in place of a load of `a`, whose
            strides still say in which direction neighbours are adjacent.
        prologue_b: (k, column) -> the same for B.
        fill_b: lines that fill ``b_tile`` from ``k_begin`` on, where several of B's elements are
            loaded at once; 0 beyond the matrix.
        share_b: lines that add a lane's share of one column to ``sums``, for a single row.
    """

    ctype: str
    a: Operand
    b: Operand
    prologue_a: Callable[[str, str], str] | None = None
    prologue_b: Callable[[str, str], str] | None = None
    fill_b: tuple[str, ...] = ()
    share_b: tuple[str, ...] = ()


BLOCK = 24 * SLICE
"""Products that a thread adds in a row, and then to the sum of such blocks before them."""

_TOTALS = f"T totals[{MICRO}][{MICRO}] = {{}};"

_ADD_BLOCK = f"""\
    if (k_begin % {BLOCK} == {BLOCK - SLICE}) {{  // a block of the sums
#pragma unroll
        for (int i = 0; i < {MICRO}; ++i) {{
#pragma unroll
            for (int j = 0; j < {MICRO}; ++j) {{
                totals[i][j] += sums[i][j];
                sums[i][j] = 0;
            }}
        }}
    }}
"""


def render_gemm(spec: CudaGemmSpec) -> RenderedKernel:
    """The tiled kernel.

    Raises:
        ValueError: `ctype` is not a float type.
    """
    _check(spec)
    t = spec.ctype
    m, n, k = atom(spec.m), atom(spec.n), atom(spec.k)
    a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
    b = spec.prologue_b("k", "col") if spec.prologue_b else spec.b.at("k", "col")
    fill_b = _load("b_tile", "col", n, k, b, along_k=spec.b.col_stride != "1")
    is_long = not k.isdecimal() or int(k) > BLOCK
    total = [f"const {t} sum = totals[i][j] + sums[i][j];"] if is_long else []
    product = [
        f"{t} sums[{MICRO}][{MICRO}] = {{}};",
        *(_TOTALS.replace("T ", f"{t} ").splitlines() if is_long else ()),
        f"for (int64_t k_begin = 0; k_begin < {k}; k_begin += {SLICE}) {{",
        *_load("a_tile", "row", m, k, a, along_k=spec.a.row_stride != "1"),
        *(spec.fill_b or fill_b),
        "    __syncthreads();",
        "#pragma unroll",
        f"    for (int tile_k = 0; tile_k < {SLICE}; ++tile_k) {{",
        f"        {t} a_part[{MICRO}], b_part[{MICRO}];",
        "#pragma unroll",
        f"        for (int i = 0; i < {MICRO}; ++i) {{",
        "            a_part[i] = a_tile[tile_k][thread_row + i];",
        "            b_part[i] = b_tile[tile_k][thread_col + i];",
        "        }",
        "#pragma unroll",
        f"        for (int i = 0; i < {MICRO}; ++i)",
        "#pragma unroll",
        f"            for (int j = 0; j < {MICRO}; ++j) sums[i][j] += a_part[i] * b_part[j];",
        "    }",
        "    __syncthreads();  // the tiles are overwritten next",
        *(_ADD_BLOCK.replace("T ", f"{t} ").splitlines() if is_long else ()),
        "}",
        *finish(spec, total, "sum" if is_long else "sums[i][j]"),
    ]
    shared = [
        f"__shared__ __align__(16) {t} a_tile[{SLICE}][{PITCH}];  // [k][row]",
        f"__shared__ __align__(16) {t} b_tile[{SLICE}][{PITCH}];  // [k][column]",
    ]
    return in_tiles(spec, shared, product)


def render_gemm_naive(spec: CudaGemmSpec) -> RenderedKernel:
    """The same product with one thread per element: slow, and plain to see that it is right.

    Raises:
        ValueError: as :func:`render_gemm`.
    """
    _check(spec)
    a = spec.prologue_a("row", "k") if spec.prologue_a else spec.a.at("row", "k")
    b = spec.prologue_b("k", "col") if spec.prologue_b else spec.b.at("k", "col")
    position = block_position(spec, 16)
    body = [
        f"const int64_t row = {position.row} * 16 + threadIdx.y;",
        f"const int64_t col = {position.column} * 16 + threadIdx.x;",
        f"if (row >= {atom(spec.m)} || col >= {atom(spec.n)}) return;",
        *over_batch(
            spec,
            [
                f"{spec.ctype} sum = 0;",
                f"for (int64_t k = 0; k < {atom(spec.k)}; ++k)",
                f"    sum += {a} * {b};",
                *spec.epilogue("sum", "row", "col").splitlines(),
            ],
        ),
    ]
    grid = (*position.grid, batch_blocks(spec))
    text = kernel_text(spec, 256, body, "One thread for each element.")
    return RenderedKernel(text, grid, (16, 16, 1), 0)


def _check(spec: CudaGemmSpec) -> None:
    if spec.ctype not in ("float", "double"):
        raise ValueError(f"{spec.name}: ctype {spec.ctype!r} is neither 'float' nor 'double'")


def _load(tile: str, line: str, extent: str, k: str, element: str, along_k: bool) -> list[str]:
    """Fill a tile, 0 beyond the matrix; neighbouring threads load along k, or across it."""
    if along_k:
        position = [f"const int i = e / {SLICE}, j = e % {SLICE};  // neighbours along k"]
    else:
        position = [f"const int i = e % {TILE}, j = e / {TILE};  // neighbours along {line}s"]
    return [
        "#pragma unroll",
        f"    for (int e = thread; e < {TILE * SLICE}; e += {THREADS}) {{",
        *(f"        {text}" for text in position),
        f"        const int64_t {line} = block_{line} + i, k = k_begin + j;",
        f"        {tile}[j][i] = {line} < {extent} && k < {k} ? {element} : 0;",
        "    }",
    ]
