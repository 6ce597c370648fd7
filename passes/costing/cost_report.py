"""What a graph costs by node, by module and in total, as numbers or as expressions in its named dims.

In: a typed GraphModule. Out: :func:`cost`, a :class:`CostReport` of FLOPs, bytes, parameters and
memory, which prints as a table. It takes sizes (:meth:`~CostReport.evaluate`), gives values over a
range (:meth:`~CostReport.table`, :meth:`~CostReport.plot`) and can be compared with another report
(:meth:`~CostReport.compare`, or ``after - before``), which gives a :class:`CostComparison`. Formulas
are shortened in tables (``1.23M*B*T + …``); those of the total are written in full if they fit.

A FLOP is a scalar operation, and a multiply-add counts as two, so that a matrix product of [M, K] by
[K, N] counts 2*M*N*K. :mod:`fxlite.show.node_cost` describes the cost of a single node, and
:mod:`fxlite.passes.costing.timeline` the memory of a graph.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from fxlite.base.checked import checked
from fxlite.base.console import Printed
from fxlite.base.errors import ArgumentError, GraphError, expect, number_of, sizes_text
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.costs import (
    QUANTITIES,
    TITLES,
    Costs,
    SizeRanges,
    check_dims,
    costs_text,
    intensity_text,
    short,
    sizes_that_pay,
)
from fxlite.passes.costing.timeline import Largest, Polynomial, as_dim, moments
from fxlite.show.node_cost import Cost, Weight, node_cost, node_flops, sum_of_costs, weights_by_node, weights_of
from fxlite.show.summary import ModuleTree, label, module_tree, outer_modules
from fxlite.types import shapes
from fxlite.types.shapes import Dim

#: What the costs of a report may be listed by.
GROUPINGS = ("module", "op", "node")


@dataclass(frozen=True, eq=False, repr=False)
class CostReport(Printed):
    """The costs of a program. ``by_node`` has the costs of each call, ``by_module`` those of each
    module with everything inside it, by path; the root's path is empty. ``sizes`` are the sizes of
    named dims that were given.

    The peak of a module is that of the whole program's memory while the module runs."""

    module: GraphModule
    sizes: Mapping[str, int]
    by_node: Mapping[Node, Costs]
    by_module: Mapping[str, Costs]

    @property
    def about(self) -> str:
        return f"{number_of(len(self.by_node), 'call')} of {self.module.name}"

    @property
    def total(self) -> Costs:
        """The costs of the whole program."""
        return self.by_module[""]

    @property
    def dims(self) -> tuple[str, ...]:
        """The named dims that the total depends on, sorted."""
        return tuple(sorted(self.total.dims))

    def evaluate(self, **sizes: int) -> CostReport:
        """The report at given sizes of named dims: ``report.evaluate(B=8, T=128)``. Raises
        ArgumentError for a dim that the program does not have."""
        check_dims(self.module.graph, sizes)
        known: dict[Costs, Costs] = {}

        def at_sizes(costs: Costs) -> Costs:
            if costs not in known:
                known[costs] = costs.evaluate(sizes)
            return known[costs]

        return CostReport(
            self.module,
            {**self.sizes, **sizes},
            {node: at_sizes(costs) for node, costs in self.by_node.items()},
            {path: at_sizes(costs) for path, costs in self.by_module.items()},
        )

    def table(self, **sizes: int | Sequence[int]) -> CostTable:
        """The total at several sizes of one dim: ``report.table(T=[64, 128, 256], B=8)``.

        Raises ArgumentError unless exactly one dim has several sizes and all others have one."""
        ranges = {name: tuple(v) for name, v in sizes.items() if not isinstance(v, int)}
        fixed = {name: v for name, v in sizes.items() if isinstance(v, int)}
        if len(ranges) != 1:
            raise ArgumentError("give one dim several sizes and others one: table(T=[64, 128], B=8)")
        ((dim, values),) = ranges.items()
        check_dims(self.module.graph, {**fixed, dim: 0})
        missing = [name for name in self.dims if name not in sizes]
        if missing:
            raise ArgumentError(f"the costs depend on {', '.join(missing)}, too; give sizes")
        total = self.total.evaluate(fixed)
        return CostTable(self.module.name, dim, fixed, values, tuple(total.evaluate({dim: v}) for v in values))

    def listing(self, by: str = "module", width: int = 100) -> Any:
        """A rich object with the total and a row for each ``module`` (which ``print`` shows), ``op`` or
        ``node``. Raises ArgumentError for any other value of ``by``."""
        from rich.console import Group

        if by not in GROUPINGS:
            raise ArgumentError(f"costs are listed by {', '.join(GROUPINGS)}, not by {by!r}")
        return Group(*report_parts(self, by, width))

    def plot(self, quantity: str, path: str | os.PathLike[str] | None = None, **sizes: Any) -> str:
        """Plot a quantity over several sizes of one dim. Returns SVG text, which is also written to
        ``path`` if given: ``report.plot("flops", "flops.svg", T=range(1, 1025), B=8)``.

        Raises ArgumentError as :meth:`table` does, and for an unknown quantity."""
        from fxlite.passes.costing.pictures import plot

        return plot({self.module.name: self}, quantity, path, sizes)

    def compare(self, after: CostReport) -> CostComparison:
        """The change in costs from this report to ``after``, the report of a rewritten program."""
        return CostComparison(self, after)

    def __sub__(self, before: CostReport) -> CostComparison:
        """``after - before``: the change from ``before`` to this report."""
        return before.compare(self)

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield from report_parts(self, "module", options.max_width)


