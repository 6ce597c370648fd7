"""Sets of rules, applied until none fires.

In: rules. Out: a pass. Nodes are visited in order, and what a rule puts in is looked at at once, by
all rules; so one sweep does most of the work, and the next ones look only at what lies near an
earlier change. A set whose rules undo each other, or whose results grow for ever, is stopped with
an error that names them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from fxlite.base.checked import checked_methods
from fxlite.base.console import Printed
from fxlite.base.errors import expect
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import Pass, PassError
from fxlite.passes.ledger import Refusal, add_refusals
from fxlite.passes.rewrite.match import Rewriter
from fxlite.types.agreement import KINDS, Exactness, exact


class Fired(Protocol):
    """A place where a rule fired: the nodes it reads, and those put in."""

    @property
    def inputs(self) -> list[Node]: ...
    @property
    def replacements(self) -> list[Node]: ...


class AnyRule(Protocol):
    """What a set asks of its members: a :class:`~fxlite.passes.rewrite.rule.Rule` (pattern and
    replacement) or a :class:`~fxlite.passes.rewrite.node_rule.NodeRule` (a function of one
    node)."""

    @property
    def name(self) -> str: ...
    @property
    def exactness(self) -> Exactness: ...
    @property
    def height(self) -> int:
        """How many calls above a node decide whether the rule fires there."""

    def may_fire(self, node: Node) -> bool:
        """False where the call alone rules it out; the same at all calls of an op, inputs, ..."""

    def try_at(self, rewriter: Rewriter, node: Node, refused: list[Refusal]) -> Fired | None:
        """Rewrite at ``node`` if the rule fires there; a reason not to goes into ``refused``."""


@dataclass
class RuleCount:
    """What one rule did: nodes it was tried on, times it fired, places it refused, seconds."""

    name: str
    tries: int = 0
    hits: int = 0
    refused: int = 0
    seconds: float = 0.0


class Statistics(Printed, dict[str, RuleCount]):
    """Counts by rule; prints as a table."""

    @property
    def about(self) -> str:
        return f"{len(self)} rules"

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("rule")
        for heading in ("tries", "hits", "refused", "ms"):
            table.add_column(heading, justify="right")
        for count in self.values():
            numbers = (count.tries, count.hits, count.refused)
            table.add_row(count.name, *map(str, numbers), f"{count.seconds * 1e3:.1f}")
        return table


class RuleLoopError(PassError):
    """Rules go on for ever. ``rules`` are the names of those in the loop, in order."""

    def __init__(self, message: str, rules: tuple[str, ...]) -> None:
        super().__init__(message)
        self.rules = rules


@dataclass(frozen=True)
class _Descent:
    """How a node came about: the rule that put it in, and what it was put in for."""

    rule: str
    parent: _Descent | None
    length: int


@checked_methods
class RuleSet(Pass):
    """Several rules as one pass: ``RuleSet([silu, merge_adds])(gm)``.

    At each node the first rule that fires wins. ``statistics`` counts, for the last run, tries,
    hits, refusals and time of each rule. ``limit`` is how often results of rules may be rewritten
    one after another before that counts as a loop."""

    def __init__(self, rules: Iterable[AnyRule], name: str = "rule_set", limit: int = 1000) -> None:
        self.rules = list(rules)
        for one in self.rules:
            expect(one, Pass, "a rule of a RuleSet")
        promises = [r.exactness for r in self.rules]
        super().__init__(self._run, name, max(promises, key=lambda e: KINDS.index(e.kind), default=exact))
        self.__doc__ = f"Apply {', '.join(r.name for r in self.rules)} until none fires."
        self.limit = limit
        self.statistics = Statistics()
        self._by_call: dict[Any, list[AnyRule]] = {}

    def _run(self, gm: GraphModule) -> None:
        self.statistics = Statistics((r.name, RuleCount(r.name)) for r in self.rules)
        self._by_call.clear()
        height = max(map(attrgetter("height"), self.rules), default=0)
        descent: dict[Node, _Descent] = {}
        near: set[Node] | None = None  # None: look everywhere
        refused: dict[str, Refusal] = {}
        with paused_gc():
            while near is None or near:
                matches, again, lost = self._sweep(gm, near, descent)
                for entry in again:
                    refused[f"{entry.pass_name} {entry.node}"] = entry
                near = _neighbours(matches, lost, height)
        names = {node.name for node in gm.graph.nodes}
        kept = [entry for entry in refused.values() if entry.node in names]
        for entry in kept:
            self.statistics[entry.pass_name].refused += 1
        add_refusals(gm, kept)

    def _sweep(
        self, gm: GraphModule, near: set[Node] | None, descent: dict[Node, _Descent]
    ) -> tuple[list[Fired], list[Refusal], list[Node]]:
        """Visit the nodes once, what is put in included. Returns where rules fired, refusals, and
        values that lost a reader besides."""
        rewriter = Rewriter(gm, bar_new=False)
        matches: list[Fired] = []
        refused: list[Refusal] = []
        work = [n for n in gm.graph.nodes if near is None or n in near]
        work.reverse()
        while work:
            node = work.pop()
            if node in rewriter.around.barred:
                continue
            rewriter.refresh(node)
            found = self._try_rules(rewriter, node, refused, descent)
            if found is not None:
                matches.append(found)
                work.extend(reversed(found.replacements))
        return matches, refused, rewriter.finish()

    def _try_rules(
        self, rewriter: Rewriter, node: Node, refused: list[Refusal], descent: dict[Node, _Descent]
    ) -> Fired | None:
        for rule in self._rules_for(node):
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

    def _rules_for(self, node: Node) -> list[AnyRule]:
        call = node.target if node.op == "call_function" else node.op
        found = self._by_call.get(call)
        if found is None:
            found = [rule for rule in self.rules if rule.may_fire(node)]
            if node.op != "call_module":  # which module is called decides
                self._by_call[call] = found
        return found

    def _loop(self, last: _Descent, node: Node) -> RuleLoopError:
        """The error for rules that go on for ever."""
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


def _neighbours(matches: list[Fired], lost: list[Node], height: int) -> set[Node]:
    """Nodes that may match now: those that read, over at most ``height`` calls, a value which lost
    a reader or is new."""
    changed = set(lost)
    for match in matches:
        changed.update(match.inputs, match.replacements)
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
