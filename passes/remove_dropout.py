"""Remove dropout from a module in inference mode.

Before (traced while training, then ``gm.eval()``)::

    dropout: f32[4] = ops.dropout(x, p=0.5, training=self.training)
    relu: f32[4] = ops.relu(dropout)

After::

    relu: f32[4] = ops.relu(x)
"""

from __future__ import annotations

from fxlite.graph_module import GraphModule
from fxlite.passes.base import graph_pass


@graph_pass
def remove_dropout(gm: GraphModule) -> None:
    """Replace dropout by its input, unless the module is in training mode."""
    if gm.training:
        return
    for node in gm.graph.find_nodes(op="call_function", target="dropout"):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
