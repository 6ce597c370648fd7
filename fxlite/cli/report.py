"""``fxlite report``: one page that shows a program.

In: parsed options and a console. Out: an HTML file, and some lines about it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from fxlite.backend import DEFAULT
from fxlite.base.errors import ArgumentError
from fxlite.cli.profile import measuring_options
from fxlite.cli.program_file import trace_program, unique
from fxlite.cli.shared import program_options
from fxlite.codegen.program import example_inputs as examples
from fxlite.codegen.reporting.report import report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite report``."""
    program_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="the page")
    measuring_options(parser, f"what runs the optimized graph; {DEFAULT} where possible", None)
    parser.add_argument("--no-profile", dest="profile", action="store_false", help="measure nothing")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite report``. Raises ArgumentError for a file that cannot be written, before anything is
    measured; and what tracing, loading data, compiling and running raise."""
    path = Path(options.output)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"a report is one HTML page: -o {path.stem or 'report'}.html")
    if not path.absolute().parent.is_dir():
        raise ArgumentError(f"there is no folder {path.parent}")
    data = examples.load_data(unique(options.data, "--data"))
    sizes = unique(options.size, "--size")
    _, module = trace_program(options.program, options.weights, options.input, need_types=True)
    found = report(
        module,
        inputs=examples.make_cases(module, sizes, data)[-1].inputs,
        backend=options.backend,
        profile=options.profile,
        repeat=options.repeat,
        threads=options.threads,
    )
    found.to_html(path)
    console.print(str(found), soft_wrap=True, markup=False)
    console.print(f"{path} written", soft_wrap=True, markup=False)
    return 0
