"""Lower a group to scalar expressions: the value of one element of its root, in terms of loads.

In: a :class:`~fxlite.passes.group.Group`. Out: :class:`Lowered` (an expression over the root's loop
variables), or for a group anchored at a matrix product or convolution a :class:`Contraction`, which says
which loads are multiplied, over which variables the products are summed, and what happens to the sum.

From a contraction the templates of C and CUDA make a :class:`MatrixProduct` (which loops are rows, columns
and batch), the strides of its operands, and an :class:`Epilogue` that prints what happens to a finished
sum, with the variable names that a template chooses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fxlite.base.errors import CodegenError
from fxlite.codegen.kernel.kernel_ir import Buffer, Stmt, Store
from fxlite.codegen.kernel.loops import divides, is_flat, rename, spread
from fxlite.codegen.kernel.names import dim_name, own_name, value_name, weight_name
from fxlite.codegen.kernel.nest import Nest
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.graph.graph import Node
from fxlite.passes.group import Group, element_of, invert
from fxlite.passes.rewrite.rule import is_call
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, Const, Expr, Load, Local, MultiIndex, Reduction
from fxlite.scalar.index import DimVar, Given, Index, Value, Var, flatten
from fxlite.types import dtypes

#: Stands for the number of elements that are needed of a line, in the arguments of a routine that is called.
NEEDED = "needed"


def buffer_name(node: Node) -> str:
    """Name of a node's value in emitted source, marked (:mod:`fxlite.codegen.kernel.names`).
    Weights are named by their path."""
    return weight_name(node.target) if node.op == "get_attr" else value_name(node.name)


def buffer_of(node: Node, is_output: bool = False) -> Buffer:
    """A node's value as a kernel parameter."""
    shape = tuple(Index.of(d) for d in node.type.shape)
    return Buffer(buffer_name(node), node.type.dtype, shape, is_output)


@dataclass(frozen=True)
class Lowered:
    """Element ``value`` of the root at the loop variables ``space``; ``buffers`` are read. ``beside`` is a part
    of it that is also stored: the group's second value, one for the whole last axis."""

    root: Node
    space: tuple[Var, ...]
    value: Expr
    buffers: tuple[Buffer, ...]
    beside: Expr | None = None


class Lowering:
    """Lowers the values of a group, each once for each index, and collects the buffers that it reads."""

    def __init__(self, group: Group, stop: Node | None = None) -> None:
        self.group = group
        self.stop = stop  # a member that is not expanded, but read as a Load of itself
        self.memo: dict[tuple[Node, MultiIndex], Expr] = {}
        self.buffers: dict[Node, Buffer] = {}
        self.stopped: list[tuple[MultiIndex, Load]] = []
        self.renamed: dict[Node, str] = {}  # nodes that are read from memory with another name

    def read_bounds(self) -> None:
        """Collect the numbers between which the elements lie that are needed."""
        bounds = expr.run_time_values(tuple(itertools.chain.from_iterable(self.group.needed.values())))
        names = {n.buffer for value in bounds for n in expr.walk(value.expr) if isinstance(n, Load)}
        self.buffers |= {node: buffer_of(node) for node in self.group.inputs if buffer_name(node) in names}

    def read(self, node: Node, index: MultiIndex) -> Expr:
        key = (node, index)
        found = self.memo.get(key)
        if found is None:
            if node is self.stop:
                found = Load(node.type.dtype, buffer_name(node), index)
                self.stopped.append((index, found))
            elif (known := index_of(node)) is not None:
                found = expr.index_value(known)
            elif node in self.renamed:
                found = Load(node.type.dtype, self.renamed[node], index)
            elif node in self.group.members:
                found = expr.rounded(element_of(node, index, self.read))
                if _is_weight(node) and isinstance(found, Apply):
                    found = expr.apply("exp_weight", *found.args)
                expr.with_label(found, buffer_name(node))
            elif _is_number(node):
                owner = node.graph.owning_module
                assert owner is not None
                found = expr.const(owner.get_attribute(node.target).item(), node.type.dtype)
            else:
                self.buffers[node] = buffer_of(node)
                found = Load(node.type.dtype, buffer_name(node), index)
            self.memo[key] = found
        return found


