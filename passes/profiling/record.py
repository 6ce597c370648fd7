"""The contents of a profile: a row of measured times for each node or kernel, sums of rows, and their
order in time.

In: rows that :mod:`fxlite.passes.profiling.profile` has measured. Out: :class:`Profile`, which
groups its rows by module, op or source line, prints as a table, and shows the call over time: as a
flame graph, and as a trace that ``chrome://tracing`` and https://ui.perfetto.dev show as a time line;
both show modules above the parts that run in them.

The flame graph is self-contained SVG. The width of a bar is the time of a module with everything
inside it, and the bars below it are its parts in program order: an icicle plot of the module tree
(after Brendan Gregg's flame graphs, whose tree is one of calls). The trace is a file in the Trace
Event Format (complete events, "ph": "X"; times in microseconds) of one call that took about the
median time.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fxlite.backend import Backend, find_backend
from fxlite.base.console import Printed, picture_html, write_whole
from fxlite.base.errors import ArgumentError
from fxlite.base.location import Location
from fxlite.base.outside_text import markup
from fxlite.graph.graph import Node
from fxlite.passes.profiling.tables import profile_table, seconds_text
from fxlite.show.drawing.colours import KINDS, Colour, css_class, kind_of
from fxlite.show.drawing.svg import opening, style_text
from fxlite.show.node_cost import Limits, Roofs
from fxlite.show.summary import outer_modules

if TYPE_CHECKING:
    from fxlite.passes.profiling.cliffs import Cliffs

#: What the rows of a profile may be grouped by.
GROUPINGS = ("kernel", "module", "op", "line")


@dataclass(frozen=True)
class Part:
    """A node that a row computes, its FLOPs (None: unknown), and its share of the row's time, which is
    1 for a row of one node. A kernel is measured as a whole, and its time is divided among its nodes
    in proportion to their FLOPs, or equally if there are none; this is an estimate."""

    node: Node
    flops: int | None
    share: float


@dataclass(frozen=True)
class Row:
    """One node (Python) or kernel (compiled): its times and its work.

    ``seconds`` holds the time of each repetition; ``start`` is when the repetition that a trace shows
    began. FLOPs and bytes are those of :mod:`fxlite.show.node_cost`; a kernel reads each of its
    inputs once and writes its result. They are None if types are unknown; ``limits`` is also None if
    the roofs are. ``how`` says whether a template computes a kernel, and if none does, why.
    """

    name: str
    node: Node
    parts: tuple[Part, ...]
    seconds: tuple[float, ...]
    start: float
    flops: int | None
    bytes: int | None
    limits: Limits | None
    how: str = ""

    @property
    def median(self) -> float:
        """Median time in seconds."""
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        """Least time in seconds."""
        return min(self.seconds)

    @property
    def covers(self) -> str:
        """The ops that it computes, in order: ``linear, relu``."""
        return ", ".join(dict.fromkeys(op_name(part.node) for part in self.parts))

    @property
    def module(self) -> str:
        """Path of the module in which it was made: ``layers.0.attn``; empty for the root."""
        return self.node.module_path

    @property
    def location(self) -> Location | None:
        """Place in the user's program."""
        return self.node.loc

    @property
    def flops_per_second(self) -> float | None:
        """FLOPs divided by the median time; None without FLOPs."""
        return self.flops / self.median if self.flops and self.median else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes read and written, divided by the median time; None if they are unknown or zero."""
        return self.bytes / self.median if self.bytes and self.median else None

    @property
    def bound(self) -> str:
        """What limits it on this machine: ``compute``, ``memory`` or ``cache``; empty if unknown."""
        return self.limits.bound if self.limits is not None else ""

    @property
    def efficiency(self) -> float | None:
        """The least time that the machine's roofs allow, divided by the median time: 1 is perfect."""
        if self.limits is None or not self.limits.seconds or not self.median:
            return None
        return self.limits.seconds / self.median


@dataclass(frozen=True)
class Entry:
    """A group of rows: their common name, median seconds, FLOPs (None: unknown) and number of nodes.
    ``depth`` and ``own_seconds`` (without the modules inside) apply to modules."""

    label: str
    seconds: float
    flops: int | None
    nodes: int
    depth: int = 0
    own_seconds: float = 0.0

    @property
    def flops_per_second(self) -> float | None:
        """FLOPs divided by seconds; None without FLOPs."""
        return self.flops / self.seconds if self.flops and self.seconds else None


