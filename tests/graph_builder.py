"""A builder of random graphs: choices drawn by hypothesis, calls that their ops accept.

In: hypothesis' ``draw``. Out: a :class:`Builder`, to which :mod:`tests.strategies` adds calls of
every family of ops and :mod:`tests.fuzz.edits` edits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Node
from fxlite.ops.samples import Random
from fxlite.types.tensor_type import TensorType, parse_type

#: Elements of a value when each named dim is NOMINAL; larger values are not made.
LARGEST, NOMINAL = 150, 3
NAMED = ("B", "T")


class Builder:
    """Makes a graph call by call; ``values`` are what later calls may read."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.graph = fx.Graph()
        self.weights: dict[str, Any] = {}
        self.sources: dict[str, Random] = {}
        self.values: list[Node] = []

    # -- choices -------------------------------------------------------------------------------
    def choose(self, options: Sequence[Any]) -> Any:
        """One of ``options``; failing examples shrink towards the first."""
        return options[self.draw(st.integers(0, len(options) - 1))]

    def number(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return int(self.draw(st.integers(low, high)))

    def chance(self) -> bool:
        """True or False."""
        return bool(self.draw(st.booleans()))

    def value(self, fits: Callable[[TensorType], bool] = lambda t: True) -> Node | None:
        """A value whose type fits, mostly a late one; None where there is none."""
        found = [v for v in self.values if fits(v.type)]
        if not found:
            return None
        return found[-1 - min(self.number(0, len(found) - 1), self.number(0, len(found) - 1))]

    def floats(self, rank: int = 0) -> Node | None:
        """A value of floats with at least ``rank`` axes."""
        return self.value(lambda t: t.dtype.is_float and t.rank >= rank)

    # -- nodes ---------------------------------------------------------------------------------
    def call(self, name: str, *args: Any, **attributes: Any) -> Node | None:
        """A call, if its op takes these arguments and the result is small; else None."""
        try:
            node = self.graph.call_function(name, args, attributes)
        except FxliteError:
            return None
        types = node.type if isinstance(node.type, tuple) else (node.type,)
        if sum(elements(t) for t in types) > LARGEST:
            self.graph.erase_node(node)
            return None
        if isinstance(node.type, TensorType):
            self.values.append(node)
        return node

    def placeholder(self, source: Random) -> Node:
        """An input; the first ones come before everything else."""
        inputs = self.graph.placeholders
        name = "xyzabcdefgh"[len(inputs)] if len(inputs) < 11 else f"in_{len(inputs)}"
        with self.graph.inserting_after(inputs[-1] if inputs else self.graph._store.root):
            node = self.graph.placeholder(name, source.type)
        self.sources[node.target] = source
        self.values.append(node)
        return node

    def weight(self, value: Any, path: str = "") -> Node:
        """A get_attr node of a new weight."""
        path = path or f"{self.choose(('w', 'fc.weight', 'layers.0.scale'))}_{len(self.weights)}"
        self.weights[path] = np.asarray(value)
        return self.graph.get_attr(path, fx.types.type_of(self.weights[path]))

    def random_weight(self, text: str, low: float | None = None, high: float | None = None) -> Node:
        """A weight of a concrete type."""
        rng = np.random.default_rng(self.number(0, 3))
        return self.weight(Random(parse_type(text), low, high).make(rng, {}))


def elements(of: TensorType) -> int:
    """Number of elements where named dims are NOMINAL."""
    return math.prod(int(d) for d in of.substitute(dict.fromkeys(NAMED, NOMINAL)).shape)


def axis_of(b: Builder, node: Node) -> int:
    """An axis, counted from either end."""
    return b.number(0, node.type.rank - 1) - (node.type.rank if b.chance() else 0)
