"""Check and time a compiled model against eager NumPy, and print the results as a table.

In: a program, the function compiled from it, and cases. Out: :class:`Checked` for each case, and a
summary as rich tables.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fxlite.backend import Case
from fxlite.base.errors import FxliteError, number_of
from fxlite.codegen.c.selftest import compiled_chain
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.cost_report import flops
from fxlite.passes.costing.costs import dim_text
from fxlite.show.node_cost import quantity_text
from fxlite.types import shapes
from fxlite.types.agreement import USUAL, Chain, compare, leaves


class Disagreement(FxliteError):
    """A compiled model's results differ from NumPy's."""


@dataclass
class Checked:
    """The results for one case: the largest error relative to the largest value, and the median times
    in milliseconds of NumPy and of the compiled model by number of threads."""

    case: Case
    error: float
    numpy_ms: float = 0.0
    compiled_ms: dict[int, float] = field(default_factory=dict)
    spread: float = 1.0  # of the compiled model: largest median time / least time


def check(program: Callable[..., Any], functions: Sequence[tuple[str, Callable[..., Any]]], case: Case) -> Checked:
    """Run the program and the functions made from it (by language) on one case. The result's case
    contains the program's results; its error is that of the first function.

    Raises Disagreement; exceptions of the program are passed on."""
    with np.errstate(all="ignore"):
        expected = program(**case.inputs)
        chain = _chain(functions[0][1], case)
        found = [compare(leaves(expected), leaves(f(**case.inputs)), chain=chain) for _, f in functions]
    for (language, _), each in zip(functions, found):
        if not each.agrees:
            raise Disagreement(f"{language} differs from NumPy at {case.label}: {each}")
    return Checked(replace(case, expected=expected), found[0].error)


def _chain(function: Any, case: Case) -> Chain:
    """The chain of operations in the optimized program, or in the traced one if Python runs it as it is."""
    module = getattr(function, "optimized", None) or getattr(function, "graph_module", None)
    if not isinstance(module, GraphModule):
        return USUAL
    precision = getattr(function, "matmul_precision", "highest")
    return compiled_chain(module.graph, [case.dims], precision)


#: Seconds of each turn: longer than the threads of NumPy's BLAS stay busy after their last call.
TURN = 0.06


def measure(program: Callable[..., Any], function: Any, checked: Checked, turns: int = 5) -> None:
    """Fill in the times: medians of all calls. Program and function run in turns, so that both meet the
    same load.

    A function with threads is measured with one thread and with all."""
    compiled = getattr(function, "function", None)
    most = getattr(compiled, "n_threads", 1)
    taken: dict[int, list[float]] = {n: [] for n in sorted({0, 1, most})}  # 0: NumPy
    with np.errstate(all="ignore"):
        for _ in range(turns):
            for threads, times in taken.items():
                if threads and most > 1:
                    compiled.n_threads = threads  # type: ignore[union-attr]
                times += _turn(function if threads else program, checked.case.inputs)
    medians = {n: statistics.median(times) for n, times in taken.items()}
    checked.spread = max(medians[n] / min(taken[n]) for n in medians)
    checked.numpy_ms = medians.pop(0)
    checked.compiled_ms = medians


def _turn(function: Callable[..., Any], inputs: Mapping[str, Any]) -> list[float]:
    """Milliseconds of the calls of one turn."""
    times: list[float] = []
    end = time.perf_counter() + TURN
    while not times or (time.perf_counter() < end and len(times) < 1000):
        start = time.perf_counter()
        function(**inputs)
        times.append((time.perf_counter() - start) * 1e3)
    return times


# -- text ------------------------------------------------------------------------------------------
def milliseconds(value: float) -> str:
    """``0.0123 ms``: three digits."""
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} ms"


def kernel_kinds(function: Any) -> str:
    """``4 kernels: 2 linear, 1 conv2d, 1 fused loops``"""
    kinds = Counter(
        call.group.anchor.target.name if call.group.anchor is not None else "fused loops"
        for call in function.program.calls
    )
    total = sum(kinds.values())
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{total}: {listed}" if total else "0"


def summary(function: Any, checked: Sequence[Checked], name: str) -> Group:
    """A summary of a compilation: nodes, kernels, weights, and a row of numbers for each size."""
    module: GraphModule = function.graph_module
    before, after = len(module.graph), len(function.optimized.graph)
    work = flops(module)
    facts = Table.grid(padding=(0, 2))
    apart = ", since composite ops were taken apart" if after > before else ""
    facts.add_row("nodes", f"{before} before optimization, {after} after{apart}")
    rows: list[dict[str, str]] = []
    program = function.program if hasattr(function, "workspace_bytes") else None
    if program is not None:
        facts.add_row("kernels", kernel_kinds(function))
        larger = getattr(function, "larger_weights", "")
        facts.add_row("weights", quantity_text(len(program.weights), "B") + (larger and f"; {larger}"))
    facts.add_row("FLOPs", dim_text(work))
    for c in checked:
        row: dict[str, str] = {"size": c.case.label + ("" if c.case.is_random else " (data)")}
        row["FLOPs"] = quantity_text(float(shapes.substitute(work, c.case.dims)))
        if program is not None:
            peak = function.workspace_bytes(c.case.dims) + len(program.weights)
            row["memory"] = quantity_text(peak, "B")
        row["NumPy"] = milliseconds(c.numpy_ms)
        for threads, taken in c.compiled_ms.items():
            many = len(c.compiled_ms) > 1
            row[f"{name}, {number_of(threads, 'thread')}" if many else name] = milliseconds(taken)
        factor = c.numpy_ms / min(c.compiled_ms.values())
        row["faster"] = f"{factor:.1f}x" if factor >= 1 else f"{factor:.2g}x"
        row["largest error"] = f"{c.error:.1e}" if c.error else "0"
        rows.append(row)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in rows[0] if rows else ():
        if heading == "size":
            table.add_column(heading)
        else:  # in a narrow terminal headings are wrapped, not numbers
            widest = max(len(row[heading]) for row in rows)
            table.add_column(heading, justify="right", min_width=widest)
    for row in rows:
        table.add_row(*row.values())
    return Group(facts, "", table)


def notes(function: Any, checked: Sequence[Checked]) -> Text:
    """Explanations of the numbers in the table."""
    lines = [
        "times: medians of calls in turns",
        "error: the largest difference from NumPy, as part of the largest value",
    ]
    if hasattr(function, "workspace_bytes"):
        lines[0] += "; memory: workspace and weights"
    if any(c.spread > 3 for c in checked):
        lines.append("the times vary much: other programs may be using the processors")
    return Text("\n".join(lines), style="dim")
