"""Pattern rewriting: find a traced function in a graph and put another one in its place.

In: a GraphModule, a pattern and a replacement written as plain functions in any spelling::

    def pattern(x, w):              def replacement(x, w):
        return np.maximum(x @ w, 0)     return F.relu(x @ w)

    matches = fx.replace_pattern(gm, pattern, replacement)

Out: the list of matches; the graph is edited in place. Both functions are traced without types, so
they must not ask for shapes. Matching starts from the pattern's result (the *anchor*);
each node of the graph is tried once as an anchor, so the time is linear in the graph's size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite.errors import ArgumentError
from fxlite.graph import Graph, Node, map_nodes
from fxlite.graph_module import GraphModule
from fxlite.op import Op
from fxlite.passes.base import unique_attribute
from fxlite.passes.rewire import Rewiring
from fxlite.passes.same_arguments import same_attributes, same_number

Program = Callable[..., Any]
_UNDONE = "nothing was replaced, the graph is as it was"


@dataclass
class Match:
    """One place where a pattern was found.

    ``anchor`` is the node that computed the pattern's result, ``bindings`` what the pattern's
    parameters stand for (nodes, or numbers), ``nodes`` the graph's node for each node of the
    pattern, ``replacements`` the nodes put in. Replaced nodes are no longer in the graph."""

    anchor: Node
    bindings: dict[str, Any]
    nodes: dict[Node, Node]
    replacements: list[Node] = field(default_factory=list)

    def __repr__(self) -> str:
        bound = ", ".join(f"{name}={value!r}" for name, value in self.bindings.items())
        return f"Match({self.anchor.name}: {bound})"


class Pattern:
    """A traced pattern: its graph, the weights it reads, and its result node."""

    def __init__(self, program: Program | GraphModule | Graph) -> None:
        self.module, self.graph = _trace(program)
        result = self.graph.output_node().args[0]
        if not isinstance(result, Node):
            raise ArgumentError("a pattern returns one value, not several")
        if result.op not in ("call_function", "call_module"):
            raise ArgumentError("the pattern computes nothing: it returns one of its inputs")
        self.result = result
        self.parameters = [n.target for n in self.graph.placeholders]

    def match(
        self,
        anchor: Node,
        usable: Callable[[Node], bool] = lambda node: True,
        gone: Callable[[Node], bool] = lambda node: False,
    ) -> Match | None:
        """The match whose result is ``anchor``, or None. Nodes for which ``usable`` is false stand
        only for parameters; those for which ``gone`` is true do not count as readers."""
        if anchor.op != self.result.op or anchor.target != self.result.target:
            return None
        # Depth first, with the second order of commutative operands kept for later: no recursion.
        open_states: list[tuple[Any, dict[Node, Any]]] = [(((self.result, anchor), None), {})]
        while open_states:
            agenda, bound = open_states.pop()
            found = self._solve(agenda, bound, open_states, anchor.graph.owning_module, usable)
            if found is not None and _closed(found, anchor, gone):
                names = {n: found.get(n) for n in self.graph.placeholders}
                inside = {p: g for p, g in found.items() if p.op != "placeholder"}
                return Match(anchor, {n.target: v for n, v in names.items()}, inside)
        return None

    def _solve(
        self, agenda: Any, bound: dict[Node, Any], later: list[Any], module: Any,
        usable: Callable[[Node], bool],
    ) -> dict[Node, Any] | None:  # fmt: skip
        """Work off ``agenda``, a linked list of (pattern value, graph value) pairs."""
        while agenda is not None:
            (wanted, value), agenda = agenda
            if not isinstance(wanted, Node):
                if not same_number(wanted, value, None):
                    return None
                continue
            if wanted in bound:
                if not _same_value(bound[wanted], value):
                    return None
                continue
            if wanted.op == "placeholder":
                if value is None or isinstance(value, (tuple, list)):
                    return None
                bound[wanted] = value
                continue
            if not isinstance(value, Node) or wanted.op != value.op:
                return None
            if wanted.op == "get_attr":
                if not _same_weight(self.module, wanted, module, value):
                    return None
                bound[wanted] = value
                continue
            if wanted.target != value.target or not usable(value):
                return None
            pairs = _pairs(wanted, value)
            if pairs is None:
                return None
            bound[wanted] = value
            if isinstance(wanted.target, Op) and wanted.target.commutative and len(pairs) == 2:
                (p, g), (q, h) = pairs
                later.append((((p, h), ((q, g), agenda)), dict(bound)))
            for pair in reversed(pairs):
                agenda = (pair, agenda)
        return bound


def _closed(bound: dict[Node, Any], anchor: Node, gone: Callable[[Node], bool]) -> bool:
    """True if nobody outside reads what is computed inside, the result excepted."""
    inside = {g for p, g in bound.items() if p.op in ("call_function", "call_module")}
    return all(
        user in inside or gone(user) for node in inside if node is not anchor for user in node.users
    )


def _trace(program: Program | GraphModule | Graph) -> tuple[GraphModule, Graph]:
    if isinstance(program, Graph):
        program = GraphModule(program.owning_module or {}, program.copy())
    if isinstance(program, GraphModule):
        return program, program.graph
    from fxlite.tracer import symbolic_trace

    if isinstance(program, Op):
        program = _with_parameters(program, _required_tensors(program))
    elif isinstance(program, np.ufunc):
        program = _with_parameters(program, ["x", "y", "z"][: program.nin])
    module = symbolic_trace(program)
    return module, module.graph


def _required_tensors(op: Op) -> list[str]:
    return [n for n, kind in op.tensor_kinds.items() if kind == "Tensor" and n not in op._defaults]


def _with_parameters(program: Program, names: list[str]) -> Program:
    """A function with these parameters, as tracing needs it: for ``np.exp`` or ``ops.exp``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _pairs(wanted: Node, value: Node) -> list[tuple[Any, Any]] | None:
    """Operands to match; None where the attributes or the number of operands differ."""
    if wanted.op == "call_module":
        same = len(wanted.args) == len(value.args) and not wanted.kwargs and not value.kwargs
        return list(zip(wanted.args, value.args)) if same else None
    if not same_attributes(wanted, value):
        return None
    pairs: list[tuple[Any, Any]] = []
    for name, kind in wanted.target.tensor_kinds.items():
        a: Any = wanted.arguments.get(name)
        b: Any = value.arguments.get(name)
        if kind == "Tensors":
            if len(a) != len(b):
                return None
            pairs.extend(zip(a, b))
        elif a is None or b is None:
            if a is not b:
                return None
        elif not isinstance(a, Node):
            if isinstance(b, Node) or not same_number(a, b, value):
                return None
        else:
            pairs.append((a, b))
    return pairs


