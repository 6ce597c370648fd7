"""Mixed precision within a budget: :func:`plan`.

In: a float module, batches, and a budget of accuracy, signal-to-noise ratio, bytes or time. Out: a
:class:`~fxlite.passes.quantize.planning.mixed_plan.Plan` whose quantized model was run and keeps
the budget.

One shadow run gives the sensitivities. They decide in which order layers change from float to
integers: the largest saving for the least loss first. How many of them change is decided by running
the quantized model, not by the estimate, because the noise of layers adds up or cancels. If quality is
the budget, the last plan in this order that keeps it is found by bisection, as in Pandey et al.
(2023). This assumes that quality falls along the order; if it does not, the plan found keeps the
budget but may not be the last one that does.

In: for each layer its options, each with a loss of quality and a cost (bytes, seconds). Out: moves
that lead from float everywhere to the cheapest options; each prefix of them is a plan.

Choosing one option for each layer, with the least loss within a budget, is the multiple-choice knapsack
problem. Its greedy solution (P. Sinha and A. Zoltners, "The multiple-choice knapsack problem",
Operations Research 27, 1979) keeps for each layer the options on the lower convex hull of loss over
cost and takes the steps along all hulls in order of loss per saving; it is optimal except for the last
step. HAWQ-V2 (Z. Dong et al., NeurIPS 2020) plans bits in this way with the Hessian's trace as loss,
and N. P. Pandey et al., "A practical mixed precision algorithm for post-training quantization" (2023),
with the signal-to-noise ratio, as here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.passes.profiling.tables import seconds_text
from fxlite.passes.quantize.conversion.convert import convert
from fxlite.passes.quantize.conversion.one_step import calibrated, results
from fxlite.passes.quantize.conversion.prepare import Arguments, as_batches
from fxlite.passes.quantize.planning.mixed_plan import Measured, Plan, PlannedLayer
from fxlite.passes.quantize.planning.quantization_report import report
from fxlite.passes.quantize.planning.sensitivity import (
    FLOAT,
    SCHEMES,
    Choice,
    Sensitivity,
    decibel_text,
    decibels,
    sensitivity,
)
from fxlite.passes.quantize.planning.shadow import Powers
from fxlite.passes.quantize.schemes.scheme import QConfig, QConfigError, QuantizationError, unknown


# -- the order in which layers become integers -----------------------------------------------------
@dataclass(frozen=True)
class Option:
    """A way to compute a layer: its loss (0 or more, additive over layers) and its cost."""

    scheme: str
    loss: float
    cost: float


@dataclass(frozen=True)
class Move:
    """A layer changes to a scheme; ``slope`` is the loss per unit of cost saved."""

    layer: str
    scheme: str
    slope: float


def moves(options: Mapping[str, Sequence[Option]]) -> list[Move]:
    """The moves in order. The first option of a layer is its start and has no loss. Options that cost
    as much as one with less loss, or more, and those with infinite loss are never used."""
    found = [move for layer, choices in options.items() for move in _along_hull(layer, choices)]
    # the sort is stable: moves of a layer with equal slopes stay in order
    return sorted(found, key=lambda move: move.slope)


def _along_hull(layer: str, choices: Sequence[Option]) -> list[Move]:
    """The steps of one layer, by increasing slope."""
    hull = [choices[0]]
    made: list[Move] = []
    useful = [o for o in choices[:0:-1] if o.cost < choices[0].cost and math.isfinite(o.loss)]
    # from the most to the least expensive; of equal cost the last one is kept: the one with the least
    # loss, and for equal loss the one that was given first
    for option in sorted(useful, key=lambda o: (-o.cost, -o.loss)):
        while made and (option.loss <= hull[-1].loss or _slope(hull[-1], option) <= made[-1].slope):
            hull.pop()
            made.pop()
        made.append(Move(layer, option.scheme, _slope(hull[-1], option)))
        hull.append(option)
    return made


def _slope(start: Option, end: Option) -> float:
    return (end.loss - start.loss) / (start.cost - end.cost)


# -- plans -----------------------------------------------------------------------------------------
Metric = Callable[[GraphModule], float]


class PlanError(QuantizationError):
    """No plan keeps the budget; the message says how close one comes."""


@checked
def plan(
    program: Any,
    batches: Iterable[Any],
    *,
    metric: Metric | None = None,
    max_accuracy_drop: float | None = None,
    min_sqnr: float | None = None,
    max_bytes: int | None = None,
    max_latency: float | None = None,
    minimize: str = "latency",
    schemes: Sequence[QConfig | str] | Mapping[str, QConfig | str] = SCHEMES,
    sensitivities: Sensitivity | None = None,
) -> Plan:
    """Choose for each layer one of ``schemes`` or float, within a budget::

        plan = q.plan(gm, batches, metric=accuracy, max_accuracy_drop=0.005)
        plan.save("plan.toml")
        qgm = q.quantize(gm, plan.qconfig_mapping(), batches)

    Quality is limited by ``max_accuracy_drop`` of ``metric``, a function that takes the float or the
    quantized module and returns a number (higher is better) on data of its own; or by ``min_sqnr``,
    the least signal-to-noise ratio in dB of the model's results on the batches. Within that limit,
    ``minimize`` ("latency" or "bytes") is made as small as possible. Size is limited by ``max_bytes``
    of all weights and by ``max_latency``, the estimated seconds; they are kept with the least loss.
    If both are limited, the plan of least loss within the size must keep the quality.
    ``sensitivities`` from an earlier run replace the shadow run (and ``schemes``).

    Raises PlanError, with the nearest values that can be reached, if no plan keeps the budget;
    QConfigError for invalid arguments; and whatever :func:`sensitivity` and the metric raise.
    """
    if minimize not in ("latency", "bytes"):
        raise unknown("quantity to minimize", minimize, ("latency", "bytes"))
    budget = _Budget(max_accuracy_drop, min_sqnr, max_bytes, max_latency)
    budget.check(metric)
    data = list(batches)
    found = sensitivities or sensitivity(program, data, schemes)
    spared = budget.spared(minimize)
    if found.roofs is None and "latency" in spared:
        raise PlanError(
            "times cannot be estimated: there is no C compiler to measure the machine's rates "
            'with; minimize="bytes", or give sensitivities made with roofs='
        )
    order = _order(found, spared)
    search = _Search(as_module(program), as_batches(data), found, budget, metric, order)
    if budget.bytes is None and budget.seconds is None:
        return _within_quality(search)
    return _within_size(search)


@dataclass(frozen=True)
class _Budget:
    """The limits to keep; None for no limit."""

    drop: float | None
    sqnr: float | None
    bytes: int | None
    seconds: float | None

    def check(self, metric: Metric | None) -> None:
        """Raise QConfigError for an invalid budget."""
        for name, limit in vars(self).items():
            if limit is not None and not isinstance(limit, (int, float, np.number)):
                raise QConfigError(f"the budget of {name} is a number, not {limit!r}")
        if self.drop is not None and metric is None:
            raise QConfigError("max_accuracy_drop needs metric=, a function of the module")
        if all(limit is None for limit in vars(self).values()):
            raise QConfigError("give a budget: max_accuracy_drop with metric, min_sqnr, max_bytes or max_latency")
        if self.drop is not None and not self.drop >= 0:
            raise QConfigError(f"max_accuracy_drop is 0 or more, not {self.drop}")

    def spared(self, minimize: str) -> list[str]:
        """The costs to save: the sizes that are limited, or else ``minimize``."""
        limits = {"bytes": self.bytes, "latency": self.seconds}
        return [name for name, limit in limits.items() if limit is not None] or [minimize]

    def holds_quality(self, found: Measured) -> bool:
        """True if the measured quality is within the budget."""
        if self.sqnr is not None and not found.sqnr >= self.sqnr:
            return False
        return self.drop is None or (found.drop is not None and found.drop <= self.drop)

    def quality_text(self, found: Measured) -> str:
        """The limited qualities, as measured and as allowed."""
        parts = []
        if self.sqnr is not None:
            parts.append(f"SQNR {decibel_text(found.sqnr)} (min_sqnr {decibel_text(self.sqnr)})")
        if self.drop is not None:
            parts.append(f"metric drop {found.drop:.4g} (max_accuracy_drop {self.drop:.4g})")
        return ", ".join(parts)


def _order(found: Sensitivity, spared: list[str]) -> list[Move]:
    """The moves from float to integers. Several costs are combined as fractions of float's."""
    wholes = {"bytes": found.bytes() or 1, "latency": found.seconds() or 1.0}

    def cost(choice: Choice) -> float:
        costs = {"bytes": choice.bytes, "latency": choice.seconds or 0.0}
        return sum(costs[name] / wholes[name] for name in spared)

    return moves(
        {
            layer.path: [
                Option(scheme, 10 ** (-choice.sqnr / 10), cost(choice)) for scheme, choice in layer.choices.items()
            ]
            for layer in found.layers
        }
    )


