"""``fxlite trace``: a program's graph as code, table, tree or picture, or some of its nodes.

In: parsed options and a console. Out: printed text or a picture.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fxlite.cli.shared import (
    WEIGHTS_HINT,
    UsageError,
    after_passes,
    checked_query,
    number,
    passes_option,
    program_options,
    say,
)
from fxlite.graph.graph import Graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite trace``."""
    program_options(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--table", action="store_true", help="print a table with a row for each node instead of code")
    shown.add_argument(
        "--tree", action="store_true", help="print the modules with results, parameters and FLOPs instead of code"
    )
    shown.add_argument(
        "--draw", metavar="FILE", help="write a picture instead: .svg, .html (to explore), .dot, .png or .pdf"
    )
    shown.add_argument(
        "--full",
        action="store_true",
        help="print the exact code, which fx.parse reads back: a line for each node, nothing left out",
    )
    parser.add_argument(
        "--all-weights", action="store_true", help="list all weights below the code, however many there are"
    )
    parser.add_argument(
        "--depth",
        type=number(1, "of levels"),
        metavar="N",
        help="for --draw and --tree: levels of modules that are open; default: in a picture as many as stay "
        "readable, in a tree all",
    )
    parser.add_argument(
        "--color",
        choices=("op", "dtype", "change", "scope"),
        help="for --draw: what the colours stand for; default: op, the kind of op; change: what --passes did",
    )
    parser.add_argument(
        "--direction", choices=("TB", "LR"), help="for --draw: from top to bottom (the default) or from left to right"
    )
    shown.add_argument(
        "--query",
        metavar="QUERY",
        type=checked_query,
        help='print only the nodes that it finds, "conv2d > relu"; see fxlite check --help',
    )
    shown.add_argument(
        "--doctor",
        action="store_true",
        help="list everything that keeps the program from being traced, with fixes; status 1 if there is anything",
    )
    passes_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite trace``."""
    from fxlite.base.console import show
    from fxlite.cli.program_file import trace_program
    from fxlite.show.text.reading import node_table, print_graph

    _check_combination(options)
    if options.doctor:
        return _doctor(options, console)
    _, traced = trace_program(options.program, options.weights, options.input)
    module = after_passes(traced, options.passes)
    if options.query:
        _print_matches(module.graph, options.query, console)
    elif options.draw:
        before = traced.graph if options.color == "change" else None
        direction = options.direction or "TB"
        module.graph.draw(
            options.draw, depth=options.depth, color=options.color, direction=direction, changed_from=before
        )
        say(console, f"{options.draw} written")
    elif options.table:
        show(console, node_table(module.graph, console.width))
    elif options.tree:
        show(console, module.summary(options.depth))
    else:
        how = {"full": options.full, "weights": options.all_weights, "hint": WEIGHTS_HINT}
        print_graph(module.graph, console=console, **how)
    return 0


def _check_combination(options: argparse.Namespace) -> None:
    """Raise UsageError for options about something that is not shown."""
    if options.depth is not None and not (options.draw or options.tree):
        raise UsageError("--depth is for --draw and --tree; give one of them")
    for name in ("color", "direction"):
        if getattr(options, name) and not options.draw:
            raise UsageError(f"--{name} is for --draw FILE")
    if options.all_weights and (options.table or options.tree or options.draw or options.query or options.doctor):
        raise UsageError("--all-weights is for the code; leave out --table, --tree, --draw, --query and --doctor")
    if options.doctor and options.passes:
        raise UsageError("--doctor looks at the program before any passes; leave out --passes")


def _print_matches(graph: Graph, query: str, console: Console) -> None:
    """Print the nodes of each match with their places, and the number of matches. If a match has several
    nodes, matches are separated by empty lines."""
    from fxlite.show.query.search import unknown_places
    from fxlite.show.text.reading import node_text

    matches = graph.find(query)
    apart = any(len(match.nodes) > 1 for match in matches)
    for match in matches:
        for node in match.nodes:
            say(console, node_text(node, console.width))
        if apart:
            console.print()
    for said in [] if matches else unknown_places(graph, query):
        say(console, f"# {said}")
    console.print(f"# {len(matches)} match{'' if len(matches) == 1 else 'es'}")


def _doctor(options: argparse.Namespace, console: Console) -> int:
    from fxlite.cli.program_file import load_program, unique
    from fxlite.tracing.doctor import trace_doctor

    program = load_program(options.program, options.weights)
    diagnosis = trace_doctor(program, inputs=unique(options.input, "--input"))
    console.print(diagnosis, soft_wrap=True)
    return 0 if diagnosis else 1
