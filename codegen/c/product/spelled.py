"""Products whose sizes and addresses are C expressions, for printers that hold text.

In: a `GemmSpec`. Out: the same with its indices spelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fxlite.codegen.c.decisions import Choice
from fxlite.codegen.c.product.gemm_spec import GemmSpec, Operand, PackedOperand, WidenedOperand
from fxlite.codegen.c.product.packed_operands import ITEM_BYTES, panel_columns
from fxlite.codegen.c.text.template_text import add, atom, multiply
from fxlite.codegen.kernel.builder import text_of
from fxlite.scalar.index import Index, Var


@dataclass(frozen=True)
class TextOperand:
    """An `Operand`, spelled."""

    pointer: str
    offset: str
    row_stride: str
    col_stride: str

    def at(self, row: str, column: str) -> str:
        """C expression of the element."""
        index = add(self.offset, multiply(row, self.row_stride), multiply(column, self.col_stride))
        return f"{atom(self.pointer)}[{index}]"


def text_operand(operand: Operand) -> TextOperand:
    """An operand, spelled."""
    steps = (operand.offset, operand.row_stride, operand.col_stride)
    return TextOperand(operand.pointer, *map(text_of, steps))


@dataclass(frozen=True)
class TextSpec:
    """A `GemmSpec`, spelled."""

    name: str
    ctype: str
    parameters: str
    batch: tuple[tuple[str, str], ...]
    m: str
    n: str
    k: str
    a: TextOperand
    b: TextOperand | PackedOperand | WidenedOperand
    epilogue: Callable[[str, str, str], str]
    prologue_a: Callable[[str, str], str] | None = None
    comment: str = ""
    bf16: str = ""
    a_is_bf16: bool = False
    split: bool = False
    vector_epilogue: Callable[[str, str, str, str], str] | None = None
    measured: Choice = field(default_factory=dict)


def text_spec(spec: GemmSpec) -> TextSpec:
    """A product, spelled."""
    epilogue, prologue, vectors = spec.epilogue, spec.prologue_a, spec.vector_epilogue

    def var(name: str, extent: Index) -> Index:
        return Index.of(Var(name, extent))

    def spelled_prologue(row: str, k: str) -> str:
        assert prologue is not None
        return prologue(var(row, spec.m), var(k, spec.k))

    def spelled_vectors(total: str, row: str, column: str, count: str) -> str:
        assert vectors is not None
        return vectors(total, var(row, spec.m), var(column, spec.n), count)

    spelled = {
        **vars(spec),
        "batch": tuple((name, text_of(extent)) for name, extent in spec.batch),
        **{size: text_of(getattr(spec, size)) for size in "mnk"},
        "a": text_operand(spec.a),
        "b": text_operand(spec.b) if isinstance(spec.b, Operand) else spec.b,
        "epilogue": lambda t, r, c: epilogue(t, var(r, spec.m), var(c, spec.n)),
        "prologue_a": None if prologue is None else spelled_prologue,
        "vector_epilogue": None if vectors is None else spelled_vectors,
    }  # fmt: skip
    return TextSpec(**spelled)


def copies_a(spec: TextSpec) -> bool:
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


def _has_pairs(spec: TextSpec) -> bool:
    """Whether the tile may read A's bf16 in place, two at a time: its rows begin at an even one."""
    stride, k = spec.a.row_stride, spec.k
    if spec.batch or spec.a.offset != "0" or spec.a.col_stride != "1":
        return False
    if not (stride.isdecimal() and k.isdecimal()) or int(stride) % 2 or int(k) % 2:
        return False
    return int(stride) * 2 % 4096 != 0 or (spec.m.isdecimal() and int(spec.m) <= 6)


def packs_b(spec: TextSpec) -> bool:
    """Whether B's panels are packed (or widened) first: not if they were when compiling, and not if
    B is read once or twice in all and its rows are contiguous whole cache lines."""
    if isinstance(spec.b, WidenedOperand):
        return True
    if isinstance(spec.b, PackedOperand) or spec.bf16:
        return not isinstance(spec.b, PackedOperand)
    whole_lines = spec.n.isdecimal() and int(spec.n) % (panel_columns(spec.ctype) // 2) == 0
    return not (spec.b.col_stride == "1" and whole_lines and spec.m in ("1", "2"))
