"""The page of NPBench's programs: which agree with NumPy, on which rungs, and how long they take.

    python -m tests.npbench_table                # measures all programs, writes docs/npbench.md
    python -m tests.npbench_table gemm spmv      # measures these anew, and keeps the other lines

Each program is measured in a process of its own, which is stopped after a while; so what hangs or
crashes is a line of the page and ends nothing else. Times are medians of this machine.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from tests import npbench
from tests.oracle import RUNGS, compare

PAGE = Path(__file__).resolve().parents[1] / "docs" / "npbench.md"
#: The size at which calls are timed, and that at which results are only compared.
TIMED, COMPARED = "S", "M"
#: Seconds that a program may take, with its builds.
LIMIT = 600
#: Seconds after which no further call is timed.
ENOUGH = 0.3
_START = """# NPBench

The 54 NumPy programs of [NPBench](https://github.com/spcl/npbench), unchanged, through `fx.jit` with `backend="c"`. A
program is right where its results, and the arguments that it writes into, are those of NumPy (relative difference at
most 1e-6, float32 100 units in the last place; at sizes S and M also where the norm of the difference is at most
NPBench's error, 1e-5 for most: adi lets rounding grow). At size M, these are the arguments that NPBench compares: nbody
is chaotic there, and one input that is changed by a unit in the last place changes NumPy's own velocities by 65 %.
"Rungs" are checked at small sizes: the graph, its Python source, the kernels run in NumPy, and C.

`python -m tests.npbench_table` wrote this page. Times are in milliseconds, on a machine that does other things, too,
with one thread (`taskset -c 0`): NumPy's call, the call of compiled C, and the first call, which traces and compiles.
[NumPy programs](benchmarks_numpy.md) has the times at sizes M and L, beside numba and JAX.

"""
_COLUMNS = ("program", "rungs", *(f"{TIMED}: {what}" for what in ("NumPy", "C", "first call")), f"{COMPARED}: C")
_HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n"


def measured(name: str) -> dict[str, Any]:
    """What the page says of one program, measured in this process; printed as far as it came."""
    found: dict[str, Any] = {"rungs": _rungs(name)}
    print(json.dumps(found), flush=True)
    found[TIMED] = _timed(name, TIMED)
    print(json.dumps(found), flush=True)
    found[COMPARED] = _compared(name, COMPARED)
    print(json.dumps(found), flush=True)
    return found


def _rungs(name: str) -> str:
    """Whether the rungs agree with NumPy at small sizes; what is wrong with those that do not."""
    wrong, benchmark = [], npbench.load(name)
    try:
        expected = npbench.called(benchmark.function, benchmark)
        call = fx.jit(benchmark.function, backend="python")
        npbench.compare(expected, npbench.called(call, benchmark))
    except Exception as error:
        return f"jit: {_said(error)}"
    (version,) = call.versions
    targets = [n.target for n in version.module.graph.placeholders]
    arrays = {n: v for n, v in benchmark.arguments.items() if n in targets}
    for rung in ("graph", "python", "kernel", "c"):
        try:
            inputs = [np.asarray(copy.deepcopy(arrays[target])) for target in targets]
            compare(rung, RUNGS[rung](version.module)(inputs), _flat(expected, version.module))
        except Exception as error:
            wrong.append(f"{rung}: {_said(error)}")
    return "; ".join(wrong) or "all"


def _flat(expected: tuple[Any, Mapping[str, Any]], module: fx.GraphModule) -> Any:
    """What the rungs give: results, and what stands in the inputs that are written into."""
    result, given = expected
    written = [given[target] for target in module.written_inputs()]
    return (result, *written) if written else result


def _timed(name: str, size: str) -> dict[str, Any]:
    """Seconds of NumPy's call, of that of C, and of the first one; or what is wrong."""
    benchmark = npbench.load(name, size)
    start = time.perf_counter()
    expected = npbench.called(benchmark.function, benchmark)
    times = [time.perf_counter() - start]
    call = fx.jit(benchmark.function, backend="c")
    try:
        start = time.perf_counter()
        found = npbench.called(call, benchmark)
        first = time.perf_counter() - start
        npbench.compare(expected, found, benchmark.error)
    except Exception as error:
        return {"numpy": times[0], "wrong": _said(error)}
    return {"numpy": _median(benchmark.function, benchmark, times), "c": _median(call, benchmark, []), "first": first}


def _compared(name: str, size: str) -> str:
    """Whether C gives what NumPy gives, in the results and the arguments that NPBench compares; or what is wrong."""
    benchmark = npbench.load(name, size)
    result, arguments = npbench.called(benchmark.function, benchmark)
    expected = result, {argument: arguments[argument] for argument in benchmark.outputs if argument in arguments}
    try:
        npbench.compare(expected, npbench.called(fx.jit(benchmark.function, backend="c"), benchmark), benchmark.error)
    except Exception as error:
        return f"**{_said(error)}**"
    return "right"


def _median(function: Callable[..., Any], benchmark: npbench.Benchmark, times: list[float]) -> float:
    while not times or (sum(times) < ENOUGH and len(times) < 20):
        given = copy.deepcopy(dict(benchmark.arguments))
        start = time.perf_counter()
        function(**given)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split()).replace("|", "\\|").replace(f"{npbench.FOLDER}/", "")
    return f"{type(error).__name__}: {text[:160]}"


# -- the page --------------------------------------------------------------------------------------
def line(name: str, found: Mapping[str, Any]) -> str:
    """The line of a program in the table."""
    late = f"not finished in {LIMIT} s"
    times = found.get(TIMED, {"wrong": late})
    cells = [name, found.get("rungs", "not finished"), _milliseconds(times.get("numpy"))]
    cells += [f"**{times['wrong']}**", ""] if "wrong" in times else map(_milliseconds, (times["c"], times["first"]))
    return f"| {' | '.join((*cells, found.get(COMPARED, f'**{late}**')))} |"


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def in_process(name: str) -> dict[str, Any]:
    """What a process of its own measures; as far as it came."""
    command = [sys.executable, "-m", "tests.npbench_table", "--measure", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        text, ended = done.stdout, f"the process ended with {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        text, ended = (error.stdout or b"").decode(), ""
    lines = [row for row in text.splitlines() if row.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    if ended:
        found = {TIMED: {"wrong": ended}, COMPARED: f"**{ended}**", **found}
    return found


def page(lines: Mapping[str, str]) -> str:
    """The page with these lines of the table."""
    right = [n for n, text in lines.items() if "**" not in text and "| all |" in text]
    said = f"{len(right)} of {len(lines)} are right at sizes {TIMED} and {COMPARED}, and on all rungs."
    return f"{_START}{said}\n\n{_HEAD}" + "".join(f"{lines[name]}\n" for name in sorted(lines))


def written_lines() -> dict[str, str]:
    """The lines of the page as it is."""
    text = PAGE.read_text() if PAGE.exists() else ""
    rows = [row for row in text.splitlines() if row.startswith("| ") and not row.startswith("| program")]
    return {row.split("|")[1].strip(): row for row in rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.npbench_table", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs (all)")
    parser.add_argument("--measure", action="store_true", help="measure one here, print JSON")
    args = parser.parse_args(arguments)
    if args.measure:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measured(args.names[0])
        return 0
    lines = written_lines()
    for name in args.names or npbench.names():
        lines[name] = line(name, in_process(name))
        print(lines[name], flush=True)
        PAGE.write_text(page(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
