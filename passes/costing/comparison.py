"""Two cost reports side by side: before and after a rewrite.

In: two :class:`~fxlite.passes.costing.cost_report.CostReport`. Out: :class:`CostComparison`: the
change of the whole and of each module, and from which size on it pays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.passes.costing.break_even import SizeRanges, sizes_that_pay
from fxlite.passes.costing.costs import Costs

if TYPE_CHECKING:
    from fxlite.passes.costing.cost_report import CostReport


@dataclass(frozen=True)
class CostComparison:
    """``before`` and ``after``; prints as a table."""

    before: CostReport
    after: CostReport

    @property
    def change(self) -> Costs:
        """What the whole costs more (or less, where negative)."""
        return self.after.total - self.before.total

    @property
    def by_module(self) -> dict[str, Costs]:
        """The changes of modules that change, by path; a module of one side alone counts as 0 on
        the other."""
        before, after = self.before.by_module, self.after.by_module
        none = Costs()
        changes = {
            path: after.get(path, none) - before.get(path, none) for path in {**before, **after}
        }
        return {path: change for path, change in changes.items() if change != none}

    def pays_when(
        self, dim: str, /, by: str | Callable[[Costs], Any] = "bytes", **sizes: int
    ) -> SizeRanges:
        """For which sizes of ``dim`` the program costs less after than before: see
        :func:`~fxlite.passes.costing.cost.pays_when`."""
        return sizes_that_pay(self.before.total, self.after.total, dim, by, sizes)

    def plot(self, quantity: str, path: str | os.PathLike[str] | None = None, **sizes: Any) -> str:
        """A quantity before and after over several sizes of one dim as SVG, with the sizes from
        which on it pays, as :meth:`CostReport.plot <fxlite.passes.CostReport.plot>` does."""
        from fxlite.passes.costing.plotting import plot

        return plot({"before": self.before, "after": self.after}, quantity, path, sizes)

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        from fxlite.passes.costing.tables import comparison_parts

        yield from comparison_parts(self)

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__
