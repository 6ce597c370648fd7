"""``fxlite check``: limits and forbidden patterns, for the continuous integration of projects that use
fxlite.

In: parsed options and a console. Out: a table with a line for each check and, under each that failed,
the nodes at fault with type, module, file and line; and the exit status, 1 if one failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fxlite.base.console import show
from fxlite.base.errors import GraphError, number_of
from fxlite.cli.program_file import ProgramError, trace_program, unique
from fxlite.cli.shared import amount, checked_query, program_options, repeated, size_option
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.cost_report import flops_by_node
from fxlite.passes.costing.costs import check_dims
from fxlite.passes.costing.timeline import find_peak, peak_memory
from fxlite.show.node_cost import quantity_text
from fxlite.show.query.search import QueryMatch, unknown_places
from fxlite.show.text.pretty import type_text
from fxlite.types import shapes
from fxlite.types.shapes import Dim

_QUERIES = """\
queries:
  conv2d                      calls of an op; placeholder, get_attr, output;
                              * for any node
  conv2d > relu               a relu that reads a conv2d; >> at any distance
  (conv1d|conv2d)             one or the other
  batch_norm[training=True]   by an attribute or operand: = != < <= > >=,
                              or [bias] alone
  [dtype=f64] [rank=4] [bytes>1MB] [shape=f32[B,3,*,*]]
                              by the type of the result
  :users(>1) :constant :random :dead :first :last :not(...)
  :in("layers.*.attn")        by module
  :at("model.py:31")          by line
  module("encoder.*") a > b   a chain inside a module
  a > b, c                    several queries

`pydoc fxlite.show.query` shows the whole language.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite check``."""
    parser.epilog = _QUERIES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    program_options(parser)
    for option, text in (("--match", "fail unless"), ("--no-match", "fail if")):
        text += " this finds something; repeat for each"
        repeated(parser, option, metavar="QUERY", type=checked_query, help=text)
    for option, metavar, unit, text in (
        ("--max-peak", "BYTES", "B", "most memory that computed values take at a time: 200MB, 64MiB"),
        ("--max-flops", "FLOPS", "FLOPs", "most arithmetic operations of one run: 5G"),
        ("--max-weights", "BYTES", "B", "most bytes of the weights that are read"),
        ("--max-nodes", "N", "", "most nodes of the graph"),
    ):
        parser.add_argument(option, metavar=metavar, type=amount(unit), help=text)
    parser.add_argument("--lint", action="store_true", help="fail if the graph breaks its own rules")
    size_option(parser, "that a limit depends on")


#: The most nodes that are listed under a check that failed.
MOST_NODES = 10


@dataclass(frozen=True)
class Check:
    """One check and its outcome; ``notes`` are lines to print below it."""

    name: str
    limit: str
    found: str
    passed: bool
    notes: tuple[str, ...] = ()


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite check``: trace, check, print; 1 if a check failed. If no check is given, the graph's own
    rules are checked, as with ``--lint``."""
    limits = (options.max_peak, options.max_flops)
    need_types = any(limit is not None for limit in limits)
    _, module = trace_program(options.program, options.weights, options.input, need_types)
    sizes = unique(options.size, "--size")
    check_dims(module.graph, sizes)
    checks = [_match(module.graph, query, sizes, True) for query in options.match]
    checks += [_match(module.graph, query, sizes, False) for query in options.no_match]
    if options.max_peak is not None:
        checks.append(_peak(module.graph, options.max_peak, sizes))
    if options.max_flops is not None:
        checks.append(_flops(module, options.max_flops, sizes))
    if options.max_weights is not None:
        checks.append(_weights(module, options.max_weights))
    if options.max_nodes is not None:
        count, limit = len(module.graph), options.max_nodes
        checks.append(Check("max nodes", str(limit), number_of(count, "node"), count <= limit))
    if options.lint or not checks:
        checks.append(_lint(module.graph))
    show(console, _table(checks))
    failed = sum(not check.passed for check in checks)
    noun = "check" if len(checks) == 1 else "checks"
    if failed:
        console.print(f"[bold red]{failed} of {len(checks)} {noun} failed[/]")
    else:
        console.print(f"[bold green]{len(checks)} {noun} passed[/]")
    return 1 if failed else 0


