"""A profile as text: facts about the whole call, then a table of its rows or of groups of them; or a
source file coloured by the time that each of its lines takes.

In: a :class:`Profile`, and perhaps a file of the user's program. Out: rich tables of at most a given
width, the slowest row first, or the file's lines; the slower a row or line, the warmer its colour.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fxlite.base.errors import number_of, sizes_text
from fxlite.show.node_cost import quantity_text, short_text

if TYPE_CHECKING:
    from fxlite.passes.profiling.record import Entry, Profile, Row


#: Rows that are shown; the others are summed up.
MOST_ROWS = 40
#: From these widths on, the table of rows says more of what they are.
WIDE, WIDEST = 96, 120
#: Shares of the time from which a row stands out.
HOT, WARM = 0.2, 0.05


def profile_table(profile: Profile, by: str, width: int) -> Group:
    """The facts and the table; ``by`` is one of ``GROUPINGS``."""
    if by == "kernel":
        table: Any = _rows(profile, width)
    elif by == "module":
        table = _modules(profile, profile.by_module())
    else:
        found = profile.by_op() if by == "op" else profile.by_line()
        table = _groups(profile, found, by)
    head, *facts = fact_lines(profile)
    if not profile.rows:
        return Group(head, _hanging(facts), "", f"no {profile.target.part} runs: the results are inputs or weights")
    return Group(head, _hanging(facts), "", table, _hanging(_legend(profile, by)))


def _hanging(lines: list[Text]) -> Table:
    """Lines with a label in their first seven columns, which stay empty on continuation lines."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=6, no_wrap=True)
    for line in (part for whole in lines for part in whole.split()):
        table.add_row(line[:6], line[7:])
    return table


def seconds_text(value: float) -> str:
    """``1.23 ms``: three digits, in s, ms or µs."""
    for factor, unit in ((1, "s"), (1e-3, "ms")):
        if value >= 0.9995 * factor:
            return f"{_three(value / factor)} {unit}"
    return f"{_three(value / 1e-6)} µs"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def heat(share: float) -> str:
    """The style for a share of the time."""
    return "bold red" if share >= HOT else "yellow" if share >= WARM else "default"


# -- facts -----------------------------------------------------------------------------------------
def fact_lines(profile: Profile) -> list[Text]:
    """Facts about the whole call: times, the cost of measuring, the machine's roofs."""
    threads = number_of(profile.threads, "thread")
    sizes = sizes_text(profile.dims)
    what = number_of(len(profile.rows), profile.target.part)
    calls = len(profile.whole_seconds)
    what += f" in {profile.target.language}"
    head = Text(f"{profile.name}: {what}, {threads}{sizes}", style="bold")
    plain = seconds_text(min(profile.plain_seconds))
    overhead = f"{profile.overhead:.1%}" if profile.overhead > 0 else "no measurable time"
    rest = "" if profile.coverage > 0.9 else "\n       the rest: checking inputs, making results"
    together = seconds_text(profile.parts_seconds)
    lines = [
        f"call   {seconds_text(profile.seconds)} median of {calls}, least {seconds_text(min(profile.whole_seconds))}",
        f"       measuring adds {overhead}: the fastest call without it takes {plain}",
        f"parts  {together} together, {profile.coverage:.1%} of the call{rest}",
    ]
    if profile.roofs is not None:
        lines.append(f"roofs  {_roofs(profile)}")
    else:
        lines.append("roofs  unknown: they are measured with a C compiler, and there is none")
    return [head, *(Text(line) for line in lines)]


def _roofs(profile: Profile) -> str:
    roofs, threads = profile.roofs, profile.threads
    assert roofs is not None
    compute = quantity_text(roofs.rate("fma_f32", threads), "FLOP/s")
    places = []
    for prefix, place in (("", "memory"), ("cached_", "cache")):
        read, write = (roofs.rate(f"{prefix}{what}", threads) / 1e9 for what in ("read", "write"))
        places.append(f"{place} {_three(read)}/{_three(write)}")
    return f"f32 {compute}; read/written GB/s: {', '.join(places)}"


def _legend(profile: Profile, by: str) -> list[Text]:
    """Explanations of what the headings do not make plain."""
    lines = []
    if by == "kernel" and any(row.limits is not None for row in profile.rows):
        lines += [
            "bound: which roof limits it, and how much of that roof it reaches;",
            "       fxlite info --roofs says how the roofs were measured",
        ]
        if any(bound_text(row).endswith(">100%") for row in profile.rows):
            lines += [
                "       >100%: its values are in a nearer cache, or the machine was busy",
                "       when its roofs were measured",
            ]
    if by != "kernel" and profile.target.part == "kernel":
        lines = ["note   a kernel's time is shared among its nodes by their FLOPs"]
    return [Text(line, style="dim") for line in lines]


