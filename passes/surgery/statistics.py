"""Statistics of activations: the range and distribution of values inside a program.

In: a module and batches. Out: an :class:`ActivationStatistics` with one row for each node, which
prints as a table. The values are observed through taps (:mod:`fxlite.passes.surgery.places`), batch by
batch, and counted in the same bins that the observers of quantization use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite.backend import find_backend
from fxlite.base.checked import checked
from fxlite.base.console import Printed, borderless
from fxlite.base.errors import ArgumentError, number_of
from fxlite.graph.graph import Node
from fxlite.passes.base import as_module
from fxlite.passes.manager import op_name
from fxlite.passes.quantize.conversion.prepare import as_batches
from fxlite.passes.quantize.schemes.observers import BINS, count_in_bins
from fxlite.passes.surgery.places import nodes_at, tap, untap
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass
class Activation:
    """The values of a node. ``count`` finite numbers enter ``min``, ``max``, ``mean``, ``std`` (of the
    population), ``zeros`` (a fraction of 1) and the histogram, which has equal bins from -limit to
    limit; ``not_finite`` other numbers (NaN, infinities) do not."""

    name: str
    op: str
    type: Any
    count: int = 0
    not_finite: int = 0
    min: float = math.inf
    max: float = -math.inf
    mean: float = 0.0
    zeros: float = 0.0
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64), repr=False)
    limit: float = 0.0
    _squares: float = field(default=0.0, repr=False)  # sum of squared differences from the mean

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / self.count) if self.count else math.nan

    def percentile(self, percent: float) -> float:
        """The number below which ``percent`` of the values lie, to within a bin (limit / 2048); NaN
        before any value."""
        if not self.count:
            return math.nan
        wanted, negative = max(percent / 100 * self.count, 1), self.counts[: BINS // 2].sum()
        if negative < wanted <= negative + self.zeros * self.count:
            return 0.0  # zeros are also counted separately
        bin = int(np.searchsorted(np.cumsum(self.counts), wanted))
        middle = (bin + 0.5) * (2 * self.limit / BINS) - self.limit
        return min(max(middle, self.min), self.max)

    def histogram(self, bins: int = 32) -> tuple[Array, Array]:
        """Counts and edges of about ``bins`` equal bins from min to max, as from numpy.histogram, to
        within a bin of the observer."""
        edges = np.linspace(-self.limit, self.limit, BINS + 1)
        middles = np.clip((edges[:-1] + edges[1:]) / 2, self.min, self.max)
        return np.histogram(middles, bins, (self.min, self.max), weights=self.counts)

    def note(self, value: Any) -> None:
        """Add the values of a batch. (Sums are updated as in Chan, Golub and LeVeque, "Updating
        formulae and a pairwise algorithm for computing sample variances", 1979.)"""
        numbers = np.asarray(value).astype(np.float64).reshape(-1)
        finite = numbers[np.isfinite(numbers)]
        self.not_finite += numbers.size - finite.size
        if not finite.size:
            return
        known, new = self.count, int(finite.size)
        total, mean = known + new, float(finite.mean())
        difference = mean - self.mean
        self._squares += float(np.square(finite - mean).sum())
        self._squares += difference**2 * known * new / total
        self.mean += difference * new / total
        self.zeros = (self.zeros * known + int(np.count_nonzero(finite == 0))) / total
        self.min, self.max = min(self.min, float(finite.min())), max(self.max, float(finite.max()))
        self.limit = count_in_bins(self.counts, self.limit, finite)
        self.count = total


@dataclass(repr=False)
class ActivationStatistics(Printed):
    """A row for each node by its name, in the graph's order: ``found["relu_1"].std``."""

    rows: dict[str, Activation]
    percentiles: tuple[float, ...]

    @property
    def about(self) -> str:
        return number_of(len(self.rows), "value")

    def __getitem__(self, name: str) -> Activation:
        return self.rows[name]

    def __iter__(self) -> Iterator[Activation]:
        return iter(self.rows.values())

    def __len__(self) -> int:
        return len(self.rows)

    def __rich__(self) -> Any:
        shown = [f"{p:g} %" for p in self.percentiles]
        has_others = any(row.not_finite for row in self)
        others = ["NaN, inf"] if has_others else []
        numbers = ("min", "max", "mean", "std", "zeros", *shown, *others)
        table = borderless(("node", "op", "type"), numbers, no_wrap=True)
        for row in self:
            moments = [row.min, row.max, row.mean, row.std]
            ranks = [row.percentile(p) for p in self.percentiles]
            table.add_row(
                row.name,
                row.op,
                "" if row.type is None else str(row.type),
                *(_short(n) for n in moments),
                f"{row.zeros:.1%}",
                *(_short(n) for n in ranks),
                *([str(row.not_finite)] if has_others else []),
            )
        return table


def _short(number: float) -> str:
    return f"{number:.4g}" if math.isfinite(number) else "-"


@checked
def activation_statistics(
    gm: Any,
    batches: Iterable[Any],
    where: Any = None,
    *,
    percentiles: Iterable[float] = (1, 50, 99),
    backend: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ActivationStatistics:
    """Run the module on batches and collect statistics of the values of its nodes: minimum, maximum,
    mean, standard deviation, fraction of zeros, percentiles, histogram. The result prints as a table.

    ``batches`` is a list of inputs, each an array, a tuple of arguments or a dict of named ones.
    ``where`` gives nodes, names or queries; by default all calls whose values are floats.
    ``backend`` compiles the tapped module, with ``options``; by default the module is interpreted.
    The selected values of one batch are held in memory at the same time.

    Raises ArgumentError for a ``where`` that finds nothing, and whatever running the module raises."""
    ranks = tuple(percentiles)
    for percent in ranks:
        if not 0 <= percent <= 100:
            raise ArgumentError(f"a percentile is from 0 to 100, not {percent}")
    module = untap(as_module(gm))  # the user's taps are not called while measuring
    nodes = [n for n in module.graph.nodes if _is_float_call(n)]
    if where is not None:
        nodes = nodes_at(module, where)
    rows = {n.name: Activation(n.name, op_name(n), n.type) for n in nodes}
    run: Any = tap(module, nodes, lambda name, value: rows[name].note(value))
    if backend is not None:
        target = find_backend(backend)
        run = target.compile(run, **target.checked(options or {}))
    for args, kwargs in as_batches(batches):
        run(*args, **kwargs)
    return ActivationStatistics(rows, ranks)


def _is_float_call(node: Node) -> bool:
    return node.op.startswith("call_") and (
        node.type is None or (isinstance(node.type, TensorType) and node.type.dtype.is_float)
    )
