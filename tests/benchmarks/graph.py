"""Speed of the graph itself: fxlite beside torch.fx and onnx-ir in one run.

    pip install -e ".[bench]"
    python -m tests.benchmarks.graph --output docs/benchmarks_graph.md

``--large`` adds a chain of a million nodes (20 GB of memory and ten minutes), ``--only`` chooses
rows and ``--workloads`` workloads. The toolkits run in one process, pinned to one core, and take
turns (see ``timing.py``). What each row does is in ``graph_tasks.py``.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks import type_inference
from tests.benchmarks.graph_tasks import EDITS, TOOLKITS, Task, Workload, bytes_held
from tests.benchmarks.machine import choose_cores, foreign_load, machine, paragraphs, versions
from tests.benchmarks.timing import Block, Comparison, Timing, busy_seconds

OURS, PEER = "fxlite", "torch.fx"
PACKAGES = ("torch", "onnx_ir", "onnxscript", "numpy")

#: Row -> the ratio to torch.fx that is wanted at 10 000 nodes; None: shown for itself.
WANTED: dict[str, float | None] = {
    "trace": 0.35,
    "copy graph": 0.25,
    "copy module": 0.25,
    "dead code": 0.3,
    "lint, full": None,
    f"lint after {EDITS} edits": 1.5,
    "recompile": None,
    "recompile + first call": 0.7,
    "pickle out": 0.3,
    "pickle in": 0.1,
    "save": 0.3,
    "load": 0.1,
    "rewrite": 0.05,
    "str": None,
    "parse": None,
    "pipeline, checked": 1.2,
    "memory": 0.35,
}

WORKLOADS = {
    "resnet50": Workload("resnet50"),
    "bert": Workload("bert"),
    "chain 1k": Workload("chain 1k", 1_000),
    "chain 10k": Workload("chain 10k", 10_000),
    "chain 100k": Workload("chain 100k", 100_000),
    "chain 1M": Workload("chain 1M", 1_000_000),
}


@dataclass(frozen=True)
class Row:
    """One line: the unit's value per node of each toolkit, and fxlite's ratio to the peer (in the
    row of the pipeline: of the checked one to the unchecked). ``nodes`` are those of torch.fx's
    graph, or of fxlite's where torch.fx is left out, so that the values of a row compare."""

    workload: str
    name: str
    values: dict[str, float]
    ratio: float | None
    wanted: float | None
    nodes: int
    is_noisy: bool = False

    @property
    def verdict(self) -> str:
        """What a reader looks for: won or lost against the wanted ratio."""
        if self.ratio is None or self.wanted is None:
            return ""
        return "ok" if self.ratio <= self.wanted else "LOSS"

    def cells(self) -> list[str]:
        values = [number(self.values[t]) if t in self.values else "–" for t in TOOLKITS]
        ratio = "–" if self.ratio is None else f"{self.ratio:.3f}"
        wanted = "" if self.wanted is None else f"≤ {self.wanted:g}"
        noisy = ", noisy" if self.is_noisy else ""
        return [self.workload, self.name, *values, ratio, wanted, self.verdict + noisy]


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# -- measuring -------------------------------------------------------------------------------------
@dataclass
class Race:
    """Toolkits that take turns at one row."""

    tasks: dict[str, Task]
    timings: dict[str, Timing] = field(default_factory=dict)

    def run(self, seconds: float, rounds: int) -> Comparison:
        """Rounds of about ``seconds`` for each toolkit; one round where that takes a minute."""
        names = list(self.tasks)
        self.timings = {name: Timing() for name in names}
        begin = time.perf_counter()
        for turn in range(rounds):
            if turn and time.perf_counter() - begin > 20:
                break
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                self.timings[name].blocks.append(block(self.tasks[name], seconds))
        return Comparison(self.timings, threads=1)


