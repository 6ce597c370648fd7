"""A profile as a trace: JSON that ``chrome://tracing`` and https://ui.perfetto.dev show as a time
line, modules above what runs in them.

In: a :class:`Profile`. Out: a file in the Trace Event Format (complete events, "ph": "X"; times in
microseconds), with one call, of about the median time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlite.show.module_tree import outer_modules

if TYPE_CHECKING:
    from fxlite.passes.profiling.record import Profile, Row

import json
import os
from typing import Any


def write_chrome_trace(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write the file."""
    trace = {
        "traceEvents": trace_events(profile),
        "displayTimeUnit": "ms",
        "otherData": {"model": profile.name, "backend": profile.backend,
                      "threads": profile.threads, **profile.dims},
    }  # fmt: skip
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(trace, stream, indent=1)


def trace_events(profile: Profile) -> list[dict[str, Any]]:
    """One event for each row, and one for each stretch of rows that a module makes without a
    break."""
    rows = profile.rows
    events: list[dict[str, Any]] = []
    open_modules: list[tuple[str, int]] = []  # path, number of its first row
    for number in range(len(rows) + 1):
        path = outer_modules(rows[number].module) if number < len(rows) else []
        kept = 0
        while kept < min(len(path), len(open_modules)) and open_modules[kept][0] == path[kept]:
            kept += 1
        for module, first in open_modules[kept:]:
            start, end = rows[first].start, _end(rows[number - 1], profile.shown)
            label = module or profile.name
            events.append(_event(label, "module", start, end, {}))
        del open_modules[kept:]
        open_modules += [(module, number) for module in path[kept:]]
    for row in rows:
        events.append(
            _event(row.name, row.covers, row.start, _end(row, profile.shown), _facts(row))
        )
    return sorted(events, key=lambda e: (e["ts"], -e["dur"]))


def _end(row: Row, shown: int) -> float:
    return row.start + row.seconds[shown]


def _event(name: str, category: str, start: float, end: float, facts: Any) -> dict[str, Any]:
    return {
        "name": name, "cat": category, "ph": "X", "ts": start * 1e6, "dur": (end - start) * 1e6,
        "pid": 1, "tid": 1, "args": facts,
    }  # fmt: skip


def _facts(row: Row) -> dict[str, Any]:
    facts: dict[str, Any] = {"nodes": [part.node.name for part in row.parts]}
    if row.location is not None:
        facts["line"] = str(row.location)
    if row.flops is not None:
        facts["FLOPs"] = row.flops
    if row.bytes is not None:
        facts["bytes"] = row.bytes
    if row.efficiency is not None:
        facts["bound"] = row.bound
        facts["of roof"] = round(row.efficiency, 4)
    return facts
