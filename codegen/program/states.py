"""Where the states of a program lie in the memory that its compiled code keeps them in.

In: a module with states. Out: the bytes at which each begins: one after another, each aligned as C
aligns an array of its elements in a struct. Emitted C declares the same struct (codegen/c/state.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.codegen.runtime.load import aligned_empty
from fxlite.graph.graph_module import GraphModule
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Place:
    """A state: the target of its input, the path of its buffer, its type, and where it begins."""

    target: str
    path: str
    type: TensorType
    start: int

    @property
    def count(self) -> int:
        """Elements in memory: arrays in C have one at least."""
        return max(int(np.prod(self.type.shape, dtype=np.int64)), 1)

    def view(self, memory: Array) -> Array:
        """The state in the memory of all."""
        size = int(np.prod(self.type.shape, dtype=np.int64))
        piece = memory[self.start : self.start + size * self.type.dtype.itemsize]
        return piece.view(self.type.dtype.numpy).reshape(self.type.shape)


def state_places(module: GraphModule) -> list[Place]:
    """The states of a module, in the order of its struct."""
    types = {node.target: node.type for node in module.graph.placeholders}
    found: list[Place] = []
    end = 0
    for target, path in module.states:
        dtype = types[target].dtype
        aligned = dtype.itemsize // (2 if dtype.is_complex else 1)
        place = Place(target, path, types[target], -(-end // aligned) * aligned)
        found.append(place)
        end = place.start + place.count * dtype.itemsize
    return found


def state_bytes(places: list[Place]) -> int:
    """The size of the struct."""
    if not places:
        return 0
    aligned = max(p.type.dtype.itemsize // (2 if p.type.dtype.is_complex else 1) for p in places)
    end = places[-1].start + places[-1].count * places[-1].type.dtype.itemsize
    return -(-end // aligned) * aligned


class StateMemory:
    """The states of a compiled function, which its calls write in place. The buffers of ``holder``
    are views of it, so that its ``state_dict`` shows them."""

    def __init__(self, holder: GraphModule) -> None:
        self.holder, self.places = holder, state_places(holder)
        self.bytes = aligned_empty(state_bytes(self.places))
        self.views: Mapping[str, Array] = {p.path: p.view(self.bytes) for p in self.places}
        self.take()

    def take(self) -> None:
        """Copy what somebody has put in the place of a buffer; nothing where nobody has."""
        for path, view in self.views.items():
            value = self.holder.get_attribute(path)
            if value is not view:
                if value.shape != view.shape or value.dtype != view.dtype:
                    return  # the checks of a call say so
                view[...] = value
                self.holder.put_state(path, view)

    def filled(self, values: Mapping[str, Any]) -> tuple[Array, list[Array]]:
        """Other memory of the kind, with values by target; and the states in it, in order."""
        memory = aligned_empty(self.bytes.size)
        views = [place.view(memory) for place in self.places]
        for place, view in zip(self.places, views):
            view[...] = values[place.target]
        return memory, views
