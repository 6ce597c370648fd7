"""Speed of type inference with named dims: what a node costs whose type has to be found.

    python -m tests.benchmarks.type_inference

In: models traced with names for batch, length, height and width. Out: µs per call. *warm*: the op
has answered for such operands before, as most calls of a graph repeat others; *new types*: no op
has, but the sizes have occurred; *new sizes*: sympy and fxlite have seen no expression of them yet,
as in the first trace of a process.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from sympy.core.cache import clear_cache

import fxlite as fx
from fxlite.ops.op import REGISTRY
from fxlite.types.symbols import symbol
from tests import models
from tests.benchmarks import graph_models
from tests.benchmarks.machine import paragraphs

#: µs per node that are wanted, for a graph whose ops have not answered yet.
WANTED = 20.0

#: Name -> (program, types of its inputs)
GRAPHS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "bert": (models.Bert, ("i64[B,T]", "i64[B,T]")),
    "gpt_block": (models.GptBlock, ("f32[B,T,64]",)),
    "resnet18": (models.ResNet18, ("f32[B,3,H,W]",)),
    "unet": (models.UNet, ("f32[B,3,16*H,16*W]",)),
    "chain 10k": (lambda: graph_models.chain(fx.ops.relu, 10_000), ("f32[B,T]",)),
}


def forget_types() -> None:
    """No op has answered yet."""
    for op in REGISTRY.values():
        op._types.clear()


def forget_sizes() -> None:
    """Nor has anybody seen a size."""
    forget_types()
    clear_cache()
    for name, module in list(sys.modules.items()):
        if name in ("fxlite.types.shapes", "fxlite.types.symbols"):
            for value in vars(module).values():
                if hasattr(value, "cache_clear") and value is not symbol:  # named dims are compared by identity
                    value.cache_clear()


PREPARE: dict[str, Callable[[], None]] = {"warm": lambda: None, "new types": forget_types, "new sizes": forget_sizes}


def measure(name: str, rounds: int = 9) -> tuple[int, dict[str, float]]:
    """Calls in the graph, and µs per call for each preparation, medians."""
    make, types = GRAPHS[name]
    program = make()
    if isinstance(program, fx.nn.Module):
        program.eval()
    gm = fx.symbolic_trace(program, *types)
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    found: dict[str, float] = {}
    for what, prepare in PREPARE.items():
        durations = []
        for _ in range(rounds):
            prepare()
            gc.collect()
            begin = time.process_time()
            for node in calls:
                node.target.type_of_call(node._args, node._kwargs)
            durations.append(time.process_time() - begin)
        found[what] = statistics.median(durations) / len(calls) * 1e6
    return len(calls), found


def measured_rows(rounds: int = 9) -> list[list[str]]:
    """The table's rows as text. Processor times: other programs disturb them least."""
    rows = []
    for name in GRAPHS:
        count, found = measure(name, rounds)
        verdict = "ok" if found["new types"] <= WANTED else "LOSS"
        times = [f"{found[what]:.1f}" for what in PREPARE]
        rows.append([name, ", ".join(GRAPHS[name][1]), str(count), *times, verdict])
    return rows


HEADINGS = ["graph", "inputs", "calls", *PREPARE, f"new types ≤ {WANTED:g}"]


def table(rows: list[list[str]]) -> Table:
    """For the terminal."""
    made = Table(title="type inference with named dims, µs per call", header_style="bold")
    for position, heading in enumerate(HEADINGS):
        made.add_column(heading, justify="right" if 1 < position < 6 else "left")
    for row in rows:
        made.add_row(*row)
    return made


def markdown(rows: list[list[str]]) -> list[str]:
    """A section of the graph benchmark's page, as lines."""
    align = "".join(" ---: |" if 1 < n < 6 else " --- |" for n in range(len(HEADINGS)))
    return paragraphs(
        "## Type inference with named dims",
        [
            "Microseconds of processor time per call. *warm*: the op has answered for such operands, "
            "as for most calls of a graph;",
            "*new types*: no op has answered yet, but the sizes have occurred; *new sizes*: nor have "
            "sympy and fxlite seen the sizes, as in",
            "the first trace of a process.",
        ],
        ["| " + " | ".join(HEADINGS) + " |", "|" + align, *("| " + " | ".join(row) + " |" for row in rows)],
    )


if __name__ == "__main__":
    Console(width=110).print(table(measured_rows()))
