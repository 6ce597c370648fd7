"""NPBench's programs, unchanged, through ``fx.jit``: which agree with NumPy, and what stops the
others.

    python -m tests.npbench                     # all 54, at sizes made small, in Python
    python -m tests.npbench --backend c gemm    # some of them, compiled

NPBench (https://github.com/spcl/npbench, BSD-3-Clause) is read where it lies: in
``../shared/programs/npbench``, or where ``FXLITE_NPBENCH`` says; nothing of it is copied.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx

FOLDER = Path(
    os.environ.get("FXLITE_NPBENCH") or Path(__file__).resolve().parents[2] / "shared" / "programs" / "npbench"
)
#: Small sizes of programs whose parameters depend on each other, and other numbers that they begin with.
_SIZES: dict[str, dict[str, Any]] = {
    "azimint_hist": {"N": 40, "npt": 5},
    "azimint_naive": {"N": 40, "npt": 5},
    "cavity_flow": {"ny": 6, "nx": 6, "nt": 3, "nit": 3},
    "channel_flow": {"ny": 6, "nx": 6, "nit": 3, "dt": 0.1},  # a fifth of the steps of its own dt
    "crc16": {"N": 5},
    "gramschmidt": {"M": 9, "N": 6},
    "lenet": {"N": 2, "H": 28, "W": 28},
    "mandelbrot1": {"XN": 5, "YN": 4, "maxiter": 6},
    "mandelbrot2": {"XN": 5, "YN": 4, "maxiter": 6},
    "nbody": {"N": 4, "tEnd": 0.05},
    "spmv": {"M": 6, "N": 5, "nnz": 10},
    "stockham_fft": {"R": 2, "K": 3},
}
_STEPS = frozenset(("tsteps", "nit", "t", "maxiter"))


@dataclass(frozen=True)
class Benchmark:
    """A program with what it is called with."""

    name: str
    function: Any
    arguments: Mapping[str, Any]
    #: By how much results may differ by the norm, as NPBench says; a simulation that is chaotic may by more.
    error: float = 1e-5
    #: The arguments that NPBench compares after a call; others may be written into, too.
    outputs: tuple[str, ...] = ()

    @property
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Copies of the arguments that are arrays."""
        return {n: v.copy() for n, v in self.arguments.items() if isinstance(v, np.ndarray)}


def names() -> list[str]:
    """All programs; none where NPBench is missing."""
    return sorted(path.stem for path in (FOLDER / "bench_info").glob("*.json"))


def load(name: str, size: str = "") -> Benchmark:
    """A program with arguments of a size ("S", "M", "L"), or of a small one."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    info = json.loads((FOLDER / "bench_info" / f"{name}.json").read_text())["benchmark"]
    values = info["parameters"][size or "S"]
    if not size:
        values = {**_small(values), **_SIZES.get(name, {})}
    folder = f"npbench.benchmarks.{info['relative_path'].replace('/', '.')}"
    program = importlib.import_module(f"{folder}.{info['module_name']}_numpy")
    values = dict(values)
    if info.get("init"):
        try:
            made_by = importlib.import_module(f"{folder}.{info['module_name']}")
        except ModuleNotFoundError:
            made_by = program
        make = getattr(made_by, info["init"]["func_name"])
        made = make(*(values[argument] for argument in info["init"]["input_args"]))
        made = made if isinstance(made, tuple) else (made,)
        values |= dict(zip(info["init"]["output_args"], made))
        values |= {} if size else _SIZES.get(name, {})
    function = getattr(program, info["func_name"])
    given = (values[argument] for argument in info["input_args"])
    arguments = dict(zip(inspect.signature(function).parameters, given))
    return Benchmark(name, function, arguments, info.get("norm_error", Benchmark.error), tuple(info["output_args"]))


def _small(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of which no two are the same, and few steps."""
    return {
        name: min(value, 3 if name.lower() in _STEPS else 6 + number) if type(value) is int else value
        for number, (name, value) in enumerate(parameters.items())
    }


def called(function: Any, benchmark: Benchmark) -> tuple[Any, dict[str, Any]]:
    """What a function gives for the arguments, and these arguments after the call."""
    given = copy.deepcopy(dict(benchmark.arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(**given), {name: given[name] for name in benchmark.arrays}


def compare(expected: tuple[Any, Mapping[str, Any]], found: tuple[Any, Mapping[str, Any]], error: float = 0.0) -> None:
    """Raise AssertionError where results, or arguments that are written into, differ, unless the
    norm of what they differ by is within ``error`` of it."""
    pairs = [(expected[0], found[0]), *((array, found[1][name]) for name, array in expected[1].items())]
    for wanted, given in pairs:
        wanted, given = (v if isinstance(v, (tuple, list)) else [v] for v in (wanted, given))
        assert len(wanted) == len(given)
        for one, other in zip(wanted, given):
            if one is not None:
                kind = np.asarray(one).dtype
                few = 100 * float(np.finfo(kind).eps) if kind.kind in "fc" else 0.0
                if error and np.linalg.norm(np.subtract(other, one)) <= error * np.linalg.norm(one):
                    continue
                np.testing.assert_allclose(other, one, rtol=max(1e-6, few), atol=max(1e-8, few))


def run(name: str, backend: str = "python", size: str = "") -> int:
    """Call a program through ``fx.jit`` and compare results and written arguments with eager
    NumPy's. Gives the number of nodes; raises what is in the way."""
    benchmark = load(name, size)
    expected = called(benchmark.function, benchmark)
    call = fx.jit(benchmark.function, backend=backend)
    compare(expected, called(call, benchmark))
    return len(call.graph.nodes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(prog="python -m tests.npbench", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs (all)")
    parser.add_argument("--backend", default="python", help="of fx.jit (python)")
    parser.add_argument("--size", default="", choices=("S", "M", "L"), help="NPBench's (small)")
    args = parser.parse_args(arguments)
    wanted = args.names or names()
    agreed = 0
    for name in wanted:
        try:
            line = f"ok, {run(name, args.backend, args.size)} nodes"
            agreed += 1
        except Exception as error:
            line = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        print(f"{name:26} {line}", flush=True)
    print(f"{agreed} of {len(wanted)} agree with NumPy")
    return 0 if wanted else 1


if __name__ == "__main__":
    raise SystemExit(main())
