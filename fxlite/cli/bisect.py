"""``fxlite bisect``: which pass of a pipeline, and which of its rewrites, goes wrong.

In: parsed options and a console. Out: a line for each pass that ran and was checked; then, for the
first that raises, leaves an invalid graph or changes results, its error with the file that reproduces
it; and the exit status, 1 if there is such a pass. With a back end, the program after each pass is
also compiled and compared with the interpreted traced program or, after a pass that means to change
results, with its interpreted result.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fxlite.backend import Case, find_backend
from fxlite.base.console import show
from fxlite.base.errors import FxliteError, number_of
from fxlite.cli.program_file import trace_program, unique
from fxlite.cli.shared import backend_option, find_passes, passes_option, program_options, say, size_option
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.compiler import compile as compile_program
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.passes.base import PassError
from fxlite.passes.checking.minimize import write_repro
from fxlite.passes.manager import PassManager
from fxlite.show.node_cost import longest_chain
from fxlite.types.agreement import KINDS, USUAL, Exactness, as_exactness, compare, computed, leaves


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite bisect``."""
    parser.epilog = "Status: 0 all passes are right, 1 one is wrong (or does not run)."
    program_options(parser)
    passes_option(parser, "passes in order, by name or as FILE.py:NAME", required=True)
    backend_option(parser, "compile the program after each pass, too, and compare")
    size_option(parser, "to run compiled code with")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite bisect``: trace, and run and check the passes one by one; 1 if one is wrong."""
    passes = find_passes(options.passes)
    compiles = options.backend is not None
    if compiles:
        find_backend(options.backend)
    _, module = trace_program(options.program, options.weights, options.input, need_types=compiles)
    comparison = None
    promises = [computed]  # results of compiled code have to keep one of them
    if compiles:
        sizes = unique(options.size, "--size")
        comparison = Comparison(module, make_cases(module, sizes), options.backend)
        said = comparison.difference(module, promises)
        if said is not None:
            return _wrong(console, "the traced program", said)
        _right(console, "traced", len(module.graph), "compiled and compared")
    for item in passes:
        manager = PassManager([item])
        try:
            module = manager(module)
        except PassError as error:
            return _wrong(console, item.name, str(error))
        promises.append(as_exactness(item.exactness))
        if comparison is not None and promises[-1].kind == "changes":  # other passes keep the results
            comparison = Comparison(module, comparison.cases, options.backend)
            promises = [computed]
        said = None if comparison is None else comparison.difference(module, promises)
        if said is not None:
            return _wrong(console, item.name, f"its result is right, interpreted; {said}")
        step = manager.report[0]
        found = step.verification
        checked = f"; checked: {found.summary}" if found is not None and found.summary != "-" else ""
        _right(console, item.name, step.after, f"{'unchanged' if step.changes == '-' else step.changes}{checked}")
        for place, reason in found.unchecked if found is not None else ():
            console.print(f"       not checked: {escape(place)}: {escape(reason)}", soft_wrap=True)
    verdict = "none is wrong" if len(passes) > 1 else "which is right"
    console.print(f"[bold green]{number_of(len(passes), 'pass')}, {verdict}[/]")
    return 0


class Comparison:
    """The results of a program on some inputs, to compare compiled code with."""

    def __init__(self, module: GraphModule, cases: Sequence[Case], backend: str) -> None:
        self.backend = backend
        self.cases = cases
        self.expected = [leaves(Interpreter(module).run(*c.inputs.values())) for c in cases]

    def difference(self, module: GraphModule, promises: Collection[Exactness]) -> str | None:
        """How the results of ``module``, compiled, differ from those of the interpreted program beyond all of
        the promises, and the file that reproduces it; None if they agree."""
        try:
            function = compile_program(module, backend=self.backend)
        except FxliteError as error:
            return f"it does not compile with --backend {self.backend}: {error}"
        for case, expected in zip(self.cases, self.expected, strict=True):
            actual = leaves(function(*case.inputs.values()))
            chain = longest_chain(module.graph.nodes, case.dims).at_least(USUAL)
            found = {p: compare(expected, actual, p, chain) for p in promises}
            if any(each.agrees for each in found.values()):
                continue
            promise = max(found, key=lambda p: KINDS.index(p.kind))
            folder = os.environ.get("FXLITE_REPRO_DIR") or tempfile.mkdtemp(prefix="fxlite-repro-")
            text = f"compiled with --backend {self.backend}: {found[promise]} ({case.label})"
            path = Path(folder) / f"{module.name}_{self.backend}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            expression = f"fx.compile(before, backend={self.backend!r})"
            write_repro(path, module, None, case.inputs, text, promise=promise, expression=expression)
            return f"{text}\n  python {path}  shows the difference"
        return None


def _right(console: Console, name: str, nodes: int, text: str) -> None:
    row = Table.grid(padding=(0, 2))
    row.add_column(min_width=5)
    row.add_column(min_width=16, no_wrap=True)
    row.add_column(min_width=12, justify="right", no_wrap=True)
    row.add_row("[green]ok[/]", escape(name), number_of(nodes, "node"), escape(text))
    show(console, row)


def _wrong(console: Console, name: str, text: str) -> int:
    console.print(f"[bold red]WRONG[/]  {escape(name)}", soft_wrap=True)
    say(console, text)
    return 1