@dataclass(frozen=True, repr=False)
class Profile(Printed):
    """The times of a program's nodes or kernels, in order of execution.

    ``whole_seconds`` are the times of the calls in which the parts were measured, ``plain_seconds``
    those of alternating calls without measurement; ``dims`` are the sizes of the named dims, and
    ``shown`` is the number of the repetition that a trace shows."""

    name: str
    backend: str
    threads: int
    dims: Mapping[str, int]
    rows: tuple[Row, ...]
    whole_seconds: tuple[float, ...]
    plain_seconds: tuple[float, ...]
    shown: int
    roofs: Roofs | None

    @property
    def about(self) -> str:
        return f"{len(self.rows)} {self.target.part}s of {self.name} in {self.target.language}"

    @property
    def target(self) -> Backend:
        """The back end that ran it."""
        return find_backend(self.backend)

    @property
    def seconds(self) -> float:
        """Median time of a call in which the parts are measured."""
        return statistics.median(self.whole_seconds)

    @property
    def parts_seconds(self) -> float:
        """The sum of the parts, as the median over the calls."""
        return statistics.median(self._sums())

    @property
    def coverage(self) -> float:
        """The sum of the parts divided by the time of the call, as the median over the calls: 1 if the
        parts take all of the time."""
        return statistics.median(s / w for s, w in zip(self._sums(), self.whole_seconds))

    @property
    def overhead(self) -> float:
        """The time that measuring adds, as a fraction of an unmeasured call. It is computed from the
        least times, because medians differ by more than that if other programs are running."""
        return min(self.whole_seconds) / min(self.plain_seconds) - 1

    @property
    def rows_seconds(self) -> float:
        """The sum of the rows' medians, to which shares of the time refer."""
        return sum(row.median for row in self.rows)

    def _sums(self) -> list[float]:
        times = [row.seconds for row in self.rows]
        return [sum(each) for each in zip(*times)] or [0.0] * len(self.whole_seconds)

    # -- groups --------------------------------------------------------------------------------
    def by_op(self) -> list[Entry]:
        """Time of each op, the longest first."""
        return self._grouped(op_name, op_name)

    def by_line(self) -> list[Entry]:
        """Time of each line of the user's program, such as ``model.py:31``, the longest first."""
        return self._grouped(
            lambda node: str(node.loc),  # two files may have the same name
            lambda node: node.loc.short if node.loc is not None else "(unknown)",
        )

    def by_module(self) -> list[Entry]:
        """Time of each module with everything inside it, as a tree: a module comes before those inside
        it, with its depth; the root, which includes everything, comes first."""
        own: dict[str, list[tuple[Part, float]]] = {"": []}
        inside: dict[str, list[tuple[Part, float]]] = {"": []}
        for part, seconds in self._parts():
            path = part.node.module_path
            own.setdefault(path, []).append((part, seconds))
            for outer in outer_modules(path):
                inside.setdefault(outer, []).append((part, seconds))
        children: dict[str, list[str]] = {}
        for path in inside:
            if path:
                children.setdefault(path.rpartition(".")[0], []).append(path)
        entries: list[Entry] = []
        work = [("", 0)]
        while work:
            path, depth = work.pop()
            label = path.rpartition(".")[2] or self.name
            alone = sum(seconds for _, seconds in own.get(path, ()))
            entries.append(_entry(label, inside[path], depth, alone))
            work += [(child, depth + 1) for child in reversed(children.get(path, ()))]
        return entries

    def node_seconds(self) -> dict[Node, float]:
        """Median seconds by node, summed over the kernels that compute it (there may be several, each
        for its own use): ``graph.draw("x.svg", times=profile)`` colours nodes by them."""
        found: dict[Node, float] = {}
        for part, seconds in self._parts():
            found[part.node] = found.get(part.node, 0.0) + seconds
        return found

    def line_seconds(self) -> dict[tuple[str, int], float]:
        """Median seconds by file and line of the user's program."""
        found: dict[tuple[str, int], float] = {}
        for part, seconds in self._parts():
            if part.node.loc is not None:
                place = part.node.loc.file, part.node.loc.line
                found[place] = found.get(place, 0.0) + seconds
        return found

    def _parts(self) -> Iterable[tuple[Part, float]]:
        for row in self.rows:
            median = row.median
            yield from ((part, part.share * median) for part in row.parts)

    def _grouped(self, key: Callable[[Node], str], label: Callable[[Node], str]) -> list[Entry]:
        found: dict[str, list[tuple[Part, float]]] = {}
        for part, seconds in self._parts():
            found.setdefault(key(part.node), []).append((part, seconds))
        entries = [_entry(label(parts[0][0].node), parts) for parts in found.values()]
        return sorted(entries, key=lambda entry: -entry.seconds)

    def cliffs(self, share: float = 0.03, reached: float = 0.5) -> Cliffs:
        """The rows that take more than ``share`` of the time and reach less than ``reached`` of what limits
        them on this machine, with reasons and advice. Raises ArgumentError for a profile without roofs."""
        from fxlite.passes.profiling.cliffs import find_cliffs

        return find_cliffs(self, share, reached)

    # -- text ----------------------------------------------------------------------------------
    def table(self, by: str = "kernel", width: int = 100) -> Any:
        """A rich table of the rows, slowest first, or of groups: ``by`` is ``kernel``, ``module``,
        ``op`` or ``line``. Raises ArgumentError for any other value."""
        if by not in GROUPINGS:
            raise ArgumentError(f"a profile is grouped by {', '.join(GROUPINGS)}, not by {by!r}")
        return profile_table(self, by, width)

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield self.table(width=options.max_width)

    def _repr_html_(self) -> str:
        """The flame graph and the table, for notebooks."""
        return picture_html(self.to_flame_graph()) + super()._repr_html_()

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write one call of about the median time as JSON for ``chrome://tracing`` and
        https://ui.perfetto.dev, in which modules contain their kernels."""
        write_chrome_trace(self, path)

    def to_roofline(self, path: str | os.PathLike[str] | None = None) -> str:
        """A roofline plot: the FLOP/s that each row reaches against its FLOPs per byte, below the limits of
        the machine. Returns SVG text, which is also written to ``path`` if given. Raises ArgumentError for a
        profile without roofs, and if no row has FLOPs."""
        from fxlite.passes.profiling.roofline import roofline_svg

        text = roofline_svg(self)
        if path is not None:
            write_whole(path, text)
        return text

    def to_flame_graph(self, path: str | os.PathLike[str] | None = None) -> str:
        """A flame graph of modules and the nodes or kernels in them; the width of each is its time.
        Returns SVG text, which is also written to ``path`` if given."""
        text = flame_svg(self)
        if path is not None:
            write_whole(path, text)
        return text