def _same_value(a: Any, b: Any) -> bool:
    return a is b or (
        not isinstance(a, Node) and not isinstance(b, Node) and same_number(a, b, None)
    )


def _same_weight(mine: GraphModule, wanted: Node, theirs: Any, value: Node) -> bool:
    """Weights and constants of a pattern match arrays with the same contents."""
    a, b = mine.get_attribute(wanted.target), theirs.get_attribute(value.target)
    if a is b:
        return True
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def find_matches(gm: GraphModule, pattern: Program | GraphModule | Graph) -> list[Match]:
    """Where ``pattern`` occurs, in order; overlapping matches included."""
    compiled = Pattern(pattern)
    return [m for m in map(compiled.match, gm.graph.nodes) if m is not None]


def replace_pattern(
    gm: GraphModule,
    pattern: Program | GraphModule | Graph,
    replacement: Program | GraphModule | Graph,
    match_filter: Callable[[Match], bool] = lambda match: True,
) -> list[Match]:
    """Replace every occurrence of ``pattern`` in ``gm`` by ``replacement``, in place; recompiles
    and returns the matches.

    Operands of commutative ops match in either order, axes modulo the rank, two parameters may
    stand for one value, and a parameter may stand for a number. Values computed inside the pattern
    must not be read outside it. Matches do not overlap: the first in order wins, and what was put
    in is not matched again. Parameters of the replacement are those of the pattern with the same
    name, or, where the names differ, in the same order. ``match_filter`` may turn a match down.

    Raises ArgumentError for parameters that do not fit. If the replacement does not fit a place
    (its types do not agree), the graph is left as it was and the error names the place."""
    compiled = Pattern(pattern)
    rewriter = _Rewriter(gm, compiled, replacement)
    try:
        for node in list(gm.graph.nodes):
            rewriter.refresh(node)
            if rewriter.usable(node):
                found = compiled.match(node, rewriter.usable, rewriter.dead.__contains__)
                if found is not None and match_filter(found):
                    rewriter.replace(found)
    except Exception:
        rewriter.undo()
        raise
    rewriter.finish()
    gm.recompile()
    return rewriter.matches


