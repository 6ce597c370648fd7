"""NPBench's programs, unchanged, through ``fx.jit``, beside NumPy, numba and jax in one run.

    pip install -e ".[numpy_peers]"
    python -m tests.benchmarks.numpy_programs --sizes S,M --threads 1,2 --output docs/benchmarks_numpy.md

Each program runs in a process of its own for each size and number of threads, pinned to so many
cores; there the engines take turns (``timing.py``) and their results are compared with NumPy's. Arguments
that a program writes into are put back before each call, which is not timed. Loops with
loop-carried dependencies are also there as C written by hand (``hand_loops.c``). An engine that fails
or takes too long has no time and says why. ``--save`` keeps what was measured as JSON lines, from
which ``--load`` makes the page again.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import hashlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tests import npbench
from tests.benchmarks.machine import choose_cores, foreign_load, machine, versions
from tests.benchmarks.numpy_engines import ENGINES, HAND, OURS, PEERS, Unavailable, task
from tests.benchmarks.page import milliseconds
from tests.benchmarks.results import threads_text
from tests.benchmarks.timing import Comparison, Timing, block, compare

PACKAGES = ("numpy", "numba", "jax")
#: Ratios to the best peer: geometric mean and each; to C by hand; seconds to build.
WANTED_MEAN, WANTED_EACH, WANTED_HAND, WANTED_BUILD = 0.5, 1.2, 1.1, 2.0


@dataclass
class Row:
    """A program at one size and number of threads: median seconds, by how much the first call took longer, and
    fxlite's time by that of each other engine (the median over rounds); ``failed``: why an engine has none."""

    program: str
    size: str
    threads: int
    seconds: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)
    is_noisy: bool = False

    @property
    def best(self) -> str | None:
        """The fastest of NumPy, numba and jax."""
        ran = [e for e in PEERS if e in self.seconds]
        return min(ran, key=self.seconds.__getitem__) if ran else None

    @property
    def is_constant(self) -> bool:
        """Whether fxlite computes the results while it builds: all arguments are Python's numbers."""
        return self.forms.get(OURS) == "constant"

    @property
    def ratio(self) -> float | None:
        """fxlite's time by the best peer's, where both compute something in a call."""
        return None if self.is_constant else self.ratios.get(self.best or "")

    @property
    def verdict(self) -> str:
        """``LOSS`` where fxlite is slower than wanted, and whether others were at work."""
        if self.is_constant:
            return "constant"
        hand, ratio = self.ratios.get(HAND, 0.0), self.ratio
        lost = ratio is None or ratio > WANTED_EACH or hand > WANTED_HAND
        return ", ".join(["LOSS"] * lost + ["noisy"] * self.is_noisy)


