"""Print the epilogue of a product for a whole vector of sums.

In: the statements that finish one element, whose column is a variable. Out: the same with GCC's vector
types (`tiles/matrix.h` has the helpers), or nothing if there is no such form: elementary functions and
choices stay scalar code in a simd loop, which GCC vectorizes. Sums of 8-bit products are vectors of
int32, and are often stored as 8-bit numbers; their helpers are in `tiles/int8_epilogue.h`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fxlite.codegen.kernel.kernel_ir import Buffer, Let, Stmt, Store
from fxlite.codegen.kernel.names import derived
from fxlite.codegen.kernel.printer import CPrinter, narrowed
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, CheckedIndex, Const, Expr, IndexValue, Load, Local, MultiIndex
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import Var, flatten
from fxlite.types.dtypes import DType

_FUNCTIONS = ("maximum", "minimum")
_ELEMENTS = ("f32", "i32", "u8", "i8")
"""The types that vectors of integer products are loaded from and stored to."""
_HELPERS = {"maximum": "maximum_float", "minimum": "minimum_float", "product": "product_f32"}


class _NoVectorForm(Exception):
    """The statements cannot be printed for vectors."""


def print_vectors(
    statements: Sequence[Stmt], buffers: Sequence[Buffer], column: Var, total: str, count: str, halves: bool = False
) -> str:
    """The statements for the vector ``total`` of sums, whose first column is ``column`` and of which ``count``
    elements (or all) are needed; empty if they have no such form. With ``halves``, there is one for bf16,
    in which numbers below 1.2e-38 may be stored as zero (`tiles/bf16.h`)."""
    try:
        printer = _VectorPrinter(buffers, column, total, count, halves)
        return "\n".join(printer.block(statements, 0))
    except _NoVectorForm:
        return ""


def print_integer_vectors(
    statements: Sequence[Stmt], buffers: Sequence[Buffer], column: Var, rows: Collection[str], total: str, count: str
) -> tuple[str, str]:
    """Like `print_vectors`, for a vector of int32 sums inside loops over the variables ``rows``. Returns two
    parts: statements that these loops do not change, which come before them, and the rest."""
    printer = _IntegerVectors(buffers, column, rows, total, count)
    try:
        text = "\n".join(printer.block(statements, 0))
    except _NoVectorForm:
        return "", ""
    loads = [f"const {kind} {name} = {load};" for load, (kind, name) in printer.loads.items()]
    return "\n".join(loads), text


class _VectorPrinter(CPrinter):
    """Prints values that vary along the columns as vectors, and the rest as scalars."""

    def __init__(self, buffers: Sequence[Buffer], column: Var, total: str, count: str, halves: bool) -> None:
        super().__init__(buffers)
        self.column, self.count, self.halves = column, count, halves
        self.vectors = {total}  # names of locals
        self.known: dict[int, tuple[Expr, bool]] = {}  # by id, whether an expression varies

    def varies(self, e: Expr) -> bool:
        """Whether an expression is a vector."""
        if id(e) not in self.known:
            for part in expr.walk(e):  # children first
                index = part.index if isinstance(part, (Load, Local)) else ()
                index = (part.index,) if isinstance(part, IndexValue) else index
                found = any(self.known[id(child)][1] for child in part.children)
                found = found or any(self.column in i.variables() for i in index)
                found = found or (isinstance(part, Local) and part.name in self.vectors)
                self.known[id(part)] = part, found
        return self.known[id(e)][1]

    def _text(self, e: Expr) -> tuple[str, int]:
        if not self.varies(e):
            return super()._text(e)
        if isinstance(e, Local) and not e.index:
            return super()._text(e)
        if isinstance(e, Load) and e.guard is None:
            pointer = f"&{self.place(e.buffer, e.index)}"
            return f"load_{self.ctype(e.buffer)}({pointer}, {self.count})", 9
        if isinstance(e, Cast) and (e.operand.dtype.name, e.dtype.name) == ("bf16", "f32"):
            return self._text(e.operand)
        if isinstance(e, Apply) and e.dtype.name in ("f32", "f64"):
            if FUNCTIONS[e.function].operator:
                return self._apply(e)
            if e.function in _FUNCTIONS:
                arguments = ", ".join(map(self.vector, e.args))
                return f"{e.function}_{e.dtype.c_name}({arguments})", 9
        raise _NoVectorForm

    def vector(self, e: Expr) -> str:
        """An expression as a vector."""
        text = self.value(e)
        return text if self.varies(e) else f"all_{e.dtype.c_name}({text})"

    def checked_index(self, e: CheckedIndex) -> str:
        raise _NoVectorForm

    def ctype(self, buffer: str) -> str:
        """The type of a buffer's elements, if vectors of them are like those of sums."""
        dtype = self.dtypes[buffer]
        if dtype.name == "bf16" and self.halves:
            return "bf16"
        if dtype.name not in ("f32", "f64"):
            raise _NoVectorForm
        return dtype.c_name

    def place(self, buffer: str, index: MultiIndex) -> str:
        """The first element, if the others are adjacent to it."""
        step = flatten(index, self.shapes[buffer]).coefficient(self.column)
        if step is None or step.constant != 1:
            raise _NoVectorForm
        return self.address(buffer, index)

    def vector_type(self, dtype: DType) -> str:
        """The vector type of values that vary."""
        return f"{dtype.c_name}_vec"

    def statement(self, s: Stmt, depth: int) -> list[str]:
        if isinstance(s, Let) and self.varies(s.value):
            self.vectors.add(s.name)
            return [f"const {self.vector_type(s.value.dtype)} {s.name} = {self.value(s.value)};"]
        if isinstance(s, Let):
            return super().statement(s, depth)
        if not isinstance(s, Store) or s.accumulate:
            raise _NoVectorForm
        target, ctype = f"&{self.place(s.buffer, s.index)}", self.ctype(s.buffer)
        value = self.vector(narrowed(s.value, self.dtypes[s.buffer]))
        return [f"store_{ctype}({target}, {value}, {self.count});"]


