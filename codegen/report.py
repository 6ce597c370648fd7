"""Checking and timing a compiled model against eager NumPy, and the table that says so.

In: a program, the function compiled from it, and cases. Out: :class:`Checked` for each case, and the
summary as rich tables.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fxlite import dtypes, shapes
from fxlite.codegen.c.bundle import flat_results
from fxlite.codegen.c.selftest import TOLERANCE
from fxlite.codegen.examples import Case
from fxlite.errors import FxliteError
from fxlite.graph_module import GraphModule
from fxlite.passes.cost import flops


class Disagreement(FxliteError):
    """A compiled model computes something else than NumPy."""


@dataclass
class Checked:
    """One case: the largest error, as a part of the largest value, and the times in milliseconds."""

    case: Case
    error: float
    numpy_ms: float = 0.0
    compiled_ms: float = 0.0
    repeats: int = 0


def relative_error(actual: Any, expected: Any, name: str) -> float:
    """Largest difference as a part of the largest expected value, over all results.

    Raises Disagreement where count, shape, dtype, integers, or the places of NaN and infinity
    differ, or a float is further off than the dtype's tolerance."""
    got, want = flat_results(actual), flat_results(expected)
    if len(got) != len(want):
        raise Disagreement(f"{name}: {len(got)} results, NumPy gives {len(want)}")
    return max((_error(a, e, f"{name}, result {i}") for i, (a, e) in enumerate(zip(got, want))))


def _error(actual: Any, expected: Any, name: str) -> float:
    for what in ("shape", "dtype"):
        if getattr(actual, what) != getattr(expected, what):
            shown = getattr(actual, what), getattr(expected, what)
            raise Disagreement(f"{name}: {what} {shown[0]}, NumPy gives {shown[1]}")
    dtype = dtypes.dtype(expected.dtype)
    if not dtype.is_float:
        different = int(np.sum(actual != expected))
        if different:
            raise Disagreement(f"{name}: {different} of {expected.size} values differ from NumPy's")
        return 0.0
    a, e = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(e)
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    if not (same | (finite & np.isfinite(a))).all():
        raise Disagreement(f"{name}: NaN or infinity stand at other places than in NumPy's result")
    if not finite.any():
        return 0.0
    scale = float(np.abs(e[finite]).max()) or 1.0
    error = float(np.abs(a[finite] - e[finite]).max()) / scale
    if error > TOLERANCE[dtype.name]:
        raise Disagreement(
            f"{name}: it differs from NumPy's by {error:.1e} of the largest value; at most "
            f"{TOLERANCE[dtype.name]:.0e} is expected of {dtype.long_name}"
        )
    return error


def check(program: Callable[..., Any], compiled: Callable[..., Any], case: Case) -> Checked:
    """Run both on one case. Raises Disagreement; errors of the program itself are its own."""
    with np.errstate(all="ignore"):
        expected = program(**case.inputs)
    return Checked(case, relative_error(compiled(**case.inputs), expected, case.label))


def measure(
    program: Callable[..., Any], compiled: Callable[..., Any], checked: Checked, budget: float = 0.5
) -> None:
    """Fill in the times: medians of calls of both in turns, for ``budget`` seconds, 3 at least."""
    inputs = checked.case.inputs
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + budget
    with np.errstate(all="ignore"):
        while len(times[0]) < 3 or (time.perf_counter() < end and len(times[0]) < 1000):
            for function, taken in zip((program, compiled), times):
                start = time.perf_counter()
                function(**inputs)
                taken.append((time.perf_counter() - start) * 1e3)
    checked.numpy_ms, checked.compiled_ms = map(statistics.median, times)
    checked.repeats = len(times[0])


# -- text ------------------------------------------------------------------------------------------
def quantity(value: float, unit: str = "") -> str:
    """``1.23 M``: three digits and a decimal prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".strip()


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
    """What a compilation made: nodes, kernels, weights, and a row of numbers for each size."""
    module: GraphModule = function.graph_module
    before, after = (_calls(m) for m in (module, function.optimized))
    work = flops(module)
    facts = Table.grid(padding=(0, 2))
    facts.add_row("nodes", f"{before} before, {after} after optimization")
    rows: list[Mapping[str, str]] = []
    program = getattr(function, "program", None)
    if program is not None:
        facts.add_row("kernels", kernel_kinds(function))
        facts.add_row("weights", quantity(len(program.weights), "B"))
    facts.add_row("FLOPs", _expression(work))
    for c in checked:
        row = {"size": c.case.label + ("" if c.case.is_random else " (data)")}
        row["FLOPs"] = quantity(float(shapes.substitute(work, c.case.dims)))
        if program is not None:
            peak = function.workspace_bytes(c.case.dims) + len(program.weights)
            row["memory"] = quantity(peak, "B")
        row["NumPy"], row[name] = milliseconds(c.numpy_ms), milliseconds(c.compiled_ms)
        row["faster"] = f"{c.numpy_ms / c.compiled_ms:.1f}x" if c.compiled_ms else ""
        row["largest error"] = f"{c.error:.1e}" if c.error else "0"
        rows.append(row)
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in rows[0] if rows else ():
        table.add_column(heading, justify="left" if heading == "size" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    return Group(facts, "", table)


def notes(function: Any, checked: Sequence[Checked], numpy_name: str = "NumPy") -> Text:
    """What the numbers of the table mean."""
    threads = getattr(getattr(function, "function", None), "n_threads", None)
    repeats = sorted({c.repeats for c in checked})
    runs = f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"
    parts = [f"time: median of {runs} runs of each in turns"]
    if threads:
        parts[0] += f", {threads} thread{'s' if threads > 1 else ''}"
        parts.append("memory: workspace and weights")
    parts.append("error: part of the largest value")
    return Text("; ".join(parts), style="dim")


def _calls(module: GraphModule) -> int:
    return sum(node.op in ("call_function", "call_module") for node in module.graph.nodes)


def _expression(value: Any) -> str:
    text = shapes.to_text(value)
    if type(value) is int:
        return quantity(value)
    return re.sub(r"\d{5,}", lambda m: f"{int(m[0]):,}".replace(",", "_"), text)
