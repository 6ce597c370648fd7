"""Checking claims: the order in which rewrites are shown to be right, and what decides.

In: claims from a journal (:mod:`fxlite.passes.checking.changed_region`) and the two sides of the
program. Out: counts in a report, or a :class:`VerificationError`. The steps are those of
:mod:`fxlite.passes.checking.verify`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from fxlite.graph.graph_module import GraphModule
from fxlite.passes.checking.changed_region import Claim, Numbering, Opening, Pair, Side
from fxlite.passes.checking.region_check import Disagreement, Outcome, check_region
from fxlite.passes.checking.wrong_rewrite import VerificationReport, wrong_rewrite

#: Regions with weights that are run for each form (sizes left out) whatever that costs.
SAMPLES = 2
#: Operations that the first run of a form may take.
FIRST_RUN = 4e7
#: Operations for what is done only when something differs: extended regions, the whole program.
PATIENCE = 4e10


class ClaimCheck:
    """The state of a check: what was shown so far, and what was run."""

    def __init__(self, before: Side, after: Side, report: VerificationReport, budget: float):
        self.before, self.after, self.report, self.budget = before, after, report, budget
        self.results: list[Pair] | None = None
        self.numbering = Numbering()
        self.forms: dict[Any, Outcome] = {}
        self.tried: dict[Any, int] = {}  # by kind
        self.wrong_kinds: set[Any] = set()
        self.put_off: list[tuple[Pair, Opening]] = []
        self.guesses: list[Disagreement] = []

    # -- in the order of the graph -------------------------------------------------------------
    def claims(self, claims: list[Claim], gm: GraphModule) -> None:
        """Check claims, each pair once, in the order of the graph after the pass; a reader comes
        after the pairs it reads, and before the pairs it is in."""
        if not claims:
            return
        position = {node: i for i, node in enumerate(gm.graph.nodes)}
        wanted: dict[Pair, bool] = {}
        for claim in claims:
            for pair in claim.pairs or ():
                wanted[pair] = wanted.get(pair, False) or claim.needed
        work: list[tuple[int, int, Any]] = [
            (position[pair.after], 1, (pair, needed)) for pair, needed in wanted.items()
        ]
        work += [(position[c.reader], 0, c) for c in claims if c.reader is not None]
        work.sort(key=lambda item: item[:2])
        failed: dict[Pair, Disagreement | None] = {}
        for _, stage, item in work:
            if stage == 1:
                pair, needed = item
                holds, found = self.pair(pair, needed)
                if not holds:
                    failed[pair] = found
                    if not needed and found is not None:
                        self.guesses.append(found)
            elif not self.reader(item, failed):
                break  # the whole program agrees: nothing is left to be shown
        self.sample()

    def pair(self, pair: Pair, needed: bool = True) -> tuple[bool, Disagreement | None]:
        """Whether a pair agrees, looking no further up than shared values."""
        first, second = self.before, self.after
        if pair.before in first.keys and first.keys[pair.before] == second.key(pair.after):
            return True, None
        if self.is_alike(pair):
            self.report.alike += 1
            self.share(pair)
            return True, None
        if not needed and self.are_other_weights(pair):
            return False, None
        opening = Opening(first, second, [pair])
        region = opening.region
        if region.before.inputs.keys() != region.after.inputs.keys():
            opening.step(only_one_sided=True)
        outcome = self.run(opening, pair)
        if outcome.disagreement is not None:
            return False, outcome.disagreement
        if outcome.reason and needed:
            self.report.unchecked.append((_place(pair), outcome.reason))
        if outcome.agrees or needed:
            self.share(pair)
        return outcome.agrees or needed, None

    def is_alike(self, pair: Pair) -> bool:
        """Whether both sides compute a pair in the same way."""
        first, second = self.before.call(pair.before), self.after.call(pair.after)
        if first.op != second.op or (first.op != "get_attr" and first.target is not second.target):
            return False
        number = self.numbering.number(self.after, pair.after)
        return self.numbering.number(self.before, pair.before) == number

    def are_other_weights(self, pair: Pair) -> bool:
        """Whether a pair is of weights with other values, as a quick look tells."""
        calls = self.before.call(pair.before), self.after.call(pair.after)
        if any(call.op != "get_attr" for call in calls):
            return False
        values = self.before.attribute(calls[0].target), self.after.attribute(calls[1].target)
        if np.shape(values[0]) != np.shape(values[1]):
            return True
        first, second = (np.asarray(value).reshape(-1)[:100] for value in values)
        return not np.array_equal(first, second)

    def share(self, pair: Pair) -> None:
        """From now on the two values are one."""
        before, after = self.before, self.after
        key_before, key_after = before.key(pair.before), after.key(pair.after)
        if key_after is None:
            key_after = after.keys[pair.after] = key_before or pair
        if key_before is None:
            before.keys[pair.before] = key_after
        before.numbers[pair.before] = after.numbers.get(pair.after, key_after)

    def run(self, opening: Opening, pair: Pair) -> Outcome:
        """Run a region, unless one of its form was."""
        region = opening.region
        form = region.form
        if not region.has_weights and form in self.forms:
            known = self.forms[form]
            self.report.repeated += known.agrees
            return known
        kind = region.kind
        tried = self.tried.get(kind, 0)
        enough = tried >= SAMPLES or (tried and self.budget <= 0)
        if region.has_weights and enough and kind not in self.wrong_kinds:
            self.put_off.append((pair, opening))
            return Outcome(None, "", 0.0)
        outcome = self.check(opening, FIRST_RUN, self.budget)
        self.tried[kind] = tried + 1
        if outcome.disagreement is not None:
            self.wrong_kinds.add(kind)
        self.forms[form] = outcome
        self.report.run += outcome.agrees
        return outcome

    def check(self, opening: Opening, at_least: float, budget: float = 0.0) -> Outcome:
        """Run a region."""
        outcome = check_region(self.before, self.after, opening.region, self.report.promise, at_least, budget)
        self.budget -= outcome.work
        return outcome

    def sample(self) -> None:
        """Of the regions put off, run some drawn at random, as far as the budget goes."""
        random.Random(0).shuffle(self.put_off)
        for pair, opening in self.put_off:
            weights = sum(math.prod(shape) for _, shape in opening.region.shapes)
            if weights > self.budget:
                self.report.sampled += 1
                continue
            outcome = self.check(opening, self.budget)
            if outcome.disagreement is not None:
                extended, _ = self.upstream(opening)
                if not extended.agrees:
                    self.decide([outcome, extended], [pair])
                    return
            self.report.run += outcome.agrees
            self.report.sampled += bool(outcome.reason)

    # -- where something differs ---------------------------------------------------------------
    def reader(self, claim: Claim, failed: dict[Pair, Disagreement | None]) -> bool:
        """Whether a changed node computes what it did, by itself or in the whole program; False if
        the whole program was asked."""
        node = claim.reader
        assert node is not None
        if claim.pairs is None and node.op == "output":
            return True  # the structure was compared, and every pair is one of the results
        wrong = [p for p in claim.pairs or () if p in failed]
        itself = Pair(node, node)
        if claim.pairs is not None and not wrong:
            self.share(itself)
        if (not wrong and claim.pairs is not None) or not claim.needed:
            return True
        found = [failed[p] for p in wrong]
        pairs = wrong
        if node.op != "output" and not self.before.is_drawn(node, self.before.call(node)):
            holds, at_node = self.pair(itself, needed=claim.pairs is None)
            if holds:
                return True
            found = [*found, at_node] if len(wrong) == 1 else [at_node, *found]
            pairs = [itself]
        extended, was_run = self.upstream(Opening(self.before, self.after, pairs))
        if extended.agrees:
            self.report.run += was_run
            self.report.repeated += not was_run
            for pair in pairs:
                self.share(pair)
            return True
        self.decide([*(Outcome(f, "", 0.0) for f in found), extended], pairs)
        return False

    def upstream(self, opening: Opening) -> tuple[Outcome, bool]:
        """What a region shows when more and more of what comes before it is computed, too, until it
        agrees or starts at the program's inputs; and whether the last one was run for it."""
        steps, known = 1, Outcome(None, "it starts at the program's inputs", 0.0)
        was_run = False
        while True:
            grew = [opening.step() for _ in range(steps)]
            if not grew[0]:
                return known, was_run
            form = opening.region.form
            was_run = form not in self.forms or opening.region.has_weights
            if was_run:
                self.forms[form] = self.check(opening, PATIENCE, PATIENCE)
            known = self.forms[form]
            if known.agrees or not grew[-1]:
                return known, was_run
            steps *= 2

    def decide(self, shown: list[Outcome], pairs: Iterable[Pair]) -> None:
        """Ask the whole program. Raises VerificationError naming the first rewrite that differs.

        ``shown`` is what regions around it showed, the last one the largest. The smallest is named,
        unless it differs on other inputs than the largest: on such, perhaps, as cannot occur."""
        opening = Opening(self.before, self.after, self.results or pairs)
        while opening.step():
            pass
        outcome = self.check(opening, PATIENCE, PATIENCE)
        found = [o.disagreement for o in (*shown, outcome) if o.disagreement is not None]
        if outcome.agrees:
            self.report.note = (
                "values inside the program differ, its results agree: the check of single rewrites ended there"
            )
        elif not found:
            self.report.unchecked += [(_place(pair), outcome.reason) for pair in pairs]
        else:
            largest = shown[-1].disagreement or found[0]
            blamed = found[0] if found[0].draw.is_like(largest.draw) else largest
            blamed = next((g for g in self.guesses if _is_inside(g, blamed)), blamed)
            raise wrong_rewrite(self.report, self.before, self.after, blamed)

    def whole(self, pairs: list[Pair]) -> None:
        """Check results down to the inputs."""
        opening = Opening(self.before, self.after, pairs)
        outcome = self.check(opening, PATIENCE, PATIENCE)
        if outcome.disagreement is not None:
            raise wrong_rewrite(self.report, self.before, self.after, outcome.disagreement)
        self.report.run += outcome.agrees
        if outcome.reason:
            self.report.unchecked.append(("the results", outcome.reason))


def _is_inside(part: Disagreement, whole: Disagreement) -> bool:
    (pair,) = part.region.pairs
    return pair.before in whole.region.before.nodes and pair.after in whole.region.after.nodes


def _place(pair: Pair) -> str:
    origin = f" ({pair.after.origin})" if pair.after.origin else ""
    return f"{pair.before.name} -> {pair.after.name}{origin}"
