"""What a node or a kernel has to do, at given sizes: FLOPs, bytes, and the least time they take.

In: a node, or a kernel of a compiled function, the sizes of the named dims, roofs and measured
times. Out: a :class:`Row`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fxlite.compiler import KernelInfo
from fxlite.graph.graph import Node
from fxlite.passes.profiling.record import Part, Row
from fxlite.show.node_cost import node_cost
from fxlite.show.roofs import Limits, Roofs, limits
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Setting:
    """What all rows of a profile share: sizes of the named dims, roofs (None: unknown), threads."""

    dims: Mapping[str, int]
    roofs: Roofs | None
    threads: int
    _known: dict[Any, int] = field(default_factory=dict, repr=False)

    def number(self, value: Any) -> int | None:
        """An expression in the named dims as a number; None for None. Each is computed once: many
        nodes cost the same, and a substitution takes much longer than a look-up."""
        if value is None or type(value) is int:
            return value
        if value not in self._known:
            self._known[value] = int(shapes.substitute(value, self.dims))
        return self._known[value]

    def stored(self, type: Any) -> int:
        """Bytes of a value of a type; of several results, of all of them."""
        if isinstance(type, (tuple, list)):
            return sum(self.stored(each) for each in type)
        return self.number(type.nbytes) or 0 if isinstance(type, TensorType) else 0

    def limits(self, flops: int, read: int, written: int, dtype: str) -> Limits | None:
        """The least time that the roofs allow; None without roofs."""
        if self.roofs is None:
            return None
        return limits(self.roofs, flops, read, written, dtype, self.threads)


@dataclass(frozen=True)
class Times:
    """Seconds of each repetition, and when the shown one began."""

    seconds: tuple[float, ...]
    start: float


def node_row(node: Node, times: Times, setting: Setting) -> Row:
    """The row of one call, which reads its operands and writes its result by itself."""
    cost = node_cost(node)
    flops, read, written = map(setting.number, (cost.flops, cost.read, cost.written))
    moved, found = None, None
    if flops is not None and read is not None and written is not None:
        moved, found = read + written, setting.limits(flops, read, written, _dtype(node))
    part = Part(node, flops, 1.0)
    return Row(node.name, node, (part,), times.seconds, times.start, flops, moved, found)


def kernel_row(kernel: KernelInfo, times: Times, setting: Setting) -> Row:
    """The row of a kernel, which reads its inputs once and writes its root; what its nodes hand to
    one another stays in registers."""
    counts = [setting.number(node_cost(node).flops) or 0 for node in kernel.nodes]
    flops = sum(counts)
    shares = [c / flops for c in counts] if flops else [1 / len(counts)] * len(counts)
    parts = tuple(Part(*each) for each in zip(kernel.nodes, counts, shares))
    readers: dict[Node, list[Node]] = {source: [] for source in kernel.reads}
    for node in kernel.nodes:
        for source in node.all_input_nodes:
            if source in readers:
                readers[source].append(node)
    read = sum(_read_bytes(source, users, setting) for source, users in readers.items())
    written = setting.stored(kernel.root.type)
    node = kernel.anchor or kernel.root
    found = setting.limits(flops, read, written, _dtype(node))
    moved = read + written
    return Row(kernel.name, node, parts, times.seconds, times.start, flops, moved, found)


def _read_bytes(source: Node, users: Sequence[Node], setting: Setting) -> int:
    """Bytes of an input that its readers in a kernel need: all, but for views and look-ups, which
    read as much of it as their results hold."""
    stored = setting.stored(source.type)
    if not users or not all(_reads_some(user, source) for user in users):
        return stored
    return min(stored, sum(setting.stored(user.type) for user in users))


def _reads_some(user: Node, source: Node) -> bool:
    if user.op != "call_function":
        return False
    if user.target.reads_some_of is not None:
        return user.arguments.get(user.target.reads_some_of) is source
    return bool(user.target.kind == "view")


def _dtype(node: Node) -> str:
    """The dtype that a node computes on: of its first operand, else of its result."""
    candidates: Sequence[Any] = [n.type for n in node.all_input_nodes[:1]] + [node.type]
    for each in candidates:
        if isinstance(each, TensorType):
            return each.dtype.name
    return "f32"
