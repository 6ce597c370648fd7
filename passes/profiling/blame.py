"""A source file painted with the time that each of its lines takes.

In: a :class:`Profile` and a file of the user's program. Out: rich text: time, share, line number,
code; the slower a line, the warmer its colour.
"""

from __future__ import annotations

import linecache
import os
from typing import TYPE_CHECKING

from rich.text import Text

from fxlite.passes.profiling.tables import heat, seconds_text

if TYPE_CHECKING:
    from fxlite.passes.profiling.record import Profile

#: Lines shown around one that takes time; longer stretches without any are left out.
CONTEXT = 12
#: A stretch up to so many lines is shown after all.
SHORT = 4


def blame_text(profile: Profile, file: str | os.PathLike[str]) -> Text:
    """The file's lines with the median seconds of each; below them, the times of other files.

    A line of a loop or of a module that is used often has the time of all its calls."""
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
    """The lines within CONTEXT of one that takes time, and stretches between that are too short to
    be left out; all where none does."""
    near: set[int] = set()
    last = 0
    for line in [*sorted(timed), count + CONTEXT]:
        first = max(1, line - CONTEXT)
        near.update(range(first if first > last + SHORT else last + 1, line + CONTEXT + 1))
        last = line + CONTEXT
    return near if timed else set(range(1, count + 1))


def _skip(text: Text, count: int) -> int:
    """Say that lines were left out; returns 0, the number of those that are now."""
    if count:
        text.append(f"{'':>16}   ... {count} line{'' if count == 1 else 's'}\n", style="dim")
    return 0


def _paint(text: Text, number: int, line: str, seconds: float | None, total: float) -> None:
    if seconds is None:
        text.append(f"{'':>16} {number:>4}  ", style="dim")
        text.append(f"{line}\n")
        return
    share = seconds / total if total else 0.0
    figures = f"{seconds_text(seconds):>9} {share:>6.1%} {number:>4}  "
    text.append(f"{figures}{line}\n", style=heat(share))
