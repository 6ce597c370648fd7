"""The forms of a value while a graph is converted: float, integers, sums.

In: nodes of the prepared graph. Out: nodes of the new one. A value of the old graph can exist in
three forms in the new one, each created when the first reader needs it:

- *sums*: the int32 accumulator of a product, with its scale (and the relu after it);
- *integers*: i8 or u8 with scale and zero point, made from sums by one ``requantize`` and from floats
  by ``quantize``;
- *float*: computed in float, or else ``dequantize`` of integers or sums.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fxlite.base.location import Location
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import unique_attribute
from fxlite.passes.ledger import copy_with_ledger
from fxlite.passes.quantize.conversion.prepare import META
from fxlite.passes.quantize.schemes.roles import clip_bounds
from fxlite.passes.quantize.schemes.scheme import QuantizationError, Scheme
from fxlite.passes.rewrite.rule import is_call
from fxlite.types.guards import Guard
from fxlite.types.shapes import Dim, decide
from fxlite.types.tensor_type import TensorType

#: In place of a type: several values that are halves.
PARTS = "parts"


@dataclass(frozen=True)
class Integers:
    """A value as integers of ``scheme``: ``(node - zero_point) * scale``."""

    node: Node
    scale: float
    zero_point: int
    scheme: Scheme

    def of(self, value: float) -> int:
        """The integer nearest to a number."""
        qmin, qmax = self.scheme.range
        return int(np.clip(np.rint(value / self.scale) + self.zero_point, qmin, qmax))


@dataclass(frozen=True)
class Sums:
    """A value as the int32 sums of a product: ``node * scale``, clipped to ``least..largest``.
    ``scale`` is a number or an array that broadcasts."""

    node: Node
    scale: Any
    least: float | None = None
    largest: float | None = None


class Forms:
    """The new graph so far, and the forms of each old value."""

    def __init__(self, prepared: GraphModule) -> None:
        self.prepared = prepared
        self.module = copy_with_ledger(prepared)
        self.graph = Graph(self.module)
        self.graph.take_conditions(prepared.graph)
        self.floats: dict[Node, Node] = {}
        self.integers: dict[Node, Integers] = {}
        self.sums: dict[Node, Sums] = {}
        #: value -> name of a half type -> halves
        self.halves: dict[Node, dict[str, Node]] = {}
        #: what is made once for several readers: dynamic scales, weights, constants
        self.made: dict[Any, Any] = {}
        #: sums over a named dim: the most of it that int32 holds, and the product that sets this limit
        self.depths: dict[Dim, tuple[int, Node]] = {}
        #: the old node that is being converted
        self.current: Node | None = None

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, name: str | None = None
    ) -> Node:
        """A call that replaces (a part of) the old node that is being converted."""
        made = self.graph.call_function(target, args, kwargs, name=name)
        assert self.current is not None
        made.meta["from"] = (("quantize", self.current.name),)
        return made

    def clip(self, node: Node, low: float | None, high: float | None, name: str) -> Node:
        """A call that clips a value on one side or both."""
        return self.call("clip", (node,), {"min": low, "max": high}, name)

    def limit_depth(self, length: Dim, most: int) -> None:
        """Record that the product that is being converted may sum at most ``most`` numbers."""
        assert self.current is not None
        known = self.depths.get(length)
        if known is None or most < known[0]:
            self.depths[length] = most, self.current

    def add_guards(self) -> None:
        """Add guards to the new graph for what its sums require of named dims, unless that is known."""
        guards = self.graph.guards
        for length, (most, node) in self.depths.items():
            if decide(length, "<=", most, guards) is None:
                said = f"the sums of {node.name} in int32"
                file, line = (node.loc.file, node.loc.line) if node.loc else ("<unknown>", 0)
                guards += (Guard(length, "<=", most, Location(resolved=(file, line, "", said))),)
        self.graph.guards = guards

    # -- the forms of a value ------------------------------------------------------------------
    def float_of(self, value: Node) -> Node:
        """The value in float32 (or in its original type) in the new graph."""
        if value not in self.floats:
            self.floats[value] = self._make_float(value)
        return self.floats[value]

    def _make_float(self, value: Node) -> Node:
        if value.op == "get_attr":
            return self.graph.get_attr(value.target)
        if value in self.integers:
            found = self.integers[value]
            return self._dequantized(value, found.node, found.scale, found.zero_point)
        if value in self.sums:
            sums = self.sums[value]
            made = self._dequantized(value, sums.node, self.constant(value, "scale", sums.scale), 0)
            if sums.least is None and sums.largest is None:
                return made
            return self.clip(made, sums.least, sums.largest, value.name)
        narrow = next(iter(self.halves[value].values()))
        return self.call("cast", (narrow,), {"dtype": "f32"}, value.name)

    def _dequantized(self, value: Node, node: Node, scale: Any, zero_point: int) -> Node:
        if not isinstance(node.type, TensorType):  # the parts of a split are requested one by one
            raise QuantizationError(f"{value.describe()} is several values")
        args = (node, scale, zero_point) if zero_point else (node, scale)
        while is_call(value, "fake_quantize") or value.op == "call_module":  # an observer
            value = value.args[0]
        return self.call("dequantize", args, {}, value.name)

    def integers_of(self, value: Node, reader: Node) -> Integers:
        """The integers of an operand. Raises QuantizationError if it was never observed, which happens
        if the graph was edited after prepare."""
        if value not in self.integers:
            raise QuantizationError(
                f"{reader.describe()} has to read integers of {value.name}, which has no observer: "
                f"the graph was edited after prepare; prepare it again"
            )
        return self.integers[value]

    def quantized(self, value: Node, scale: Any, zero_point: Any, scheme: Scheme) -> Node:
        """A call of quantize on a value."""
        args = (self.float_of(value), scale, *([zero_point] if zero_point else ()))
        qmin, qmax = scheme.range
        arguments = {"dtype": scheme.dtype, "qmin": qmin, "qmax": qmax}
        return self.call("quantize", args, arguments, f"{value.name}_integers")

    def constant(self, value: Node, what: str, array: Any) -> Any:
        """A float32 number, or an array as a buffer in the module in which ``value`` is computed."""
        scope = value.module_path
        return self.number_or_buffer(f"{scope}.{what}" if scope else f"{value.name}_{what}", array)

    def number_or_buffer(self, wish: str, array: Any) -> Any:
        """A float32 number, or an array as a buffer at the path ``wish`` if that is free."""
        array = np.asarray(array, np.float32)
        if array.size == 1:
            return float(array.reshape(()))
        return self.store(wish, array)

    def store(self, wish: str, array: Any) -> Node:
        """Store an array as a buffer and read it. Equal arrays for the same ``wish`` share a buffer;
        loops that a trace unrolled give many of them."""
        key = (wish, array.dtype, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self.made:
            self.made[key] = unique_attribute(self.module, wish)
            self.module.set_attribute(self.made[key], array)
        return self.graph.get_attr(self.made[key])

    def copy(self, node: Node, reason: str | None = None) -> None:
        """Copy the node, computed in float; ``reason`` says why a product stays float. Relu and clip of
        sums are only written when a reader needs them."""
        bounds = clip_bounds(node)
        if bounds is not None and node.args[0] in self.sums and reason is None:
            sums = self.sums[node.args[0]]
            if sums.least is None and sums.largest is None:
                self.sums[node] = replace(sums, least=bounds[0], largest=bounds[1])
                return
        if node.op == "placeholder":
            self.floats[node] = self.graph.node_copy(node)
            return
        made = self.graph.node_copy(node, self.float_of)
        made.meta = {k: v for k, v in node.meta.items() if k != META}
        if reason is not None:
            made.meta["float"] = reason
        self.floats[node] = made