@dataclass(frozen=True, repr=False)
class CostTable(Printed):
    """Costs of a program at several ``values`` of the size ``dim``; prints as a table."""

    name: str
    dim: str
    sizes: Mapping[str, int]
    values: tuple[int, ...]
    costs: tuple[Costs, ...]

    @property
    def about(self) -> str:
        return f"{self.name} at {number_of(len(self.values), 'value')} of {self.dim}"

    def column(self, quantity: str) -> list[Any]:
        """The values of a quantity, for plotting: ``table.column("flops")`` against ``table.values``."""
        if quantity not in (*QUANTITIES, "intensity"):
            known = ", ".join((*QUANTITIES, "intensity"))
            raise ArgumentError(f"there is no cost {quantity!r}; known: {known}")
        return [getattr(costs, quantity) for costs in self.costs]

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield range_table(self)


# -- before and after a rewrite --------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class CostComparison(Printed):
    """``before`` and ``after``; prints as a table."""

    before: CostReport
    after: CostReport

    @property
    def about(self) -> str:
        return f"{self.before!r} and {self.after!r}"

    @property
    def change(self) -> Costs:
        """The change in the total; negative where costs went down."""
        return self.after.total - self.before.total

    @property
    def by_module(self) -> dict[str, Costs]:
        """The changes of the modules that change, by path; a module that only one side has counts as
        0 on the other."""
        before, after = self.before.by_module, self.after.by_module
        none = Costs()
        changes = {path: after.get(path, none) - before.get(path, none) for path in {**before, **after}}
        return {path: change for path, change in changes.items() if change != none}

    def pays_when(self, dim: str, /, by: str | Callable[[Costs], Any] = "bytes", **sizes: int) -> SizeRanges:
        """The sizes of ``dim`` for which the program costs less after than before: see
        :func:`~fxlite.passes.costing.cost_report.pays_when`."""
        return sizes_that_pay(self.before.total, self.after.total, dim, by, sizes)

    def plot(self, quantity: str, path: str | os.PathLike[str] | None = None, **sizes: Any) -> str:
        """Plot a quantity before and after over several sizes of one dim, as :meth:`CostReport.plot
        <fxlite.passes.CostReport.plot>` does, and mark the sizes from which the change pays."""
        from fxlite.passes.costing.pictures import plot

        return plot({"before": self.before, "after": self.after}, quantity, path, sizes)

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield from comparison_parts(self)


# -- text ------------------------------------------------------------------------------------------
_VARYING = ("flops", "read", "written", "bytes", "peak", "intensity")  # quantities that vary with the sizes
_CHANGES = ("flops", "bytes", "parameters")
_MOST_MODULES = 20  # changed modules that are listed at most


