"""Compile a traced pattern into the steps of the matcher.

In: the graph of a pattern. Out: :class:`~fxlite.passes.rewrite.matcher.Steps`: its calls in an
order in which each call except the first is an operand of an earlier one, or can be found among the
readers of a value that is already known; and the operands of each call.

Patterns are associative: ``a + b + c`` also matches ``x + (y + z)``. :class:`Chain` is the step
that reads the same number of operands off any tree of the same op. Maximum, minimum and logic are
always associative, and so are sums and products of integers; for floats another grouping rounds
differently and is matched only if the caller allows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
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
from fxlite.passes.rewrite.rewire import needed_by
from fxlite.passes.rewrite.wildcard import LITERAL, Wildcard, attribute_names
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.passes.rewrite.pattern import Parameters


# -- chains ----------------------------------------------------------------------------------------
_LONGEST = 5  # operands of a chain, which can be ordered in n! ways
_ROUNDING = ("+", "*")  # associative on integers, up to rounding on floats


@dataclass
class ChainOf:
    """Calls of one associative op, each read only by the next, and their operands."""

    inner: list[Node]
    operands: list[Any]


def find_chains(graph: Graph, results: list[Node]) -> dict[Node, ChainOf]:
    """The chains of a pattern, by the node that computes their result."""
    found: dict[Node, ChainOf] = {}
    for node in graph.nodes:
        if not (isinstance(node.target, Op) and node.target.associative and len(node.args) == 2):
            continue
        inner: list[Node] = []
        operands: list[Any] = []
        for value in node.args:
            chain = found.get(value) if isinstance(value, Node) else None
            is_link = isinstance(value, Node) and value.target is node.target
            if is_link and len(value.users) == 1 and value not in results:
                inner.extend([value, *(chain.inner if chain else ())])
                operands.extend(chain.operands if chain else value.args)
            else:
                operands.append(value)
        if inner and len(operands) <= _LONGEST:
            for link in inner:
                found.pop(link, None)
            found[node] = ChainOf(inner, operands)
    return found


class Chain:
    """The step of a chain: it finds all ways to read its operands off a tree of the same op."""

    def __init__(self, node: Node, slot: int, chain: ChainOf, allowed: bool) -> None:
        self.node = node
        self.slot = slot
        self.allowed = allowed
        self.inner: list[int] = []
        self.operands: tuple[Any, ...] = ()

    def options(self, slots: list[Any], steps: Steps, every: bool) -> Any:
        from fxlite.passes.rewrite.matcher import plausible

        root: Node = slots[self.slot]
        if not self.allowed and root.target.symbol in _ROUNDING and not _is_exact(root):
            return ()
        return (
            (*order, *inner)
            for leaves, inner in _trees(root, len(self.operands), steps.around.barred)
            for order in _orders(leaves, root.target.commutative)
            if all(map(plausible, self.operands, order))
        )


def _orders(leaves: tuple[Any, ...], commutative: bool) -> Iterator[tuple[Any, ...]]:
    return itertools.permutations(leaves) if commutative else iter((leaves,))


def _trees(root: Node, count: int, barred: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Operands and inner nodes of every tree of ``root``'s op with ``count`` operands whose inner
    values have one reader and the dtype of the whole."""
    work: list[tuple[tuple[Any, ...], tuple[Node, ...], int]] = [(tuple(root.args), (), 0)]
    while work:
        leaves, inner, start = work.pop()
        if len(leaves) == count:
            if all(_same_dtype(leaf, root) for leaf in leaves):
                yield leaves, inner
            continue
        for i in reversed(range(start, len(leaves))):
            leaf = leaves[i]
            if (
                isinstance(leaf, Node)
                and leaf.target is root.target
                and leaf not in barred
                and len(leaf.users) == 1
                and _same_dtype(leaf, root)
            ):
                opened = (*leaves[:i], *leaf.args, *leaves[i + 1 :])
                work.append((opened, (*inner, leaf), i))


