"""Lower a group to scalar expressions: what one element of its root is, in terms of loads.

In: a :class:`~fxlite.passes.group.Group`. Out: :class:`Lowered` (an expression over the root's loop
variables), or for a group anchored at a matrix product or convolution a :class:`Contraction` that
says which loads are multiplied over which variables and what happens to the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxlite.base.errors import CodegenError
from fxlite.codegen.kernel.kernel_ir import Buffer
from fxlite.codegen.kernel.names import value_name, weight_name
from fxlite.graph.graph import Node
from fxlite.passes.group import Group, element_of, invert
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, Const, Expr, Load, Local, MultiIndex, Reduction
from fxlite.scalar.index import Index, Var, flatten
from fxlite.types import dtypes


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
    """Element ``value`` of the root at the loop variables ``space``; ``buffers`` are read.
    ``beside`` is the part of it that is the group's, of all its last axis."""

    root: Node
    space: tuple[Var, ...]
    value: Expr
    buffers: tuple[Buffer, ...]
    beside: Expr | None = None


class Lowering:
    """Lowers the values of a group, each once for each index; notes the buffers that it reads."""

    def __init__(self, group: Group, stop: Node | None = None) -> None:
        self.group = group
        self.stop = stop  # a member that is not expanded: read as a Load of itself
        self.memo: dict[tuple[Node, MultiIndex], Expr] = {}
        self.buffers: dict[Node, Buffer] = {}
        self.stopped: list[tuple[MultiIndex, Load]] = []
        self.renamed: dict[Node, str] = {}  # read from the memory of another name

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
    """The value of a node that was noted to be an index: the number of an iteration, and what is
    computed of it and sizes alone."""
    return node._meta.get("index") if node._meta is not None else None


def _is_number(node: Node) -> bool:
    """True for a constant of rank 0: written into the source as a literal."""
    return node.op == "get_attr" and node.type.rank == 0 and node.graph.owning_module is not None


def lower(group: Group) -> Lowered:
    """The group's root as an expression over its space."""
    state = Lowering(group)
    if group.root in group.taken:  # it is stored over what it is made of
        state.renamed[group.taken[group.root]] = buffer_name(group.root)
    value = state.read(group.root, group.index)
    beside = None
    if group.beside is not None:
        sizes = group.beside.type.shape
        row = tuple(Index.of(0) if d == 1 else i for i, d in zip(group.index, sizes, strict=True))
        beside = state.read(group.beside, row)
    return Lowered(group.root, group.space, value, tuple(state.buffers.values()), beside)


#: The finished sum of a contraction, as an epilogue sees it.
ACCUMULATOR = "sum"


@dataclass(frozen=True)
class Contraction:
    """``root[store] = value(anchor's element)``. The anchor is what a template computes: a sum of
    products of two operands, or attention.

    ``coordinates`` are the anchor's own output coordinates, ``reduced`` the variables it sums over;
    ``value`` is the epilogue, an expression over the coordinates in which the anchor's element is
    the local :data:`ACCUMULATOR`; ``store`` is the index in the root's array. ``operands`` are
    loads: of a product the input and the weight or right operand."""

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
    accumulator = Local(reduction.dtype, ACCUMULATOR)
    own_value = expr.transform(own, lambda n: accumulator if n is reduction else n)
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
    """Lower a group anchored at scaled_dot_product_attention: ``operands`` are query, key, value
    and the mask, if there is one, at the element that feature and key (``reduced``, in this order)
    and the output's coordinates need. Raises CodegenError if an operand is not one strided
    access."""
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
        inner.buffers[node] = buffer_of(node)  # a number, too, which loops would have as a literal
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
    """What stands around a template's anchor: the anchor's coordinates, the root's element in terms
    of them (in which the anchor is a load of itself), its place, and what is read for it."""
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
    """The epilogue with the anchor's element in place; 0 where it reads none (triu)."""
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
    """The integer that ``x - zero_point`` in int32, or 0 outside of x, is made of: a template knows
    the zero point."""
    if factor.dtype is not dtypes.int32:
        return factor
    if isinstance(factor, Apply) and factor.function == "where":
        factor = factor.args[1]
    if isinstance(factor, Apply) and factor.function == "sub" and isinstance(factor.args[1], Const):
        factor = factor.args[0]
    return factor.operand if isinstance(factor, Cast) else factor


def _without_scale(factor: Expr, anchor: Node) -> Expr:
    """The load of the integers that a weight with a scale is made of: a template knows the rest."""
    if anchor.target.name != "linear_weight_only" or isinstance(factor, Load):
        return factor
    weight = buffer_name(anchor.args[1])
    loads = (n for n in expr.walk(factor) if isinstance(n, Load) and n.buffer == weight)
    return next(loads, factor)


def _as_load(value: Expr, anchor: Node, may_pad: bool = False) -> Load:
    """The operand of a template; only those of convolutions read zeros outside (a guard). Of bf16
    beside float32 it is the bf16, which templates widen."""
    if isinstance(value, Cast) and value.operand.dtype is dtypes.bfloat16:
        value = value.operand
    if not isinstance(value, Load) or (value.guard is not None and not may_pad):
        raise CodegenError(f"{anchor.describe()}: an operand is not one strided access")
    return value


def address(load: Load, buffer: Buffer) -> Index:
    """Linear element address of a load."""
    return flatten(load.index, buffer.shape)
