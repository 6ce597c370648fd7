"""CUDA C text of one product of 8-bit integers with exact sums in int32, and its epilogue.

In: a :class:`CudaInt8Spec`. Out: a :class:`RenderedKernel`. The tiles are those of
:mod:`fxlite.codegen.cuda.gemm`, but an element of a tile is a *quad*, four neighbours along k in
one 32-bit word, and ``__dp4a`` adds the four products of two quads to a sum. Its bytes are signed
on both sides: of a u8 the top bit is flipped as it is loaded, which subtracts 128. What remains of
the zero points is taken off the finished sums:

    sum (a - y)(b - z) = sum a*b - y * sum b - z * sum a + k*y*z

with the sums of a row of A or a column of B made from the tiles by a few of the threads. Bytes
beyond k are 0 on both sides and count for nothing. Corrections are modulo 2**32, so they are exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fxlite.codegen.cuda.gemm import (
    MICRO,
    PITCH,
    THREADS,
    TILE,
    ProductSpec,
    RenderedKernel,
    atom,
    finish,
    in_tiles,
)

QUAD = 4  # bytes of a word
SLICE = 16  # quads along k per turn


Parts = tuple[tuple[str, str], ...]
"""(name, C expression) of what an index is made of."""


@dataclass(frozen=True)
class Int8Operand:
    """One side of a product. Rows of A, or columns of B, are its *lines*.

    Args:
        element: C expression of the number at (``row``, ``k``), or at (``k``, ``col``).
        type: ``"u8"`` or ``"i8"``.
        zero_point: what stands for 0.
        guard: C condition; where it does not hold, there is a 0 and no memory.
        along_k: neighbours along k are next to each other in memory.
        in_quads: every fourth k begins four numbers that lie at an address divisible by 4, and of
            which the guard allows all or none.
    """

    element: str
    type: str
    zero_point: int
    guard: str = ""
    along_k: bool = True
    in_quads: bool = False

    @property
    def offset(self) -> int:
        """The zero point of the signed bytes."""
        return self.zero_point - (128 if self.type == "u8" else 0)


@dataclass(frozen=True, kw_only=True)
class CudaInt8Spec(ProductSpec):
    """One product of integers.

    Args:
        a, b: A is [m, k], B is [k, n].
        row_parts: what a ``row`` is made of, for `a` and the epilogue.
        k_parts: what ``k`` is made of, for `a` and `b`.
        sizes: names of long expressions of the parameters, for all of the others.
        rows_adjacent: results of neighbouring rows are next to each other in memory.
    """

    a: Int8Operand
    b: Int8Operand
    row_parts: Parts = ()
    k_parts: Parts = ()
    sizes: Parts = ()
    rows_adjacent: bool = False


def render_int8(spec: CudaInt8Spec) -> RenderedKernel:
    """The tiled kernel."""
    parts = _defined(spec.row_parts, spec.epilogue("sum", "row", "col"))
    shared = [
        f"__shared__ __align__(16) int a_tile[{SLICE}][{PITCH}];  // [quad along k][row]",
        f"__shared__ __align__(16) int b_tile[{SLICE}][{PITCH}];  // [quad along k][column]",
    ]
    summed = [name for name, other in (("b", spec.a), ("a", spec.b)) if other.offset]
    shared += [f"__shared__ int {name}_sums[{TILE}];" for name in summed]
    shared += [f"const int64_t {name} = {text};" for name, text in spec.sizes]
    total = corrected(spec, "sums[i][j]", "a_sums[thread_row + i]", "b_sums[thread_col + j]")
    product = [
        f"int sums[{MICRO}][{MICRO}] = {{}};",
        *(["int line_sum = 0;"] if summed else []),
        f"for (int64_t k_begin = 0; k_begin < {atom(spec.k)}; k_begin += {SLICE * QUAD}) {{",
        *_fill("a_tile", "row", atom(spec.m), spec, spec.a),
        *_fill("b_tile", "col", atom(spec.n), spec, spec.b),
        "    __syncthreads();",
        "#pragma unroll",
        f"    for (int tile_k = 0; tile_k < {SLICE}; ++tile_k) {{",
        f"        int a_part[{MICRO}], b_part[{MICRO}];",
        "#pragma unroll",
        f"        for (int i = 0; i < {MICRO}; ++i) {{",
        "            a_part[i] = a_tile[tile_k][thread_row + i];",
        "            b_part[i] = b_tile[tile_k][thread_col + i];",
        "        }",
        "#pragma unroll",
        f"        for (int i = 0; i < {MICRO}; ++i)",
        "#pragma unroll",
        f"            for (int j = 0; j < {MICRO}; ++j)",
        "                sums[i][j] = __dp4a(a_part[i], b_part[j], sums[i][j]);",
        "    }",
        *_line_sums(summed),
        "    __syncthreads();  // the tiles are overwritten next",
        "}",
        *_kept_sums(summed),
        *finish(spec, [*parts, f"const int32_t sum = {total};"], "sum"),
    ]
    return in_tiles(spec, shared, product, spec.rows_adjacent)


def _fill(tile: str, line: str, extent: str, spec: CudaInt8Spec, operand: Int8Operand) -> list[str]:
    """Fill a tile with quads, 0 beyond the matrix; neighbouring threads load along k, or across
    it."""
    if operand.along_k:
        position = f"const int i = e / {SLICE}, j = e % {SLICE};  // neighbours along k"
    else:
        position = f"const int i = e % {TILE}, j = e / {TILE};  // neighbours along {line}s"
    text = f"{operand.guard} {operand.element}"
    line_parts = _defined(spec.row_parts, text) if line == "row" else []
    k_parts = _defined(spec.k_parts, text)
    inside = f"{line} < {extent} && k < {atom(spec.k)}"
    if operand.in_quads:
        load = [
            f"const int64_t {line} = block_{line} + i, k = k_begin + {QUAD} * j;",
            *line_parts,
            *k_parts,
            f"{tile}[j][i] = {inside} ? {quad_of(operand)} : 0;",
        ]
    else:
        load = [
            f"const int64_t {line} = block_{line} + i;",
            *line_parts,
            "uint32_t quad = 0;",
            "#pragma unroll",
            f"for (int lane = 0; lane < {QUAD}; ++lane) {{",
            f"    const int64_t k = k_begin + {QUAD} * j + lane;",
            *(f"    {part}" for part in k_parts),
            f"    if ({inside}) quad |= ({byte_of(operand)} & 255u) << 8 * lane;",
            "}",
            f"{tile}[j][i] = (int)quad;",
        ]
    return [
        "#pragma unroll",
        f"    for (int e = thread; e < {TILE * SLICE}; e += {THREADS}) {{",
        *(text if text[0] == "#" else f"        {text}" for text in (position, *load)),
        "    }",
    ]


def quad_of(operand: Int8Operand) -> str:
    """C expression of the four signed bytes from a ``k`` on that begins a quad."""
    flip = " ^ 0x80808080" if operand.type == "u8" else ""
    quad = f"fx_quad(&{operand.element}){flip}"
    zero = f"(int)0x{operand.offset % 256 * 0x01010101:08x}"
    return f"({operand.guard} ? {quad} : {zero})" if operand.guard else quad


def byte_of(operand: Int8Operand) -> str:
    """C expression of the signed byte at ``k``."""
    byte = f"({operand.element} ^ 128)" if operand.type == "u8" else operand.element
    return f"({operand.guard} ? {byte} : {operand.offset})" if operand.guard else byte


def _defined(parts: Parts, text: str) -> list[str]:
    """Definitions of the parts that a text mentions."""
    words = set(re.findall(r"\w+", text))
    return [f"const int64_t {name} = {value};" for name, value in parts if name in words]


def _lines_of(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """(name of a tile, condition, line) for the threads that sum a line of each tile."""
    which = (("thread < {0}", "thread"), ("thread >= {0} && thread < 2 * {0}", "thread - {0}"))
    return [(n, test.format(TILE), line.format(TILE)) for n, (test, line) in zip(names, which)]


def _line_sums(names: Sequence[str]) -> list[str]:
    """Some threads add up a line of a slice each."""
    return [
        text
        for name, threads, line in _lines_of(names)
        for text in (
            f"    if ({threads})",
            f"        for (int tile_k = 0; tile_k < {SLICE}; ++tile_k)",
            f"            line_sum = __dp4a({name}_tile[tile_k][{line}], 0x01010101, line_sum);",
        )
    ]


def _kept_sums(names: Sequence[str]) -> list[str]:
    """The sums of lines to where every thread can read them."""
    stores = [
        f"if ({threads}) {name}_sums[{line}] = line_sum;"
        for name, threads, line in _lines_of(names)
    ]
    return [*stores, "__syncthreads();"] if names else []


def corrected(spec: CudaInt8Spec, total: str, a_sum: str, b_sum: str) -> str:
    """C expression of a finished sum, from that of the signed bytes and those of the row of A and
    the column of B: modulo 2**32, as unsigned numbers are."""
    y, z = spec.a.offset, spec.b.offset
    text = total
    if y:
        text += f"{_signed(-y)} * {b_sum}"
    if z:
        text += f"{_signed(-z)} * {a_sum}"
    if y and z and spec.k.isdecimal():
        text += _signed(y * z * int(spec.k))
    elif y and z:
        text += f"{_signed(y * z)} * (uint32_t){atom(spec.k)}"
    return f"(int32_t)({text})" if y or z else text


def _signed(factor: int) -> str:
    return f" {'-' if factor < 0 else '+'} {abs(factor)}u"
