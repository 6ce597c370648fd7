"""Checking claims: the order in which rewrites are checked, what decides, and how the result is
reported.

In: claims from a journal (:mod:`fxlite.passes.checking.changed_region`) and the two sides of the
program. Out: a :class:`VerificationReport`, with a line for the table of a pass manager and a text
that lists what was left unchecked; or a :class:`VerificationError` that names pass, nodes and lines,
shows both sides as text, and gives the path of a Python file that runs both and prints the
difference (:mod:`fxlite.passes.checking.minimize`). :mod:`fxlite.passes.checking.verify` describes
the steps.

The file is written to the folder that FXLITE_REPRO_DIR names, or else to a new temporary folder.
"""

from __future__ import annotations

import math
import os
import random
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import PassError
from fxlite.passes.checking.changed_region import Claim, Numbering, Opening, Pair, Region, Side
from fxlite.passes.checking.minimize import write_repro
from fxlite.passes.checking.region_check import Disagreement, Outcome, check_region
from fxlite.types import shapes
from fxlite.types.agreement import Exactness
from fxlite.types.tensor_type import type_of


@dataclass
class VerificationReport:
    """How the rewrites of one pass were checked, as counts of places: ``alike`` are computed in the
    same way before and after; ``run`` agreed on random inputs; ``repeated`` have the form of one that
    was run; ``sampled`` do too, but compute with weights that were not tried. ``unchecked`` lists the
    places that could not be run, each with the reason. ``note`` holds further remarks."""

    name: str
    promise: Exactness
    alike: int = 0
    run: int = 0
    repeated: int = 0
    sampled: int = 0
    unchecked: list[tuple[str, str]] = field(default_factory=list)
    note: str = ""

    @property
    def rewrites(self) -> int:
        """The number of places that the pass changed."""
        return self.alike + self.run + self.repeated + self.sampled + len(self.unchecked)

    @property
    def summary(self) -> str:
        """``12 alike, 3 run, 40 repeated``; ``types alone`` if results are meant to change and were not run."""
        counts = (
            ("alike", self.alike),
            ("run", self.run),
            ("repeated", self.repeated),
            ("sampled", self.sampled),
            ("unchecked", len(self.unchecked)),
        )
        if self.promise.kind == "changes" and not self.run:
            return "types alone"
        return ", ".join(f"{count} {name}" for name, count in counts if count) or "-"

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.promise}): {self.summary}"]
        lines += [f"  unchecked: {place}: {reason}" for place, reason in self.unchecked]
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)


# -- a wrong rewrite -------------------------------------------------------------------------------
#: Lines shown of each side; the file has all.
MOST_LINES = 24


class VerificationError(PassError):
    """A pass changed what the program computes. ``pass_name`` and ``node`` (by its name before the
    pass) say where; ``repro`` is the path of the file that shows it, None if it could not be written."""

    def __init__(self, message: str, pass_name: str, node: str, repro: Path | None = None) -> None:
        super().__init__(message)
        self.pass_name = pass_name
        self.node = node
        self.repro = repro


def wrong_rewrite(report: VerificationReport, before: Side, after: Side, found: Disagreement) -> VerificationError:
    """The error for a region whose sides disagree; also writes the file."""
    pair = found.region.pairs[found.pair]
    lines = [f"pass {report.name} is declared {report.promise}, but it changed the result of {_title(pair.before)}"]
    if pair.after is not pair.before:
        lines.append(f"  which is now {_title(pair.after)}")
    for node in dict.fromkeys(pair):
        if node.loc is not None:
            expression = f": {node.loc.expression}" if node.loc.expression else ""
            lines.append(f"  made at {node.loc}{expression}")
            break
    lines.append(f"  {found.text}")
    conditions = str(found.draw)
    inputs = ", ".join(f"{_name(n)}: {_type_text(found.inputs[k])}" for k, n in found.region.inputs.items())
    lines.append(f"  on {inputs or 'no inputs'}{f' ({conditions})' if conditions else ''}")
    graphs = []
    for side, name in ((before, "before"), (after, "after")):
        try:
            gm: GraphModule | None = region_module(side, name, found)
            text = gm.graph.text(full=True) if gm is not None else ""
        except FxliteError as error:
            gm, text = None, "\n".join([*_plain_lines(side, name, found.region), f"# {error}"])
        graphs.append(gm)
        lines += [f"  {name}:", *(f"    {line}" for line in _shortened(text))]
    path, reason = _write(report, pair.before.name, graphs, found, "\n".join(lines))
    if path is not None:
        lines.append(f"  python {path}  shows the difference")
    else:
        lines.append(f"  no file that reproduces it could be written: {reason}")
    return VerificationError("\n".join(lines), report.name, pair.before.name, path)


