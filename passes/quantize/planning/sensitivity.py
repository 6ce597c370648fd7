"""The effect of quantization on each layer: :func:`sensitivity`; and the tables of the planner.

In: a float module, batches, and the schemes to choose from. Out: a :class:`Sensitivity`: for each
layer and scheme the signal-to-noise ratio, the bytes of the weights and an estimate of the time, from
which :func:`fxlite.passes.quantize.plan` chooses. A *layer* is a module whose own forward contains
products or embedding tables; it is identified by its path.

The estimate used for plans is the least time of a product by the roofline model
(:mod:`fxlite.show.node_cost`): the larger of the time for the arithmetic, at the machine's rate for
float32 or for 8-bit integers, and the time to read and write the bytes. It is the same for every back
end and ignores the quality of kernels. Operations between products are not counted, because compiled
code computes them in the loops of the products. Use :func:`fxlite.passes.profile` to measure a whole
model.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.base.checked import checked
from fxlite.base.console import Printed, borderless, picture_html, write_whole
from fxlite.base.errors import number_of, sizes_text
from fxlite.base.facade import above
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.passes.profiling.tables import seconds_text
from fxlite.passes.quantize.conversion.one_step import calibrated, float_results
from fxlite.passes.quantize.conversion.prepare import Arguments, as_batches, prepare
from fxlite.passes.quantize.planning.shadow import Powers, Shadow, Stored, Way, operand_ranges, way_of
from fxlite.passes.quantize.schemes.mapping import QConfigMapping
from fxlite.passes.quantize.schemes.roles import (
    data_slots,
    is_expanded,
    multiply_adds,
    product_weights,
    weight_operand,
    why_not,
    why_not_table,
)
from fxlite.passes.quantize.schemes.scheme import QConfig, QConfigError, QuantizationError, named_configs, unknown
from fxlite.passes.rewrite.rule import is_call
from fxlite.show.node_cost import Roofs, limits, node_cost
from fxlite.types import shapes

if TYPE_CHECKING:
    from fxlite.passes.quantize.planning.mixed_plan import Measured, Plan


#: The schemes that plans choose from unless told otherwise.
SCHEMES = ("static_int8", "dynamic_int8", "weight_only_int8", "weight_only_int4")
#: The name of a layer that stays as it is.
FLOAT = "float"


@dataclass(frozen=True)
class Choice:
    """A layer computed by one scheme: ``sqnr`` in dB (infinite if nothing differs), ``bytes`` of its
    weights with their scales, and the estimated ``seconds`` (None without roofs)."""

    sqnr: float
    bytes: int
    seconds: float | None


@dataclass(frozen=True)
class Layer:
    """A layer: its path ("" for the model's own forward), the ops of its products, the choices by
    scheme ("float" first), and for each scheme that it cannot have the reason."""

    path: str
    ops: tuple[str, ...]
    choices: Mapping[str, Choice]
    refused: Mapping[str, str]


@dataclass(frozen=True, repr=False)
class Sensitivity(Printed):
    """The layers in the order in which they run. ``of`` says what the ratios refer to: "layer" or
    "output". ``other_bytes`` are those of weights outside all layers (biases, norms).
    """

    program: str
    schemes: Mapping[str, QConfig]
    layers: tuple[Layer, ...]
    of: str
    sizes: Mapping[str, int]
    other_bytes: int
    roofs: Roofs | None

    @property
    def about(self) -> str:
        return f"{number_of(len(self.layers), 'layer')} of {self.program} by {', '.join(self.schemes)}"

    def _check(self, scheme: str) -> None:
        if scheme not in (FLOAT, *self.schemes):
            raise unknown("scheme", scheme, (FLOAT, *self.schemes))

    def sqnr(self, scheme: str) -> dict[str, float]:
        """The signal-to-noise ratio of each layer in dB, by path, for ``graph.draw("x.svg",
        sqnr=found.sqnr("static_int8"))``. This method and the ones below raise QConfigError for unknown
        schemes."""
        self._check(scheme)
        return {x.path: x.choices[scheme].sqnr for x in self.layers if scheme in x.choices}

    def bytes(self, scheme: str = FLOAT) -> int:
        """Bytes of all weights if each layer that can have the scheme has it."""
        self._check(scheme)
        return self.other_bytes + sum(_chosen(x, scheme).bytes for x in self.layers)

    def seconds(self, scheme: str = FLOAT) -> float | None:
        """Estimated seconds of all products under the same assumption; None without roofs."""
        self._check(scheme)
        found = [_chosen(x, scheme).seconds for x in self.layers]
        return None if None in found else math.fsum(s for s in found if s is not None)

    def to_svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """A picture of the ratio of each layer by scheme. Returns SVG text, also written to ``path`` if given."""
        from fxlite.passes.quantize.planning.sensitivity_plot import sensitivity_svg

        text = sensitivity_svg(self)
        if path is not None:
            write_whole(path, text)
        return text

    def _repr_html_(self) -> str:
        """The picture and the table, for notebooks."""
        return picture_html(self.to_svg()) + super()._repr_html_()

    def __rich_console__(self, console: Any, options: Any) -> Any:

        yield sensitivity_table(self, options.max_width)


def _chosen(layer: Layer, scheme: str) -> Choice:
    return layer.choices.get(scheme, layer.choices[FLOAT])


@checked
def sensitivity(
    program: Any,
    batches: Iterable[Any],
    schemes: Sequence[QConfig | str] | Mapping[str, QConfig | str] = SCHEMES,
    *,
    of: str = "layer",
    roofs: Roofs | None = None,
) -> Sensitivity:
    """How much each layer loses by each scheme, alone: ``print(q.sensitivity(gm, batches))``.

    A batch is an array, a tuple of the inputs in order, or a dict of inputs by name. ``schemes`` are
    presets by name, configs, or a dict that gives names to configs. Calibration (one run for each
    static scheme) is followed by one *shadow run*: each layer's products are computed in float and,
    from the same operands, by each scheme; the ratio in dB compares their results over all batches. If
    a layer has several products, their noise-to-signal ratios are added. ``of="output"`` gives the
    ratio of the model's results instead, with only that layer quantized; for this the rest of the
    model runs once more for each layer and scheme.

    The time is the least that the machine's measured rates allow for the sizes of the first batch
    (:mod:`fxlite.passes.quantize.planning.sensitivity`); ``roofs`` can describe another machine.

    Raises QConfigError for schemes that do not exist or are casts, QuantizationError without a batch,
    and whatever prepare and calling the program raise."""
    if of not in ("layer", "output"):
        raise QConfigError(f'of is "layer" or "output", not {of!r}')
    module, configs, data = as_module(program), named_configs(schemes), as_batches(batches)
    study = _study(module, configs, data)
    shadow = Shadow(study.base, study.ways, keep=of == "output")
    outputs: dict[tuple[str, str], Powers] = {}
    sizes: dict[str, int] = {}
    for args, kwargs in data:
        shadow.run(*args, **kwargs)
        sizes = sizes or dict(shadow.dims)
        if of == "output":
            _add_outputs(shadow, study, outputs)

    def ratio(path: str, scheme: str) -> float:
        if of == "output":
            return outputs[path, scheme].ratio
        nodes = study.layers[path]
        return math.fsum(shadow.powers[n, scheme].ratio for n in nodes if scheme in study.ways[n])

    known = above("machine_roofs")() if roofs is None else roofs
    layers = tuple(_layer(study, path, ratio, sizes, known) for path in study.layers)
    others = _all_weight_bytes(study.base) - sum(study.own_bytes.values())
    return Sensitivity(module.name, configs, layers, of, sizes, others, known)


# -- what is to be run -----------------------------------------------------------------------------
@dataclass(frozen=True)
class _Study:
    """``base`` is the calibrated graph, and ``layers`` its products by path. ``ways`` and ``refused``
    say by scheme how each product is computed, or why it cannot be. ``own_bytes`` are those of the
    float weights that a product is the first to read."""

    base: GraphModule
    configs: Mapping[str, QConfig]
    layers: dict[str, list[Node]]
    ways: dict[Node, dict[str, Way]]
    refused: dict[Node, dict[str, str]]
    own_bytes: dict[Node, int]


def _study(module: GraphModule, configs: Mapping[str, QConfig], data: list[Arguments]) -> _Study:
    prepared: dict[str, GraphModule] = {}
    for name, config in configs.items():
        if config.mode == "static":
            prepared[name] = calibrated(module, QConfigMapping().set_global(config), data)
    ranges = {name: operand_ranges(found) for name, found in prepared.items()}
    if not prepared:  # there is nothing to calibrate, but prepare also cleans up
        name, config = next(iter(configs.items()))
        prepared[name] = prepare(module, QConfigMapping().set_global(config))
    base = next(iter(prepared.values()))
    study = _Study(base, configs, {}, {}, {}, {})
    seen: set[str] = set()
    stored: Stored = {}
    for node in base.graph.nodes:
        if not is_quantizable(node):
            continue
        study.layers.setdefault(node.module_path, []).append(node)
        study.ways[node], study.refused[node] = {}, {}
        for name, config in configs.items():
            reason = _why_not(node, config)
            if reason is None:
                study.ways[node][name] = way_of(node, config, ranges.get(name, {}), stored)
            else:
                study.refused[node][name] = reason
        read = {w.target for w in node.all_input_nodes if w in product_weights(node)}
        study.own_bytes[node] = sum(int(base.get_attribute(t).nbytes) for t in read - seen)
        seen |= read
    if not study.layers:
        raise QuantizationError(f"{module.name} has no products or tables that could be integers")
    return study


def is_quantizable(node: Node) -> bool:
    """True for products and tables, whether or not they can be integers."""
    if node.op != "call_function":
        return False
    return bool(node.target.role in ("product", "table") or multiply_adds(node) != 0)


def _why_not(node: Node, config: QConfig) -> str | None:
    rule = why_not_table if node.target.role == "table" else why_not
    return rule(node, config, "")


def _add_outputs(shadow: Shadow, study: _Study, outputs: dict[tuple[str, str], Powers]) -> None:
    """Run everything that depends on each layer once more, by each scheme."""
    exact = float_results(shadow)
    for path, nodes in study.layers.items():
        for scheme in study.configs:
            if any(scheme in study.ways[node] for node in nodes):
                powers = outputs.setdefault((path, scheme), Powers())
                for before, after in zip(exact, shadow.rerun(nodes, scheme), strict=True):
                    powers.add(before, after)


# -- what was found --------------------------------------------------------------------------------
def _layer(
    study: _Study, path: str, ratio: Callable[[str, str], float], sizes: Mapping[str, int], roofs: Roofs | None
) -> Layer:
    nodes = study.layers[path]
    choices = {FLOAT: _choice(study, nodes, FLOAT, math.inf, sizes, roofs)}
    refused: dict[str, str] = {}
    for scheme in study.configs:
        if any(scheme in study.ways[node] for node in nodes):
            found = decibels(ratio(path, scheme))
            choices[scheme] = _choice(study, nodes, scheme, found, sizes, roofs)
        else:
            refused[scheme] = study.refused[nodes[0]][scheme]
    return Layer(path, tuple(dict.fromkeys(n.target.name for n in nodes)), choices, refused)


def _choice(
    study: _Study, nodes: list[Node], scheme: str, sqnr: float, sizes: Mapping[str, int], roofs: Roofs | None
) -> Choice:
    """The costs of a layer by one scheme; products that cannot have it stay float."""
    total, seconds = 0, 0.0
    for node in nodes:
        way = study.ways[node].get(scheme)
        stored = study.own_bytes[node]
        if way is not None and stored:
            stored = way.weight_bytes
        total += stored
        if roofs is not None:
            config = None if way is None else study.configs[scheme]
            read = 0 if way is None else way.weight_bytes
            seconds += product_seconds(node, config, read, sizes, roofs)
    return Choice(sqnr, total, None if roofs is None else seconds)


def _all_weight_bytes(prepared: GraphModule) -> int:
    """Bytes of all weights, each counted once."""
    targets = {n.target for n in prepared.graph.find_nodes(op="get_attr")}
    return sum(int(prepared.get_attribute(target).nbytes) for target in targets)


def decibels(ratio: float) -> float:
    """A noise-to-signal ratio of powers as a signal-to-noise ratio in dB."""
    if ratio == 0:
        return math.inf
    return -10 * math.log10(ratio) if math.isfinite(ratio) else -math.inf


# -- the least time of a product -------------------------------------------------------------------
_FLOAT_BYTES = 4


def product_seconds(
    node: Node, qconfig: QConfig | None, weight_bytes: int, sizes: Mapping[str, int], roofs: Roofs
) -> float:
    """Least seconds of a product, or of reading rows of an embedding, on all threads. Without a config
    it is float32, with the costs of :mod:`fxlite.show.node_cost`; with a config the weight has
    ``weight_bytes``.

    Static: operands and result are 8-bit integers. Dynamic: the operand is read in float, and written
    and read in integers; the result is float, as that of a recurrence always is. Weight-only: float
    arithmetic with fewer bytes; a weight that is expanded when the program is compiled takes as long as
    in float."""

    def number(dim: Any) -> int:
        return int(shapes.substitute(dim or 0, sizes))

    if qconfig is not None and qconfig.mode == "weight_only" and is_expanded(node):
        qconfig = None
    cost = node_cost(node)
    operations, read, written = (number(part) for part in (cost.flops, cost.read, cost.written))
    dtype = "f32"
    if qconfig is not None and node.target.role == "table":
        read = number(node.type.size)
    elif qconfig is not None and is_call(node, "recurrence"):
        dtype = "i8"
        read += weight_bytes - number(weight_operand(node).type.size) * _FLOAT_BYTES
    elif qconfig is not None:
        elements = sum(number(slot.type.size) for slot in data_slots(node))
        read = weight_bytes + elements * _FLOAT_BYTES
        if qconfig.activation is not None:
            dtype = "i8"
            read += elements * (1 - _FLOAT_BYTES)
        if qconfig.mode == "static":
            written = number(node.type.size)
        elif qconfig.mode == "dynamic":
            read += elements * _FLOAT_BYTES
            written += elements
    return limits(roofs, operations, read, written, dtype, roofs.threads).seconds


#: The name of the layer that is the model's own forward.
ROOT = "(root)"


# -- tables ----------------------------------------------------------------------------------------
def decibel_text(sqnr: float) -> str:
    """``38.2 dB``, or ``exact`` if nothing differs."""
    return "exact" if sqnr == math.inf else f"{sqnr:.1f} dB"


def cost_text(before: Choice, after: Choice) -> str:
    """``1,184 → 340 bytes, 1.2 µs → 410 ns``: in float, then with the scheme."""
    text = f"{before.bytes:,} → {after.bytes:,} bytes"
    if before.seconds is None or after.seconds is None:
        return text
    return f"{text}, {seconds_text(before.seconds)} → {seconds_text(after.seconds)}"


def sensitivity_table(found: Sensitivity, width: int = 100) -> Any:
    """A row for each layer with the ratio by each scheme in columns; below them the total bytes and
    estimated times, and which schemes no layer can have, with the reason. In less than 100 columns the
    schemes' names take two lines."""
    from rich.console import Group
    from rich.text import Text

    headings = (scheme if width >= 100 else scheme.replace("_int", "\n_int") for scheme in found.schemes)
    table = borderless(("layer", "ops"), headings, folded=1)
    for layer in found.layers:
        cells = [
            _coloured(layer.choices[scheme].sqnr) if scheme in layer.choices else Text("-") for scheme in found.schemes
        ]
        table.add_row(layer.path or ROOT, ", ".join(layer.ops), *cells)
    what = {"layer": "of each layer's result", "output": "of the model's results"}[found.of]
    lines = [f"SQNR {what}, with that layer alone quantized", ""]
    return Group(table, "\n".join([*lines, *_totals(found), *_refusals(found)]))


def _coloured(sqnr: float) -> Any:
    from rich.text import Text

    styles = ((20.0, "red"), (30.0, "yellow"), (math.inf, ""))
    style = next(style for most, style in styles if sqnr < most or most == math.inf)
    return Text(decibel_text(sqnr), style)


def _totals(found: Sensitivity) -> Iterator[str]:
    for scheme in ("float", *found.schemes):
        seconds = found.seconds(scheme)
        time = "" if seconds is None else f", at least {seconds_text(seconds)}"
        yield f"all {scheme}: {found.bytes(scheme):,} bytes{time}"
    if found.roofs is not None:
        sizes = sizes_text(found.sizes)
        threads = number_of(found.roofs.threads, "thread")
        yield f"times: what the measured rates of {found.roofs.cpu} allow, {threads}{sizes}"


def _refusals(found: Sensitivity) -> Iterator[str]:
    layers: dict[tuple[str, str], list[str]] = {}
    for layer in found.layers:
        for scheme, reason in layer.refused.items():
            layers.setdefault((scheme, reason), []).append(layer.path or ROOT)
    schemes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (scheme, reason), paths in layers.items():
        schemes.setdefault((reason, tuple(paths)), []).append(scheme)
    for (reason, places), names in schemes.items():
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        yield f"not {', '.join(names)}: {', '.join(places[:3])}{more}: {reason}"


def plan_table(plan: Plan) -> Any:
    """A row for each layer with the cost of its scheme; below them the measurements."""
    from rich.console import Group

    table = borderless(("layer", "scheme"), ("SQNR", "bytes", "in float", "time", "in float"), folded=1)
    for layer in (*plan.layers, plan.elsewhere):
        cells: list[Any] = []
        if layer.chosen is not None and layer.in_float is not None:
            costs = (layer.chosen, layer.in_float)
            cells = ["" if layer.scheme == "float" else _coloured(layer.chosen.sqnr)]
            cells += [f"{cost.bytes:,}" for cost in costs]
            cells += ["" if c.seconds is None else seconds_text(c.seconds) for c in costs]
        table.add_row(layer.path or "(elsewhere)", layer.scheme, *cells)
    lines = list(_estimate(plan))
    if plan.measured is not None:
        lines.append(measured_text(plan.measured))
    return Group(table, *lines)


def _estimate(plan: Plan) -> Iterator[str]:
    layers = [layer for layer in (*plan.layers, plan.elsewhere) if layer.chosen is not None]
    now = [layer.chosen.seconds for layer in layers if layer.chosen is not None]
    before = [layer.in_float.seconds for layer in layers if layer.in_float is not None]
    if layers and None not in (*now, *before):
        sums = [seconds_text(math.fsum(s or 0.0 for s in part)) for part in (before, now)]
        yield f"estimated: at least {sums[0]} → {sums[1]}"


def measured_text(found: Measured) -> str:
    """``measured: SQNR of the results 31.2 dB, weights 39,912 → 11,300 bytes, metric ...``."""
    text = (
        f"measured: SQNR of the results {decibel_text(found.sqnr)}, weights "
        f"{found.bytes_float:,} → {found.bytes:,} bytes"
    )
    if found.metric is None:
        return text
    return f"{text}, metric {found.metric_float:.6g} → {found.metric:.6g}"
