"""Traces state: buffers that a program writes into or assigns to while it runs.

In: the buffers that a program reads, and the values that it assigns to them. Out: their final values, and a graph in
which each such buffer is an input and its new value an additional result (:class:`fxlite.graph.pytree.Interface`,
``states``). The program's own buffers are not changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.graph.graph import Graph
from fxlite.graph.pytree import state_target
from fxlite.tracing.capture.places import Unavailable
from fxlite.tracing.writes.shared_memory import Memory, View
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.nn.module import Module
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


@dataclass
class _Buffer:
    """A buffer that was read: its path, its array, its initial value, and the modules that have it, with their names
    for it."""

    path: str
    array: np.ndarray[Any, Any]
    proxy: Proxy
    owners: dict[tuple[int, str], Module]

    @property
    def first(self) -> Node:
        return self.proxy._node


class States:
    """The facts of a trace about the buffers of the program's modules."""

    def __init__(self) -> None:
        self._buffers: dict[int, _Buffer] = {}  # by the identity of the array
        self._assigned: dict[tuple[int, str], Any] = {}

    def value(self, module: Module, name: str) -> Any:
        """The value that was assigned to a buffer; None if nothing was."""
        return self._assigned.get((id(module), name))

    def read(self, tracer: Tracer, module: Module, name: str, array: Any, path: str, node: Node) -> Proxy:
        """The value of a buffer, into which the program may write; ``node`` is its initial value."""
        known = self._buffers.get(id(array))
        if known is None or known.first is not node:
            proxy = tracer.proxy(node)
            proxy._view = View(node, Memory(), tracer.writes.count)
            known = self._buffers[id(array)] = _Buffer(path, array, proxy, {})
        known.owners[id(module), name] = module
        return known.proxy

    def assign(self, tracer: Tracer, module: Module, name: str, value: Any) -> None:
        """``module.name = value``. Raises TraceError for a value of another type."""
        array = module._buffers[name]
        if isinstance(value, Unavailable):  # raises an error when it is read, or at the end of the program
            self._assigned[id(module), name] = value
            return
        if array is None or value is None:
            raise tracer.error(
                f"self.{name}, a buffer, is {'None' if array is None else 'an array'} before and becomes "
                f"{'None' if value is None else 'an array'}; a graph has it in every call or in none",
                f'give it an array before tracing: self.register_buffer("{name}", np.zeros(...))',
            )
        getattr(module, name)  # makes it an input, even if it is never read
        if not is_traced(value):
            value = np.asarray(value)
        before, after = type_of(array), value.type if is_traced(value) else type_of(value)
        if isinstance(after, TensorType) and not _same(before, after):
            raise tracer.error(
                f"self.{name}, a state, is {before} before a call and would be {after} after it; the "
                "next call could not be this graph",
                "allocate it at its final size and write into a part of it, and cast what is assigned: "
                f"self.{name} = value.astype({before.dtype.long_name!r})",
                value.node if is_traced(value) else None,
            )
        self._assigned[id(module), name] = value

    def written(self, tracer: Tracer) -> list[tuple[Node, str, Node]]:
        """(initial value, path, final value) of each buffer that the program changes. Raises TraceError for a buffer
        with several names under which it then differs."""
        found = []
        for buffer in self._buffers.values():
            values = [self._assigned.get(key, buffer.proxy) for key in buffer.owners]
            nodes = dict.fromkeys(tracer.create_arg(value) for value in values)
            if len(nodes) > 1:
                raise tracer.error(
                    f"{buffer.path} is one array under several names, and the program assigns to one of them",
                    "give each module an array of its own",
                    buffer.first,
                )
            (node,) = nodes
            if node is buffer.first:
                continue
            for (_, name), module in buffer.owners.items():
                if tracer.path_of_module(module) is None:
                    raise tracer.error(
                        f"{type(module).__name__} changes self.{name}, and is not part of the module that is traced",
                        "trace the module that holds it, not a function or method",
                        buffer.first,
                    )
            found.append((buffer.first, buffer.path, node))
        return found


def _same(before: TensorType, after: TensorType) -> bool:
    return before.dtype is after.dtype and shapes.shapes_equal(before.shape, after.shape)


def into_inputs(graph: Graph, written: list[tuple[Node, str, Node]]) -> tuple[tuple[str, str], ...]:
    """Turn the nodes that read states into inputs; returns (target, path) of each. The output node, whose last values
    are the new ones, must already exist."""
    states = []
    for first, path, _ in written:
        target = state_target(path, {node.target for node in graph.placeholders})
        before = next(node for node in graph.nodes if node.op != "placeholder")
        with graph.inserting_before(before):
            made = graph.placeholder(target, first.type)
        first.replace_all_uses_with(made)
        graph.erase_node(first)
        graph.rename_node(made, target)
        states.append((target, path))
    return tuple(states)
