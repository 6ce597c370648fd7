"""Plots of costs over the size of a dim.

In: one cost report or two, a quantity and sizes. Out: SVG text, and maybe a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError
from fxlite.passes.costing.break_even import SizeRanges, sizes_that_pay
from fxlite.passes.costing.costs import QUANTITIES
from fxlite.passes.costing.plot_svg import Plot, plot_svg
from fxlite.passes.costing.tables import TITLES

if TYPE_CHECKING:
    from fxlite.passes.costing.cost_report import CostReport

_COUNTED = ("flops", "parameters", "intensity")  # the other quantities are bytes


def plot(
    reports: Mapping[str, CostReport],
    quantity: str,
    path: str | os.PathLike[str] | None,
    sizes: Mapping[str, Any],
) -> str:
    """A line for each report, by name; of two, the sizes at which the second begins or ceases to
    pay are marked. Raises ArgumentError as CostReport.table and CostTable.column do, and for costs
    that are unknown."""
    fixed = {name: value for name, value in sizes.items() if isinstance(value, int)}
    tables = {name: report.table(**sizes) for name, report in reports.items()}
    dim = next(iter(tables.values())).dim
    ordered = sorted(set(sizes[dim]))
    lines = {}
    for name, table in tables.items():
        by_size = dict(zip(table.values, table.column(quantity)))
        if None in by_size.values():
            raise ArgumentError(
                f"{quantity} of {name} is unknown: there are leaf modules, or no types"
            )
        lines[name] = [by_size[size] for size in ordered]
    marks: dict[int, str] = {}
    if len(reports) == 2 and quantity in QUANTITIES:
        before, after = reports.values()
        found = _break_even(before, after, dim, quantity, fixed)
        ends = [end for pair in found.ranges for end in pair if end is not None]
        marks = {end: f"pays: {found}" for end in ends if ordered[0] < end < ordered[-1]}
    names = " and ".join(dict.fromkeys(report.module.name for report in reports.values()))
    at = "".join(f", {name}={size}" for name, size in fixed.items())
    unit = "" if quantity in _COUNTED else "B"
    text = plot_svg(Plot(f"{names}: {TITLES[quantity]}{at}", dim, unit, ordered, lines, marks))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _break_even(
    before: CostReport, after: CostReport, dim: str, quantity: str, fixed: Mapping[str, int]
) -> SizeRanges:
    """The sizes that pay."""
    dims = {*before.dims, *after.dims}
    if dim not in dims:
        return SizeRanges(dim, ())
    known = {n: s for n, s in fixed.items() if n in dims}
    return sizes_that_pay(before.total, after.total, dim, quantity, known)
