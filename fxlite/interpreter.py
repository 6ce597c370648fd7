"""Interpreter: runs a graph node by node on arrays; subclass it to look at or change each step.
Transformer: the same walk that builds a new graph instead.
"""

from __future__ import annotations

from typing import Any

from fxlite import shapes
from fxlite.graph import Graph, Node, map_nodes
from fxlite.graph_module import GraphModule, check_inputs
from fxlite.op import Op


class Interpreter:
    """Runs a GraphModule. Override ``run_node``, ``placeholder``, ``get_attr``, ``call_function``,
    ``call_module`` or ``output``; ``self.env`` maps nodes to values, freed after their last use."""

    def __init__(self, module: GraphModule, garbage_collect_values: bool = True) -> None:
        self.module = module
        self.graph = module.graph
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.dims: dict[str, int] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays given as to the module; returns the graph's result."""
        bound = self.module.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        self.inputs = bound.arguments
        self.dims = check_inputs(self.module.name, self.graph.placeholders, bound.arguments)
        self.env = {}
        last_users = self._last_users() if self.garbage_collect_values else {}
        for node in self.graph.nodes:
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            for dead in last_users.get(node, ()):
                self.env.pop(dead, None)
        return None

    def _last_users(self) -> dict[Node, list[Node]]:
        last: dict[Node, Node] = {}
        for node in self.graph.nodes:
            for used in node.all_input_nodes:
                last[used] = node
        result: dict[Node, list[Node]] = {}
        for used, user in last.items():
            result.setdefault(user, []).append(used)
        return result

    def run_node(self, node: Node) -> Any:
        """Compute one node's value; a failure names the node and its origin."""
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        try:
            return getattr(self, node.op)(node.target, args, kwargs)
        except Exception as error:
            error.add_note(f"while running {node.describe()}")
            raise

    def fetch_args_kwargs_from_env(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with nodes replaced by values and named dims by numbers."""
        args = map_nodes(node.args, lambda n: self.env[n])
        kwargs = map_nodes(node.kwargs, lambda n: self.env[n])
        return args, {k: shapes.substitute(v, self.dims) for k, v in kwargs.items()}

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.inputs[target]

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.module.get_attribute(target)

    def call_function(self, target: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target.is_random:
            kwargs.setdefault("training", self.module.training)
        return target(*args, **kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.module.get_submodule(target)(*args, **kwargs)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]


class Transformer(Interpreter):
    """Builds a new graph by walking the old one; override ``call_function`` and friends, which get
    and return nodes. New nodes keep the scope and location of the node they come from."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.new_graph = Graph(module)

    def transform(self) -> GraphModule:
        """The new GraphModule; the old one is left as it was."""
        made = self.module.copy()
        self.new_graph = Graph(made)
        self.env = {}
        for node in self.graph.nodes:
            self._current = node
            with self.new_graph.with_origin(node):
                self.env[node] = self.run_node(node)
        made.graph = self.new_graph
        return made

    def fetch_args_kwargs_from_env(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (map_nodes(node.args, lambda n: self.env[n]),
                map_nodes(node.kwargs, lambda n: self.env[n]))  # fmt: skip

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.new_graph.create_node("placeholder", target, args, {}, None, self._current.type)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.new_graph.get_attr(target, self._current.type)

    def call_function(self, target: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.new_graph.call_function(target, args, kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.new_graph.call_module(target, args, kwargs, self._current.type)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.new_graph.output(args[0])
