"""Restore functions of the program: nodes that a call of a function made become a call of a function again.

In: a GraphModule with calls of modules, as ``outline_modules`` makes it, whose nodes know in which call of
which function they were made (``Location.call``). Out: one in which each call of a function that does not
call modules itself is a call of a GraphModule. Whether several calls belong to one function is decided by
comparing their text, as for classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fxlite.base.location import FunctionCall
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.pytree import Structure
from fxlite.passes.cutting.split_module import RESULT, CallingModule, entangled
from fxlite.passes.cutting.subgraph import bind_named_dims, build, cut, element_source

_WEIGHT = "weight"  # in the meta of an input: the name of the weight that is passed
Calls = dict[int, FunctionCall]  # by the id of the GraphModule that computes a call


def outline_functions(gm: GraphModule, is_number: Callable[[Node], bool], path: str = "") -> tuple[GraphModule, Calls]:
    """Call functions where the program did, in the module at a path and in those that it calls. Functions
    get the weights that they read as arguments, except those for which ``is_number`` is true."""
    found: Calls = {}
    for target in dict.fromkeys(n.target for n in gm.graph.find_nodes(op="call_module")):
        child = gm.get_submodule(target)
        if isinstance(child, GraphModule):
            made, calls = outline_functions(child, is_number, f"{path}.{target}".strip("."))
            found |= calls
            if made is not child:
                gm.set_attribute(target, made)
    return _outlined(gm, path, None, found, is_number), found


def _outlined(
    gm: GraphModule, path: str, around: FunctionCall | None, found: Calls, is_number: Callable[[Node], bool]
) -> GraphModule:
    nodes = [n for n in gm.graph.nodes if n.op.startswith("call_")]
    calls = {n: _calls(element_source(n) or n, path, around) for n in nodes}
    calling = {call for n, own in calls.items() if n.op == "call_module" for call in own}
    assignment: dict[Node, Any] = {}
    for node, chain in calls.items():
        pure = [call for call in chain if call not in calling]
        if pure:
            assignment[node] = pure[0]
    while mixed := entangled(gm, assignment):
        assignment = {n: call for n, call in assignment.items() if call not in mixed}
    if not assignment:
        return gm
    taken = {str(n.target).partition(".")[0] for n in gm.graph.nodes}
    by_use = cut(gm.graph, assignment)
    regions = {c: replace(r.in_graph_order(), inputs=r.inputs) for c, r in by_use.items()}
    children: dict[Any, tuple[str, GraphModule]] = {}
    for call, region in regions.items():
        read = [n for node in region.nodes for n in node.all_input_nodes if n.op == "get_attr"]
        region.inputs |= dict.fromkeys(n for n in read if not is_number(n))
        bind_named_dims(gm.graph, region)
        name = call.code.co_name
        wishes = itertools.chain([f"{name}_result"], (f"{name}_result_{count}" for count in itertools.count(1)))
        target = next(wish for wish in wishes if wish not in taken)
        taken.add(target)
        inner = build(gm, region, name)
        for given, own in zip(region.inputs, inner.graph.placeholders):
            if given.op == "get_attr":
                own.meta = {**own.meta, _WEIGHT: given.target.rpartition(".")[2]}
        made = _outlined(inner, path, call, found, is_number)
        found[id(made)] = call
        children[call] = target, made
    return _Calling(gm, assignment, regions, children).make()


def _calls(node: Node, path: str, around: FunctionCall | None) -> list[FunctionCall]:
    """The calls in the method of the module at a path in which a node was made, outermost first; only those
    inside the call ``around``."""
    loc, scope = node.loc, node.scope
    while loc is not None or scope is not None:
        call, chain = loc.call if loc is not None else None, list[FunctionCall]()
        while call is not None:
            chain.insert(0, call)
            call = call.caller
        if chain and (chain[0].scope.path if chain[0].scope is not None else "") == path:
            if around is None:
                return chain
            return chain[chain.index(around) + 1 :] if around in chain else []
        loc, scope = (None, None) if scope is None else (scope.called_at, scope.caller)
    return []


class _Calling(CallingModule):
    """Builds a graph in which calls are where the program has them."""

    def origin(self, graph: Graph, key: Any, node: Node) -> Any:
        place: Any = SimpleNamespace(scope=key.scope, loc=key.called_at)
        return graph.with_origin(place)


# -- names -----------------------------------------------------------------------------------------
def given_names(call: FunctionCall, inputs: list[Node]) -> dict[Node, str]:
    """The names of the parameters of a function that gets these inputs, as far as passes left its arguments
    unchanged."""
    names: dict[str, str] = {}
    for name, structure in call.given:
        for leaf, part in _leaves(structure, name):
            names.setdefault(leaf, part)
    found: dict[Node, str] = {}
    for node in inputs:
        own: Any = names.get(str(node.meta.get(RESULT, node.target)), node.meta.get(_WEIGHT))
        if own is not None:
            found[node] = own
    return found


def _leaves(structure: Structure, name: str) -> Iterator[tuple[str, str]]:
    if structure.kind == "leaf":
        yield structure.name, name
    for key, child in zip(structure.keys, structure.children):
        yield from _leaves(child, f"{name}_{key}")


def constants(call: FunctionCall) -> dict[str, Any]:
    """The numbers among the arguments of a call."""
    plain = {name: s.value for name, s in call.given if s.kind == "constant"}
    return {name: v for name, v in plain.items() if type(v) in (int, float)}
