"""Small programs over shapes that nobody tuned, compiled to C with one thread, beside NumPy, torch and ONNX Runtime.

    python -m tests.benchmarks.cliffs --cases 400 --save cliffs.jsonl --output docs/cliffs.md

Cases are drawn by ``cliff_cases.py``: a seed, a kind and a number give the same case. They are measured one
after the other in a process on one core, which is started again where a case ends it or takes too long.
Results are compared first, with those of each peer; a peer whose result has another dtype has no time. ONNX
Runtime, where it is installed, runs what ``fx.to_onnx`` writes of the same graph. fxlite and the peers take
turns; a ratio is the median over rounds of fxlite's time by that of the best peer (``timing.py``). What is in
the file of ``--save`` is not measured again, but for ``--again R``, all cases whose ratio is R or more.
``--load`` makes the table and page of a file.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import select
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.benchmarks.cliff_cases import FUNCTIONS, KINDS, Case, draw
from tests.benchmarks.machine import choose_cores, machine, paragraphs, versions
from tests.benchmarks.page import grid
from tests.benchmarks.timing import block, compare

OURS, PEERS = "fxlite", ("numpy", "torch", "onnxruntime")
#: Ratios up to which a case is fast, and above which it is a cliff.
FAST, CLIFF = 1.2, 2.0
ROUNDS = 5


@dataclass
class Row:
    """A case: median seconds of each engine, fxlite's time by the best peer's, the kernels of its C, seconds
    to build, why an engine has no time, and how often it was measured; the last time counts."""

    kind: str
    seed: int
    number: int
    form: str
    case: str
    seconds: dict[str, float] = field(default_factory=dict)
    ratio: float | None = None
    best: str = ""
    kernels: str = ""
    build: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)
    times: int = 1

    @property
    def key(self) -> tuple[str, int, int]:
        """What gives the case."""
        return self.kind, self.seed, self.number


# -- one case --------------------------------------------------------------------------------------
def measure(case: Case, key: tuple[str, int, int], seconds: float = 0.02, rounds: int = ROUNDS) -> Row:
    """The row of a case, measured in this process."""
    row = Row(*key, case.form, str(case))
    arrays = case.arrays()
    calls: dict[str, Callable[[], Any]] = {}
    results: dict[str, Any] = {}
    made = (_numpy, _torch, _onnx_runtime, lambda c, a: _fxlite(c, a, row))
    for engine, make in zip((*PEERS, OURS), made, strict=True):
        try:
            call = make(case, arrays)
            results[engine] = np.asarray(call())
            calls[engine] = call
        except Exception as error:
            text = " ".join(str(error).split())
            row.failed[engine] = text if isinstance(error, _Unavailable) else f"{type(error).__name__}: {text[:150]}"
    if OURS not in calls:
        return row
    for engine in [e for e in PEERS if e in calls]:
        if (wrong := _difference(results[OURS], results[engine])) is not None:
            row.failed[engine] = wrong
            del calls[engine]
    if len(calls) == 1:
        return row
    blocks = {e: lambda call=call: block(call, seconds, 0.003) for e, call in calls.items()}
    found = compare(blocks, 1, rounds, rounds, 0.0)
    row.seconds = {engine: found.seconds(engine) for engine in calls}
    row.best = min((e for e in PEERS if e in calls), key=row.seconds.__getitem__)
    row.ratio = 1 / found.speedup(OURS, row.best)
    return row


class _Unavailable(Exception):
    """Why an engine does not run a case."""


def _fxlite(case: Case, arrays: dict[str, Any], row: Row) -> Callable[[], Any]:
    import fxlite as fx

    program, given, types = _traced(case, arrays)
    start = time.perf_counter()
    function = fx.compile(program, inputs=types, threads=1)
    row.build = time.perf_counter() - start
    row.kernels = ", ".join(kernel.name for kernel in function.kernels)
    inputs = list(given.values())
    return lambda: function(*inputs)


def _traced(case: Case, arrays: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """What is traced of a case, the arrays that it is called with, and their types."""
    given = {n: array for n, array in arrays.items() if n not in case.weights}
    program = _program(case.text, list(given), {n: arrays[n] for n in case.weights})
    return program, given, {n: case.type_text(n) for n in given}


def _numpy(case: Case, arrays: dict[str, Any]) -> Callable[[], Any]:
    if "F." in case.text:
        raise _Unavailable("no such function in NumPy")
    program, inputs = _program(case.text, list(arrays), {}), list(arrays.values())

    def call() -> Any:
        found = np.ascontiguousarray(program(*inputs))
        return found.copy() if any(np.may_share_memory(found, i) for i in inputs) else found

    return call


def _torch(case: Case, arrays: dict[str, Any]) -> Callable[[], Any]:
    import torch

    names = {"torch": torch, "T": torch.nn.functional}
    program = eval(f"lambda {', '.join(arrays)}: {case.torch}", names)
    inputs = [torch.from_numpy(array) for array in arrays.values()]

    memory = {i.untyped_storage().data_ptr() for i in inputs}

    def call() -> Any:
        with torch.inference_mode():
            found = program(*inputs).contiguous()
            return found.clone() if found.untyped_storage().data_ptr() in memory else found

    return call


def _onnx_runtime(case: Case, arrays: dict[str, Any]) -> Callable[[], Any]:
    try:
        import onnxruntime
    except ImportError:
        raise _Unavailable("not installed") from None
    import fxlite as fx

    program, given, types = _traced(case, arrays)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        model = fx.to_onnx(fx.symbolic_trace(program, inputs=types)).SerializeToString()
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        inputs = {i.name: given[i.name] for i in session.get_inputs()}
        session.run(None, inputs)
    except Exception as error:  # neither ONNX nor ONNX Runtime has every op and dtype
        raise _Unavailable(f"{type(error).__name__}: {' '.join(str(error).split())[:150]}") from None
    return lambda: session.run(None, inputs)[0]


def _program(text: str, names: Sequence[str], constants: dict[str, Any]) -> Any:
    from fxlite.nn import functional

    return eval(f"lambda {', '.join(names)}: {text}", {"np": np, "F": functional, **FUNCTIONS, **constants})


def _difference(ours: Any, theirs: Any) -> str | None:
    """Why the times of a result and of a peer's cannot be compared; None where they can."""
    if ours.dtype != theirs.dtype:
        return f"its result is {theirs.dtype}, not {ours.dtype}"
    if ours.size != theirs.size or ours.squeeze().shape != theirs.squeeze().shape:
        return f"WRONG: its result has the shape {theirs.shape}, not {ours.shape}"
    theirs = theirs.reshape(ours.shape)
    tolerance = 1e-4 if ours.dtype in (np.float32, np.complex64) else 1e-9
    with np.errstate(all="ignore"):
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
        if np.allclose(ours, theirs, rtol=tolerance, atol=tolerance * max(float(largest), 1e-30), equal_nan=True):
            return None
    return "WRONG: its result is another"


