"""Inlining: replace calls of GraphModules by their nodes; the inverse of ``split_module``.

Before::

    submod_0: f32[B,8] = self.submod_0(x)

After::

    linear: f32[B,8] = ops.linear(x, self.fc.weight, self.fc.bias)
    relu: f32[B,8] = ops.relu(linear)

In: a GraphModule with ``call_module`` nodes whose modules are GraphModules. Out: their nodes in place
of the calls, with their names, scopes and locations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from fxlite import nn
from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, GraphError
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.show.comparison.compare import types_equal
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.types import shapes
from fxlite.types.guards import remaining
from fxlite.types.tensor_type import TensorType

#: A node made by inlining, and the name it has in the child.
Wish = tuple[Node, str]
#: The get_attr node of each path that stands before the call to be inlined.
Reads = dict[str, Node]


@graph_pass
def inline_modules(gm: GraphModule, prefix: bool = False) -> None:
    """Replace every call of a GraphModule by that module's nodes, including nested ones.

    A weight keeps its path inside the child (the one it had before ``split_module``) if that path is
    free or holds the same array. Otherwise, or with ``prefix``, the child's path is put in front, as
    in ``state_dict``. Calls of other leaf modules stay."""
    rewiring = Rewiring(gm.graph)
    wishes: list[Wish] = []
    inlined: dict[str, None] = {}
    reads: Reads = {}
    for node in list(gm.graph.nodes):
        work = [node]
        while work:
            current = work.pop()
            if rewiring.take_element(current):
                continue
            rewiring.refresh(current)
            if current.op == "get_attr":
                reads.setdefault(current.target, current)
            if _child(gm, current) is None:
                continue
            inlined[current.target] = None
            values, new = _expand(gm, current, rewiring, reads, prefix)
            wishes += new
            work += [new for old, new in reversed(values.items()) if old.op != "placeholder"]
    rewiring.finish()
    _restore_names(gm.graph, wishes)
    _drop_children(gm, inlined)


def _calls_graphs() -> GraphModule:
    from fxlite.passes.cutting.split_module import split_module

    gm = symbolic_trace(lambda x: np.tanh(np.exp(x) + 1), x="f32[4]")
    return split_module(gm, lambda node: int(node.name == "tanh"))


class _CallsALeaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return np.tanh(self.fc(x))


def _calls_a_leaf() -> GraphModule:
    return symbolic_trace(_CallsALeaf(), x="f32[B,4]", leaf=["fc"])


inline_modules.example(_calls_graphs, "what split_module took apart")
inline_modules.counterexample(_calls_a_leaf, "the leaf module is no GraphModule")


def flattened(gm: GraphModule) -> GraphModule:
    """``gm`` itself if it calls no GraphModule, or else the result of :func:`inline_modules`."""
    calls = gm.graph.find_nodes(op="call_module")
    return inline_modules(gm) if any(_child(gm, n) is not None for n in calls) else gm


@checked
def inline(gm: GraphModule, node: Node, prefix: bool = False) -> dict[Node, Any]:
    """Replace one call of a GraphModule by that module's nodes, in place; returns the map from its
    nodes to values of ``gm``. ``gm.undo()`` reverts it.

    Weights are named as by :func:`inline_modules`. The child stays a submodule;
    ``gm.delete_all_unused_submodules()`` drops it.

    Raises GraphError if the node does not call a GraphModule, or if its arguments do not fit."""
    if _child(gm, node) is None:
        raise GraphError(f"{node.describe()} is not a call of a GraphModule")
    with gm.graph.transaction(f"inline {node.name}"):
        rewiring = Rewiring(gm.graph)
        before = itertools.takewhile(lambda n: n is not node, gm.graph.nodes)
        reads = {n.target: n for n in before if n.op == "get_attr"}
        values, wishes = _expand(gm, node, rewiring, reads, prefix)
        work = list(node.users)
        while work:
            user = work.pop()
            if rewiring.take_element(user):
                work += user.users
        rewiring.finish()
        _restore_names(gm.graph, wishes)
    return values


def _child(gm: GraphModule, node: Node) -> GraphModule | None:
    """The GraphModule that a node calls; None for any other node."""
    if node.op != "call_module":
        return None
    child = gm.get_submodule(node.target)
    return child if isinstance(child, GraphModule) else None


def _expand(
    gm: GraphModule, node: Node, rewiring: Rewiring, reads: Reads, prefix: bool
) -> tuple[dict[Node, Any], list[Wish]]:
    """Copy the child's nodes before ``node`` and let them replace it. Returns the map from the
    child's nodes to values of ``gm``, and the names that were used."""
    child = _child(gm, node)
    assert child is not None
    values = _arguments(node, child)
    env, same_types = _unify(node, values)
    draws = any(n.op == "call_function" and n.is_impure() for n in child.graph.nodes)
    if child.training != gm.training and draws:
        modes = ["training" if m.training else "inference" for m in (child, gm)]
        raise GraphError(
            f"{node.describe()} draws random numbers in {modes[0]} mode, the module around it is "
            f"in {modes[1]} mode; call train() or eval() on it first"
        )
    wishes: list[Wish] = []
    graph = gm.graph
    conditions = child.graph.conditions()
    if conditions:
        known = {**graph.declared_dims, **env}
        graph.guards = (*graph.guards, *remaining(conditions, known, node.describe()))
    with graph.inserting_before(node):
        for old in child.graph.nodes:
            if old.op == "output":
                rewiring.replace(node, map_nodes(old.args[0], values.__getitem__))
            if old.op in ("placeholder", "output"):
                continue
            if old.op == "get_attr":
                path = _place(gm, node.target, old.target, child, prefix)
                if path not in reads:
                    reads[path] = graph.node_copy(old)
                    reads[path].target = path
                new = values[old] = reads[path]
            elif old.op == "call_function" and not same_types:
                new = values[old] = _retyped_copy(graph, old, values, env)
            else:
                new = values[old] = graph.node_copy(old, values.__getitem__)
                if old.op == "call_module":
                    new.target = _place(gm, node.target, old.target, child, prefix)
            if new.name != old.name:
                wishes.append((new, old.name))
    return values, wishes