def index_of(node: Node) -> Index | None:
    """The value of a node that was marked as an index: the number of an iteration, or a value computed only
    from it and sizes."""
    return node._meta.get("index") if node._meta is not None else None


def _is_weight(node: Node) -> bool:
    """Whether a node is the numerator of a softmax, e^(x - the maximum of x)."""
    if not is_call(node, "exp") or not is_call(difference := node.args[0], "sub"):
        return False
    x, most = difference.args
    return is_call(most, "max") and most.args[0] is x and not node.type.dtype.is_half


def _is_number(node: Node) -> bool:
    """True for a constant of rank 0: written into the source as a literal."""
    return node.op == "get_attr" and node.type.rank == 0 and node.graph.owning_module is not None


def lower(group: Group) -> Lowered:
    """The group's root as an expression over its space."""
    state = Lowering(group)
    if group.root in group.taken:  # it is stored over one of its operands
        state.renamed[group.taken[group.root]] = buffer_name(group.root)
    value = state.read(group.root, group.index)
    beside = None
    if group.beside is not None:
        sizes = group.beside.type.shape
        row = tuple(Index.of(0) if d == 1 else i for i, d in zip(group.index, sizes, strict=True))
        beside = state.read(group.beside, row)
    state.read_bounds()
    return Lowered(group.root, group.space, value, tuple(state.buffers.values()), beside)


#: The finished sum of a contraction, as an epilogue sees it.
ACCUMULATOR = "sum"


@dataclass(frozen=True)
class Contraction:
    """``root[store] = value(anchor's element)``. The anchor is what a template computes: a sum of products of
    two operands, or attention.

    ``coordinates`` are the anchor's own output coordinates, ``reduced`` the variables it sums over.
    ``value`` is the epilogue, an expression over the coordinates in which the anchor's element is the local
    :data:`ACCUMULATOR`; ``store`` is the index in the root's array. ``operands`` are loads: for a product
    the input and the weight or right operand."""

    root: Node
    anchor: Node
    coordinates: tuple[Var, ...]
    reduced: tuple[Var, ...]
    operands: tuple[Load, ...]
    value: Expr
    store: MultiIndex
    buffers: tuple[Buffer, ...]

    @property
    def a(self) -> Load:
        """The first operand."""
        return self.operands[0]

    @property
    def b(self) -> Load:
        """The second operand."""
        return self.operands[1]

    def buffer(self, name: str) -> Buffer:
        for found in self.buffers:
            if found.name == name:
                return found
        raise CodegenError(f"no buffer {name!r} in the group of {self.root.name}")


def lower_contraction(group: Group) -> Contraction:
    """Lower a template group. Raises CodegenError if its anchor is not a sum of products of two
    loads."""
    anchor = group.anchor
    assert anchor is not None
    coordinates, epilogue, store, outer = _around(group, anchor)
    inner = Lowering(group)
    own = element_of(anchor, tuple(Index.of(c) for c in coordinates), inner.read)
    sums = [n for n in expr.walk(own) if isinstance(n, Reduction)]
    if len(sums) != 1 or sums[0].kind != "sum":
        raise CodegenError(f"{anchor.describe()} is not one sum of products")
    (reduction,) = sums
    factors = reduction.body
    if not isinstance(factors, Apply) or factors.function != "mul":
        raise CodegenError(f"{anchor.describe()} is not a sum of products")
    may_pad = "conv" in anchor.target.name
    a, b = (_as_load(_without_scale(_without_zero_point(factor), anchor), anchor, may_pad) for factor in factors.args)
    own_value = expr.replaced(own, reduction, Local(reduction.dtype, ACCUMULATOR))
    return Contraction(
        group.root,
        anchor,
        coordinates,
        reduction.variables,
        (a, b),
        _placed(epilogue, anchor, own_value),
        store,
        _buffers(inner, outer),
    )