# -- all cases -------------------------------------------------------------------------------------
class Worker:
    """A process on one core that measures cases."""

    def __init__(self) -> None:
        one = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        core = str(choose_cores(1)[0])
        command = ["taskset", "-c", core, sys.executable, "-m", "tests.benchmarks.cliffs", "--worker"]
        environment = {**os.environ, **dict.fromkeys(one, "1")}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def row(self, key: tuple[str, int, int], patience: float) -> Row | None:
        """The row of a case; None where the process ended or took longer than this."""
        given, said = self.process.stdin, self.process.stdout
        assert given is not None and said is not None
        given.write(json.dumps(key).encode() + b"\n")
        given.flush()
        ready, _, _ = select.select([said], [], [], patience)
        line = said.readline() if ready else b""
        return Row(**json.loads(line)) if line else None

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def work() -> None:
    """Measure the cases that come in, one a line."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    gc.collect()
    gc.freeze()  # what is collected before each block is what a case made
    for line in sys.stdin:
        kind, seed, number = json.loads(line)
        print(json.dumps(asdict(measure(draw(kind, seed, number), (kind, seed, number)))), file=out, flush=True)


def measured(keys: Iterable[tuple[str, int, int]], patience: float) -> Iterable[Row]:
    """The rows of cases, one after the other."""
    worker = Worker()
    try:
        for key in keys:
            row = worker.row(key, patience)
            if row is None:
                worker.end()
                case = draw(*key)
                row = Row(*key, case.form, str(case), failed={OURS: f"the process ended, or took {patience:g} s"})
                worker = Worker()
            yield row
    finally:
        worker.end()


# -- output ----------------------------------------------------------------------------------------
def distribution(rows: Sequence[Row], by: Callable[[Row], str]) -> list[list[str]]:
    """A line for all rows and for each group of them: cases with a ratio, geometric mean, median, shares."""
    groups: dict[str, list[float]] = {"all": []}
    for row in rows:
        if row.ratio is not None:
            groups["all"].append(row.ratio)
            groups.setdefault(by(row), []).append(row.ratio)
    lines = []
    for name, ratios in groups.items():
        if ratios:
            fast, slow = (f"{sum(map(holds, ratios)) / len(ratios):.0%}" for holds in (_is_fast, _is_cliff))
            mean, middle = statistics.geometric_mean(ratios), statistics.median(ratios)
            lines.append([name, str(len(ratios)), f"{mean:.2f}", f"{middle:.2f}", fast, slow, f"{max(ratios):.1f}"])
    return lines


def _is_fast(ratio: float) -> bool:
    return ratio <= FAST


def _is_cliff(ratio: float) -> bool:
    return ratio > CLIFF


HEADINGS = ("cases", "number", "geometric mean", "median", f"≤ {FAST}", f"> {CLIFF}", "worst")
WORST = ("ratio", "µs", "best peer", "", "case", "build s")


def worst(rows: Sequence[Row], count: int) -> list[list[str]]:
    """The cases of the largest ratios."""
    known = sorted((r for r in rows if r.ratio is not None), key=lambda r: -(r.ratio or 0))
    return [
        [
            f"{row.ratio:.2f}",
            f"{row.seconds[OURS] * 1e6:.0f}",
            f"{row.best} {row.seconds[row.best] * 1e6:.0f}",
            row.form,
            row.case,
            f"{row.build:.1f}",
        ]
        for row in known[:count]
    ]


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int]) -> Table:
    """For the terminal; the columns of ``text`` are no numbers."""
    made = Table(title=title, header_style="bold")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="left" if number in text else "right")
    for row in rows:
        made.add_row(*map(escape, row))
    return made


def failures(rows: Sequence[Row]) -> list[str]:
    """Cases that fxlite does not compile, and those of another result than a peer's."""
    return [
        f"- {engine}, {row.form}, `{row.case}`: {text}"
        for row in rows
        for engine, text in row.failed.items()
        if engine == OURS or text.startswith("WRONG")
    ]


