"""The modules of a graph as a list of rows, outer ones first, and the summary of a model, which shows
them with their results, parameters and FLOPs.

In: a graph, or a GraphModule. Out: a :class:`ModuleTree`: a row for each call of a module, each
input, and each run of ops that are in no module further inside; equal parts that follow each other
are one row ("×12"). A row stands for a range of nodes, so that anything can be summed over it. And a
:class:`Summary`, which prints as a table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fxlite import nn
from fxlite.base.console import Printed
from fxlite.base.errors import number_of
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op
from fxlite.show.drawing.outline import Part, outline
from fxlite.show.node_cost import (
    Weight,
    node_cost,
    quantity_text,
    short_text,
    sum_of_costs,
    weights_by_node,
    weights_of,
)
from fxlite.show.text.pretty import type_text
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


# -- rows ------------------------------------------------------------------------------------------
#: Ops that tell little about what a run of ops does: they are named only if the run has no others.
_PLAIN_KINDS = ("view", "creation", "gather")


@dataclass(frozen=True)
class TreeRow:
    """``kind`` is "module", "ops" (outside the modules below), "input", or "repeat": several rows
    that follow each other ``times`` times.

    ``name`` is the module's path from the row above (``0…11`` for twelve equal ones), the input's
    name, or the names of the ops; ``branch`` has the lines of the tree in front of it. The row stands
    for ``times`` equal ranges of nodes, of which ``start`` to ``stop`` is the first."""

    kind: str
    name: str
    class_name: str
    times: int
    depth: int
    branch: str
    start: int
    stop: int


@dataclass(frozen=True)
class ModuleTree:
    """All nodes except those that read weights, in order, and the rows over them; the first row is the
    whole graph."""

    nodes: list[Node]
    rows: tuple[TreeRow, ...]

    def inside(self, row: TreeRow) -> list[Node]:
        """The nodes of a row, of one copy if it stands for several."""
        return self.nodes[row.start : row.stop]


def module_tree(graph: Graph, name: str, depth: int | None = None) -> ModuleTree:
    """The rows of a graph called ``name``. With ``depth``, modules that many levels down are not
    opened: 1 shows only the modules of the root."""
    found = outline(graph, lambda node: node.op == "get_attr")
    nodes = found.nodes
    rows: list[TreeRow] = []
    work: list[tuple[TreeRow, Part, str]] = [(TreeRow("module", name, "", 1, 0, "", 0, len(nodes)), found.root, "")]
    while work:
        row, part, indent = work.pop()
        rows.append(row)
        is_open = row.kind in ("module", "repeat") and (depth is None or row.depth < depth)
        if not (is_open and (part is found.root or _has_modules(part))):
            continue
        below = list(_rows_below(nodes, part, row.depth + 1))
        for place in reversed(range(len(below))):
            inner, inner_part = below[place]
            is_last = place == len(below) - 1
            made = replace(inner, branch=indent + ("└─ " if is_last else "├─ "))
            work.append((made, inner_part, indent + ("   " if is_last else "│  ")))
    return ModuleTree(nodes, tuple(rows))


def _rows_below(nodes: list[Node], part: Part, depth: int) -> Iterator[tuple[TreeRow, Part]]:
    """A row for each module and input in a part, and for each run of other nodes."""
    run: list[Part] = []
    for child in [*part.children, None]:
        if child is not None and _is_plain(nodes, child):
            run.append(child)
            continue
        if run:
            first, last = run[0].start, run[-1].end
            title = ops_title(nodes[first:last])
            yield TreeRow("ops", title, "", 1, depth, "", first, last), run[0]
            run = []
        if child is None or nodes[child.start].op == "output":
            continue
        name, _, class_name = child.title.partition(" (")
        kind = "module" if child.title else "repeat"
        if nodes[child.start].op == "placeholder":
            kind, name = "input", nodes[child.start].name
        row = TreeRow(kind, name, class_name.removesuffix(")"), child.times, depth, "", child.start, child.stop)
        yield row, child


def _is_plain(nodes: list[Node], part: Part) -> bool:
    """True for an op outside modules, and for ops that repeat."""
    if part.title or nodes[part.start].op in ("placeholder", "output"):
        return False
    return not _has_modules(part)


def _has_modules(part: Part) -> bool:
    work = list(part.children)
    while work:
        child = work.pop()
        if child.title:
            return True
        work += child.children
    return False


def ops_title(nodes: list[Node]) -> str:
    """``matmul, div, softmax``: the ops in a run, each once; views only if there are no others."""
    telling = [n for n in nodes if not isinstance(n.target, Op) or n.target.kind not in _PLAIN_KINDS]
    names = [
        n.target.name if isinstance(n.target, Op) else str(n.target)
        for n in telling or nodes
        if not (isinstance(n.target, Op) and n.target.name == "getitem" and len(nodes) > 1)
    ]
    return ", ".join(dict.fromkeys(names))


def outer_modules(path: str) -> list[str]:
    """A module's path and those around it, the root (an empty path) first: "", "a", "a.b"."""
    steps = path.split(".") if path else []
    return [".".join(steps[:count]) for count in range(len(steps) + 1)]


