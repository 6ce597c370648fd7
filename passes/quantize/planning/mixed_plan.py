"""A mixed-precision plan: which layer is computed by which scheme.

In: the planner's choice, or an edited file. Out: a :class:`Plan`, which prints as a table, can be
stored as a TOML file with the cost of each layer in a comment, and gives the mapping that prepare
takes. Files are read strictly: anything that is misspelled, missing, or not possible in the program is
an error that names file and line, and the nearest name.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.console import Printed
from fxlite.base.errors import number_of
from fxlite.base.outside_text import comment, lines, toml_string
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.passes.quantize.conversion.prepare import META, Decision, prepare
from fxlite.passes.quantize.planning.sensitivity import (
    FLOAT,
    Choice,
    cost_text,
    decibel_text,
    is_quantizable,
    measured_text,
    plan_table,
)
from fxlite.passes.quantize.schemes.mapping import QConfigMapping
from fxlite.passes.quantize.schemes.scheme import PRESETS, QConfig, QConfigError, Scheme, unknown

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class PlannedLayer:
    """A layer's path and scheme ("float" or a name of the plan's schemes), with the cost of that scheme
    and of float (None in plans from files)."""

    path: str
    scheme: str
    chosen: Choice | None = None
    in_float: Choice | None = None


@dataclass(frozen=True)
class Measured:
    """Measurements of the quantized model: the signal-to-noise ratio of its results in dB, the bytes of
    its weights and those of the float model, and the user's metric (None without one)."""

    sqnr: float
    bytes: int
    bytes_float: int
    metric: float | None = None
    metric_float: float | None = None

    @property
    def drop(self) -> float | None:
        """How much lower the metric is than in float."""
        if self.metric is None or self.metric_float is None:
            return None
        return self.metric_float - self.metric


@dataclass(frozen=True, repr=False)
class Plan(Printed):
    """``layers`` are in the order in which they run. ``elsewhere`` (path "") is for calls outside all
    layers: the model's own forward, and modules that have no products."""

    program: str
    schemes: Mapping[str, QConfig]
    layers: tuple[PlannedLayer, ...]
    elsewhere: PlannedLayer
    measured: Measured | None = None

    @property
    def about(self) -> str:
        return f"{number_of(len(self.layers), 'layer')} of {self.program}"

    def qconfig(self, scheme: str) -> QConfig | None:
        """The config that a name stands for; None for "float". Raises KeyError for other names."""
        return None if scheme == FLOAT else self.schemes[scheme]

    def qconfig_mapping(self) -> QConfigMapping:
        """The plan as rules for prepare: one for each layer, and one for everything else."""
        mapping = QConfigMapping().set_global(self.qconfig(self.elsewhere.scheme))
        for layer in self.layers:
            mapping.set_module_name(layer.path, self.qconfig(layer.scheme))
        return mapping

    def sqnr(self) -> dict[str, float]:
        """The signal-to-noise ratio in dB of each layer that is not float, by path, for
        ``graph.draw("plan.svg", sqnr=plan.sqnr())``. Empty for a plan from a file."""
        return {
            layer.path: layer.chosen.sqnr
            for layer in (*self.layers, self.elsewhere)
            if layer.scheme != FLOAT and layer.chosen is not None
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as TOML that can be read and edited; :func:`fxlite.passes.quantize.load_plan`
        reads it. Raises QConfigError for configs that no preset gives."""
        Path(path).write_text(plan_text(self), encoding="utf-8")

    def __rich__(self) -> Any:
        return plan_table(self)


# -- TOML ------------------------------------------------------------------------------------------
def plan_text(plan: Plan) -> str:
    """The plan as TOML. Raises QConfigError for configs that no preset gives."""
    lines = [
        f"# How {comment(plan.program)} is quantized: a scheme for each layer, by the path of its module;",
        '# "float" leaves it as it is. Behind a layer: SQNR of the quantized layer alone, weights',
        "# and estimated time in float and now.",
    ]
    if plan.measured is not None:
        lines.append(f"# {measured_text(plan.measured)}")
    lines += ["", "# Where there is no layer: the model's own forward, and modules without products"]
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
        "observer": activation.observer,
        "activation": activation.dtype,
        "weight_observer": weight.observer,
        "averaging": activation.averaging,
        "percentile": activation.percentile,
        "group_size": weight.group_size,
    }
    options: dict[str, Any] = {}
    if preset is not None:
        parameters = inspect.signature(preset).parameters
        options = {n: values[n] for n, p in parameters.items() if values[n] != p.default}
    if preset is None or preset(**options) != config:
        raise QConfigError(
            f"the scheme {name!r} is not a preset with changed options, so a file cannot hold it: "
            f"{config}; presets are {', '.join(PRESETS)}"
        )
    return options


# -- plans from TOML -------------------------------------------------------------------------------
_KEYS = ("elsewhere", "schemes", "layers")
_TABLE = re.compile(r"\s*\[(.+)\]")
_ENTRY = re.compile(r"""\s*(?:"(?P<quoted>[^"]*)"|'(?P<literal>[^']*)'|(?P<bare>[\w.-]+))\s*=""")


