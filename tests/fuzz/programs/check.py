"""Programs of the fuzzer in all back ends, compared with eager NumPy.

In: programs. Out: for each an :class:`Outcome`: how it went, and if it failed where. Programs are
traced and emitted one by one; their C is one source, since starting a compiler costs more than
compiling them. What rounding may decide is measured for each program and input by stochastic
arithmetic (:class:`tests.fuzz.results.Reference`); everything else must be equal.
"""

from __future__ import annotations

import copy
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.codegen.c.emit import CProgram, emit
from fxlite.codegen.c.templates import claims
from fxlite.codegen.c.tiles.library import headers, includes
from fxlite.codegen.cuda import emit as cuda
from fxlite.codegen.cuda.function import CudaRunner
from fxlite.codegen.program.calls import restructure
from fxlite.codegen.program.program import optimize, plan
from fxlite.codegen.program.run import run_program, scheduled
from fxlite.codegen.runtime.build import Library, build
from fxlite.codegen.runtime.cuda_shim import ShimModule
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.graph.node import nodes_in
from fxlite.ops.op import Op
from fxlite.passes.costing.cost_report import flops_by_node
from fxlite.types import shapes
from fxlite.types.agreement import Chain, leaves, structure
from tests.codegen.test_c_samples import apart
from tests.fuzz.programs.program import Array, Program, Sizes
from tests.fuzz.results import Reference, exact_difference
from tests.oracle import written

#: How far each value is disturbed: as one op may be off.
ONE_OP = Chain(operations=1)
#: Flags of the C compiler: fast to build, and with sanitizers.
FLAGS = ("-O1",)
SANITIZED = ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
#: Ops, beside those that are views, whose results have no rounding: what they make of inputs alone
#: is compared bit by bit. (``maximum`` of two zeros has either sign; so has NaN, which ``copysign``
#: would show.)
EXACT = {"nextafter", "neg", "abs", "fabs", "where", "cast", "concat", "stack", "getitem"}
#: Of so many programs one runs in NumPy's kernels, one in CUDA on the shim.
KERNELS, CUDA = 8, 24
#: Operations of one run; sizes at which a program has more (an outer product of outer products)
#: are left out, as NumPy alone would take long.
MOST_WORK = 50_000_000
#: Seconds of processor time that a program may take, in tracing or in all its comparisons.
PATIENCE = 20.0

Run = Callable[..., Any]


@dataclass(frozen=True)
class Outcome:
    """How a program went: ``kind`` is "ok", "refused" or "failed"; ``text`` says why, ``stage``
    where, ``sizes`` with which; ``cases`` counts comparisons."""

    program: Program
    kind: str
    stage: str = ""
    text: str = ""
    sizes: Sizes = field(default_factory=dict)
    cases: int = 0
    ops: tuple[str, ...] = ()


class Failed(BaseException):
    """A program went wrong at a stage, at some sizes."""

    def __init__(self, kind: str, stage: str, error: object, sizes: Sizes | None = None) -> None:
        text = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error)
        super().__init__(text)
        self.kind, self.stage, self.sizes = kind, stage, sizes or {}


class Case:
    """A program under way through the stages."""

    def __init__(self, program: Program, number: int) -> None:
        self.program, self.name = program, f"p{number}"
        function = program.function()
        self.module = _stage("trace", lambda: fx.symbolic_trace(function, **program.types()))
        self.plain = self._plain()
        self.eager = self.written(function)
        self.optimized = _stage("optimize", lambda: optimize(self.module, keep=claims)[0])
        self.emitted: CProgram = _stage("emit C", lambda: emit(self.optimized, self.name))
        self.rebuild = restructure(self.module) or (lambda flat: flat)

    def _plain(self) -> fx.GraphModule:
        """The graph with what it writes into inputs as further results."""
        if not self.module.written_inputs():
            return self.module
        plain = copy.deepcopy(self.module)
        plain.graph.interface = None
        return plain

    def written(self, run: Run) -> Run:
        """The run on arrays of its own, with what it wrote into them behind its result."""
        return lambda *arrays: written(self.module, run, arrays)

    def work(self, sizes: Sizes) -> int:
        """Operations of one run."""
        found = (shapes.substitute(f, sizes) for f in flops_by_node(self.module).values())
        return sum(map(int, found))

    def ops(self) -> tuple[str, ...]:
        """The ops that it calls."""
        return tuple(n.target.name for n in self.module.graph.nodes if n.op == "call_function")