def _table(checks: list[Check]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        mark = Text("ok", "green") if check.passed else Text("FAIL", "bold red")
        table.add_row(mark, check.name, Text(f"{check.limit}: {check.found}".removeprefix(": ")))
        for note in check.notes:
            table.add_row("", "", Padding(Text(note, "" if not check.passed else "yellow"), (0, 0, 0, 2)))
    return table


# -- the checks ------------------------------------------------------------------------------------
def _match(graph: Graph, query: str, sizes: Mapping[str, int], wanted: bool) -> Check:
    """Whether a query finds something (``wanted``), or nothing."""
    found = graph.find(query, sizes)
    count = "1 match" if len(found) == 1 else f"{len(found) or 'no'} matches"
    notes: tuple[str, ...] = ()
    if found and not wanted:
        notes = _listed([_chain_text(match) for match in found])
    elif not found:
        notes = tuple(unknown_places(graph, query))
    return Check("match" if wanted else "no match", query, count, bool(found) is wanted, notes)


def _peak(graph: Graph, limit: int, sizes: Mapping[str, int]) -> Check:
    """The memory of the computed values at its largest."""
    nbytes = peak_memory(graph, sizes)
    peak = find_peak(graph, sizes) if isinstance(nbytes, int) else None
    found = "nothing is computed" if peak is None else f"{quantity_text(nbytes, 'B')} while {_place(peak.node)} runs"
    parts = [] if peak is None else [(size, node_text(node)) for node, size in peak.values]
    return _limited("--max-peak", nbytes, limit, "B", found, parts)


def _flops(module: GraphModule, limit: int, sizes: Mapping[str, int]) -> Check:
    """The arithmetic operations of one run."""
    by_node = {n: shapes.substitute(f, sizes) for n, f in flops_by_node(module).items()}
    total: Dim = shapes.normalize(sum(by_node.values(), start=0))
    if not isinstance(total, int):
        return _limited("--max-flops", total, limit, "FLOPs", "", ())
    parts = [(count, node_text(node)) for node, count in _largest(by_node) if count]
    return _limited("--max-flops", total, limit, "FLOPs", quantity_text(total, "FLOPs"), parts)


def _weights(module: GraphModule, limit: int) -> Check:
    """The bytes of the weights and constants that the graph and its leaf modules read, each array counted
    once."""
    arrays: dict[int, tuple[str, Any]] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = module.get_attribute(node.target)
            arrays.setdefault(id(value), (node.target, value))
        elif node.op == "call_module":
            for name, value in module.get_submodule(node.target).state_dict().items():
                arrays.setdefault(id(value), (f"{node.target}.{name}", value))
    sizes = {path: np.asarray(value).nbytes for path, value in arrays.values()}
    total = sum(sizes.values())
    found = f"{quantity_text(total, 'B')} in {number_of(len(sizes), 'weight')}"
    return _limited("--max-weights", total, limit, "B", found, [(size, path) for path, size in _largest(sizes)])


def _largest(numbers: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(numbers.items(), key=lambda pair: -pair[1])


def _limited(option: str, value: Dim, limit: int, unit: str, found: str, parts: Sequence[tuple[int, str]]) -> Check:
    """Whether a value, the sum of ``parts``, is within a limit; ``found`` is its text if it is a number."""
    passed = _is_within(option, value, limit, unit)
    notes = () if passed else _listed([f"{quantity_text(size, unit)} {text}" for size, text in parts])
    found = found if isinstance(value, int) else f"{value} {unit}"
    return Check(option[2:].replace("-", " "), quantity_text(limit, unit), found, passed, notes)


def _lint(graph: Graph) -> Check:
    try:
        graph.lint()
    except GraphError as error:
        return Check("lint", "", "the graph is damaged", False, tuple(str(error).splitlines()))
    return Check("lint", "", "the graph is sound", True)


def _is_within(option: str, value: Dim, limit: int, unit: str) -> bool:
    """``value <= limit``. Raises ProgramError if that depends on named dims."""
    if isinstance(value, int):
        return value <= limit
    if shapes.at_least(limit, value):
        return True
    needed = " ".join(f"--size {name}=…" for name in sorted(shapes.names(value)))
    raise ProgramError(f"{option}: the value is {value} {unit}; give {needed}")


# -- text ------------------------------------------------------------------------------------------
def node_text(node: Node) -> str:
    """``conv2d: f32[B,8,12,12], conv1 (Conv2d), model.py:26``"""
    types = f": {type_text(node.type)}" if node.type is not None and node.op != "output" else ""
    return f"{node.name}{types}" + (f", {node.origin}" if node.origin else "")


def _place(node: Node) -> str:
    return f"{node.name} ({node.origin})" if node.origin else node.name


def _chain_text(match: QueryMatch) -> str:
    """The last node of a chain, after the names of those that lead to it."""
    return " > ".join([*(node.name for node in match.nodes[:-1]), node_text(match.last)])


def _listed(lines: list[str]) -> tuple[str, ...]:
    """The first lines, and the number of the others."""
    more = len(lines) - MOST_NODES
    return (*lines[:MOST_NODES], *([f"and {more} more"] if more > 0 else []))
