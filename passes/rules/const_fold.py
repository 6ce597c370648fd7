"""Constant folding: compute what depends only on weights once, instead of at every call.

Before::

    # weights: fc.weight f32[8,4]
    permute: f32[4,8] = ops.permute(self.fc.weight, axes=(1, 0))
    matmul: f32[B,8] = x @ permute

After::

    # weights: fc.weight_permuted f32[4,8]
    matmul: f32[B,8] = x @ self.fc.weight_permuted
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.graph.few_numbers import FEW_ELEMENTS, counts_positions, made_from_few_numbers
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import map_nodes, types_of
from fxlite.ops.op import Op, lookup
from fxlite.passes.base import graph_pass, refuse, unique_attribute
from fxlite.passes.derived import Derivation, Source, derivations, set_derivations
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

_EXPANDS = "dequantize_weight"
#: How many times larger than the array that it repeats a view is, at least, that is not stored.
_REPEATED = 2


@graph_pass
def const_fold(
    gm: GraphModule, limit: int = 1 << 26, skip_folding_node_fn: Callable[[Node], bool] | None = None
) -> None:
    """Evaluate nodes whose inputs are all weights and numbers, and keep the results as buffers.

    Values of more than ``limit`` bytes are computed only if they are no larger than the weights that
    they are computed from (a permuted weight, for instance); values that merely repeat a smaller one
    (``expand``, ``full``, large views of these for elementwise ops), and large ones that are made
    from a few numbers (``i <= j`` of two ``arange``), are not stored; constants that count upwards, of
    which only masks and other positions are made, become calls of ``arange``. Random ops and sizes with named
    dims are not constant, nor are nodes
    for which ``skip_folding_node_fn`` is true, and nodes that depend on them. The folded
    buffers no longer follow the weights, so fold after training."""
    fold_constants(gm, limit, skip=skip_folding_node_fn)


def split_const_subgraphs(
    module: Any, skip_folding_node_fn: Callable[[Node], bool] | None = None, device_for_folded_attrs: str = "cpu"
) -> GraphModule:
    """:func:`const_fold` under torch.fx's name. Constants are computed immediately, not when the module
    first runs. A program is traced first. The device argument has no effect."""
    return const_fold(module, skip_folding_node_fn=skip_folding_node_fn)


def fold_constants(
    gm: GraphModule, limit: int = 1 << 26, expand_weights: bool = True, skip: Callable[[Node], bool] | None = None
) -> dict[str, str]:
    """Do what :func:`const_fold` does, and return the names of the nodes that were folded, by the path
    of the buffer that replaced them. Without ``expand_weights``, weights that are stored as integers
    (``dequantize_weight``) stay so. Nodes for which ``skip`` is true are not constant."""
    graph = gm.graph
    folded: dict[str, str] = {}
    constant: dict[Node, str] = {}  # constant nodes, and for each the weight it starts from
    for node in graph.nodes:
        if skip is not None and skip(node):
            continue
        if node.op == "get_attr":
            constant[node] = node.target
        elif not expand_weights and node.op == "call_function" and node.target.name == _EXPANDS:
            continue
        elif _is_constant(gm, node, constant, limit):
            sources = (constant[n] for n in node.all_input_nodes)
            constant[node] = next((s for s in sources if s), "")
    kept = _to_store(constant)
    values, steps = _evaluate(gm, constant, kept)
    rewiring = Rewiring(graph)
    stored: dict[Node, str] = {}
    for node in kept:
        target = _store(gm, node, constant[node], np.asarray(values[node]))
        folded[target], stored[node] = node.name, target
        with graph.inserting_before(node), graph.with_origin(node):
            made = graph.get_attr(target, node.type)
            made.meta["from"] = (("const_fold", node.name), *node.meta.get("from", ()))
            rewiring.replace(node, made)
    rewiring.finish()
    _note(gm, steps, stored)
    _choose(gm)
    _count(gm)
    for node in reversed([n for n in constant if not n._erased]):
        if not node.users:
            graph.erase_node(node)
    return folded


def _choose(gm: GraphModule) -> None:
    """Replace a choice whose condition is one known element by the chosen value; the other is no longer read."""
    for node in gm.graph.find_nodes(op="call_function", target="where"):
        condition = node.bound["condition"]
        if not isinstance(condition, Node) or condition.op != "get_attr" or condition.type.rank:
            continue
        chosen = node.bound["x" if gm.get_attribute(condition.target) else "y"]
        if isinstance(chosen, Node) and chosen.type == node.type:
            node.replace_all_uses_with(chosen)
            gm.graph.erase_node(node)


def _count(gm: GraphModule) -> None:
    """Replace constants that count upwards from 0, of which masks are made, by calls, which back ends recognize."""
    for node in gm.graph.find_nodes(op="get_attr"):
        if node.type.rank != 1 or not counts_positions(node):
            continue
        size = node.type.shape[0]
        if np.array_equal(gm.get_attribute(node.target), np.arange(size)):
            with gm.graph.inserting_before(node), gm.graph.with_origin(node):
                made = gm.graph.call_function(lookup("arange"), (), {"start": 0, "stop": size, "dtype": "i64"})
            node.replace_all_uses_with(made)
            gm.graph.erase_node(node)


class _Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.ones((8, 4), np.float32))

    def forward(self, x: Any) -> Any:
        return x @ (self.weight.T * 0.5)


class _Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(np.ones((8, 1), np.float32))
        self.columns = nn.Parameter(np.ones(4, np.float32))

    def forward(self, x: Any) -> Any:
        return x + self.rows * self.columns


const_fold.example(_Transposed, "the weight is transposed and scaled once", x="f32[B,4]")
const_fold.counterexample(_Product, "the result is larger than the limit", options={"limit": 64}, x="f32[8,4]")
const_fold.counterexample(lambda x: x + np.zeros((1000, 4), np.float32), "nothing is computed", x="f32[1000,4]")


def _is_constant(gm: GraphModule, node: Node, constant: dict[Node, str], limit: int) -> bool:
    if node.op != "call_function" or node.is_impure() or node.target.kind == "control":
        return False
    if not all(used in constant for used in node.all_input_nodes):
        return False
    if node.type is None or shapes.names(list(node.kwargs.values())):
        return False
    if not all(isinstance(t, TensorType) and t.is_concrete for t in types_of(node)):
        return False
    size = _bytes(node)
    limit = max(limit, sum(map(_bytes, node.all_input_nodes)))
    if size > limit and not _repeats(node):
        reason = f"the result has {size} bytes, more than {limit}"
        refuse(gm, "const_fold", node, reason, [node])
    return bool(size <= limit)


def _bytes(node: Node) -> int:
    return sum(t.nbytes for t in types_of(node))


def _repeats(node: Node) -> bool:
    """True if the value holds no more information than its inputs, so that storing it would waste memory."""
    if node.op != "call_function":
        return False
    return bool(node.target.name == "expand" or node.target.kind == "creation")


def _repeats_much(node: Node, held: int) -> bool:
    """Whether a large value is a view of a much smaller one, of ``held`` bytes, whose elements are read singly: what
    repeats them is not stored. (A weight of a product is stored, since it is packed once.)"""
    if node.type.size <= FEW_ELEMENTS or held * _REPEATED > _bytes(node):
        return False
    return all(user.op == "call_function" and user.target.kind == "pointwise" for user in node.users)


def _to_store(constant: dict[Node, str]) -> list[Node]:
    """The constants whose values the rest of the graph reads. A node that only repeats its input
    stays in the graph and reads that input's stored value."""
    stays: set[Node] = set()
    kept: list[Node] = []
    few, held = made_from_few_numbers(constant), dict[Node, int]()
    for node in constant:
        is_view = node.op == "call_function" and node.target.kind == "view"
        held[node] = min([_bytes(node), *(held[n] for n in node.all_input_nodes if is_view)])
    for node in reversed(constant):
        if all(user in constant and user not in stays for user in node.users):
            continue
        is_made = node in few and (
            node.type.size > FEW_ELEMENTS or counts_positions(node) or any(u in stays and u in few for u in node.users)
        )
        if is_made or _repeats(node) or isinstance(node.type, tuple) or _repeats_much(node, held[node]):
            stays.add(node)
        elif node.op != "get_attr":
            kept.append(node)
    return kept[::-1]


