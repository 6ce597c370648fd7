"""``fxlite migrate``: what a file written for torch.fx needs, and its port.

In: parsed options and a console. Out: a list of lines with what each needs, or a diff, or files.
"""

from __future__ import annotations

import argparse

from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("path", help="a Python file that uses torch.fx, or a folder of them")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="write the ports into a folder")
    parser.add_argument("--diff", action="store_true", help="print the ports as a diff")


def run(options: argparse.Namespace, console: Console) -> int:
    """Print what :func:`fxlite.migrate` finds; 1 where lines are left to a person."""
    from fxlite.codegen.porting.migrate import migrate

    found = migrate(options.path)
    text = "".join(f.diff for f in found.files) if options.diff else str(found)
    console.print(text, markup=False, soft_wrap=True)
    if options.output:
        for path in found.write(options.output):
            console.print(f"wrote {path}", markup=False, soft_wrap=True)
    return int(any(f.lines("hand") for f in found.files))