# -- summary ---------------------------------------------------------------------------------------
_STYLES = {"module": "bold", "input": "cyan", "ops": "italic", "repeat": "dim"}
#: The widest columns of types, in a narrow terminal and from 100 columns on.
_NARROW_TYPE, _WIDE_TYPE = 24, 40


@dataclass(frozen=True)
class SummaryRow:
    """One row: its place in the tree (``row``), the types of its values that later nodes read, the
    number of its parameters, and its FLOPs (None: unknown), all of one copy if it stands for several.

    ``parameters`` leaves out those that a row further up reads, too; ``is_shared`` is True if there
    are any. ``computes`` names the ops of a layer if passes have replaced those that its class names:
    ``norm rms_norm (was LayerNorm)``."""

    row: TreeRow
    types: tuple[Any, ...]
    parameters: int
    is_shared: bool
    flops: Dim | None
    computes: str = ""

    @property
    def result(self) -> str:
        """The type of the result; of several, the type of the last and the number of the others."""
        if not self.types:
            return ""
        more = len(self.types) - 1
        return type_text(self.types[-1]) + (f", {more} more" if more else "")


@dataclass(frozen=True, repr=False)
class Summary(Printed):
    """The rows, of which the first is the whole; all weights that are read; and the number of nodes, in
    all and of each kind."""

    rows: tuple[SummaryRow, ...]
    weights: tuple[Weight, ...]
    nodes: int
    kinds: Mapping[str, int] = field(default_factory=dict)

    @property
    def about(self) -> str:
        return f"{number_of(self.nodes, 'node')} in {number_of(len(self.rows), 'row')}"

    @property
    def parameters(self) -> int:
        """The number of elements of all parameters that are read, each counted once."""
        return sum(w.size for w in self.weights if w.is_parameter)

    @property
    def flops(self) -> Dim | None:
        """The FLOPs of all nodes; None if those of one are unknown."""
        return self.rows[0].flops

    def table(self, width: int = 100) -> Table:
        """A rich table of at most ``width`` columns."""
        from rich.table import Table

        types = max(map(len, ("result", *(row.result for row in self.rows))))
        most = _WIDE_TYPE if width >= 100 else _NARROW_TYPE
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("module", min_width=12)  # shrinks if the terminal is too narrow
        table.add_column("result", no_wrap=True, overflow="ellipsis", max_width=min(types, most))
        table.add_column("parameters", justify="right", no_wrap=True)
        table.add_column("FLOPs", justify="right", no_wrap=True, overflow="ellipsis")
        for row in self.rows:
            table.add_row(*_cells(row))
        return table

    @property
    def facts(self) -> str:
        """Two lines about the whole: its nodes, and its weights."""
        parameters = [w for w in self.weights if w.is_parameter]
        buffers = [w for w in self.weights if not w.is_parameter]
        kinds = ", ".join(number_of(count, kind) for kind, count in self.kinds.items())
        held = f"{number_of(self.parameters, 'parameter')} ({_bytes(parameters)})"
        if buffers:
            held += f", {number_of(sum(w.size for w in buffers), 'other weight')} ({_bytes(buffers)})"
        return f"{number_of(self.nodes, 'node')} ({kinds})\n{held}"

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield self.table(options.max_width)
        yield ""
        yield self.facts
        if any(row.row.times > 1 for row in self.rows):
            yield "×N: N equal parts in a row; numbers are those of one"