def block(task: Task, seconds: float) -> Block:
    """Repeat for about ``seconds`` of work, at least once, but no longer than four times that with
    the preparations. The garbage collector works as it does for
    users; what is alive already is out of its sight, so that no toolkit pays for another."""
    durations: list[float] = []
    processor = foreign = 0.0
    gc.collect()
    begin = time.perf_counter()
    while not durations or (sum(durations) < seconds and time.perf_counter() - begin < 4 * seconds):
        prepared = task.prepare()
        gc.collect()
        gc.freeze()
        busy, own, start = busy_seconds(), time.process_time(), time.perf_counter()
        result = task.work(prepared)
        durations.append(time.perf_counter() - start)
        used = time.process_time() - own
        processor += used
        foreign += max(0.0, busy_seconds() - busy - used)
        del result, prepared
    gc.unfreeze()
    spent = sum(durations)
    count = len(durations)
    others = foreign / spent if spent > 0.1 else 0.0  # the system counts in hundredths of a second
    return Block(statistics.median(durations), processor / count, count, others)


def measure(
    workload: Workload, toolkits: list[str], options: argparse.Namespace, tick: Callable[[str], Any]
) -> list[Row]:
    """The rows of one workload."""
    tasks: dict[str, dict[str, Task]] = {}
    nodes = 0
    for toolkit in toolkits:
        tasks[toolkit], count = TOOLKITS[toolkit][0](workload)
        if toolkit in (OURS, PEER):
            nodes = count
    rows = []
    for name, wanted in WANTED.items():
        tick(name)
        racing = {toolkit: found[name] for toolkit, found in tasks.items() if name in found}
        if (options.only and name not in options.only) or OURS not in racing:
            continue
        if name == "memory":
            rows.append(memory_row(workload, racing, nodes))
            continue
        peer = PEER
        if name == "pipeline, checked":
            peer = "unchecked"
            racing[peer] = tasks[OURS]["pipeline, unchecked"]
        result = Race(racing).run(options.seconds, options.rounds)
        values = {t: result.seconds(t) / nodes * 1e6 for t in racing}
        ratio = result.speedup(peer, OURS) if peer in racing else None
        rows.append(Row(workload.name, name, values, ratio, wanted, nodes, result.is_noisy))
    return rows


def memory_row(workload: Workload, tasks: dict[str, Task], nodes: int) -> Row:
    """Bytes per node that a traced graph keeps."""
    values = {toolkit: bytes_held(task) / nodes for toolkit, task in tasks.items()}
    ratio = values[OURS] / values[PEER] if PEER in values else None
    return Row(workload.name, "memory", values, ratio, WANTED["memory"], nodes)


# -- output ----------------------------------------------------------------------------------------
HEADINGS = ["workload", "row", *(f"{t} µs" for t in TOOLKITS), "ratio", "wanted", ""]


def table(rows: list[Row]) -> Table:
    """For the terminal; a ratio as wanted is green, a loss red."""
    made = Table(title="µs per node (memory: bytes per node)", header_style="bold")
    for position, heading in enumerate(HEADINGS):
        made.add_column(heading, justify="right" if 1 < position < 7 else "left")
    for position, row in enumerate(rows):
        cells = row.cells()
        if row.verdict:
            colour = "green" if row.verdict == "ok" else "red"
            cells[-3] = f"[{colour}]{cells[-3]}[/]"
        is_last = position + 1 < len(rows) and rows[position + 1].workload != row.workload
        made.add_row(*cells, end_section=is_last)
    return made