def _stage(name: str, make: Callable[[], Any]) -> Any:
    """A step; errors of fxlite are refusals, others are failures."""
    try:
        return make()
    except FxliteError as error:
        raise Failed("refused", name, error) from error
    except Exception as error:
        raise Failed("failed", name, error) from error


def check(
    programs: Sequence[Program],
    flags: Sequence[str] = FLAGS,
    rungs: Sequence[str] | None = None,
    before: Callable[[Program], None] = lambda program: None,
    after: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run programs in all back ends, their C as one library built with these flags. ``rungs`` are
    the back ends, by default a share of the programs runs in the slow ones; ``before`` is told
    which program is next, in case the process ends, and ``after`` how it went."""
    outcomes: list[Outcome] = []
    cases: list[Case] = []

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        after(outcome)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number, program in enumerate(programs):
            before(program)
            try:
                with limited():
                    cases.append(Case(program, number))
            except Failed as found:
                note(Outcome(program, found.kind, found.stage, str(found)))
        for case, library in zip(cases, compiled(cases, flags), strict=True):
            before(case.program)
            try:
                if isinstance(library, Exception):
                    raise Failed("failed", "gcc", library)
                with limited():
                    count = compare(case, library, rungs or _share(case.program))
                note(Outcome(case.program, "ok", cases=count, ops=case.ops()))
            except Failed as found:
                given = found.kind, found.stage, str(found), found.sizes
                note(Outcome(case.program, *given, ops=case.ops()))
    return outcomes


@contextmanager
def limited() -> Iterator[None]:
    """Raises Failed in what takes longer than PATIENCE, of this process's own time."""

    def stop(*arguments: object) -> None:
        raise Failed("failed", "hang", f"it takes more than {PATIENCE} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _share(program: Program) -> tuple[str, ...]:
    number = program.seed[1]
    kernels = ("kernel",) if number % KERNELS == 0 else ()
    return ("graph", "python", *kernels, "c", *(("cuda",) if number % CUDA == 0 else ()))


def compiled(cases: Sequence[Case], flags: Sequence[str]) -> list[Library | Exception]:
    """The library of each case: one for all, or if that cannot be built one for each."""
    if not cases:
        return []
    functions = "\n".join(apart(c.emitted) for c in cases)
    first = cases[0].emitted
    files = {"programs.c": f"{includes()}{functions}", **headers(functions)}
    try:
        return [build(files, first.entry, flags=list(flags))] * len(cases)
    except Exception as error:
        if len(cases) == 1:
            return [error]
        half = len(cases) // 2
        return compiled(cases[:half], flags) + compiled(cases[half:], flags)


def compare(case: Case, library: Library, rungs: Sequence[str]) -> int:
    """Compare the back ends at all sizes; returns how many comparisons. Raises Failed."""
    runs = {name: _stage(name, lambda n=name: _runner(n, case, library)) for name in rungs}
    count = 0
    for sizes in case.program.sizes:
        if case.work(sizes) > MOST_WORK:
            continue
        arrays = case.program.arrays(sizes)
        try:
            expected = case.eager(*arrays)
        except Exception as error:
            _must_refuse(case, runs, arrays, sizes, error)
            continue
        reference = None
        for name, run in runs.items():
            try:
                result = run(*arrays)
            except Exception as error:
                kind = "refused" if _is_guard(error) else "failed"
                raise Failed(kind, f"{name} call", error, sizes) from error
            if reference is None:
                reference = Measured(case.plain, arrays, expected)
            difference = reference.close_difference(result)
            if difference is not None:
                raise Failed("failed", name, difference, sizes)
            count += 1
    return count


class Measured(Reference):
    """What eager NumPy gave, beside how much rounding decides of it: nothing of what was computed
    without any."""

    def __init__(self, module: fx.GraphModule, arrays: Sequence[Array], expected: Any) -> None:
        super().__init__(module, arrays, ONE_OP)
        if structure(expected) == structure(self.result):
            self.result = expected

    def close_difference(self, actual: Any, flat: bool = False) -> str | None:
        """Where a result differs by more than rounding explains, if any may."""
        results = list(nodes_in(self.module.graph.output_node().args))
        expected = leaves(self.result)
        if len(results) == len(expected):
            for node, e, a in zip(results, expected, leaves(actual)):
                found = exact_difference(e, a) if is_exact(node) else None
                if found is not None:
                    return f"no op of {node} rounds: {found}"
        return super().close_difference(actual, flat)


def is_exact(node: fx.Node) -> bool:
    """Whether a value comes from inputs and constants without any rounding."""
    ways, seen = [node], {node}
    while ways:
        here = ways.pop()
        op = here.target
        if here.op == "call_function" and not (isinstance(op, Op) and (op.kind == "view" or op.name in EXACT)):
            return False
        ways += [n for n in here.all_input_nodes if n not in seen]
        seen |= set(here.all_input_nodes)
    return True


def _is_guard(error: Exception) -> bool:
    """A condition on sizes that the program's text implies, which is checked in every call."""
    return isinstance(error, ValueError) and "required by" in str(error)


def _must_refuse(case: Case, runs: dict[str, Run], arrays: list[Array], sizes: Sizes, error: Exception) -> None:
    """Where NumPy raises, compiled code must, too, unless no result depends on what is wrong. An
    index is checked where an element is read: of elements that nobody reads C says nothing, and
    sanitizers watch that it reads no others."""
    if isinstance(error, IndexError):
        return
    if "cannot reshape array of size 0" in str(error):
        return  # what -1 stands for is known from the text, for every size: docs/shapes.md
    try:
        case.written(fx.Interpreter(case.optimized).run)(*arrays)
        return
    except Exception:
        pass
    for name in ("c", "cuda"):
        run = runs.get(name)
        if run is None:
            continue
        try:
            result = run(*arrays)
        except Exception:
            continue
        shapes = [a.shape for a in leaves(result)]
        if any(0 in shape for shape in shapes):
            continue  # nothing was computed that could be wrong
        text = f"NumPy raises {type(error).__name__}: {error}; this gives arrays of {shapes}"
        raise Failed("failed", f"{name} does not raise", text, sizes)


def _runner(name: str, case: Case, library: Library) -> Run:
    module = case.module
    if name == "graph":
        return case.written(fx.Interpreter(module).run)
    if name == "python":
        return case.written(module)
    if name == "kernel":
        planned = plan(optimize(module)[0], claims)
        if any(g.anchor and not g.anchor.target.has_body for g in planned.groups):
            return case.written(module)  # what has no loops (a recurrence of named length) is C's
        kernels = scheduled(planned)
        single = case.emitted.entry.single_output

        def run_kernels(*arrays: Array) -> Any:
            results = run_program(planned, arrays, kernels)
            return case.rebuild(results[0] if single else tuple(results))

        return run_kernels
    if name == "cuda":
        made = cuda.emit(optimize(module)[0], case.name)
        runner = CudaRunner(made, ShimModule(made.source, flags=["-O1"]))
        return lambda *arrays: case.rebuild(runner(*arrays))
    emitted = case.emitted
    threads = (1, 2, 3)[case.program.seed[1] % 3]
    run = CompiledFunction(emitted.entry, library, emitted.weights, threads, use_extension=False)
    return lambda *arrays: case.rebuild(run(*arrays))


def reason(text: str) -> str:
    """The first line of an error with names, numbers and places left out: what to count by."""
    line = text.splitlines()[0] if text else ""
    line = re.sub(r"<program [\d.]+>:\d+|node \S+:.*?\)|\[[^\]]*\]", "…", line)
    return re.sub(r"\d+", "#", line)[:100]
