"""Sets of rules that are applied until none fires, and an analysis of the mistakes in a set.

In: rules. Out: a pass. Nodes are visited in order, and all rules look at new nodes immediately, so
that one sweep does most of the work; further sweeps look only at nodes near an earlier change. A set
whose rules undo each other, or whose results grow forever, is stopped with an error that names the
rules.

In: rules with their examples. Out: a :class:`RuleAnalysis`: rules that loop, rules that can never
fire, and pairs whose order matters, each with a program that shows it. This proves nothing about all
programs: the rules are run on their own examples and on every composition of two (the result of one
example as an input of the other, if the types agree), which is where two rules interact. These are the
critical pairs of term rewriting (Knuth and Bendix, 1970), found by experiment.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fxlite.base.checked import checked, checked_methods
from fxlite.base.console import Printed, borderless
from fxlite.base.errors import FxliteError, expect, number_of
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.passes.base import Pass, PassError
from fxlite.passes.ledger import add_refusals
from fxlite.passes.rewrite.match import Rewriter
from fxlite.passes.rewrite.rule import AnyRule, Fired, Refused
from fxlite.show.comparison.compare import first_difference
from fxlite.types.agreement import KINDS, exact


@dataclass
class RuleCount:
    """What one rule did: nodes it was tried on, times it fired, places it refused, and seconds."""

    name: str
    tries: int = 0
    hits: int = 0
    refused: int = 0
    seconds: float = 0.0


class Statistics(Printed, dict[str, RuleCount]):
    """Counts by rule; prints as a table."""

    @property
    def about(self) -> str:
        return f"{number_of(len(self), 'rule')}"

    def __rich__(self) -> Any:
        table = borderless(("rule",), ("tries", "hits", "refused", "ms"), folded=0)
        for count in self.values():
            numbers = (count.tries, count.hits, count.refused)
            table.add_row(count.name, *map(str, numbers), f"{count.seconds * 1e3:.1f}")
        return table


class RuleLoopError(PassError):
    """Rules would go on forever. ``rules`` are the names of those in the loop, in order."""

    def __init__(self, message: str, rules: tuple[str, ...]) -> None:
        super().__init__(message)
        self.rules = rules


@dataclass(frozen=True)
class _Descent:
    """The history of a node: the rule that inserted it, and the node it was inserted for."""

    rule: str
    parent: _Descent | None
    length: int


@checked_methods
class RuleSet(Pass):
    """Several rules as one pass: ``RuleSet([silu, merge_adds])(gm)``.

    At each node the first rule that fires wins. ``statistics`` counts the tries, hits, refusals and
    time of each rule in the last run. ``limit`` is how many times in a row results of rules may be
    rewritten before that counts as a loop."""

    def __init__(self, rules: Iterable[AnyRule], name: str = "rule_set", limit: int = 1000) -> None:
        self.rules = list(rules)
        for one in self.rules:
            expect(one, Pass, "a rule of a RuleSet")
        promises = [r.exactness for r in self.rules]
        super().__init__(self._run, name, max(promises, key=lambda e: KINDS.index(e.kind), default=exact))
        self.__doc__ = f"Apply {', '.join(r.name for r in self.rules)} until none fires."
        self.limit = limit
        self.statistics = Statistics()
        #: The rules that may fire at calls of an op. Ops of wrapped functions live no longer because of them.
        self._by_op: weakref.WeakKeyDictionary[Op, list[AnyRule]] = weakref.WeakKeyDictionary()
        self._sorted: list[AnyRule] = []  # the rules of which that is known

    def _run(self, gm: GraphModule) -> None:
        self.statistics = Statistics()
        if self._sorted != self.rules:
            self._by_op.clear()
            self._sorted = list(self.rules)
        for rule in self.rules:
            self.statistics[rule.name] = RuleCount(rule.name)
        descent: dict[Node, _Descent] = {}
        near: set[Node] | None = None  # None: look everywhere
        refused: Refused = {}
        with paused_gc():
            while True:
                fired, lost = self._sweep(gm, near, descent, refused)
                if not fired:
                    break
                near = _neighbours(fired, lost, max(rule.height for rule in self.rules))
        for (name, node), entry in refused.items():
            if not node._erased:
                self.statistics[name].refused += 1
                add_refusals(gm, [entry])

    def _sweep(
        self, gm: GraphModule, near: set[Node] | None, descent: dict[Node, _Descent], refused: Refused
    ) -> tuple[list[Fired], list[Node]]:
        """Visit the nodes once, including new ones. Returns the places where rules fired, and other
        values that lost a reader; refusals are added to ``refused``."""
        rewriter = Rewriter(gm, bar_new=False)
        fired: list[Fired] = []
        work = [n for n in gm.graph.nodes if near is None or n in near]
        work.reverse()
        while work:
            node = work.pop()
            if node in rewriter.around.barred:
                continue
            rewriter.refresh(node)
            found = self._try_rules(rewriter, node, refused, descent)
            if found is not None:
                fired.append(found)
                work.extend(reversed(found.replacements))
        return fired, rewriter.finish()

    def _try_rules(
        self, rewriter: Rewriter, node: Node, refused: Refused, descent: dict[Node, _Descent]
    ) -> Fired | None:
        rules = self._by_op.get(node.target) if node.op == "call_function" else None
        if rules is None and node.op.startswith("call"):
            rules = [rule for rule in self.rules if rule.may_fire(node)]
            if node.op == "call_function":  # of others, the module that is called decides
                self._by_op[node.target] = rules
        for rule in rules or ():
            count = self.statistics[rule.name]
            start = time.perf_counter()
            found = rule.try_at(rewriter, node, refused)
            count.seconds += time.perf_counter() - start
            count.tries += 1
            if found is not None:
                count.hits += 1
                parent = descent.get(node)
                made = _Descent(rule.name, parent, 1 if parent is None else parent.length + 1)
                if made.length > self.limit:
                    raise self._loop(made, node)
                descent.update(dict.fromkeys(found.replacements, made))
                return found
        return None

    def _loop(self, last: _Descent, node: Node) -> RuleLoopError:
        """The error for rules that would go on forever."""
        names: list[str] = []
        step: _Descent | None = last
        while step is not None:
            names.append(step.rule)
            step = step.parent
        names.reverse()
        half = len(names) // 2
        cycle = _period(names[half:])
        start = -half % len(cycle)  # begin with the rule that began
        cycle = cycle[start:] + cycle[:start]
        shown = " -> ".join([*cycle, cycle[0]])
        text = (
            f"{self.name} does not end: {shown}, {last.length} times one after another on what was "
            f"{node.describe()}; the result of the last of these rules matches the first again. "
            f"Give one of them a condition (@{cycle[0]}.where), or raise limit={self.limit}"
        )
        return RuleLoopError(text, tuple(cycle))


def _period(names: list[str]) -> list[str]:
    """The shortest sequence that ``names`` repeats."""
    for length in range(1, len(names) // 2 + 1):
        if all(names[i] == names[i - length] for i in range(length, len(names))):
            return names[:length]
    return list(dict.fromkeys(names))


def _neighbours(fired: list[Fired], lost: list[Node], height: int) -> set[Node]:
    """Nodes that may match now: those that read, over at most ``height`` calls, a value that is new or
    has lost a reader."""
    changed = set(lost)
    for place in fired:
        changed.update(place.inputs, place.replacements)
    layer = {n for n in changed if not n._erased}
    found = set(layer)
    for _ in range(height):
        layer = {user for node in layer for user in _readers(node)} - found
        if not layer:
            break
        found |= layer
    return found


def _readers(node: Node) -> Iterator[Node]:
    return (user for user in node.users if user.op.startswith("call"))


# -- analysis --------------------------------------------------------------------------------------
_LIMIT = 60  # rewrites of one node's descendants after which a set counts as looping


@dataclass(frozen=True)
class Finding:
    """One finding about a set of rules: the rules concerned, the problem, and a program that shows it
    (the text of a graph)."""

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
    """Run ``rules`` (as for a :class:`RuleSet`; each with at least one example) on their examples and on
    compositions of two of these. Report loops; rules that fire on none of them in this set although
    they fire alone; and pairs that give different graphs in the two orders."""
    rules = list(rules)
    for rule in rules:
        expect(rule, Pass, "a rule")
    found = RuleAnalysis()
    examples = {rule.name: [e.trace() for e in rule.examples] for rule in rules}
    fired: set[str] = set()
    first: dict[str, set[str]] = {}  # rules that fire on the examples of a rule that does not fire
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
    """Statistics of one run; a new loop is added to ``loops``."""
    combined = RuleSet(rules, limit=_LIMIT)
    try:
        combined(program)
    except RuleLoopError as error:
        if all(set(error.rules) != set(known.rules) for known in loops):
            text = f"{' -> '.join((*error.rules, error.rules[0]))}, without end, on"
            loops.append(Finding(error.rules, text, program.graph.text(full=True)))
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
            return Finding((rule.name,), text, program.graph.text(full=True))
    return Finding((rule.name,), "it does not fire on its own example", programs[0].graph.text(full=True))


def _order(a: Any, b: Any, program: GraphModule) -> Finding | None:
    """The difference if both rules fire on ``program`` and their order is exchanged."""
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
    return Finding((a.name, b.name), f"the two orders give {difference}; on", program.graph.text(full=True))


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
