"""A program: what has to run, in which order, and where every value lives in memory.

In: a GraphModule whose ops all have a body. Out: :class:`Program`: groups in execution order,
values that share memory with others (contiguous views), the slots of one arena that intermediate
values take turns in, and the results. Nothing here knows a target language.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fxlite.base.errors import CodegenError
from fxlite.codegen.kernel.lower import lower
from fxlite.codegen.program.packing import Extent, pack
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.wrapping import WrappedOp
from fxlite.passes.group import Group, group
from fxlite.passes.ledger import refusals
from fxlite.scalar.expr import Load
from fxlite.scalar.index import Index, flatten
from fxlite.types import shapes
from fxlite.types.shapes import Dim

ALIGNMENT = 64


@dataclass
class Slot:
    """A piece of the arena, in which values lie one after another; ``sizes`` are the bytes they
    take, each size once."""

    sizes: list[Dim] = field(default_factory=list)

    @property
    def size(self) -> Dim:
        """Bytes: the largest of the sizes, an int or an expression in dims."""
        result = self.sizes[0]
        for size in self.sizes[1:]:
            result = shapes.maximum(result, size)
        return result


@dataclass
class Program:
    """See the module's text. ``results`` are the graph's outputs, flat and in order; ``stored``
    maps a node to the node whose memory holds its value. A packed program has one slot, in which
    each value starts at its ``offset_of``, in bytes; otherwise that is empty, and values begin with
    their slots."""

    module: GraphModule
    groups: list[Group]
    stored: dict[Node, Node]
    slots: list[Slot]
    slot_of: dict[Node, int]
    results: list[Node]
    offset_of: dict[Node, int] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Node]:
        return self.module.graph.placeholders

    @property
    def dims(self) -> list[str]:
        """Named dims of the inputs, in order of appearance."""
        found: dict[str, None] = {}
        for node in self.inputs:
            for dim in node.type.shape:
                for name in sorted(shapes.names(dim)):
                    found[name] = None
        return list(found)

    @property
    def arena_bytes(self) -> Dim:
        """Bytes of all slots together."""
        return shapes.normalize(sum(s.size for s in self.slots))

    def memory(self, node: Node) -> Node:
        """The node whose memory holds a node's value."""
        return self.stored.get(node, node)

    @cached_property
    def lifetimes(self) -> dict[Node, tuple[int, int]]:
        """The values that need memory of the arena: the groups that compute them and the last ones
        that read it."""
        return _lifetimes(self.groups, self.stored, self.results)


def plan(
    module: GraphModule, claims: Callable[[Node], bool], apart: Collection[Node] = (),
    join: Callable[[Sequence[Group]], list[Group]] = list, packed: bool = False,
) -> Program:  # fmt: skip
    """Group the graph and plan its memory; nodes that are ``apart`` are no part of their readers'
    kernels; ``join`` makes fewer groups of them where the target can. ``packed``: the target has
    one block of memory, in which values may start anywhere; they do if their sizes are numbers.
    Raises CodegenError for what no back end can do."""
    unexpanded = {r.node: r.reason for r in refusals(module) if r.pass_name == "decompose"}
    for node in module.graph.nodes:
        _check(node, claims, unexpanded)
    groups = join(group(module, claims, apart))
    results = list(_flat_results(module))
    stored: dict[Node, Node] = {}
    kept: list[Group] = []
    for found in groups:
        source = None if found.root in results else _same_memory(found)
        if source is not None:
            stored[found.root] = stored.get(source, source)
        else:
            kept.append(found)
    held = _lifetimes(kept, stored, results)
    offset_of = _pack(held) if packed else {}
    if offset_of:
        end = max(offset + _rounded(node.type.nbytes) for node, offset in offset_of.items())
        slots, slot_of = [Slot([end])], dict.fromkeys(offset_of, 0)
    else:
        slots, slot_of = _assign_slots(kept, stored, held)
    return Program(module, kept, stored, slots, slot_of, results, offset_of)


