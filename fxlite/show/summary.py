"""A model summary: the modules of a program with result, parameters and FLOPs, as a tree.

In: a GraphModule. Out: a :class:`Summary`, which prints as a table: what stands in a module further
inside, equal blocks once ("×12"), and code outside modules by its ops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.weight_counts import Weight, weights_by_node, weights_of
from fxlite.show.module_tree import ModuleTree, TreeRow, module_tree
from fxlite.show.node_cost import node_cost, short_text, sum_of_costs
from fxlite.show.text.pretty import type_text
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_STYLES = {"module": "bold", "input": "cyan", "ops": "italic", "repeat": "dim"}
#: Widest columns of types, in a narrow terminal and from 100 columns on.
_NARROW_TYPE, _WIDE_TYPE = 24, 40


@dataclass(frozen=True)
class SummaryRow:
    """One row: where it stands (``row``), the types of what later nodes read of it, the number of
    its parameters, and its FLOPs (None: unknown), all of one copy where it stands for several.

    ``parameters`` leaves out those of rows further up; ``is_shared`` if there are such."""

    row: TreeRow
    types: tuple[Any, ...]
    parameters: int
    is_shared: bool
    flops: Dim | None

    @property
    def result(self) -> str:
        """The result's type; of several, the last and how many more."""
        if not self.types:
            return ""
        more = len(self.types) - 1
        return type_text(self.types[-1]) + (f", {more} more" if more else "")


@dataclass(frozen=True)
class Summary:
    """The rows, the first for the whole; all weights that are read, and how many nodes there
    are."""

    rows: tuple[SummaryRow, ...]
    weights: tuple[Weight, ...]
    nodes: int

    @property
    def parameters(self) -> int:
        """Elements of all parameters that are read, each once."""
        return sum(w.size for w in self.weights if w.is_parameter)

    @property
    def flops(self) -> Dim | None:
        """FLOPs of all nodes; None where those of one are unknown."""
        return self.rows[0].flops

    def table(self, width: int = 100) -> Table:
        """A rich table of at most ``width`` columns."""
        from rich.table import Table

        types = max((len(row.result) for row in self.rows), default=4)
        most = _WIDE_TYPE if width >= 100 else _NARROW_TYPE
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("module", no_wrap=True, overflow="ellipsis")
        table.add_column("result", overflow="fold", max_width=min(types, most))
        table.add_column("parameters", justify="right", no_wrap=True)
        table.add_column("FLOPs", justify="right", overflow="fold")
        for row in self.rows:
            table.add_row(*_cells(row))
        return table

    @property
    def facts(self) -> str:
        """One line about the whole."""
        parameters = [w for w in self.weights if w.is_parameter]
        buffers = [w for w in self.weights if not w.is_parameter]
        texts = [f"{self.nodes} nodes", f"{self.parameters:,} parameters ({_bytes(parameters)})"]
        if buffers:
            texts.append(f"{sum(w.size for w in buffers):,} other weights ({_bytes(buffers)})")
        return ", ".join(texts)

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield self.table(options.max_width)
        yield ""
        yield self.facts
        if any(row.row.times > 1 for row in self.rows):
            yield "×N: N equal parts in a row; numbers are those of one"

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__


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
    return Summary(rows, tuple(everything), len(module.graph))


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
    return SummaryRow(row, types, size, len(own) < len(read), sum_of_costs(counts).flops)


def _results(nodes: list[Node], row: TreeRow, places: dict[Node, int]) -> tuple[Any, ...]:
    """Types of what nodes outside the row read; of the last node where there are none such."""
    if row.kind in ("ops", "repeat"):
        return (nodes[-1].type,) if nodes[-1].type is not None else ()
    read = [
        node for node in nodes if any(not row.start <= places[u] < row.stop for u in node.users)
    ]
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
    return [label(row.row), Text(row.result), Text(parameters), Text(flops)]


def _bytes(weights: list[Weight]) -> str:
    return f"{short_text(sum(w.nbytes for w in weights))}B"
