"""Runs rows of the table on every rung and compares each with NumPy.

In: :class:`~tests.table.rows.Row` records. Out: :class:`Finding` records: which row, which rung,
what differs. The graph, the regenerated Python and the kernels in NumPy run row by row; C and CUDA
get many rows as one program, since starting a compiler costs more than compiling them. Where NumPy
raises, tracing or every rung has to raise, too, with an error of fxlite's own or NumPy's.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.codegen.c.templates import claims
from fxlite.codegen.program.program import optimize, plan
from fxlite.codegen.program.run import run_program
from tests.table import differences, values
from tests.table.bounds import difference
from tests.table.rows import Row

#: Rows in one program of C or CUDA.
TOGETHER = 150


@dataclass(frozen=True)
class Finding:
    """A row that differs from NumPy on a rung."""

    row: Row
    rung: str
    problem: str

    def __str__(self) -> str:
        return f"{self.rung}: {self.row.label}: {self.problem}"


@dataclass
class Counts:
    """What a run compared: rows, comparisons by rung, rows that both sides refuse, documented
    differences by reason, and what is left."""

    rows: int = 0
    refused: int = 0
    compared: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    documented: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    findings: list[Finding] = field(default_factory=list)
    #: Whether a refusal with an error of fxlite's own is a finding, or only counted.
    refusals_count: bool = True
    unsupported: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def note(self, row: Row, rung: str, problem: str | None) -> None:
        """Count one comparison; ``problem`` is what differs."""
        self.compared[rung] += 1
        if problem is None:
            return
        known = differences.reason_of(row.label, f"{rung}: {problem}")
        if known is None and not self.refusals_count and problem.startswith("refused"):
            self.unsupported[row.function] += 1
        elif known is None:
            self.findings.append(Finding(row, rung, problem))
        else:
            self.documented[known.reason] += 1

    def __str__(self) -> str:
        shown = ", ".join(f"{rung} {n:,}" for rung, n in self.compared.items())
        lines = [f"{self.rows:,} rows ({self.refused:,} that NumPy refuses); compared: {shown}"]
        lines += [f"documented {n:,}: {reason}" for reason, n in self.documented.items()]
        if self.unsupported:
            shown = ", ".join(f"{name} {n:,}" for name, n in sorted(self.unsupported.items()))
            lines.append(f"refused by name: {shown}")
        return "\n".join([*lines, f"{len(self.findings):,} differ"])


def program_of(row: Row) -> Callable[..., Any]:
    """The row as a function of its arrays."""
    *lines, last = row.text.split("\n")
    names = "abcdefgh"[: len(row.types)]
    body = "".join(f"    {line}\n" for line in (*lines, f"return {last}"))
    space: dict[str, Any] = {"np": np, "fx": fx, "functional": fx.nn.functional}
    exec(f"def program({', '.join(names)}):\n{body}", space)
    return space["program"]  # type: ignore[no-any-return]


def arrays_of(row: Row, size: int) -> list[values.Array]:
    """The row's arrays, with N as ``size``."""
    return [values.make(r, t, {"N": size}) for r, t in zip(row.roles, row.types)]


@dataclass
class Case:
    """A row with its arrays and NumPy's answers (arrays, or exceptions) by size of N."""

    row: Row
    program: Callable[..., Any]
    inputs: list[list[values.Array]]
    expected: list[Any]
    module: Any = None


def prepare(row: Row) -> Case:
    """Run a row in NumPy."""
    program = program_of(row)
    inputs = [arrays_of(row, size) for size in row.sizes]
    return Case(row, program, inputs, [_attempt(program, given) for given in inputs])


