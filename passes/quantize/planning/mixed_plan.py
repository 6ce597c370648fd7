"""A mixed-precision plan: which layer is computed by which scheme.

In: what the planner chose, or a file that was edited. Out: a :class:`Plan`, which prints as a
table, is kept as a TOML file (:mod:`fxlite.passes.quantize.planning.plan_file`) and gives the
mapping that prepare takes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxlite.passes.quantize.planning.sensitivity import FLOAT, Choice
from fxlite.passes.quantize.schemes.mapping import QConfigMapping
from fxlite.passes.quantize.schemes.scheme import QConfig


@dataclass(frozen=True)
class PlannedLayer:
    """A layer's path and scheme ("float" or a name of the plan's schemes); what that costs, and
    what float does (None in plans from files)."""

    path: str
    scheme: str
    chosen: Choice | None = None
    in_float: Choice | None = None


@dataclass(frozen=True)
class Measured:
    """What the quantized model was measured to be: signal-to-noise ratio of its results in dB and
    bytes of its weights, beside those of the float model; and what the user's metric says (None
    without one)."""

    sqnr: float
    bytes: int
    bytes_float: int
    metric: float | None = None
    metric_float: float | None = None

    @property
    def drop(self) -> float | None:
        """By how much the metric is lower than in float."""
        if self.metric is None or self.metric_float is None:
            return None
        return self.metric_float - self.metric


@dataclass(frozen=True)
class Plan:
    """``layers`` in the order they run; ``elsewhere`` (path "") is for what stands in none of them:
    the model's own forward, and modules that have no products."""

    program: str
    schemes: Mapping[str, QConfig]
    layers: tuple[PlannedLayer, ...]
    elsewhere: PlannedLayer
    measured: Measured | None = None

    def qconfig(self, scheme: str) -> QConfig | None:
        """The config that a name stands for; None for "float". Raises KeyError."""
        return None if scheme == FLOAT else self.schemes[scheme]

    def qconfig_mapping(self) -> QConfigMapping:
        """The plan as rules for prepare: one for each layer, and one for all else."""
        mapping = QConfigMapping().set_global(self.qconfig(self.elsewhere.scheme))
        for layer in self.layers:
            mapping.set_module_name(layer.path, self.qconfig(layer.scheme))
        return mapping

    def sqnr(self) -> dict[str, float]:
        """The signal-to-noise ratio in dB of each layer that is not float, by path:
        ``graph.draw("plan.svg", sqnr=plan.sqnr())`` paints it. Empty for a plan from a file."""
        return {
            layer.path: layer.chosen.sqnr
            for layer in (*self.layers, self.elsewhere)
            if layer.scheme != FLOAT and layer.chosen is not None
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as TOML, to read and edit; :func:`fxlite.passes.quantize.load_plan` reads
        it. Raises QConfigError for configs that no preset gives."""
        from fxlite.passes.quantize.planning.plan_file import plan_text

        Path(path).write_text(plan_text(self), encoding="utf-8")

    def __rich__(self) -> Any:
        from fxlite.passes.quantize.planning.planner_text import plan_table

        return plan_table(self)

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__
