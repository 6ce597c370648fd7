"""A mixed-precision plan: which layer is computed by which scheme.

In: what the planner chose, or a file that was edited. Out: a :class:`Plan`, which prints as a
table, is kept as a TOML file, with what each layer costs in a comment
(:mod:`fxlite.passes.quantize.planning.plan_file` reads it), and gives the mapping that prepare
takes.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxlite.base.outside_text import comment, toml_string
from fxlite.passes.quantize.planning.planner_text import (
    cost_text,
    decibel_text,
    measured_text,
    plan_table,
)
from fxlite.passes.quantize.planning.sensitivity import FLOAT, Choice
from fxlite.passes.quantize.schemes.mapping import QConfigMapping
from fxlite.passes.quantize.schemes.scheme import PRESETS, QConfig, QConfigError, Scheme

_BARE = re.compile(r"[A-Za-z0-9_-]+")


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
        Path(path).write_text(plan_text(self), encoding="utf-8")

    def __rich__(self) -> Any:
        return plan_table(self)

    def __str__(self) -> str:
        from fxlite.base.console import plain_text

        return plain_text(self)

    __repr__ = __str__


# -- TOML ------------------------------------------------------------------------------------------
def plan_text(plan: Plan) -> str:
    """The plan as TOML. Raises QConfigError for configs that no preset gives."""
    lines = [
        f"# How {comment(plan.program)} is quantized: a scheme for each layer, by the path of its "
        "module;",
        '# "float" leaves it as it is. Behind a layer: SQNR of the quantized layer alone, weights',
        "# and estimated time in float and now.",
    ]
    if plan.measured is not None:
        lines.append(f"# {measured_text(plan.measured)}")
    lines += [
        "",
        "# Where there is no layer: the model's own forward, and modules without products",
    ]
    lines += [_entry("elsewhere", plan.elsewhere), "", "[schemes]"]
    for name, config in plan.schemes.items():
        options = {"preset": config.name} | _options(name, config)
        listed = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        lines.append(f"{_key(name)} = {{ {listed} }}")
    lines += ["", "[layers]", *(_entry(_key(layer.path), layer) for layer in plan.layers)]
    return "\n".join(lines) + "\n"


def _entry(key: str, layer: PlannedLayer) -> str:
    text = f"{key} = {toml_string(layer.scheme)}"
    if layer.chosen is None or layer.in_float is None:
        return text
    if layer.scheme == FLOAT:
        return f"{text}  # {layer.chosen.bytes:,} bytes"
    costs = cost_text(layer.in_float, layer.chosen)
    return f"{text}  # {decibel_text(layer.chosen.sqnr)}, {costs}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else toml_string(name)


def _options(name: str, config: QConfig) -> dict[str, Any]:
    """The options of the preset that differ from their defaults."""
    preset = PRESETS.get(config.name)
    activation, weight = config.activation or Scheme(), config.weight or Scheme()
    values = {
        "observer": activation.observer, "activation": activation.dtype,
        "weight_observer": weight.observer, "averaging": activation.averaging,
        "percentile": activation.percentile, "group_size": weight.group_size,
    }  # fmt: skip
    options: dict[str, Any] = {}
    if preset is not None:
        parameters = inspect.signature(preset).parameters
        options = {n: values[n] for n, p in parameters.items() if values[n] != p.default}
    if preset is None or preset(**options) != config:
        raise QConfigError(
            f"the scheme {name!r} is no preset with other options, so a file cannot hold it: "
            f"{config}; presets are {', '.join(PRESETS)}"
        )
    return options
