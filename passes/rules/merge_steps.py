"""Merge the products of the steps of an unrolled loop: ``x[t] @ weight`` for every ``t`` becomes
one product of all of ``x``, of which each step reads its part.

Before::

    select: f32[B,8] = ops.select(x, axis=0, index=0)
    linear: f32[B,32] = ops.linear(select, self.w_ih, self.b_ih)
    select_1: f32[B,8] = ops.select(x, axis=0, index=1)
    linear_1: f32[B,32] = ops.linear(select_1, self.w_ih, self.b_ih)

After::

    linear_steps: f32[2,B,32] = ops.linear(x, self.w_ih, self.b_ih)
    select: f32[B,32] = ops.select(linear_steps, axis=0, index=0)
    select_1: f32[B,32] = ops.select(linear_steps, axis=0, index=1)

The weight is read once instead of once a step, and many rows fill the tiles of a product that one
row leaves empty. Run-times with an LSTM layer do so inside of it; this pass does it for cells that
a program calls in a loop of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fxlite import nn
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rules.merge_linears import finished_by_reader, reader_text
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class _Step:
    """A product of a part of ``source``: the positions ``start`` to ``stop`` along ``axis``."""

    product: Node
    part: Node
    source: Node
    axis: int
    start: int
    stop: int


@graph_pass(exactness="allclose")
def merge_steps(gm: GraphModule) -> None:
    """Merge products of selects or slices of one value with the same weight (linear layers and
    matmuls) into one product of the value.

    The parts have to be all of the value, and not to overlap: else more would be computed than
    before. A product that only elementwise ops read is finished while its sums are in registers; it
    loses that, two values a column for each row, and saves the weight, a column of which is read
    once a product. So large batches stay as they are; the reason is in the ledger. Run it after
    decompose, which shows what is elementwise."""
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
        _merge(gm, steps)


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
    _Cell,
    "the last of three steps is not read, and would be computed",
    x="f32[3,B,8]",
    h="f32[B,6]",
)
merge_steps.counterexample(
    _Apart, "relu is computed while the sums are in registers", x="f32[2,16,8]", h="f32[16,6]"
)


def _families(gm: GraphModule) -> list[list[_Step]]:
    """Products of parts of one value along one axis, with the same other operands: those of which
    there are two or more."""
    found: dict[Any, list[_Step]] = {}
    for node in gm.graph.nodes:
        step = _step_of(node)
        if step is not None:
            others = (node.target.name, *node.all_input_nodes[1:])
            found.setdefault((step.source, step.axis, node.type.dtype, others), []).append(step)
    return [steps for steps in found.values() if len(steps) > 1]


def _step_of(node: Node) -> _Step | None:
    """What a product is part of; None for other calls, and for parts along the summed axis."""
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
    """Source, axis, start and stop of a select or slice at known numbers; None for other calls."""
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
    """How many positions are read, from 0 on; -1 if there is a gap or an overlap."""
    end = 0
    for step in sorted(steps, key=lambda step: (step.start, step.stop)):
        if step.start != end:
            return -1
        end = step.stop
    return end


def _is_addend(product: Node) -> bool:
    """Whether the product's reader reads another product as well: one of the two is stored anyway,
    and that is the earlier one."""
    return all(
        any(
            other is not product and getattr(other.target, "is_matrix_product", False)
            for other in reader.all_input_nodes
        )
        for reader in product.users
    )


def _merge(gm: GraphModule, steps: list[_Step]) -> None:
    """One product before the first, and its parts in place of all."""
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
