"""``fxlite profile``, ``blame`` and ``report``: where the time of a call goes.

In: the parsers of the command line. Out: theirs among them; `codegen.profile_command` and
`codegen.report_command` have the bodies.
"""

from __future__ import annotations

import argparse

from fxlite.cli import option_values as value
from fxlite.cli.shared import (
    Commands,
    autotune_option,
    data_option,
    deferred,
    precision_option,
    program_options,
    size_option,
    threads_option,
)


def add_profile(commands: Commands) -> None:
    """The parser of ``fxlite profile``."""
    parser = commands.add_parser(
        "profile", help="measure where the time of a call goes, beside the machine's limits"
    )
    program_options(parser)
    _measuring_options(parser)
    parser.add_argument(
        "--by", choices=("kernel", "module", "op", "line"),
        help="one row for each kernel (default; in Python: node), module, op or source line",
    )  # fmt: skip
    parser.add_argument(
        "--passes", metavar="NAME,NAME",
        help="measure what each of these passes brings, beside what its costs predict; your own: "
        "FILE.py:NAME; standard: those that fxlite compile runs",
    )  # fmt: skip
    parser.add_argument(
        "--trace", metavar="FILE", help="write one call as JSON for chrome://tracing and Perfetto"
    )
    precision_option(parser)
    autotune_option(parser)
    parser.set_defaults(run=deferred("profile_command", "profile_command"))


def add_blame(commands: Commands) -> None:
    """The parser of ``fxlite blame``."""
    parser = commands.add_parser(
        "blame", help="print a program's file with the time that each line takes"
    )
    program_options(parser)
    _measuring_options(parser)
    parser.set_defaults(run=deferred("profile_command", "blame_command"))


def add_report(commands: Commands) -> None:
    """The parser of ``fxlite report``."""
    parser = commands.add_parser(
        "report", help="write one HTML page: the graph to explore with costs, times, memory, source"
    )
    program_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="the page")
    _measuring_options(
        parser, None, "what the optimized graph runs as: c (default, where possible) or python"
    )
    parser.add_argument(
        "--no-profile", dest="profile", action="store_false", help="measure nothing"
    )
    parser.set_defaults(run=deferred("report_command", "report_command"))


def _measuring_options(
    parser: argparse.ArgumentParser,
    backend: str | None = "python",
    backends: str = "python (default: each node, run by NumPy) or c (each kernel, with counters)",
) -> None:
    parser.add_argument("--backend", default=backend, metavar="NAME", help=backends)
    size_option(parser, "to measure with")
    data_option(parser, "to measure with")
    parser.add_argument(
        "--repeat", type=value.positive, metavar="N",
        help="measured calls; default what fits into half a second",
    )  # fmt: skip
    threads_option(parser)
