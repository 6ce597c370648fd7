"""``fxlite step``: the rewrites of passes one by one, forward and backward.

In: parsed options, a console, and keys: single ones from a terminal, or characters from a pipe.
Out: for each rewrite, the graph around it with the changes, and its values on example inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from rich.columns import Columns
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from fxlite.base.console import show
from fxlite.base.errors import FxliteError, number_of
from fxlite.cli.program_file import trace_program, unique
from fxlite.cli.shared import WEIGHTS_HINT, data_option, find_passes, passes_option, program_options, size_option
from fxlite.codegen.program import example_inputs as examples
from fxlite.passes.base import PassError
from fxlite.passes.manager import PassManager
from fxlite.passes.stepper import HEADINGS, Rewrite, Rewrites
from fxlite.show.text.reading import print_graph

#: The keys for each action, of which the first is shown.
KEYS = {
    "next": ("n", " ", "\x1b[C"),
    "back": ("b", "\x1b[D"),
    "next pass": (">", "\x1b[B"),
    "pass before": ("<", "\x1b[A"),
    "first": ("0", "\x1b[H"),
    "last": ("$", "\x1b[F"),
    "to a node": ("/",),
    "graph": ("g",),
    "values": ("v",),
    "quit": ("q", "\x04"),
}
_MOST_VALUES = 12  # most rows of the table of values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite step``."""
    parser.description = (
        "Run passes, and look at what they did one rewrite at a time, forward and backward: the "
        "graph around it, what changed, and the values there on example inputs. One key for each "
        "step; from a pipe, one character: printf 'nn/relu\\nq' | fxlite step ..."
    )
    listed = ", ".join(f"{keys[0]} {name}" for name, keys in KEYS.items())
    parser.epilog = (
        f"Keys: {listed}; the arrow keys work, too. Passes are linted but not checked on values: "
        "fxlite bisect does that. Status: 0; 1 if a pass fails; then only the rewrites before it are shown."
    )
    program_options(parser)
    passes_option(parser, "what to run; a pass of your own is FILE.py:NAME", required=True)
    size_option(parser, "of the example inputs")
    data_option(parser, "to show values for")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite step``. Raises the errors of tracing and loading data."""
    passes = find_passes(options.passes)
    data, sizes = examples.load_data(unique(options.data, "--data")), unique(options.size, "--size")
    _, module = trace_program(options.program, options.weights, options.input)
    inputs: Mapping[str, Any] | None = None
    if all(node.type is not None for node in module.graph.placeholders):
        inputs = examples.make_cases(module, sizes, data)[-1].inputs
    manager, failure = PassManager(passes, check="lint"), ""
    try:
        manager(module)
    except PassError as error:
        failure = str(error)
    viewer = Viewer(Rewrites(module, manager.report), inputs, failure, console)
    viewer.run(keys(sys.stdin))
    return 1 if failure else 0


# -- keys ------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _one_by_one(stream: TextIO) -> Iterator[None]:
    """Inside, a terminal delivers each key at once."""
    try:
        import termios
        import tty
    except ImportError:  # Windows, where keys are read with msvcrt
        yield
        return
    before = termios.tcgetattr(stream)
    try:
        tty.setcbreak(stream, termios.TCSADRAIN)  # keys typed before are kept
        yield
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)


class _Terminal:
    """Keys from a terminal, which come at once; an arrow key is three characters."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def key(self) -> str:
        with _one_by_one(self.stream):
            if os.name == "nt":
                import msvcrt

                return str(msvcrt.getwch())  # type: ignore[attr-defined]
            import select

            descriptor = self.stream.fileno()
            found = os.read(descriptor, 1)
            while found[:1] == b"\x1b" and len(found) < 3:
                if not select.select([descriptor], [], [], 0.05)[0]:
                    break
                found += os.read(descriptor, 1)
            return found.decode("utf-8", "replace")

    def line(self) -> str:
        return input("node: ")


