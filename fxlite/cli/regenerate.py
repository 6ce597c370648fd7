"""``fxlite regenerate``: a program as the Python source that a person could have written.

In: parsed options and a console. Out: printed text, or a module file with its weights.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fxlite.cli.shared import after_passes, passes_option, program_options

#: Those of ``fxlite.codegen.python.source``, which takes a while to import.
DIALECT_NAMES = ("fxlite", "numpy", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite regenerate``."""
    program_options(parser)
    passes_option(parser)
    parser.add_argument("--name", help="what the class is called; default: as the program")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER",
        help="write NAME.py and its weights there instead of printing the source",
    )  # fmt: skip
    parser.add_argument(
        "--dialect", choices=DIALECT_NAMES, default=DIALECT_NAMES[0],
        help="fxlite: layers of fxlite.nn (default); numpy: NumPy alone; "
        "torch: nn.Module",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="overwrite a file that fxlite has not written"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite regenerate``."""
    from fxlite.base.console import print_code
    from fxlite.cli.program_file import trace_program
    from fxlite.codegen.python.source import python_source, save_python

    _, module = trace_program(options.program, options.weights, options.input)
    module = after_passes(module, options.passes)
    if options.output is None:
        print_code(console, python_source(module, options.name, options.dialect))
        return 0
    name, dialect = options.name, options.dialect
    path = save_python(module, options.output, name, force=options.force, dialect=dialect)
    console.print(f"{path} written", soft_wrap=True, markup=False)
    return 0
