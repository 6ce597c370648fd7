"""Writing a part of an array over what stands there: the loops of a group whose root is a
slice_update or index_update in the memory of its operand.

In: such a group. Out: a kernel that touches the part alone. It reads the array where it stores.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from fxlite.codegen.kernel.kernel_ir import Buffer, If, Kernel, Let, Stmt, fresh_local
from fxlite.codegen.kernel.loops import collapse
from fxlite.codegen.kernel.lower import Lowering, buffer_of
from fxlite.codegen.kernel.nest import Nest
from fxlite.codegen.kernel.schedule import fill, finish, schedule
from fxlite.graph.graph import Node
from fxlite.ops.indexing import parts_of_update
from fxlite.ops.view import fill_value
from fxlite.passes.group import Group
from fxlite.scalar import expr
from fxlite.scalar.expr import CheckedIndex, Expr
from fxlite.scalar.index import Index, Value, Var
from fxlite.types import dtypes


def update(group: Group, name: str) -> Kernel:
    """The kernel of the group."""
    root = group.root
    output = buffer_of(root, is_output=True)
    state = Lowering(group)
    state.renamed = dict.fromkeys(group.taken.values(), output.name)
    bound = root.arguments
    positions = iter(bound.get("positions", ()))
    space: list[Var] = []
    store: list[Index] = []
    before: list[Stmt] = []
    conditions: list[Expr] = []
    for axis, part in enumerate(parts_of_update(bound)):
        size = output.shape[axis]
        if isinstance(part, tuple):
            first, _, length, step = part
            variable = expr.fresh_var(length, "v")
            space.append(variable)
            store.append(Index.of(0 if variable.extent.constant == 1 else variable) * step + Index.of(first))
            continue
        value = _position(state, next(positions)) if part is None else expr.index_value(Index.of(part))
        known = expr.as_index(value)
        if known is not None and Index.of(0) <= known and known < size:
            store.append(known)
            continue
        if known is not None and known.constant is not None and size.constant is not None:
            store.append(Index.of(known.constant % size.constant))
            continue
        text = f"{root.target.name} on axis {axis}"
        local = fresh_local(dtypes.int64, "_t")
        before.append(Let(local.name, CheckedIndex(dtypes.int64, value, size, text)))
        conditions.append(expr.apply("ge", local, expr.const(0, dtypes.int64)))
        store.append(Index.of(Value(local)))
    values = bound["values"]
    if isinstance(values, Node):
        offset = len(space) - values.type.rank
        place = tuple(
            Index.of(0) if _is_one(d) else Index.of(space[offset + axis]) for axis, d in enumerate(values.type.shape)
        )
        value = state.read(values, place)
    else:
        value = expr.const(fill_value(values, root.type.dtype), root.type.dtype)
    buffers: tuple[Buffer, ...] = (*state.buffers.values(), output)
    shapes = {b.name: b.shape for b in buffers}
    if any(v.extent.constant == 0 for v in space):
        return finish(name, buffers, [], group)
    whole = (tuple(space), value, tuple(store))
    loops, value, target = collapse(*whole, shapes, output.name) if not before else whole
    nest = Nest((), shapes=shapes)
    fill(nest, loops, value, target, output.name)
    inner = nest.levels[0]
    if conditions:
        inner = [If(reduce(expr.both, conditions), tuple(inner))]
    return finish(name, buffers, [*before, *inner], group)


def _position(state: Lowering, value: Any) -> Expr:
    if isinstance(value, Node):
        return expr.cast(state.read(value, ()), dtypes.int64)
    return expr.const(value, dtypes.int64)


def _is_one(dim: Any) -> bool:
    return type(dim) is int and dim == 1


def loops(group: Group, name: str) -> Kernel:
    """The kernel of a group without a template, which may store over an operand."""
    is_part = group.taken and group.root.target.writes_part
    return update(group, name) if is_part else schedule(group, name)
