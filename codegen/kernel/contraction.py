"""What the matrix-product templates of C and CUDA share: how a contraction becomes a product of
strided matrices, and the text of its epilogue.

In: a :class:`~fxlite.codegen.kernel.lower.Contraction`. Out: a :class:`MatrixProduct` (which loops
are rows, columns and batch), the strides of its operands, and an :class:`Epilogue` that prints what
happens to a finished sum, for the variable names that a template chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fxlite.base.errors import CodegenError
from fxlite.codegen.kernel.kernel_ir import Buffer, Stmt, Store
from fxlite.codegen.kernel.loops import divides, is_flat, rename
from fxlite.codegen.kernel.lower import ACCUMULATOR, Contraction, address
from fxlite.codegen.kernel.names import dim_name, own_name
from fxlite.codegen.kernel.nest import Nest
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.graph.graph import Node
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, Load, Local, MultiIndex
from fxlite.scalar.index import DimVar, Index, Var, flatten


def is_matrix_product(node: Node) -> bool:
    """True for products of two float matrices (or batches of them) of one dtype."""
    if not node.target.is_matrix_product or node.type.dtype.name not in ("f32", "f64"):
        return False
    if any(n.type.dtype is not node.type.dtype for n in node.all_input_nodes):
        return False
    return all(isinstance(a, Node) and a.type.rank >= 2 for a in node.args[:2])


def require_some(group: Group) -> None:
    """Raise CodegenError for a group whose anchor has operands without elements, or whose result
    has none: such loops are simple, and templates divide by numbers of tiles."""
    assert group.anchor is not None
    if any(node.type.size == 0 for node in (group.root, *group.anchor.all_input_nodes)):
        raise CodegenError("an operand or the result has no elements")


@dataclass(frozen=True)
class MatrixProduct:
    """``root[store] = value(sum over k of a * b)`` for each row ``m`` (None: there is one row),
    column ``n`` and step of the ``batch`` variables, outermost first. ``output`` is the root's
    buffer."""

    a: Load
    b: Load
    value: Expr
    store: MultiIndex
    m: Var | None
    n: Var
    k: Var
    batch: tuple[Var, ...]
    output: Buffer

    @property
    def batch_names(self) -> dict[Var, str]:
        """What the templates call the batch variables."""
        several = len(self.batch) > 1
        return {v: f"batch_{i}" if several else "batch" for i, v in enumerate(self.batch)}

    @property
    def batch_index(self) -> dict[Var, Index]:
        """The batch variables by those names."""
        return {v: named(name, v) for v, name in self.batch_names.items()}

    def place(self, row: Index, column: Index) -> dict[Var, Index]:
        """Batch, row and column as a template has them."""
        rows = {} if self.m is None else {self.m: row}
        return {**self.batch_index, self.n: column, **rows}


def matrix_product(c: Contraction, output: Buffer) -> MatrixProduct:
    """Rows, columns and batch of a contraction; batch axes that the right operand does not have
    become rows where every address stays linear. Raises CodegenError if it is no matrix product."""
    (k,) = c.reduced
    *outer, n = c.coordinates
    a, value, store = c.a, c.value, c.store
    right = expr.free_variables(c.b)
    if outer and outer[-1] in right:
        raise CodegenError(f"{c.anchor.describe()}: operands are not a matrix product")
    shapes = {x.name: x.shape for x in c.buffers} | {output.name: output.shape}
    m: Var | None = outer.pop() if outer else None
    while m is not None and outer and outer[-1] not in right:
        joined = expr.fresh_var(outer[-1].extent * m.extent, "c")
        env = {outer[-1]: Index.of(joined) // m.extent, m: Index.of(joined) % m.extent}
        new_a, new_value = expr.substitute_index(a, env), expr.substitute_index(value, env)
        new_store = tuple(i.substitute(env) for i in store)
        flat = is_flat(new_a, joined, shapes) and is_flat(new_value, joined, shapes)
        if not flat or divides(flatten(new_store, output.shape), joined):
            break
        assert isinstance(new_a, Load)
        a, value, store, m = new_a, new_value, new_store, joined
        outer.pop()
    return MatrixProduct(a, c.b, value, store, m, n, k, tuple(outer), output)


def strides(
    load: Load, buffer: Buffer, row: Var | None, column: Var | None, batch: Mapping[Var, Index]
) -> tuple[Index, Index, Index]:
    """(offset, row stride, column stride) of a load. Raises CodegenError where it has none."""
    linear = address(load, buffer)
    found: list[Index] = []
    for variable in (row, column):
        stride = Index.of(0) if variable is None else linear.coefficient(variable)
        if stride is None or not stride.is_polynomial or stride.variables():
            raise CodegenError(f"{load.buffer} is not read with one stride along {variable}")
        found.append(stride)
    zero = {v: 0 for v in (row, column) if v is not None}
    return linear.substitute(zero).substitute(batch), found[0], found[1]


def named(name: str, like: Var) -> Index:
    """A variable's stand-in with a name that the template chose."""
    return Index.of(Var(name, like.extent))


