"""Passes inside loops and conditions: what a pass does to a graph it also does to the sub-graphs of
its nodes, each treated as a graph of its own.

In: a module, and a function that edits a module in place. Out: nodes with new sub-graphs. In a
sub-graph every value from outside is an input, weights included; a constant that a pass creates
there becomes a buffer of the surrounding module, which the body captures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.control import BODIES
from fxlite.passes.derived import unique_attribute
from fxlite.passes.ledger import add_refusals, refusals, refuse

#: Edits a module; may give another one instead.
Edit = Callable[[GraphModule], Any]


def control_nodes(graph: Graph) -> list[Node]:
    """The loops and conditions of a graph, without those nested in their bodies."""
    nodes = graph.nodes if graph._store.n_controls else ()
    return [node for node in nodes if node.op == "call_function" and node.target.kind == "control"]


def edit_bodies(gm: GraphModule, edit: Edit) -> None:
    """Apply ``edit`` to the sub-graphs of all nodes, innermost first."""
    for node in control_nodes(gm.graph):
        new: dict[str, Any] = {}
        extra: list[Node] = []
        for name, body in bodies_of(node).items():
            made = _edited(gm, node, body, edit)
            if made is not None:
                new[name], constants = made
                extra += [c for c in constants if c not in extra]
        if new:
            _assign(node, new, extra)


def edit_here_and_inside(gm: GraphModule, edit: Edit) -> None:
    """Apply ``edit`` to the sub-graphs (:func:`edit_bodies`), then to the module itself."""
    edit_bodies(gm, edit)
    edit(gm)


def say_not_inside(gm: GraphModule, name: str) -> None:
    """Record in the ledger that a pass leaves sub-graphs alone."""
    for node in control_nodes(gm.graph):
        refuse(gm, name, node, "the pass does not go inside of loops and conditions")


def _edited(
    gm: GraphModule, node: Node, body: SubGraph, edit: Edit
) -> tuple[tuple[Graph, list[Node], dict[Node, Node]], list[Node]] | None:
    """A copy of a body after the edit: its graph, its inputs, and the inputs for constants of the
    surrounding module with their nodes there. None if nothing changed."""
    graph, copies = body.copy()
    module = GraphModule({}, graph, "body")
    module.training = gm.training
    before = graph.journal.version
    edit_bodies(module, edit)
    result = edit(module)
    add_refusals(gm, refusals(module))
    if isinstance(result, GraphModule) and result is not module:
        return None
    if graph.journal.version == before:
        body.give_back(graph, copies)
        return None
    constants: dict[Node, Node] = {}
    for read in graph.find_nodes(op="get_attr"):
        around = _constant_around(gm, node, module.get_attribute(read.target), read)
        last = graph.placeholders[-1:]
        with graph.inserting_after(last[0]) if last else graph.inserting_before():
            taken = graph.placeholder(graph._store.namer.unique(f"{read.name}_0"), read.type)
        read.replace_all_uses_with(taken)
        graph.erase_node(read)
        constants[around] = taken
    return (graph, [copies[n] for n in body.inputs], constants), list(constants)


def _constant_around(gm: GraphModule, node: Node, value: Any, read: Node) -> Node:
    path = unique_attribute(gm, read.target.rpartition(".")[2])
    gm.set_attribute(path, value)
    with gm.graph.inserting_before(node), gm.graph.with_origin(node):
        return gm.graph.get_attr(path)


def _assign(node: Node, new: dict[str, Any], extra: list[Node]) -> None:
    """Give a node its new bodies, which read ``extra`` constants besides their former inputs."""
    bodies: dict[str, SubGraph] = {}
    for name, body in bodies_of(node).items():
        if name in new:
            graph, inputs, constants = new[name]
        else:
            graph, copies = body.copy()
            inputs, constants = [copies[n] for n in body.inputs], {}
        for around in extra:
            if around not in constants:
                constants[around] = new_input(graph, around.name, around.type)
        bodies[name] = SubGraph(graph, [*inputs, *(constants[n] for n in extra)])
    set_bodies(node, bodies, extra)


def drop_unread_results(graph: Graph) -> None:
    """Erase nodes that nobody reads and unread results of loops and conditions, with everything that only
    they depend on. A value that a loop carries is needed if its result is read, or if a needed value, a test
    or a call with effects depends on it."""
    graph.eliminate_dead_code()
    for node in reversed(control_nodes(graph)):
        if all(user.op == "call_function" and user.target.name == "getitem" for user in node.users):
            read = {user.kwargs["index"] for user in node.users}
            if 0 < len(read) < len(node.type):
                _keep_results(node, read)
                graph.eliminate_dead_code()  # the initial values of what was removed


def _keep_results(node: Node, read: set[int]) -> None:
    """Replace a loop or condition by one without the results that are not needed."""
    graph, op, count, bound = node.graph, node.target, len(node.type), dict(node.arguments)
    first, is_loop = BODIES[op][2], "carried" in bound
    while True:
        wanted, needed = sorted(read), set(read)
        for name, body in bodies_of(node).items():
            inner, copies = body.copy()
            if name != "cond_fn":
                inner.output_node().args = (tuple(copies[body.results[n]] for n in wanted),)
            drop_unread_results(inner)
            inputs = [copies[n] for n in body.inputs]
            dropped = [inputs[first + n] for n in range(count) if n not in read] if is_loop else []
            needed |= {inputs.index(own) - first for own in dropped if own.users}
            if needed == read:
                for own in dropped:
                    inner.erase_node(own)
                bound[name] = SubGraph(inner, [own for own in inputs if own not in dropped])
        if needed == read:
            break
        read = needed
    if len(wanted) == count:
        return
    if is_loop:
        bound["carried"] = tuple(bound["carried"][n] for n in wanted)
    target, bound = op.canonicalize(op.bind((), bound))
    with graph.inserting_before(node), graph.with_origin(node):
        made = graph.call_function(target, *target.split_arguments(bound))
        for user in list(node.users):
            with graph.with_origin(user):
                part = graph.call_function(user.target, (made,), {"index": wanted.index(user.kwargs["index"])})
            user.replace_all_uses_with(part)
            graph.erase_node(user)
            part.name = user.name
    graph.erase_node(node)
    made.name = node.name


def new_input(graph: Graph, wish: str, type: Any) -> Node:
    """Add an input to a body, after the others."""
    with graph.inserting_after(graph.placeholders[-1]):
        return graph.placeholder(graph._store.namer.unique(wish), type)


def set_bodies(node: Node, bodies: dict[str, SubGraph], captured: list[Node]) -> None:
    """Give a loop or condition other bodies, whose last inputs are the values that it now captures."""
    op = node.target
    _, name, _ = BODIES[op]
    bound = node.arguments | bodies
    bound[name] = (*bound.get(name, ()), *captured)
    target, bound = op.canonicalize(op.bind((), bound))
    node.graph._set_arguments(node, *target.split_arguments(bound))
