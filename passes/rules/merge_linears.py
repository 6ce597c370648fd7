"""Merge products that share an operand into one larger product.

:func:`merge_linears`: products of one value with several weights become one product with the
weights side by side, followed by slices of its result ("QKV merge", horizontal fusion). Before::

    linear: f32[B,T,64] = ops.linear(x, self.query.weight, self.query.bias)
    linear_1: f32[B,T,64] = ops.linear(x, self.key.weight, self.key.bias)

After::

    # weights: query_key.weight f32[128,64]
    query_key: f32[B,T,128] = ops.linear(x, self.query_key_weight, self.query_key_bias)
    slice: f32[B,T,64] = ops.slice(query_key, axis=2, stop=64)
    slice_1: f32[B,T,64] = ops.slice(query_key, axis=2, start=64)

One larger product reads ``x`` once, fills its tiles better and is one parallel region instead of
several. The slices are views, which cost nothing where they are read in place.

:func:`merge_steps`: in an unrolled loop, ``x[t] @ weight`` for every ``t`` becomes one product of
all of ``x``, and each step reads its part of the result. Before::

    select: f32[B,8] = ops.select(x, axis=0, index=0)
    linear: f32[B,32] = ops.linear(select, self.w_ih, self.b_ih)
    select_1: f32[B,8] = ops.select(x, axis=0, index=1)
    linear_1: f32[B,32] = ops.linear(select_1, self.w_ih, self.b_ih)

After::

    linear_steps: f32[2,B,32] = ops.linear(x, self.w_ih, self.b_ih)
    select: f32[B,32] = ops.select(linear_steps, axis=0, index=0)
    select_1: f32[B,32] = ops.select(linear_steps, axis=0, index=1)

The weight is read once instead of once per step, and many rows fill the tiles of a product that one
row leaves empty. Runtimes with an LSTM layer do this internally; this pass does it for cells that a
program calls in a loop of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.location import Scope
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Parameter
from fxlite.passes.base import graph_pass, refuse, unique_attribute
from fxlite.passes.derived import derive
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

#: Products of one value and one form, in graph order.
Parallel = list[Node]


@graph_pass(exactness="allclose", inside=False)
def merge_linears(gm: GraphModule) -> None:
    """Merge linear layers (and matmuls) that multiply the same value with weights of their own.

    Costs decide, counted in values per row of ``x``. Each product except one saves reading a row of
    it. A product that only elementwise ops read, or that is a result of the program, loses by merging:
    on its own it is finished while it is in registers, or stored directly in its place, but a slice is
    written and read once more. So ``tanh(x @ a) * (x @ b)`` stays as it is; the reason is in the
    ledger. Weights that other nodes read are refused, too, because they would be stored twice. The
    merged weights no longer follow the old ones, so merge after training. Run it after decompose, which
    shows what is elementwise."""
    readers: Counter[str] = Counter()
    for weight in gm.graph.find_nodes(op="get_attr"):
        readers[weight.target] += len(weight.users)
    for products in _parallel(gm):
        chosen = [p for p in products if not _refused(gm, p, readers)]
        if len(chosen) < 2:
            continue
        inputs = chosen[0].args[0].type.shape[-1]
        lost = sum(2 * _columns(p) for p in chosen if finished_by_reader(p))
        if lost < (len(chosen) - 1) * inputs:
            _merge(gm, chosen)
            continue
        for product in chosen:
            if finished_by_reader(product):
                reason = (
                    f"merging {', '.join(p.name for p in chosen[:4])} would save reading "
                    f"{(len(chosen) - 1) * inputs} values per row of {chosen[0].args[0].name}, but "
                    f"write and read {lost} more, as {reader_text(product)}"
                )
                refuse(gm, "merge_linears", product, reason, chosen)
                break


class _Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 4)
        self.key = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.query(x) @ self.key(x).T


class _Gated(_Heads):
    def forward(self, x: Any) -> Any:
        return np.tanh(self.query(x)) * self.key(x)


class _ReadTwice(_Heads):
    def forward(self, x: Any) -> Any:
        return self.query(x) @ self.key(x).T @ self.query(x * 2)


merge_linears.example(_Heads, "queries and keys by one product", x="f32[B,8]")
merge_linears.counterexample(_Gated, "tanh and the product are computed while the sums are in registers", x="f32[B,8]")
merge_linears.counterexample(_ReadTwice, "query's weight would be stored twice", x="f32[B,8]")


def _parallel(gm: GraphModule) -> list[Parallel]:
    """Groups of two or more products of one value with different weights."""
    found: dict[Any, Parallel] = {}
    for node in gm.graph.nodes:
        if node.op != "call_function" or not node.target.is_matrix_product:
            continue
        x, weight = node.args[:2]
        bias = node.arguments.get("bias")
        parts = [weight, *([bias] if bias is not None else [])]
        if not all(isinstance(p, Node) and p.op == "get_attr" for p in parts) or x is weight:
            continue
        if not isinstance(node.type, TensorType) or weight.type.rank != 2:
            continue
        if type(x.type.shape[-1]) is not int or type(node.type.shape[-1]) is not int:
            continue
        dtypes = (node.type.dtype.name, *(p.type.dtype.name for p in parts))
        found.setdefault((x, node.target.name, dtypes), []).append(node)
    return [products for products in found.values() if len(products) > 1]


def _columns(product: Node) -> int:
    """Number of columns of a product."""
    columns: int = product.type.shape[-1]
    return columns


def _refused(gm: GraphModule, product: Node, readers: Counter[str]) -> bool:
    """Whether the product's weight or bias has other readers, which is recorded in the ledger."""
    for read in product.all_input_nodes[1:]:
        if readers[read.target] > 1:
            reason = (
                f"{read.target} is read {readers[read.target]} times; merged with another weight "
                f"it would be stored twice ({read.type.nbytes:,} bytes more)"
            )
            refuse(gm, "merge_linears", product, reason, [product])
            return True
    return False


