"""Compute float and quantized layers side by side, in one run that shows the rounding error of each.

In: a prepared graph, the ways to compute each of its products (and tables), and arguments. Out: powers
of signal and noise. While the float program runs, each product is also computed in each of its ways
from the same float values, which are rounded first; the difference of its result is the noise of that
way. So a run takes about as long as one run of the model for each way, whatever the number of layers.

The results of integer products are computed in float here: operands and weights are rounded to the
numbers that their integers represent. The two differ only by the rounding of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fxlite.graph.graph import Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.ops.integer.quantized import fake_quantize
from fxlite.passes.quantize.conversion.convert import observer_of
from fxlite.passes.quantize.conversion.integer_flow import integer_recurrence, rounded_rows, state_attributes
from fxlite.passes.quantize.conversion.one_step import float_results
from fxlite.passes.quantize.conversion.prepare import META
from fxlite.passes.quantize.schemes.observers import Observer
from fxlite.passes.quantize.schemes.roles import (
    data_slots,
    factor,
    is_transposed,
    moved,
    product_weights,
    summed_axes,
    weight_integers,
)
from fxlite.passes.quantize.schemes.scheme import (
    QConfig,
    QuantizedWeight,
    Scheme,
    packed_bytes,
    require_finite,
    restored_weight,
)
from fxlite.passes.rewrite.rule import is_call


@dataclass(frozen=True)
class Way:
    """One way to compute a product: ``rounded`` has, for each operand that is rounded, the function
    that does so. ``weight_bytes`` are those of the integers and their scales. ``function``, if given, is
    called in place of the op."""

    rounded: Mapping[Node, Callable[[Any], Any]]
    weight_bytes: int
    function: Callable[..., Any] | None = None


#: Scale and zero point of each computed operand of a product, by its name and position.
Ranges = Mapping[tuple[str, int], tuple[float, int]]


def operand_ranges(prepared: GraphModule) -> Ranges:
    """The ranges of the operands of products in a calibrated module. An op that runs on integers passes
    on the scale of its operand."""
    known: dict[Node, tuple[float, int]] = {}
    found: dict[tuple[str, int], tuple[float, int]] = {}
    for node in prepared.graph.nodes:
        observer = observer_of(node)
        decision = node.meta.get(META)
        role = getattr(decision, "role", "")
        if observer is not None:
            scale, zero_point = observer.calculate_qparams()
            known[node] = float(scale), int(zero_point)
        elif role == "carry" and moved(node)[0] in known:
            scale, zero_point = known[moved(node)[0]]
            known[node] = scale * (factor(node) or 1.0), zero_point
        elif role == "product":
            slots = [node.arguments["h0"]] if is_call(node, "recurrence") else data_slots(node)
            for place, operand in enumerate(slots):
                if operand in known:
                    found[node.name, place] = known[operand]
    return found


#: Weights as integers, by path, scheme, summed axes and whether it is the transpose: schemes share
#: them.
Stored = dict[tuple[str, Scheme, tuple[int, ...], bool], QuantizedWeight]


def way_of(node: Node, qconfig: QConfig, ranges: Ranges, stored: Stored) -> Way:
    """How a product is computed under a config; a static config uses ``ranges``. Integers that are not
    in ``stored`` yet are added to it.

    Raises QuantizationError for weights that are not finite."""
    rounded: dict[Node, Callable[[Any], Any]] = {}
    if qconfig.activation is not None and node.target.role != "table":
        for place, operand in enumerate(data_slots(node)):
            if qconfig.dynamic:
                rounded[operand] = partial(rounded_rows, node=node, scheme=qconfig.activation)
            else:
                rounded[operand] = _by_range(qconfig.activation, ranges[node.name, place])
    scheme = Scheme(per="channel") if node.target.role == "table" else qconfig.weight
    assert scheme is not None
    transposed = is_transposed(node)
    weight_bytes = 0
    for weight in product_weights(node):
        found = _integers(node, weight, scheme, stored)
        rounded[weight] = _restored(found, scheme, transposed)
        weight_bytes += packed_bytes(found, scheme)
    if is_call(node, "recurrence") and qconfig.activation is not None:
        state = {}
        if not qconfig.dynamic:
            state = state_attributes(qconfig.activation, *ranges[node.name, 0])
        return Way({}, weight_bytes, partial(integer_recurrence, weight=found, state=state))
    return Way(rounded, weight_bytes)


def _by_range(scheme: Scheme, known: tuple[float, int]) -> Callable[[Any], Any]:
    qmin, qmax = scheme.range
    arguments = {"dtype": scheme.dtype, "qmin": qmin, "qmax": qmax}
    return lambda x: fake_quantize(x, known[0], known[1], **arguments)


def _restored(found: QuantizedWeight, scheme: Scheme, transposed: bool) -> Callable[[Any], Any]:
    """A function from the float weight to the numbers that its integers represent. They are recomputed
    each time, so that only integers are stored."""

    def restored(weight: Any) -> Any:
        numbers = restored_weight(found, scheme)
        return numbers.T if transposed else numbers

    return restored


def _integers(node: Node, weight: Node, scheme: Scheme, stored: Stored) -> QuantizedWeight:
    transposed = is_transposed(node)
    key = (weight.target, scheme, summed_axes(node, weight, transposed), transposed)
    if key not in stored:
        assert node.graph.owning_module is not None
        array = np.asarray(node.graph.owning_module.get_attribute(weight.target))
        require_finite(weight.target, array)
        stored[key] = weight_integers(node, weight, array, scheme)
    return stored[key]


@dataclass
class Powers:
    """Sums of squares: of a float result, and of another result's difference from it."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, signal: Any, other: Any) -> None:
        """Add a batch."""
        wide = np.asarray(signal, np.float64)
        self.signal += float(np.sum(wide**2))
        self.noise += float(np.sum((wide - other) ** 2))

    @property
    def ratio(self) -> float:
        """Noise divided by signal; 0 if both are 0, infinite if there is only noise."""
        if self.noise == 0:
            return 0.0
        return self.noise / self.signal if self.signal else float("inf")


