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

import numpy as np

import fxlite.nn.functional as F
from fxlite.base.errors import GraphError, TraceError
from fxlite.base.state import active_tracer
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.ops.own.foreign import ForeignOp
from fxlite.passes.base import graph_pass, refuse, unique_attribute
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer

Keep = Collection[str] | Callable[[Node], bool]
_DEEPEST = 50  # nested expansions; more means that an op expands into itself


@graph_pass(exactness="allclose")
def decompose(gm: GraphModule, keep: Keep = frozenset(), own: bool = False) -> None:
    """Expand composites until only ops with a body remain, or ops in ``keep`` (names, or a
    predicate on nodes). ``getitem`` of an expanded tuple becomes the element itself. With ``own``,
    elementwise ops that the program defines (``fx.op``), which have both a body and an expansion, are
    expanded, too.

    A composite whose expansion needs a number where the graph has no types or a named dim stays, with
    a refusal in the ledger."""
    recorder, rewiring = Recorder(gm), Rewiring(gm.graph)
    is_kept = keep if callable(keep) else lambda node: node.target.name in keep
    new_nodes: set[Node] = set()
    for node in list(gm.graph.nodes):
        work = [(node, 0)]
        while work:
            current, depth = work.pop()
            if rewiring.take_element(current):
                continue
            rewiring.refresh(current)
            if _expands(current, own) and not is_kept(current):
                if depth > _DEEPEST:
                    raise GraphError(f"the expansion of {current.target.name} does not end")
                made = _expand(gm, current, recorder, rewiring)
                new_nodes.update(made)
                work.extend((new, depth + 1) for new in reversed(made))
    names = {old: old.name for old in rewiring.new}
    rewiring.finish()
    for old, name in names.items():  # the last node of an expansion takes the name
        new = rewiring.current(old)
        if isinstance(new, Node) and new in new_nodes:
            new_nodes.discard(new)
            gm.graph.rename_node(new, name)


decompose.example(lambda x: F.silu(x), "two primitive ops", x="f32[4]")
decompose.example(
    lambda x: F.silu(F.softplus(x)), "all but the ops to keep", options={"keep": frozenset({"silu"})}, x="f32[4]"
)
decompose.counterexample(lambda x: np.tanh(x @ x), "all ops are primitive", x="f32[4,4]")
decompose.counterexample(lambda x: F.group_norm(x, 2), "it needs x.shape, and x has no type")


def _expands(node: Node, own: bool) -> bool:
    if node._erased or node.op != "call_function":
        return False
    target: Op = node.target
    if target.name == "getitem":  # disappears when the value it reads is expanded
        return False
    if target.is_random:  # drawing numbers has no expansion; remove_dropout handles ops that draw none
        return False
    is_open = not target.has_body or (own and isinstance(target, ForeignOp))
    return target.has_expansion and is_open


class Recorder(Tracer):
    """A tracer that writes into an existing graph, at its insertion point, with its origin."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__()
        self.graph = gm.graph
        self.root = self.gm = gm
        self.prefix = ""
        self.made: list[Node] = []

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Any = None,
    ) -> Proxy:
        """Create a node at the graph's insertion point."""
        if kind == "call_function" and self.prefix:
            name = f"{self.prefix}_{target.name}"
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.made.append(node)
        return (proxy_factory_fn or self.proxy)(node)

    def _adopt(self, value: Any, wish: str) -> str:
        path = unique_attribute(self.gm, f"{wish}_0")
        self.gm.set_attribute(path, value)
        return path

    def run(self, node: Node, function: Callable[[Mapping[str, Any]], Any]) -> Any:
        """Call ``function`` with the node's arguments as proxies and record its calls just before
        ``node``. Returns nodes (a tuple for several). On an error the new nodes are removed again."""
        self.made, self.prefix = [], node.name
        self._attributes = {}  # a constant created here must not be reused by earlier nodes
        arguments = node.target.map_tensors(lambda v: Proxy(v, self) if isinstance(v, Node) else v, node.arguments)
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


def replace_each(gm: GraphModule, how: Mapping[Node, Callable[[Mapping[str, Any]], Any]]) -> None:
    """Replace nodes, in the graph's order, by functions of their arguments. The new nodes take their names."""
    recorder, rewiring = Recorder(gm), Rewiring(gm.graph)
    names: dict[Node, str] = {}
    for node, function in how.items():
        rewiring.refresh(node)
        made = recorder.run(node, function)
        rewiring.replace(node, made)
        names[made] = node.name
    rewiring.finish()
    for made, name in names.items():
        gm.graph.rename_node(made, name)


def _expand(gm: GraphModule, node: Node, recorder: Recorder, rewiring: Rewiring) -> list[Node]:
    """Replace one node by its expansion; returns the new nodes."""
    try:
        result = recorder.run(node, node.target.expand)
    except TraceError as error:
        reason = str(error).splitlines()[0]
        untyped = any(n.type is None for n in node.all_input_nodes)
        refuse(gm, "decompose", node, f"needs input types: {reason}" if untyped else reason)
        return []
    _check(node, result)
    rewiring.replace(node, result)
    return recorder.made


def _check(node: Node, result: Any) -> None:
    types = tuple(r.type for r in result) if isinstance(result, tuple) else result.type
    if node.type is not None and types != node.type:
        raise GraphError(f"the expansion of {node.target.name} gives {types}, its type rule {node.type}")
