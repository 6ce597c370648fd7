"""What the planner prints: sensitivities and plans as tables.

In: a Sensitivity or a Plan. Out: rich tables and pieces of text; ratios below 30 dB are yellow,
below 20 dB red.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fxlite.passes.profiling.tables import seconds_text

if TYPE_CHECKING:
    from fxlite.passes.quantize.planning.mixed_plan import Measured, Plan
    from fxlite.passes.quantize.planning.sensitivity import Choice, Sensitivity

#: The name of the layer that is the model's own forward.
ROOT = "(root)"


def decibel_text(sqnr: float) -> str:
    """``38.2 dB``; ``exact`` where nothing differs."""
    return "exact" if sqnr == math.inf else f"{sqnr:.1f} dB"


def cost_text(before: Choice, after: Choice) -> str:
    """``1,184 -> 340 bytes, 1.2 µs -> 410 ns``: in float, and now."""
    text = f"{before.bytes:,} -> {after.bytes:,} bytes"
    if before.seconds is None or after.seconds is None:
        return text
    return f"{text}, {seconds_text(before.seconds)} -> {seconds_text(after.seconds)}"


def sensitivity_table(found: Sensitivity, width: int = 100) -> Any:
    """A row for each layer, the ratios by each scheme in columns; below the bytes and estimated
    times of the whole, and what no layer can have and why. In less than 100 columns the schemes'
    names take two lines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("layer", overflow="fold")
    table.add_column("ops")
    for scheme in found.schemes:
        heading = scheme if width >= 100 else scheme.replace("_int", "\n_int")
        table.add_column(heading, justify="right")
    for layer in found.layers:
        cells = [
            _coloured(layer.choices[scheme].sqnr) if scheme in layer.choices else Text("-")
            for scheme in found.schemes
        ]
        table.add_row(layer.path or ROOT, ", ".join(layer.ops), *cells)
    what = {"layer": "of each layer's result", "output": "of the model's results"}[found.of]
    lines = [f"SQNR {what}, with that layer alone quantized", ""]
    return Group(table, "\n".join([*lines, *_totals(found), *_refusals(found)]))


def _coloured(sqnr: float) -> Any:
    from rich.text import Text

    styles = ((20.0, "red"), (30.0, "yellow"), (math.inf, ""))
    style = next(style for most, style in styles if sqnr < most or most == math.inf)
    return Text(decibel_text(sqnr), style)


def _totals(found: Sensitivity) -> Iterator[str]:
    for scheme in ("float", *found.schemes):
        seconds = found.seconds(scheme)
        time = "" if seconds is None else f", at least {seconds_text(seconds)}"
        yield f"all {scheme}: {found.bytes(scheme):,} bytes{time}"
    if found.roofs is not None:
        sizes = "".join(f", {name}={size}" for name, size in found.sizes.items())
        yield (
            f"times: what the measured rates of {found.roofs.cpu} allow, {found.roofs.threads} "
            f"threads{sizes}"
        )


def _refusals(found: Sensitivity) -> Iterator[str]:
    layers: dict[tuple[str, str], list[str]] = {}
    for layer in found.layers:
        for scheme, reason in layer.refused.items():
            layers.setdefault((scheme, reason), []).append(layer.path or ROOT)
    schemes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (scheme, reason), paths in layers.items():
        schemes.setdefault((reason, tuple(paths)), []).append(scheme)
    for (reason, places), names in schemes.items():
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        yield f"not {', '.join(names)}: {', '.join(places[:3])}{more}: {reason}"


def plan_table(plan: Plan) -> Any:
    """A row for each layer, with what its scheme costs; below what was measured."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("layer", overflow="fold")
    table.add_column("scheme")
    for heading in ("SQNR", "bytes", "in float", "time", "in float"):
        table.add_column(heading, justify="right")
    for layer in (*plan.layers, plan.elsewhere):
        cells: list[Any] = []
        if layer.chosen is not None and layer.in_float is not None:
            costs = (layer.chosen, layer.in_float)
            cells = ["" if layer.scheme == "float" else _coloured(layer.chosen.sqnr)]
            cells += [f"{cost.bytes:,}" for cost in costs]
            cells += ["" if c.seconds is None else seconds_text(c.seconds) for c in costs]
        table.add_row(layer.path or "(elsewhere)", layer.scheme, *cells)
    lines = list(_estimate(plan))
    if plan.measured is not None:
        lines.append(measured_text(plan.measured))
    return Group(table, *lines)


def _estimate(plan: Plan) -> Iterator[str]:
    layers = [layer for layer in (*plan.layers, plan.elsewhere) if layer.chosen is not None]
    now = [layer.chosen.seconds for layer in layers if layer.chosen is not None]
    before = [layer.in_float.seconds for layer in layers if layer.in_float is not None]
    if layers and None not in (*now, *before):
        sums = [seconds_text(math.fsum(s or 0.0 for s in part)) for part in (before, now)]
        yield f"estimated: at least {sums[0]} -> {sums[1]}"


def measured_text(found: Measured) -> str:
    """``measured: SQNR of the results 31.2 dB, weights 39,912 -> 11,300 bytes, metric ...``."""
    text = (
        f"measured: SQNR of the results {decibel_text(found.sqnr)}, weights "
        f"{found.bytes_float:,} -> {found.bytes:,} bytes"
    )
    if found.metric is None:
        return text
    return f"{text}, metric {found.metric_float:.6g} -> {found.metric:.6g}"
