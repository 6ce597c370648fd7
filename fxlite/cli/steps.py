"""The steps of long work: a progress bar that says what runs, and a line for each step that is done.

In: the console that the lines are printed to, and the names of steps. Out: lines, even if the output
is a file or a pipe; on a terminal, also a bar on standard error while a step runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from fxlite.base.console import output_width, show


class Step:
    """A running step: ``said`` is printed when it is done, and ``advance`` moves the progress bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task
        self.said: list[str] = []

    def advance(self, what: str) -> None:
        """One more part is done; the next is ``what``."""
        self.progress.advance(self.task)
        self.progress.update(self.task, what=what)


class Steps:
    """Prints one line for each step of the work; a progress bar says what runs meanwhile."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def __call__(self, name: str, parts: int | None = None) -> Iterator[Step]:
        """``with steps("write") as step: step.said.append("out/")``"""
        columns = (
            SpinnerColumn(),
            TextColumn(name),
            BarColumn(20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
        )
        start = time.perf_counter()
        quiet = not self.live.is_terminal
        with Progress(*columns, console=self.live, transient=True, disable=quiet) as progress:
            step = Step(progress, progress.add_task(name, total=parts, what=""))
            yield step
        seconds = time.perf_counter() - start
        taken = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"
        table = Table.grid(expand=True, padding=(0, 1, 0, 0))
        table.add_column(width=8, style="bold")
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True, style="dim")
        table.add_row(name, ", ".join(step.said), taken)
        show(self.console, table)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """A step in the form of a ``Stage`` (:mod:`fxlite.backend`): inside, the texts to print about it
        are appended to a list."""
        with self(name) as step:
            yield step.said


def steps_aside() -> Steps:
    """Steps whose lines go to standard error, for commands whose output is read by programs."""
    return Steps(Console(stderr=True, highlight=False, width=output_width()))
