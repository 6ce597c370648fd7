"""Verification of passes: the part that a pass changed runs before and after, and must agree.

In: a module that a pass has edited in place, and the position of its journal before. Out: a
:class:`VerificationReport`, or a :class:`VerificationError` that names the one rewrite that is
wrong and a file that reproduces it.

The journal gives pairs of values that must be equal (:mod:`fxlite.passes.checking.changed_region`);
if they all are, the program computes what it did before. For each pair the check looks at the region
between it and values that both sides share. Pairs are checked in the order of the graph, so that
values proved equal are shared from there on:

1. If both sides are computed in the same way (after merging, removing and rewiring nodes), nothing is
   run.
2. If a region of the same form was run before, nothing is run. Of regions that compute with weights,
   a few of each form are run and, while the budget lasts, others drawn at random.
3. Otherwise both sides run on random inputs (:mod:`fxlite.passes.checking.region_check`).
4. If they differ, the rewrite may rely on facts from further upstream, as in ``relu(exp(x)) ->
   exp(x)``: the region is extended upstream in steps that double, at most to the program's inputs.
5. If they differ there too, the results of the whole program decide: a pass may change values inside
   the program as it likes (their layout, for instance).

Leaf modules and random ops that draw numbers are inputs of regions; removing one is an error.

The examples of passes and rules are checked here, too. In the tests of a pass::

    def test_examples(): check_examples(my_pass)
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import FxliteError
from fxlite.base.state import paused_gc
from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import is_impure_module
from fxlite.passes.base import Example, Pass
from fxlite.passes.checking.changed_region import Edits, Pair, Side, changed_places
from fxlite.passes.checking.claim_check import (
    PATIENCE,
    ClaimCheck,
    VerificationError,
    VerificationReport,
    effect_error,
    result_error,
)
from fxlite.types.agreement import Exactness, as_exactness

__all__ = ["VerificationError", "VerificationReport", "verify", "verify_edits"]

#: Operations that the check of one pass may take: a constant, and for each node of the graph.
BUDGET, BUDGET_PER_NODE = 8e6, 1e4


@checked
def verify_edits(gm: GraphModule, start: int, name: str, exactness: Exactness | str) -> VerificationReport:
    """Check what the pass ``name`` has changed in ``gm`` since the position ``start`` of its graph's
    journal. Raises VerificationError for a rewrite that breaks the promise, for a removed effect, and
    for a missing result."""
    report = VerificationReport(name, as_exactness(exactness))
    with paused_gc():
        if report.promise.kind == "changes":
            _verify_change(module_at(gm, start), gm, report)
        else:
            _verify_edits(gm, Edits(gm, start), report)
    return report


def module_at(gm: GraphModule, position: int) -> GraphModule:
    """A copy of the module as it was at a position of its journal."""
    journal = gm.graph.journal
    again = journal.take_back(position)
    try:
        return gm.copy()
    finally:
        journal.replay(again)


def _verify_change(before: GraphModule, after: GraphModule, report: VerificationReport) -> None:
    """Check that results that are meant to change keep their structure and types, and the metric its bound."""
    outputs = before.graph.output_node(), after.graph.output_node()
    pairs = _paired_results(*(node.args[0] for node in outputs))
    if pairs is None or any(pair.before.type != pair.after.type for pair in pairs):
        raise result_error(report, *outputs)
    metric, drop = report.promise.metric, report.promise.drop
    if metric is None:
        report.note = "the results are meant to change, and no metric was given to bound the change"
        return
    found = [float(metric(module)) for module in (before, after)]
    report.note = f"{report.promise}: {found[0]:.4g} before, {found[1]:.4g} after"
    report.run += 1
    if not found[1] >= found[0] - drop:
        node = outputs[1]
        raise VerificationError(
            f"pass {report.name} is declared {report.promise}, but the metric was {found[0]:.6g} "
            f"before and is {found[1]:.6g} after; its input is as it was",
            report.name,
            node.name,
        )


def _verify_edits(gm: GraphModule, edits: Edits, report: VerificationReport) -> None:
    if not edits:
        return
    before = Side(edits.before, edits.attribute_before, edits.changed, gm.training)
    after = Side(_as_it_is, edits.attribute_after, edits.changed, gm.training)
    check = ClaimCheck(before, after, report, BUDGET + BUDGET_PER_NODE * len(gm.graph))
    _check_effects(edits, check)
    check.results = _results(edits, check)
    check.claims(list(edits.claims()), gm)


@checked
def verify(
    before: Any, after: Any, exactness: Exactness | str = "allclose", name: str = "verify"
) -> VerificationReport:
    """Check that two modules compute the same results on random inputs, comparing results as wholes.
    Inputs are paired by name, leaf modules and random ops that draw numbers by their order. Raises
    VerificationError."""
    from fxlite.passes.base import as_module

    first, second = as_module(before), as_module(after)
    report = VerificationReport(name, as_exactness(exactness))
    if report.promise.kind == "changes":
        _verify_change(first, second, report)
        return report
    outputs = first.graph.output_node(), second.graph.output_node()
    pairs = _paired_results(*(n.args[0] for n in outputs))
    if pairs is None:
        raise result_error(report, *outputs)
    sides = [Side(_as_it_is, gm.get_attribute, set(gm.graph.nodes), gm.training) for gm in (first, second)]
    drawn = []
    for gm, side in zip((first, second), sides):
        side.keys = {p: ("input", p.target) for p in gm.graph.placeholders}
        drawn.append([n for n in gm.graph.nodes if n not in side.keys and _has_effect(side, n)])
    if [n.target for n in drawn[0]] != [n.target for n in drawn[1]]:
        report.unchecked.append(("the results", "random ops and leaf modules are not the same"))
        return report
    for number, (a, b) in enumerate(zip(*drawn)):
        sides[0].keys[a] = sides[1].keys[b] = ("drawn", number)
        pairs += changed_places(a, b, set()) or []
    ClaimCheck(sides[0], sides[1], report, PATIENCE).whole(pairs)
    return report


def _as_it_is(node: Node) -> Node:
    return node


def _has_effect(side: Side, node: Node) -> bool:
    return node.op == "call_module" or (node.op == "call_function" and side.is_drawn(node, node))


def _check_effects(edits: Edits, check: ClaimCheck) -> None:
    """Check that calls with effects are kept and draw the same numbers; a leaf module that was read may be replaced."""
    for node in edits.erased:
        old = edits.before(node)
        if old.op == "call_function" and old.target.is_random and check.before.is_random(old):
            raise effect_error(check.report, node, "draws random numbers")
        if old.op != "call_module" or _was_read(edits, node):
            continue
        if is_impure_module(edits.attribute_before(old.target)):
            raise effect_error(check.report, node, "calls a leaf module, which may have effects")
    for node, old in edits.original.items():
        if node._erased or old.op != "call_function" or not old.target.is_random:
            continue
        same = changed_places(old, node, edits.changed) is not None
        if not same and check.before.is_random(old):
            raise effect_error(check.report, node, "draws other random numbers now")


def _was_read(edits: Edits, node: Node) -> bool:
    """True if this node was read by a node that is gone or has other inputs now."""
    others = [*edits.original, *edits.erased]
    return any(node in nodes_in(edits.before(o).args) for o in others)


def _results(edits: Edits, check: ClaimCheck) -> list[Pair] | None:
    output = edits.gm.graph.output_node()
    pairs = _paired_results(edits.before(output).args[0], output.args[0])
    if pairs is None:
        raise result_error(check.report, output, output, edits.before(output).args[0])
    return pairs


def _paired_results(before: Any, after: Any) -> list[Pair] | None:
    """The nodes at the same places of two nested results; None if their structures differ."""
    if isinstance(before, Node) and isinstance(after, Node):
        return [Pair(before, after)]
    if type(before) is not type(after):
        return None
    if isinstance(before, dict):
        if list(before) != list(after):
            return None
        before, after = list(before.values()), list(after.values())
    if isinstance(before, (tuple, list)):
        if len(before) != len(after):
            return None
        found = [_paired_results(b, a) for b, a in zip(before, after)]
        return None if None in found else [p for part in found if part for p in part]
    return [] if before == after else None


# -- examples --------------------------------------------------------------------------------------
class ExampleError(FxliteError, AssertionError):
    """An example of a pass does not show what it is there to show."""


@checked
def check_examples(item: Pass) -> None:
    """Check that the pass has an example and a counterexample, that it changes the graph of every
    example, that the result is valid and computes the same on random inputs (as closely as the pass
    promises), and that it leaves the graph of every counterexample alone. Raises ExampleError, or
    whatever the pass and verification raise."""
    for kind, found in (("example", item.examples), ("counterexample", item.counterexamples)):
        if not found:
            raise ExampleError(f"{item.name} has no {kind}: add one with {item.name}.{kind}(...)")
    for number, example in enumerate(item.examples, 1):
        before, after = run_example(item, example)
        if after.graph == before.graph:
            raise ExampleError(f"{item.name} leaves its example {number} as it is:\n{before.graph}{_said(after)}")
        after.graph.lint()
        verify(before, after, item.exactness, item.name)
    for number, example in enumerate(item.counterexamples, 1):
        before, after = run_example(item, example)
        if after.graph != before.graph:
            raise ExampleError(
                f"{item.name} changes its counterexample {number} ({example.about}):\n{before.graph}\nto\n{after.graph}"
            )


def run_example(item: Pass, example: Example) -> tuple[GraphModule, GraphModule]:
    """The example as a graph, and the result of the pass on it."""
    before = example.trace()
    return before, item(before, **example.options)


def source_of(program: Callable[..., Any]) -> str:
    """Source text of an example's program; a lambda is written as a function. Raises OSError if the
    source is not available."""
    if program.__name__ != "<lambda>":
        return textwrap.dedent(inspect.getsource(program)).strip()
    code = program.__code__
    text = Path(code.co_filename).read_text(encoding="utf-8")
    line, column = max((p[0] or 0, p[2] or 0) for p in code.co_positions())  # in its body
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, ast.Lambda) and _covers(found.body, line, column):
            body = ast.get_source_segment(text, found.body)
            return f"def program({ast.unparse(found.args)}):\n    return {body}"
    raise OSError(f"no lambda at {code.co_filename}:{code.co_firstlineno}")


def _covers(node: ast.expr, line: int, column: int) -> bool:
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return first <= (line, column) < last


def _said(module: GraphModule) -> str:
    from fxlite.passes.ledger import ledger

    return "".join(f"\n{entry}" for entry in ledger(module))
