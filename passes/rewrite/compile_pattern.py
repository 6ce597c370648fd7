"""From a traced pattern to the steps of the matcher.

In: the graph of a pattern. Out: :class:`~fxlite.passes.rewrite.matcher.Steps`: its calls in an
order in which each one but the first is an operand of an earlier one, or is found among the
readers of a value known already; and for each call what its operands are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.passes.rewrite import regroup
from fxlite.passes.rewrite.matcher import (
    ABSENT,
    ANY_NUMBER,
    CALL,
    NUMBER,
    PARAMETER,
    REST,
    WEIGHT,
    Find,
    OperandOf,
    Step,
    Steps,
)
from fxlite.passes.rewrite.wildcard import Wildcard

if TYPE_CHECKING:
    from fxlite.passes.rewrite.pattern import Parameters


def compile_steps(
    module: GraphModule, parameters: Parameters, wildcards: dict[Node, dict[str, Any]],
    regrouped: bool, associative: bool,
) -> Steps | None:  # fmt: skip
    """Make a traced pattern ready. With ``regrouped``, chains of associative ops match however
    they are grouped; None if there are none. Raises ArgumentError for what is no pattern."""
    graph = module.graph
    made = Steps(graph, module)
    results = list(nodes_in(graph.output_node().args[0]))
    if not results or any(r.op not in ("call_function", "call_module") for r in results):
        raise ArgumentError("the pattern computes nothing: it returns one of its inputs")
    if len(set(results)) < len(results):
        raise ArgumentError("the pattern returns the same value twice")
    chains = regroup.chains(graph, results) if regrouped else {}
    if regrouped and not chains:
        return None
    order = {node: i for i, node in enumerate(graph.nodes)}
    anchor = max(results, key=order.__getitem__)
    made.target = anchor.target
    made.slots[anchor] = made.new_slot()
    made.wildcards = {name: made.new_slot() for name in parameters.attributes}
    by_name = {node.target: node for node in graph.placeholders}
    for name in parameters.names:
        node = by_name.get(name)
        made.parameters[name] = made.wildcards.get(name)
        if node is not None:
            made.parameters[name] = made.slots[node] = made.new_slot()
    made.rest = rest = by_name.get(parameters.rest or "")
    made.regrouped = regrouped
    symmetric = _symmetric_nodes(graph)
    needed = _needed(results)
    work = [anchor]
    while work:
        while work:
            node = work.pop()
            made.calls.append(made.slots[node])
            chain = chains.get(node)
            if chain is not None:
                step: Any = regroup.Chain(node, made.slots[node], chain, associative)
                for inner in chain.inner:
                    made.slots[inner] = made.new_slot()
                    made.calls.append(made.slots[inner])
                step.inner = [made.slots[inner] for inner in chain.inner]
                values: Iterable[Any] = chain.operands
            else:
                step = Step(node, made.slots[node])
                step.wild = wildcards.get(node, {})
                step.has_attributes = isinstance(node.target, Op) and (
                    len(node.target.signature.parameters) > len(node.target.tensor_kinds)
                )
                step.two_orders = getattr(node.target, "commutative", False)
                step.symmetric = node in symmetric
                values = _flat_operands(step, node, rest)
            step.operands = tuple(_operand(made, v, rest, work) for v in values)
            made.steps.append(step)
        found = _next_output(made, graph, needed)
        if found is not None:
            known, node = found
            made.slots[node] = made.new_slot()
            made.steps.append(Find(made.slots[known], made.slots[node], node.target))
            work.append(node)
    if any(r not in made.slots for r in results):
        raise ArgumentError("the results of the pattern share no value: use a pattern for each")
    made.outputs = [made.slots[r] for r in results]
    return made


def _flat_operands(step: Step, node: Node, rest: Node | None) -> list[Any]:
    """Operands one by one, lists of tensors opened."""
    if node.op == "call_module":
        return list(node.args)
    kinds = node.target.tensor_kinds.values()
    args = (*node.args, *(None,) * (len(kinds) - len(node.args)))
    if "Tensors" not in kinds:
        if rest is not None and rest in args:
            raise ArgumentError(f"*{rest.target} stands for several values: {_rest_hint(node)}")
        return list(args)
    lists: list[tuple[int, int, int] | None] = []
    flat: list[Any] = []
    for value, kind in zip(args, kinds):
        if kind != "Tensors":
            lists.append(None)
            flat.append(value)
            continue
        places = [i for i, v in enumerate(value) if v is rest and rest is not None]
        if len(places) > 1:
            raise ArgumentError(f"*{rest} stands twice in the operands of {node.target.name}")
        before = places[0] if places else len(value)
        lists.append((before, len(places), len(value) - before - len(places)))
        flat.extend(value)
    step.lists = tuple(lists)
    return flat


def _rest_hint(node: Node) -> str:
    return f"{node.target.name} takes one; concatenate, stack and einsum take several"


def _operand(made: Steps, value: Any, rest: Node | None, work: list[Node]) -> OperandOf:
    if value is None:
        return ABSENT, None, None
    if isinstance(value, Wildcard):
        return ANY_NUMBER, None, value
    if not isinstance(value, Node):
        return NUMBER, value, None
    if value is rest:
        return REST, made.slots[value], None
    if value.op == "placeholder":
        return PARAMETER, made.slots[value], None
    is_new = value not in made.slots
    if is_new:
        made.slots[value] = made.new_slot()
    if value.op == "get_attr":
        return WEIGHT, made.slots[value], value
    if is_new:
        work.append(value)
    return CALL, made.slots[value], value.target


def _needed(results: list[Node]) -> set[Node]:
    """The calls that the results depend on."""
    found: set[Node] = set()
    work = list(results)
    while work:
        node = work.pop()
        if node not in found and node.op.startswith("call"):
            found.add(node)
            work.extend(node.all_input_nodes)
    return found


def _next_output(made: Steps, graph: Graph, needed: set[Node]) -> tuple[Node, Node] | None:
    """A value known so far and a call that reads it and has no slot yet; calls come before
    parameters, which may have many readers."""
    known = [n for n in graph.nodes if n in made.slots and n.op.startswith("call")]
    known += [n for n in graph.placeholders if any(u in made.slots for u in n.users)]
    for node in known:
        for user in node.users:
            if user in needed and user not in made.slots:
                return node, user
    return None


def _symmetric_nodes(graph: Graph) -> set[Node]:
    """Calls with two operands that differ in names alone: a second order would match the same."""
    keys: dict[Node, tuple[int, bool]] = {}  # what it computes; whether nothing of it is shared
    numbers: dict[Any, int] = {}
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op == "output":
            continue
        private = len(node.users) == 1 and _uses(node) == 1
        parts: list[Any] = []
        for value in node.args:
            if isinstance(value, Node):
                private = private and keys[value][1]
                parts.append(keys[value][0])
            else:
                parts.append(repr(value))
        if node.op == "placeholder":
            key: Any = "?" if private else node.name
        else:
            key = (node.op, node.target, repr(node.kwargs), *parts)
        keys[node] = (numbers.setdefault(key, len(numbers)), private)
        if len(node.args) == 2 and all(isinstance(a, Node) for a in node.args):
            a, b = (keys[value] for value in node.args)
            if a[0] == b[0] and a[1] and b[1]:
                found.add(node)
    return found


def _uses(node: Node) -> int:
    return sum(list(nodes_in(user.args)).count(node) for user in node.users)
