"""The page of the benchmark of quantized models, as Markdown and for the terminal.

In: rows of :mod:`tests.benchmarks.results`. Out: docs/benchmarks_quantized.md: times beside the
best peer and beside fxlite's float32, why, accuracy, sizes on the disk, memory, first results,
what falls short and what failed, and how it was measured.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
from collections.abc import Iterator, Sequence

from rich.table import Table

from tests.benchmarks.machine import machine, paragraphs, versions
from tests.benchmarks.page import (
    by_engine,
    failures,
    first_cell,
    grid,
    how_long,
    memory_cell,
    noise,
    our_columns,
    ratio_cell,
    ratio_heading,
    ratio_table,
    time_cell,
)
from tests.benchmarks.quantized_files import BATCHES
from tests.benchmarks.results import Row, mean_ratio, threads_text

FLOAT, STATIC, DYNAMIC = "fxlite float32", "fxlite static", "fxlite dynamic"
#: The geometric mean of the ratios to the best int8 peer, at most; how many times faster an int8
#: recommender is than its float32, at least.
WANTED_MEAN, WANTED_GAIN = 0.80, 3.3
PACKAGES = ("torch", "onnxruntime", "openvino", "nncf", "numpy")


def gain(row: Row, engine: str) -> float | None:
    """How many times faster a column is than fxlite's float32."""
    if engine == FLOAT or not (row.ran(engine) and row.ran(FLOAT)):
        return None
    return row.comparison.speedup(engine, FLOAT)


def _gain_cell(row: Row, engine: str) -> str:
    found = gain(row, engine)
    return "–" if found is None else f"{found:.2f}×"


def _compared(engines: Sequence[str]) -> list[str]:
    """The columns that have peers."""
    return [engine for engine in (STATIC, DYNAMIC) if engine in engines]


def table(rows: Sequence[Row], engines: Sequence[str]) -> Table:
    """For the terminal."""
    compared = _compared(engines)
    return ratio_table("quantized, ms", rows, engines, compared, lambda row, engine: WANTED_MEAN)


def markdown(rows: Sequence[Row], engines: Sequence[str], options: argparse.Namespace, load: float) -> str:
    """The whole page."""
    ours, compared = our_columns(engines), _compared(engines)
    integer = [engine for engine in ours if engine != FLOAT]
    threads = sorted({row.threads for row in rows})
    cold = [row for row in rows if row.cold]
    lines = paragraphs(
        "# Benchmarks: quantized models",
        "fxlite's C of integer graphs beside the run-times people use for them: the same float "
        "weights, the same calibration data, the same inputs, in turns. A ratio is fxlite's time "
        "by that of the **best** int8 peer, static or dynamic: below 1 fxlite is faster than all "
        "of them.",
        f"{machine()}; {datetime.date.today().isoformat()}; {versions(*PACKAGES)}.",
        "## In short",
        _means(rows, compared, threads),
    )
    for count in threads:
        chosen = [row for row in rows if row.threads == count]
        lines += paragraphs(
            f"## Milliseconds of a call, {threads_text(count)}",
            grid(
                ("workload", *engines, *map(ratio_heading, compared), ""),
                [
                    [
                        row.workload,
                        *(time_cell(row, e) for e in engines),
                        *(ratio_cell(row, e) for e in compared),
                        noise(row),
                    ]
                    for row in chosen
                ],
            ),
            f"Times faster than fxlite's float32, {threads_text(count)}:",
            by_engine(chosen, integer, _gain_cell),
        )
    lines += paragraphs(
        "## Why",
        f"Of *{STATIC}*: which roof binds its kernels (each kernel reads its inputs once and "
        "writes its result), how much of it the call reaches, and the kernel that loses most, "
        "with its own part of the roof.",
        grid(("workload", "threads", "why"), [[row.workload, str(row.threads), row.why] for row in rows], left=(2,)),
        "## Accuracy",
        "Signal-to-noise ratio in dB, and the largest difference as a part of the largest value, "
        "against the float model in float64. Weights are random (in trained models a few layers "
        "lose most; [tutorial 7](../tutorials/07_quantize.py) finds them).",
        by_engine(cold, engines, _accuracy),
        "## Size",
        "Megabytes of the model's files: fxlite's `.fxl`, ONNX, OpenVINO's IR, torch's state "
        "dict. In parentheses: times smaller than fxlite's float32.",
        by_engine(cold, engines, _size),
        "## Memory",
        "Megabytes: the most that was resident in the engine's process while it built the program "
        "and ran it, less what was resident after its imports. torch quantizes in that process.",
        by_engine(cold, engines, memory_cell),
        "## First result",
        "Seconds from the model's file to its first result, imports excluded, with empty caches.",
        by_engine(cold, engines, first_cell),
        "## Where it falls short",
        [f"- {text}." for text in shortfalls(rows, compared)] or ["Nothing that was wanted."],
        "## What failed",
        failures(rows) or ["Nothing."],
        "## How it was measured",
        _method(options, load),
        "Made by `python -m tests.benchmarks.quantized --output docs/benchmarks_quantized.md`.",
    )
    return "\n".join(lines)