def _last_view(product: Node) -> Node:
    """The last of a chain of views, each the only reader of the one before, that starts at a product."""
    node = product
    while len(node.users) == 1:
        (reader,) = node.users
        if reader.op != "call_function" or reader.target.kind != "view":
            break
        node = reader
    return node


def finished_by_reader(product: Node) -> bool:
    """Whether the product is read only by elementwise ops, which then are its epilogue, or is a result
    of the program; views in between do not count."""
    readers = _last_view(product).users
    if any(reader.op == "output" for reader in readers):
        return True
    return all(getattr(reader.target, "kind", "") == "pointwise" for reader in readers)


def reader_text(product: Node) -> str:
    """Why a product for which :func:`finished_by_reader` is true loses by merging."""
    (reader, *_) = _last_view(product).users
    if reader.op == "output":
        return f"{product.name} is a result of the program"
    return f"{reader.name} is computed while the sums of {product.name} are in registers"


def _merge(gm: GraphModule, products: Parallel) -> None:
    """Insert one product before the first, and replace all by slices of it."""
    graph, first = gm.graph, products[0]
    is_linear = first.target.name == "linear"
    weights = [p.args[1] for p in products]
    biases = [p.arguments["bias"] for p in products] if first.arguments.get("bias") else []
    name = merged_name([w.target for w in weights])
    with graph.inserting_before(first), graph.with_origin(first):
        graph.current_origin = (_merged_scope(products), first.loc)
        operands = [_side_by_side(gm, weights, f"{name}_weight", axis=0 if is_linear else 1)]
        if biases:
            operands.append(_side_by_side(gm, biases, f"{name}_bias", axis=0))
        merged = graph.call_function(first.target, (first.args[0], *operands), name=name.rpartition(".")[2])
    start = 0
    for product in products:
        stop = start + _columns(product)
        with graph.inserting_before(product), graph.with_origin(product):
            bounds = {"axis": product.type.rank - 1, "start": start, "stop": stop}
            part = graph.call_function("slice", (merged,), bounds)
        product.replace_all_uses_with(part)
        graph.erase_node(product)
        start = stop
    for read in (*weights, *biases):
        if not read.users:
            graph.erase_node(read)


