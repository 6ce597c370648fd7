"""Lint: checks every invariant of a graph in one pass over it, and reports all violations together.

Order, names, outputs and the ends of the list are always checked for the whole graph, which is cheap.
The call, arguments and readers of a node are checked again only if it was edited since the graph last
passed (the journal has these nodes), or for all nodes with ``full``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxlite.base.errors import FxliteError, GraphError, number_of
from fxlite.graph.node import OPCODES
from fxlite.ops.op import Op
from fxlite.types.tensor_type import type_of

if TYPE_CHECKING:
    from fxlite.graph.graph import Graph
    from fxlite.graph.node import Node


def lint(graph: Graph, full: bool = False) -> None:
    """Raise GraphError, which lists every broken invariant: a node of another graph, wrong order or
    names, arguments that do not fit the op's signature, users that do not mirror the arguments, an
    output that is missing, duplicated or not last, weights that do not exist, and types that differ
    from the op's rule."""
    positions, problems = _walk(graph)
    read: dict[Node, frozenset[Node]] = {}
    for node in positions if full else _changed(graph, positions):
        problems.extend(_check_links(node, positions, read))
        problems.extend(_check_call(node))
    if graph.states and not problems:
        problems.extend(_check_states(graph))
    if problems:
        raise GraphError("the graph is not valid:\n  " + "\n  ".join(dict.fromkeys(problems)))
    graph._linted = graph.journal.version


def _walk(graph: Graph) -> tuple[dict[Node, int], list[str]]:
    """The positions of all nodes, and the violations in the list itself."""
    positions: dict[Node, int] = {}
    names: set[str] = set()
    output: Node | None = None
    problems: list[str] = []
    for node in graph.nodes:
        if output is not None:
            what = "is a second output" if node.op == "output" else "stands after the output"
            problems.append(f"{node.describe()} {what}")
        elif node.op == "output":
            output = node
        if node.op not in OPCODES:
            problems.append(f"{node.describe()} has the unknown opcode {node.op!r}")
        if node.graph is not graph:
            problems.append(f"{node.describe()} belongs to another graph")
        names.add(node.name)
        positions[node] = len(positions)
    if len(names) < len(positions):
        first: dict[str, Node] = {}
        doubled = (node for node in positions if first.setdefault(node.name, node) is not node)
        problems.extend(f"{node.describe()} has the same name as an earlier node" for node in doubled)
    if output is None:
        problems.append("the graph has no output node")
    if len(positions) != len(graph):
        problems.append(f"the graph counts {number_of(len(graph), 'node')}, but lists {len(positions)}")
    return positions, problems


def _check_states(graph: Graph) -> list[str]:
    """Check that each state is an input, a buffer of the owner, and one of the values that follow the
    result, all of the same type."""
    interface, owner = graph.interface, graph.owning_module
    assert interface is not None
    inputs = {node.target: node for node in graph.placeholders}
    values = graph.output_node().args[0]
    if not isinstance(values, tuple) or len(values) < 1 + len(interface.writes):
        return [f"the output must be (result, {', '.join(f'new {w}' for w in interface.writes)}), which are written"]
    new, problems = dict(zip(interface.writes, values[1:])), []
    for target, path in interface.states:
        node = inputs.get(target)
        if node is None:
            problems.append(f"the state self.{path} has no input {target!r} any more; set graph.interface = None")
        elif getattr(new[target], "type", None) != node.type:
            problems.append(f"the state self.{path} is {node.type} and would be {getattr(new[target], 'type', None)}")
        elif owner is not None:
            try:
                held = type_of(owner.get_attribute(path))
            except (AttributeError, FxliteError) as error:
                problems.append(f"the state self.{path}: {error}")
                continue
            if held != node.type:
                problems.append(f"the state self.{path} is {held}, but its input {target} is {node.type}")
    return problems


def _changed(graph: Graph, positions: dict[Node, int]) -> Any:
    """The nodes to check again: those edited since the last time, the nodes that they read and their
    readers; all nodes if the edits are not known."""
    from fxlite.graph.node import Node

    if graph._linted is None or graph._linted[0] != graph.journal.generation:
        return positions
    found: dict[Node, None] = {}
    for subject in graph.journal.touched(graph._linted[1]):
        if not isinstance(subject, Node):
            return positions  # a weight or module was replaced, or a guard added
        for node in (subject, *subject.all_input_nodes, *subject.users):
            if node in positions:
                found[node] = None
    return found


def _check_links(node: Node, positions: dict[Node, int], read: dict[Node, frozenset[Node]]) -> list[str]:
    """Check that the arguments are earlier nodes of this graph and that use-lists mirror them. ``read``
    caches what each user reads, because a concat of many values is a user of every one of them."""
    problems: list[str] = []
    here = positions[node]
    for used in node.all_input_nodes:
        place = positions.get(used)
        if place is None:
            problems.append(f"{node.describe()} reads {used.name}, which is not in this graph")
        elif place >= here:
            problems.append(f"{node.describe()} reads {used.name} before it is computed")
        users = used._users
        if users is not node and node not in used.users:
            problems.append(f"{node.describe()} reads {used.name} but is not among its users")
    for user in node.users:
        if user not in read:
            read[user] = frozenset(user.all_input_nodes)
        if user not in positions or node not in read[user]:
            problems.append(f"{node.describe()} lists {user.name} as a user, which does not read it")
    return problems


def _check_call(node: Node) -> list[str]:
    """Check that the call fits the op's signature and type rule, and that the weight or module exists."""
    op = node.op
    try:
        if op == "call_function":
            target = node.target
            if not isinstance(target, Op):
                return [f"{node.describe()}: the target must be an op"]
            target.check_stored(node._args, node._kwargs)
            expected = target.type_of_call(node._args, node._kwargs)
            for body in node._kwargs.values() if target.kind == "control" else ():
                body.lint()
        elif op == "output":
            if len(node._args) != 1:
                return [f"{node.describe()}: the output has one argument, not {len(node._args)}"]
            expected = node.graph._infer(op, node.target, node._args, node._kwargs)
        elif op in ("get_attr", "call_module") and node.graph.owning_module is not None:
            owner = node.graph.owning_module
            if op == "call_module" or node.type is None:
                read = owner.get_submodule if op == "call_module" else owner.get_attribute
                read(node.target)
                return []
            expected = node.graph._infer(op, node.target, node._args, node._kwargs)
        else:
            return []
    except (FxliteError, AttributeError) as error:
        return [f"{node.describe()}: {error}"]
    if expected is not None and node.type != expected:
        what = "op's rule" if op == "call_function" else "graph" if op == "output" else "weight"
        return [f"{node.describe()}: has type {node.type}, but the {what} gives {expected}"]
    return []