def op_name(node: Node) -> str:
    """The op of a node, such as ``linear``, or the path of a leaf module."""
    return node.target.name if node.op == "call_function" else str(node.target)


def _entry(label: str, parts: list[tuple[Part, float]], depth: int = 0, own: float = 0.0) -> Entry:
    flops: int | None = 0
    for part, _ in parts:
        flops = None if flops is None or part.flops is None else flops + part.flops
    seconds = sum(seconds for _, seconds in parts)
    return Entry(label, seconds, flops, len(parts), depth, own)


# -- over time: a flame graph, and a trace ---------------------------------------------------------
#: Pixels: of the picture, of a bar, of a letter, and of the narrowest bar that is drawn by itself.
_WIDTH, _HEIGHT, _LETTER, _NARROWEST = 1000.0, 22, 6.4, 1.0
_MODULE: Colour = ("#e6edf5", "#4a6076")
_REST: Colour = ("#e4e7eb", "#7b8794")


@dataclass
class _Bar:
    """A module, or something that runs (a node, or a kernel's share in a module), with its seconds."""

    name: str
    seconds: float = 0.0
    colour: Colour = _MODULE
    about: str = ""
    children: dict[str, _Bar] = field(default_factory=dict)


def flame_svg(profile: Profile) -> str:
    """SVG text. Bars have a tooltip with time, share and place."""
    root = _tree(profile)
    total = root.seconds or 1.0
    body: list[str] = []
    deepest = 0
    for bar, depth, x, width in _placed(root, _WIDTH / total):
        deepest = max(deepest, depth)
        body.append(_drawn(bar, depth, x, width, total))
    height = (deepest + 1) * _HEIGHT + 4
    name = f"{profile.name}: where the time of {seconds_text(total)} goes"
    head = opening(_WIDTH, height, name, size=11)
    style = f"<style>\n{style_text([*KINDS.values(), _MODULE, _REST])}</style>"
    body.insert(0, f'<rect class="page" width="{_WIDTH:.0f}" height="{height}"/>')
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
    """Bars with depth, left end and width, outer ones first; adjacent bars that are too narrow to be
    seen are joined."""
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
    y = depth * _HEIGHT
    letters = int((width - 6) / _LETTER)
    name = bar.name if len(bar.name) <= letters else f"{bar.name[: letters - 1]}…"
    told = f"{bar.name}: {seconds_text(bar.seconds)}, {bar.seconds / total:.1%}\n{bar.about}"
    parts = [
        f"<g><title>{markup(told.rstrip())}</title>",
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_HEIGHT - 2}" rx="2" '
        f'class="{css_class(bar.colour)}" stroke-width="0.6"/>',
    ]
    if letters >= 3:
        parts.append(f'<text class="type" x="{x + 4:.1f}" y="{y + 14}">{markup(name)}</text>')
    return "".join([*parts, "</g>"])


# -- trace -----------------------------------------------------------------------------------------
def write_chrome_trace(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write the trace as a JSON file."""
    trace = {
        "traceEvents": trace_events(profile),
        "displayTimeUnit": "ms",
        "otherData": {"model": profile.name, "backend": profile.backend, "threads": profile.threads, **profile.dims},
    }
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(trace, stream, indent=1)


def trace_events(profile: Profile) -> list[dict[str, Any]]:
    """One event for each row, and one for each uninterrupted stretch of rows that a module makes."""
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
