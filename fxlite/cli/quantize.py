"""``fxlite quantize``: a program of integers, by a scheme, a plan or a budget.

In: the parsers of the command line. Out: its parser among them; `codegen.quantize_command` has the
body.
"""

from __future__ import annotations

import argparse

from fxlite.cli import option_values as value
from fxlite.cli.shared import Commands, deferred, program_options

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


def add_quantize(commands: Commands) -> None:
    """The parser of ``fxlite quantize``."""
    parser = commands.add_parser(
        "quantize", help="make a program of integers, by a scheme, a plan or a budget",
        description=_QUANTIZE, epilog=_QUANTIZE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
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
    parser.set_defaults(run=deferred("quantize_command", "quantize_command"))
