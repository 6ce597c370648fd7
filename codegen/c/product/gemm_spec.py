"""What one matrix product is, and what printing it gives: the input and output of `gemm.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fxlite.codegen.c.decisions import Choice
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, panel_columns
from fxlite.codegen.c.text.template_text import add, atom, multiply


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
    m, n, k     C expressions, an integer literal where the size is known; each may be 0
    a, b        A is [m, k], B is [k, n]
    epilogue    (sum, row, column) -> C statements that consume one element. They are the body of a
                simd loop over columns, so the iterations must not depend on each other
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
    batch: tuple[tuple[str, str], ...]
    m: str
    n: str
    k: str
    a: Operand
    b: Operand | PackedOperand | WidenedOperand
    epilogue: Callable[[str, str, str], str]
    prologue_a: Callable[[str, str], str] | None = None
    comment: str = ""
    bf16: str = ""
    a_is_bf16: bool = False
    split: bool = False
    vector_epilogue: Callable[[str, str, str, str], str] | None = None
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
    if spec.prologue_a is not None or spec.a.col_stride != "1":
        return True
    if "left rows" in spec.measured:
        return spec.measured["left rows"] == "copied"
    if not spec.a.row_stride.isdecimal() or (spec.m.isdecimal() and int(spec.m) <= 6):
        return False
    step = int(spec.a.row_stride) * ITEM_BYTES[spec.ctype]
    return step > 0 and step % 4096 == 0


def _has_pairs(spec: GemmSpec) -> bool:
    """Whether the tile may read A's bf16 in place, two at a time: its rows begin at an even one."""
    stride, k = spec.a.row_stride, spec.k
    if spec.batch or spec.a.offset != "0" or spec.a.col_stride != "1":
        return False
    if not (stride.isdecimal() and k.isdecimal()) or int(stride) % 2 or int(k) % 2:
        return False
    return int(stride) * 2 % 4096 != 0 or (spec.m.isdecimal() and int(spec.m) <= 6)


def packs_b(spec: GemmSpec) -> bool:
    """Whether B's panels are packed (or widened) first: not if they were when compiling, and not if
    B is read once or twice in all and its rows are contiguous whole cache lines."""
    if isinstance(spec.b, WidenedOperand):
        return True
    if isinstance(spec.b, PackedOperand) or spec.bf16:
        return not isinstance(spec.b, PackedOperand)
    whole_lines = spec.n.isdecimal() and int(spec.n) % (panel_columns(spec.ctype) // 2) == 0
    return not (spec.b.col_stride == "1" and whole_lines and spec.m in ("1", "2"))


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
