"""The page of the inference benchmark, as Markdown and for the terminal.

In: rows of :mod:`tests.benchmarks.results`. Out: docs/benchmarks.md: times by number of threads,
why, errors, first results, memory, where fxlite falls short, what failed, and how it was measured.
"""

from __future__ import annotations

import argparse
import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from tests.benchmarks.engines import find_engine
from tests.benchmarks.machine import machine, paragraphs, versions
from tests.benchmarks.results import OURS, WANTED_MEAN, Row, mean_ratio, shortfalls, threads_text

PACKAGES = ("torch", "onnxruntime", "openvino", "jax", "numpy")


def milliseconds(seconds: float) -> str:
    """Three digits."""
    value = seconds * 1e3
    digits = 3 if value < 1 else 2 if value < 10 else 1
    return f"{value:.{digits}f}"


def time_cell(row: Row, engine: str) -> str:
    """A time in milliseconds, or in a few words why there is none."""
    if row.ran(engine):
        return milliseconds(row.seconds(engine))
    failed = row.cells[engine].failed
    is_known = failed.startswith(("not installed", "not prepared", "wrong result"))
    return failed.partition(":")[0] if is_known else f"fails: {failed.partition(':')[0]}"


def ratio_cell(row: Row, ours: str) -> str:
    """The ratio to the best peer."""
    ratio = row.ratio(ours)
    return "–" if ratio is None else f"{ratio:.2f}"


def noise(row: Row) -> str:
    """What to know of the times."""
    if not row.comparison.engines or not row.comparison.is_noisy:
        return ""
    return "noisy, processor time" if row.comparison.uses_processor_time else "noisy"


def our_columns(engines: Sequence[str]) -> list[str]:
    """The columns that are fxlite."""
    return [engine for engine in engines if find_engine(engine).is_ours]


def ratio_heading(ours: str) -> str:
    return f"{ours} / best peer"


def table(rows: Sequence[Row], engines: Sequence[str]) -> Table:
    """For the terminal."""
    return ratio_table("inference, ms", rows, engines, our_columns(engines), Row.wanted)


def ratio_table(
    title: str,
    rows: Sequence[Row],
    engines: Sequence[str],
    compared: Sequence[str],
    wanted: Callable[[Row, str], float],
) -> Table:
    """Times of ``engines``, and ratios of the ``compared`` to their best peer, for the terminal:
    green if at most what was ``wanted``, else red."""
    made = Table(title=title, header_style="bold")
    made.add_column("workload")
    for heading in ("threads", *engines, *map(ratio_heading, compared)):
        made.add_column(heading, justify="right")
    made.add_column("")
    for row in rows:
        ratios = []
        for engine in compared:
            ratio = row.ratio(engine)
            is_wanted = ratio is not None and ratio <= wanted(row, engine)
            ratios.append(f"[{'green' if is_wanted else 'red'}]{ratio_cell(row, engine)}[/]")
        times = [time_cell(row, engine) for engine in engines]
        made.add_row(row.workload, str(row.threads), *times, *ratios, noise(row))
    return made


