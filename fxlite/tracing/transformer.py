"""Transformer: an :class:`~fxlite.graph.interpreter.Interpreter` that builds a new graph."""

from __future__ import annotations

from typing import Any

from fxlite.base.state import active_tracer
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.op import Op
from fxlite.tracing.capture.bodies import Body
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer


class Transformer(Interpreter):
    """Builds a new graph while it interprets an old one. Overridden methods such as ``call_function`` take
    and return proxies, which support NumPy, operators and ``fx.ops``::

        class NegToSigmoid(fx.Transformer):
            def call_function(self, target, args, kwargs):
                if target is fx.ops.neg:
                    return 1 / (1 + np.exp(-args[0]))
                return super().call_function(target, args, kwargs)

        gm = NegToSigmoid(gm).transform()

    The bodies of loops and conditions are transformed in the same way.

    New nodes keep the scope and location of the node from which they come. If the method of this class
    recorded them, they also keep its name and meta."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.new_graph = Graph(module)
        self.tracer = Tracer()
        self._current: Node | None = None

    def transform(self) -> GraphModule:
        """The new GraphModule; the old one is unchanged."""
        made: GraphModule = self.module.copy()
        self.tracer.attach(made, Graph(made))
        self.tracer.graph.take_conditions(self.graph)
        self.new_graph = self.tracer.graph
        self.env = {}
        token = active_tracer.set(self.tracer)
        try:
            for node in self.graph.nodes:
                self._current = node
                self.tracer.origin = (node.scope, node.loc)
                result = self.run_node(node)
                self.env[node] = self.tracer.proxy(result) if isinstance(result, Node) else result
        finally:
            active_tracer.reset(token)
            self.tracer.origin = self._current = None
        self.new_graph.interface, self.new_graph.taps = self.graph.interface, self.graph.taps
        made.graph = self.new_graph
        return made

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with nodes replaced by proxies, and with bodies of loops and conditions transformed."""
        args = self.map_nodes_to_values(n.args, n)
        bodies = bodies_of(n)
        if not bodies:
            return args, dict(self.map_nodes_to_values(n.kwargs, n))
        made = {name: self._transformed(n, body) for name, body in bodies.items()}
        self._current = n
        more = dict.fromkeys(node for body, _ in made.values() for node in body.captured)
        kwargs = {name: body.finish(results, more) for name, (body, results) in made.items()}
        *lead, captured = args if len(args) == len(n.target.tensor_kinds) else (*args, ())
        return (*lead, (*captured, *map(self.tracer.proxy, more))), kwargs

    def _transformed(self, n: Node, body: SubGraph) -> tuple[Body, list[Node]]:
        """The new body for a body of ``n``, and its results."""
        around = self.env
        with Body(self.tracer, n.name) as made:
            self.env = {node: made.own(node.name, node.type) for node in body.inputs}
            try:
                for node in body.calls:
                    self._current, self.tracer.origin = node, (node.scope, node.loc)
                    self.env[node] = self.run_node(node)
                results = [self.tracer.create_arg(self.env[node]) for node in body.results]
            finally:
                self.env = around
                self.tracer.origin = (n.scope, n.loc)
        return made, results

    def _make(self, op: str, target: Any, args: Any, kwargs: Any, type: Any = None) -> Proxy:
        current = self._current
        assert current is not None, "transform() is not running"
        made = self.tracer.create_proxy(op, target, args, kwargs, current.name, type)
        if current.meta and made.node.name == current.name:
            made.node.meta = dict(current.meta)
        return made

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._current is not None
        return self._make("placeholder", target, args, kwargs, self._current.type)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("get_attr", target, args, kwargs)

    def call_function(self, target: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("call_function", target, args, kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._current is not None
        return self._make("call_module", target, args, kwargs, self._current.type)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._make("output", "output", args, kwargs)