def lower_attention(group: Group) -> Contraction:
    """Lower a group anchored at scaled_dot_product_attention. ``operands`` are query, key, value and the
    mask, if there is one, at the element for the feature and key (``reduced``, in this order) and the
    output's coordinates. Raises CodegenError if an operand is not one strided access."""
    anchor = group.anchor
    assert anchor is not None
    coordinates, epilogue, store, outer = _around(group, anchor)
    inner = Lowering(group)
    query, key, value, *mask = anchor.args
    *batch, row, column = coordinates
    feature = expr.fresh_var(query.type.shape[-1], "c")
    position = expr.fresh_var(key.type.shape[-2], "c")

    def operand(node: Node, last: Var, last_but_one: Var) -> Load:
        own = (*batch, last_but_one, last)[-node.type.rank or len(coordinates) :]
        index = tuple(Index.of(0 if d == 1 else v) for v, d in zip(own, node.type.shape))
        if node in group.members:
            return _as_load(inner.read(node, index), anchor)
        inner.buffers[node] = buffer_of(node)  # also for a number, which loops would write as a literal
        return Load(node.type.dtype, buffer_name(node), index)

    loads = [
        operand(query, feature, row),
        operand(key, feature, position),
        operand(value, column, position),
        *(operand(m, position, row) for m in mask),
    ]
    accumulator = Local(anchor.type.dtype.compute, ACCUMULATOR)
    return Contraction(
        group.root,
        anchor,
        coordinates,
        (feature, position),
        tuple(loads),
        _placed(epilogue, anchor, accumulator),
        store,
        _buffers(inner, outer),
    )


def _around(group: Group, anchor: Node) -> tuple[tuple[Var, ...], Expr, MultiIndex, dict[str, Buffer]]:
    """The surroundings of a template's anchor: the anchor's coordinates, the root's element in terms of them (in
    which the anchor is a load of itself), its place, and the buffers that this reads."""
    if group.root is anchor:
        coordinates = tuple(expr.fresh_var(v.extent, "c") for v in group.space)
        store: MultiIndex = tuple(Index.of(c) for c in coordinates)
        return coordinates, Load(anchor.type.dtype, buffer_name(anchor), store), store, {}
    state = Lowering(group, stop=anchor)
    index = group.index
    value = state.read(group.root, index)
    ((read_index, _),) = state.stopped
    inverse = invert(read_index, group.space, anchor.type)
    assert inverse is not None
    coordinates, solved = inverse
    store = tuple(i.substitute(solved) for i in index)
    read = {b.name: b for b in state.buffers.values()}
    return coordinates, expr.substitute_index(value, solved), store, read


