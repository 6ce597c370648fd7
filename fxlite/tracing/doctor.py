"""The trace doctor: finds all problems of a program at once, each with a fix.

In: a program and input types, as for ``symbolic_trace``. Out: a :class:`Diagnosis`. The program runs on
proxies that continue after a problem with a substitute: ``if x.sum() > 0`` is assumed to be true (and in
another run false, to find problems in ``else``), ``float(x)`` is 1.0, and a value that could not be computed
causes no further problems wherever it is used. Control flow that a trace can capture is not a problem,
because a trace is tried first.

The program runs several times. If it changes anything besides its inputs (such as an attribute that counts
calls), it changes this each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import FxliteError, number_of
from fxlite.base.facade import above
from fxlite.nn.module import Module
from fxlite.tracing.doctor_tracer import DoctorTracer, Problem, place_text
from fxlite.tracing.inputs import declare
from fxlite.tracing.tracer import Tracer

#: The most branches whose other side is tried, too.
_MOST_RUNS = 6


@dataclass(frozen=True)
class Diagnosis:
    """All problems that were found. It is true if there are none, and the program can be traced."""

    problems: tuple[Problem, ...]

    def __bool__(self) -> bool:
        return not self.problems

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)

    def __repr__(self) -> str:
        return f"<Diagnosis: {number_of(len(self.problems), 'problem')}>"

    def __str__(self) -> str:
        if not self.problems:
            return "no problems: the program can be traced"
        count = len(self.problems)
        parts = [number_of(count, "problem")]
        parts += [f"{number}. {problem}" for number, problem in enumerate(self.problems, 1)]
        return "\n".join(parts)

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        if not self.problems:
            return Text(str(self), style="green")
        lines: list[Any] = []
        for number, p in enumerate(self.problems, 1):
            lines.append(Text.assemble((f"{number}. ", "bold"), (p.problem, "bold red")))
            lines.append(Text.assemble((f"   {p.location}  ", "dim"), (p.expression, "cyan")))
            lines += [Text(f"   {line}", style="dim") for line in p.origin.splitlines()]
            if p.fix:
                lines.append(Text.assemble("   instead: ", (p.fix, "green")))
        return Group(*lines)


@checked
def trace_doctor(
    program: Module | Callable[..., Any],
    *types: Any,
    concrete_args: Mapping[str, Any] | None = None,
    leaf: Any = (),
    inputs: Mapping[str, Any] | None = None,
    **named: Any,
) -> Diagnosis:
    """Find everything that prevents a program from being traced. The arguments are those of
    :func:`fxlite.symbolic_trace`. This runs the program's ``forward`` a few times. Print the result to see the
    problems with their fixes.

    Raises ArgumentError for input names that the program does not have."""
    program = above("load_if_saved")(program)
    function = program.forward if isinstance(program, Module) else program
    given = {**(inputs or {}), **named}
    declared = declare(function, types, given, concrete_args or {})
    try:
        Tracer(leaf=leaf).trace(program, concrete_args, declared)
    except Exception as error:
        first = error
    else:
        return Diagnosis(())
    return Diagnosis(tuple(_examine(program, declared, concrete_args, leaf, first)))


def add_further_problems(
    error: FxliteError,
    program: Any,
    declared: Mapping[str, Any],
    concrete_args: Mapping[str, Any] | None,
    leaf: Any,
    is_finished: bool,
) -> None:
    """Add the other problems of the program to the message of an error that tracing raised. ``is_finished``: as in the
    tracer."""
    first = error.details
    if first is None or first.location is None:
        return
    try:
        found = _examine(program, declared, concrete_args, leaf, error, is_finished)
    except Exception:  # whatever happens in the second run, the first error is reported
        return
    fix = next((p.fix for p in found if p.problem == first.problem), "")
    message = str(error)
    if fix and first.instead:
        message = message.replace(f"  instead: {first.instead}", f"  instead: {fix}")
    error.args = (message,)
    more = [p for p in found if (p.location, p.expression) != place_text(first.location)]
    if not more:
        return
    title = f"and {number_of(len(more), 'more problem')}:"
    listed = "\n".join(f"{number}. {p}" for number, p in enumerate(more, 2))
    error.args = (f"{message}\n{title}\n{listed}",)


def _examine(
    program: Any,
    declared: Mapping[str, Any],
    concrete_args: Mapping[str, Any] | None,
    leaf: Any,
    first: Exception,
    is_finished: bool = False,
) -> list[Problem]:
    """The problems in the order of the program's lines, from runs that take different branches. ``first`` is the
    error of a trace, which these runs may not find."""
    problems: dict[tuple[str, str, str], Problem] = {}
    waiting: list[frozenset[tuple[str, str]]] = [frozenset()]
    tried: set[tuple[str, str]] = set()
    for _ in range(_MOST_RUNS):
        if not waiting:
            break
        tracer = DoctorTracer(leaf, waiting.pop(0), problems)
        tracer.is_finished = is_finished
        tracer.examine(program, declared, concrete_args)
        for site in tracer.rounds:
            if site not in tried:
                tried.add(site)
                waiting.append(tracer.refused | {site})
    details = getattr(first, "details", None)
    place = details.location if details is not None else None
    known = {(p.location, p.expression) for p in problems.values()}
    if not problems or (place is not None and place_text(place) not in known):
        tracer.report(first)
    files = list(dict.fromkeys(p.location.rpartition(":")[0] for p in problems.values()))

    def line(problem: Problem) -> tuple[int, int]:
        file, _, number = problem.location.rpartition(":")
        return files.index(file), int(number or 0)

    return sorted(problems.values(), key=line)
