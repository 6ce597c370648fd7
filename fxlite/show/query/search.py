"""Finding the nodes that a graph query asks for, in linear time for each of its steps.

In: a graph and a query in the language that :mod:`fxlite.show.query` describes. Out: a list of
:class:`QueryMatch`, in the order of the graph.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import did_you_mean
from fxlite.graph.graph import Graph, Node
from fxlite.graph.node import axes_rank
from fxlite.graph.subgraph import bodies_of
from fxlite.ops.op import Op
from fxlite.show.query.parser import (
    At,
    Calls,
    Chain,
    Either,
    Filter,
    Flag,
    Inside,
    Named,
    Opcode,
    Step,
    Test,
    Users,
    parse_query,
    path_key,
    path_pattern,
    query_error,
)
from fxlite.show.query.values import COMPARE, VALUE_WORDS, Undecided, is_equal, is_ordered, is_same_axis
from fxlite.types.shapes import names
from fxlite.types.tensor_type import TensorType

#: Attributes that name axes, which are compared modulo the rank.
_AXES = ("axis", "axes", "axis1", "axis2")
_ABSENT = object()


@dataclass(frozen=True)
class QueryMatch:
    """One place that a query found: a node for each step of its chain, in the chain's order."""

    nodes: tuple[Node, ...]

    @property
    def last(self) -> Node:
        """The node that the chain ends in."""
        return self.nodes[-1]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"QueryMatch({', '.join(node.name for node in self.nodes)})"


def find(graph: Graph, query: str, sizes: Mapping[str, int] | None = None) -> list[QueryMatch]:
    """The places where a query holds, in the graph's order, followed by those in the bodies of loops and
    conditions. :mod:`fxlite.show.query` describes the language.

    Each node that a chain can end in is found once, with one chain that leads to it. ``sizes`` are
    values of named dims. Raises QueryError for a text that is not a query, for a question about types
    in a graph without types, and for a comparison that depends on named dims without values."""
    chains = parse_query(query)
    facts = _Facts(graph, query, dict(sizes or {}))
    found: dict[Node, QueryMatch] = {}
    for chain in chains:
        for match in _find_chain(chain, facts):
            found.setdefault(match.last, match)
    inside = [match for node in graph.nodes for body in bodies_of(node).values() for match in body.find(query, sizes)]
    if len(chains) == 1:
        return [*found.values(), *inside]
    return [*(found[node] for node in facts.nodes if node in found), *inside]


def unknown_places(graph: Graph, query: str) -> list[str]:
    """The modules, node names and lines that a query names and the graph does not have, each as a
    sentence. If such a query finds nothing, the reason may be a misspelling."""
    facts = _Facts(graph, query, {})
    said: list[str] = []
    for filter in _all_filters(step for chain in parse_query(query) for step in chain.steps):
        if isinstance(filter, Flag) and filter.glob:
            filter = Inside(filter.glob)
        if isinstance(filter, Inside | Named | At) and not _keep(filter, facts.nodes, facts):
            said.append(_describe_unknown(filter, facts))
    return list(dict.fromkeys(said))


class _Facts:
    """A graph and the facts that queries ask for, each computed when it is first asked for."""

    def __init__(self, graph: Graph, query: str, sizes: dict[str, int]) -> None:
        self.graph, self.query, self.sizes = graph, query, sizes
        self.nodes = list(graph.nodes)

    @functools.cached_property
    def has_types(self) -> bool:
        return any(node.type is not None for node in self.nodes if node.op != "output")

    @functools.cached_property
    def constants(self) -> set[Node]:
        """Nodes that depend on no input, size of an input, random number or leaf module."""
        found: set[Node] = set()
        for node in self.nodes:
            if node.op == "get_attr" or (
                node.op == "call_function"
                and not node.is_impure()
                and not names(list(node.kwargs.values()))
                and all(used in found for used in node.all_input_nodes)
            ):
                found.add(node)
        return found

    @functools.cached_property
    def alive(self) -> set[Node]:
        """Nodes that the results or the effects of the graph depend on."""
        found: set[Node] = set()
        for node in reversed(self.nodes):
            if node.is_impure() or any(user in found for user in node.users):
                found.add(node)
        return found


