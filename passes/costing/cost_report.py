"""The report of :func:`fxlite.passes.costing.cost.cost`: costs by node, by module and of the whole.

In: costs as ints or expressions in named dims. Out: :class:`CostReport`, which prints as a table,
takes sizes (:meth:`~CostReport.evaluate`), gives values over a range (:meth:`~CostReport.table`,
:meth:`~CostReport.plot`) and compares with another (:meth:`~CostReport.compare`, or
``after - before``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.comparison import CostComparison
from fxlite.passes.costing.costs import QUANTITIES, Costs
from fxlite.types import shapes

#: What the costs of a report may be listed by.
GROUPINGS = ("module", "op", "node")


@dataclass(frozen=True, eq=False)
class CostReport:
    """What a program costs. ``by_node`` has the costs of each call, ``by_module`` those of each
    module with all that is inside it, by path; the root's path is empty. ``sizes`` are those of the
    named dims that were given.

    The peak of a module is that of the whole program's memory while the module runs."""

    module: GraphModule
    sizes: Mapping[str, int]
    by_node: Mapping[Node, Costs]
    by_module: Mapping[str, Costs]

    @property
    def total(self) -> Costs:
        """The costs of the whole."""
        return self.by_module[""]

    @property
    def dims(self) -> tuple[str, ...]:
        """Named dims that the total depends on, sorted."""
        return tuple(sorted(self.total.dims))

    def evaluate(self, **sizes: int) -> CostReport:
        """The report at sizes of named dims: ``report.evaluate(B=8, T=128)``. Raises ArgumentError
        for a dim that the program does not have."""
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

        Raises ArgumentError if not exactly one dim has several sizes, or a dim is left open."""
        ranges = {name: tuple(v) for name, v in sizes.items() if not isinstance(v, int)}
        fixed = {name: v for name, v in sizes.items() if isinstance(v, int)}
        if len(ranges) != 1:
            raise ArgumentError(
                "give one dim several sizes and others one: table(T=[64, 128], B=8)"
            )
        ((dim, values),) = ranges.items()
        check_dims(self.module.graph, {**fixed, dim: 0})
        missing = [name for name in self.dims if name not in sizes]
        if missing:
            raise ArgumentError(f"the costs depend on {', '.join(missing)}, too; give sizes")
        total = self.total.evaluate(fixed)
        return CostTable(
            self.module.name, dim, fixed, values, tuple(total.evaluate({dim: v}) for v in values)
        )

    def listing(self, by: str = "module", width: int = 100) -> Any:
        """The whole, and a row for each ``module`` (what ``print`` shows), ``op`` or ``node``, as a
        rich object. Raises ArgumentError for another word."""
        from rich.console import Group

        from fxlite.passes.costing.tables import report_parts

        if by not in GROUPINGS:
            raise ArgumentError(f"costs are listed by {', '.join(GROUPINGS)}, not by {by!r}")
        return Group(*report_parts(self, by, width))

    def plot(self, quantity: str, path: str | os.PathLike[str] | None = None, **sizes: Any) -> str:
        """A quantity over several sizes of one dim as SVG, which is returned, and written to
        ``path`` if there is one: ``report.plot("flops", "flops.svg", T=range(1, 1025), B=8)``.

        Raises ArgumentError as :meth:`table` does, and for a quantity that is unknown."""
        from fxlite.passes.costing.plotting import plot

        return plot({self.module.name: self}, quantity, path, sizes)

    def compare(self, after: CostReport) -> CostComparison:
        """How the costs change from this report to another one, of a rewritten program."""
        return CostComparison(self, after)

    def __sub__(self, before: CostReport) -> CostComparison:
        """``after - before``: the change from ``before`` to this report."""
        return before.compare(self)

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        from fxlite.passes.costing.tables import report_parts

        yield from report_parts(self, "module", options.max_width)

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__


@dataclass(frozen=True)
class CostTable:
    """Costs of a program at several ``values`` of the size ``dim``; prints as a table."""

    name: str
    dim: str
    sizes: Mapping[str, int]
    values: tuple[int, ...]
    costs: tuple[Costs, ...]

    def column(self, quantity: str) -> list[Any]:
        """The values of a quantity, to plot: ``table.column("flops")`` beside ``table.values``."""
        if quantity not in (*QUANTITIES, "intensity"):
            known = ", ".join((*QUANTITIES, "intensity"))
            raise ArgumentError(f"there is no cost {quantity!r}; known: {known}")
        return [getattr(costs, quantity) for costs in self.costs]

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        from fxlite.passes.costing.tables import range_table

        yield range_table(self)

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__


def check_dims(graph: Graph, sizes: Mapping[str, Any]) -> None:
    """Raise ArgumentError for sizes of dims that the inputs of a graph do not have."""
    known = frozenset().union(
        *(shapes.names(getattr(node.type, "shape", ())) for node in graph.placeholders)
    )
    for name in sizes:
        if name not in known:
            listed = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ArgumentError(f"the program has no named dim {name!r}; {listed}")