def _attempt(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """The result, or the exception."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(*arguments)
    except Exception as error:
        return error


def check(rows: Iterable[Row], rungs: Sequence[str], counts: Counts) -> None:
    """Compare rows on ``rungs`` (of graph, python, kernel, c, cuda), adding to ``counts``."""
    check_cases((prepare(row) for row in rows), rungs, counts)


def check_cases(cases: Iterable[Case], rungs: Sequence[str], counts: Counts) -> None:
    """:func:`check` for rows that NumPy has run already."""
    ready: dict[tuple[int, ...], list[Case]] = defaultdict(list)
    for case in cases:
        counts.rows += 1
        if _check_alone(case, rungs, counts):
            ready[case.row.sizes].append(case)
    for rung in [r for r in rungs if r in ("c", "cuda")]:
        for group in ready.values():
            for start in range(0, len(group), TOGETHER):
                _check_together(group[start : start + TOGETHER], rung, counts)


def _check_alone(case: Case, rungs: Sequence[str], counts: Counts) -> bool:
    """Trace a row and run it without a compiler; True if a compiler is to have it."""
    module = _attempt(lambda: fx.symbolic_trace(case.program, *case.row.types), ())
    fails = [isinstance(e, Exception) for e in case.expected]
    counts.refused += any(fails)
    if case.row.function.startswith("functional."):  # eager runs are fxlite's, errors too
        for error in case.expected:
            if isinstance(error, Exception) and not isinstance(error, FxliteError):
                counts.note(case.row, "eager", _refusal(error, None))
    if isinstance(module, Exception):
        wanted = case.expected[0] if all(fails) else None
        counts.note(case.row, "trace", _refusal(module, wanted))
        return False
    case.module = module
    if not any(fails):
        counts.note(case.row, "type", _type_problem(module, case))
    run = {
        "graph": lambda *v: fx.Interpreter(module).run(*v),
        "python": module,
        "kernel": lambda *v: run_program(plan(optimize(module)[0], claims), v)[0],
    }
    for rung in [r for r in rungs if r in run]:
        for given, wanted in zip(case.inputs, case.expected):
            if rung == "kernel" and any(a.size > 200 for a in given):
                continue  # of many values one by one
            actual = _attempt(run[rung], given)
            counts.note(case.row, rung, _problem(actual, wanted, case.row.function))
    if any(fails):
        for rung in [r for r in rungs if r in ("c", "cuda")]:
            compiled = _attempt(_compile, (module, rung))
            for given, wanted in zip(case.inputs, case.expected):
                actual = compiled if isinstance(compiled, Exception) else _attempt(compiled, given)
                counts.note(case.row, rung, _problem(actual, wanted, case.row.function))
    return not any(fails)


def _type_problem(module: Any, case: Case) -> str | None:
    """How the type of the result, as traced, is not that of NumPy's."""
    found, wanted = module.graph.output_node().args[0], np.asarray(case.expected[-1])
    if not isinstance(found, fx.Node):
        return None
    dims = {"N": case.row.sizes[-1]}
    shape, dtype = found.type.substitute(dims).shape, found.type.dtype.numpy
    if dtype != wanted.dtype:
        return f"dtype {dtype}, NumPy has {wanted.dtype}"
    return None if shape == wanted.shape else f"shape {shape}, NumPy has {wanted.shape}"


def _problem(actual: Any, wanted: Any, function: str) -> str | None:
    if isinstance(actual, Exception):
        return _refusal(actual, wanted if isinstance(wanted, Exception) else None)
    if isinstance(wanted, Exception):
        return f"computes {np.asarray(actual).dtype}, where NumPy raises {_short(wanted)}"
    return difference(actual, wanted, function)


def _refusal(error: Exception, wanted: Exception | None) -> str | None:
    """What is wrong with an error; None where NumPy raises one like it."""
    if wanted is not None and isinstance(error, (FxliteError, type(wanted))):
        return None
    if not isinstance(error, FxliteError):
        return f"fails with an error that says nothing of fxlite: {_short(error)}"
    return f"refused, where NumPy computes: {_short(error)}"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _compile(module: Any, rung: str) -> Any:
    options = {"device": "shim"} if rung == "cuda" else {}
    return fx.compile(module, backend=rung, **options)


def _check_together(cases: Sequence[Case], rung: str, counts: Counts) -> None:
    """Compare rows as one compiled program; by halves, where that does not build."""
    kinds: dict[tuple[str, str], str] = {}
    arrays: dict[tuple[str, str], list[values.Array]] = {}  # for each size
    for case in cases:
        for position, key in enumerate(zip(case.row.roles, case.row.types)):
            kinds.setdefault(key, f"x{len(kinds)}")
            arrays.setdefault(key, [given[position] for given in case.inputs])
    programs = [(case.program, [kinds[key] for key in zip(case.row.roles, case.row.types)]) for case in cases]

    def together(**arrays: Any) -> Any:
        return tuple(f(*[arrays[n] for n in names]) for f, names in programs)

    space: dict[str, Any] = {"together": together}
    names = ", ".join(kinds.values())
    passed = ", ".join(f"{n}={n}" for n in kinds.values())
    exec(f"def program({names}): return together({passed})", space)
    types = {name: key[1] for key, name in kinds.items()}
    compiled = _attempt(lambda: _compile(fx.symbolic_trace(space["program"], inputs=types), rung), ())
    if isinstance(compiled, Exception):
        if len(cases) == 1:
            counts.note(cases[0].row, rung, f"does not build: {_short(compiled)}")
            return
        half = len(cases) // 2
        _check_together(cases[:half], rung, counts)
        _check_together(cases[half:], rung, counts)
        return
    for number in range(len(cases[0].row.sizes)):
        given = [arrays[key][number] for key in kinds]
        results = _attempt(compiled, given)
        for position, case in enumerate(cases):
            actual = results if isinstance(results, Exception) else results[position]
            wanted = case.expected[number]
            counts.note(case.row, rung, _problem(actual, wanted, case.row.function))