def _check(node: Node, claims: Callable[[Node], bool], unexpanded: Mapping[str, str]) -> None:
    if node.op == "call_module":
        owner = node.graph.owning_module
        assert owner is not None
        advice = owner.get_submodule(node.target).leaf_advice
        raise CodegenError(f"{node.describe()}: a leaf module cannot be compiled; {advice}")
    if node.op == "call_function":
        if node.target.is_random:
            raise CodegenError(
                f"{node.describe()}: random ops are not compiled; call model.eval() before tracing"
            )
        if isinstance(node.target, WrappedOp):
            raise CodegenError(
                f"{node.describe()}: {node.target.title} is a Python function (fx.wrap), which "
                f'compiled code cannot call; use backend="python", or write it with NumPy and '
                f"leave fx.wrap out"
            )
        if not node.target.has_body and not claims(node):
            why = "the op has no body; run passes.decompose first"
            if node.name in unexpanded and node.type is not None:
                why = (
                    f"this back end has no template for {node.target.name}, and expanding it fails:"
                    f" {unexpanded[node.name]}; give that size with gm.specialize(NAME=NUMBER)"
                )
            raise CodegenError(f"{node.describe()}: {why}")
    if node.op != "output" and node.type is None:
        raise CodegenError(f"{node.describe()} has no type; trace with input types")


def _flat_results(module: GraphModule) -> list[Node]:
    from fxlite.graph.graph import nodes_in

    return list(nodes_in(module.graph.output_node().args))


def _same_memory(found: Group) -> Node | None:
    """The value whose memory a group would only copy: all members are views and the order of
    elements stays the same (a reshape)."""
    if any(m.target.kind != "view" for m in found.members) or len(found.inputs) != 1:
        return None
    lowered = lower(found)
    value = lowered.value
    (source,) = found.inputs
    if (
        not isinstance(value, Load)
        or value.guard is not None
        or source.type.dtype != found.root.type.dtype
    ):
        return None
    here = flatten((Index.of(v) for v in lowered.space), found.root.type.shape)
    there = flatten(value.index, source.type.shape)
    same_size = shapes.equal(source.type.size, found.root.type.size)
    return source if here == there and same_size else None


def _lifetimes(
    groups: list[Group], stored: dict[Node, Node], results: list[Node]
) -> dict[Node, tuple[int, int]]:
    outside = set(results)
    held: dict[Node, tuple[int, int]] = {}
    for step, found in enumerate(groups):
        for node in (stored.get(n, n) for n in found.inputs):
            if node in held:
                held[node] = held[node][0], step
        held.update((value, (step, step)) for value in found.stored if value not in outside)
    for node in (stored.get(n, n) for n in results):
        if node in held:  # copied into the result behind all groups
            held[node] = held[node][0], len(groups)
    return held


def _pack(held: Mapping[Node, tuple[int, int]]) -> dict[Node, int]:
    """Offsets in one block; none if a size has a name, or too many values are held at one time."""
    sizes = [_rounded(node.type.nbytes) for node in held]
    numbers = [size for size in sizes if type(size) is int]
    if len(numbers) < len(sizes):
        return {}
    offsets = pack([Extent(size, *held[node]) for size, node in zip(numbers, held)])
    return dict(zip(held, offsets or ()))


def _assign_slots(
    groups: list[Group], stored: dict[Node, Node], held: Mapping[Node, tuple[int, int]]
) -> tuple[list[Slot], dict[Node, int]]:
    """Walk the groups; a value's slot is free again after its last reader. A value takes the free
    slot of its size, else the one that grows least, else a new one."""
    slots: list[Slot] = []
    slot_of: dict[Node, int] = {}
    free: list[int] = []
    for step, found in enumerate(groups):
        for value in found.stored:
            if value not in held:
                continue
            size = _rounded(value.type.nbytes)
            choice = _best(free, slots, size)
            if choice is None:
                slots.append(Slot())
                choice = len(slots) - 1
            else:
                free.remove(choice)
            if size not in slots[choice].sizes:
                slots[choice].sizes.append(size)
            slot_of[value] = choice
        read = [stored.get(n, n) for n in found.inputs]
        for node in dict.fromkeys([*read, *found.stored]):
            if node in held and held[node][1] == step:
                free.append(slot_of[node])
    return slots, slot_of


def _rounded(size: Dim) -> Dim:
    """Size in bytes rounded up to the alignment; named sizes are rounded when they are known."""
    if type(size) is int:
        return -(-size // ALIGNMENT) * ALIGNMENT
    return shapes.normalize(shapes.floordiv(size + (ALIGNMENT - 1), ALIGNMENT) * ALIGNMENT)


def _best(free: list[int], slots: list[Slot], size: Dim) -> int | None:
    fitting = [i for i in free if shapes.at_least(slots[i].size, size)]
    if fitting:
        numbers = [i for i in fitting if type(slots[i].size) is int]
        return min(numbers, key=lambda i: slots[i].size) if numbers else fitting[0]
    growing = [i for i in free if shapes.at_least(size, slots[i].size)]
    return growing[-1] if growing else None