class _IntegerVectors(_VectorPrinter):
    """Prints vectors of int32 and of float32; 8-bit numbers are int32 outside memory. ``loads`` are those
    that loops over the variables ``rows`` do not change: text -> type and name."""

    def __init__(self, buffers: Sequence[Buffer], column: Var, rows: Collection[str], total: str, count: str) -> None:
        super().__init__(buffers, column, total, count, halves=False)
        self.rows = frozenset(rows)
        self.loads: dict[str, tuple[str, str]] = {}

    def _text(self, e: Expr) -> tuple[str, int]:
        if not self.varies(e) or isinstance(e, Local):
            return super()._text(e)
        if isinstance(e, Load):
            return self.load(e), 9
        if isinstance(e, Cast):
            return self.cast(e)
        if isinstance(e, Apply) and e.dtype.name in ("f32", "i32"):
            if FUNCTIONS[e.function].operator in ("+", "-", "*") and len(e.args) == 2:
                return self._apply(e)
            if e.function == "saturate":
                return f"saturate_f32({self.rounded(e)})", 9
            if e.function in _HELPERS and e.dtype.is_float:
                return f"{_HELPERS[e.function]}({', '.join(map(self.vector, e.args))})", 9
        raise _NoVectorForm

    def load(self, e: Load) -> str:
        """A load, or the name of one that comes before the loops."""
        text, _ = super()._text(e)
        index = flatten(e.index, self.shapes[e.buffer])
        if not index.is_polynomial or any(v.name in self.rows for v in index.variables()):
            return text
        kind = self.vector_type(self.dtypes[e.buffer])
        own = derived(e.buffer, "at")
        number = sum(name.startswith(own) for _, name in self.loads.values())
        name = derived(own, f"{self.column.name}{number or ''}")
        return self.loads.setdefault(text, (kind, name))[1]

    def cast(self, e: Cast) -> tuple[str, int]:
        """Casts between integers do nothing: a narrowed value is within the limits."""
        x = e.operand
        kept = isinstance(x, Apply) and x.function == "saturate"
        if x.dtype.name not in _ELEMENTS[1:] or not (e.dtype.name in ("i32", "f32") or kept):
            raise _NoVectorForm
        if e.dtype.is_float:
            return f"CONVERT({self.value(x)}, float_vec)", 9
        return self._text(x)

    def statement(self, s: Stmt, depth: int) -> list[str]:
        """Rounding and storing a number is one step, because narrowing saturates."""
        value = s.value.operand if isinstance(s, Store) and isinstance(s.value, Cast) else None
        if not isinstance(value, Apply) or value.function != "saturate" or not self.varies(value):
            return super().statement(s, depth)
        assert isinstance(s, Store) and not s.accumulate
        target = f"&{self.place(s.buffer, s.index)}"
        name = f"store_rounded_{self.ctype(s.buffer)}"
        return [f"{name}({target}, {self.rounded(value)}, {self.count});"]

    def rounded(self, e: Apply) -> str:
        """For a float that is rounded, shifted by a zero point and limited: the float, and the other values,
        which must be known."""
        x, *limits = e.args
        known = [expr.const(0, x.dtype), *limits]
        if isinstance(x, Apply) and x.function == "add":
            x, known[0] = x.args
        numbers = [str(int(v.value)) for v in known if isinstance(v, Const)]
        if not isinstance(x, Apply) or x.function != "round" or len(numbers) < 3:
            raise _NoVectorForm
        return ", ".join([self.vector(x.args[0]), *numbers])

    def vector(self, e: Expr) -> str:
        text = self.value(e)
        return text if self.varies(e) else f"({text} - ({self.vector_type(e.dtype)}){{0}})"

    def ctype(self, buffer: str) -> str:
        name = self.dtypes[buffer].name
        if name not in _ELEMENTS:
            raise _NoVectorForm
        return name

    def vector_type(self, dtype: DType) -> str:
        return "float_vec" if dtype.is_float else "int_vec"
