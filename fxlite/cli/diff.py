"""``fxlite diff``: what changed from one program to another.

In: the parsers of the command line. Out: its parser among them; `codegen.diff_command` has the
body.
"""

from __future__ import annotations

from fxlite.cli import option_values as value
from fxlite.cli.shared import Commands, deferred, program_options


def add_diff(commands: Commands) -> None:
    """The parser of ``fxlite diff``."""
    parser = commands.add_parser(
        "diff", help="what changed from one program to another, or by running passes",
        epilog="Status, as of diff(1): 0 the same, 1 different, 2 something is wrong.",
    )  # fmt: skip
    program_options(parser)
    parser.add_argument(
        "other", metavar="OTHER", nargs="?", help="the program to compare with, after the first"
    )
    parser.add_argument(
        "--passes", metavar="NAME,NAME",
        help="in place of OTHER: compare before and after these passes; your own: FILE.py:NAME",
    )  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="write a page that needs nothing else, too")
    parser.add_argument("--json", metavar="FILE", help="write the diff as data, too; - prints it")
    parser.add_argument(
        "--context", type=value.count, default=3, metavar="N",
        help="unchanged lines shown around a change; default 3",
    )  # fmt: skip
    parser.set_defaults(run=deferred("diff_command", "diff_command"))
