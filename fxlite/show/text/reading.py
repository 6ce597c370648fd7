"""The output of ``print(graph)``: the text of a graph for a reader, and a table of its nodes.

In: a graph, and the number of columns. Out: text in which

- lines fit: long calls are broken at their brackets, and a comment that says where a node comes from
  is on the line before if it does not fit on the right;
- names and types are aligned in columns;
- repeated parts are shown once: ``# ×12: layers.1 … layers.11 are the same``;
- weights are listed at the end if three lines can hold them, and otherwise counted.

The number of columns is that of the terminal. If the output is not a terminal, it is 100, unless the
environment variable ``COLUMNS`` says otherwise, so that files and pipes do not depend on where a
program was started.

``str(graph)`` never has colours, since its destination is unknown; ``graph.print()`` and ``fxlite
trace`` print the same text in colours on a terminal, with a link to each line of the user's program.
``graph.text(full=True)`` is the exact text: it has every node on a line of its own, and every weight,
and is equal for equal graphs, whatever the terminal. :func:`fxlite.parse` reads it back. It also reads
the text for a reader if that leaves out nothing, and otherwise raises an error that names
``full=True``.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite.base import outside_text
from fxlite.base.console import output_console, output_width, print_code, show
from fxlite.base.errors import number_of
from fxlite.graph.graph import Graph, Node
from fxlite.graph.subgraph import bodies_of
from fxlite.show.drawing.outline import Part, outline
from fxlite.show.text.pretty import (
    FUTURE_IMPORT,
    annotation_of,
    call_text,
    first_lines,
    function_head,
    graph_text,
    node_line,
    node_lines,
    operand_lines,
    origins,
    remark_on,
    remembering,
    type_text,
    value_text,
    weights_comment,
    with_comment,
    without_bodies,
    wrap_code,
)
from fxlite.show.text.words import words_of
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fxlite.graph.graph_module import GraphModule

#: Weights whose list takes more lines are counted instead.
_LISTED_LINES = 3
#: The widest columns of names and types, from 100 columns on and below; longer texts stick out.
_WIDE, _NARROW = (24, 30), (14, 22)
_NODES_WITH_LINES = ("call_function", "call_module")


def text_of(
    graph: Graph,
    *,
    full: bool = False,
    weights: bool = False,
    width: int | None = None,
    hint: str = "weights=True lists them",
) -> str:
    """The text of a graph: for a reader with ``width`` columns, or exact (``full``). With ``weights``, all
    weights are listed, however many there are; where they are only counted, ``hint`` says how to see them."""
    if full:
        return graph_text(graph)
    return "\n".join(_fitted(graph, width or output_width(), weights, hint, fold=True, align=True))


def code_text(graph: Graph) -> str:
    """The source of the function that runs the graph, ``def forward(self, x): ...``: all nodes, in lines
    no wider than the output."""
    return f"{FUTURE_IMPORT}" + "\n".join(_fitted(graph, output_width(), weights=True)) + "\n"


def readable(module: GraphModule, width: int | None = None) -> str:
    """The module as the source of a class with its ``forward``."""
    name = re.sub(r"\W", "_", module.name, flags=re.ASCII)
    name = name if outside_text.is_name(name) else f"_{name}"
    body = textwrap.indent(text_of(module.graph, width=(width or output_width()) - 4), "    ")
    return f"class {name}(nn.Module):\n{body}"


def print_graph(graph: Graph, *, console: Console | None = None, width: int | None = None, **how: Any) -> None:
    """Print the text of a graph (see :func:`text_of`); on a terminal, in colours and with links."""
    console = console or output_console()
    print_code(console, text_of(graph, width=width or console.width, **how), links(graph))


def print_readable(module: GraphModule) -> None:
    """Print :func:`readable`; on a terminal, in colours and with links."""
    print_code(output_console(), readable(module), links(module.graph))


def links(graph: Graph) -> dict[str, str]:
    """The addresses of the user's lines by their names in the text, such as ``model.py:31``. Files that do
    not exist and names that mean lines of several files are left out."""
    places = {(n.loc.short, n.loc.file, n.loc.line) for n in graph.nodes if n.loc is not None}
    places |= {(g.loc.short, g.loc.file, g.loc.line) for g in graph.guards if g.loc is not None}
    count = Counter(short for short, _, _ in places)
    exists = {file: os.path.isfile(file) for _, file, _ in places}
    return {
        short: f"{Path(file).absolute().as_uri()}#{line}"
        for short, file, line in places
        if count[short] == 1 and exists[file]
    }


# -- lines -----------------------------------------------------------------------------------------
def _fitted(
    graph: Graph, width: int, weights: bool, hint: str = "", fold: bool = False, align: bool = False
) -> list[str]:
    words = words_of(graph)
    lines = function_head(graph, words, width)
    for code, comment in first_lines(graph, words):
        lines += _broken(code, comment, width)
    shown = list(_shown(graph) if fold else graph.nodes)
    columns = _columns([n for n in shown if isinstance(n, Node)], width) if align else (0, 0)
    annotation = remembering(annotation_of)
    origin = origins()
    is_empty = True
    for run in _runs(shown):
        if isinstance(run, str):
            lines += textwrap.wrap(run, width, initial_indent="    # ", subsequent_indent="    #   ")
            continue
        for node, own in node_lines(graph, words, annotation, origin, run):
            is_empty = False
            is_plain = align and node.op in _NODES_WITH_LINES and not bodies_of(node)
            for code, comment in own:
                if node.op == "output" and (remark := remark_on(node)) and code.endswith(remark):
                    code, comment = code.removesuffix(remark), remark.removeprefix("  # ")
                aligned = _aligned(node, code, annotation(node.type), columns) if is_plain else code
                lines += _broken(aligned, comment, width)
    if is_empty:
        lines.append("    pass")
    return [*lines, *_weights(graph, width, weights, hint)]


def node_text(node: Node, width: int) -> str:
    """A node's line and its place, in lines of at most ``width`` columns."""
    origin = outside_text.comment(node.origin).strip() if node.op != "output" else ""
    return "\n".join(_broken(without_bodies(node, node_line(node)), origin, width, ""))


