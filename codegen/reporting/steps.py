"""The rewrites of a report, one at a time.

In: a :class:`~fxlite.codegen.reporting.report.ModelReport`. Out: the elements of its tab: for each
rewrite what it changed, with the graph around it, and the values there. ``report.js`` shows one and
goes forward and backward; without scripts, and printed, all stand below each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fxlite.base.errors import FxliteError
from fxlite.base.outside_text import markup
from fxlite.passes.stepper import HEADINGS, Rewrite, Rewrites
from fxlite.show.comparison.written import row_elements, weight_elements

if TYPE_CHECKING:
    from fxlite.codegen.reporting.report import ModelReport

#: Rewrites on a page, and nodes that are looked at for them: each is found by comparing the whole
#: graph before and after.
MOST_REWRITES, MOST_NODES = 80, 40_000
_MOST_VALUES = 12


def rewrites_tab(report: ModelReport) -> Iterator[str]:
    """The elements of the tab."""
    traced = report.traced.module
    found = Rewrites(traced, report.passes)
    count = min(len(found), MOST_REWRITES, max(MOST_NODES // len(traced.graph), 1))
    if not found:
        yield "<p>The passes change nothing.</p>"
        return
    yield (
        '<div class="step-bar"><button id="step-back">←</button><button id="step-next">→</button>'
        '<button id="step-pass">next pass</button> <span id="step-where"></span>'
        " <small>keys: n or →, b or ←, p for the next pass</small></div>"
    )
    if count < len(found):
        yield f"<p>The first {count} of {len(found)} rewrites.</p>"
    yield '<div id="steps" tabindex="0">'
    for index in range(count):
        yield from _rewrite(found[index], index, len(found), report)
    yield "</div>"


def _rewrite(rewrite: Rewrite, index: int, count: int, report: ModelReport) -> Iterator[str]:
    name = markup(rewrite.pass_name)
    yield f'<article class="rewrite" data-pass="{name}" data-number="{rewrite.number}">'
    yield (
        f"<h3>Rewrite {index + 1} of {count}: {name} {rewrite.number} of {rewrite.count}</h3>"
        f'<p class="summary">{markup(rewrite.diff.summary)}</p><div class="diff">'
    )
    yield from row_elements(rewrite.diff)
    yield "</div>"
    yield from weight_elements(rewrite.diff.weights)
    if report.inputs:
        yield from _values(rewrite, report)
    yield "</article>"


def _values(rewrite: Rewrite, report: ModelReport) -> Iterator[str]:
    try:
        found = rewrite.values(report.inputs)
    except (FxliteError, ArithmeticError, ValueError) as error:
        yield f"<p>It does not run: {markup(str(error))}</p>"
        return
    if found.rows:
        head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in row) + "</tr>" for row in found.rows[:_MOST_VALUES]
        )
        yield f'<div class="wide"><table><thead><tr>{head}</tr></thead>{rows}</table></div>'
    yield f"<p>Results: {markup(found.results)}.</p>"
