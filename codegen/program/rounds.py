"""Two rounds of a loop in one, where one kernel computes both.

Before::

    for k in range(0, 400):
        minimum: i32[400,400] = minimum(path, path[:, k] + path[k])
        path = minimum

After::

    for j in range(0, 200):
        minimum: i32[400,400] = minimum(path, path[:, 2*j] + path[2*j])
        minimum_1: i32[400,400] = minimum(minimum, minimum[:, 2*j + 1] + minimum[2*j + 1])
        path = minimum_1

A round that computes a whole array from another one reads and writes memory. If the grouping joins two of them in one
kernel, the first one's elements being computed where the second one reads them, half of that is left. (Loop unrolling
and jamming: F. E. Allen, J. Cocke: A Catalogue of Optimizing Transformations, 1972.)
"""

from __future__ import annotations

from typing import Any

from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import SubGraph
from fxlite.ops.op import lookup
from fxlite.passes.group import group, is_one_place
from fxlite.passes.inside import control_nodes

#: Kinds of ops that a kernel computes wherever their elements are read.
_FUSED = ("pointwise", "view", "gather", "creation")
#: The least number of rounds.
_FEWEST = 8


def with_two_rounds(module: GraphModule) -> GraphModule:
    """The module itself if no loop gains by it; otherwise a copy."""
    twice = {node.name: body for node in control_nodes(module.graph) if (body := _joined(node)) is not None}
    if not twice:
        return module
    made = module.copy()
    for node in [n for n in control_nodes(made.graph) if n.name in twice]:
        _replace(made.graph, node, twice[node.name])
    return made


def _joined(node: Node) -> SubGraph | None:
    """The body of two rounds of a loop, if a kernel computes them as it computes one."""
    if node.target is not lookup("fori_loop"):
        return None
    lower, upper = node.args[:2]
    body: SubGraph = node.arguments["body_fn"]
    if type(lower) is not int or type(upper) is not int or upper - lower < _FEWEST or lower < 0:
        return None
    if not all(call.target.kind in _FUSED and not call.target.writes_part for call in body.calls):
        return None
    if any(call.target.kind == "gather" and not is_one_place(call) for call in body.calls):
        return None  # an element of the first round would be computed again wherever it is looked up
    if not all(result.op == "call_function" and result.type.rank for result in body.results):
        return None
    if _kernels(body) != len(body.results):
        return None
    twice = _twice(body, len(node.arguments["carried"]), lower)
    return twice if _kernels(twice) == len(body.results) else None


def _kernels(body: SubGraph) -> int:
    """The kernels of a round that compute arrays."""
    module = GraphModule({}, body.graph, "body")
    return sum(bool(found.root.type.rank) for found in group(module))


def _twice(body: SubGraph, carried: int, lower: int) -> SubGraph:
    """A body that does the work of two rounds, of which the j-th does that of ``lower + 2*j`` and of the next one."""
    graph, copies = body.copy()
    inputs, output = [copies[n] for n in body.inputs], graph.output_node()
    first_call = next(n for n in graph.nodes if n.op == "call_function")
    number = inputs[0]

    def call(name: str, x: Node, value: int) -> Node:
        return graph.call_function(lookup(name), (x, value))

    readers = list(number.users)
    with graph.inserting_before(first_call):
        first = call("add", call("mul", number, 2), lower)
        second = call("add", first, 1)
    for reader in readers:
        reader.replace_input_with(number, first)
    again = dict(zip(body.inputs, inputs)) | {body.inputs[0]: second}
    again |= dict(zip(body.inputs[1 : 1 + carried], (copies[r] for r in body.results)))
    with graph.inserting_before(output):
        for inner in body.calls:
            again[inner] = graph.node_copy(inner, again.__getitem__)
    output.args = (tuple(again[result] for result in body.results),)
    return SubGraph(graph, inputs)


def _replace(graph: Graph, node: Node, twice: SubGraph) -> None:
    """Give a loop half as many rounds, and let another one do the round that is left if their number is odd."""
    given, (lower, upper) = dict(node.arguments), node.args[:2]
    count = upper - lower
    whole = {"lower": 0, "upper": count // 2, "body_fn": twice}
    rest = {"lower": upper - 1, "upper": upper}

    def loop(arguments: dict[str, Any]) -> Node:
        target, bound = node.target.canonicalize(node.target.bind((), arguments))
        args, kwargs = target.split_arguments(bound)
        return graph.call_function(target, args, kwargs, name=node.name)

    with graph.inserting_before(node), graph.with_origin(node):
        made = loop(given | whole)
        if count % 2:
            numbers = range(len(given["carried"]))
            parts = tuple(graph.call_function(lookup("getitem"), (made,), {"index": n}) for n in numbers)
            made = loop(given | rest | {"carried": parts})
    node.replace_all_uses_with(made)
    graph.erase_node(node)
