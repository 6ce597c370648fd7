"""``fxlite blame``: the time of each line.

In: parsed options and a console. Out: the program's file with the time that each line takes.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fxlite.cli.profile import measured, measuring_options
from fxlite.cli.program_file import ProgramError
from fxlite.cli.shared import program_options
from fxlite.passes.profiling.tables import blame_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite blame``."""
    program_options(parser)
    measuring_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite blame``."""
    path = options.program.rpartition(":")[0]
    if not path.endswith(".py"):
        raise ProgramError(f"{options.program!r} names no source file; write FILE.py:NAME")
    console.print(blame_text(measured(options), path), soft_wrap=True)
    return 0