def _same_dtype(value: Any, root: Node) -> bool:
    """True for numbers, and in a graph without types."""
    if not isinstance(value, Node) or not isinstance(root.type, TensorType):
        return True
    return isinstance(value.type, TensorType) and value.type.dtype == root.type.dtype


def _is_exact(node: Node) -> bool:
    return isinstance(node.type, TensorType) and not node.type.dtype.is_inexact


# -- steps -----------------------------------------------------------------------------------------
def compile_steps(
    module: GraphModule,
    parameters: Parameters,
    wildcards: dict[Node, dict[str, Any]],
    regrouped: bool,
    associative: bool,
    ignore_literals: bool = False,
    any_weights: bool = False,
) -> Steps | None:
    """Compile a traced pattern. With ``regrouped``, chains of associative ops match however they are
    grouped; the result is None if there are no chains. With ``ignore_literals`` its numbers and
    attributes match any others, with ``any_weights`` its weights do. Raises ArgumentError for a
    program that cannot be a pattern."""
    graph = module.graph
    made = Steps(graph, module, any_weights)
    results = list(nodes_in(graph.output_node().args[0]))
    if not results or any(r.op not in ("call_function", "call_module") for r in results):
        raise ArgumentError("the pattern computes nothing: it returns one of its inputs")
    if len(set(results)) < len(results):
        raise ArgumentError("the pattern returns the same value twice")
    chains = find_chains(graph, results) if regrouped else {}
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
    needed = needed_by(results)
    work = [anchor]
    while work:
        while work:
            node = work.pop()
            made.calls.append(made.slots[node])
            chain = chains.get(node)
            if chain is not None:
                step: Any = Chain(node, made.slots[node], chain, associative)
                for inner in chain.inner:
                    made.slots[inner] = made.new_slot()
                    made.calls.append(made.slots[inner])
                step.inner = [made.slots[inner] for inner in chain.inner]
                values: Iterable[Any] = chain.operands
            else:
                step = Step(node, made.slots[node])
                step.wild = wildcards.get(node, {})
                if ignore_literals and isinstance(node.target, Op):
                    step.wild = dict.fromkeys(attribute_names(node.target), LITERAL)
                step.has_attributes = isinstance(node.target, Op) and (
                    len(node.target.signature.parameters) > len(node.target.tensor_kinds)
                )
                step.two_orders = getattr(node.target, "commutative", False)
                step.symmetric = node in symmetric
                values = _flat_operands(step, node, rest)
            step.operands = tuple(_operand(made, v, rest, work, ignore_literals) for v in values)
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
    """Operands one by one; lists of tensors are flattened."""
    if node.op == "call_module":
        return list(node.args)
    kinds = node.target.tensor_kinds.values()
    args = (*node.args, *(None,) * (len(kinds) - len(node.args)))
    if "Tensors" not in kinds:
        if rest is not None and rest in args:
            hint = f"{node.target.name} takes one; concatenate, stack and einsum take several"
            raise ArgumentError(f"*{rest.target} stands for several values: {hint}")
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


def _operand(made: Steps, value: Any, rest: Node | None, work: list[Node], ignore_literals: bool) -> OperandOf:
    if value is None:
        return ABSENT, None, None
    if isinstance(value, Wildcard):
        return ANY_NUMBER, None, value
    if not isinstance(value, Node):
        return (ANY_NUMBER, None, LITERAL) if ignore_literals else (NUMBER, value, None)
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


def _next_output(made: Steps, graph: Graph, needed: set[Node]) -> tuple[Node, Node] | None:
    """A known value and a call that reads it and has no slot yet; calls are preferred to parameters,
    which may have many readers."""
    known = [n for n in graph.nodes if n in made.slots and n.op.startswith("call")]
    known += [n for n in graph.placeholders if any(u in made.slots for u in n.users)]
    for node in known:
        for user in node.users:
            if user in needed and user not in made.slots:
                return node, user
    return None


def _symmetric_nodes(graph: Graph) -> set[Node]:
    """Calls whose two operands differ only in names, so that a second order would match the same."""
    keys: dict[Node, tuple[int, bool]] = {}  # what each node computes, and whether none of it is shared
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
