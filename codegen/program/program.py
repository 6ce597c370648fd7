"""A program: what has to run, in which order, and where every value lives in memory; and the
standard passes before that (:func:`optimize`).

In: a GraphModule whose ops all have a body. Out: :class:`Program`: groups in execution order,
values that share memory with others (contiguous views), the slots of one arena that intermediate
values take turns in, and the results. Nothing here knows a target language.

In a packed arena values have offsets in one block of memory: values that are held at one time lie
side by side. A small arena is worth more than its bytes: parts that a run has not touched yet are
fetched from memory to be written, because all that the last run read has passed through the caches
since. :func:`memory_plan` shows which value lies where, and when.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fxlite import passes
from fxlite.base.errors import ArgumentError, CodegenError
from fxlite.codegen.kernel.lower import lower
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.wrapping import WrappedOp
from fxlite.passes.base import Pass
from fxlite.passes.costing.timeline import Buffer, MemoryTimeline
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.group import Group, group
from fxlite.passes.ledger import refusals
from fxlite.passes.manager import PassManager
from fxlite.passes.rules.decompose import Keep
from fxlite.scalar.expr import Load
from fxlite.scalar.index import flatten
from fxlite.tracing.nonempty import missing_guards
from fxlite.types import shapes
from fxlite.types.shapes import Dim


def standard_passes(keep: Keep = frozenset(), matmul_precision: str = "highest") -> list[Pass]:
    """The passes, in order; composites in ``keep``, for which the target has templates, stay."""
    bf16 = matmul_precision == "medium"
    decompose = passes.decompose.with_options(keep=keep)
    return [
        passes.remove_dropout,
        passes.simplify,
        passes.fuse_conv_bn,
        decompose,
        passes.simplify,
        *([passes.fuse_attention, decompose, passes.simplify] if keep else []),
        *([passes.sub_pixel, passes.channels_last.with_options(bf16=bf16)] if keep else []),
        passes.const_fold,
        passes.merge_linears,
        passes.cse,
        passes.merge_steps,  # after cse: a step read twice is one product
        passes.dce,
        *([passes.store_bf16] if bf16 else []),
    ]


def optimize(
    module: GraphModule, needed_only: bool = False, keep: Keep = frozenset(),
    matmul_precision: str = "highest",
) -> tuple[GraphModule, PassManager]:  # fmt: skip
    """The optimized module (the input is left as it was) and the manager with its report;
    ``needed_only``: expand composites, which have no code of their own, and do nothing else.
    Composites in ``keep`` (names, or a predicate on nodes) are not expanded."""
    chosen = standard_passes(keep, matmul_precision)
    if needed_only:
        chosen = [passes.decompose.with_options(keep=keep)]
    # these passes are tested; checks of each use would double the time
    manager = PassManager(chosen, check="lint")
    whole = flattened(module)
    guards = missing_guards(whole.graph)
    made = manager(whole)
    if guards:
        made.graph.guards = (*made.graph.guards, *guards)
    return made, manager


def said_of_passes(before: GraphModule, after: GraphModule, manager: PassManager) -> str:
    """``12 -> 9 nodes by fuse_conv_bn, dce``"""
    changed = dict.fromkeys(step.name for step in manager.report if step.changes != "-")
    count = f"{len(before.graph)} -> {len(after.graph)} nodes"
    return f"{count} by {', '.join(changed)}" if changed else count


# -- packing ---------------------------------------------------------------------------------------
#: Pairs of values held at one time, of each value and beside that, up to which they are packed:
#: what keeps the work near-linear.
_PAIRS_A_VALUE, _PAIRS = 16, 500_000


@dataclass(frozen=True)
class Extent:
    """A value of ``nbytes`` that is held from step ``first`` to step ``last``, both included."""

    nbytes: int
    first: int
    last: int


def pack(values: Sequence[Extent]) -> list[int] | None:
    """The offset of each value, in bytes; None where so many values are held at one time that all
    pairs of them would be too many.

    Greedy by size (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference,
    2020, arXiv 2001.03288): the largest value first, each into the smallest gap that holds it
    between those placed before that are held at some step with it. Of values of one size the one
    held longest comes first. Linear in the pairs held at one time, but for the sorting."""
    together = _held_together(values)
    if together is None:
        return None
    offsets: dict[int, int] = {}
    for number in sorted(range(len(values)), key=lambda n: _rank(values[n])):
        taken = sorted(
            (offsets[other], offsets[other] + values[other].nbytes)
            for other in together[number]
            if other in offsets
        )
        offsets[number] = _smallest_gap(taken, values[number].nbytes)
    return [offsets[number] for number in range(len(values))]


def ends(values: Sequence[Extent], offsets: Sequence[int], steps: int) -> list[int]:
    """Where the values held at each of so many steps end: the bytes behind are free then."""
    beginning: dict[int, list[tuple[int, int]]] = {}
    for value, offset in zip(values, offsets):
        beginning.setdefault(value.first, []).append((-offset - value.nbytes, value.last))
    held: list[tuple[int, int]] = []  # a heap: the value that ends last comes first
    found = []
    for step in range(steps):
        for entry in beginning.get(step, ()):
            heapq.heappush(held, entry)
        while held and held[0][1] < step:
            heapq.heappop(held)
        found.append(-held[0][0] if held else 0)
    return found


def _rank(value: Extent) -> tuple[int, int, int]:
    return -value.nbytes, value.first - value.last, value.first


def _smallest_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    """Where ``nbytes`` go among ranges in order of their starts; behind all if no gap holds
    them."""
    end, best, smallest = 0, None, None
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (smallest is None or gap < smallest):
            best, smallest = end, gap
        end = max(end, stop)
    return end if best is None else best


def _held_together(values: Sequence[Extent]) -> list[list[int]] | None:
    """For each value the others held at some step with it; None if they are too many."""
    found: list[list[int]] = [[] for _ in values]
    ending: dict[int, list[int]] = {}
    held: dict[int, None] = {}
    left = _PAIRS_A_VALUE * len(values) + _PAIRS
    step = 0
    for number in sorted(range(len(values)), key=lambda n: values[n].first):
        for passed in range(step, values[number].first):
            for gone in ending.pop(passed, ()):
                del held[gone]
        step = values[number].first
        left -= len(held)
        if left < 0:
            return None
        for other in held:
            found[other].append(number)
        found[number].extend(held)
        held[number] = None
        ending.setdefault(values[number].last, []).append(number)
    return found


# -- programs --------------------------------------------------------------------------------------
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
    here = flatten(found.index, found.root.type.shape)
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


# -- to look at ------------------------------------------------------------------------------------
def memory_plan(
    program: Program, kernels: Sequence[str], sizes: Mapping[str, int]
) -> MemoryTimeline:
    """The slots of a program's arena over its ``kernels``, which are named in order. The scratch
    space of templates, inputs, results and weights are no part of the arena's slots.

    Raises ArgumentError for sizes that are missing or of dims that the program does not have."""
    if set(sizes) != set(program.dims):
        wanted = ", ".join(f"{name}=8" for name in program.dims) or "no sizes"
        raise ArgumentError(
            f"{program.module.name}: the memory plan takes {wanted}, not sizes of "
            f"{', '.join(sizes) or 'nothing'}"
        )
    slots = tuple(int(shapes.substitute(slot.size, sizes)) for slot in program.slots)
    starts = [0, *itertools.accumulate(slots)]
    buffers = tuple(
        Buffer(
            node,
            int(shapes.substitute(node.type.nbytes, sizes)),
            first,
            min(last, len(kernels) - 1),
            program.slot_of[node],
            starts[program.slot_of[node]] + program.offset_of.get(node, 0),
        )
        for node, (first, last) in program.lifetimes.items()
    )
    return MemoryTimeline(
        program.module.name, dict(sizes), tuple(kernels), buffers, program.arena_bytes, slots
    )