class Shadow(Interpreter):
    """Runs a prepared graph in float, and each product also in its other ways. ``powers`` has the
    results by product and scheme; with ``keep`` all values stay in ``env``."""

    def __init__(self, prepared: GraphModule, ways: Mapping[Node, Mapping[str, Way]], keep: bool = False) -> None:
        super().__init__(prepared, garbage_collect_values=not keep)
        self.ways = ways
        self.powers: dict[tuple[Node, str], Powers] = {
            (node, scheme): Powers() for node, found in ways.items() for scheme in found
        }

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Observers are calibrated already and pass values through."""
        if isinstance(self.module.get_submodule(target), Observer):
            return args[0]
        return super().call_module(target, args, kwargs)

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        for scheme, way in self.ways.get(node, {}).items():
            self.powers[node, scheme].add(value, self._computed(node, way))
        return value

    def _computed(self, node: Node, way: Way) -> Any:
        """The product's result in another way, computed from values in ``env``."""

        def value(used: Node) -> Any:
            found = self.env[used]
            return way.rounded[used](found) if used in way.rounded else found

        args, kwargs = map_nodes((node.args, node.kwargs), value)
        if way.function is not None:
            return way.function(args, kwargs)
        return self.call_function(node.target, args, kwargs)

    def rerun(self, products: list[Node], scheme: str) -> list[Any]:
        """The results with some products computed in another way; only nodes that depend on them run.
        The previous run must have kept its values."""
        kept = self.env
        self.env = dict(kept)
        changed: set[Node] = set()
        chosen, node = set(products), products[0]
        while node.op != "output":
            if node in chosen and scheme in self.ways[node]:
                self.env[node] = self._computed(node, self.ways[node][scheme])
                changed.add(node)
            elif not changed.isdisjoint(node.all_input_nodes):
                self.env[node] = super().run_node(node)
                changed.add(node)
            node = node.next
        found = float_results(self)
        self.env = kept
        return found
