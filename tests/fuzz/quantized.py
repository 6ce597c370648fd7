"""Quantized programs give the same bits everywhere: ``python -m tests.fuzz --quantized 300``.

Random programs (:mod:`tests.fuzz.quantized_programs`) run on random arrays in eager NumPy, which is
the reference, and in the back ends: the graph interpreted, generated Python, kernels in NumPy, C
and CUDA on the shim. Every bit of every result is compared. Many programs are one source, each runs
on many inputs, and a case is one program on one set of inputs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.codegen.c.emit import CProgram, emit
from fxlite.codegen.c.templates import claims
from fxlite.codegen.c.tiles.library import headers, includes
from fxlite.codegen.cuda import emit as cuda
from fxlite.codegen.cuda.function import CudaRunner
from fxlite.codegen.program.program import optimize, plan
from fxlite.codegen.program.run import run_program, scheduled
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.cuda_shim import ShimModule
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.types.agreement import allclose, compare, exact, leaves
from tests.codegen.test_c_samples import apart
from tests.fuzz.quantized_extremes import EXTREMES
from tests.fuzz.quantized_networks import NETWORKS
from tests.fuzz.quantized_programs import PROGRAMS, Array, Program, draw_inputs

#: What makes a random program; kinds take turns.
Kind = Callable[[np.random.Generator], Program]
KINDS: tuple[Kind, ...] = (*PROGRAMS, *NETWORKS, *EXTREMES)
#: Programs in one source.
BATCH = 48
#: Numbers of threads of the programs in C, in turn.
THREADS = (1, 2, 3, 1, 7)
#: Cases of a program.
CASES = 40

Run = Callable[..., Any]


@dataclass
class QuantizedCounts:
    """What was compared: programs, cases, and comparisons by back end."""

    programs: int = 0
    cases: int = 0
    compared: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [f"{self.programs} programs, {self.cases} cases, every bit equal"]
        return "\n".join([*lines, *(f"{n:8} in {name}" for name, n in self.compared.items())])


def check_quantized(
    programs: int,
    seed: int,
    counts: QuantizedCounts,
    cases: int = CASES,
    flags: Sequence[str] = (),
    kinds: Sequence[Kind] = KINDS,
) -> None:
    """Compare ``programs`` programs on ``cases`` inputs each. ``flags`` are more flags for the C
    compiler, such as the instructions it may use. Raises AssertionError with the program, its
    inputs and the difference."""
    for first in range(0, programs, BATCH):
        numbers = range(first, min(first + BATCH, programs))
        _check_batch([(seed, n) for n in numbers], counts, cases, flags, kinds)


def _check_batch(
    seeds: Sequence[tuple[int, int]], counts: QuantizedCounts, cases: int, flags: Sequence[str], kinds: Sequence[Kind]
) -> None:
    generators = [np.random.default_rng(seed) for seed in seeds]
    programs = [kinds[n % len(kinds)](rng) for rng, (_, n) in zip(generators, seeds)]
    modules = [fx.symbolic_trace(p.function, *p.types.values()) for p in programs]
    in_c, on_cuda = _compiled_c(modules, flags), _compiled_cuda(modules)
    for n, (program, rng) in enumerate(zip(programs, generators)):
        module = modules[n]
        runs = {
            "graph": fx.Interpreter(module).run,
            "python": module.__call__,
            "kernel": _kernels(module),
            "c": in_c[n],
            "cuda": on_cuda[n],
        }
        for case in range(cases):
            arrays = draw_inputs(rng, program)
            _check_case(program, arrays, runs, f"seed {seeds[n]}, case {case}")
            counts.cases += 1
            counts.compared.update(runs.keys())
        counts.programs += 1


def _check_case(program: Program, arrays: list[Array], runs: dict[str, Run], number: str) -> None:
    promise = allclose(rtol=0, atol=program.tolerance) if program.tolerance else exact
    with np.errstate(all="ignore"):
        expected = tuple(leaves(program.function(*arrays)))
        for name, run in runs.items():
            actual = tuple(leaves(run(*arrays)))
            if program.compare is not None:
                found = program.compare(arrays, expected, actual)
            else:
                difference = compare(expected, actual, promise)
                found = None if difference.agrees else str(difference)
            if found is not None:
                given = "\n".join(f"{n} = {a!r}" for n, a in zip(program.types, arrays))
                raise AssertionError(f"{number}: {program.text}\n{name} differs from NumPy: {found}\n{given}")


def _kernels(module: fx.GraphModule) -> Run:
    """The program's kernels in NumPy."""
    planned = plan(optimize(module)[0], claims)
    kernels = scheduled(planned)
    return lambda *arrays: run_program(planned, arrays, kernels)


def _compiled_c(modules: Sequence[fx.GraphModule], flags: Sequence[str]) -> list[Run]:
    """The programs in C, as one library."""
    emitted: list[CProgram] = [emit(optimize(m, keep=claims)[0], f"quantized_{n}") for n, m in enumerate(modules)]
    functions = "\n".join(apart(e) for e in emitted)
    files = {"quantized.c": f"{includes()}{functions}", **headers(functions)}
    library = build(files, emitted[0].entry, flags=list(flags))
    return [
        CompiledFunction(e.entry, library, e.weights, n_threads, use_extension=False)
        for e, n_threads in zip(emitted, itertools.cycle(THREADS))
    ]


def _compiled_cuda(modules: Sequence[fx.GraphModule]) -> list[Run]:
    """The programs in CUDA, as one library of the shim."""
    emitted = [cuda.emit(optimize(m)[0], f"quantized_{n}") for n, m in enumerate(modules)]
    library = ShimModule("\n".join(e.source for e in emitted), flags=["-Og"])
    return [CudaRunner(e, library) for e in emitted]
