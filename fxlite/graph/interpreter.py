"""Interpreter: runs a graph node by node on arrays; subclass it to look at or change each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fxlite.base.errors import ArgumentError, expect, number_of
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.op import Op
from fxlite.types import shapes


class RunningBody:
    """A sub-graph that an op can call as a function, while an interpreter runs its nodes."""

    def __init__(self, interpreter: Interpreter, body: SubGraph) -> None:
        self.interpreter, self.body = interpreter, body

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return self.interpreter.run_body(self.body, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.body, name)

    def __repr__(self) -> str:
        return repr(self.body)


class Interpreter:
    """Runs a GraphModule node by node on arrays.

    Subclasses override ``run_node``, ``placeholder``, ``get_attr``, ``call_function``, ``call_module``
    or ``output``. ``self.env`` maps nodes to their values, each of which is freed after its last use
    unless ``garbage_collect_values`` is False."""

    def __init__(self, module: GraphModule, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        """``graph``: a graph to run in place of the module's own, with the weights of ``module``, which
        may then be any Module."""
        self.module: Any = module
        self.name = type(self).__name__
        if graph is None:
            expect(module, GraphModule, "the interpreted program", "trace it: fx.symbolic_trace(...)")
            self.graph, self._caller = module.graph, module
        else:  # arguments are taken as a GraphModule of that graph takes them
            self.graph, self._caller = graph, GraphModule(module, graph.copy(), "Interpreter")
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.dims: dict[str, int] = {}
        self.inputs: dict[str, Any] = {}
        self.args_iter: Iterator[Any] = iter(())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._caller.name}>"

    def run(
        self,
        *args: Any,
        initial_env: Mapping[Node, Any] | None = None,
        enable_io_processing: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Run on the arguments of the module; returns the program's result.

        Nodes in ``initial_env`` have the value given there and are not run; inputs among them need no
        argument. Without ``enable_io_processing``, the arguments are one for each placeholder, and the
        result is what the output node holds.

        Raises what the module raises for wrong arguments. An error in a node has a note that names the
        node and its place in the program."""
        if enable_io_processing or initial_env is not None:
            self.start(*args, initial_env=initial_env, **kwargs)
        else:
            self._start_flat(args)
        last_users = self.user_to_last_uses if self.garbage_collect_values else {}
        for node in self.graph.nodes:
            if node not in self.env:
                self.env[node] = self.run_node(node)
            if node.op == "output":
                if enable_io_processing:
                    return self._caller.finish_call(self.inputs, self.env[node])
                return self.env[node]
            for dead in last_users.get(node, ()):
                self.env.pop(dead, None)
        return None

    def start(self, *args: Any, initial_env: Mapping[Node, Any] | None = None, **kwargs: Any) -> None:
        """Bind the inputs, so that the caller can call ``run_node`` on the nodes in order and put each
        result into ``env``. Raises what the module raises for wrong arguments."""
        expect(initial_env or {}, Mapping, "initial_env", "give values by node")
        self.env = dict(initial_env or {})
        for node in self.env:
            expect(node, Node, "a key of initial_env")
        known = {n.target: v for n, v in self.env.items() if n.op == "placeholder"}
        if known and not args and not kwargs:
            self.inputs = known
        else:
            self.inputs = self._caller.flatten_inputs(self._caller.bind(args, kwargs).arguments)
        self._caller.check_writable(self.inputs)
        self._check_inputs()

    def _start_flat(self, args: Sequence[Any]) -> None:
        targets = [p.target for p in self.graph.placeholders]
        if len(args) != len(targets):
            raise ArgumentError(
                f"{self._caller.name} has {number_of(len(targets), 'input')} ({', '.join(targets)}), got {len(args)}"
            )
        self.env, self.inputs = {}, dict(zip(targets, args))
        self._check_inputs()

    def _check_inputs(self) -> None:
        given = [p for p in self.graph.placeholders if p.target in self.inputs]
        self.dims = check_inputs(self._caller.name, given, self.inputs)
        self.args_iter = iter([self.inputs[p.target] for p in given])

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run on a list with an array for each placeholder. The list is emptied, so that each input is
        freed after its last use. Returns what the output node holds."""
        expect(args_list, list, "the arguments of boxed_run")
        args = tuple(args_list)
        args_list.clear()
        return self.run(*args, enable_io_processing=False)

    @property
    def user_to_last_uses(self) -> dict[Node, list[Node]]:
        """For each node, the nodes of whose values it is the last reader."""
        last: dict[Node, Node] = {}
        for node in self.graph.nodes:
            for used in node.all_input_nodes:
                last[used] = node
        result: dict[Node, list[Node]] = {}
        for used, user in last.items():
            result.setdefault(user, []).append(used)
        return result

    def run_node(self, n: Node) -> Any:
        """Compute the value of one node. An error gets a note that names the node and its origin."""
        node = n
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        try:
            return getattr(self, node.op)(node.target, args, kwargs)
        except Exception as error:
            error.add_note(f"while running {node.describe()}")
            raise

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with nodes replaced by their values and named dims by numbers."""
        args = self.map_nodes_to_values(n.args, n)
        kwargs = self.map_nodes_to_values(n.kwargs, n)
        bodies = {name: RunningBody(self, body) for name, body in bodies_of(n).items()}
        return args, {k: shapes.substitute(v, self.dims) for k, v in kwargs.items()} | bodies

    def run_body(self, body: SubGraph, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run a sub-graph once, node by node with :meth:`run_node`. Meanwhile ``env`` also holds the
        values of its nodes."""
        around, self.env = self.env, dict(zip(body.inputs, args, strict=True))
        try:
            for node in body.calls:
                self.env[node] = self.run_node(node)
            return tuple([self.env[node] for node in body.results])
        finally:
            self.env = around

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """``args`` of node ``n``, with the nodes in it replaced by their values. Raises RuntimeError
        for a node that has not run."""

        def value(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(f"{n.name} reads {used.name}, which has no value (yet)")
            return self.env[used]

        return map_nodes(args, value)

    def fetch_attr(self, target: str) -> Any:
        """The weight or module at a path. Raises AttributeError, which names the step that fails."""
        return self.module.get_attribute(target)

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The next input."""
        return next(self.args_iter)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)

    def call_function(self, target: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target.is_random:
            kwargs.setdefault("training", self._caller.training)
        return target(*args, **kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]
