"""``fxlite compile``: a program as optimized source files.

In: the parsers of the command line. Out: its parser among them; `codegen.command` has the body.
"""

from __future__ import annotations

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


def add_compile(commands: Commands) -> None:
    """The parser of ``fxlite compile``."""
    parser = commands.add_parser(
        "compile", help="turn a program into optimized source files, checked and timed"
    )
    program_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where to write")
    parser.add_argument(
        "--backend", default="c", metavar="NAME", help="c (default), python or cuda"
    )
    threads_option(parser)
    parser.add_argument(
        "--device", metavar="DEVICE",
        help="for cuda: number of a GPU, sm_90 (compile only), or shim (run on the CPU, slowly)",
    )  # fmt: skip
    precision_option(parser)
    autotune_option(parser)
    size_option(parser, "to check and time with")
    data_option(parser, "to check with and to store in the self-test")
    parser.add_argument(
        "--force", action="store_true", help="write into a folder that holds other files, too"
    )
    parser.set_defaults(run=deferred("command", "compile_command"))