def _means(rows: Sequence[Row], compared: Sequence[str], threads: Sequence[int]) -> Iterator[str]:
    for count in threads:
        chosen = [row for row in rows if row.threads == count]
        for engine in compared:
            found = mean_ratio(chosen, engine)
            text = (
                "no int8 peer"
                if found is None
                else (
                    f"**{found[0]:.2f}** of the best int8 peer's time over {found[1]} workloads "
                    f"(geometric mean; wanted ≤ {WANTED_MEAN:.2f})"
                )
            )
            gains = [times for row in chosen if (times := gain(row, engine)) is not None]
            faster = f"; {statistics.geometric_mean(gains):.2f} times faster than its float32" if gains else ""
            yield f"- {engine}, {threads_text(count)}: {text}{faster}."


def shortfalls(rows: Sequence[Row], compared: Sequence[str]) -> Iterator[str]:
    """Everything wanted that was not reached, one sentence each."""
    for row in rows:
        place = f"{row.workload}, {threads_text(row.threads)}"
        for engine in compared:
            ratio = row.ratio(engine)
            if not row.ran(engine):
                yield f"{place}: {engine} has no time: {row.cells[engine].failed}"
            elif ratio is not None and ratio > 1:
                yield f"{place}: {engine} takes {ratio:.2f} of {row.best_peer(engine)}'s time"
        times = gain(row, STATIC)
        if row.workload.startswith("recommender") and times is not None and times < WANTED_GAIN:
            yield f"{place}: {times:.2f} times faster than float32, wanted ≥ {WANTED_GAIN}"


def _accuracy(row: Row, engine: str) -> str:
    first = row.cells[engine].first
    return "–" if first is None else f"{first.sqnr:.1f} ({first.error:.0e})"


def _size(row: Row, engine: str) -> str:
    first, whole = row.cells[engine].first, row.cells.get(FLOAT)
    if first is None or math.isnan(first.megabytes):
        return "–"
    text = f"{first.megabytes:.1f}" if first.megabytes >= 1 else f"{first.megabytes:.2f}"
    if whole is None or whole.first is None or engine == FLOAT:
        return text
    return f"{text} ({whole.first.megabytes / first.megabytes:.1f})"


def _method(options: argparse.Namespace, load: float) -> list[str]:
    return [
        *how_long(options, load),
        f"- {BATCHES} batches for calibration: the numbers of the inputs, which are drawn "
        "independently of each other, in other places.",
        "- fxlite: `static_int8()` (u8 per tensor, squared-error ranges), `dynamic_int8()`, "
        "`weight_only_int8()`, `weight_only_int4()` (groups of 32) for the whole model. Of "
        "weights alone in integers, convolutions are stored so and computed as floats.",
        "- ONNX Runtime: torch's export after `quant_pre_process`; `quantize_static` (QDQ, u8 "
        "activations, i8 weights per channel, ranges of the data) and `quantize_dynamic` (per "
        "channel).",
        "- OpenVINO: `nncf.quantize` of the same export (`TRANSFORMER` for BERT); what stays float "
        "runs in the precision that it chooses itself.",
        "- torch: `quantize_fx` with the configs for x86 (eager mode of its C++ kernels), and "
        "`quantize_dynamic` of linear layers. The quantizers that go through torch.compile are in "
        "torchao, which is not measured.",
        "- Weights alone in integers (`weights`) have no peers here: they are for models that wait for memory.",
    ]
