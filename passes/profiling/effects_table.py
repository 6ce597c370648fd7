"""Before and after a pipeline as text: a row for each pass, below it one for each kind of rewrite.

In: a :class:`~fxlite.passes.profiling.effects.BeforeAfter`. Out: rich tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fxlite.passes.profiling.rewrites import Rewrite, relative
from fxlite.passes.profiling.tables import seconds_text
from fxlite.show.node_cost import short_text

if TYPE_CHECKING:
    from fxlite.passes.profiling.effects import BeforeAfter, Change, PassEffect, State

#: Kinds of rewrites that are listed for each pass.
MOST_KINDS = 6


def effects_parts(found: BeforeAfter, width: int) -> Iterator[Any]:
    """The heading, the table, and what its columns mean."""
    sizes = "".join(f", {name}={size}" for name, size in found.dims.items())
    passes = "1 pass" if len(found) == 1 else f"{len(found)} passes"
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    language = found.target.language
    yield Text(f"{found.name}: {passes}, {language}, {threads}{sizes}", style="bold")
    yield ""
    yield _table(found)
    yield Text("\n".join(_legend(found)), style="dim")


def _table(found: BeforeAfter) -> Table:
    is_python = found.target.part == "node"
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", min_width=12)  # gives way where the width does not suffice
    parts = "nodes" if is_python else "kernels"
    for heading in (parts, "FLOPs", "bytes", "memory", "predicted", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("before", *_state_cells(found.before), style="bold")
    for step in found:
        table.add_row(*_step_cells(step), style="dim" if step.is_same else "default")
        for label, *cells in _rewrite_rows(step, is_python):
            table.add_row(Text(label, no_wrap=True, overflow="ellipsis"), *cells, style="dim")
    table.add_row("after", *_state_cells(found.after), style="bold")
    if not all(step.is_same for step in found):
        changes = _change_cells(found.before, found.after)
        table.add_row("change", "", *changes, _percent(found.predicted), _measured(found.measured))
    return table


def _state_cells(state: State) -> list[str]:
    counts = (state.flops, state.bytes, state.memory)
    cells = ["?" if value is None else short_text(value) for value in counts]
    least = "" if state.least_seconds is None else seconds_text(state.least_seconds)
    return [str(state.parts), *cells, least, seconds_text(state.median)]


def _step_cells(step: PassEffect) -> list[Any]:
    name = f"{step.name}, {step.refused} refused" if step.refused else step.name
    if step.is_same:
        return [name, str(step.after.parts), "", "", "", "", "the same"]
    parts = f"{step.before.parts} → {step.after.parts}"
    if step.before.parts == step.after.parts:
        parts = str(step.after.parts)
    changes = _change_cells(step.before, step.after)
    return [name, parts, *changes, _percent(step.predicted), _measured(step.measured)]


def _change_cells(before: State, after: State) -> list[str]:
    return [
        _percent(relative(getattr(before, what), getattr(after, what)))
        for what in ("flops", "bytes", "memory")
    ]


def _rewrite_rows(step: PassEffect, with_bytes: bool) -> Iterator[list[str]]:
    """The rewrites of a pass, equal ones together, those that change most first. What compiled code
    moves is decided by its kernels, not by nodes."""
    kinds: dict[tuple[Any, ...], list[Rewrite]] = {}
    for rewrite in step.rewrites:
        kinds.setdefault((rewrite.rule, str(rewrite)), []).append(rewrite)
    rows = [
        (group, _sum([r.flops for r in group]), _sum([r.bytes for r in group]))
        for group in kinds.values()
    ]
    rows.sort(key=lambda row: (-abs(row[2] or 0), -abs(row[1] or 0)))
    for group, flops, moved in rows[:MOST_KINDS]:
        text = f"{group[0].rule}: {group[0]}" if group[0].rule != step.name else str(group[0])
        text = text.removeprefix(": ")
        label = f"  {len(group)} × {text}"
        shares = [_share(flops, step.before.flops)]
        shares.append(_share(moved, step.before.bytes) if with_bytes else "")
        yield [label, "", *shares, "", "", ""]
    if len(rows) > MOST_KINDS:
        yield [f"  and {len(rows) - MOST_KINDS} more kinds", *[""] * 6]


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(v for v in values if v is not None)


def _share(change: int | None, whole: int | None) -> str:
    return _percent(change / whole) if change is not None and whole else ""


def _percent(change: float | None) -> str:
    """``-12.3%``; nothing for no change, ``?`` where it is unknown."""
    if change is None:
        return "?"
    return f"{100 * change:+.1f}%" if change else ""


def _measured(change: Change) -> Text:
    style = "" if change.is_noise else "green" if change.value < 0 else "red"
    return Text(str(change), style=style)


def _legend(found: BeforeAfter) -> Iterator[str]:
    rounds = len(found.before.seconds)
    yield "predicted: the least time that the machine's roofs allow, one part after another"
    yield f"measured: medians of {rounds} rounds in turns; ±: half of the 95 % interval, in points"
    if found.target.part == "kernel":
        yield "memory: the workspace; below a pass: its rewrites, with the FLOPs of their nodes"
    else:
        yield "below a pass: its rewrites, with what they change of the whole"
