"""The steps of long work: what runs is shown on a terminal, and a line is printed for each step that is done.

In: the console that the lines are printed to, and the names of steps. Out: lines, even if the output
is a file or a pipe; what :mod:`fxlite.base.progress` shows while a step runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from fxlite.base.console import output_width, show
from fxlite.base.progress import Work, progress


class Steps:
    """Prints one line for each step of the work."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextlib.contextmanager
    def __call__(self, name: str, parts: int | None = None) -> Iterator[tuple[Work, list[str]]]:
        """``with steps("write") as (work, said): said.append("out/")``: what is said stands in the step's line."""
        start = time.perf_counter()
        said: list[str] = []
        with progress(name, parts) as work:
            yield work, said
        seconds = time.perf_counter() - start
        taken = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"
        table = Table.grid(expand=True, padding=(0, 1, 0, 0))
        table.add_column(width=8, style="bold")
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True, style="dim")
        table.add_row(name, ", ".join(said), taken)
        show(self.console, table)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """A step in the form of a ``Stage`` (:mod:`fxlite.backend`)."""
        with self(name) as (_, said):
            yield said


def steps_aside() -> Steps:
    """Steps whose lines go to standard error, for commands whose output is read by programs."""
    return Steps(Console(stderr=True, highlight=False, width=output_width()))