# -- chains ----------------------------------------------------------------------------------------
def _find_chain(chain: Chain, facts: _Facts) -> list[QueryMatch]:
    # for each step the nodes a chain can have reached, each with the node of the step before
    reached: list[dict[Node, Node | None]] = [dict.fromkeys(_filtered(chain.steps[0], facts.nodes, facts))]
    for link, step in zip(chain.links, chain.steps[1:]):
        sources = _readers(reached[-1], facts) if link == ">" else _dependents(reached[-1], facts)
        reached.append({n: sources[n] for n in _filtered(step, list(sources), facts)})
    matches = []
    for last in reached[-1]:
        nodes: list[Node] = []
        node: Node | None = last
        for level in reversed(reached):
            assert node is not None
            nodes.append(node)
            node = level[node]
        matches.append(QueryMatch(tuple(reversed(nodes))))
    return matches


def _readers(before: Mapping[Node, Any], facts: _Facts) -> dict[Node, Node]:
    """The nodes that read one of ``before``, each with the first that it reads, in the graph's order."""
    found: dict[Node, Node] = {}
    for node in facts.nodes:
        source = next((used for used in node.all_input_nodes if used in before), None)
        if source is not None:
            found[node] = source
    return found


def _dependents(before: Mapping[Node, Any], facts: _Facts) -> dict[Node, Node]:
    """The nodes that depend on one of ``before``, each with one of those, in the graph's order."""
    found: dict[Node, Node] = {}
    for node in facts.nodes:
        for used in node.all_input_nodes:
            source = used if used in before else found.get(used)
            if source is not None:
                found[node] = source
                break
    return found


# -- steps and filters -----------------------------------------------------------------------------
def _filtered(step: Step, nodes: list[Node], facts: _Facts) -> list[Node]:
    for filter in step.filters:
        nodes = _keep(filter, nodes, facts)
    return nodes


def _keep(filter: Filter, nodes: list[Node], facts: _Facts) -> list[Node]:
    """The nodes for which a filter holds, in order."""
    match filter:
        case Opcode(word):
            return [n for n in nodes if n.op == word]
        case Calls(op):
            return [n for n in nodes if n.target is op]
        case Named(name):
            return [n for n in nodes if n.name == name]
        case Users(sign, count):
            return [n for n in nodes if COMPARE[sign](len(n.users), count)]
        case Either(steps, negated):
            accepted = {n for step in steps for n in _filtered(step, nodes, facts)}
            return [n for n in nodes if (n in accepted) is not negated]
        case Inside(glob):
            return _keep_inside(glob, nodes)
        case At(file, first, last):
            return [n for n in nodes if _is_at(n, file, first, last)]
        case Flag(word, glob) if glob:
            return _keep_ends(word, glob, nodes)
        case Flag(word):
            return _keep_flagged(word, nodes, facts)
        case Test():
            return _keep_tested(filter, nodes, facts)


def _keep_flagged(word: str, nodes: list[Node], facts: _Facts) -> list[Node]:
    if word in ("first", "last"):
        return nodes[:1] if word == "first" else nodes[-1:]
    holds: dict[str, Callable[[Node], bool]] = {
        "constant": lambda n: n in facts.constants,
        "random": lambda n: isinstance(n.target, Op) and n.target.is_random,
        "input": lambda n: n.op == "placeholder",
        "dead": lambda n: n not in facts.alive,
    }
    return [n for n in nodes if holds[word](n)]


def _keep_ends(word: str, glob: str, nodes: list[Node]) -> list[Node]:
    """The first or last node in each of the modules."""
    pattern, found = path_pattern(glob), dict[str, Node]()
    for node in nodes:
        path = module_path(node)
        inside = pattern.match(path_key(path)) if path is not None else None
        if inside is not None and (word == "last" or inside[0] not in found):
            found[inside[0]] = node
    kept = set(found.values())
    return [n for n in nodes if n in kept]


def module_path(node: Node) -> str | None:
    """The path of the module that a node was made in, or that of the leaf module it calls; None for
    inputs and results."""
    if node.op == "call_module":
        return str(node.target)
    return None if node.scope is None else node.scope.path


