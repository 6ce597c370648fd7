"""What one matrix product is, and what printing it gives: the input and output of `gemm.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fxlite.codegen.c.decisions import Choice
from fxlite.codegen.c.text.template_text import atom
from fxlite.codegen.kernel.builder import Pointer, Size
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
    to it. ``widen(k_0, depth, target)`` is a C expression: it puts ``depth`` rows of the panel from
    ``k_0`` on into the array `target`, and is a pointer to the first. The array has room for
    ``margin`` rows more."""

    widen: Callable[[str, str, str], str]
    margin: int


@dataclass(frozen=True)
class GemmSpec:
    """One product.

    name        of the C function
    ctype       "float" or "double"
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    batch       (loop variable, extent) of the loops around it, outermost first
    m, n, k     each may be 0
    a, b        A is [m, k], B is [k, n]
    epilogue    (sum, row, column) -> C statements that consume one element; `sum` is in C. They are
                the body of a simd loop over columns, so the iterations must not depend on each
                other
    prologue_a  (row, k) -> C expression of A's element, in place of a load of `a`
    comment     what is computed, shapes, origin
    bf16        "a" or "b": that operand was rounded to bf16 and packed in pairs when
                the model was compiled, and the other one, of floats, is rounded here; sums are
                float. Strides of such an `a` count pairs. "": products of the `ctype`
    a_is_bf16   with bf16 "b": A is stored as bf16 (uint16_t), to which its strides refer
    split       with bf16 "b": both operands are sums of two bf16, and three products are summed
                (`pack_b_split`)
    vector_epilogue  (sum, row, column, count) -> C statements that consume a vector of sums, the
                first `count` of which (or all) belong to columns from `column` on. None: there are
                none, or it is not worth it
    measured    by subject, which of `alternatives.gemm_decisions` to take in place of the one that
                suits
    """

    name: str
    ctype: str
    parameters: str
    batch: tuple[tuple[str, Index], ...]
    m: Index
    n: Index
    k: Index
    a: Operand
    b: Operand | PackedOperand | WidenedOperand
    epilogue: Callable[[str, Index, Index], str]
    prologue_a: Callable[[Index, Index], str] | None = None
    comment: str = ""
    bf16: str = ""
    a_is_bf16: bool = False
    split: bool = False
    vector_epilogue: Callable[[str, Index, Index, str], str] | None = None
    measured: Choice = field(default_factory=dict)


@dataclass(frozen=True)
class Rendered:
    """One C function.

    `workspace` is the number of bytes of scratch, of named sizes and ``n_threads``, which should be
    64-byte aligned; 0 if none. `extra_parameters` are the names that follow the spec's
    parameters: a subset of ("workspace", "n_threads"), in this order; ``void *`` and ``int``.
    """

    text: str
    workspace: Index
    extra_parameters: tuple[str, ...]
