"""Passes that remove what need not be computed.

:func:`cse` (common-subexpression elimination) computes equal values once. Before::

    exp: f32[4] = ops.exp(x)
    exp_1: f32[4] = ops.exp(x)
    add: f32[4] = exp + exp_1

After::

    exp: f32[4] = ops.exp(x)
    add: f32[4] = exp + exp

:func:`dce` (dead-code elimination) drops nodes that no result depends on, and :func:`remove_dropout`
replaces dropout that does nothing, in a module traced in training mode before ``gm.eval()``. Before::

    dropout: f32[4] = ops.dropout(x, p=0.5, training=self.training)
    relu: f32[4] = ops.relu(dropout)

After::

    relu: f32[4] = ops.relu(x)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import REGISTRY, Op, as_op
from fxlite.passes.base import PassBase, PassResult, graph_pass, refuse
from fxlite.passes.checking.changed_region import attributes_key, places_of
from fxlite.passes.inside import drop_unread_results
from fxlite.passes.rewrite.matcher import is_constant_path
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.tracing.symbolic_trace import symbolic_trace

_LARGEST_CONSTANT = 1 << 16  # bytes; larger constants are not compared by value


@graph_pass
def cse(gm: GraphModule, banned_ops: Iterable[Any] = ()) -> None:
    """Merge nodes that compute the same value: same op, attributes and inputs (operands of
    commutative ops in any order), reads of the same weight, equal small constants. Random ops,
    calls of leaf modules and ``banned_ops`` (ops or their names) are never merged."""
    banned = set(map(as_op, banned_ops))
    first: dict[Any, Node] = {}
    rewiring = Rewiring(gm.graph)
    numbers: dict[Node, int] = {}
    for node in gm.graph.nodes:
        rewiring.refresh(node)
        numbers[node] = len(numbers)
        key = None if node.target in banned else _key(gm, node, numbers)
        if key is None:
            continue
        known = first.setdefault(key, node)
        if known is not node:
            rewiring.replace(node, known)
    rewiring.finish()


cse.example(lambda x: np.exp(x) + np.exp(x), "the same call twice", x="f32[4]")
cse.example(lambda x, y: (x + y) * (y + x), "operands in either order", x="f32[4]", y="f32[4]")
cse.counterexample(lambda x: (x - 1) * (1 - x), "the order counts", x="f32[4]")
cse.counterexample(lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5), "each draws its own numbers", x="f32[4]")


class CSEPass(PassBase):
    """:func:`cse` as torch.fx's class: returns a new module, or the same module if nothing is equal."""

    def __init__(self, banned_ops: Iterable[Any] | None = None) -> None:
        self.banned_ops = set(banned_ops or ())

    def call(self, graph_module: GraphModule) -> PassResult:
        made = cse(graph_module, banned_ops=self.banned_ops)
        modified = len(made.graph) < len(graph_module.graph)
        return PassResult(made if modified else graph_module, modified)


def get_CSE_banned_ops() -> set[Op]:
    """The ops that draw random numbers, which :func:`cse` never merges."""
    return {op for op in REGISTRY.values() if op.kind == "random"}


def _key(gm: GraphModule, node: Node, numbers: dict[Node, int]) -> Any:
    """A key that is equal for nodes with the same value; None for nodes that are never merged."""
    if node.op == "get_attr":
        return ("get_attr", _weight_key(gm, node.target))
    if node.op != "call_function" or node.is_impure():
        return None
    op: Op = node.target
    args = list(places_of(node.args, numbers, []))
    if op.commutative:
        args.sort(key=repr)
    return (op.name, tuple(args), frozenset(attributes_key(node.kwargs)))


def _weight_key(gm: GraphModule, target: str) -> Any:
    if not is_constant_path(target):
        return target
    value = np.asarray(gm.get_attribute(target))
    if value.nbytes > _LARGEST_CONSTANT:
        return target
    return (str(value.dtype), value.shape, value.tobytes())


@graph_pass
def dce(gm: GraphModule) -> None:
    """Remove nodes that are not read, unread results of loops and conditions, and weights that no node reads
    afterwards. Inputs, random ops and leaf modules with effects (``node.is_impure()``) stay."""
    drop_unread_results(gm.graph)
    gm.delete_all_unused_submodules()


def _unused(x: Any) -> Any:
    np.exp(x)
    return np.tanh(x)


def _drawn(x: Any) -> Any:
    F.dropout(x, 0.5)
    return np.tanh(x)


dce.example(_unused, "nothing reads exp", x="f32[4]")
dce.counterexample(_drawn, "the next random numbers would differ", x="f32[4]")


@graph_pass
def remove_dropout(gm: GraphModule) -> None:
    """Replace dropout that does nothing with its input.

    That is dropout of a module in inference mode, with ``training=False``, or with p=0. In training
    mode it stays, with a refusal in the ledger."""
    for node in gm.graph.find_nodes(op="call_function", target="dropout"):
        reason = why_dropout_stays(node)
        if reason is not None:
            refuse(gm, "remove_dropout", node, reason, [node])
            continue
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)


def why_dropout_stays(node: Node) -> str | None:
    """Why a call of dropout may change its input, or None."""
    if node.bound["p"] == 0:
        return None
    module = node.graph.owning_module
    follows = True if module is None else module.training  # if the call itself does not say
    if not node.kwargs.get("training", follows):
        return None
    return "the module is in training mode; call eval() on it"


remove_dropout.example(lambda x: F.relu(F.dropout(x, 0.5)), "the module is in inference mode", x="f32[4]")


def training_dropout() -> GraphModule:
    """An example: dropout in training mode."""
    return symbolic_trace(lambda x: F.relu(F.dropout(x, 0.5)), x="f32[4]")


remove_dropout.counterexample(training_dropout, "the module is in training mode")