def _placed(epilogue: Expr, anchor: Node, value: Expr) -> Expr:
    """The epilogue with the anchor's element inserted; 0 if it reads none (triu)."""
    name = buffer_name(anchor)

    def place(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.buffer != name:
            return node
        if node.guard is None:
            return value
        return expr.where(node.guard, value, expr.const(0, value.dtype))

    return expr.transform(epilogue, place)


def _buffers(inner: Lowering, outer: dict[str, Buffer]) -> tuple[Buffer, ...]:
    return tuple(({b.name: b for b in inner.buffers.values()} | outer).values())


def _without_zero_point(factor: Expr) -> Expr:
    """The integer x in ``x - zero_point`` in int32, or 0 outside x: a template knows the zero point."""
    if factor.dtype is not dtypes.int32:
        return factor
    if isinstance(factor, Apply) and factor.function == "where":
        factor = factor.args[1]
    if isinstance(factor, Apply) and factor.function == "sub" and isinstance(factor.args[1], Const):
        factor = factor.args[0]
    return factor.operand if isinstance(factor, Cast) else factor


def _without_scale(factor: Expr, anchor: Node) -> Expr:
    """The load of the integers in a weight with a scale; a template knows the rest."""
    if anchor.target.name != "linear_weight_only" or isinstance(factor, Load):
        return factor
    weight = buffer_name(anchor.args[1])
    loads = (n for n in expr.walk(factor) if isinstance(n, Load) and n.buffer == weight)
    return next(loads, factor)


def _as_load(value: Expr, anchor: Node, may_pad: bool = False) -> Load:
    """The operand of a template. Only those of convolutions read zeros outside (a guard). For bf16 next to
    float32 it is the bf16, which templates widen."""
    if isinstance(value, Cast) and value.operand.dtype is dtypes.bfloat16:
        value = value.operand
    if not isinstance(value, Load) or (value.guard is not None and not may_pad):
        raise CodegenError(f"{anchor.describe()}: an operand is not one strided access")
    return value


def address(load: Load, buffer: Buffer) -> Index:
    """Linear element address of a load."""
    return flatten(load.index, buffer.shape)


# -- what templates make of a contraction ----------------------------------------------------------
def is_matrix_product(node: Node) -> bool:
    """True for products of two float matrices (or batches of them) of one dtype."""
    return bool(node.target.is_matrix_product) and not declines_product(node)


def declines_product(node: Node) -> str:
    """Why a product is not one of two float matrices (or batches of them) of one dtype; empty if it is."""
    if reason := declines_types(node):
        return reason
    vectors = [str(a) for a in node.args[:2] if not isinstance(a, Node) or a.type.rank < 2]
    return f"{' and '.join(vectors)} is not a matrix" if vectors else ""


def declines_types(node: Node) -> str:
    """Why a node is not one of float32 or float64 throughout; empty if it is."""
    found = sorted({n.type.dtype.name for n in (node, *node.all_input_nodes)})
    if len(found) > 1:
        return f"operands and result are {', '.join(found[:-1])} and {found[-1]}, and must be of one dtype"
    return "" if found[0] in ("f32", "f64") else f"it takes f32 or f64, not {found[0]}"


def require_some(group: Group) -> None:
    """Raise CodegenError for a group whose anchor has operands without elements, or whose result has none:
    loops handle these simply, while templates divide by numbers of tiles."""
    assert group.anchor is not None
    if any(node.type.size == 0 for node in (group.root, *group.anchor.all_input_nodes)):
        raise CodegenError("an operand or the result has no elements")


@dataclass(frozen=True)
class MatrixProduct:
    """``root[store] = value(sum over k of a * b)`` for each row ``m`` (None if there is one row), column ``n``
    and combination of the ``batch`` variables, outermost first. ``output`` is the root's buffer."""

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
        """The names of the batch variables in templates."""
        several = len(self.batch) > 1
        return {v: f"batch_{i}" if several else "batch" for i, v in enumerate(self.batch)}

    @property
    def batch_index(self) -> dict[Var, Index]:
        """The batch variables by those names."""
        return {v: named(name, v) for v, name in self.batch_names.items()}

    def place(self, row: Index, column: Index) -> dict[Var, Index]:
        """Batch, row and column in terms of a template's variables."""
        rows = {} if self.m is None else {self.m: row}
        return {**self.batch_index, self.n: column, **rows}


def matrix_product(c: Contraction, output: Buffer) -> MatrixProduct:
    """Rows, columns and batch of a contraction; batch axes that the right operand does not have become rows
    if every address stays linear, and rows that are not equally spaced become several axes. For a matrix and a vector,
    the matrix's rows are the columns here, and the vector is the only row of the left operand. Raises CodegenError if
    it is not a matrix product."""
    (k,) = c.reduced
    *outer, n = c.coordinates
    a, b, value, store = c.a, c.b, c.value, c.store
    right = expr.free_variables(b)
    if n not in right:
        return MatrixProduct(b, a, value, store, None, n, k, tuple(outer), output)
    if outer and outer[-1] in right:
        raise CodegenError(f"{c.anchor.describe()}: operands are not a matrix product")
    shapes = {x.name: x.shape for x in c.buffers} | {output.name: output.shape}
    m: Var | None = outer.pop() if outer else None
    if m is not None and not is_flat(a, m, shapes):  # rows of several axes, which are not equally spaced
        parts, both, store = spread((m,), Apply(value.dtype, "pair", (a, value)), store, least=2)
        new_a, value = both.children
        assert isinstance(new_a, Load)
        a, m = new_a, parts[-1]
        outer += parts[:-1]
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
    return MatrixProduct(a, b, value, store, m, n, k, tuple(outer), output)


def strides(
    load: Load, buffer: Buffer, row: Var | None, column: Var | None, batch: Mapping[Var, Index]
) -> tuple[Index, Index, Index]:
    """(offset, row stride, column stride) of a load. Raises CodegenError if it has none."""
    linear = address(load, buffer)
    found: list[Index] = []
    for variable in (row, column):
        stride = Index.of(0) if variable is None else linear.coefficient(variable)
        if stride is None or any(isinstance(part, (Var, Value)) for part in stride.atoms()):
            raise CodegenError(f"{load.buffer} is not read with one stride along {variable}")
        found.append(stride)
    zero = {v: 0 for v in (row, column) if v is not None}
    return linear.substitute(zero).substitute(batch), found[0], found[1]


def named(name: str, like: Var) -> Index:
    """An index that replaces a variable, with a name chosen by the template."""
    return Index.of(Var(name, like.extent))


def dims_of(indices: Iterable[Index]) -> list[str]:
    """The named dims that addresses and sizes use."""
    return sorted({a.name for i in indices for a in i.atoms() if isinstance(a, DimVar)})


class Epilogue:
    """Prints what happens to a finished sum. Its own names are marked, because the text around it is not known
    here."""

    def __init__(self, c: Contraction, output: Buffer, value: Expr, store: MultiIndex, printer: CPrinter) -> None:
        self.c, self.output, self.value, self.store = c, output, value, store
        self.printer = printer
        extents = (v.extent for v in (*c.coordinates, *c.reduced))
        self.dims = dims_of((*c.store, *(s for b in c.buffers for s in b.shape), *extents))
        read = (i.variables() for i in store)
        free = frozenset[Var]().union(*read, *map(expr.free_variables, (value, *c.operands)))
        #: The numbers of the iterations of the program's loops around it.
        self.iterations = sorted(v.name for v in free if isinstance(v, Given))

    def text(self, i: Index) -> str:
        """An integer expression."""
        return self.printer.index(i)

    def print(self, total: str, env: Mapping[Var, Index]) -> str:
        """C statements that finish and store one element, as text for a body, which will wrap its lines."""
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
        taken = {*(b.name for b in self.c.buffers), self.output.name, *self.dims, *self.iterations}
        return rename(tuple(statements), taken, own_name)

    def parameters(self, inputs: Sequence[str], weights: Sequence[str]) -> list[tuple[str, str]]:
        """(parameter, argument) pairs: operands, what the epilogue reads, the output, dims."""
        self.print("0", {v: Index.of(v) for v in self.c.coordinates})  # finds out whether an index is checked
        extra = [n.buffer for n in expr.walk(self.value) if isinstance(n, Load)]
        known = {b.name: b for b in self.c.buffers}
        restrict, out = self.printer.restrict, self.output
        pairs: list[tuple[str, str]] = []
        for name in dict.fromkeys((*inputs, *weights, *extra)):
            dtype = known[name].dtype if name in known else self.c.anchor.type.dtype
            pairs.append((f"const {dtype.c_stored} *{restrict} {name}", name))
        pairs.append((f"{out.dtype.c_stored} *{restrict} {out.name}", out.name))
        pairs += [(f"int64_t {name}", name) for name in (*map(dim_name, self.dims), *self.iterations)]
        if self.printer.uses_error:
            pairs.append(("fx_error *error", "error"))
        return pairs