# -- rows ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Column:
    """A heading, the text of a cell, and how that text is shortened if the width does not suffice."""

    heading: str
    value: Callable[[Row], str]
    cut: Callable[[str, int], str] | None = None


def _rows(profile: Profile, width: int) -> Table:
    total = profile.rows_seconds
    columns = _columns(profile, width)
    ordered = sorted(profile.rows, key=lambda row: -row.median)
    shown = [[c.value(row) for c in columns] for row in ordered[:MOST_ROWS]]
    styles = [heat(row.median / total if total else 0.0) for row in ordered[:MOST_ROWS]]
    rest = ordered[MOST_ROWS:]
    if rest:
        seconds = sum(row.median for row in rest)
        known = {"median": seconds_text(seconds), "%": f"{100 * seconds / total:.1f}"}
        known[columns[0].heading] = f"{len(rest)} more"
        shown.append([known.get(c.heading, "") for c in columns])
        styles.append("dim")
    table = _table()
    for column in columns:
        justify: Any = "left" if column.cut else "right"
        table.add_column(column.heading, justify=justify, no_wrap=True)
    for cells, style in zip(_fitted(shown, columns, width), styles):
        table.add_row(*map(Text, cells), style=style)
    return table


def _fitted(rows: list[list[str]], columns: list[_Column], width: int) -> list[list[str]]:
    """The rows with text shortened so that the table fits, if possible: the widest column shrinks first."""
    widths = [max(map(len, [c.heading, *cells])) for c, *cells in zip(columns, *rows)]
    texts = [i for i, column in enumerate(columns) if column.cut is not None]
    wide = sum(widths) + 2 * (len(widths) - 1)
    if wide - sum(max(0, widths[i] - 8) for i in texts) > width:
        return rows  # these are printed as records
    for _ in range(wide - width):
        widest = max(texts, key=lambda i: widths[i])
        widths[widest] = max(8, widths[widest] - 1)
    return [[c.cut(cell, size) if c.cut else cell for c, cell, size in zip(columns, row, widths)] for row in rows]


def _columns(profile: Profile, width: int) -> list[_Column]:
    """The columns shown of a row at a given width of the terminal. A node's name tells its op, and a
    kernel's name its module; if there is room for only one of these columns, it is the other one."""
    is_python = profile.target.part == "node"
    total = profile.rows_seconds or 1.0
    wide, widest = width >= WIDE, width >= WIDEST
    columns = [_Column("node" if is_python else "kernel", lambda r: r.name, _without_middle)]
    if widest or (wide and not is_python):
        columns.append(_Column("computes", lambda r: r.covers, _without_end))
    if widest or (wide and is_python):
        columns.append(_Column("module", lambda r: r.module, _without_middle))
    columns.append(_Column("line", lambda r: r.location.short if r.location else "", _without_middle))
    columns.append(_Column("median", lambda r: seconds_text(r.median)))
    if widest:
        columns.append(_Column("least", lambda r: seconds_text(r.least)))
    columns.append(_Column("%", lambda r: f"{100 * r.median / total:.1f}"))
    columns.append(_Column("FLOP/s", lambda r: _rate(r.flops_per_second)))
    if wide:
        columns.append(_Column("B/s", lambda r: _rate(r.bytes_per_second)))
    columns.append(_Column("bound", bound_text))
    return columns


def _without_middle(text: str, most: int) -> str:
    """``k47_…mediate_dense``: shortened in the middle, because the end of a name says the most."""
    return text if len(text) <= most else f"{text[:4]}…{text[5 - most :]}"


