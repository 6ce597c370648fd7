"""``fxlite regenerate``: a program as Python source such as a person could have written; ``fxlite
reimport``: that source, edited, as a graph again; and ``fxlite migrate``: the port of a file written
for torch.fx, and what is left to port by hand.

In: parsed options and a console. Out: printed text, or a module file with its weights; or what the
edit changed, and optionally a ``.fxl`` file; or a list of lines with what each needs, or a diff, or
files.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fxlite.cli.shared import after_passes, passes_option, program_options, repeated, say, typed_input

#: The dialects of ``fxlite.codegen.python.source``, which takes a while to import.
DIALECT_NAMES = ("fxlite", "numpy", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite regenerate``."""
    program_options(parser)
    passes_option(parser)
    parser.add_argument("--name", help="name of the class; default: the program's name")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="write NAME.py and its weights there instead of printing the source"
    )
    parser.add_argument(
        "--dialect",
        choices=DIALECT_NAMES,
        default=DIALECT_NAMES[0],
        help="fxlite: layers of fxlite.nn (default); numpy: NumPy alone; torch: nn.Module",
    )
    parser.add_argument("--force", action="store_true", help="overwrite a file that fxlite has not written")


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
    say(console, f"{path} written")
    return 0


# -- reimport --------------------------------------------------------------------------------------
def reimport_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite reimport``."""
    parser.epilog = "PROGRAM, its inputs and passes are those given to fxlite regenerate."
    program_options(parser)
    passes_option(parser)
    parser.add_argument("edited", metavar="EDITED", help="the edited file, or its folder")
    text = "an input that the edit added, and its type; repeat for each"
    repeated(parser, "--new-input", metavar="NAME=TYPE", type=typed_input, help=text)
    parser.add_argument("-o", "--output", metavar="FILE.fxl", help="save the graph there")


def reimport_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite reimport``."""
    from fxlite.cli.program_file import trace_program, unique
    from fxlite.codegen.python.reimport import reimport
    from fxlite.files.serialize import save
    from fxlite.graph.node import Node
    from fxlite.show.comparison.graph_diff import diff

    _, module = trace_program(options.program, options.weights, options.input)
    module = after_passes(module, options.passes)
    made = reimport(options.edited, module, unique(options.new_input, "--new-input"))
    found = diff(module, made)
    kept = sum(isinstance(row, Node) and row.op != "get_attr" for row in found.rows)
    say(console, str(found))
    console.print(f"{kept} nodes are unchanged", markup=False)
    if options.output is not None:
        save(made, options.output)
        say(console, f"{options.output} written")
    return 0


# -- migrate ---------------------------------------------------------------------------------------
def migrate_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite migrate``."""
    parser.add_argument("path", help="a Python file that uses torch.fx, or a folder of them")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="write the ports into a folder")
    parser.add_argument("--diff", action="store_true", help="print the ports as a diff")


def migrate_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite migrate``: print what :func:`fxlite.migrate` finds; 1 if lines have to be ported by hand."""
    from fxlite.codegen.porting.migrate import migrate

    found = migrate(options.path)
    text = "".join(f.diff for f in found.files) if options.diff else str(found)
    say(console, text)
    if options.output:
        say(console, *(f"wrote {path}" for path in found.write(options.output)))
    return int(any(f.lines("hand") for f in found.files))
