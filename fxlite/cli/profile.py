"""``fxlite profile``: where the time of a call goes; ``fxlite blame``: the time of each line; and
``fxlite report``: one page that shows a program.

In: parsed options and a console. Out: the table that ``--by`` names, and with ``--trace`` a file
for ``chrome://tracing`` and Perfetto; with ``--passes``, the time that each pass saves; or the
program's file with the time that each line takes; or an HTML file, and some lines about it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from fxlite.backend import DEFAULT, find_measured
from fxlite.base.console import show
from fxlite.base.errors import ArgumentError, number_of
from fxlite.cli.program_file import ProgramError, trace_program, unique
from fxlite.cli.shared import (
    UsageError,
    backend_option,
    backend_options,
    data_option,
    find_passes,
    passes_option,
    positive,
    program_options,
    say,
    size_option,
)
from fxlite.cli.steps import steps_aside
from fxlite.codegen.program import example_inputs as examples
from fxlite.compiler import standard_passes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.manager import PassManager
from fxlite.passes.profiling.effects import before_after
from fxlite.passes.profiling.profile import profile
from fxlite.passes.profiling.record import Profile
from fxlite.passes.profiling.tables import blame_text

#: The word for the passes that ``fxlite compile`` runs, in place of their names.
STANDARD = "standard"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite profile``."""
    program_options(parser)
    measuring_options(parser)
    parser.add_argument(
        "--by",
        choices=("kernel", "module", "op", "line"),
        help="one row for each kernel (default; in Python: node), module, op or source line",
    )
    parser.add_argument(
        "--cliffs",
        action="store_true",
        help="show only the kernels that take more than 3%% of the time and reach less than half of what the machine "
        "allows, with the reason and what to do",
    )
    purpose = (
        "measure what each of these passes saves, and compare it with what its costs predict; your own: FILE.py:NAME; "
    )
    passes_option(parser, f"{purpose}standard: those that fxlite compile runs")
    parser.add_argument("--trace", metavar="FILE", help="write one call as JSON for chrome://tracing and Perfetto")
    backend_options(parser, "matmul_precision", "autotune")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite profile``. Raises UsageError, and the errors of tracing, passes and running."""
    if options.passes:
        if options.by or options.cliffs or options.trace or options.matmul_precision != "highest" or options.autotune:
            raise UsageError(
                "--passes shows a row for each pass; leave out --by, --trace, --cliffs, "
                "--matmul-precision and --autotune"
            )
        chosen = None if options.passes == STANDARD else pipeline(options.passes)
        module, given = _subject(options)
        with steps_aside()("measure") as (_, said):
            found = before_after(module, passes=chosen, **given)
            said.append(f"{number_of(len(found), 'pass')} in turns")
        show(console, found)
        return 0
    if options.cliffs and options.by:
        raise UsageError("--cliffs shows kernels, and --by groups them; leave out one of them")
    profiled = measured(options, options.matmul_precision, options.autotune)
    show(console, profiled.cliffs() if options.cliffs else profiled.table(options.by or "kernel", console.width))
    if options.trace:
        profiled.to_chrome_trace(options.trace)
        say(console, f"{options.trace} written")
    return 0


def measured(options: argparse.Namespace, matmul_precision: str = "highest", autotune: bool = False) -> Profile:
    """The profile of the program that the options name. Raises the errors of tracing, loading data and
    running."""
    module, given = _subject(options)
    with steps_aside()("measure") as (_, said):
        found = profile(module, matmul_precision=matmul_precision, autotune=autotune, **given)
        said.append(f"{number_of(len(found.whole_seconds), 'call')} in {found.target.language}")
    return found


def pipeline(text: str) -> PassManager:
    """The passes that ``--passes`` names; ``standard`` stands for those of ``fxlite compile``."""
    if text == STANDARD:
        return PassManager(standard_passes(), check="lint")
    return PassManager(find_passes(text))


def _subject(options: argparse.Namespace) -> tuple[GraphModule, dict[str, Any]]:
    """The program to measure, and how to measure it."""
    find_measured(options.backend)
    module, inputs = _program_and_inputs(options)
    return module, {"inputs": inputs, "backend": options.backend, "repeat": options.repeat, "threads": options.threads}


def _program_and_inputs(options: argparse.Namespace) -> tuple[GraphModule, Any]:
    """The program, and the inputs to measure it with."""
    data = examples.load_data(unique(options.data, "--data"))
    sizes = unique(options.size, "--size")
    _, module = trace_program(options.program, options.weights, options.input, need_types=True)
    return module, examples.make_cases(module, sizes, data)[-1].inputs


def measuring_options(
    parser: argparse.ArgumentParser,
    purpose: str = "the back end that runs it, timed by node, or by kernel with counters",
    backend: str | None = "python",
) -> None:
    """The options of what is measured, and how."""
    backend_option(parser, purpose, backend, timed=True)
    size_option(parser, "to measure with")
    data_option(parser, "to measure with")
    text = "number of measured calls; default: as many as fit into half a second"
    parser.add_argument("--repeat", type=positive, metavar="N", help=text)
    backend_options(parser, "threads")


# -- blame -----------------------------------------------------------------------------------------
def blame_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite blame``."""
    program_options(parser)
    measuring_options(parser)


def blame_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite blame``."""
    path = options.program.rpartition(":")[0]
    if not path.endswith(".py"):
        raise ProgramError(f"{options.program!r} names no source file; write FILE.py:NAME")
    console.print(blame_text(measured(options), path), soft_wrap=True)
    return 0


# -- report ----------------------------------------------------------------------------------------
def report_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite report``."""
    program_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="the page")
    measuring_options(parser, f"the back end that runs the optimized graph; {DEFAULT} if possible", None)
    parser.add_argument("--no-profile", dest="profile", action="store_false", help="measure nothing")


def report_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite report``. Raises ArgumentError for a file that cannot be written, before anything is
    measured; and the errors of tracing, loading data, compiling and running."""
    from fxlite.codegen.reporting.report import report

    path = Path(options.output)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"a report is one HTML page: -o {path.stem or 'report'}.html")
    if not path.absolute().parent.is_dir():
        raise ArgumentError(f"there is no folder {path.parent}")
    find_measured(options.backend or DEFAULT)
    steps = steps_aside()
    with steps("trace") as (_, said):
        module, inputs = _program_and_inputs(options)
        said.append(f"{module.name}, {number_of(len(module.graph), 'node')}")
    how = {name: getattr(options, name) for name in ("backend", "profile", "repeat", "threads")}
    found = report(module, inputs=inputs, stage=steps.stage, **how)
    with steps("page") as (_, said):
        found.to_html(path)
        said.append(str(path))
    show(console, Text(str(found)))
    say(console, f"{path} written")
    return 0