def markdown(rows: list[Row], options: argparse.Namespace, load: float, inference: Sequence[str] = ()) -> str:
    """The table, the losses by name, and how it was measured, as a page."""
    align = "".join(" ---: |" if 1 < n < 6 else " --- |" for n in range(len(HEADINGS)))
    losses = [r for r in rows if r.verdict == "LOSS"]
    found = [f"- {r.workload}, {r.name}: {r.ratio:.2f}, wanted ≤ {r.wanted:g}." for r in losses if r.ratio is not None]
    lines = paragraphs(
        "# Benchmarks: the graph itself",
        [
            "Microseconds per node, the median (*memory*: bytes per node); smaller is better. *ratio* is "
            "fxlite's time by",
            "torch.fx's, *wanted* what it should be at 10 000 nodes. fxlite traces with types, locations and scopes,",
            "torch.fx and onnx-ir without shapes.",
        ],
        ["| " + " | ".join(HEADINGS) + " |", "|" + align, *("| " + " | ".join(row.cells()) + " |" for row in rows)],
        "## Losses",
        found or ["None of the wanted ratios is missed."],
    )
    lines += inference
    lines += paragraphs(
        "## What is measured",
        [
            "- A row's values are times of the whole program divided by one number of nodes, that of torch.fx's graph.",
            "- chains: `relu(x) + 1` again and again; resnet50 and bert (12 layers): the same modules "
            "with few channels, in evaluation mode.",
            "- trace: onnx-ir has no tracer, it builds the chain node by node. It takes part in the chains only.",
            "- dead code: one node in ten is dead. lint after edits: torch.fx always checks the whole graph.",
            "- save, load: fxlite's file format, which is data and is checked while reading; torch.fx "
            "is its pickle, onnx-ir its protobuf.",
            "- rewrite: `replace_pattern` of `relu(x) + 1` by `sigmoid(x)`, every pair of nodes. "
            "torch.fx is left out above 10 000 nodes, where its time grows with the square of the "
            "matches; onnx-ir uses onnxscript's rewriter.",
            "- pipeline: simplify, cse, dce; its ratio is that of the checked one to the unchecked.",
            "- memory: what `tracemalloc` counts after a garbage collection.",
        ],
        "## How",
        [
            f"- {machine()}; {datetime.date.today().isoformat()}. {versions(*PACKAGES)}.",
            f"- One process on one core; rounds of {options.seconds:g} s for each toolkit in turns, "
            f"{options.rounds} of them (one where a round takes longer than 20 s), garbage collector "
            "on.",
            f"- Before the start other programs used {load:.2f} cores. Rounds in which they used more "
            "than 0.15 are left out; where too few are quiet the row says *noisy* and its values are "
            "processor times.",
        ],
        "Made by `python -m tests.benchmarks.graph --output docs/benchmarks_graph.md`.",
    )
    return "\n".join(lines)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    usual = [name for name in WORKLOADS if name != "chain 1M"]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.graph", description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=usual)
    parser.add_argument("--only", nargs="+", choices=list(WANTED), help="rows")
    parser.add_argument("--toolkits", nargs="+", choices=list(TOOLKITS), default=list(TOOLKITS))
    parser.add_argument("--large", action="store_true", help="a chain of a million nodes too")
    parser.add_argument("--seconds", type=float, default=0.1, help="of one toolkit in one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the table as Markdown")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[Row]:
    options = parse(arguments)
    console = Console()
    console = console if console.is_terminal else Console(width=110)
    toolkits = []
    for name in options.toolkits:
        if importlib.util.find_spec(TOOLKITS[name][1]):
            toolkits.append(name)
        else:
            console.print(f'{name} is not installed and left out: pip install "fxlite[bench]"')
    names = options.workloads + ["chain 1M"] * (options.large and "chain 1M" not in options.workloads)
    load = foreign_load()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, choose_cores(1))
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 100_000))  # torch.fx pickles recursively
    rows: list[Row] = []
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=len(names) * len(WANTED))
        for name in names:
            tick = lambda row, name=name: progress.update(  # noqa: E731
                bar, advance=1, description=f"{name}: {row}"
            )
            rows += measure(WORKLOADS[name], toolkits, options, tick)
            progress.console.print(f"{name}: measured")
    inferred = type_inference.measured_rows(options.rounds)
    if cores:
        os.sched_setaffinity(0, cores)
    console.print(table(rows))
    console.print(type_inference.table(inferred))
    if options.output is not None:
        section = type_inference.markdown(inferred)
        options.output.write_text(markdown(rows, options, load, section))
        console.print(f"written: {options.output}")
    return rows


if __name__ == "__main__":
    main()