def summarize(module: GraphModule, depth: int | None = None) -> Summary:
    """The summary of a module; ``depth`` limits the levels of modules that are opened."""
    tree = module_tree(module.graph, module.name, depth)
    weights = weights_by_node(module)
    first_reader: dict[Weight, int] = {}
    for place, node in enumerate(tree.nodes):
        for weight in weights.get(node, ()):
            first_reader.setdefault(weight, place)
    places = {node: place for place, node in enumerate(tree.nodes)}
    rows = tuple(_summary_row(tree, row, weights, first_reader, places) for row in tree.rows)
    everything = weights_of(tree.nodes, weights)
    kinds = Counter(_KINDS.get(node.op, "call") for node in module.graph.nodes)
    return Summary(rows, tuple(everything), len(module.graph), dict(kinds))


#: How nodes are counted; all others are calls.
_KINDS = {"placeholder": "input", "get_attr": "weight", "output": "output"}


def _summary_row(
    tree: ModuleTree,
    row: TreeRow,
    weights: dict[Node, tuple[Weight, ...]],
    first_reader: dict[Weight, int],
    places: dict[Node, int],
) -> SummaryRow:
    nodes = tree.inside(row)
    read = [w for w in weights_of(nodes, weights) if w.is_parameter]
    own = [w for w in read if row.start <= first_reader[w] < row.stop]
    counts = Counter(node_cost(node) for node in nodes if node.op.startswith("call_"))
    types = _results(nodes, row, places) if row.depth else ()
    size = sum(w.size for w in own)
    return SummaryRow(row, types, size, len(own) < len(read), sum_of_costs(counts).flops, _instead(row, nodes))


def _instead(row: TreeRow, nodes: list[Node]) -> str:
    """The ops of a layer if passes have replaced those that its class names, else an empty text."""
    if row.kind != "module" or not row.depth or not any("from" in (node._meta or {}) for node in nodes):
        return ""
    if not hasattr(nn, row.class_name) or len({node.scope.path for node in nodes if node.scope is not None}) > 1:
        return ""
    title = ops_title(nodes)
    named = re.sub(r"[\d_]|1d|2d|3d", "", row.class_name.lower())
    return "" if named in re.sub(r"[\d_]|1d|2d|3d", "", title) else title


def _results(nodes: list[Node], row: TreeRow, places: dict[Node, int]) -> tuple[Any, ...]:
    """The types of the values that nodes outside the row read; if there are none, that of the last node."""
    if row.kind in ("ops", "repeat"):
        return (nodes[-1].type,) if nodes[-1].type is not None else ()
    read = [node for node in nodes if any(not row.start <= places[u] < row.stop for u in node.users)]
    return tuple(node.type for node in read or nodes[-1:] if node.type is not None)


# -- text ------------------------------------------------------------------------------------------
def label(row: TreeRow) -> Text:
    """``│  ├─ 0…11 EncoderLayer ×12``"""
    from rich.text import Text

    text = Text(row.branch, style="dim")
    text.append(row.name, style=_STYLES[row.kind])
    text.append(f" {row.class_name}" if row.class_name else "", style="default")
    text.append(f" ×{row.times}" if row.times > 1 else "", style="yellow")
    return text


def _cells(row: SummaryRow) -> list[Any]:
    from rich.text import Text

    parameters = f"{row.parameters:,}" if row.parameters else ""
    if row.is_shared:
        parameters = f"{parameters} + shared" if parameters else "shared"
    flops = "?" if row.flops is None else short_text(row.flops) if row.flops != 0 else ""
    if row.row.kind == "input":
        flops = ""
    now = f"{row.computes} (was {row.row.class_name})" if row.computes else row.row.class_name
    first = label(replace(row.row, class_name=now))
    first.no_wrap, first.overflow = True, "ellipsis"
    return [first, Text(row.result), Text(parameters), Text(flops)]


def _bytes(weights: list[Weight]) -> str:
    return quantity_text(sum(w.nbytes for w in weights), "B")