def report_parts(report: CostReport, by: str, width: int) -> Iterator[Any]:
    """The totals, and the table by module, op or node."""
    sizes = sizes_text(report.sizes)
    yield Text(f"{report.module.name}: {number_of(len(report.by_node), 'call')}{sizes}", style="bold")
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
        table.add_row(_first(label(row)), *(_cell(costs, c) for c in columns))
    return table


def _columns(report: CostReport, width: int) -> list[str]:
    """The columns for each module or node; there are fewer if costs are formulas."""
    if report.total.dims:
        return ["flops", "bytes"] if width < 100 else ["flops", "bytes", "parameters"]
    if width < 100:
        return ["flops", "bytes", "peak", "intensity"]
    return ["flops", "read", "written", "parameters", "peak", "intensity"]


def _node_table(report: CostReport, width: int) -> Table:
    """A row for each call, in program order."""
    columns = [c for c in _columns(report, width) if c != "parameters"]
    table = _table("node", ("line", *(TITLES[c] for c in columns)))
    for node, costs in report.by_node.items():
        line = node.loc.short if node.loc is not None else ""
        table.add_row(_first(node.name), line, *(_cell(costs, c) for c in columns))
    return table


def _op_table(report: CostReport, width: int) -> Table:
    """A row for each op, the one with the most FLOPs and bytes first."""
    columns = [c for c in _columns(report, width) if c not in ("parameters", "peak")]
    nodes: dict[str, list[Any]] = {}
    for node in report.by_node:
        name = node.target.name if node.op == "call_function" else str(node.target)
        nodes.setdefault(name, []).append(node)
    sums = {name: _sum(report, found, 0) for name, found in nodes.items()}
    table = _table("op", ("calls", *(TITLES[c] for c in columns)))
    for name in sorted(sums, key=lambda name: _weight(sums[name]), reverse=True):
        table.add_row(_first(name), str(len(nodes[name])), *(_cell(sums[name], c) for c in columns))
    return table


def _weight(costs: Costs) -> tuple[float, float]:
    """FLOPs and bytes as numbers for sorting: each named size counts as 64, unknown costs as 0."""
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
    table.add_column(first, min_width=12)  # shrinks if the table is too wide
    for title in others:
        table.add_column(title, justify="right", no_wrap=True, overflow="ellipsis")
    return table


def _first(text: str | Text) -> Text:
    """A cell of the first column: one line, truncated with an ellipsis."""
    cell = Text(text) if isinstance(text, str) else text
    cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell


# -- comparisons -----------------------------------------------------------------------------------
def comparison_parts(comparison: CostComparison) -> Iterator[Any]:
    """The totals before and after, then the modules that change."""
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
        table.add_row(_first(path), *(_signed(getattr(costs, q)) for q in _CHANGES))
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


# -- counting --------------------------------------------------------------------------------------
def flops(gm: GraphModule) -> Dim:
    """Arithmetic operations of one run: an int, or a sympy expression in the named dims.

    Raises GraphError for a graph without types or with leaf modules, whose work is unknown."""
    total: Dim = 0
    for count in flops_by_node(gm).values():
        total = total + count
    return shapes.normalize(total)


def flops_by_node(gm: GraphModule) -> dict[Node, Dim]:
    """Arithmetic operations of each call; a composite's are those of its expansion."""
    return {node: node_flops(node) for node in gm.graph.nodes if node.op.startswith("call_")}