@dataclass(frozen=True)
class _Search:
    """Plans by the number of moves made, each measured once."""

    module: GraphModule
    data: list[Arguments]
    found: Sensitivity
    budget: _Budget
    metric: Metric | None
    order: list[Move]
    tried: dict[int, Plan] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    def chosen(self, count: int) -> dict[str, str]:
        """The scheme of each layer after ``count`` moves."""
        schemes = {layer.path: FLOAT for layer in self.found.layers}
        return schemes | {move.layer: move.scheme for move in self.order[:count]}

    def sizes(self) -> list[tuple[int, float]]:
        """Estimated bytes and seconds after each number of moves."""
        layers = {layer.path: layer for layer in self.found.layers}
        schemes = dict.fromkeys(layers, FLOAT)
        size, seconds = self.found.bytes(), self.found.seconds() or 0.0
        found = [(size, seconds)]
        for move in self.order:
            choices = layers[move.layer].choices
            before, after = choices[schemes[move.layer]], choices[move.scheme]
            schemes[move.layer] = move.scheme
            size += after.bytes - before.bytes
            seconds += (after.seconds or 0.0) - (before.seconds or 0.0)
            found.append((size, seconds))
        return found

    def plan(self, count: int) -> Plan:
        """The measured plan after ``count`` moves."""
        if count not in self.tried:
            made = _plan_of(self.found, self.chosen(count))
            self.tried[count] = replace(made, measured=self._measured(made))
        return self.tried[count]

    def _measured(self, made: Plan) -> Measured:
        quantized = convert(calibrated(self.module, made.qconfig_mapping(), self.data))
        if not self.expected:
            self.expected["results"] = [results(self.module, *given) for given in self.data]
            self.expected["metric"] = self._metric(self.module)
        counted = report(quantized)
        return Measured(
            _sqnr(self.expected["results"], quantized, self.data),
            counted.bytes_after,
            counted.bytes_before,
            self._metric(quantized),
            self.expected["metric"],
        )

    def _metric(self, module: GraphModule) -> float | None:
        if self.metric is None:
            return None
        found = self.metric(module)
        try:
            value = float(found)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise PlanError(f"the metric is {found!r}; it must be a number, higher is better")
        return value