def _without_end(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def bound_text(row: Row) -> str:
    """``compute 87%``: what limits it, and how much of that limit it reaches."""
    if row.efficiency is None:
        return ""
    return f"{row.bound} {reached_text(row.efficiency)}"


def reached_text(share: float) -> str:
    """``87%`` of a roof. A value above 100 % only means that the roof was measured too low, or that the
    data is in a nearer cache than the one that was measured."""
    return f"{share:.{0 if share >= 0.0995 else 1}%}" if share < 1.005 else ">100%"


# -- groups ----------------------------------------------------------------------------------------
def _groups(profile: Profile, entries: list[Entry], heading: str) -> Table:
    table = _table()
    _text_column(table, heading)
    _number_columns(table, "nodes", "time", "%", "FLOPs", "FLOP/s")
    total = profile.rows_seconds
    for entry in entries[:MOST_ROWS]:
        share = entry.seconds / total if total else 0.0
        table.add_row(_cut(entry.label), *_cells(entry, share), style=heat(share))
    rest = entries[MOST_ROWS:]
    if rest:
        seconds, nodes = sum(e.seconds for e in rest), sum(e.nodes for e in rest)
        last = replace(rest[0], seconds=seconds, flops=None, nodes=nodes)
        table.add_row(f"{len(rest)} more", *_cells(last, seconds / total), style="dim")
    return table


def _modules(profile: Profile, entries: list[Entry]) -> Table:
    table = _table()
    _text_column(table, "module")
    _number_columns(table, "nodes", "time", "own time", "%", "FLOPs", "FLOP/s")
    total = profile.rows_seconds
    for entry in entries:
        share = entry.seconds / total if total else 0.0
        cells = _cells(entry, share)
        cells.insert(2, seconds_text(entry.own_seconds) if entry.own_seconds else "")
        own = entry.own_seconds / total if total else 0.0
        table.add_row(_cut("  " * entry.depth + entry.label), *cells, style=heat(own))
    return table


def _cells(entry: Entry, share: float) -> list[str]:
    flops = "" if entry.flops is None else short_text(entry.flops)
    rate = _rate(entry.flops_per_second)
    return [str(entry.nodes), seconds_text(entry.seconds), f"{100 * share:.1f}", flops, rate]


def _rate(value: float | None) -> str:
    return "" if value is None else quantity_text(value)


def _table() -> Table:
    return Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))


def _text_column(table: Table, heading: str) -> None:
    """A column that shrinks if the width does not suffice, which no_wrap would prevent."""
    table.add_column(heading, min_width=8)


def _cut(text: str) -> Text:
    """A cell of such a column: one line, cut with an ellipsis."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _number_columns(table: Table, *headings: str) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)


# -- a source file painted with the time of its lines ----------------------------------------------
#: Lines shown around one that takes time; longer stretches without any are left out.
CONTEXT = 12
#: A stretch up to so many lines is shown after all.
SHORT = 4


def blame_text(profile: Profile, file: str | os.PathLike[str]) -> Text:
    """The file's lines with the median seconds of each; below them, the times of other files.

    A line in a loop or in a module that is called repeatedly has the time of all its calls."""
    wanted = os.path.realpath(file)
    here: dict[int, float] = {}
    elsewhere: dict[str, float] = {}
    for (name, number), seconds in profile.line_seconds().items():
        if os.path.realpath(name) == wanted:
            here[number] = here.get(number, 0.0) + seconds
        else:
            elsewhere[name] = elsewhere.get(name, 0.0) + seconds
    total = profile.rows_seconds
    lines = linecache.getlines(wanted)
    text = Text()
    shown = _near(set(here), len(lines))
    skipped = 0
    for number, line in enumerate(lines, 1):
        if number not in shown:
            skipped += 1
            continue
        skipped = _skip(text, skipped)
        _paint(text, number, line.rstrip(), here.get(number), total)
    _skip(text, skipped)
    for name, seconds in sorted(elsewhere.items(), key=lambda pair: -pair[1]):
        share = f"{100 * seconds / total:.1f}%" if total else ""
        text.append(f"{seconds_text(seconds):>9} {share:>6}  in {os.path.basename(name)}\n")
    if profile.target.part == "kernel":
        text.append("a kernel's time is shared among its lines by their FLOPs\n", style="dim")
    text.right_crop(1)
    return text


def _near(timed: set[int], count: int) -> set[int]:
    """The lines within CONTEXT of one that takes time, and stretches in between that are too short to
    leave out; all lines if none takes time."""
    near: set[int] = set()
    last = 0
    for line in [*sorted(timed), count + CONTEXT]:
        first = max(1, line - CONTEXT)
        near.update(range(first if first > last + SHORT else last + 1, line + CONTEXT + 1))
        last = line + CONTEXT
    return near if timed else set(range(1, count + 1))


def _skip(text: Text, count: int) -> int:
    """Note how many lines were left out; returns 0, the new count of lines left out."""
    if count:
        text.append(f"{'':>16}   ... {number_of(count, 'line')}\n", style="dim")
    return 0


def _paint(text: Text, number: int, line: str, seconds: float | None, total: float) -> None:
    if seconds is None:
        text.append(f"{'':>16} {number:>4}  ", style="dim")
        text.append(f"{line}\n")
        return
    share = seconds / total if total else 0.0
    figures = f"{seconds_text(seconds):>9} {share:>6.1%} {number:>4}  "
    text.append(f"{figures}{line}\n", style=heat(share))