# -- one process -----------------------------------------------------------------------------------
def measure(name: str, size: str, threads: int, options: argparse.Namespace) -> Row:
    """The row of a program, measured in this process."""
    warnings.simplefilter("ignore")
    row = Row(name, size, threads)
    program = npbench.load(name, "" if size == "small" else size)
    before = _digests(program)
    with np.errstate(all="ignore"):
        expected = program.function(**program.arguments)
    written = [name for name, digest in _digests(program).items() if digest != before[name]]
    compared = [n for n in written if n in program.outputs or expected is None]
    wanted = copy.deepcopy([*_arrays(expected), *(program.arguments[n] for n in compared)])
    if written:  # the arguments are not copied: those of some programs fill half of the memory
        program = npbench.load(name, "" if size == "small" else size)
    tasks = {}
    for engine in options.engines:
        print(f"engine: {engine}", file=sys.stderr, flush=True)
        try:
            start = time.perf_counter()
            made = task(engine, program, threads, written)
            made.before()
            result = made.call()
            row.first[engine] = time.perf_counter() - start
            found = [*_arrays(result), *(made.arrays[n] for n in compared if n in made.arrays)]
            if (wrong := _difference(found, wanted, program.error, engine in ("jax", HAND))) is not None:
                raise Unavailable(f"wrong result: {wrong}")
            tasks[engine] = (made, block(made.call, 0.0, None, 1, made.before))
            row.first[engine] -= min(tasks[engine][1].seconds, row.first[engine])
            row.forms[engine] = made.form
        except Exception as error:
            kind = "" if isinstance(error, Unavailable) else f"{type(error).__name__}: "
            row.failed[engine] = kind + " ".join(str(error).split())[:120]
    round_seconds = sum(max(second.seconds, options.seconds) for _, second in tasks.values())
    rounds = min(options.rounds, int(options.budget / max(round_seconds, 1e-9)))
    calls = {
        engine: lambda made=made, is_long=second.seconds > 0.2: block(
            made.call, options.seconds, None if is_long else 0.02, 1 if is_long else 3, made.before
        )
        for engine, (made, second) in tasks.items()
    }
    with np.errstate(all="ignore"):
        if rounds >= 2:
            found = compare(calls, threads, rounds, rounds, 0.01)
        else:  # calls are long: the second one of each counts, too
            found = Comparison({engine: Timing([second]) for engine, (_, second) in tasks.items()}, threads)
            if rounds:
                for engine, timing in compare(calls, threads, 1, 1, 0.01).engines.items():
                    found.engines[engine].blocks += timing.blocks
    row.seconds = {engine: found.seconds(engine) for engine in calls}
    if OURS in calls:
        row.ratios = {e: 1 / found.speedup(OURS, e) for e in calls if e != OURS}
    row.is_noisy = found.is_noisy
    return row


def _digests(program: npbench.Benchmark) -> dict[str, bytes]:
    """What tells whether an argument that is an array was written into."""
    arrays = {n: v for n, v in program.arguments.items() if isinstance(v, np.ndarray)}
    return {n: hashlib.blake2b(np.ascontiguousarray(a).view(np.uint8)).digest() for n, a in arrays.items()}


def _arrays(result: Any) -> list[Any]:
    """The arrays and numbers of a result."""
    if result is None:
        return []
    return [a for part in result for a in _arrays(part)] if isinstance(result, (tuple, list)) else [result]


def _difference(found: Sequence[Any], wanted: Sequence[Any], error: float, any_order: bool) -> str | None:
    """What is wrong with results; in ``any_order``: each is one of those wanted, if not all."""
    if any_order:
        for value in found:
            if any(np.shape(value) == np.shape(w) and _close(value, w, error) for w in wanted):
                return None
        return "none of its results is NumPy's" if found else "no result"
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    return next((f"result {n}" for n, (a, b) in enumerate(zip(found, wanted)) if not _close(a, b, error)), None)


def _close(one: Any, other: Any, error: float) -> bool:
    """Whether arrays agree, element by element or, within an error, by the norm of what they differ in."""
    kind = np.asarray(other).dtype
    tolerance = max(1e-6, 100 * float(np.finfo(kind).eps) if kind.kind in "fc" else 0.0)
    if np.shape(one) != np.shape(other):
        return False
    if np.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True):
        return True
    one, other = (np.asarray(v).astype(np.complex128).ravel() for v in (one, other))
    return bool(np.linalg.norm(one - other) <= error * np.linalg.norm(other))


