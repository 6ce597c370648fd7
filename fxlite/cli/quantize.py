"""``fxlite quantize``: a program of integers, by a scheme, a plan or a budget.

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
from fxlite.base.errors import ArgumentError
from fxlite.cli import option_values as value
from fxlite.cli.program_file import trace_program
from fxlite.cli.shared import UsageError, program_options
from fxlite.codegen.calibration_data import read_batches
from fxlite.files.serialize import save
from fxlite.passes import quantize as q
from fxlite.passes.quantize.planning.planner_text import decibel_text

_QUANTIZE = """\
Turn a float program into one of 8-bit (or 4-bit) integers; says what became integers, what stayed
float and why, and how far the results are from the float ones."""

_QUANTIZE_EXAMPLES = """\
examples:
  fxlite quantize model.py:Net -i "x=f32[B,64]" --scheme dynamic_int8 -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz --scheme static_int8 -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz --min-sqnr 30 \\
      --write-plan plan.toml -o net.fxl
  fxlite quantize model.py:Net -i "x=f32[B,64]" --data calib.npz --plan plan.toml -o net.fxl
  fxlite compile net.fxl -o out/          the result as C

schemes:
  static_int8       activations and weights; ranges from --data; the fastest
  dynamic_int8      the same, ranges found in each call
  weight_only_int8, weight_only_int4      small weights, float arithmetic
  fp16, bf16        half floats throughout
"""

#: What ``fxlite quantize --scheme`` takes: the presets of quantization.
SCHEMES = (
    "static_int8", "dynamic_int8", "weight_only_int8", "weight_only_int4", "fp16", "bf16",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite quantize``."""
    parser.description = _QUANTIZE
    parser.epilog = _QUANTIZE_EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    program_options(parser)
    data = parser.add_argument_group(
        "data", "real inputs, to find the ranges of values and the noise on"
    )
    data.add_argument(
        "--data", action="append", default=[], metavar="FILE",
        help=".npz or .safetensors with arrays by the inputs' names, .npy for the only input, "
        "INPUT=FILE.npy, or a folder of such files; repeat for more. Arrays are cut into batches "
        "along the named dim that they begin with, or an axis that stands before the type's",
    )  # fmt: skip
    data.add_argument(
        "--batch", type=value.positive, default=32, metavar="N",
        help="size of a batch along a named dim; default 32",
    )  # fmt: skip
    how = parser.add_argument_group("how", "one of --scheme, --plan, or a budget")
    how.add_argument(
        "--scheme", choices=SCHEMES, help="one for all; only static_int8 needs --data"
    )  # fmt: skip
    how.add_argument("--plan", metavar="FILE.toml", help="a scheme for each layer, maybe edited")
    for option, metavar, parse, text in (
        ("--min-sqnr", "DB", float, "signal-to-noise ratio of the results on --data, in dB"),
        ("--max-bytes", "BYTES", value.quantity, "bytes of all weights: 200kB, 4MiB"),
        ("--max-latency", "TIME", value.seconds, "time of all products, as estimated: 200us"),
    ):
        how.add_argument(
            option, metavar=metavar, type=parse, help=f"make a plan that keeps this: {text}"
        )
    written = parser.add_argument_group("files written")
    written.add_argument(
        "-o", "--output", required=True, metavar="FILE.fxl", help="the quantized program"
    )
    written.add_argument("--write-plan", metavar="FILE.toml", help="the plan that was made")
    written.add_argument(
        "--draw", metavar="FILE", help="the program, coloured by the plan's SQNR: .svg, .html"
    )


def run(options: argparse.Namespace, console: Console) -> int:
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
