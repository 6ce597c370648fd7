"""``fxlite cost``: what a program takes, as formulas or numbers.

In: the parsers of the command line. Out: its parser among them; `codegen.cost_command` has the
body.
"""

from __future__ import annotations

from fxlite.cli import option_values as value
from fxlite.cli.shared import Commands, deferred, program_options, size_option


def add_cost(commands: Commands) -> None:
    """The parser of ``fxlite cost``."""
    parser = commands.add_parser(
        "cost", help="FLOPs, bytes, parameters and memory, as formulas in the named dims or numbers"
    )
    program_options(parser)
    size_option(parser, "to put into the formulas")
    parser.add_argument(
        "--by", default="module", choices=("module", "op", "node"),
        help="one row for each module (default), op or node",
    )  # fmt: skip
    parser.add_argument(
        "--compare", metavar="OTHER", help="a program to compare with, after the first"
    )
    parser.add_argument(
        "--passes", metavar="NAME,NAME",
        help="in place of OTHER: the program after these passes; your own: FILE.py:NAME; "
        "standard: those that fxlite compile runs",
    )  # fmt: skip
    parser.add_argument(
        "--range", metavar="DIM=N,N,...", type=value.sizes,
        help="a row for each of these sizes of a named dim",
    )  # fmt: skip
    parser.add_argument(
        "--quantity", default="flops", metavar="COST",
        help="what --draw plots, and what must be less for the second program to pay: flops "
        "(default), bytes, read, written, peak",
    )  # fmt: skip
    parser.add_argument(
        "--timeline", action="store_true",
        help="show which values are in memory while each node runs instead",
    )  # fmt: skip
    parser.add_argument(
        "--draw", metavar="FILE.svg", help="draw what --range or --timeline shows, too"
    )
    parser.set_defaults(run=deferred("cost_command", "cost_command"))