def _side_by_side(gm: GraphModule, reads: list[Node], wish: str, axis: int) -> Node:
    """A new weight that holds the old ones along ``axis``, read at the insertion point."""
    path = unique_attribute(gm, wish)
    paths = [read.target for read in reads]
    gm.set_attribute(path, Parameter(*derive(gm, [path], side_by_side, paths, _apart, axis=axis)))
    return gm.graph.get_attr(path)


def side_by_side(*weights: Any, axis: int) -> Any:
    """Weights joined along an axis."""
    return np.concatenate(weights, axis)


def _apart(merged: Any, shapes: Any, *, axis: int) -> Any:
    """The weights that were joined."""
    return np.split(merged, np.cumsum([shape[axis] for shape in shapes])[:-1], axis)


def _merged_scope(products: Parallel) -> Scope | None:
    """The scope of the merged product in the tree of modules: beside those it replaces."""
    scopes = [p.scope for p in products if p.scope is not None]
    if len({scope.path for scope in scopes}) < len(products):
        return products[0].scope
    return Scope(merged_name([scope.path for scope in scopes]), scopes[0].class_name)


def merged_name(paths: list[str]) -> str:
    """``attention.query_key`` for ``attention.query.weight`` and ``attention.key.weight``."""
    stems = [path.removesuffix(".weight") for path in paths]
    names = [stem.rpartition(".")[2] for stem in stems]
    joined = "_".join(names) if len(names) <= 4 else f"{names[0]}_to_{names[-1]}"
    parent = stems[0].rpartition(".")[0]
    return f"{parent}.{joined}" if parent else joined


# -- steps of a loop -------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Step:
    """A product of a part of ``source``: the positions ``start`` to ``stop`` along ``axis``."""

    product: Node
    part: Node
    source: Node
    axis: int
    start: int
    stop: int


@graph_pass(exactness="allclose", inside=False)
def merge_steps(gm: GraphModule) -> None:
    """Merge products of selects or slices of one value with the same weight (linear layers and
    matmuls) into one product of the value.

    The parts must cover the value without overlap; otherwise more would be computed than before. A
    product that only elementwise ops read is finished while its sums are in registers. Merging loses
    that, which costs two values per column for each row, and saves reading the weight, a column of
    which is read once per product. So large batches stay as they are; the reason is in the ledger. Run
    it after decompose, which shows what is elementwise."""
    for steps in _families(gm):
        extent = steps[0].source.type.shape[steps[0].axis]
        if _covered(steps) != extent:
            read = sum(step.stop - step.start for step in steps)
            what = f"{read} of {extent} positions along axis {steps[0].axis}"
            reason = f"the products read {what} of {steps[0].source.name}, not each of them once"
            refuse(gm, "merge_steps", steps[0].product, reason, [s.product for s in steps])
            continue
        finished = [s for s in steps if finished_by_reader(s.product) and not _is_addend(s.product)]
        rows = sum(shapes.product(s.product.type.shape[:-1]) for s in finished)
        saved = (len(steps) - 1) * steps[0].source.type.shape[-1]
        if finished and not shapes.at_least(saved, 2 * rows + 1):
            reason = (
                f"merging {len(steps)} products would save reading {saved} values for each column "
                f"of the weight, but write and read {shapes.normalize(2 * rows)}, as "
                f"{reader_text(finished[0].product)}"
            )
            refuse(gm, "merge_steps", finished[0].product, reason, [s.product for s in steps])
            continue
        _merge_steps(gm, steps)