def dims_of(c: Contraction) -> list[str]:
    """Named dims that a contraction's addresses and sizes use."""
    return sorted(dim.name for dim in _dim_vars(c))


def _dim_vars(c: Contraction) -> set[DimVar]:
    extents = [v.extent for v in (*c.coordinates, *c.reduced)]
    indices = (*c.store, *(s for b in c.buffers for s in b.shape), *extents)
    return {a for i in indices for a in i.atoms() if isinstance(a, DimVar)}


class Epilogue:
    """Prints what happens to a finished sum. Its own names are marked, because the text that it
    goes into is not known here."""

    def __init__(self, c: Contraction, output: Buffer, value: Expr, store: MultiIndex, printer: CPrinter) -> None:
        self.c, self.output, self.value, self.store = c, output, value, store
        self.printer = printer
        self.dims = dims_of(c)

    def text(self, i: Index) -> str:
        """An integer expression."""
        return self.printer.index(i)

    def print(self, total: str, env: Mapping[Var, Index]) -> str:
        """C statements that finish and store one element, as text of a body, which folds lines."""
        found = self.statements(total, env)
        return "\n".join(line for s in found for line in self.printer.statement(s, 0))

    def statements(self, total: str, env: Mapping[Var, Index]) -> tuple[Stmt, ...]:
        """Statements that finish and store one element."""
        value = expr.substitute_index(self.value, env)
        store = tuple(i.substitute(env) for i in self.store)

        def place(node: Expr) -> Expr:
            found = isinstance(node, Local) and node.name == ACCUMULATOR
            return Local(node.dtype, total) if found else node

        nest = Nest(())
        final = nest.bind(expr.transform(value, place))
        statements: list[Stmt] = [*nest.levels[0], Store(self.output.name, store, final)]
        taken = {*(b.name for b in self.c.buffers), self.output.name, *self.dims}
        return rename(tuple(statements), taken, own_name)

    def parameters(self, inputs: Sequence[str], weights: Sequence[str]) -> list[tuple[str, str]]:
        """(parameter, argument) pairs: operands, what the epilogue reads, the output, dims."""
        self.print("0", {v: Index.of(v) for v in self.c.coordinates})  # is an index checked?
        extra = [n.buffer for n in expr.walk(self.value) if isinstance(n, Load)]
        known = {b.name: b for b in self.c.buffers}
        restrict, out = self.printer.restrict, self.output
        pairs: list[tuple[str, str]] = []
        for name in dict.fromkeys((*inputs, *weights, *extra)):
            dtype = known[name].dtype if name in known else self.c.anchor.type.dtype
            pairs.append((f"const {dtype.c_stored} *{restrict} {name}", name))
        pairs.append((f"{out.dtype.c_stored} *{restrict} {out.name}", out.name))
        pairs += [(f"int64_t {dim_name(d)}", dim_name(d)) for d in self.dims]
        if self.printer.uses_error:
            pairs.append(("fx_error *error", "error"))
        return pairs