def _evaluate(gm: GraphModule, constant: dict[Node, str], kept: list[Node]) -> tuple[dict[Node, Any], list[Node]]:
    """Values of ``kept``, computed by the ops' references, and the calls that were needed; intermediate
    values are freed."""
    stored = set(kept)
    needed: set[Node] = set()
    for node in reversed(constant):
        if node in stored or any(user in needed for user in node.users):
            needed.add(node)
    waiting = {n: sum(u in needed for u in n.users) for n in needed}
    values: dict[Node, Any] = {}
    steps: list[Node] = []
    for node in constant:
        if node not in needed:
            continue
        if node.op == "get_attr":
            values[node] = np.asarray(gm.get_attribute(node.target))
            continue
        steps.append(node)
        args = map_nodes(node.args, lambda n: values[n])
        kwargs = map_nodes(node.kwargs, lambda n: values[n])
        values[node] = node.target.evaluate(node.target.bind(args, kwargs))
        for used in node.all_input_nodes:
            waiting[used] -= 1
            if not waiting[used] and used not in stored:
                del values[used]
    return values, steps


def _note(gm: GraphModule, steps: list[Node], stored: dict[Node, str]) -> None:
    """Add the computed weights to the list of derivations."""

    def name(node: Node) -> Source:
        path = node.target if node.op == "get_attr" else stored.get(node, f"%{node.name}")
        return Source(path)

    made = []
    for node in steps:
        tensors = node.target.tensor_kinds
        operands = {k: v for k, v in node.bound.items() if k in tensors}
        options = {k: v for k, v in node.bound.items() if k not in tensors}
        given = tuple(map_nodes(v, name) for v in operands.values())
        inverse = None if any(isinstance(v, tuple) for v in operands.values()) else _inverse(node)
        shapes = (v.type.shape if isinstance(v, Node) else v for v in operands.values()) if inverse else ()
        made.append(Derivation((name(node),), node.target, given, options, inverse, "", tuple(shapes)))
    set_derivations(gm, [*derivations(gm), *made])