def markdown(rows: Sequence[Row], engines: Sequence[str], options: argparse.Namespace, load: float) -> str:
    """The whole page."""
    ours = our_columns(engines)
    threads = sorted({row.threads for row in rows})
    cold = [row for row in rows if row.cold]
    lines = paragraphs(
        "# Benchmarks: inference",
        "This page compares fxlite's C with other run-times: the same weights and the same inputs, "
        "measured in turns. A ratio is fxlite's time divided by that of the **best** peer of the same "
        "accuracy class. Below 1, fxlite is faster than all of them.",
        f"{machine()}; {datetime.date.today().isoformat()}; {versions(*PACKAGES)}.",
        "## In short",
        _means(rows, ours, threads),
    )
    for count in threads:
        chosen = [row for row in rows if row.threads == count]
        lines += [
            f"## Milliseconds of a call, {threads_text(count)}",
            "",
            *grid(
                ("workload", *engines, *map(ratio_heading, ours), ""),
                [
                    [
                        row.workload,
                        *(time_cell(row, e) for e in engines),
                        *(ratio_cell(row, e) for e in ours),
                        noise(row),
                    ]
                    for row in chosen
                ],
            ),
            "",
        ]
    lines += paragraphs(
        "## Why",
        "For each workload: which roof limits fxlite's kernels (each kernel reads its inputs once and "
        "writes its result), how much of it the call reaches, and the kernel that loses the most time, "
        "with the part of the roof that it reaches. More than 100% means that there are fewer products "
        "than in the definition (Winograd), or that the roof was measured while other programs ran.",
        grid(("workload", "threads", "why"), [[row.workload, str(row.threads), row.why] for row in rows], left=(2,)),
        "## Error",
        "The largest difference from a float64 result, as a part of the largest value. For several "
        "results, the worst one counts.",
        by_engine(cold, engines, lambda row, e: _error(row, e)),
        "## First result",
        "Seconds from a model in memory to its first result, without imports and with empty caches; for "
        "fxlite this is tracing, passes and the C compiler. *cached* is the same again in a new process. "
        "ONNX Runtime and OpenVINO start from an ONNX file, and writing it is not counted. fxlite's "
        "weights are mapped from their file. torch.compile's run with freezing can use a precompiled "
        "header from the run before.",
        grid(
            ("workload", *engines, f"{OURS}, cached"),
            [[row.workload, *(first_cell(row, e) for e in engines), _cached(row)] for row in cold],
        ),
        "## Memory",
        "Megabytes: the peak of resident memory of the engine's process while it built the program and "
        "ran it (`VmHWM`; for fxlite with its cache), minus what was resident after its imports. The "
        "model's weights are included as far as they are resident; compilers that run as separate "
        "processes are not.",
        by_engine(cold, engines, lambda row, e: memory_cell(row, e)),
        "## Where it falls short",
        [f"- {text}." for text in shortfalls(rows, ours)] or ["Nothing that was wanted."],
        "## What failed",
        failures(rows) or ["Nothing."],
        "## How it was measured",
        _method(options, load),
        "Made by `python -m tests.benchmarks.inference --output docs/benchmarks.md`.",
    )
    return "\n".join(lines)


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """A Markdown table; the first column and those of ``left`` are text, the others numbers."""
    marks = [" --- " if n == 0 or n in left else " ---: " for n in range(len(headings))]
    return [f"| {' | '.join(headings)} |", f"|{'|'.join(marks)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def by_engine(rows: Sequence[Row], engines: Sequence[str], cell: Callable[[Row, str], str]) -> list[str]:
    return grid(("workload", *engines), [[row.workload, *(cell(row, e) for e in engines)] for row in rows])


def _means(rows: Sequence[Row], ours: Sequence[str], threads: Sequence[int]) -> list[str]:
    lines = []
    for engine in ours:
        for count in threads:
            chosen = [row for row in rows if row.threads == count]
            found = mean_ratio(chosen, engine)
            if found is None:
                lines.append(f"- {engine}, {threads_text(count)}: no peer of its accuracy class.")
                continue
            mean, number = found
            missed = [r for r in chosen if (q := r.ratio(engine)) and q > r.wanted(engine)]
            above = f"{len(missed)} above the ratio wanted for them" if missed else "all as wanted"
            lines.append(
                f"- {engine}, {threads_text(count)}: geometric mean "
                f"**{mean:.2f}** over {number} workloads (wanted ≤ {WANTED_MEAN[engine]:.2f}), "
                f"{above}."
            )
    return lines


def _error(row: Row, engine: str) -> str:
    first = row.cells[engine].first
    return "–" if first is None else f"{first.error:.0e}"


def first_cell(row: Row, engine: str) -> str:
    first = row.cells[engine].first
    return "–" if first is None else f"{first.seconds:.2f}"


def _cached(row: Row) -> str:
    seconds = row.cells[OURS].cached_seconds
    return "–" if seconds is None else f"{seconds:.2f}"


def memory_cell(row: Row, engine: str) -> str:
    megabytes = row.cells[engine].memory
    return "–" if math.isnan(megabytes) else f"{megabytes:.0f}"


def failures(rows: Sequence[Row]) -> list[str]:
    """Each kind of failure once, with the workloads it met."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for engine, cell in row.cells.items():
            if cell.failed:
                found.setdefault((engine, cell.failed), []).append(f"{row.workload} ({row.threads})")
    return [f"- {engine}: {text} — on {', '.join(places)}." for (engine, text), places in found.items()]


def _method(options: argparse.Namespace, load: float) -> list[str]:
    lines: list[Any] = [
        *how_long(options, load),
        "- fxlite, ONNX Runtime and OpenVINO take and give NumPy arrays, torch tensors (eager and "
        "compiled by inductor in inference mode), JAX its arrays (convolutions in NHWC). ONNX "
        "Runtime and OpenVINO run torch's export (opset 17), with all graph optimizations.",
        "- All compile for the shapes of the inputs; *ragged* (eight sentences of different "
        "lengths, padded) is compiled for any batch and length where an engine can.",
        "- *f32* and *bf16* are the accuracy classes: what an engine says it computes products in. "
        "OpenVINO without a hint chooses itself. *high* and *medium* of fxlite have a column where "
        "they are computed otherwise than *highest*.",
        "- digits and minilm have their trained weights, the others random ones; bert is BERT-base "
        "with a table of 1,000 words, gpt2 GPT-2 small; decoding adds one token to 512.",
        "- matmul is `x @ weight.T` with square matrices; it is not part of the mean.",
    ]
    return lines


def how_long(options: argparse.Namespace, load: float) -> list[str]:
    """What was repeated how often, and what noise does."""
    return [
        f"- Every engine and workload ran in a process of its own, pinned to as many cores as threads: "
        f"blocks of {options.seconds:g} s, at least three calls each, in turns, {options.rounds} "
        f"to {options.most} rounds. Values are medians.",
        f"- Rounds in which other programs used more than 0.15 cores are left out. If too few rounds "
        "are quiet, the noisiest half is left out instead, and the row says *noisy*; with one thread, "
        f"its times are then processor times. Before the start other programs used {load:.2f} cores.",
    ]
