"""What long work is at, shown on a terminal: a line for each piece of work, on standard error, from the second on that
the work takes.

In: the name of a piece of work, how many parts it has, and a call whenever one is done. Out: nothing, unless standard
error is an interactive terminal (no file, pipe or notebook). Rich's environment variable ``TTY_INTERACTIVE=0`` turns
the lines off.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds until work is shown, and between two looks at it.
DELAY, _INTERVAL = 1.0, 0.1


class Work:
    """A piece of work: ``done`` of its ``parts`` (None: nobody knows how many) are done, and ``what`` is next."""

    __slots__ = ("begun", "done", "name", "parts", "what")

    def __init__(self, name: str, parts: int | None) -> None:
        self.name, self.parts, self.done, self.what = name, parts, 0, ""
        self.begun = time.monotonic()

    def advance(self, what: str = "") -> None:
        """One more part is done; the next one is ``what``."""
        self.done += 1
        self.what = what


class _Display:
    """Shows the work that is running, from a thread of its own, so that it goes on while a compiler runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: list[Work] = []
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None

    def begin(self, work: Work) -> None:
        with self.lock:
            self.running.append(work)
            if self.thread is None:
                self.ended = threading.Event()
                self.thread = threading.Thread(target=self.show, args=(self.ended,), daemon=True)
                self.thread.start()

    def end(self, work: Work) -> None:
        with self.lock:
            self.running.remove(work)
            if not self.running and self.thread is not None:
                self.ended.set()
                self.thread.join()
                self.thread = None

    def show(self, ended: threading.Event) -> None:
        if ended.wait(DELAY):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

        console = Console(stderr=True, highlight=False)
        if not console.is_interactive:
            return
        texts = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[what]}"))
        columns = (SpinnerColumn(), next(texts), BarColumn(20), TimeElapsedColumn(), next(texts))
        both = sys.stdout is not None and sys.stdout.isatty()  # what is printed meanwhile goes above the lines
        with Progress(
            *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=both, get_time=time.monotonic
        ) as lines:
            shown: dict[Work, TaskID] = {}
            while not ended.wait(_INTERVAL):
                running = list(self.running)
                for work in [w for w in shown if w not in running]:
                    lines.remove_task(shown.pop(work))
                for work in running:
                    if work not in shown:
                        shown[work] = lines.add_task(work.name, what="")
                        lines.tasks[-1].start_time = work.begun
                    lines.update(shown[work], total=work.parts, completed=work.done, what=work.what)
                lines.refresh()


_display = _Display()


@contextmanager
def progress(name: str, parts: int | None = None) -> Iterator[Work]:
    """``with progress("import", len(nodes)) as work: ...; work.advance("Conv")``. Work inside of other work is shown
    below it."""
    work = Work(name, parts)
    if sys.stderr is None or not sys.stderr.isatty():
        yield work
        return
    _display.begin(work)
    try:
        yield work
    finally:
        _display.end(work)
