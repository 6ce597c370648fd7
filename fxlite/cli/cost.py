"""``fxlite cost``: the costs of a program, as formulas or numbers.

In: parsed options and a console. Out: the costs by module, op or node; or beside those of another
program, or of the program after some passes; or over a range of sizes, as a table and a plot; or
the memory timeline, as text and a picture.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from fxlite.base.console import show
from fxlite.cli.profile import pipeline
from fxlite.cli.program_file import trace_program, unique
from fxlite.cli.shared import UsageError, dim_sizes, passes_option, program_options, say, size_option
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.cost_report import CostComparison, cost
from fxlite.passes.costing.costs import TITLES
from fxlite.passes.costing.timeline import memory_timeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite cost``."""
    program_options(parser)
    size_option(parser, "to put into the formulas")
    parser.add_argument("--by", choices=("module", "op", "node"), help="one row for each module (default), op or node")
    parser.add_argument("--compare", metavar="OTHER", help="a program to compare with, after the first")
    purpose = "in place of OTHER: the program after these passes; your own: FILE.py:NAME; "
    passes_option(parser, f"{purpose}standard: those that fxlite compile runs")
    parser.add_argument(
        "--range", metavar="DIM=N,N,...", type=dim_sizes, help="a row for each of these sizes of a named dim"
    )
    parser.add_argument(
        "--quantity",
        metavar="COST",
        help="the cost that --draw plots, and that must be less for the second program to pay off: flops "
        "(default), bytes, read, written, peak",
    )
    parser.add_argument(
        "--timeline", action="store_true", help="show instead which values are in memory while each node runs"
    )
    parser.add_argument("--draw", metavar="FILE.svg", help="draw what --range or --timeline shows, too")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite cost``. Raises UsageError, and the errors of tracing, passes and costs."""
    _check_combination(options)
    sizes = unique(options.size, "--size")
    _, module = trace_program(options.program, options.weights, options.input, need_types=True)
    other = _other(options, module)
    if options.timeline:
        _timeline(options, module if other is None else other, sizes, console)
    elif options.range:
        _range(options, module, other, sizes, console)
    elif other is None:
        show(console, cost(module, sizes).listing(options.by or "module", console.width))
    else:
        comparison = cost(other, sizes) - cost(module, sizes)
        show(console, comparison)
        named = {*comparison.before.dims, *comparison.after.dims}
        if len(named) == 1:
            console.print()
            _print_gain(comparison, named.pop(), options.quantity, {}, console)
    return 0


def _check_combination(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together, and for those without effect."""
    if options.by and options.range:
        raise UsageError("--range shows the whole program at each size; --by is for one size: leave out one of them")
    if options.by and options.timeline:
        raise UsageError("--timeline shows memory node by node; leave out --by")
    if options.by and (options.compare or options.passes):
        raise UsageError("a comparison lists the modules that change; leave out --by")
    if options.range and options.timeline:
        raise UsageError("--timeline shows one size; --range is for costs")
    if options.draw and not (options.range or options.timeline):
        raise UsageError("--draw draws what --range or --timeline shows; give one of them")
    if options.quantity and options.timeline:
        raise UsageError("--timeline shows memory; leave out --quantity")
    if options.quantity and not (options.range or options.compare or options.passes):
        raise UsageError("--quantity is for --draw and for comparisons; give --range, --compare or --passes")
    if options.compare and options.passes:
        raise UsageError("give --compare OTHER or --passes NAMES, not both")
    options.quantity = options.quantity or "flops"


def _other(options: argparse.Namespace, module: GraphModule) -> GraphModule | None:
    """The program to compare with, if any."""
    if options.compare:
        return trace_program(options.compare, None, options.input, need_types=True)[1]
    return pipeline(options.passes)(module) if options.passes else None


def _timeline(options: argparse.Namespace, module: GraphModule, sizes: Mapping[str, int], console: Console) -> None:
    found = memory_timeline(module, sizes)
    show(console, found)
    if options.draw:
        found.to_svg(options.draw)
        say(console, f"{options.draw} written")


def _range(
    options: argparse.Namespace,
    module: GraphModule,
    other: GraphModule | None,
    sizes: Mapping[str, int],
    console: Console,
) -> None:
    """The costs at some sizes; for two programs those of both, and the sizes at which the second pays off."""
    dim, values = options.range
    if dim in sizes:
        raise UsageError(f"--size and --range both give {dim}")
    given: dict[str, Any] = {**sizes, dim: values}
    before = cost(module)
    show(console, before.table(**given))
    drawn: Any = before
    if other is not None:
        drawn = cost(other) - before
        console.print()
        show(console, drawn.after.table(**given))
        console.print()
        _print_gain(drawn, dim, options.quantity, sizes, console)
    if options.draw:
        steps = sorted({*values, *_between(values)})
        drawn.plot(options.quantity, options.draw, **{**given, dim: steps})
        say(console, f"{options.draw} written")


def _print_gain(
    comparison: CostComparison, dim: str, quantity: str, sizes: Mapping[str, int], console: Console
) -> None:
    """Print the sizes of a dim for which the second program costs less."""
    named = {*comparison.before.dims, *comparison.after.dims}
    used = {name: size for name, size in sizes.items() if name in named}
    found = comparison.pays_when(dim, quantity, **used)
    say(console, f"{TITLES[quantity]} lower than before: {found}")


def _between(values: list[int]) -> range:
    """Enough sizes for a smooth line."""
    low, high = min(values), max(values)
    return range(low, high + 1, max(1, (high - low) // 200))
