"""Remove dropout from a module in inference mode.

Before (traced while training, then ``gm.eval()``)::

    dropout: f32[4] = ops.dropout(x, p=0.5, training=self.training)
    relu: f32[4] = ops.relu(dropout)

After::

    relu: f32[4] = ops.relu(x)
"""

from __future__ import annotations

import fxlite.nn.functional as F
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass, refuse
from fxlite.tracing.symbolic_trace import symbolic_trace


@graph_pass
def remove_dropout(gm: GraphModule) -> None:
    """Replace dropout that does nothing by its input.

    That is dropout of a module in inference mode, dropout with ``training=False`` and with p=0. In
    training mode it stays, with a refusal."""
    for node in gm.graph.find_nodes(op="call_function", target="dropout"):
        reason = why_not(node)
        if reason is not None:
            refuse(gm, "remove_dropout", node, reason, [node])
            continue
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)


def why_not(node: Node) -> str | None:
    """Why a call of dropout may change its input, or None."""
    if node.bound["p"] == 0:
        return None
    module = node.graph.owning_module
    follows = True if module is None else module.training  # what is not said at the call
    if not node.kwargs.get("training", follows):
        return None
    return "the module is in training mode; call eval() on it"


remove_dropout.example(
    lambda x: F.relu(F.dropout(x, 0.5)), "the module is in inference mode", x="f32[4]"
)


def training_dropout() -> GraphModule:
    """An example: dropout in training mode."""
    return symbolic_trace(lambda x: F.relu(F.dropout(x, 0.5)), x="f32[4]")


remove_dropout.counterexample(training_dropout, "the module is in training mode")