def _broken(code: str, comment: str, width: int, indent: str = "    ") -> list[str]:
    """A line in lines of at most ``width`` columns, as far as brackets allow."""
    whole = f"{indent}{with_comment(code, comment)}"
    if len(whole) <= width:
        return [whole]
    lead = indent + code[: len(code) - len(code.lstrip())]  # of a node inside a body
    before = textwrap.wrap(
        comment,
        width,
        initial_indent=f"{lead}# ",
        subsequent_indent=f"{lead}#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*before, *broken_code(f"{indent}{code}", width)]


def broken_code(code: str, width: int) -> list[str]:
    """A line of code in lines of at most ``width`` columns, as far as brackets and operators allow; the value is
    below the name if both together are too long."""
    lines = wrap_code(code, width)
    left, sign, right = code.partition(" = ")
    is_long = len(lines[0]) > width or (lines[0].endswith(" = (") and len(lines[1]) > width)
    if is_long and sign and len(left) + 4 <= width:
        indent = " " * (len(code) - len(code.lstrip()))
        value = f"{indent}    {right}"
        parts = operand_lines(value, width)
        lines = [f"{left} = (", *(parts if len(parts) > 1 else wrap_code(value, width)), f"{indent})"]
    return _filled(lines, width)


def _filled(lines: Sequence[str], width: int) -> list[str]:
    """Arguments that were on lines of their own, as many on each line as fit."""
    found = list(lines[:1])
    for line in lines[1:]:
        text = line.lstrip()
        indent = line[: len(line) - len(text)]
        last = found[-1]
        is_next = last.endswith(",") and text.endswith(",") and last.startswith(indent) and last[len(indent)] != " "
        if is_next and len(last) + 1 + len(text) <= width:
            found[-1] = f"{last} {text}"
        else:
            found.append(line)
    return found


def _aligned(node: Node, code: str, annotation: str, columns: tuple[int, int]) -> str:
    """``relu:     f32[2,8]  = ops.relu(x)``"""
    head = f"{node.name}{annotation} = "
    if not annotation or not code.startswith(head):
        return code
    return f"{node.name + ':':<{columns[0] + 1}} {annotation[2:]:<{columns[1]}} = {code[len(head) :]}"


def _columns(nodes: Sequence[Node], width: int) -> tuple[int, int]:
    """The widths of the columns of names and types."""
    most = _WIDE if width >= 100 else _NARROW
    lengths = {(len(n.name), len(type_text(n.type))) for n in nodes if n.op in _NODES_WITH_LINES and n.type is not None}
    names, types = (max((pair[i] for pair in lengths if pair[i] <= most[i]), default=0) for i in (0, 1))
    return names, types


def _weights(graph: Graph, width: int, all_of_them: bool, hint: str) -> list[str]:
    """The list of weights, or their number."""
    listed = weights_comment(graph, width)
    if all_of_them or len(listed) <= _LISTED_LINES:
        return listed
    types = {n.target: n.type for n in graph.nodes if n.op == "get_attr"}
    known = [math.prod(t.shape) for t in types.values() if isinstance(t, TensorType) and t.is_concrete]
    size = f" with {number_of(sum(known), 'element')}" if len(known) == len(types) else ""
    text = f"{number_of(len(types), 'weight')}{size}, not listed: {hint}"
    return textwrap.wrap(text, width, initial_indent="    # ", subsequent_indent="    #   ")


# -- repeated parts --------------------------------------------------------------------------------
def _runs(shown: Iterable[Node | str]) -> Iterator[list[Node] | str]:
    run: list[Node] = []
    for item in shown:
        if isinstance(item, Node):
            run.append(item)
            continue
        yield run
        yield item
        run = []
    yield run


def _shown(graph: Graph) -> Iterator[Node | str]:
    """The nodes that have lines, and the texts of folds between them."""
    found = outline(graph, left_out=lambda node: node.op == "get_attr")
    nodes, hidden = found.nodes, [False] * len(found.nodes)
    folds: dict[int, list[str]] = {}
    places = {node: place for place, node in enumerate(nodes)}
    for part in found.parts():
        if part.times == 1 or any(nodes[place].op == "placeholder" for place in range(part.start, part.stop)):
            continue
        hidden[part.stop : part.end] = [True] * (part.end - part.stop)
        text = outside_text.comment(fold_text(part, nodes, places)).strip()
        folds.setdefault(part.stop, []).insert(0, text)
    for place, node in enumerate(nodes):
        if hidden[place] and place not in folds:
            continue
        yield from folds.get(place, ())
        if not hidden[place]:
            yield node


def fold_text(
    part: Part, nodes: Sequence[Node], places: Mapping[Node, int], one: str = "is the same", more: str = "are the same"
) -> str:
    """``×12: layers.1 … layers.11 are the same; the last gives add_23``. Only nodes in ``places`` count as readers of
    what the last one gives."""
    length = part.stop - part.start
    paths = [_path(nodes[part.start + copy * length : part.start + (copy + 1) * length]) for copy in range(part.times)]
    last = range(part.end - length, part.end)
    made = [nodes[place].name for place in last if any(places.get(u, place) not in last for u in nodes[place].users)]
    others = dict.fromkeys(paths[1:])
    if len({*paths}) < part.times or "" in others:
        said = f"the {length} nodes above occur {part.times} times"
    elif part.times == 2:
        said = f"{paths[1]} {one}"
    else:
        said = f"{paths[1]} {'…' if part.times > 3 else 'and'} {paths[-1]} {more}"
    if not made:
        return f"×{part.times}: {said}"
    rest = f" and {len(made) - 3} more" if len(made) > 3 else ""
    return f"×{part.times}: {said}; the last gives {', '.join(made[:3])}{rest}"


def _path(nodes: Iterable[Node]) -> str:
    """The path of the module that all of the nodes are in; empty for the root."""
    paths = [node.scope.path.split(".") if node.scope is not None else [] for node in nodes]
    return ".".join(steps[0] for steps in itertools.takewhile(lambda steps: len({*steps}) == 1, zip(*paths)))


# -- tables ----------------------------------------------------------------------------------------
def print_table(graph: Graph) -> None:
    """Print a table with the opcode, name, type, value and place of every node."""
    console = output_console()
    show(console, node_table(graph, console.width))


def node_table(graph: Graph, width: int = 100) -> Table:
    """The table of :func:`print_table`, with a line for each node, in at most ``width`` columns. Texts
    that do not fit end in ``…``; origins are shown from 100 columns on, opcodes from 120."""
    from rich.table import Table
    from rich.text import Text

    rows = [_table_row(node) for node in graph.nodes]
    is_wide = width >= 120
    headings = (("opcode",) if is_wide else ()) + ("name", "type", "value") + (("origin",) if width >= 100 else ())
    widths = {h: max([len(h), *(len(row[h]) for row in rows)]) for h in headings}
    widths["name"] = min(widths["name"], _WIDE[0] if is_wide else _NARROW[0] + 4)
    widths["type"] = min(widths["type"], _WIDE[1] if is_wide else _NARROW[1])
    if "origin" in widths:
        widths["origin"] = min(widths["origin"], width // 5)
    others = sum(size for heading, size in widths.items() if heading != "value")
    widths["value"] = max(min(widths["value"], width - others - 2 * (len(headings) - 1)), len("value"))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True, overflow="ellipsis", width=widths[heading])
    for row in rows:
        table.add_row(*(Text(row[heading]) for heading in headings))
    return table


def _table_row(node: Node) -> dict[str, str]:
    if node.op == "placeholder":
        value, origin = str(node.target), ""
    elif node.op == "output":
        value, origin = value_text(node.args[0]), ""
    else:
        value, origin = without_bodies(node, call_text(node)), node.origin
    type = type_text(node.type) if node.type is not None else ""
    return {"opcode": node.op, "name": node.name, "type": type, "value": value, "origin": origin}