# -- all processes ---------------------------------------------------------------------------------
def measured(name: str, size: str, threads: int, options: argparse.Namespace, cache: Path) -> Row:
    """The row of a program, measured in a process of its own."""
    cores = ",".join(map(str, choose_cores(threads)))
    count = str(threads)
    environment = {
        **os.environ,
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), count),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
        "NUMBA_CACHE_DIR": str(cache / "numba"),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "FXLITE_CACHE": str(cache / "fxlite"),
    }
    settings = ("--engines", ",".join(options.engines), "--seconds", str(options.seconds))
    limits = ("--rounds", str(options.rounds), "--budget", str(options.budget))
    this = (sys.executable, "-m", "tests.benchmarks.numpy_programs", "--one", f"{name}:{size}:{threads}")
    try:
        done = subprocess.run(
            ["taskset", "-c", cores, *this, *settings, *limits],
            env=environment,
            capture_output=True,
            text=True,
            timeout=options.patience,
        )
    except subprocess.TimeoutExpired:
        return Row(name, size, threads, failed={OURS: f"more than {options.patience:g} s for all engines"})
    lines = done.stdout.splitlines()
    begun = re.findall("^engine: (.*)$", done.stderr, re.MULTILINE)
    if done.returncode < 0 and begun and begun[-1] != OURS:  # a peer ended the process
        rest = argparse.Namespace(**{**vars(options), "engines": [e for e in options.engines if e != begun[-1]]})
        row = measured(name, size, threads, rest, cache)
        row.failed[begun[-1]] = f"ends the process: {signal.Signals(-done.returncode).name}"
        return row
    if done.returncode or not lines:
        why = (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]
        return Row(name, size, threads, failed={OURS: why[:200]})
    return Row(**json.loads(lines[-1]))


# -- output ----------------------------------------------------------------------------------------
HEADINGS = ("program", "size", "threads", *(f"{e} ms" for e in ENGINES), "/ best peer", "/ hand C", "build s", "")


def cells(row: Row) -> list[str]:
    """The cells of a row."""
    times = [milliseconds(row.seconds[e]) if e in row.seconds else "–" for e in ENGINES]
    ratio, hand = (f"{r:.2f}" if r is not None else "–" for r in (row.ratio, row.ratios.get(HAND)))
    build = f"{row.first[OURS]:.1f}" if OURS in row.first else "–"
    failed = f"fails: {row.failed[OURS]}" if OURS in row.failed else ""
    return [row.program, row.size, str(row.threads), *times, ratio, hand, build, failed or row.verdict]


def table(rows: Iterable[Row]) -> Table:
    """For the terminal; losses are red."""
    made = Table(title="NPBench through fx.jit", header_style="bold")
    for heading in HEADINGS:
        made.add_column(heading, justify="left" if heading in ("program", "size", "") else "right")
    for row in rows:
        lost = "LOSS" in row.verdict or OURS in row.failed
        made.add_row(*cells(row), style="red" if lost else None)
    return made


def summary(rows: Sequence[Row]) -> list[str]:
    """Geometric means, and how many programs are as fast as wanted, by size and threads."""
    lines = []
    for key in sorted({(r.size, r.threads) for r in rows}):
        of = [r for r in rows if (r.size, r.threads) == key]
        ratios = [r.ratio for r in of if r.ratio is not None]
        if not ratios:
            continue
        slow = sum(ratio > WANTED_EACH for ratio in ratios)
        hand = [r.ratios[HAND] for r in of if HAND in r.ratios]
        text = (
            f"{key[0]}, {threads_text(key[1])}: geometric mean {statistics.geometric_mean(ratios):.2f} of the best "
            f"peer over {len(ratios)} programs (wanted ≤ {WANTED_MEAN}), {slow} above {WANTED_EACH}"
        )
        by = ", ".join(
            f"{e} {statistics.geometric_mean(r.ratios[e] for r in of if e in r.ratios):.2f} ({n})"
            for e in PEERS
            if (n := sum(e in r.ratios for r in of))
        )
        text += f"; of each: {by}"
        if hand:
            slow_hand = sum(ratio > WANTED_HAND for ratio in hand)
            text += (
                f"; of C by hand {statistics.geometric_mean(hand):.2f}, {slow_hand} of {len(hand)} above {WANTED_HAND}"
            )
        lines.append(text)
    return lines


