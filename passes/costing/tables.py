"""Cost reports as text: the facts of the whole, then a table by module.

In: reports of :mod:`fxlite.passes.costing.cost_report`. Out: lines and rich tables. Formulas are
shortened in tables (``1.23M*B*T + …``) and written in full for the whole where they fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fxlite.graph.weight_counts import weights_by_node, weights_of
from fxlite.passes.costing.costs import QUANTITIES, Costs, costs_text, intensity_text, short
from fxlite.show.module_tree import ModuleTree, module_tree
from fxlite.show.node_cost import Cost, sum_of_costs
from fxlite.show.summary import label
from fxlite.types.shapes import Dim

if TYPE_CHECKING:
    from fxlite.passes.costing.comparison import CostComparison
    from fxlite.passes.costing.cost_report import CostReport, CostTable

TITLES = {"flops": "FLOPs", "read": "bytes read", "written": "written", "bytes": "bytes",
          "parameters": "parameters", "parameter_bytes": "their bytes", "peak": "peak memory",
          "intensity": "FLOP/byte"}  # fmt: skip
_VARYING = ("flops", "read", "written", "bytes", "peak", "intensity")  # with the sizes
_CHANGES = ("flops", "bytes", "parameters")
_MOST_MODULES = 20  # changed ones that are listed


def report_parts(report: CostReport, by: str, width: int) -> Iterator[Any]:
    """The facts of the whole, and the table by module, op or node."""
    sizes = "".join(f", {name}={size}" for name, size in report.sizes.items())
    yield Text(f"{report.module.name}: {len(report.by_node)} calls{sizes}", style="bold")
    yield Text("\n".join(costs_text(report.total, width)))
    yield ""
    if by != "module":
        yield _node_table(report, width) if by == "node" else _op_table(report, width)
        return
    tree = module_tree(report.module.graph, report.module.name)
    yield _module_table(report, tree, width)
    if any(row.times > 1 for row in tree.rows):
        yield Text("×N: N equal parts in a row; numbers are those of one", style="dim")


def _module_table(report: CostReport, tree: ModuleTree, width: int) -> Table:
    """A row for each module."""
    columns = _columns(report, width)
    table = _table("module", (TITLES[c] for c in columns))
    weights = weights_by_node(report.module)
    for row in tree.rows:
        if row.kind == "input":
            continue
        nodes = [n for n in tree.inside(row) if n in report.by_node]
        if row.depth == 0:
            costs = report.total
        else:
            parameters = [w for w in weights_of(nodes, weights) if w.is_parameter]
            costs = _sum(report, nodes, sum(w.size for w in parameters))
        table.add_row(label(row), *(_cell(costs, c) for c in columns))
    return table


def _columns(report: CostReport, width: int) -> list[str]:
    """What is shown of each module or node; fewer where there are formulas."""
    if report.total.dims:
        return ["flops", "bytes"] if width < 100 else ["flops", "bytes", "parameters"]
    if width < 100:
        return ["flops", "bytes", "peak", "intensity"]
    return ["flops", "read", "written", "parameters", "peak", "intensity"]


def _node_table(report: CostReport, width: int) -> Table:
    """A row for each call, in the order of the program."""
    columns = [c for c in _columns(report, width) if c != "parameters"]
    table = _table("node", ("line", *(TITLES[c] for c in columns)))
    for node, costs in report.by_node.items():
        line = node.loc.short if node.loc is not None else ""
        table.add_row(node.name, line, *(_cell(costs, c) for c in columns))
    return table


def _op_table(report: CostReport, width: int) -> Table:
    """A row for each op, that with the most FLOPs and bytes first."""
    columns = [c for c in _columns(report, width) if c not in ("parameters", "peak")]
    nodes: dict[str, list[Any]] = {}
    for node in report.by_node:
        name = node.target.name if node.op == "call_function" else str(node.target)
        nodes.setdefault(name, []).append(node)
    sums = {name: _sum(report, found, 0) for name, found in nodes.items()}
    table = _table("op", ("calls", *(TITLES[c] for c in columns)))
    for name in sorted(sums, key=lambda name: _weight(sums[name]), reverse=True):
        table.add_row(name, str(len(nodes[name])), *(_cell(sums[name], c) for c in columns))
    return table


def _weight(costs: Costs) -> tuple[float, float]:
    """FLOPs and bytes as numbers, to sort by: each named size counts as 64; unknown ones as 0."""
    at_64 = costs.evaluate(dict.fromkeys(costs.dims, 64))
    return float(at_64.flops or 0), float(at_64.bytes or 0)


def _sum(report: CostReport, nodes: list[Any], parameters: int) -> Costs:
    each = [report.by_node[node] for node in nodes]
    moved = sum_of_costs(Counter(Cost(c.flops, c.read, c.written) for c in each))
    peak = max((c.peak for c in each if isinstance(c.peak, int)), default=None)
    return Costs(moved.flops, moved.read, moved.written, parameters, 0, peak)


def _cell(costs: Costs, quantity: str) -> str:
    if quantity == "intensity":
        return intensity_text(costs) if costs.bytes != 0 else ""
    return short(getattr(costs, quantity))


def range_table(table: CostTable) -> Table:
    """One row for each size."""
    made = _table(table.dim, (TITLES[q] for q in _VARYING))
    for value, costs in zip(table.values, table.costs):
        made.add_row(str(value), *(_cell(costs, q) or "0" for q in _VARYING))
    return made


def _table(first: str, others: Iterable[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for title in others:
        table.add_column(title, justify="right", overflow="fold")
    return table


# -- comparisons -----------------------------------------------------------------------------------
def comparison_parts(comparison: CostComparison) -> Iterator[Any]:
    """The whole before and after, then the modules that change."""
    before, after, change = comparison.before.total, comparison.after.total, comparison.change
    table = _table("", ("before", "after", "change", "%"))
    for quantity in QUANTITIES:
        values = [getattr(costs, quantity) for costs in (before, after, change)]
        title = f"bytes {TITLES[quantity]}" if quantity == "written" else TITLES[quantity]
        cells = [short(v) or "0" for v in values]
        table.add_row(title, *cells[:2], _signed(values[2]), _percent(values[2], values[0]))
    if isinstance(before.intensity, float) and isinstance(after.intensity, float):
        table.add_row(TITLES["intensity"], *(intensity_text(c) for c in (before, after)), "", "")
    yield table
    modules = {path: c for path, c in comparison.by_module.items() if path}
    if not modules:
        return
    yield ""
    table = _table("changed modules", (TITLES[q] for q in _CHANGES))
    for path, costs in list(modules.items())[:_MOST_MODULES]:
        table.add_row(path, *(_signed(getattr(costs, q)) for q in _CHANGES))
    yield table
    if len(modules) > _MOST_MODULES:
        yield Text(f"and {len(modules) - _MOST_MODULES} more", style="dim")


def _signed(value: Dim | None) -> str:
    text = short(value)
    return f"+{text}" if text and text[0] not in "-?" else text


def _percent(change: Dim | None, before: Dim | None) -> str:
    if not isinstance(change, int) or not isinstance(before, int) or not before or not change:
        return ""
    return f"{100 * change / before:+.2f}"
