"""The layout of a program's states in the memory in which its compiled code keeps them.

In: a module with states. Out: the byte at which each begins: one after another, each aligned as C aligns
an array of its elements in a struct. Emitted C declares the same struct (codegen/c/structs.py). Also:
which results lie in the memory of inputs, either of states or of inputs that the caller donates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, did_you_mean
from fxlite.codegen.runtime.load import aligned_empty
from fxlite.graph import further_results
from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Place:
    """A state: the target of its input, the path of its buffer, its type, and its first byte."""

    target: str
    path: str
    type: TensorType
    start: int

    @property
    def count(self) -> int:
        """Elements in memory: an array in C has at least one."""
        return max(int(np.prod(self.type.shape, dtype=np.int64)), 1)

    def view(self, memory: Array) -> Array:
        """The state as a view of the memory of all states."""
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


# -- results in the memory of inputs ---------------------------------------------------------------
def state_results(module: GraphModule) -> dict[str, int]:
    """The numbers of the flat results that become states after a call, by the targets of inputs."""
    return _further_results(module, dict(module.states).keys())


def written_results(module: GraphModule) -> dict[str, int]:
    """The numbers of the flat results that a call writes into the caller's arrays, by the targets of inputs."""
    return _further_results(module, frozenset(module.written_inputs()) - dict(module.states).keys())


def _further_results(module: GraphModule, targets: Collection[str]) -> dict[str, int]:
    if not targets:
        return {}
    own = len(list(nodes_in(module.graph.output_node().args[0][0])))
    writes = enumerate(module.written_inputs(), start=own)
    return {target: number for number, target in writes if target in targets}


def donated_results(module: GraphModule, donated: Sequence[str]) -> dict[str, int]:
    """The numbers of the flat results that take the memory of donated inputs: for each input the result
    that is made from it by writing parts, or else the first remaining one of its type.

    Raises ArgumentError for names that are not inputs, and if no result has the input's type."""
    placeholders = {str(node.target): node for node in module.graph.placeholders}
    flat = list(nodes_in(module.graph.output_node().args))
    taken = set(state_results(module).values())
    if donated and module.written_inputs():  # their values are results in order of their own
        taken |= set(range(len(list(nodes_in(module.graph.output_node().args[0][0]))), len(flat)))
    found: dict[str, int] = {}
    for target in donated:
        node = placeholders.get(target)
        if node is None or target in dict(module.states) or target in module.written_inputs():
            known = [t for t in placeholders if t not in dict(module.states) and t not in module.written_inputs()]
            hint = did_you_mean(target, known, 1) or f"; there are {', '.join(known) or 'none'}"
            raise ArgumentError(f"donate={target!r}: {module.name} has no such input that is only read{hint}")
        same = [n for n, result in enumerate(flat) if n not in taken and result.type == node.type]
        if not same:
            types = ", ".join(str(result.type) for n, result in enumerate(flat) if n not in taken) or "nothing"
            raise ArgumentError(
                f"donate={target!r}: no result of {module.name} has the type of {target}, {node.type}, and is "
                f"left to take its memory; results are {types}"
            )
        number = next((n for n in same if _start(flat[n]) is node), same[0])
        found[target] = number
        taken.add(number)
    return found


def _start(result: Node) -> Node:
    """The value that a result is, or from which it is made by writing parts."""
    while result.op == "call_function" and result.target.writes_part and isinstance(result.args[0], Node):
        result = result.args[0]
    return result


def check_donated(name: str, donated: Collection[str], values: Mapping[str, Any]) -> None:
    """Raise ArgumentError for arrays whose memory a result cannot take: they must be writeable,
    C-contiguous and aligned, and share memory with no other input."""
    further_results.check_writable(
        name, [*donated], values, {target: f"{target}, which is donated," for target in donated}
    )
    for target in donated:
        flags = values[target].flags
        if not (flags.c_contiguous and flags.aligned):
            raise ArgumentError(
                f"{name}: {target} is donated, and a result can only take memory that is C-contiguous and "
                f"aligned; pass np.ascontiguousarray({target})"
            )


class StateMemory:
    """The states of a compiled function, which its calls update in place. The buffers of ``holder`` are
    views of this memory, so that its ``state_dict`` shows the current states."""

    def __init__(self, holder: GraphModule) -> None:
        self.holder, self.places = holder, state_places(holder)
        self.bytes = aligned_empty(state_bytes(self.places))
        self.views: Mapping[str, Array] = {p.path: p.view(self.bytes) for p in self.places}
        self.take()

    def take(self) -> None:
        """Copy the arrays that somebody has put in place of buffers; does nothing if there are none."""
        for path, view in self.views.items():
            value = self.holder.get_attribute(path)
            if value is not view:
                if value.shape != view.shape or value.dtype != view.dtype:
                    return  # the checks of a call report it
                view[...] = value
                self.holder.put_state(path, view)

    def filled(self, values: Mapping[str, Any]) -> tuple[Array, dict[str, Array]]:
        """New memory of the same layout, filled with values by target; and the states in it, by target."""
        memory = aligned_empty(self.bytes.size)
        views = {place.target: place.view(memory) for place in self.places}
        for target, view in views.items():
            view[...] = values[target]
        return memory, views