@checked
def cost(gm: GraphModule, sizes: Mapping[str, int] | None = None) -> CostReport:
    """Compute FLOPs, bytes read and written, parameters and live memory of each call, of each module
    with everything inside it, and in total: ``print(passes.cost(gm))``.

    Costs are numbers if all sizes are known, and otherwise sympy expressions in the named dims that
    ``sizes`` does not give. Every node counts as if it ran by itself, as in NumPy: it reads its
    operands and writes its result; compiled code moves less where it fuses nodes. Unknown costs (of
    leaf modules and of nodes without types) are None. Raises ArgumentError for a dim that the graph
    does not have."""
    expect(gm, GraphModule, "what is counted", "trace it first: fx.symbolic_trace(...)")
    given = dict(sizes or {})
    check_dims(gm.graph, given)
    weights = weights_by_node(gm)
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    at_sizes: dict[Cost, Cost] = {}
    by_node: dict[Node, Costs] = {}
    modules: dict[str, _Sum] = {"": _Sum()}
    held = _held(gm, given)
    for node in calls:
        found = node_cost(node)
        if found not in at_sizes:
            at_sizes[found] = Cost(*(shapes.substitute(v, given) for v in (found.flops, found.read, found.written)))
        read = dict.fromkeys(weights.get(node, ()))
        live = held.get(node)
        by_node[node] = _costs(at_sizes[found], read, live[1] if live is not None else None)
        for path in outer_modules(node.module_path):
            modules.setdefault(path, _Sum()).add(at_sizes[found], read, live)
    by_module = {path: found.costs() for path, found in modules.items()}
    return CostReport(gm, given, by_node, by_module)


@checked
def pays_when(
    before: CostReport | GraphModule,
    after: CostReport | GraphModule,
    dim: str,
    /,
    by: str | Callable[[Costs], Any] = "bytes",
    **sizes: int,
) -> SizeRanges:
    """The sizes of ``dim`` for which the program ``after`` costs less than ``before``::

        >>> two = fx.symbolic_trace(lambda x, a, b: x @ a @ b, *types)
        >>> one = fx.symbolic_trace(lambda x, a, b: x @ (a @ b), *types)
        >>> passes.pays_when(two, one, "T", by="flops")  # x: f32[T,64]; a, b: f32[64,64]
        T > 64

    ``by`` is a cost (``flops``, ``bytes``, ``read``, ``written``, ``parameters``,
    ``parameter_bytes`` or ``peak``), or a function of :class:`Costs`, such as an estimated time,
    ``lambda c: c.flops / 50e9 + c.bytes / 20e9``. ``sizes`` gives the sizes of other dims; a dim that
    is a factor of both costs needs none.

    Raises ArgumentError for an unknown cost or dim, for costs that are unknown (leaf modules, nodes
    without types), and if the answer depends on another dim."""
    pair = [r if isinstance(r, CostReport) else cost(r) for r in (before, after)]
    return sizes_that_pay(pair[0].total, pair[1].total, dim, by, sizes)


#: The bytes that are held while a node runs, in both forms.
_Held = tuple[Polynomial, Dim]


def _held(gm: GraphModule, sizes: dict[str, int]) -> dict[Node, _Held]:
    """The memory held while each node runs; empty if there are nodes without types."""
    found: dict[Node, _Held] = {}
    known: dict[frozenset[Any], Dim] = {}
    try:
        for moment in moments(gm.graph, sizes):
            key = frozenset(moment.held.items())
            if key not in known:
                known[key] = as_dim(moment.held)
            found[moment.node] = dict(moment.held), known[key]
    except GraphError:
        return {}
    return found


class _Sum:
    """Accumulates the costs of the nodes in a module."""

    def __init__(self) -> None:
        self.counts: Counter[Cost] = Counter()
        self.weights: dict[Weight, None] = {}
        self.largest: Largest | None = Largest()

    def add(self, cost: Cost, weights: dict[Weight, None], held: _Held | None) -> None:
        """Add the costs of a node."""
        self.counts[cost] += 1
        self.weights.update(weights)
        if held is None:
            self.largest = None
        elif self.largest is not None:
            self.largest.add(held[0])

    def costs(self) -> Costs:
        """The sum; the peak is the largest of all nodes."""
        peak = None if self.largest is None else self.largest.value
        return _costs(sum_of_costs(self.counts), self.weights, peak)


def _costs(cost: Cost, weights: dict[Weight, None], peak: Dim | None) -> Costs:
    parameters = [w for w in weights if w.is_parameter]
    return Costs(
        cost.flops, cost.read, cost.written, sum(w.size for w in parameters), sum(w.nbytes for w in parameters), peak
    )
