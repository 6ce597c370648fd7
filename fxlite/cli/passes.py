"""``fxlite new-pass`` and ``bisect``: to write a pass, and to find one that is wrong.

In: the parsers of the command line. Out: theirs among them; `codegen.bisect_command` has the body
of the second.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fxlite.cli.shared import Commands, deferred, program_options, size_option

if TYPE_CHECKING:
    from rich.console import Console


def add_new_pass(commands: Commands) -> None:
    """The parser of ``fxlite new-pass``."""
    parser = commands.add_parser(
        "new-pass", help="write a pass (or a rule) that works, with examples and a test, to edit"
    )
    parser.add_argument("name", metavar="NAME", help="name of the pass, and of its file")
    parser.add_argument(
        "--rule", action="store_true", help="a rule: a pattern and what to put in its place"
    )
    parser.add_argument(
        "-o", "--output", default=".", metavar="FOLDER", help="where to write; default here"
    )
    parser.set_defaults(run=_new_pass)


def add_bisect(commands: Commands) -> None:
    """The parser of ``fxlite bisect``."""
    parser = commands.add_parser(
        "bisect", help="run passes one by one, checked; name the first that is wrong, and where",
        epilog="Status: 0 all passes are right, 1 one is wrong (or does not run).",
    )  # fmt: skip
    program_options(parser)
    parser.add_argument(
        "--passes", required=True, metavar="NAME,NAME",
        help="passes in order, by name or as FILE.py:NAME",
    )  # fmt: skip
    parser.add_argument(
        "--backend", metavar="NAME",
        help="compile the program after each pass, too, and compare: c, python or cuda",
    )  # fmt: skip
    size_option(parser, "to run compiled code with")
    parser.set_defaults(run=deferred("bisect_command", "bisect_command"))


def _new_pass(options: argparse.Namespace, console: Console) -> int:
    from fxlite.passes.new_pass import new_pass, next_steps

    files = new_pass(options.name, options.output, options.rule)
    console.print(next_steps(options.name, *files), soft_wrap=True, markup=False)
    return 0
