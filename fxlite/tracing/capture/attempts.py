"""How a tracer captures a program: its calls first, which most programs need no more of; and where
that does not do, because a value that is not known decides what Python does next, its control flow,
too.

In: a way to trace the program. Out: what that gives, from the first attempt that succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from fxlite.base.errors import FxliteError, OptionError, TraceError
from fxlite.base.location import Location, here
from fxlite.graph.graph import Graph
from fxlite.tracing.capture.capture import captured
from fxlite.tracing.capture.flow import FEW_WRITES, MOST_UNROLLED, only_writes

LOOPS = ("auto", "keep", "unroll")


class LoopTooLong(TraceError):
    """Unrolling a loop would take very many nodes."""


class Capturing:
    """What a tracer knows of how it captures the program that it traces."""

    graph: Graph
    #: The program's functions are captured: arrays that it makes are traced, see
    #: :mod:`fxlite.tracing.capture`.
    captures = True
    #: A subclass says what ``if x`` does, so that no condition is captured.
    decides_bools = False

    def __init__(self, loops: str) -> None:
        """Raises OptionError unless ``loops`` is one of LOOPS."""
        if loops not in LOOPS:
            raise OptionError(f"loops={loops!r}: give one of {', '.join(map(repr, LOOPS))}")
        #: Whether something asked for a value that is not known, and whether a condition did: the
        #: program may have caught the error.
        self.needs_flow = self.was_asked = False
        #: Which loops stay loops: "auto", those that would be long unrolled; "keep" or "unroll": of
        #: those whose rounds are known, all or none.
        self.loops = loops
        self.captures_flow = False
        #: How many ``try`` statements of the program run, and an error that one may have caught.
        self.trying = 0
        self.swallowed: FxliteError | None = None
        self.asserting = 0  # how many ``assert`` statements
        #: What tracing loops has shown, by the code of their bodies; and what became of statements:
        #: (statement, text) by place.
        self.loop_hints: dict[Any, Any] = {}
        self.notes: dict[Location | None, tuple[str, str]] = {}
        self._measures = True

    def begin_capture(self) -> None:
        """A trace begins."""
        self.trying, self.asserting, self.swallowed = 0, 0, None
        self.needs_flow = self.was_asked = False
        self.loop_hints, self.notes = {}, {}

    def captured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the program, as it is to be run."""
        if not self.captures:
            return function
        return captured(function, "flow" if self.captures_flow else "")

    def attempts(self, trace: Callable[[], None]) -> None:
        """Trace the program, with its control flow where it cannot be traced without."""
        self.captures_flow, self._measures = self.loops == "keep", self.loops == "auto"
        first: Exception | None = None
        try:
            trace()
            if not (self.was_asked and self.captures) or self.captures_flow:
                self._check()
                return
        except Exception as error:
            if not (self.needs_flow and self.captures) or self.captures_flow:
                raise
            first = error
        self.captures_flow = True
        try:
            trace()
            self._check()
            return
        except FxliteError:
            if not isinstance(first, LoopTooLong):
                raise
        self.captures_flow = self._measures = False
        trace()

    def _check(self) -> None:
        """An error that the program has caught is one nevertheless."""
        if self.swallowed is not None:
            raise self.swallowed

    def decide(self, value: Any) -> bool:
        """A condition of captured control flow, where a subclass says what ``if x`` does."""
        return bool(value)

    def note_statement(self, statement: str, text: str) -> None:
        """Note what became of a statement of the program; the ledger says it."""
        self.notes[here(2)] = statement, text

    @property
    def measures_loops(self) -> bool:
        """Whether loops are looked at while they are unrolled."""
        return self._measures

    def measured(self, values: range) -> Iterator[int]:
        """The numbers of a range, one round after the other; an error once it shows that all would
        take very many nodes. Raises LoopTooLong."""
        before = len(self.graph.nodes)
        for number, value in enumerate(values):
            made = len(self.graph.nodes) - before
            if number and made * len(values) > MOST_UNROLLED * number:
                self.needs_flow = True
                raise LoopTooLong(f"{len(values)} rounds of a loop would take {made // number} nodes each")
            if number == 1 and len(values) > FEW_WRITES and only_writes(islice(reversed(self.graph.nodes), made)):
                self.needs_flow = True
                raise LoopTooLong(f"{len(values)} rounds of a loop write into arrays")
            yield value
