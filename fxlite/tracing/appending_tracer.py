"""A tracer for a graph that exists already: operations on its proxies are appended to that graph.

In: a graph, and proxies of its nodes, ``fx.Proxy(node, tracer)``. Out: new nodes at the graph's
insertion point, as ``np.exp(proxy)``, operators and ``fx.ops`` write them.
"""

from __future__ import annotations

from fxlite.graph.graph import Graph
from fxlite.nn.module import Module
from fxlite.tracing.tracer import Tracer


class GraphAppendingTracer(Tracer):
    """Records onto ``graph`` (torch.fx's class of that name). Constants become buffers of the
    graph's module."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        if graph.owning_module is None:
            graph.owning_module = Module()
        self.root = self._adopted = graph.owning_module