class _Rewriter:
    """Replaces matches one by one; nothing is erased before the end, so that all can be undone."""

    def __init__(
        self, gm: GraphModule, pattern: Pattern, program: Program | GraphModule | Graph
    ) -> None:
        self.gm = gm
        self.pattern = pattern
        self.module, self.graph = _trace(program)
        self.matches: list[Match] = []
        self.created: dict[Node, None] = {}
        self.dead: dict[Node, None] = {}  # in the order they are replaced
        self.edits: list[tuple[Node, tuple[Any, ...], dict[str, Any]]] = []
        self.rewiring = Rewiring(gm.graph)
        self.types = {n: n.type for n in gm.graph.nodes}
        self.weights: dict[str, str] = {}  # the replacement's weights, by their path in gm
        self.order = self._parameter_order()

    def _parameter_order(self) -> list[str]:
        mine, theirs = [n.target for n in self.graph.placeholders], self.pattern.parameters
        if set(mine) <= set(theirs):
            return mine
        if len(mine) == len(theirs):
            return theirs
        raise ArgumentError(
            f"the replacement takes ({', '.join(mine)}), the pattern ({', '.join(theirs)}): give "
            f"its parameters the same names"
        )

    def usable(self, node: Node) -> bool:
        """True for nodes of the original graph that are still there."""
        return node not in self.dead and node not in self.created and not node._erased

    def refresh(self, node: Node) -> None:
        """Let a node read what was put in so far; nodes are visited in order, each once."""
        before = (node, node.args, node.kwargs)
        if self.rewiring.new and any(n in self.rewiring for n in node.all_input_nodes):
            self.edits.append(before)
            try:
                self.rewiring.refresh(node)
            except Exception as error:
                error.add_note(f"at {node.describe()}, which reads a replacement; {_UNDONE}")
                raise

    def replace(self, match: Match) -> None:
        """Compute the replacement just before the match's result and let its users read it."""
        anchor, graph = match.anchor, self.gm.graph
        values: dict[Node, Any] = {}
        with graph.inserting_before(anchor), graph.with_origin(anchor):
            for name, node in zip(self.order, self.graph.placeholders):
                values[node] = match.bindings[name]
            try:
                for node in self.graph.nodes:
                    if node.op not in ("placeholder", "output"):
                        values[node] = self._copy(node, values)
                        match.replacements.append(values[node])
            except Exception as error:
                error.add_note(f"while replacing {match} at {anchor.describe()}; {_UNDONE}")
                raise
        new = map_nodes(self.graph.output_node().args[0], lambda n: values[n])
        if not isinstance(new, Node):
            raise ArgumentError(f"the replacement gives {new!r} for {match}, not a tensor")
        self.rewiring.replace(anchor, new)
        self.dead[anchor] = None
        inside = (g for g in match.nodes.values() if g is not anchor and g.op != "get_attr")
        needed = set(_all_inputs(match.replacements)) | {new}
        self.dead.update((g, None) for g in inside if g not in needed)
        self.matches.append(match)

    def _copy(self, node: Node, values: dict[Node, Any]) -> Node:
        graph = self.gm.graph
        if node.op == "get_attr":
            made = graph.get_attr(self._weight(node.target))
        else:
            args = map_nodes(node.args, lambda n: values[n])
            kwargs = map_nodes(node.kwargs, lambda n: values[n])
            made = graph.create_node(node.op, node.target, args, kwargs)
        self.created[made] = None
        return made

    def _weight(self, target: str) -> str:
        if target not in self.weights:
            path = unique_attribute(self.gm, target)
            self.gm.set_attribute(path, self.module.get_attribute(target))
            self.weights[target] = path
        return self.weights[target]

    def undo(self) -> None:
        """Take everything back. Types are put back too: a half undone graph has none to infer."""
        for node, args, kwargs in reversed(self.edits):
            for used in node.all_input_nodes:
                used.users.pop(node, None)
            node._args, node._kwargs = args, kwargs
            for used in node.all_input_nodes:
                used.users[node] = None
        for node in reversed(self.created):
            self.gm.graph.erase_node(node)
        for node, known in self.types.items():
            node.type = known

    def finish(self) -> None:
        """Erase what was replaced; a node that a replacement reads stays."""
        position = {n: i for i, n in enumerate(self.gm.graph.nodes) if n in self.dead}
        for node in sorted(position, key=position.__getitem__, reverse=True):
            if not node.users:
                self.gm.graph.erase_node(node)


def _all_inputs(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield from node.all_input_nodes