class _Pipe:
    """Characters from a pipe or file; line ends between them are skipped."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def key(self) -> str:
        while (found := self.stream.read(1)) in ("\n", "\r"):
            pass
        if found == "\x1b":
            found += self.stream.read(2)
        return found

    def line(self) -> str:
        return self.stream.readline().strip()


def keys(stream: TextIO) -> _Terminal | _Pipe:
    """The source of keys, which gives "" at the end."""
    return _Terminal(stream) if stream.isatty() else _Pipe(stream)


# -- what is shown ---------------------------------------------------------------------------------
class Viewer:
    """Shows the program after ``place`` rewrites. ``inputs``, by placeholder, are those whose values are
    shown; ``failure`` is the message of a pass that raised after the last rewrite."""

    def __init__(self, rewrites: Rewrites, inputs: Mapping[str, Any] | None, failure: str, console: Console) -> None:
        self.rewrites, self.inputs = rewrites, inputs
        self.failure, self.console = failure, console
        self.place, self.with_graph, self.with_values = 0, False, inputs is not None
        self.note, self.is_listed = "", False

    def run(self, given: _Terminal | _Pipe) -> None:
        """Show the beginning, then do what each key says, until the last."""
        actions: dict[str, Callable[[], None]] = {
            "next": lambda: self.go(self.place + 1),
            "back": lambda: self.go(self.place - 1),
            "next pass": self.next_pass,
            "pass before": self.pass_before,
            "first": lambda: self.go(0),
            "last": lambda: self.go(len(self.rewrites)),
            "to a node": lambda: self.find(given.line()),
            "graph": self.toggle_graph,
            "values": self.toggle_values,
        }
        by_key = {key: name for name, several in KEYS.items() for key in several}
        while True:
            self.show()
            key = given.key()
            name = by_key.get(key, "")
            if not key or name == "quit":
                return
            self.note = ""
            if name:
                actions[name]()
            else:
                self.note = f"{key!r} is none of the keys"

    # -- moving ------------------------------------------------------------------------------------
    def go(self, place: int) -> None:
        last = len(self.rewrites)
        if place < 0:
            self.note = "this is the beginning"
        elif place > last:
            self.note = self.failure or "that was the last rewrite"
        self.place = min(max(place, 0), last)

    def next_pass(self) -> None:
        """Go to the first rewrite of the next pass that made one."""
        starts = [start + 1 for start in self.rewrites.starts()]
        self.go(next((p for p in starts if p > self.place), len(self.rewrites) + 1))

    def pass_before(self) -> None:
        """Go to the first rewrite of this pass; from there, to that of the pass before."""
        starts = [start + 1 for start in self.rewrites.starts()]
        self.go(max((p for p in starts if p < self.place), default=0 if self.place else -1))

    def find(self, name: str) -> None:
        """Go to the next rewrite of a node; after the last one, start from the beginning."""
        count = len(self.rewrites)
        for offset in range(1, count + 1):
            place = (self.place + offset - 1) % count
            if name in (*self.rewrites[place].removed, *self.rewrites[place].made):
                self.go(place + 1)
                return
        self.note = f"no rewrite is about a node {name!r}"

    def toggle_graph(self) -> None:
        self.with_graph = not self.with_graph

    def toggle_values(self) -> None:
        self.with_values = not self.with_values
        if self.with_values and self.inputs is None:
            self.note = "there are no values: give the types of the inputs, --input NAME=TYPE"

    # -- showing -----------------------------------------------------------------------------------
    def show(self) -> None:
        console = self.console
        if console.is_terminal:
            console.clear()
        if self.place == 0:
            self._beginning()
        else:
            self._rewrite(self.rewrites[self.place - 1])
        if self.with_graph:
            print_graph(self.rewrites.program(self.place).graph, console=console, hint=WEIGHTS_HINT)
        if self.note:
            console.print(Text(self.note, style="yellow"), soft_wrap=True)
        if self.is_listed and not console.is_terminal:
            return
        self.is_listed = True
        listed = [Text.assemble((several[0], "bold"), " ", name) for name, several in KEYS.items()]
        show(console, Columns(listed, padding=(0, 2)))

    def _title(self, text: str) -> None:
        console = self.console
        if console.is_terminal:
            console.print(Rule(Text(text, style="bold"), align="left"))
        else:
            console.print(f"== {text}", markup=False)

    def _beginning(self) -> None:
        count = len(self.rewrites)
        rewrites = number_of(count, "rewrite")
        self._title(f"before all passes, {rewrites} to come")
        table = Table(box=None, header_style="bold", pad_edge=False)
        for heading, right in (("pass", False), ("rewrites", True), ("what changed", False)):
            table.add_column(heading, justify="right" if right else "left", overflow="fold")
        for step in self.rewrites.report:
            table.add_row(step.name, str(self.rewrites.count_of(step)), step.changes)
        show(self.console, table)
        if not self.rewrites and not self.failure:
            self.console.print("the passes change nothing")
        if self.failure:
            self.console.print(Text(self.failure, style="red"), soft_wrap=True)

    def _rewrite(self, rewrite: Rewrite) -> None:
        where = f"{rewrite.pass_name} {rewrite.number} of {rewrite.count}"
        self._title(f"rewrite {self.place} of {len(self.rewrites)}: {where}")
        self.console.print(rewrite.diff)
        if self.with_values and self.inputs is not None:
            self._values(rewrite, self.inputs)

    def _values(self, rewrite: Rewrite, inputs: Mapping[str, Any]) -> None:
        """Show the values that were removed and added, and how far the results are apart."""
        try:
            found = rewrite.values(inputs)
        except (FxliteError, ArithmeticError, ValueError) as error:
            self.console.print(Text(f"it does not run: {error}", style="yellow"), soft_wrap=True)
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for place, heading in enumerate(HEADINGS):
            table.add_column(heading, overflow="fold", no_wrap=3 <= place <= 5)  # the numbers
        for row in found.rows[:_MOST_VALUES]:
            table.add_row(*row, style="red" if row[0] == "-" else "green")
        if found.rows:
            show(self.console, table)
        if len(found.rows) > _MOST_VALUES:
            self.console.print(f"… {len(found.rows) - _MOST_VALUES} more")
        self.console.print(f"results: {found.results}", markup=False)
