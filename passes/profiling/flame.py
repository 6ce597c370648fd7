"""A profile over time: a flame graph as SVG, and a trace that ``chrome://tracing`` and
https://ui.perfetto.dev show as a time line; in both, modules stand above what runs in them.

In: a :class:`Profile`. Out: SVG text that stands on its own, in which the width of a bar is the
time of a module with all that is inside it, and the bars below it are what it is made of, in order
of the program; this is an icicle plot of the module tree (after Brendan Gregg's flame graphs, in
which the tree is one of calls). And a file in the Trace Event Format (complete events, "ph": "X";
times in microseconds), with one call, of about the median time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fxlite.base.outside_text import markup
from fxlite.passes.profiling.tables import seconds_text
from fxlite.show.drawing.colours import KINDS, Colour, kind_of
from fxlite.show.drawing.draw import FONT
from fxlite.show.summary import outer_modules

if TYPE_CHECKING:
    from fxlite.passes.profiling.record import Part, Profile, Row


#: Pixels: of the picture, of a bar, of a letter, and of the narrowest bar that is drawn by itself.
_WIDTH, _HEIGHT, _LETTER, _NARROWEST = 1000.0, 22, 6.4, 1.0
_MODULE: Colour = ("#eaf0f7", "#627d98")
_REST: Colour = ("#e4e7eb", "#9aa5b1")


@dataclass
class _Bar:
    """A module, or what runs (a node, or a kernel's share in a module), and its seconds."""

    name: str
    seconds: float = 0.0
    colour: Colour = _MODULE
    about: str = ""
    children: dict[str, _Bar] = field(default_factory=dict)


def flame_svg(profile: Profile) -> str:
    """The picture as text. Bars carry time, share and place as a tooltip."""
    root = _tree(profile)
    total = root.seconds or 1.0
    body: list[str] = []
    deepest = 0
    for bar, depth, x, width in _placed(root, _WIDTH / total):
        deepest = max(deepest, depth)
        body.append(_drawn(bar, depth, x, width, total))
    height = (deepest + 1) * _HEIGHT + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:.0f}" height="{height}" '
        f'viewBox="-1 -1 {_WIDTH + 2:.0f} {height}" font-family="{FONT}" font-size="10.5">'
    )
    style = "<style>\ntext { fill: #102a43; pointer-events: none; }\n</style>"
    return "\n".join([head, style, *body, "</svg>\n"])


def _tree(profile: Profile) -> _Bar:
    root = _Bar(profile.name)
    for row in profile.rows:
        for part in row.parts:
            seconds = part.share * row.median
            bar = root
            bar.seconds += seconds
            for path in outer_modules(part.node.module_path)[1:]:
                bar = bar.children.setdefault(f"module {path}", _Bar(path.rpartition(".")[2]))
                bar.seconds += seconds
            leaf = bar.children.setdefault(f"row {row.name}", _leaf(row, part))
            leaf.seconds += seconds
    return root


def _leaf(row: Row, part: Part) -> _Bar:
    place = f"{row.covers}\n" if len(row.parts) > 1 else ""
    place += row.location.short if row.location is not None else ""
    return _Bar(row.name, 0.0, KINDS[kind_of(row.node)], place)


def _placed(root: _Bar, scale: float) -> Iterator[tuple[_Bar, int, float, float]]:
    """Bars with depth, left end and width, outer ones first; those too narrow to be seen that stand
    together are one."""
    work = [(root, 0, 0.0)]
    while work:
        bar, depth, x = work.pop()
        yield bar, depth, x, bar.seconds * scale
        narrow = 0.0
        for child in bar.children.values():
            width = child.seconds * scale
            if width >= _NARROWEST:
                yield from _rest(narrow, depth + 1, x, scale)
                x, narrow = x + narrow, 0.0
                work.append((child, depth + 1, x))
                x += width
            else:
                narrow += width
        yield from _rest(narrow, depth + 1, x, scale)


def _rest(width: float, depth: int, x: float, scale: float) -> Iterator[tuple[_Bar, int, float, float]]:
    if width >= _NARROWEST / 4:
        yield _Bar("short ones", width / scale, _REST), depth, x, width


def _drawn(bar: _Bar, depth: int, x: float, width: float, total: float) -> str:
    fill, border = bar.colour
    y = depth * _HEIGHT
    letters = int((width - 6) / _LETTER)
    name = bar.name if len(bar.name) <= letters else f"{bar.name[: letters - 1]}…"
    told = f"{bar.name}: {seconds_text(bar.seconds)}, {bar.seconds / total:.1%}\n{bar.about}"
    parts = [
        f"<g><title>{markup(told.rstrip())}</title>",
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_HEIGHT - 2}" rx="2" '
        f'fill="{fill}" stroke="{border}" stroke-width="0.6"/>',
    ]
    if letters >= 3:
        parts.append(f'<text x="{x + 4:.1f}" y="{y + 14}">{markup(name)}</text>')
    return "".join([*parts, "</g>"])


# -- trace -----------------------------------------------------------------------------------------
def write_chrome_trace(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write the file."""
    trace = {
        "traceEvents": trace_events(profile),
        "displayTimeUnit": "ms",
        "otherData": {"model": profile.name, "backend": profile.backend, "threads": profile.threads, **profile.dims},
    }
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
        events.append(_event(row.name, row.covers, row.start, _end(row, profile.shown), _facts(row)))
    return sorted(events, key=lambda e: (e["ts"], -e["dur"]))


def _end(row: Row, shown: int) -> float:
    return row.start + row.seconds[shown]


def _event(name: str, category: str, start: float, end: float, facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": start * 1e6,
        "dur": (end - start) * 1e6,
        "pid": 1,
        "tid": 1,
        "args": facts,
    }


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