@checked
def results_sqnr(program: Any, quantized: GraphModule, batches: Iterable[Any]) -> float:
    """Signal-to-noise ratio in dB of a quantized module's results: those of the float program over the
    difference; infinite if there is none."""
    module, data = as_module(program), as_batches(batches)
    return _sqnr([results(module, *given) for given in data], quantized, data)


def _sqnr(expected: list[list[Any]], quantized: GraphModule, data: list[Arguments]) -> float:
    powers = Powers()
    for given, exact in zip(data, expected, strict=True):
        for before, after in zip(exact, results(quantized, *given), strict=True):
            powers.add(before, after)
    return decibels(powers.ratio)


def _plan_of(found: Sensitivity, chosen: Mapping[str, str]) -> Plan:
    planned = [PlannedLayer(x.path, chosen[x.path], x.choices[chosen[x.path]], x.choices[FLOAT]) for x in found.layers]
    used = [layer.scheme for layer in planned if layer.scheme != FLOAT]
    static = [scheme for scheme in used if found.schemes[scheme].mode == "static"]
    elsewhere = PlannedLayer("", static[0] if static else FLOAT)
    elsewhere = next((layer for layer in planned if not layer.path), elsewhere)
    named = tuple(layer for layer in planned if layer.path)
    return Plan(found.program, found.schemes, named, elsewhere)


def _within_quality(search: _Search) -> Plan:
    """The last plan that keeps the quality, found by bisection."""

    def holds(count: int) -> bool:
        measured = search.plan(count).measured
        assert measured is not None
        return search.budget.holds_quality(measured)

    most = len(search.order)
    if holds(most):
        return search.plan(most)
    if not holds(0):
        nearest = search.plan(0).measured
        assert nearest is not None
        raise PlanError(
            f"no plan keeps the budget: with every layer in float (batch norm folded) it is "
            f"{search.budget.quality_text(nearest)}"
        )
    kept, broken = 0, most
    while broken - kept > 1:
        middle = (kept + broken) // 2
        kept, broken = (middle, broken) if holds(middle) else (kept, middle)
    return search.plan(kept)


def _within_size(search: _Search) -> Plan:
    """The first plan that is small and fast enough; it must also keep the quality."""
    budget = search.budget
    sizes = search.sizes()
    for count, (size, seconds) in enumerate(sizes):
        if budget.bytes is not None and size > budget.bytes:
            continue
        if budget.seconds is not None and seconds > budget.seconds:
            continue
        made = search.plan(count)
        assert made.measured is not None
        if budget.bytes is not None and made.measured.bytes > budget.bytes:
            continue  # the estimate leaves out a few scales
        if not budget.holds_quality(made.measured):
            raise PlanError(_quality_is_lost(search, made.measured))
        return made
    parts = []
    if budget.bytes is not None:
        measured = [p.measured.bytes for p in search.tried.values() if p.measured is not None]
        least = min(measured or [size for size, _ in sizes])
        parts.append(f"the fewest bytes are {least:,} (max_bytes {budget.bytes:,})")
    if budget.seconds is not None:
        shortest = min(seconds for _, seconds in sizes)
        parts.append(
            f"the least time, as estimated, is {seconds_text(shortest)} (max_latency {seconds_text(budget.seconds)})"
        )
    raise PlanError(f"no plan keeps the budget: {', '.join(parts)}; allow more, or other schemes")


def _quality_is_lost(search: _Search, measured: Measured) -> str:
    """The message if keeping the size costs too much quality: the quality left, and the size of the
    smallest plan that keeps the quality."""
    found = _within_quality(search)
    count = next(c for c, p in search.tried.items() if p is found)
    size, seconds = search.sizes()[count]
    near = [] if search.budget.bytes is None else [f"{size:,} bytes"]
    near += [] if search.budget.seconds is None else [seconds_text(seconds)]
    return (
        f"no plan keeps both budgets: the one of least loss that is small enough has "
        f"{search.budget.quality_text(measured)}; with that quality a plan takes "
        f"{' and '.join(near)}"
    )
