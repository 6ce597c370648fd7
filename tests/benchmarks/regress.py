"""Two checkouts of fxlite in turns, in one run: has anything become slower or quicker?

    python -m tests.benchmarks.regress BEFORE AFTER [--kinds inference graph] [--only resnet]

In: two folders with a checkout each. Out: a table of ratios, AFTER's median time by BEFORE's, with
their quartiles over the rounds, and geometric means. Each side is a process of its own that runs
this file with its checkout first on the path: it prepares the workload with that checkout's
benchmarks, builds it with an empty cache (the column "build"), and then the two take turns on the
same cores (:mod:`tests.benchmarks.timing`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIDES = ("before", "after")
#: Kind -> its forms: engines of the benchmarks, or the rows of the one of graphs.
FORMS = {
    "inference": ("fxlite highest", "fxlite medium"),
    "quantized": ("fxlite static", "fxlite dynamic", "fxlite weights int8"),
    "graph": ("fxlite",),
}
#: Workloads of the kind "graph"; the other kinds take those of their benchmarks.
GRAPHS = ("resnet50", "bert", "chain 1k", "chain 10k")
#: Rows of the benchmark of graphs that count bytes and not seconds.
NOT_TIMED = ("memory",)


@dataclass(frozen=True)
class Measured:
    """A line of the table: what was measured, the ratio of AFTER to BEFORE with its quartiles,
    BEFORE's seconds of a call, and the ratio of the first builds (None: there is nothing to
    build)."""

    kind: str
    name: str
    ratio: float
    low: float
    high: float
    seconds: float
    build: float | None
    noisy: bool


class Side:
    """A process with one workload of one checkout. Raises RuntimeError with what it said where it
    ends early."""

    def __init__(self, checkout: Path, order: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--serve", json.dumps(order)],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: Any = None) -> Any:
        """The answer to a request; None waits for the one that is due."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if request is not None:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# -- in the processes ------------------------------------------------------------------------------