def _arguments(node: Node, child: GraphModule) -> dict[Node, Any]:
    """The argument for each input of the child."""
    if child.states:
        raise GraphError(f"{node.describe()}: the module keeps state ({child.states[0][1]}); trace without leaf=")
    try:
        values = child.flatten_inputs(child.bind(node.args, dict(node.kwargs)).arguments)
    except ArgumentError as error:
        raise GraphError(f"{node.describe()}: {error}") from None
    return {p: values[p.target] for p in child.graph.placeholders}


def _unify(node: Node, values: dict[Node, Any]) -> tuple[dict[str, Any], bool]:
    """The child's named sizes in terms of the caller's, and whether all types are the same in both."""
    env: dict[str, Any] = {}
    same = True
    pending = []
    for inner, outer in values.items():
        expected, given = inner.type, outer.type if isinstance(outer, Node) else None
        same = same and types_equal(expected, given)
        if not isinstance(expected, TensorType) or not isinstance(given, TensorType):
            continue
        fits = expected.dtype == given.dtype and expected.rank == given.rank
        for dim, actual in zip(expected.shape, given.shape):
            name = getattr(dim, "name", None)
            if name is not None and name not in env:
                env[name] = actual
            else:
                pending.append((inner, dim, actual, given))
        if not fits:
            raise GraphError(f"{node.describe()}: {inner.target} is {expected}, given {given}")
    for inner, dim, actual, given in pending:
        if not shapes.equal(shapes.substitute(dim, env), actual):
            raise GraphError(
                f"{node.describe()}: {inner.target} is {inner.type}, given {given}; the sizes "
                f"cannot be shown to be equal"
            )
    return env, same


def _retyped_copy(graph: Graph, old: Node, values: dict[Node, Any], env: dict[str, Any]) -> Node:
    """A copy whose type follows from its arguments in the caller."""
    args = map_nodes(old.args, values.__getitem__)
    kwargs = {k: shapes.substitute(map_nodes(v, values.__getitem__), env) for k, v in old.kwargs.items()}
    with graph.with_origin(old):
        new = graph.create_node(old.op, old.target, args, kwargs, old.name)
    new.meta = dict(old.meta)
    return new


def _place(gm: GraphModule, call: str, path: str, child: GraphModule, prefix: bool) -> str:
    """The path in ``gm`` of the object that the child holds at ``path``; it is added if it is missing."""
    outer = f"{call}.{path}"
    if prefix:
        return outer
    value = child.get_attribute(path)
    try:
        return path if gm.get_attribute(path) is value else outer
    except AttributeError:
        gm.set_attribute(path, value)
        return path


def _restore_names(graph: Graph, wishes: list[Wish]) -> None:
    """Give nodes their former names back, where the elements of the calls no longer hold them."""
    if not wishes:
        return
    taken = {n.name for n in graph.nodes}
    for node, wish in wishes:
        if wish not in taken:
            taken.discard(node.name)
            taken.add(graph.rename_node(node, wish))


def _drop_children(gm: GraphModule, targets: Iterable[str]) -> None:
    """Remove the inlined children; objects inside them that the graph still reads stay at their paths."""
    dropped = set(targets)
    used = {n.target for n in gm.graph.nodes if n.op in ("get_attr", "call_module")}

    def is_inside(path: str) -> bool:
        parts = path.split(".")
        return any(".".join(parts[:i]) in dropped for i in range(1, len(parts)))

    kept = {path: gm.get_attribute(path) for path in used if is_inside(path)}
    for target in dropped - used:
        if not is_inside(target):  # a child's children are its own: other modules may call it
            gm.delete_submodule(target)
    for path, value in kept.items():
        gm.set_attribute(path, value)
