"""``fxlite compile``: a program as optimized source files, checked and timed.

In: parsed options and a console. Out: printed steps, a folder of source files, and the summary
table.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fxlite.backend import DEFAULT, Backend, Case, find_backend, take_options
from fxlite.base.console import print_code, show
from fxlite.base.errors import FxliteError, number_of
from fxlite.cli.program_file import ProgramError, trace_program, unique
from fxlite.cli.shared import (
    WEIGHTS_HINT,
    backend_option,
    backend_options,
    data_option,
    find_passes,
    passes_option,
    program_options,
    size_option,
)
from fxlite.cli.steps import Steps
from fxlite.codegen.folder import check_writable, write_folder
from fxlite.codegen.program import example_inputs as examples
from fxlite.codegen.program.program import optimize_source
from fxlite.codegen.python.source import module_name, python_program, save_python
from fxlite.codegen.reporting import check_and_time as report
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.manager import PassManager
from fxlite.show.node_cost import quantity_text
from fxlite.show.text.reading import links, text_of

#: The most lines of a graph that are printed; all of it is in graph.txt.
MOST_LINES = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite compile``."""
    program_options(parser)
    passes_option(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where to write")
    backend_option(parser, "the back end that runs the program", DEFAULT)
    backend_options(parser)
    size_option(parser, "to check and time with")
    data_option(parser, "to check with and to store in the self-test")
    parser.add_argument("--force", action="store_true", help="write into a folder that holds other files, too")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite compile``: trace, optimize, emit, build, check against NumPy, time, write."""
    steps = Steps(console)
    check_writable(options.output, options.force)
    backend = find_backend(options.backend)
    given = backend.checked(take_options(vars(options)))
    backend.require()
    data = examples.load_data(unique(options.data, "--data"))
    sizes = unique(options.size, "--size")
    with steps("trace") as (_, said):
        program, module = trace_program(options.program, options.weights, options.input, need_types=True)
        said.append(f"{options.program}, {number_of(len(module.graph), 'node')}")
        weights = [n for n in module.graph.nodes if n.op == "get_attr"]
        if weights:
            size = sum(int(n.type.nbytes) for n in weights)
            said.append(f"{number_of(len(weights), 'weight')} of {quantity_text(size, 'B')}")
        if weights and options.weights is None and not options.program.endswith(".fxl"):
            said[-1] += " as the program makes them (no --weights)"
    chosen = find_passes(options.passes)
    if chosen:
        with steps("passes") as (_, said):
            before, module = len(module.graph), PassManager(chosen)(module)
            names = ", ".join(p.name for p in chosen)
            said.append(f"{names}: {number_of(before, 'node')} to {len(module.graph)}")
        if not all(p.exactness.kind in ("exact", "allclose") for p in chosen):
            program = module  # it is not meant to compute what the program does
    cases = examples.make_cases(module, sizes, data)
    console.print()
    _print_graph(console, module)
    console.print()
    if "autotune" in given:
        given["tune_sizes"] = cases[-1].dims

    function = backend.compile(module, steps.stage, **given)
    checked = _check(backend.language, program, function, cases, steps)
    if checked:
        with steps("time", len(checked)) as (work, said):
            for item in checked:
                report.measure(program, function, item)
                work.advance(item.case.label)
            said.append("NumPy and the compiled model in turns")
    with steps("write") as (_, said):
        _write(options, backend, function, [c.case for c in checked][-2:])
        said.append(f"{options.output}")
    console.print()
    if "autotune" in given:
        show(console, function.tuning)
        console.print()
    show(console, report.summary(function, checked, backend.language))
    if checked:
        show(console, report.notes(function, checked))
    console.print()
    _print_files(console, options, module)
    return 0


def _print_graph(console: Console, module: GraphModule) -> None:
    lines = text_of(module.graph, width=console.width, hint=WEIGHTS_HINT).splitlines()
    if len(lines) > MOST_LINES:
        left_out = len(lines) - MOST_LINES
        middle = f"    # ... {left_out} more lines, which are in graph.txt ..."
        lines = [*lines[: MOST_LINES - 20], middle, *lines[-20:]]
    print_code(console, "\n".join(lines), links(module.graph))


def _check(language: str, program: Any, function: Any, cases: list[Case], steps: Steps) -> list[report.Checked]:
    """Compare with eager NumPy in all cases; random ones of a size on which the program itself fails are
    left out. Raises Disagreement, or ProgramError if no case is left."""
    checked: list[report.Checked] = []
    if getattr(function, "function", True) is None:
        return checked  # it was compiled for another machine
    refused: list[str] = []
    regenerated = python_program(optimize_source(function.graph_module))
    with steps("check", len(cases)) as (work, said):
        for case in cases:
            functions = [(language, function)]
            if case is cases[-1]:
                functions.append(("Python", regenerated))
            try:
                checked.append(report.check(program, functions, case))
            except FxliteError:
                raise
            except Exception as error:
                if not case.is_random:
                    raise
                refused.append(f"{case.label}: {type(error).__name__}: {error}")
            work.advance(case.label)
        if not checked:
            raise ProgramError(
                "the program itself fails on random inputs; give real ones with --data and sizes "
                f"with --size\n  {refused[-1]}"
            )
        both = list(dict.fromkeys((language, "Python")))
        agree = " and ".join(both) + (" agree" if both[1:] else " agrees")
        said.append(f"{agree} with NumPy at {'; '.join(c.case.label for c in checked)}")
        if refused:
            said.append(f"not tried, since NumPy fails: {'; '.join(refused)}")
    return checked


def _write(options: argparse.Namespace, backend: Backend, function: Any, cases: list[Case]) -> None:
    def write(work: Path) -> Mapping[str, Any]:
        module, optimized = function.graph_module, function.optimized
        (work / "graph.txt").write_text(f"{module.graph.text(full=True)}\n", encoding="utf-8")
        if optimized is not module:
            text = f"{optimized.graph.text(full=True)}\n"
            (work / "graph_optimized.txt").write_text(text, encoding="utf-8")
        facts = backend.save(function, work, cases)
        save_python(optimize_source(module), work / "python")
        return facts

    write_folder(options.output, write, options.force)


def _print_files(console: Console, options: argparse.Namespace, module: GraphModule) -> None:
    folder = Path(options.output)
    table = Table.grid(padding=(0, 2))
    name = module_name(module.name)
    listed = {
        "README.txt": f"how to build and call it; make -C {folder} test",
        f"{name}.c": f"the program; {name}.h says how to call it",
        f"{name}.cu": "its kernels",
        "python/": f"{name}.py, the model as Python, and its weights",
        "graph.txt": "the graph as printed above",
    }
    for file, text in listed.items():
        if (folder / file).exists():
            table.add_row(file, text)
    console.print(f"[bold]{folder}[/] holds")
    show(console, table)
