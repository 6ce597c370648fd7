"""What one matrix product is, and what printing it gives: the input and output of `gemm.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fxlite.codegen.c.gemm_text import add, atom, multiply


@dataclass(frozen=True)
class Operand:
    """A strided matrix: element (row, column) is
    ``pointer[offset + row * row_stride + column * col_stride]``.

    All are C expressions; `offset` may use the batch loop variables.
    """

    pointer: str
    offset: str
    row_stride: str
    col_stride: str

    def at(self, row: str, column: str) -> str:
        """C expression of the element."""
        index = add(self.offset, multiply(row, self.row_stride), multiply(column, self.col_stride))
        return f"{atom(self.pointer)}[{index}]"


@dataclass(frozen=True)
class PackedOperand:
    """B as `pack_b` left it when the model was compiled. `pointer` should be 64-byte aligned."""

    pointer: str


@dataclass(frozen=True)
class GemmSpec:
    """One product.

    name        of the C function
    ctype       "float" or "double"
    parameters  C parameter list; `Rendered.extra_parameters` are appended
    batch       (loop variable, extent) of the loops around it, outermost first
    m, n, k     C expressions, an integer literal where the size is known; each may be 0
    a, b        A is [m, k], B is [k, n]
    epilogue    (sum, row, column) -> C statements that consume one element. They are the body of a
                simd loop over columns, so the iterations must not depend on each other
    prologue_a  (row, k) -> C expression of A's element, in place of a load of `a`
    comment     what is computed, shapes, origin
    bf16        "a" or "b": that operand was rounded to bf16 and packed in pairs (`gemm_bf16`) when
                the model was compiled, and the other one, of floats, is rounded here; sums are
                float. Strides of such an `a` count pairs. "": products of the `ctype`
    """

    name: str
    ctype: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: str
    k: str
    a: Operand
    b: Operand | PackedOperand
    epilogue: Callable[[str, str, str], str]
    prologue_a: Callable[[str, str], str] | None = None
    comment: str = ""
    bf16: str = ""


@dataclass(frozen=True)
class Rendered:
    """One C function.

    `workspace` is the C expression of the bytes of scratch (Python too, with / read as //), which
    should be 64-byte aligned; "0" if none. `extra_parameters` are the names that follow the spec's
    parameters: a subset of ("workspace", "n_threads"), in this order; ``void *`` and ``int``.
    """

    text: str
    workspace: str
    extra_parameters: tuple[str, ...]
