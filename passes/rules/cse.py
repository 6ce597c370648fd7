"""Common-subexpression elimination: compute equal values once.

Before::

    exp: f32[4] = ops.exp(x)
    exp_1: f32[4] = ops.exp(x)
    add: f32[4] = exp + exp_1

After::

    exp: f32[4] = ops.exp(x)
    add: f32[4] = exp + exp
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import sympy

import fxlite.nn.functional as F
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.passes.base import graph_pass
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.types.dtypes import DType

_CONSTANT = re.compile(r"(?:.*\.)?constant_\d+")  # what the tracer calls arrays of the program
_LARGEST_CONSTANT = 1 << 16  # bytes compared by value


@graph_pass
def cse(gm: GraphModule) -> None:
    """Merge nodes that compute the same value: same op, attributes and inputs (operands of
    commutative ops in any order), reads of the same weight, equal small constants. Random ops and
    calls of leaf modules are never merged."""
    first: dict[Any, Node] = {}
    rewiring = Rewiring(gm.graph)
    numbers: dict[Node, int] = {}
    for node in gm.graph.nodes:
        rewiring.refresh(node)
        numbers[node] = len(numbers)
        key = _key(gm, node, numbers)
        if key is None:
            continue
        known = first.setdefault(key, node)
        if known is not node:
            rewiring.replace(node, known)
    rewiring.finish()


cse.example(lambda x: np.exp(x) + np.exp(x), "the same call twice", x="f32[4]")
cse.example(lambda x, y: (x + y) * (y + x), "operands in either order", x="f32[4]", y="f32[4]")
cse.counterexample(lambda x: (x - 1) * (1 - x), "the order counts", x="f32[4]")
cse.counterexample(
    lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5), "each draws its own numbers", x="f32[4]"
)


def _key(gm: GraphModule, node: Node, numbers: dict[Node, int]) -> Any:
    """What makes two nodes the same value; None for what is never merged."""
    if node.op == "get_attr":
        return ("get_attr", _weight_key(gm, node.target))
    if node.op != "call_function" or node.is_impure():
        return None
    op: Op = node.target
    args = [value_key(a, numbers) for a in node.args]
    if op.commutative:
        args.sort(key=repr)
    attributes = tuple(sorted((k, value_key(v, numbers)) for k, v in node.kwargs.items()))
    return (op.name, tuple(args), attributes)


def _weight_key(gm: GraphModule, target: str) -> Any:
    if not _CONSTANT.fullmatch(target):
        return target
    value = np.asarray(gm.get_attribute(target))
    if value.nbytes > _LARGEST_CONSTANT:
        return target
    return (str(value.dtype), value.shape, value.tobytes())


def value_key(value: Any, numbers: dict[Node, int]) -> Any:
    """A hashable stand-in for an argument, equal only for equal arguments: 1, 1.0 and True differ,
    as do 0.0 and -0.0."""
    if isinstance(value, Node):
        return ("node", numbers[value])
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *(value_key(v, numbers) for v in value))
    if isinstance(value, dict):
        return ("dict", *((k, value_key(v, numbers)) for k, v in value.items()))
    if isinstance(value, DType):
        return ("dtype", value.name)
    if isinstance(value, sympy.Expr):
        return ("dim", str(value))
    return (type(value).__name__, repr(value))