def markdown(rows: Sequence[Row], count: int) -> str:
    """docs/cliffs.md."""
    builds = [row.build for row in rows if row.build]
    seeds = ", ".join(map(str, sorted({row.seed for row in rows})))
    lines = paragraphs(
        "# Cliffs: shapes that nobody tuned",
        [
            "Each case is one op or a short chain of ops, with shapes, layouts and dtypes drawn at random: odd sizes,",
            "transposed operands, mixed types, named sizes beside fixed ones. fxlite's C on one thread is compared",
            "with the best of NumPy, torch and ONNX Runtime. A ratio is fxlite's time divided by that of the best",
            f"peer; a ratio above {CLIFF:g} is a cliff.",
        ],
        f"{machine()}, one thread; {datetime.date.today()}; {versions('numpy', 'torch', 'onnxruntime')}.",
        "## Distribution",
        grid(HEADINGS, distribution(rows, lambda row: row.kind)),
        f"Median seconds to build: {statistics.median(builds):.2f}, at most {max(builds):.1f}."
        if builds
        else "Nothing was built.",
        f"## The worst {count}",
        grid(WORST, [[cell.replace("|", "\\|") for cell in line] for line in worst(rows, count)], left=(2, 3, 4)),
        "## By program",
        grid(HEADINGS, _by_mean(distribution(rows, lambda row: row.form))),
        "## Without a time",
        failures(rows) or ["None."],
        "## How it was measured",
        [
            f"`python -m tests.benchmarks.cliffs` draws the cases (seed {seeds}) from "
            f"`tests/benchmarks/cliff_cases.py`.",
            f"Results are compared before anything is timed. Engines take turns on one core for {ROUNDS} rounds, and",
            "ratios are medians over the rounds; where other programs ran, they are ratios of processor times.",
            "Operands marked *const* are constants, such as weights. `M=197` is a named size, which the C is not",
            "compiled for. fxlite, NumPy and ONNX Runtime work on NumPy arrays, torch on its tensors (eager, in",
            "inference mode). ONNX Runtime runs the file that `fx.to_onnx` writes of the same graph, where it has all",
            "of its ops for these dtypes. Results that would be views are copied.",
            f"{sum(row.times > 1 for row in rows)} cases were measured again (`--again 1.2`); the last time counts.",
        ],
    )
    return "\n".join(lines)


def _by_mean(lines: list[list[str]]) -> list[list[str]]:
    return sorted(lines[1:], key=lambda line: -float(line[2]))


def load(path: Path) -> dict[tuple[str, int, int], Row]:
    """The last row of each case that was saved."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row.key: row for row in (Row(**json.loads(line)) for line in lines)}


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.cliffs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--cases", type=int, default=80, help="of all kinds together (80)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=60, help="seconds of a case at most")
    parser.add_argument("--worst", type=int, default=100, help="how many to list")
    parser.add_argument("--save", type=Path, help="add what is measured, as JSON lines; what is there is kept")
    parser.add_argument("--load", type=Path, help="measure nothing: rows that were saved")
    parser.add_argument("--again", type=float, metavar="RATIO", help="measure saved cases from this ratio on again")
    parser.add_argument("--output", type=Path, help="write the page as Markdown")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work()
        return []
    rows = load(options.load or options.save) if options.load or options.save else {}
    if not options.load:
        each = -(-options.cases // len(options.kinds))
        keys = [(kind, options.seed, number) for number in range(each) for kind in options.kinds][: options.cases]
        todo = [k for k in keys if k not in rows or (options.again and (rows[k].ratio or 99) >= options.again)]
        for row in measured(todo, options.patience):
            row.times += rows[row.key].times if row.key in rows else 0
            rows[row.key] = row
            text = f"{row.ratio:6.2f} of {row.best}" if row.ratio else str(row.failed)
            print(f"{row.kind} {row.number}: {text}  {row.form}, {row.case}", flush=True)
            if options.save:
                with options.save.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    found = list(rows.values())
    output = Console() if Console().is_terminal else Console(width=200)
    output.print(table(f"the worst {options.worst}", WORST, worst(found, options.worst), (2, 3, 4)))
    output.print(table("distribution", HEADINGS, distribution(found, lambda row: row.kind), (0,)))
    for line in failures(found):
        output.print(line, markup=False)
    if options.output:
        options.output.write_text(markdown(found, options.worst))
    return found


if __name__ == "__main__":
    main()
