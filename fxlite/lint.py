"""Lint: every invariant of a graph, checked in one walk; all violations are reported together."""

from __future__ import annotations

from fxlite.errors import FxliteError, GraphError
from fxlite.graph import OPCODES, Graph, Node
from fxlite.op import Op


def lint(graph: Graph) -> None:
    """Raise GraphError listing every broken invariant: ownership, order, names, arity against the
    op's signature, users that do not mirror arguments, output missing, doubled or not last, weights
    that do not exist, types that differ from the op's rule."""
    problems: list[str] = []
    seen: dict[Node, int] = {}
    names: dict[str, Node] = {}
    outputs: list[Node] = []
    for position, node in enumerate(graph.nodes):
        who = node.describe()
        if node.graph is not graph:
            problems.append(f"{who} belongs to another graph")
        if node.op not in OPCODES:
            problems.append(f"{who} has the unknown opcode {node.op!r}")
        if node.name in names:
            problems.append(f"{who} has the same name as an earlier node")
        names[node.name] = node
        if outputs:
            problems.append(f"{who} stands after the output")
        for used in node.all_input_nodes:
            if used.graph is not graph or used._erased:
                problems.append(f"{who} reads {used.name}, which is not in this graph")
            elif used not in seen:
                problems.append(f"{who} reads {used.name} before it is computed")
            if node not in used.users:
                problems.append(f"{who} reads {used.name} but is not among its users")
        if node.op == "output":
            outputs.append(node)
        seen[node] = position
        problems.extend(_check_call(node))
    for node in seen:
        for user in node.users:
            if user not in seen or node not in user.all_input_nodes:
                problems.append(
                    f"{node.describe()} lists {user.name} as a user, which does not read it"
                )
    if not outputs:
        problems.append("the graph has no output node")
    if len(outputs) > 1:
        problems.append("the graph has more than one output node")
    if problems:
        raise GraphError("the graph is not valid:\n  " + "\n  ".join(problems))


def _check_call(node: Node) -> list[str]:
    who, graph = node.describe(), node.graph
    if node.op == "get_attr" and graph.owning_module is not None:
        try:
            graph.owning_module.get_attribute(node.target)
        except AttributeError as error:
            return [f"{who}: {error}"]
    if node.op == "call_module" and graph.owning_module is not None:
        try:
            graph.owning_module.get_submodule(node.target)
        except AttributeError as error:
            return [f"{who}: {error}"]
    if node.op != "call_function":
        return []
    if not isinstance(node.target, Op):
        return [f"{who}: the target must be an op"]
    try:
        node.target.bind(node.args, node.kwargs)
        expected = graph._infer(node)
    except FxliteError as error:
        return [f"{who}: {error}"]
    if node.type != expected and expected is not None:
        return [f"{who}: has type {node.type}, but the op's rule gives {expected}"]
    return []