def effect_error(report: VerificationReport, node: Node, what: str) -> VerificationError:
    """The error for a call with effects that a pass removed or changed."""
    text = f"pass {report.name} must keep {node.describe()}: it {what}"
    if node.loc is not None:
        text += f"\n  made at {node.loc}: {node.loc.expression}"
    return VerificationError(text, report.name, node.name)


def result_error(report: VerificationReport, before: Node, after: Node, value_before: Any = None) -> VerificationError:
    """The error for results whose structure differs from before."""
    old = value_before if value_before is not None else before.args[0]
    return VerificationError(
        f"pass {report.name} changed what the program returns\n"
        f"  before: return {old}\n  after:  return {after.args[0]}",
        report.name,
        before.name,
    )


def _title(node: Node) -> str:
    return node.describe().removeprefix("node ")


def _name(node: Node) -> str:
    return re.sub(r"\W", "_", node.name)


def _type_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_type_text, value))})"
    return str(type_of(value))


def _shortened(text: str) -> list[str]:
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return lines
    left_out = len(lines) - MOST_LINES
    return [*lines[: MOST_LINES // 2], f"    # ... {left_out} lines ...", *lines[-MOST_LINES // 2 :]]


def _plain_lines(side: Side, name: str, region: Region) -> list[str]:
    """The calls of a side as text without types, for a side that does not run."""
    lines = []
    for node in (region.before if name == "before" else region.after).nodes:
        call = side.call(node)
        target = getattr(call.target, "name", call.target)
        arguments = [*map(str, call.args), *(f"{k}={v}" for k, v in call.kwargs.items())]
        lines.append(f"{node.name} = {target}({', '.join(arguments)})")
    return lines


def region_module(side: Side, name: str, found: Disagreement) -> GraphModule:
    """One side of a region as a module of its own, for inputs of the sizes that were drawn.

    Raises FxliteError if a call does not accept them."""
    region, draw = found.region, found.draw
    first = name == "before"
    half = region.before if first else region.after
    graph = Graph()
    holder: dict[str, Any] = {}
    made: dict[Node, Any] = {}
    for key, node in region.inputs.items():
        value = _placeholders(graph, _name(node), found.inputs[key])
        if key in half.inputs:
            made[half.inputs[key]] = value
    for node in half.nodes:
        call = side.call(node)
        with graph.with_origin(node):
            if call.op == "get_attr":
                holder[call.target] = side.attribute(call.target)
                made[node] = graph.get_attr(call.target, type_of(np.asarray(holder[call.target])))
                continue
            args = map_nodes(call.args, made.__getitem__)
            kwargs = map_nodes(dict(call.kwargs), made.__getitem__)
            if call.op == "call_module":
                holder[call.target] = side.attribute(call.target)
                made[node] = graph.call_module(call.target, args, kwargs)
                continue
            kwargs = {k: shapes.substitute(v, draw.dims) for k, v in kwargs.items()}
            if call.target.name == "getitem" and isinstance(args[0], tuple):
                made[node] = args[0][kwargs["index"]]
                continue
            if call.target.is_random:
                kwargs.setdefault("training", side.training)
            made[node] = graph.call_op(call.target, args, kwargs, node.name)
    roots = [made[p.before if first else p.after] for p in region.pairs]
    graph.output(roots[0] if len(roots) == 1 else tuple(roots))
    module = GraphModule(holder, graph, name)
    module.training = side.training
    return module


def _placeholders(graph: Graph, name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_placeholders(graph, f"{name}_{i}", v) for i, v in enumerate(value))
    return graph.placeholder(name, type_of(value))


def _flat_inputs(graph: Graph, values: list[Any]) -> Mapping[str, Any]:
    flat: list[Any] = []

    def collect(value: Any) -> None:
        if isinstance(value, tuple):
            for v in value:
                collect(v)
        else:
            flat.append(value)

    for value in values:
        collect(value)
    return {p.target: v for p, v in zip(graph.placeholders, flat, strict=True)}


def _write(
    report: VerificationReport, node: str, graphs: list[GraphModule | None], found: Disagreement, message: str
) -> tuple[Path | None, str]:
    """Write the file; returns its path, or None and the reason."""
    before, after = graphs
    if before is None or after is None:
        return None, "one side does not fit the inputs"
    folder = os.environ.get("FXLITE_REPRO_DIR") or tempfile.mkdtemp(prefix="fxlite-repro-")
    path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9]+', '_', report.name)}_{node}.py"
    inputs = _flat_inputs(before.graph, [found.inputs[k] for k in found.region.inputs])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_repro(path, before, after, inputs, message, promise=report.promise)
    except (FxliteError, OSError) as error:
        return None, str(error)
    return path, ""


# -- checking claims -------------------------------------------------------------------------------
#: Regions with weights that are run for each form (sizes left out) whatever that costs.
SAMPLES = 2
#: Operations that the first run of a form may take.
FIRST_RUN = 4e7
#: Operations for what is done only when something differs: extended regions, the whole program.
PATIENCE = 4e10


class ClaimCheck:
    """The state of a check: what has been proved so far, and what was run."""

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
        """Check claims in the order of the graph after the pass, each pair once. A reader comes after
        the pairs it reads and before the pairs it is part of."""
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
                break  # the whole program agrees, so nothing is left to prove
        self.sample()

    def pair(self, pair: Pair, needed: bool = True) -> tuple[bool, Disagreement | None]:
        """Whether a pair agrees, going no further upstream than shared values."""
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
        """Whether a pair consists of weights with different values, by a quick comparison."""
        calls = self.before.call(pair.before), self.after.call(pair.after)
        if any(call.op != "get_attr" for call in calls):
            return False
        values = self.before.attribute(calls[0].target), self.after.attribute(calls[1].target)
        if np.shape(values[0]) != np.shape(values[1]):
            return True
        first, second = (np.asarray(value).reshape(-1)[:100] for value in values)
        return not np.array_equal(first, second)

    def share(self, pair: Pair) -> None:
        """Treat the two values as one from now on."""
        before, after = self.before, self.after
        key_before, key_after = before.key(pair.before), after.key(pair.after)
        if key_after is None:
            key_after = after.keys[pair.after] = key_before or pair
        if key_before is None:
            before.keys[pair.before] = key_after
        before.numbers[pair.before] = after.numbers.get(pair.after, key_after)

    def run(self, opening: Opening, pair: Pair) -> Outcome:
        """Run a region, unless one of the same form was run before."""
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
        """Run a region and charge the work to the budget."""
        outcome = check_region(self.before, self.after, opening.region, self.report.promise, at_least, budget)
        self.budget -= outcome.work
        return outcome

    def sample(self) -> None:
        """Run some of the deferred regions, drawn at random, as far as the budget allows."""
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
        """Whether a changed node computes what it did before, by itself or within the whole program;
        False if the whole program had to decide."""
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
        """Extend the region upstream until it agrees or starts at the program's inputs. Returns the
        last outcome, and whether it was run for this call."""
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
        """Compare the results of the whole program. Raises VerificationError naming the first rewrite
        that differs.

        ``shown`` are the outcomes of growing regions around it, the largest last. The error shows the
        smallest, unless it differs on other inputs than the largest, which perhaps cannot occur."""
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
        """Check results all the way down to the inputs."""
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