def _keep_inside(glob: str, nodes: list[Node]) -> list[Node]:
    pattern = path_pattern(glob)
    verdicts: dict[str | None, bool] = {None: False}
    kept = []
    for node in nodes:
        path = module_path(node)
        if path not in verdicts:
            verdicts[path] = path is not None and pattern.match(path_key(path)) is not None
        if verdicts[path]:
            kept.append(node)
    return kept


def _is_at(node: Node, file: str, first: int, last: int) -> bool:
    if node.loc is None:
        return False
    path = node.loc.file.replace("\\", "/")
    return (path == file or path.endswith(f"/{file}")) and first <= node.loc.line <= last


# -- attributes ------------------------------------------------------------------------------------
def _keep_tested(test: Test, nodes: list[Node], facts: _Facts) -> list[Node]:
    if test.attribute in VALUE_WORDS:
        if nodes and not facts.has_types:
            raise query_error(
                facts.query,
                test.start,
                test.end,
                'the graph has no types; trace with input types: symbolic_trace(f, x="f32[...]")',
            )
        verdicts: dict[TensorType, bool] = {}  # a graph has few types, and dims are slow
        kept = []
        for node in nodes:
            type = node.type
            if not isinstance(type, TensorType) or node.op == "output":
                continue
            if type not in verdicts:
                verdicts[type] = _holds(test, node, _type_value(test.attribute, type), facts)
            if verdicts[type]:
                kept.append(node)
        return kept
    return [n for n in nodes if _holds(test, n, _attribute(n, test.attribute), facts)]


def _type_value(attribute: str, type: TensorType) -> Any:
    if attribute == "shape":
        return type
    return getattr(type, "nbytes" if attribute == "bytes" else attribute)


def _attribute(node: Node, name: str) -> Any:
    """The value of an attribute or operand, with defaults filled in; ``_ABSENT`` if there is none."""
    if name == "path" and node.op in ("get_attr", "call_module"):
        return str(node.target)
    if not isinstance(node.target, Op):
        return _ABSENT
    parameter = node.target.signature.parameters.get(name)
    if parameter is None:
        return node.target.kind if name == "kind" else _ABSENT
    return node.arguments.get(name, parameter.default)


def _holds(test: Test, node: Node, value: Any, facts: _Facts) -> bool:
    sign, wanted = test.sign, test.value
    if value is _ABSENT:
        return False
    if not sign:
        return value is not None and value is not False
    if sign in ("=", "!="):
        if test.attribute == "path":
            same = isinstance(wanted, str) and fnmatch.fnmatchcase(value, wanted)
        elif test.attribute == "shape":
            same = wanted.matches(value, facts.sizes)  # type: ignore[attr-defined]
        elif test.attribute in _AXES:
            is_reduction = node.target.kind == "reduction"
            same = is_same_axis(value, wanted, axes_rank(node), is_reduction)
        else:
            same = is_equal(value, wanted, facts.sizes)
        return same is (sign == "=")
    try:
        return is_ordered(value, sign, wanted, facts.sizes)
    except Undecided as undecided:
        given = ", ".join(f'"{name}": …' for name in sorted(undecided.names))
        raise query_error(
            facts.query,
            test.start,
            test.end,
            f"whether this holds for {node.describe()} depends on {undecided}; give "
            f"sizes={{{given}}} (on the command line --size), or trace with numbers",
        ) from None


# -- names that the graph does not have ------------------------------------------------------------
def _all_filters(steps: Iterable[Step]) -> Iterable[Filter]:
    for step in steps:
        for filter in step.filters:
            yield filter
            if isinstance(filter, Either):
                yield from _all_filters(filter.steps)


def _describe_unknown(filter: Inside | Named | At, facts: _Facts) -> str:
    if isinstance(filter, At):
        lines = f":{filter.first}" if filter.first else ""
        return f"no node was made at {filter.file}{lines}"
    if isinstance(filter, Named):
        hint = did_you_mean(filter.name, [n.name for n in facts.nodes])
        return f"no node is named {filter.name}{hint}"
    paths = dict.fromkeys(path for n in facts.nodes if (path := module_path(n)))
    hint = did_you_mean(re.sub(r"\*+", "", filter.glob), paths)
    return f"no node was made in a module {filter.glob!r}{hint}"
