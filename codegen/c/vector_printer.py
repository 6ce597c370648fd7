"""Printing the epilogue of a product for a whole vector of sums.

In: the statements that finish one element, whose column is a variable. Out: the same with GCC's
vector types (`gemm_pack.PREAMBLE` has the helpers), or nothing where there is no such form:
elementary functions and choices stay scalar code in a simd loop, which GCC turns into vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxlite import expr
from fxlite.codegen.kernel_ir import Buffer, Let, Stmt, Store
from fxlite.codegen.printer import CPrinter, compute_type
from fxlite.expr import Apply, CheckedIndex, Expr, IndexValue, Load, Local, MultiIndex
from fxlite.index import Var, flatten

_OPERATORS = ("add", "sub", "mul", "div", "neg")
_FUNCTIONS = ("maximum", "minimum")


class _NoVectorForm(Exception):
    """The statements cannot be printed for vectors."""


def print_vectors(
    statements: Sequence[Stmt], buffers: Sequence[Buffer], column: Var, total: str, count: str
) -> str:
    """The statements for the vector ``total`` of sums, whose first column is ``column`` and of
    which ``count`` elements (or all) are wanted; empty if they have no such form."""
    try:
        return "\n".join(_VectorPrinter(buffers, column, total, count).block(statements, 0))
    except _NoVectorForm:
        return ""


class _VectorPrinter(CPrinter):
    """Prints what varies along the columns as a vector, the rest as scalars."""

    def __init__(self, buffers: Sequence[Buffer], column: Var, total: str, count: str) -> None:
        super().__init__(buffers)
        self.column, self.count = column, count
        self.vectors = {total}  # names of locals
        self.known: dict[int, tuple[Expr, bool]] = {}  # whether an expression varies, by its id

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
        if isinstance(e, Apply) and e.dtype.name in ("f32", "f64"):
            if e.function in _OPERATORS:
                return self._apply(e)
            if e.function in _FUNCTIONS:
                arguments = ", ".join(map(self.vector, e.args))
                return f"{e.function}_{compute_type(e.dtype)}({arguments})", 9
        raise _NoVectorForm

    def vector(self, e: Expr) -> str:
        """An expression as a vector."""
        text = self.value(e)
        return text if self.varies(e) else f"all_{compute_type(e.dtype)}({text})"

    def checked_index(self, e: CheckedIndex) -> str:
        raise _NoVectorForm

    def ctype(self, buffer: str) -> str:
        """The type of a buffer's elements, if they fill vectors as sums do."""
        dtype = self.dtypes[buffer]
        if dtype.name not in ("f32", "f64"):
            raise _NoVectorForm
        return compute_type(dtype)

    def place(self, buffer: str, index: MultiIndex) -> str:
        """The first element, if the others follow it."""
        step = flatten(index, self.shapes[buffer]).coefficient(self.column)
        if step is None or step.constant != 1:
            raise _NoVectorForm
        return self.address(buffer, index)

    def statement(self, s: Stmt, depth: int) -> list[str]:
        if isinstance(s, Let) and self.varies(s.value):
            self.vectors.add(s.name)
            return [f"const {compute_type(s.value.dtype)}_vec {s.name} = {self.value(s.value)};"]
        if isinstance(s, Let):
            return super().statement(s, depth)
        if not isinstance(s, Store) or s.accumulate:
            raise _NoVectorForm
        target = f"&{self.place(s.buffer, s.index)}"
        return [f"store_{self.ctype(s.buffer)}({target}, {self.vector(s.value)}, {self.count});"]
