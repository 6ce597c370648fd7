"""What a set of rules does as a set: rules that loop, rules that can never fire, and pairs whose
order matters.

In: rules with their examples. Out: a :class:`RuleAnalysis`, each finding with the program that
shows it. Nothing is proved of all programs: the rules are run on their own examples and on every
composition of two (the result of one example as an input of the other, where the types agree),
which is where two rules meet: the critical pairs of term rewriting (Knuth and Bendix, 1970), sought
by trying.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.console import Printed
from fxlite.base.errors import FxliteError, expect
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import Pass
from fxlite.passes.rewrite.rule_set import RuleLoopError, RuleSet
from fxlite.show.comparison.compare import first_difference

_LIMIT = 60  # rewrites of one node's descendants after which a set counts as looping


@dataclass(frozen=True)
class Finding:
    """One thing to know of a set of rules: the rules it is about, what it is, and the program that
    shows it (text of a graph)."""

    rules: tuple[str, ...]
    text: str
    program: str = ""


@dataclass(repr=False)
class RuleAnalysis(Printed):
    """Findings about a set of rules; true if there are none. Prints as a list."""

    loops: list[Finding] = field(default_factory=list)
    never_fire: list[Finding] = field(default_factory=list)
    order_matters: list[Finding] = field(default_factory=list)
    programs: int = 0

    @property
    def about(self) -> str:
        return f"{len(self.loops) + len(self.never_fire) + len(self.order_matters)} findings"

    def __bool__(self) -> bool:
        return not (self.loops or self.never_fire or self.order_matters)

    def __rich__(self) -> Any:
        from rich.text import Text

        text = Text()
        kinds = (
            ("loops", self.loops, "red"),
            ("never fires", self.never_fire, "yellow"),
            ("order matters", self.order_matters, "yellow"),
        )
        for kind, findings, style in kinds:
            for finding in findings:
                text.append(f"{kind}: ", style)
                text.append(f"{', '.join(finding.rules)}: {finding.text}\n")
                text.append("".join(f"    {line}\n" for line in finding.program.splitlines()), "dim")
        text.append(_count(len(self.loops), "loop", "loops"))
        text.append(_count(len(self.never_fire), "rule that never fires", "rules that never fire"))
        pairs = len(self.order_matters)
        text.append(_count(pairs, "pair whose order matters", "pairs whose order matters"))
        text.append(f"tried on {self.programs} programs")
        return text


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}, "


@checked
def analyze_rules(rules: Iterable[Any]) -> RuleAnalysis:
    """Run ``rules`` (as of a :class:`RuleSet`; each with at least one example) on their examples
    and on compositions of two of these, and report loops, rules that fire on none of them in this
    set though they do alone, and pairs that give different graphs in the two orders."""
    rules = list(rules)
    for rule in rules:
        expect(rule, Pass, "a rule")
    found = RuleAnalysis()
    examples = {rule.name: [e.trace() for e in rule.examples] for rule in rules}
    fired: set[str] = set()
    first: dict[str, set[str]] = {}  # rules that fire on the examples of a rule which does not
    for owner, program in _programs(rules, examples):
        found.programs += 1
        statistics = _run(rules, program, found.loops)
        hits = {name for name, count in statistics.items() if count.hits}
        fired |= hits
        first.setdefault(owner, set()).update(hits)
    for rule in rules:
        if rule.name not in fired:
            found.never_fire.append(_never(rule, examples[rule.name], first.get(rule.name, set())))
    for a, b in itertools.combinations(rules, 2):
        meetings = itertools.chain(
            examples[a.name],
            examples[b.name],
            _compositions(examples[a.name], examples[b.name]),
            _compositions(examples[b.name], examples[a.name]),
        )
        finding = next(filter(None, (_order(a, b, program) for program in meetings)), None)
        if finding is not None:
            found.order_matters.append(finding)
    return found


def _programs(rules: Sequence[Any], examples: dict[str, list[GraphModule]]) -> Iterator[tuple[str, GraphModule]]:
    for rule in rules:
        for program in examples[rule.name]:
            yield rule.name, program
    for outer, inner in itertools.product(rules, rules):
        for program in _compositions(examples[outer.name], examples[inner.name]):
            yield outer.name, program


def _run(rules: Sequence[Any], program: GraphModule, loops: list[Finding]) -> Any:
    """Statistics of one run; a loop that is not known yet goes into ``loops``."""
    combined = RuleSet(rules, limit=_LIMIT)
    try:
        combined(program)
    except RuleLoopError as error:
        if all(set(error.rules) != set(known.rules) for known in loops):
            text = f"{' -> '.join((*error.rules, error.rules[0]))}, without end, on"
            loops.append(Finding(error.rules, text, str(program.graph)))
    return combined.statistics


def _never(rule: Any, programs: list[GraphModule], others: set[str]) -> Finding:
    if not programs:
        return Finding((rule.name,), "it has no example, so nothing is known of it")
    alone = RuleSet([rule], limit=_LIMIT)
    for program in programs:
        with contextlib.suppress(RuleLoopError):
            alone(program)
        if alone.statistics[rule.name].hits:
            names = ", ".join(sorted(others)) or "another rule"
            text = f"it fires on its example alone, but in this set {names} comes first"
            return Finding((rule.name,), text, str(program.graph))
    return Finding((rule.name,), "it does not fire on its own example", str(programs[0].graph))


def _order(a: Any, b: Any, program: GraphModule) -> Finding | None:
    """What differs when both rules fire on ``program`` and the other one comes first."""
    results = []
    for pair in ((a, b), (b, a)):
        combined = RuleSet(pair, limit=_LIMIT)
        try:
            results.append(combined(program))
        except FxliteError:
            return None  # a loop, reported as such
        if not results[0].__dict__ or not any(c.hits for c in combined.statistics.values()):
            return None
    difference = first_difference(results[0].graph, results[1].graph)
    if difference is None:
        return None
    return Finding((a.name, b.name), f"the two orders give {difference}; on", str(program.graph))


def _compositions(outer: list[GraphModule], inner: list[GraphModule]) -> Iterator[GraphModule]:
    """Each program of ``outer`` with the result of one of ``inner`` as one of its inputs."""
    for a, b in itertools.product(outer, inner):
        result = b.graph.output_node().args[0]
        if not isinstance(result, Node):
            continue
        for place in a.graph.placeholders:
            if place.type == result.type:
                yield _compose(a, b, place)


def _compose(outer: GraphModule, inner: GraphModule, place: Node) -> GraphModule:
    """``outer(..., place=inner(...), ...)``; weights keep their paths under ``outer`` and
    ``inner``."""
    graph = Graph()
    weights: dict[str, Any] = {}

    def append(module: GraphModule, prefix: str, values: dict[Node, Node]) -> Any:
        for node in module.graph.nodes:
            if node.op == "placeholder" and node not in values:
                values[node] = graph.placeholder(f"{prefix}_{node.name}", node.type)
            elif node.op == "get_attr":
                path = f"{prefix}.{node.target}"
                weights[path] = module.get_attribute(node.target)
                values[node] = graph.get_attr(path, node.type)
        return graph.graph_copy(module.graph, values)

    argument = append(inner, "inner", {})
    graph.output(append(outer, "outer", {place: argument}))
    return GraphModule(weights, graph, "composition")
