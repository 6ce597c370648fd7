"""Decomposition: replace composite ops by the ops they are made of.

Before::

    layer_norm: f32[B,8] = ops.layer_norm(x, self.ln.weight, self.ln.bias)

After (shortened)::

    layer_norm_mean: f32[B,1] = ops.mean(x, axis=-1, keepdims=True)
    layer_norm_sub: f32[B,8] = x - layer_norm_mean
    ...
    layer_norm: f32[B,8] = layer_norm_mul_1 + self.ln.bias

New nodes keep the scope and location of the node they come from; the last one keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from fxlite.errors import GraphError, TraceError
from fxlite.graph import Node, map_nodes
from fxlite.graph_module import GraphModule
from fxlite.op import Op
from fxlite.passes.base import graph_pass, refuse, unique_attribute
from fxlite.proxy import Proxy
from fxlite.state import active_tracer
from fxlite.tracer import Tracer

Keep = Collection[str] | Callable[[Node], bool]
_DEEPEST = 50  # expansions inside expansions; more means that an op expands into itself


@graph_pass(exactness="allclose")
def decompose(gm: GraphModule, keep: Keep = frozenset()) -> None:
    """Expand composites until only ops with a body remain, or ops in ``keep`` (names, or a
    predicate on nodes). ``getitem`` of an expanded tuple becomes the element itself.

    A composite in a graph without types whose expansion needs a shape stays, with a refusal."""
    recorder = Recorder(gm)
    is_kept = keep if callable(keep) else lambda node: node.target.name in keep
    for node in list(gm.graph.nodes):
        work = [(node, 0)]
        while work:
            current, depth = work.pop()
            if not _expands(current) or is_kept(current):
                continue
            if depth > _DEEPEST:
                raise GraphError(f"the expansion of {current.target.name} does not end")
            made = _expand(gm, current, recorder)
            work.extend((new, depth + 1) for new in reversed(made))


def _expands(node: Node) -> bool:
    if node._erased or node.op != "call_function":
        return False
    target: Op = node.target
    if target.name == "getitem":  # goes when what it reads is expanded
        return False
    return target.has_expansion and not target.has_body


class Recorder(Tracer):
    """A tracer that writes into an existing graph, at its insertion point, with its origin."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__()
        self.graph = gm.graph
        self.root = self.gm = gm
        self.prefix = ""
        self.made: list[Node] = []

    def create_proxy(
        self, op: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any],
        name: str | None = None, type: Any = None,
    ) -> Proxy:  # fmt: skip
        """Make a node where the graph's insertion point is."""
        if op == "call_function" and self.prefix:
            name = f"{self.prefix}_{target.name}"
        node = self.graph.create_node(op, target, args, kwargs, name, type)
        self.made.append(node)
        return Proxy(node, self)

    def _adopt(self, value: Any, wish: str, is_parameter: bool) -> str:
        path = unique_attribute(self.gm, f"{wish}_0")
        self.gm.set_attribute(path, value)
        return path

    def run(self, node: Node, function: Callable[[Mapping[str, Any]], Any]) -> Any:
        """``function`` on node's arguments as proxies, recorded just before ``node``. Results are
        nodes (in a tuple for several). On an error the nodes made so far are removed again."""
        self.made, self.prefix = [], node.name
        self._attributes = {}  # a constant made here is not visible to earlier nodes
        arguments = node.target.map_tensors(
            lambda v: Proxy(v, self) if isinstance(v, Node) else v, node.arguments
        )
        token = active_tracer.set(self)
        try:
            with self.graph.inserting_before(node), self.graph.with_origin(node):
                result = function(arguments)
                if isinstance(result, (tuple, list)):
                    return tuple(self.create_arg(r) for r in result)
                return self.create_arg(result)
        except Exception:
            for made in reversed(self.made):
                self.graph.erase_node(made)
            raise
        finally:
            active_tracer.reset(token)


def _expand(gm: GraphModule, node: Node, recorder: Recorder) -> list[Node]:
    """Replace one node by its expansion; returns the new nodes."""
    try:
        result = recorder.run(node, node.target.expand)
    except TraceError as error:
        if any(n.type is None for n in node.all_input_nodes):
            refuse(gm, "decompose", node, f"needs input types: {str(error).splitlines()[0]}")
            return []
        raise
    made = recorder.made
    _check(node, result)
    replace_value(node, result)
    name = node.name
    gm.graph.erase_node(node)
    if result in made:
        gm.graph.rename_node(result, name)
    return made


def _check(node: Node, result: Any) -> None:
    types = tuple(r.type for r in result) if isinstance(result, tuple) else result.type
    if node.type is not None and types != node.type:
        raise GraphError(
            f"the expansion of {node.target.name} gives {types}, its type rule {node.type}"
        )


def replace_value(node: Node, result: Node | tuple[Node, ...]) -> None:
    """Make users of ``node`` read ``result``; for a tuple, ``getitem`` nodes become elements."""
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
        return
    for user in list(node.users):
        if user.op == "call_function" and user.target.name == "getitem":
            user.replace_all_uses_with(result[user.arguments["index"]])
            user.graph.erase_node(user)
        else:
            args = map_nodes(user.args, lambda n: result if n is node else n)
            user._set_arguments(args, map_nodes(user.kwargs, lambda n: result if n is node else n))
