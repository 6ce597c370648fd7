"""``fxlite new-pass``: a pass that works, to edit.

In: parsed options and a console. Out: a file with the pass, one with its test, and what to do next.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fxlite.passes.new_pass import new_pass, next_steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite new-pass``."""
    parser.add_argument("name", metavar="NAME", help="name of the pass, and of its file")
    parser.add_argument(
        "--rule", action="store_true", help="a rule: a pattern and what to put in its place"
    )
    parser.add_argument(
        "-o", "--output", default=".", metavar="FOLDER", help="where to write; default here"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite new-pass``."""
    files = new_pass(options.name, options.output, options.rule)
    console.print(next_steps(options.name, *files), soft_wrap=True, markup=False)
    return 0
