"""What ``fxlite quantize`` does: turn a program into one of integers, by a scheme, a plan or a
budget.

In: parsed options, with files of inputs, and a console. Out: the plan, the report on what
became integers and what stayed float, and a ``.fxl`` file of the quantized program; with
``--write-plan`` the plan as TOML, with ``--draw`` the picture of the sensitivities.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from fxlite.base.console import show
from fxlite.base.errors import ArgumentError, FxliteError
from fxlite.cli.program_file import trace_program
from fxlite.codegen.calibration_data import read_batches
from fxlite.files.serialize import save
from fxlite.passes import quantize as q
from fxlite.passes.quantize.planning.planner_text import decibel_text


class UsageError(FxliteError):
    """The options of ``fxlite quantize`` do not go together."""


def quantize_command(options: argparse.Namespace, console: Console) -> int:
    """``fxlite quantize``. Raises UsageError and ArgumentError before anything is computed; and
    what tracing, planning and converting raise."""
    budget = {
        "min_sqnr": options.min_sqnr, "max_bytes": options.max_bytes,
        "max_latency": options.max_latency,
    }  # fmt: skip
    budget = {name: limit for name, limit in budget.items() if limit is not None}
    _check(options, budget)
    _, module = trace_program(options.program, options.weights, options.input, need_types=True)
    batches = read_batches(options.data, module, options.batch)
    plan: q.Plan | None = None
    if budget:
        found = q.sensitivity(module, batches)
        show(console, found)
        console.print()
        plan = q.plan(module, batches, sensitivities=found, **budget)
    elif options.plan:
        plan = q.load_plan(options.plan, module)
    if plan is not None:
        show(console, plan)
        console.print()
        mapping = plan.qconfig_mapping()
    else:
        mapping = q.QConfigMapping().set_global(options.scheme)
    if batches:
        quantized = q.quantize(module, mapping, batches)
    else:
        quantized = q.convert(q.prepare(module, mapping))
    show(console, q.report(quantized))
    if batches and not budget:
        sqnr = decibel_text(q.results_sqnr(module, quantized, batches))
        console.print(f"SQNR of the results on {', '.join(options.data)}: {sqnr}", soft_wrap=True)
    written = [options.output]
    save(quantized, options.output)
    if plan is not None and options.write_plan:
        plan.save(options.write_plan)
        written.append(options.write_plan)
    if plan is not None and options.draw:
        module.graph.draw(options.draw, sqnr=plan.sqnr())
        written.append(options.draw)
    console.print(f"{', '.join(written)} written", soft_wrap=True, markup=False)
    return 0


def _check(options: argparse.Namespace, budget: dict[str, Any]) -> None:
    """Raise for options that do not go together."""
    if bool(options.scheme) + bool(options.plan) + bool(budget) != 1:
        raise UsageError(
            "say how: one of --scheme NAME, --plan FILE.toml, or a budget (--min-sqnr, "
            "--max-bytes, --max-latency)"
        )
    if not options.data and (budget or options.scheme == "static_int8"):
        raise UsageError(
            "ranges are found on data: give --data FILE.npz, "
            'real inputs by name: np.savez("calib.npz", x=...)'
        )
    if not budget and (options.write_plan or options.draw):
        raise UsageError("--write-plan and --draw show a plan that a budget makes")
    if Path(options.output).suffix != ".fxl":
        raise ArgumentError(f"the quantized program is a .fxl file: -o {options.output}.fxl")
    for path in (options.output, options.write_plan, options.draw):
        if path and not Path(path).absolute().parent.is_dir():
            raise ArgumentError(f"there is no folder {Path(path).parent}")
