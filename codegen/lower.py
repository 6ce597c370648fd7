"""Lower a group to scalar expressions: what one element of its root is, in terms of loads.

In: a :class:`~fxlite.passes.group.Group`. Out: :class:`Lowered` (an expression over the root's loop
variables), or for a group anchored at a matrix product or convolution a :class:`Contraction` that
says which loads are multiplied over which variables and what happens to the sum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fxlite import expr
from fxlite.codegen.kernel_ir import Buffer
from fxlite.errors import CodegenError
from fxlite.expr import Apply, Expr, Load, Local, MultiIndex, Reduction
from fxlite.graph import Node
from fxlite.index import Index, Var, flatten
from fxlite.passes.group import Group, element_of, invert

_RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline "
    "int long register restrict return short signed sizeof static struct switch typedef union "
    "unsigned "
    "void volatile while bool true false main weights workspace error n_threads new delete class "
    "this "
    "template typename namespace operator private public protected using virtual friend "
    "export".split()
)


def buffer_name(node: Node) -> str:
    """Name of a node's value in emitted source: the node's, with C's keywords avoided. Weights are
    named by their path."""
    name = re.sub(r"\W", "_", node.target) if node.op == "get_attr" else node.name
    if name in _RESERVED or name.startswith(("fx_", "_")) or name[0].isdigit():
        return f"v_{name}"
    return name


def buffer_of(node: Node, is_output: bool = False) -> Buffer:
    """A node's value as a kernel parameter."""
    shape = tuple(Index.of(d) for d in node.type.shape)
    return Buffer(buffer_name(node), node.type.dtype, shape, is_output)


@dataclass(frozen=True)
class Lowered:
    """Element ``value`` of the root at the loop variables ``space``; ``buffers`` are read."""

    root: Node
    space: tuple[Var, ...]
    value: Expr
    buffers: tuple[Buffer, ...]


class _Lowering:
    def __init__(self, group: Group, stop: Node | None = None) -> None:
        self.group = group
        self.stop = stop  # a member that is not expanded: read as a Load of itself
        self.memo: dict[tuple[Node, MultiIndex], Expr] = {}
        self.buffers: dict[Node, Buffer] = {}
        self.stopped: list[tuple[MultiIndex, Load]] = []

    def read(self, node: Node, index: MultiIndex) -> Expr:
        key = (node, index)
        found = self.memo.get(key)
        if found is None:
            if node is self.stop:
                found = Load(node.type.dtype, buffer_name(node), index)
                self.stopped.append((index, found))
            elif node in self.group.members:
                found = element_of(node, index, self.read)
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


def _is_number(node: Node) -> bool:
    """True for a constant of rank 0: written into the source as a literal."""
    return node.op == "get_attr" and node.type.rank == 0 and node.graph.owning_module is not None


def lower(group: Group) -> Lowered:
    """The group's root as an expression over its space."""
    state = _Lowering(group)
    index = tuple(Index.of(v) for v in group.space)
    value = state.read(group.root, index)
    return Lowered(group.root, group.space, value, tuple(state.buffers.values()))


#: The finished sum of a contraction, as an epilogue sees it.
ACCUMULATOR = "sum"


@dataclass(frozen=True)
class Contraction:
    """``root[store] = value(sum over reduced of a * b)``.

    ``coordinates`` are the contraction's own output coordinates; ``value`` is the epilogue, an
    expression over them in which the sum is the local :data:`ACCUMULATOR`; ``store`` is the index
    in the root's array. ``a`` and ``b`` are loads (``a`` the input, ``b`` the weight or right
    operand)."""

    root: Node
    anchor: Node
    coordinates: tuple[Var, ...]
    reduced: tuple[Var, ...]
    a: Load
    b: Load
    value: Expr
    store: MultiIndex
    buffers: tuple[Buffer, ...]

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
    state = _Lowering(group, stop=anchor)
    index = tuple(Index.of(v) for v in group.space)
    if group.root is anchor:
        coordinates = tuple(expr.fresh_var(v.extent, "c") for v in group.space)
        store: MultiIndex = tuple(Index.of(c) for c in coordinates)
        epilogue: Expr = Load(anchor.type.dtype, buffer_name(anchor), store)
    else:
        value = state.read(group.root, index)
        ((read_index, _),) = state.stopped
        inverse = invert(read_index, group.space, anchor.type)
        assert inverse is not None
        coordinates, solved = inverse
        epilogue = expr.substitute_index(value, solved)
        store = tuple(i.substitute(solved) for i in index)
    inner = _Lowering(group)
    own = element_of(anchor, tuple(Index.of(c) for c in coordinates), inner.read)
    sums = [n for n in expr.walk(own) if isinstance(n, Reduction)]
    if len(sums) != 1 or sums[0].kind != "sum":
        raise CodegenError(f"{anchor.describe()} is not one sum of products")
    (reduction,) = sums
    factors = reduction.body
    if not isinstance(factors, Apply) or factors.function != "mul":
        raise CodegenError(f"{anchor.describe()} is not a sum of products")
    a, b = factors.args
    if not isinstance(a, Load) or not isinstance(b, Load):
        raise CodegenError(f"{anchor.describe()}: an operand is not one strided access")
    accumulator = Local(reduction.dtype, ACCUMULATOR)

    def finished(node: Expr) -> Expr:
        return accumulator if node is reduction else node

    own_value = expr.transform(own, finished)

    def place(node: Expr) -> Expr:
        if isinstance(node, Load) and node.buffer == buffer_name(anchor):
            return own_value
        return node

    buffers = {b.name: b for b in (*inner.buffers.values(), *state.buffers.values())}
    return Contraction(
        group.root, anchor, coordinates, reduction.variables, a, b, expr.transform(epilogue, place),
        store, tuple(buffers.values()),
    )  # fmt: skip


def address(load: Load, buffer: Buffer) -> Index:
    """Linear element address of a load."""
    return flatten(load.index, buffer.shape)