@checked
def load_plan(path: str | os.PathLike[str], program: Any) -> Plan:
    """Read a plan for a program. Each layer of it must have an entry.

    Raises QConfigError, with file and line, for text that is not TOML, for names of layers, schemes
    and options that do not exist (with the nearest name), for layers without an entry, and for schemes
    that a layer cannot have (with the reason)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except ValueError as error:  # neither TOML nor UTF-8, or numbers with thousands of digits
        raise QConfigError(f"{path}: this is not TOML: {lines(str(error))[:500]}") from None
    except RecursionError:
        raise QConfigError(f"{path}: this is not a plan: a value is nested too deeply") from None
    return _Reader(str(path), text).plan(data, as_module(program))


class _Reader:
    """Reads one file and makes messages about it."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.lines = _lines_of_keys(text)

    def error(self, message: object, *keys: str) -> QConfigError:
        """An error at a key of a table; if the key is not in the text, at the file."""
        line = self.lines.get(keys)
        return QConfigError(f"{self.path}{f':{line}' if line else ''}: {message}")

    def known(self, what: str, name: str, names: Collection[str], *keys: str) -> None:
        """Raise for a name that is not one of these."""
        if name not in names:
            raise self.error(unknown(what, name, names), *keys)

    def plan(self, data: dict[str, Any], module: GraphModule) -> Plan:
        """The plan described by the data."""
        for key in data:
            self.known("entry", key, _KEYS, key)
        schemes = self.schemes(data.get("schemes", {}))
        names = [FLOAT, *schemes, *PRESETS]

        def scheme(key: str, value: Any, *keys: str) -> PlannedLayer:
            if not isinstance(value, str):
                hint = ' (write paths in quotes: "encoder.fc" = ...)' if _is_table(value) else ""
                raise self.error(f"{key} must be the name of a scheme, not {value!r}{hint}", *keys)
            self.known("scheme", value, names, *keys)
            if value != FLOAT and value not in schemes:
                schemes[value] = PRESETS[value]()
            return PlannedLayer("" if key == "elsewhere" else key, value)

        given = data.get("layers", {})
        if not _is_table(given):
            raise self.error("layers must be a table, [layers]", "layers")
        paths = _layer_paths(module)
        for path in given:
            if not _is_table(given[path]):
                self.known("layer", path, paths, "layers", path)
        found = {path: scheme(path, value, "layers", path) for path, value in given.items()}
        missing = [path for path in paths if path not in found]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise self.error(
                f'no entry for {", ".join(missing[:3])}{more}: add them, "float" to leave them as they are'
            )
        elsewhere = scheme("elsewhere", data.get("elsewhere", FLOAT), "elsewhere")
        made = Plan(module.name, schemes, tuple(found[path] for path in paths), elsewhere)
        self.check_possible(made, module)
        return made

    def schemes(self, given: Any) -> dict[str, QConfig]:
        """The configs that the file defines."""
        if not _is_table(given):
            raise self.error("schemes must be a table, [schemes]", "schemes")
        found: dict[str, QConfig] = {}
        for name, options in given.items():
            keys = ("schemes", name)
            if name == FLOAT:
                raise self.error('"float" is what it says and no name for a scheme', *keys)
            if not _is_table(options) or "preset" not in options:
                raise self.error(f'{name} must be {{ preset = "static_int8", ... }}', *keys)
            others = {key: value for key, value in options.items() if key != "preset"}
            if not isinstance(options["preset"], str):
                raise self.error(f"{name} must have the name of a preset", *keys)
            self.known("preset", options["preset"], PRESETS, *keys)
            preset = PRESETS[options["preset"]]
            for key in others:
                self.known("option", key, inspect.signature(preset).parameters, *keys)
            try:
                found[name] = preset(**others)
            except (QConfigError, TypeError, ValueError, OverflowError) as error:
                raise self.error(error, *keys) from None
        return found

    def check_possible(self, plan: Plan, module: GraphModule) -> None:
        """Raise an error for a scheme that nothing in its layer can have."""
        reasons: dict[str, str] = {}
        done: set[str] = set()
        for node in prepare(module, plan.qconfig_mapping()).graph.nodes:
            decision = node.meta.get(META)
            if not isinstance(decision, Decision):
                continue
            if decision.qconfig is not None:
                done.add(node.module_path)
            elif decision.reason:
                reasons.setdefault(node.module_path, decision.reason)
        for layer in plan.layers:
            if layer.scheme != FLOAT and layer.path not in done:
                reason = reasons.get(layer.path, "nothing in it is a product")
                raise self.error(f"{layer.path} cannot be {layer.scheme}: {reason}", "layers", layer.path)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _layer_paths(module: GraphModule) -> dict[str, None]:
    """The layers of a program, in order, without the model's own forward."""
    cleaned = prepare(module, QConfigMapping())
    paths = dict.fromkeys(n.module_path for n in cleaned.graph.nodes if is_quantizable(n))
    return {path: None for path in paths if path}


def _lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """The line of each entry: by its key, or by its table and key."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        opened, entry = _TABLE.match(line), _ENTRY.match(line)
        if opened:
            table = (opened[1].strip(),)
            found[table] = number
        elif entry:
            key = next(part for part in entry.groups() if part is not None)
            found[(*table, key)] = number
    return found
