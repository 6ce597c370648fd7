"""The description of one matrix product, which is the input of `gemm.py`; and the layouts in which
operands of products are packed for the tiles in `tiles/*.h`.

All layouts follow that of floats: panels of 32 columns (16 for doubles), a row of which is 128 bytes.

- bf16 (``matmul_precision="medium"``): a pair that is adjacent along k replaces one float. So a product of
  k steps becomes one of k / 2, and weights take half the bytes. The same holds for operands that are
  sums of two bf16 ("high", see `GemmSpec.split`).
- integers: a *quad*, four numbers that are adjacent along k, replaces one float. Before the rows of a
  panel come the initial values of the sums: they correct for the tile's multiplying unsigned activations.
  The tile computes ``sum(u * w)`` where u is x itself or, for i8, ``x + 128`` (with the highest bit
  inverted), so that ``sum((x - z) * w) = sum(u * w) - (z + 128 or 0) * sum(w)``; both parts of the
  correction are known.
- integer weights with float activations: four bytes of each column, which are four numbers of i8 or eight
  of int4 that are adjacent along k, the first one in the lowest bits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from fxlite.codegen.c.tiles.library import constant
from fxlite.codegen.kernel.builder import Pointer, Size, bare, smaller
from fxlite.codegen.kernel.text import atom
from fxlite.scalar.index import Index, product

if TYPE_CHECKING:
    from fxlite.codegen.c.render.alternatives import Choice


SMALL = 64
"""The most rows for which a symmetric product is printed like any other."""

PARALLEL_PRODUCTS = constant("matrix", "PARALLEL_PRODUCTS")
"""Multiply-adds from which a second thread is worthwhile: 7 us of work, against 1 us for fork and join if the threads
are awake, and several if one has to be woken (measured on the digits model)."""

PANEL_BYTES = 128
"""Bytes of one row of a panel of B: two cache lines, two AVX-512 vectors."""

ITEM_BYTES = {"float": 4, "double": 8}


PACKED_BLOCK = 192
"""Steps of K in a block of a weight that was packed at compile time: half a panel of so many rows, as AVX2 reads it,
takes less than half of a first-level cache of 32 KiB, and the next block is prefetched meanwhile. (Measured on Zen 3
with 128 rows: K = 3072 34 -> 58 GFLOP/s beside a busy neighbour, K = 768 with 3072 columns 49 -> 58.)"""

MOST_PACKED = PACKED_BLOCK * (constant("matrix", "SUM_STEPS") + constant("matrix", "SUM_BLOCKS") - PACKED_BLOCK)
"""The largest K that is divided in this way: the number of additions in sequence, within a block and then over blocks,
is as large as with the largest blocks."""


def panel_columns(ctype: str) -> int:
    """Columns of B in a full panel: 32 for float, 16 for double."""
    return PANEL_BYTES // ITEM_BYTES[ctype]


def pack_b(b: np.ndarray[Any, Any], packed: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    """Pack a [K, N] matrix of float32 or float64 into panels of 32 columns (16 for float64).

    Panel p starts at element p * K * 32 and holds columns 32p ... 32p+31 row by row; missing columns of
    the last panel are zero. So the result has K * (N rounded up to a multiple of 32) elements. It should
    be 64-byte aligned in memory; it is written to ``packed`` if given.
    """
    depth, n = b.shape
    panel = PANEL_BYTES // b.dtype.itemsize
    whole, rest = divmod(n, panel)
    if packed is None:
        packed = np.empty(packed_size(depth, n, b.dtype.itemsize), b.dtype)
    panels = packed.reshape(-(-n // panel), depth, panel)
    panels[:whole] = b[:, : whole * panel].reshape(depth, whole, panel).swapaxes(0, 1)
    if rest:
        panels[whole, :, :rest] = b[:, whole * panel :]
        panels[whole, :, rest:] = 0
    return packed


def packed_size(depth: int, n: int, itemsize: int) -> int:
    """Number of elements in the result of `pack_b` for a [depth, n] matrix."""
    panel = PANEL_BYTES // itemsize
    return depth * -(-n // panel) * panel


# -- bf16 ------------------------------------------------------------------------------------------
PAIR_BYTES = 4
"""Bytes of two bf16."""


def bf16_pairs(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A float32 matrix [..., M, K] rounded to bf16 (to nearest, ties to even), as uint32
    [..., M, ceil(K/2)]: elements 2p (lower half) and 2p + 1 of a row form a pair; an odd K is padded
    with zero."""
    k = rows.shape[-1]
    padded = np.zeros((*rows.shape[:-1], -(-k // 2) * 2), "<f4")
    padded[..., :k] = rows
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = padded.astype(ml_dtypes.bfloat16)
    return rounded.view("<u2").view("<u4")


def pack_b_bf16(b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Like `pack_b`, for a [K, N] matrix of float32: panels of 32 columns of pairs, as uint32."""
    return pack_b(np.ascontiguousarray(bf16_pairs(b.T).T))


def bf16_parts(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two float32 arrays of bf16 numbers whose sum is x up to 2^-17 of it: x rounded to the nearest bf16
    (towards zero if that would be infinite), and the rounded rest, which is 0 if x is infinite or
    NaN."""
    finite = np.isfinite(x)
    with np.errstate(over="ignore", invalid="ignore"):
        upper = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        cut = (np.ascontiguousarray(x, "<f4").view("<u4") & 0xFFFF0000).view("<f4")
        upper = np.where(finite & np.isinf(upper), cut, upper)
        return upper, np.where(finite, x - upper, np.float32(0))


def pack_b_split(b: np.ndarray[Any, Any], packed: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    """Like `pack_b_bf16`, for both `bf16_parts`: in each panel first all upper parts, then all lower ones.
    The result is written to ``packed`` if given."""
    depth, columns = -(-b.shape[0] // 2), b.shape[1]
    if packed is None:
        packed = np.empty(2 * packed_size(depth, columns, PAIR_BYTES), np.uint32)
    width = PANEL_BYTES // PAIR_BYTES
    panels = packed.reshape(-(-columns // width), 2, depth * width)
    for part, matrix in enumerate(bf16_parts(b)):
        panels[:, part] = pack_b_bf16(matrix).reshape(panels.shape[::2])
    return packed


# -- integers --------------------------------------------------------------------------------------
QUAD = 4
"""Numbers of a quad."""

PANEL_COLUMNS = 32
"""Columns of a panel of four-byte words: quads, or the integers of weight-only layers."""


def packed_rows(depth: int) -> int:
    """Rows of a panel: the initial values of the sums, and quads."""
    return 1 + -(-depth // QUAD)


def pack_int8(
    weight: np.ndarray[Any, Any], offset: int, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """An i8 matrix [N, K] in panels of 32 columns, as int32: each panel has a row of
    ``-offset * sum of a column``, then ceil(K / 4) rows of quads, with the first number of a quad in its
    lowest byte and zeros after the end. The result is written to ``packed`` if given."""
    columns, depth = weight.shape
    rows = packed_rows(depth)
    padded = np.zeros((columns, QUAD * (rows - 1)), np.int8)
    padded[:, :depth] = weight
    matrix = np.empty((rows, columns), np.int32)
    matrix[0] = -offset * weight.sum(axis=1, dtype=np.int32)
    matrix[1:] = padded.view("<i4").T
    return pack_b(matrix, packed)


WORD = 4
"""Bytes of a column that stay together."""


def packed_integers_size(columns: int, depth: int, bits: int) -> int:
    """Bytes of the result of `pack_integers`."""
    return -(-columns // PANEL_COLUMNS) * PANEL_COLUMNS * WORD * words_of(depth, bits)


def words_of(depth: int, bits: int) -> int:
    """How many words of four bytes hold ``depth`` numbers."""
    return -(-depth * bits // (8 * WORD))


def pack_integers(
    weight: np.ndarray[Any, Any], bits: int, packed: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """A weight i8 [N, K], or for 4 bits u8 [N, K / 2] (rounded up) as packed by pack_int4, in panels of 32
    columns of words, as bytes; rows end with zeros. The result is written to ``packed`` if given."""
    columns, width = weight.shape
    if packed is None:
        packed = np.empty(packed_integers_size(columns, width * 8 // bits, bits), np.uint8)
    words = -(-width // WORD)
    panels = packed.reshape(-1, words, PANEL_COLUMNS, WORD)
    whole = np.zeros((len(panels) * PANEL_COLUMNS, words * WORD), np.uint8)
    whole[:columns, :width] = weight.view(np.uint8)
    panels[:] = whole.reshape(len(panels), PANEL_COLUMNS, -1, WORD).swapaxes(1, 2)
    return packed


# -- what a product is -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Operand:
    """A strided matrix: element (row, column) is
    ``pointer[offset + row * row_stride + column * col_stride]``.

    `pointer` is a C expression; `offset` may use the batch loop variables.
    """

    pointer: str
    offset: Index
    row_stride: Index
    col_stride: Index

    def start(self, row: Size = 0, column: Size = 0) -> Pointer:
        """Address of the element."""
        steps = self.offset + self.row_stride * row + self.col_stride * column
        return Pointer(atom(self.pointer), steps)

    def at(self, row: Size, column: Size) -> str:
        """C expression of the element."""
        return self.start(row, column)[0]


@dataclass(frozen=True)
class PackedOperand:
    """B packed by `pack_b` at compile time. `pointer` should be 64-byte aligned."""

    pointer: str


@dataclass(frozen=True)
class WidenedOperand:
    """A right operand B whose numbers are stored in less memory than floats: each thread widens a panel when
    it reaches it. ``widen(panel, k_0, depth, target)`` is a C expression that puts ``depth`` rows of the panel
    from ``k_0`` on into the array `target` and gives a pointer to the first. The array has room for
    ``margin`` more rows. ``sizes`` maps names that the expression reads to their values."""

    widen: Callable[[Index, Index, Index, Pointer], str]
    margin: int
    sizes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ProductSpec:
    """One product of matrices, of any kind: A is [m, k], B is [k, n].

    name        of the C function
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    batch       (loop variable, extent) of the loops around it, outermost first
    m, n, k     each may be 0
    epilogue    (sum, row, column) -> C statements that consume one element; `sum` is in C. They are
                the body of a simd loop over columns, so the iterations must be independent
    vectors     (sum, row, column, count) -> C statements that consume a vector of sums, the first
                `count` of which (or all) belong to columns from the variable `column` on. They come in
                two parts, of which the first is the same for all rows. None if there are none, or if
                they are not worthwhile
    comment     what is computed, shapes, origin
    """

    name: str
    parameters: str
    batch: tuple[tuple[str, Index], ...]
    m: Index
    n: Index
    k: Index
    epilogue: Callable[[str, Index, Index], str]
    vectors: Callable[[str, Index, Index, str], tuple[str, str]] | None = None
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class GemmSpec(ProductSpec):
    """One product of floats.

    ctype       "float" or "double"
    a, b        the operands
    row_start   row -> where a row of A begins, if that is not ``row_stride`` after the previous row
    bf16        "a" or "b": that operand was rounded to bf16 and packed in pairs at compile time, and the
                other one, of floats, is rounded here; sums are float. Strides of such an `a` count
                pairs. "" for products of the `ctype`
    a_is_bf16   with bf16 "b": A is stored as bf16 (uint16_t), in which its strides are counted
    split       with bf16 "b": both operands are sums of two bf16, and three products are summed
                (`pack_b_split`)
    plan        "rows" or "strips" for a product that is computed by dot products of rows or by strips (`gemm_strips`)
                whatever the sizes; "" where they decide
    turned      the transposed product, which is faster for few columns, if their number is not known
    measured    by subject, which of `alternatives.gemm_decisions` to use instead of the default choice
    """

    ctype: str
    a: Operand
    b: Operand | PackedOperand | WidenedOperand
    row_start: Callable[[Index], Pointer] | None = None
    bf16: str = ""
    a_is_bf16: bool = False
    split: bool = False
    plan: str = ""
    turned: GemmSpec | None = None
    measured: Choice = field(default_factory=dict)

    @property
    def is_symmetric(self) -> bool:
        """Whether B is A transposed, or begins with it, read from the same memory: then element (i, j) adds the same
        products in the same order as element (j, i), and what is below the diagonal need not be computed (like BLAS's
        syrk)."""
        a, b = self.a, self.b
        if self.row_start is not None or self.bf16 or not isinstance(b, Operand) or at_most(self.m, SMALL):
            return False
        if self.plan:
            return False
        more = (self.n - self.m).constant
        if more is None or more < 0:
            return False
        return replace(a, row_stride=a.col_stride, col_stride=a.row_stride) == b


def copies_a(spec: GemmSpec) -> bool:
    """Whether A's rows are copied first.

    They are copied if rows are not equally spaced, if a row's elements are not adjacent, and if the rows
    are a multiple of 4 KiB apart: the rows of a tile would then share one set of the first-level cache
    (measured at K = 1024: 93 against 117 GFLOP/s). They are also copied if they have to be rounded, and if
    they are bf16 already but not whole pairs.
    """
    if spec.row_start is not None:
        return True
    if spec.bf16:
        return spec.bf16 == "b" and not (spec.a_is_bf16 and _has_pairs(spec))
    if spec.a.col_stride != 1:
        return True
    if multiplies_rows(spec):
        return False
    if "left rows" in spec.measured:
        return spec.measured["left rows"] == "copied"
    stride = spec.a.row_stride.constant
    if stride is None or at_most(spec.m, 6) or at_most(spec.n, PANEL_COLUMNS):
        return False
    step = stride * ITEM_BYTES[spec.ctype]
    return step > 0 and step % 4096 == 0


def at_most(size: Index, limit: int) -> bool:
    """Whether a size is known to be at most the limit."""
    return size.constant is not None and size.constant <= limit


def _has_pairs(spec: GemmSpec) -> bool:
    """Whether the tile may read A's bf16 in place, two at a time: its rows begin at an even element."""
    stride, k = spec.a.row_stride.constant, spec.k.constant
    if spec.batch or spec.a.offset != 0 or spec.a.col_stride != 1:
        return False
    if stride is None or k is None or stride % 2 or k % 2:
        return False
    return stride * 2 % 4096 != 0 or at_most(spec.m, 6)


FEW = 6
"""The most rows of A for which dot products of long rows take less time than packing B, and the most columns of B for
which they take less than multiplying by a panel's padding. Adding the lanes of a sum takes as long as several
vectors."""
COLUMN_BYTES, ROW_BYTES = 64, 256
"""Bytes of a row, for each column of B and for each row of A beyond two, from which that holds (measured)."""


def is_shared(spec: GemmSpec) -> bool:
    """Whether all matrices of a batch are multiplied by the same right operand, which is not packed yet."""
    if not spec.batch or not isinstance(spec.b, Operand):
        return False
    return not {name for name, _ in spec.batch}.intersection(re.findall(r"\w+", bare(spec.b.offset)))


def rows_by_b(spec: GemmSpec) -> Index:
    """The number of A's rows that are multiplied by one B: packing it takes as long whatever their number."""
    return spec.m * product(extent for _, extent in spec.batch) if is_shared(spec) else spec.m


def multiplies_rows(spec: GemmSpec) -> bool:
    """Whether elements are known to be dot products of rows along k (`tiles/dots.h`): A's rows are read in place, and
    so are B's if they lie along k; otherwise columns of B are packed as rows."""
    return when_by_rows(spec) is True


def when_by_rows(spec: GemmSpec) -> bool | str:
    """Whether, or in C when, dot products of rows are faster."""
    b, item = spec.b, ITEM_BYTES[spec.ctype]
    if spec.plan:
        return spec.plan == "rows"
    if not isinstance(b, Operand) or spec.bf16 or spec.row_start is not None or spec.a.col_stride != 1:
        return False
    ways = [] if at_most(spec.m, 1) else [_are_few(spec.n, spec.k // (COLUMN_BYTES // item))]
    if b.row_stride == 1 and b.col_stride != 1:
        limit = spec.k // (ROW_BYTES // item) + 2
        ways.append(_are_few(spec.m, limit) and _are_few(rows_by_b(spec), limit))
    unknown = [way for way in ways if isinstance(way, str)]
    return True in ways or " || ".join(dict.fromkeys(unknown)) or False


def _are_few(size: Index, limit: Index) -> bool | str:
    """Whether a size is at most ``FEW`` and at most a limit, or the condition in C if that is not known."""
    if limit == 0 or limit < size or Index.of(FEW) < size:
        return False
    unknown = [bound for bound in (limit, Index.of(FEW)) if not size <= bound]
    return not unknown or f"{bare(size)} <= {bare(functools.reduce(smaller, unknown))}"


MANY_ROWS = 32
"""The least rows that are columns of the transposed product: those of a panel."""

STRIP_ROWS, FEW_STRIP_ROWS = 8, 6
"""The most rows for which reading and writing sums takes less time than packing the matrix: if their number is known,
and otherwise."""

LINE = 32
"""The width of a strip is a multiple of this number of columns."""


def reads_strips(spec: GemmSpec) -> bool:
    """Whether B is known to be read in place, row by row, a strip of columns at a time (`gemm_strips`)."""
    return when_by_strips(spec) is True


VECTOR_BYTES = 64
"""The bytes of the widest vectors."""


def _fills_vectors(spec: GemmSpec) -> bool:
    """False for few columns of which more than half of the last vector would be empty; tiles have half vectors."""
    n = spec.n.constant
    if n is None or n >= LINE:
        return True
    rest = n * ITEM_BYTES[spec.ctype] % VECTOR_BYTES
    return not rest or rest > VECTOR_BYTES // 2


def when_by_strips(spec: GemmSpec) -> bool | str:
    """Whether, or in C when, reading strips is faster."""
    if spec.plan:
        return spec.plan == "strips"
    if not isinstance(spec.b, Operand) or spec.bf16 or spec.row_start is not None or multiplies_rows(spec):
        return False
    if spec.b.col_stride != 1 or not _fills_vectors(spec):
        return False
    rows = rows_by_b(spec)
    if rows.constant is not None or Index.of(FEW_STRIP_ROWS) < spec.m:
        return at_most(rows, STRIP_ROWS)
    return f"{bare(rows)} <= {FEW_STRIP_ROWS}"


def plan_of_turned(spec: GemmSpec) -> str:
    """The plan of the transposed product, if it is faster for few columns; "" otherwise. Whole rows of a transposed A
    are then read in place, and an epilogue that has no form for vectors is computed for the rows of a tile in lanes, of
    which its few columns would fill a part."""
    known, many = spec.n.constant, spec.m.constant is None or spec.m.constant >= MANY_ROWS
    if spec.bf16 or not many or multiplies_rows(spec) or reads_strips(spec) or not (known is None or known <= FEW):
        return ""
    if spec.a.row_stride == 1 and spec.a.col_stride != 1:
        return "strips" if known is None else ""
    return "rows" if spec.vectors is None and spec.a.col_stride == 1 else ""


def packs_b(spec: GemmSpec) -> bool:
    """Whether B's panels are packed (or widened) first; not if they were at compile time, and not if they are rows of
    dot products."""
    if isinstance(spec.b, WidenedOperand):
        return True
    if isinstance(spec.b, PackedOperand):
        return False
    return not multiplies_rows(spec) or spec.b.row_stride != 1