def markdown(rows: Sequence[Row], load: float) -> str:
    """docs/benchmarks_numpy.md."""
    noisy = sum(row.is_noisy for row in rows)
    text = [
        "# NPBench's programs: fxlite beside NumPy, numba and jax",
        "",
        f"{machine()}. {versions(*PACKAGES)}. {datetime.date.today()}.",
        "",
        *(f"- {line}." for line in summary(rows)),
        "",
        "Milliseconds of a call, medians; `fx.jit` on the unchanged functions of",
        "[NPBench](https://github.com/spcl/npbench). fxlite: `dynamic=False`, a version for these sizes, as jax.jit",
        "makes; named: without it, one version for all sizes where that is possible. numba:",
        "`@njit(parallel=True, fastmath=False)` on the same function where that compiles, else NPBench's variant,",
        "marked n; jax: NPBench's variants, 64 bits. The last columns are fxlite's time by that of the fastest of the",
        "three, and by that of the same loops written by hand in C, and the seconds that the first call took longer",
        "(from an empty cache in the first row of a program). A program whose arguments are all Python's numbers is",
        "computed while it is built: it is *constant*, and not in the means.",
        "",
        f"Other programs used {load:.1f} cores before the run; {noisy} of {len(rows)} rows are noisy (with one thread:",
        "processor times).",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "|".join("---" if h in ("program", "size", "") else "--:" for h in HEADINGS) + "|",
    ]
    for row in rows:
        made = cells(row)
        if row.forms.get("numba", "plain") != "plain":
            made[HEADINGS.index("numba ms")] += " n"
        text.append("| " + " | ".join(made) + " |")
    missing = sorted({(r.program, e, w) for r in rows for e, w in r.failed.items() if w and e != HAND})
    text += ["", "Without a time:", "", *(f"- {program}, {e}: {why}" for program, e, why in missing), ""]
    text += ["`python -m tests.benchmarks.numpy_programs --output docs/benchmarks_numpy.md` writes this page.", ""]
    return "\n".join(text)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.numpy_programs", description=(__doc__ or "").partition("\n")[0]
    )
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("names", nargs="*", help="programs (all)")
    parser.add_argument("--engines", type=words, default=list(ENGINES), help="such as numpy,fxlite")
    parser.add_argument("--sizes", type=words, default=["S", "M"], help="of NPBench, or small (S,M)")
    parser.add_argument("--threads", type=words, default=["1", "2"], help="such as 1,2")
    parser.add_argument("--seconds", type=float, default=0.05, help="of one block")
    parser.add_argument("--rounds", type=int, default=7, help="rounds at most")
    parser.add_argument("--budget", type=float, default=15, help="seconds of a row, about")
    parser.add_argument("--patience", type=float, default=300, help="seconds of a row at most")
    parser.add_argument("--output", type=Path, help="write the page as Markdown")
    parser.add_argument("--save", type=Path, help="add what was measured, as JSON lines")
    parser.add_argument("--load", type=Path, help="measure nothing: rows that were saved")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        name, size, threads = options.one.split(":")
        print(json.dumps(asdict(measure(name, size, int(threads), options))))
        return []
    load = 0.0 if options.load else foreign_load()
    rows = _loaded(options.load) if options.load else []
    output = Console() if Console().is_terminal else Console(width=160)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        names = [] if options.load else options.names or npbench.names()
        if not names and not options.load:
            parser.error(f"there are no programs in {npbench.FOLDER}; FXLITE_NPBENCH says where they are")
        todo = [(s, int(t), n) for n in names for s in options.sizes for t in options.threads]
        for size, threads, name in todo:
            row = measured(name, size, threads, options, Path(folder))
            rows.append(row)
            output.print(*cells(row), sep="  ")
            if options.save:
                with options.save.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    output.print(table(rows))
    for line in summary(rows):
        output.print(line)
    if options.output:
        options.output.write_text(markdown(rows, load))
    return rows


def _loaded(path: Path) -> list[Row]:
    """The last row of each program, size and number of threads that was saved."""
    rows = [Row(**json.loads(line)) for line in path.read_text().splitlines()]
    return list({(r.program, r.size, r.threads): r for r in rows}.values())


if __name__ == "__main__":
    main()
