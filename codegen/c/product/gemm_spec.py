"""What one matrix product is, and what printing it gives: the input and output of `gemm.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fxlite.codegen.c.decisions import Choice
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, panel_columns
from fxlite.codegen.kernel.builder import Pointer, Size
from fxlite.codegen.kernel.text import atom
from fxlite.scalar.index import Index


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
    """B as `pack_b` left it when the model was compiled. `pointer` should be 64-byte aligned."""

    pointer: str


@dataclass(frozen=True)
class WidenedOperand:
    """B of numbers that are smaller in memory than floats: each thread widens a panel when it gets
    to it. ``widen(panel, k_0, depth, target)`` is a C expression: it puts ``depth`` rows of the
    panel from ``k_0`` on into the array `target`, and is a pointer to the first. The array has room
    for ``margin`` rows more. ``sizes`` are names that the expression reads, and what they are."""

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
                the body of a simd loop over columns, so the iterations must not depend on each
                other
    vectors     (sum, row, column, count) -> C statements that consume a vector of sums, the first
                `count` of which (or all) belong to columns from the variable `column` on. They come
                in two parts, of which the first is the same for all rows. None: there are none, or
                it is not worth it
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
    prologue_a  (row, k) -> C expression of A's element, in place of a load of `a`
    bf16        "a" or "b": that operand was rounded to bf16 and packed in pairs when
                the model was compiled, and the other one, of floats, is rounded here; sums are
                float. Strides of such an `a` count pairs. "": products of the `ctype`
    a_is_bf16   with bf16 "b": A is stored as bf16 (uint16_t), to which its strides refer
    split       with bf16 "b": both operands are sums of two bf16, and three products are summed
                (`pack_b_split`)
    measured    by subject, which of `alternatives.gemm_decisions` to take in place of the one that
                suits
    """

    ctype: str
    a: Operand
    b: Operand | PackedOperand | WidenedOperand
    prologue_a: Callable[[Index, Index], str] | None = None
    bf16: str = ""
    a_is_bf16: bool = False
    split: bool = False
    measured: Choice = field(default_factory=dict)


def copies_a(spec: GemmSpec) -> bool:
    """Whether A's rows are copied first.

    They are when an expression replaces them, when a row's elements are not adjacent, and when the
    rows lie a multiple of 4 KiB apart: the rows of a tile would then share one set of the
    first-level cache (measured at K = 1024: 93 against 117 GFLOP/s). They are, too, when they have
    to be rounded, and where they are bf16 already, but are no whole pairs.
    """
    if spec.bf16:
        return spec.bf16 == "b" and not (spec.a_is_bf16 and _has_pairs(spec))
    if spec.prologue_a is not None or spec.a.col_stride != 1:
        return True
    if "left rows" in spec.measured:
        return spec.measured["left rows"] == "copied"
    stride = spec.a.row_stride.constant
    if stride is None or at_most(spec.m, 6):
        return False
    step = stride * ITEM_BYTES[spec.ctype]
    return step > 0 and step % 4096 == 0


def at_most(size: Index, limit: int) -> bool:
    """Whether a size is known to be no more than that."""
    return size.constant is not None and size.constant <= limit


def _has_pairs(spec: GemmSpec) -> bool:
    """Whether the tile may read A's bf16 in place, two at a time: its rows begin at an even one."""
    stride, k = spec.a.row_stride.constant, spec.k.constant
    if spec.batch or spec.a.offset != 0 or spec.a.col_stride != 1:
        return False
    if stride is None or k is None or stride % 2 or k % 2:
        return False
    return stride * 2 % 4096 != 0 or at_most(spec.m, 6)


def packs_b(spec: GemmSpec) -> bool:
    """Whether B's panels are packed (or widened) first: not if they were when compiling, and not if
    B is read once or twice in all and its rows are contiguous whole cache lines."""
    if isinstance(spec.b, WidenedOperand):
        return True
    if isinstance(spec.b, PackedOperand) or spec.bf16:
        return not isinstance(spec.b, PackedOperand)
    n = spec.n.constant
    whole_lines = n is not None and n % (panel_columns(spec.ctype) // 2) == 0
    return not (spec.b.col_stride == 1 and whole_lines and at_most(spec.m, 2))