def _inverse(node: Node) -> Any:
    """The function that inverts a step; None if it is not known."""
    found = _INVERSES.get(node.target.name)
    if found is None or not isinstance(node.args[0], Node):
        return None
    factor = node.args[1] if len(node.args) > 1 else 1
    return found if type(factor) in (int, float) and factor and np.isfinite(factor) else None


def unpermuted(result: Any, given: Any, *, axes: Any) -> Any:
    """The array before its axes were permuted."""
    return (np.transpose(result, np.argsort(axes)),)


def reshaped(result: Any, given: Any, **_: Any) -> Any:
    """The array before it was reshaped."""
    return (np.reshape(result, given[0]),)


def unscaled(result: Any, given: Any) -> Any:
    """The array before it was multiplied by a number."""
    return result / result.dtype.type(given[1]), None


def undivided(result: Any, given: Any) -> Any:
    """The array before it was divided by a number."""
    return result * result.dtype.type(given[1]), None


#: The functions that undo ops, as :class:`Derivation` says.
_INVERSES: dict[str, Callable[..., Any]] = {
    "permute": unpermuted,
    "reshape": reshaped,
    "mul": unscaled,
    "div": undivided,
}


def _store(gm: GraphModule, node: Node, source: str, value: np.ndarray[Any, Any]) -> str:
    """Store the value as a buffer whose name tells where it comes from; returns its path."""
    target: Op = node.target
    suffix = target.participle or target.name
    path = unique_attribute(gm, f"{source}_{suffix}" if source else f"folded_{target.name}")
    assert value.shape == node.type.shape and value.dtype == node.type.dtype.numpy, node
    gm.set_attribute(path, np.array(value, order="C"))  # a copy: never a view of the weight
    return path