class _Cell(nn.Module):
    """An Elman cell, called for each of two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.back = nn.Linear(8, 6), nn.Linear(6, 6, bias=False)

    def forward(self, x: Any, h: Any) -> Any:
        for t in range(2):
            h = nn.functional.relu(self.inside(x[t]) + self.back(h))
        return h


class _Apart(_Cell):
    def forward(self, x: Any, h: Any) -> Any:
        return nn.functional.relu(self.inside(x[0])) @ nn.functional.relu(self.inside(x[1]) + h).T


merge_steps.example(_Cell, "the inputs' product of all steps at once", x="f32[2,B,8]", h="f32[B,6]")
merge_steps.counterexample(
    _Cell, "the last of three steps is not read, and would be computed", x="f32[3,B,8]", h="f32[B,6]"
)
merge_steps.counterexample(_Apart, "relu is computed while the sums are in registers", x="f32[2,16,8]", h="f32[16,6]")


def _families(gm: GraphModule) -> list[list[_Step]]:
    """Families of two or more products of parts of one value along one axis with the same other
    operands."""
    found: dict[Any, list[_Step]] = {}
    for node in gm.graph.nodes:
        step = _step_of(node)
        if step is not None:
            others = (node.target.name, *node.all_input_nodes[1:])
            found.setdefault((step.source, step.axis, node.type.dtype, others), []).append(step)
    return [steps for steps in found.values() if len(steps) > 1]


def _step_of(node: Node) -> _Step | None:
    """The step that a product is; None for other calls, and for parts along the summed axis."""
    if node.op != "call_function" or not node.target.is_matrix_product:
        return None
    part, weight = node.args[:2]
    if not (isinstance(weight, Node) and isinstance(node.type, TensorType)):
        return None
    if not isinstance(part, Node) or part.op != "call_function" or weight.type.rank != 2:
        return None
    bounds = _bounds(part)
    if bounds is None or part is weight:
        return None
    source, axis, start, stop = bounds
    if axis == source.type.rank - 1 or source in node.all_input_nodes[1:]:
        return None
    return _Step(node, part, source, axis, start, stop)


def _bounds(part: Node) -> tuple[Node, int, int, int] | None:
    """Source, axis, start and stop of a select or slice with known bounds; None for other calls."""
    if part.target.starts_at is None or not isinstance(part.args[0], Node):
        return None
    source, given = part.args[0], part.arguments
    axis = given["axis"] % source.type.rank
    extent = source.type.shape[axis]
    if part.target.name == "select":
        start = given["index"]
        if type(start) is not int or type(extent) is not int:
            return None
        return source, axis, start % extent, start % extent + 1
    if given.get("step") not in (None, 1) or type(extent) is not int:
        return None
    ends = (given.get("start"), given.get("stop"))
    if not all(end is None or type(end) is int for end in ends):
        return None
    start, stop, _ = slice(*ends).indices(extent)
    return source, axis, start, max(start, stop)


def _covered(steps: list[_Step]) -> int:
    """How many positions, from 0 on, the steps cover; -1 if there is a gap or an overlap."""
    end = 0
    for step in sorted(steps, key=lambda step: (step.start, step.stop)):
        if step.start != end:
            return -1
        end = step.stop
    return end


def _is_addend(product: Node) -> bool:
    """Whether the product's reader also reads another product: one of the two must be stored anyway,
    and that is the earlier one."""
    return all(
        any(
            other is not product and getattr(other.target, "is_matrix_product", False)
            for other in reader.all_input_nodes
        )
        for reader in product.users
    )


def _merge_steps(gm: GraphModule, steps: list[_Step]) -> None:
    """Insert one product before the first, and replace all by parts of it."""
    graph, first = gm.graph, steps[0]
    with graph.inserting_before(first.product), graph.with_origin(first.product):
        operands = (first.source, *first.product.args[1:])
        merged = graph.call_function(
            first.product.target, operands, first.product.kwargs, name=f"{first.product.name}_steps"
        )
    for step in steps:
        with graph.inserting_before(step.product), graph.with_origin(step.product):
            part = graph.call_function(step.part.target, (merged,), step.part.kwargs)
        step.product.replace_all_uses_with(part)
        graph.erase_node(step.product)
        if not step.part.users:
            graph.erase_node(step.part)