def serve(order: dict[str, Any]) -> None:
    """Prepare, say how long the first call took and which rows there are, then answer each row's
    name with a block of repetitions."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed while working goes to the error stream
    os.sched_setaffinity(0, order["cores"])
    rows, build = (_graph_rows if order["kind"] == "graph" else _compiled_rows)(order)
    print(json.dumps([sorted(rows), build]), file=answers, flush=True)
    for line in sys.stdin:
        row, seconds = json.loads(line)
        found = rows[row](seconds)
        values = found.seconds, found.processor, found.repetitions, found.foreign
        print(json.dumps(values), file=answers, flush=True)


def _compiled_rows(order: dict[str, Any]) -> tuple[dict[str, Callable[[float], Any]], float]:
    from tests.benchmarks import quantized_files, workloads
    from tests.benchmarks.engines import find_engine
    from tests.benchmarks.timing import block

    folder, engine = Path(order["folder"]), find_engine(order["form"])
    job = workloads.Job(order["workload"], folder)
    if not folder.exists():
        prepare = quantized_files.prepare if order["kind"] == "quantized" else workloads.prepare
        prepare(order["workload"], folder, with_onnx=False)
    build = engine.open(job, order["threads"])
    start = time.perf_counter()
    loaded = build()
    loaded.call()
    seconds = time.perf_counter() - start
    return {"": lambda seconds: block(loaded.call, seconds)}, seconds


def _graph_rows(order: dict[str, Any]) -> tuple[dict[str, Callable[[float], Any]], None]:
    from tests.benchmarks.graph import WORKLOADS, block
    from tests.benchmarks.graph_tasks import fxlite_tasks

    tasks, _ = fxlite_tasks(WORKLOADS[order["workload"]])
    rows = {name: task for name, task in tasks.items() if name not in NOT_TIMED}
    return {n: lambda seconds, task=task: block(task, seconds) for n, task in rows.items()}, None


# -- the race --------------------------------------------------------------------------------------
def race(checkouts: dict[str, Path], order: dict[str, Any], options: argparse.Namespace) -> Iterable[Measured]:
    """Both sides on one workload; yields a line for each of its rows."""
    from tests.benchmarks.timing import Block, compare

    sides: dict[str, Side] = {}
    try:
        ready: dict[str, Any] = {}
        for side, checkout in checkouts.items():  # one after the other: the builds are timed
            folder = str(Path(order["folder"]) / side)
            sides[side] = Side(checkout, {**order, "folder": folder})
            ready[side] = sides[side].ask()
        builds = [ready[side][1] for side in SIDES]
        for row in (r for r in ready["before"][0] if r in ready["after"][0]):
            blocks = {s: lambda s=s, row=row: Block(*sides[s].ask([row, options.seconds])) for s in SIDES}
            found = compare(blocks, order["threads"], options.rounds, options.most)
            ratios = sorted(1 / r for r in found.speedups("after", "before"))
            low, _, high = statistics.quantiles(ratios) if len(ratios) > 1 else ratios * 3
            name = ", ".join(p for p in (order["workload"], order["form"], row) if p)
            yield Measured(
                order["kind"],
                f"{name}, {order['threads']}",
                statistics.median(ratios),
                low,
                high,
                found.seconds("before"),
                builds[1] / builds[0] if builds[0] else None,
                found.is_noisy,
            )
    finally:
        for side in sides.values():
            side.close()


def orders(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """What to measure: kind, workload, form and threads."""
    from tests.benchmarks.quantized import NAMES
    from tests.benchmarks.workloads import workloads

    compiled = [name for name, found in workloads().items() if not found.missing]
    names = {"inference": compiled, "quantized": NAMES, "graph": GRAPHS}
    for kind in options.kinds:
        for name in names[kind]:
            for form in FORMS[kind]:
                if any(part in f"{name}, {form}" for part in options.only):
                    for threads in (1,) if kind == "graph" else options.threads:
                        yield {"kind": kind, "workload": name, "form": form, "threads": threads}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.regress", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--kinds", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PART",
        default=[""],
        help='lines such as "mlp B=1, fxlite static" that contain one of these',
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--seconds", type=float, default=0.1, help="of one block")
    parser.add_argument("--rounds", type=int, default=9, help="rounds at least")
    parser.add_argument("--most", type=int, default=15, help="rounds at most, if it is noisy")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[Measured]:
    from rich.console import Console
    from rich.table import Table

    from tests.benchmarks.machine import choose_cores, machine

    options = parse(arguments)
    checkouts = {s: getattr(options, s).resolve() for s in SIDES}
    for checkout in checkouts.values():
        if not (checkout / "tests" / "benchmarks" / "workloads.py").exists():
            raise SystemExit(f"{checkout} is no checkout of fxlite")
    console = Console(width=None if sys.stdout.isatty() else 110)
    rows: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="regress-") as folder:
        for number, order in enumerate(orders(options)):
            place = Path(folder) / f"{number}"
            given = {**order, "cores": choose_cores(order["threads"]), "folder": str(place)}
            for row in race(checkouts, given, options):
                rows.append(row)
                console.print(f"{row.kind}: {row.name}: {row.ratio:.3f}", highlight=False)
    table = Table(title=f"time of {checkouts['after'].name} by that of {checkouts['before'].name}")
    for heading in ("kind", "what, threads", "before ms", "ratio", "quartiles", "build", ""):
        table.add_column(heading, justify="left" if heading[:1] in "kw" else "right")
    for row in rows:
        table.add_row(
            row.kind,
            row.name,
            f"{row.seconds * 1e3:.3g}",
            f"{row.ratio:.3f}",
            f"{row.low:.3f}-{row.high:.3f}",
            "" if row.build is None else f"{row.build:.2f}",
            "noisy" if row.noisy else "",
        )
    console.print(table)
    for kind in dict.fromkeys(row.kind for row in rows):
        ratios = [row.ratio for row in rows if row.kind == kind]
        mean, worst = statistics.geometric_mean(ratios), max(ratios)
        console.print(f"{kind}: geometric mean {mean:.3f} of {len(ratios)}, largest {worst:.3f}")
    console.print(machine(), highlight=False)
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(json.loads(sys.argv[2]))
    else:
        main()
