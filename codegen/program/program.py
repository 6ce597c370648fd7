"""A program: what has to run, in which order, and where every value lies in memory; and the standard
passes before that (:func:`optimize`).

In: a GraphModule whose ops all have a body. Out: :class:`Program`: groups in execution order, values
that share memory with others (contiguous views), the slots of an arena that intermediate values use in
turns, and the results. Nothing here depends on a target language.

In a packed arena values have offsets in one block of memory: values that are held at the same time lie
side by side. A small arena saves more than its bytes: parts that a run has not touched yet are fetched
from memory before they are written, because everything that the last run read has passed through the
caches since. :func:`memory_plan` shows which value lies where, and when.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from fxlite import passes
from fxlite.base.errors import ArgumentError, CodegenError
from fxlite.codegen.kernel.lower import lower
from fxlite.codegen.program.control import plan_control
from fxlite.codegen.program.data_sizes import DataSize, first_elements, largest_type
from fxlite.codegen.program.memory import ALIGNMENT, Extent, Slot, Span, in_fewest_slots, in_slots, pack, taken_over
from fxlite.codegen.program.needed import note_needed
from fxlite.graph.graph import Node, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import Names
from fxlite.ops.op import lookup
from fxlite.ops.own.foreign import ForeignOp
from fxlite.passes.base import Pass
from fxlite.passes.costing.timeline import Buffer, MemoryTimeline
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.group import Group, group, part_of_control
from fxlite.passes.ledger import refusals
from fxlite.passes.manager import PassManager
from fxlite.passes.rules.decompose import Keep
from fxlite.scalar.expr import Load
from fxlite.scalar.index import flatten
from fxlite.tracing.nonempty import missing_guards
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


def standard_passes(
    keep: Keep = frozenset(), matmul_precision: str = "highest", expand_weights: bool = True, tiles: bool = False
) -> list[Pass]:
    """The passes, in order. Composites in ``keep``, for which the target has templates, stay, and so do
    weights that are stored as integers unless the target wants to ``expand_weights``. ``tiles``: the
    target multiplies tiles of bf16."""
    bf16 = matmul_precision == "medium"
    decompose = passes.decompose.with_options(keep=keep)
    return [
        passes.remove_dropout,
        passes.simplify,
        passes.fuse_conv_bn,
        passes.merge_convolutions,
        decompose,
        passes.simplify,
        passes.vectorize_loops,
        passes.transposed_products,
        passes.simplify,
        *([passes.fuse_attention, decompose, passes.simplify] if keep else []),
        passes.promote_operands,
        *([passes.sub_pixel] if keep else []),
        *([passes.unfold_convolutions.with_options(keep=keep)] if keep and expand_weights else []),
        *([passes.channels_last.with_options(bf16=bf16)] if keep else []),
        *([passes.separate_axes, passes.complex_products] if keep else []),
        passes.const_fold.with_options(skip_folding_node_fn=None if expand_weights else _is_expansion),
        passes.merge_linears,
        passes.cse,
        passes.loop_invariants,
        passes.merge_steps,  # after cse: a step read twice is one product
        passes.dce,
        *([passes.store_bf16.with_options(tiles=tiles)] if bf16 else []),
    ]


def _is_expansion(node: Node) -> bool:
    """Whether a node expands a weight for a single reader, which can do that itself. For several readers,
    such as the steps of a recurrent layer, it would be computed in each call and held meanwhile."""
    is_call = node.op == "call_function" and node.target.name == "dequantize_weight"
    return is_call and len(node.users) == 1


def source_passes() -> list[Pass]:
    """The passes before source code for people, in order: ops stay whole, and weights stay what they are,
    except for what is folded into them."""
    return [
        passes.remove_dropout,
        passes.simplify,
        passes.fuse_conv_bn,
        passes.merge_convolutions,
        passes.fuse_attention,
        passes.simplify,
        passes.const_fold,
        passes.cse,
        passes.dce,
    ]


def optimize_source(module: GraphModule) -> GraphModule:
    """The module after :func:`source_passes`; the input is left as it was."""
    return _passed(module, source_passes())[0]


def optimize(
    module: GraphModule,
    needed_only: bool = False,
    keep: Keep = frozenset(),
    matmul_precision: str = "highest",
    expand_weights: bool = True,
    tiles: bool = False,
) -> tuple[GraphModule, PassManager]:
    """The optimized module (the input is left as it was) and the manager with its report. With
    ``needed_only``, only composites that have no code of their own are expanded. Composites in ``keep``
    (names, or a predicate on nodes) are not expanded; for ``expand_weights`` and ``tiles`` see
    :func:`standard_passes`."""
    chosen = standard_passes(keep, matmul_precision, expand_weights, tiles)
    if needed_only:
        chosen = [passes.decompose.with_options(keep=keep)]
    return _passed(module, chosen)


def _passed(module: GraphModule, chosen: list[Pass]) -> tuple[GraphModule, PassManager]:
    # these passes are tested; checking each use would double the time
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


# -- programs --------------------------------------------------------------------------------------
@dataclass
class Program:
    """See the module's docstring. ``results`` are the graph's outputs, flat and in order; ``stored``
    maps a node to the node whose memory holds its value. A packed program has one slot, in which each
    value starts at its ``offset_of``, in bytes; otherwise ``offset_of`` is empty, and values start at
    the beginning of their slots."""

    module: GraphModule
    groups: list[Group]
    stored: dict[Node, Node]
    slots: list[Slot]
    slot_of: dict[Node, int]
    results: list[Node]
    offset_of: dict[Node, int] = field(default_factory=dict)
    #: Inputs that the target lets the program write over, and what each of them holds in the end:
    #: states, and inputs whose memory a result may take. The new values are none of the results.
    owned: Mapping[Node, Node] = field(default_factory=dict)
    #: By the targets of these inputs, which of the graph's flat results that is.
    owned_numbers: Mapping[str, int] = field(default_factory=dict)
    #: Of a body: results have memory of the program as other values, values of rank 0 need none,
    #: and some have memory of their own.
    is_body: bool = False
    apart: frozenset[Node] = frozenset()
    #: The sizes of its values that are known when some of them are.
    data_sizes: Mapping[str, DataSize] = field(default_factory=dict)

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

    def type_of(self, node: Node) -> TensorType:
        """The type of a value's memory, which is as large as the value can become."""
        return largest_type(node.type, self.data_sizes)

    @cached_property
    def counts(self) -> dict[Node, Node]:
        """The results of which only the first elements are stored, with the results that say how many."""
        found = first_elements(self.module.graph) if self.data_sizes else {}
        return {node: cuts[0][1] for node, cuts in found.items() if self.type_of(node) != node.type}

    @property
    def counted_at(self) -> dict[str, int]:
        """For each size that depends on values, the number of the group that counts; one past all of them if none
        does."""
        made = {node: number for number, found in enumerate(self.groups) for node in found.stored}
        return {name: made.get(self.memory(s.count), len(self.groups)) for name, s in self.data_sizes.items()}

    @property
    def knows_data_sizes(self) -> bool:
        """Whether each size that depends on values is known before a group needs it."""
        known = self.counted_at
        needed = [(name, at) for at, found in enumerate(self.groups) for name in _sizes_of(found, self.data_sizes)]
        return len(self.groups) not in known.values() and all(known[name] < number for name, number in needed)

    @property
    def arena_bytes(self) -> Dim:
        """Bytes of all slots together."""
        return shapes.normalize(sum(s.size for s in self.slots))

    def memory(self, node: Node) -> Node:
        """The node whose memory holds a node's value."""
        return self.stored.get(node, node)

    @cached_property
    def states(self) -> dict[Node, str]:
        """The owned inputs that are states, with the paths of their buffers; the caller of the program
        keeps them from call to call."""
        paths = dict(self.module.states)
        return {node: paths[node.target] for node in self.owned if node.target in paths}

    @property
    def given(self) -> list[Node]:
        """The inputs that must be given to each call."""
        return [node for node in self.inputs if node not in self.states]

    @property
    def ends(self) -> list[Node]:
        """The values that must exist when the program ends: the results, and the final values of owned inputs."""
        return [*self.results, *self.owned.values()]

    @property
    def copied(self) -> list[tuple[Node, Node]]:
        """(input, value) for owned inputs whose new value is computed elsewhere and copied."""
        return [(node, new) for node, new in self.owned.items() if self.memory(new) is not node]

    @cached_property
    def lifetimes(self) -> dict[Node, tuple[int, int]]:
        """For each value that needs memory in the arena, the numbers of the group that computes it and of
        the last group that reads it."""
        held = _lifetimes(self.groups, self.stored, self.results, self.ends, self.is_body)
        if self.is_body:
            held = {n: span for n, span in held.items() if n.type.rank and n not in self.apart}
        return held


def no_routine(node: Node) -> bool:
    """The predicate of a target without routines."""
    return False


def plan(
    module: GraphModule,
    claims: Callable[[Node], bool],
    apart: Collection[Node] = (),
    join: Callable[[Sequence[Group]], list[Group]] = list,
    packed: bool = False,
    control: bool = False,
    names: Names | None = None,
    writable: Collection[Node] | None = None,
    owned: Mapping[Node, int] = MappingProxyType({}),
    inside: Callable[[Node], bool] = no_routine,
    data_sizes: Mapping[str, DataSize] = MappingProxyType({}),
) -> Program:
    """Group the graph and plan its memory. Nodes in ``apart`` do not join the kernels of their readers;
    ``join`` may combine groups if the target can. With ``packed``, the target has one block of memory, in
    which values may start anywhere; they do if their sizes are numbers. With ``control``, it has loops and
    conditions, and values may be written over others. ``writable`` are the inputs that a body may write
    over, and ``names`` are those of its function. ``owned`` maps inputs that the target may write over to
    the number of the result that they hold afterwards. ``inside`` is true for nodes for which the target
    calls routines within loops and conditions. Raises CodegenError for graphs that no back end can
    compile."""
    unexpanded = {r.node: r.reason for r in refusals(module) if r.pass_name == "decompose"}
    for node in module.graph.nodes:
        _check(node, claims, unexpanded, control)
    is_body = writable is not None
    flat = list(nodes_in(module.graph.output_node().args))
    held = _with_copies(module, {node: flat[number] for node, number in owned.items()})
    results = [node for number, node in enumerate(flat) if number not in owned.values()]
    early = {n for n in module.graph.nodes if is_body and _writes_part(n)}
    early |= {n for end in held.values() for n in _parts_written(end)}
    while True:
        groups = join(group(module, claims, {*apart, *early}))
        stored: dict[Node, Node] = {}
        kept: list[Group] = []
        for found in groups:
            source = None if found.root in results and not is_body else _same_memory(found, is_body)
            if source is not None:
                stored[found.root] = stored.get(source, source)
            else:
                kept.append(found)
        kept = _shared_first(kept, stored, data_sizes) if not is_body else kept
        if not control:
            break
        more = taken_over(kept, stored, results, [*(writable or ()), *held], is_body, held)
        if is_body:
            more |= _numbers_of_several(kept)
        more -= early
        if not more:
            break
        early |= more
    kept = _numbers_first(kept, stored) if is_body else kept
    program = Program(module, kept, stored, [], {}, results, owned=held, is_body=is_body, data_sizes=data_sizes)
    program.owned_numbers = {str(node.target): number for node, number in owned.items()}
    names = names or Names({node.name for node in module.graph.nodes})

    def plan_body(inner: GraphModule, own: list[Node], names: Names) -> Program:
        return plan(inner, inside, packed=packed, control=True, names=names, writable=own, inside=inside)

    for found in kept:
        if found.kind == "control":
            found.bodies = plan_control(found, names, plan_body, inside)
    if is_body:
        program = replace(program, apart=_apart(program))
    if control:
        over = {node for found in kept for node in found.taken}  # stored in full, after their operands
        views = {source for node, source in stored.items() if node not in over}
        note_needed(kept, {*results, *views, *held, *held.values(), *(writable or ())}, is_body)
    return _with_memory(program, packed)


def _numbers_of_several(groups: Sequence[Group]) -> set[Node]:
    """The numbers that several groups of a body would compute from elements of arrays: there they are variables.
    Indices are computed where they are read, which shows that they are in range."""
    count = Counter(member for found in groups for member in found.members)
    found = set[Node]()
    for node in sorted(node for node, times in count.items() if times > 1):
        is_number = isinstance(node.type, TensorType) and not node.type.rank
        if is_number and (node.target.kind == "gather" or not found.isdisjoint(node.all_input_nodes)):
            found.add(node)
    return found


def _numbers_first(groups: Sequence[Group], stored: Mapping[Node, Node]) -> list[Group]:
    """The groups of a body in an order in which numbers that are computed from numbers alone come as early as they
    can: they may say which part of an array is needed."""
    made: dict[Node, int] = {}
    order: list[tuple[int, int]] = []
    for place, found in enumerate(groups):
        is_number = found.kind == "loops" and not any(n.type.rank for n in (*found.stored, *found.inputs))
        read = (made.get(stored.get(node, node), -1) for node in found.inputs)
        order.append((max(read, default=-1) if is_number else place, place))
        made |= dict.fromkeys(found.stored, order[-1][0])
    return [groups[place] for _, place in sorted(order)]


def _with_copies(module: GraphModule, held: dict[Node, Node]) -> dict[Node, Node]:
    """The final values of owned inputs. If one is the former value of another input, it becomes a copy of
    it, because the two inputs may trade places."""
    found = dict(held)
    for node, end in held.items():
        source = end
        while source.op == "call_function" and source.target.kind == "view":
            source = source.all_input_nodes[0]
        if source in held and source is not node:
            graph = module.graph
            with graph.inserting_before(graph.output_node()):
                found[node] = graph.call_function(lookup("where"), (True, end, end))
    return found


def _parts_written(end: Node) -> Iterator[Node]:
    """The writes of parts by which a value is made, the last one first."""
    while _writes_part(end) and isinstance(end.args[0], Node):
        yield end
        end = end.args[0]


def _writes_part(node: Node) -> bool:
    """Whether a call writes a part of an array, which is done in place if possible."""
    return node.op == "call_function" and node.target.writes_part


def _apart(program: Program) -> frozenset[Node]:
    """The results of a body that a loop carries on in memory of their own, alternating with the previous
    ones: values that the body computes from scratch."""
    memories = [program.memory(node) for node in program.results]
    return frozenset(m for m in memories if m.op == "call_function" and m.type.rank and memories.count(m) == 1)


def _shared_first(groups: Sequence[Group], stored: Mapping[Node, Node], sizes: Mapping[str, DataSize]) -> list[Group]:
    """The groups in an order in which a value that several modules read is computed before the first of
    them, unless it depends on that module: for instance a mask that all layers share, which the first one
    requested. The layers are then alike."""
    made = {value: found.root for found in groups for value in found.stored}
    paths = {found.root: _module_path(found) for found in groups}
    readers: dict[Node, list[Node]] = {root: [] for root in paths}
    sources: dict[Node, list[Node]] = {}
    for found in groups:
        counts = (sizes[name].count for name in _sizes_of(found, sizes))
        read = (made.get(stored.get(node, node)) for node in (*found.inputs, *counts))
        sources[found.root] = [source for source in read if source is not None]
        for source in sources[found.root]:
            readers[source].append(found.root)
    order = list(paths)
    for root, own in paths.items():
        steps = zip(own, *(paths[reader] for reader in readers[root]))
        shared = sum(1 for _ in itertools.takewhile(lambda names: len({*names}) == 1, steps))
        around = own[: shared + 1]  # the module in which it was computed, next to the others that read it
        is_own = not readers[root] or shared == len(own)
        if is_own or any(paths[source][: shared + 1] == around for source in sources[root]):
            continue
        first = next(n for n, other in enumerate(order) if paths[other][: shared + 1] == around)
        at = order.index(root)
        if not any(source in order[first:at] for source in sources[root]):
            order.insert(first, order.pop(at))
    by_root = {found.root: found for found in groups}
    return [by_root[root] for root in order]


def _sizes_of(found: Group, sizes: Mapping[str, DataSize]) -> dict[str, None]:
    """Those of the sizes that a group's values have."""
    types = [n.type for n in (*found.inputs, *found.members) if sizes and isinstance(n.type, TensorType)]
    return dict.fromkeys(name for type in types for name in shapes.names(type.shape) if name in sizes)


def _module_path(found: Group) -> list[str]:
    """The names on the path to the module in which a group's value is computed."""
    scope = (found.anchor or found.root).scope
    return scope.path.split(".") if scope is not None and scope.path else []


def with_one_place(program: Program, sets: Iterable[Sequence[Node]]) -> Program:
    """The program with another plan of its memory, in which the values of each of these sets share one
    place; they are of equal size, and no two of them are held at the same time."""
    first = {node: same[0] for same in sets for node in same}
    return _with_memory(program, bool(program.offset_of), first)


def _with_memory(program: Program, packed: bool, first: Mapping[Node, Node] | None = None) -> Program:
    """The program with its memory planned; ``first`` maps a value to the value whose place it takes."""
    held, first = program.lifetimes, first or {}
    bytes_of = {node: rounded(program.type_of(node).nbytes) for node in held}
    offset_of = _pack(held, bytes_of, first) if packed else {}
    if offset_of:
        end = max(offset + bytes_of[node] for node, offset in offset_of.items())
        slots, slot_of = [Slot([end])], dict.fromkeys(offset_of, 0)
    else:
        slots, slot_of = _in_slots(held, bytes_of, first)
    return replace(program, slots=slots, slot_of=slot_of, offset_of=offset_of)


def _check(node: Node, claims: Callable[[Node], bool], unexpanded: Mapping[str, str], control: bool) -> None:
    if node.op == "call_module":
        owner = node.graph.owning_module
        assert owner is not None
        leaf = owner.get_submodule(node.target)
        raise CodegenError(
            f"{node.describe()}: a leaf module cannot be compiled, its code "
            f'({type(leaf).__name__}) is Python; {leaf.leaf_advice}, or use backend="python"'
        )
    if node.op == "call_function":
        if node.target.is_random:
            raise CodegenError(f"{node.describe()}: random ops are not compiled; call model.eval() before tracing")
        is_foreign = isinstance(node.target, ForeignOp)
        if is_foreign and not (node.target.has_body or node.target.has_expansion):
            raise CodegenError(
                f"{node.describe()}: {node.target.title} is a Python function, which compiled code "
                f'cannot call; {node.target.way_out}, or use backend="python"'
            )
        is_control = node.target.kind == "control"
        if is_control and not control:
            raise CodegenError(
                f'{node.describe()}: this back end has no loops and conditions; use backend="c" or backend="python"'
            )
        if not node.target.has_body and not claims(node) and not (is_control or part_of_control(node) is not None):
            why = "the op has no body; run passes.decompose first"
            if node.name in unexpanded and node.type is not None:
                why = (
                    f"this back end has no template for {node.target.name}, and expanding it fails:"
                    f" {unexpanded[node.name]}; give that size with gm.specialize(NAME=NUMBER)"
                )
            raise CodegenError(f"{node.describe()}: {why}")
    if node.op != "output" and node.type is None:
        raise CodegenError(f"{node.describe()} has no type; trace with input types")


def _same_memory(found: Group, is_body: bool) -> Node | None:
    """The value whose memory a group would merely copy: all members are views that keep the order of
    elements (a reshape). In a body, numbers are variables, which arrays of one element are not."""
    if any(m.target.kind != "view" for m in found.members) or len(found.inputs) != 1:
        return None
    (source,) = found.inputs
    if is_body and (not source.type.rank) != (not found.root.type.rank):
        return None
    lowered = lower(found)
    value = lowered.value
    if not isinstance(value, Load) or value.guard is not None or source.type.dtype != found.root.type.dtype:
        return None
    here = flatten(found.index, found.root.type.shape)
    there = flatten(value.index, source.type.shape)
    same_size = shapes.equal(source.type.size, found.root.type.size)
    return source if here == there and same_size else None


def _lifetimes(
    groups: list[Group], stored: dict[Node, Node], results: list[Node], ends: list[Node], is_body: bool = False
) -> dict[Node, tuple[int, int]]:
    outside = set() if is_body else set(results)
    held: dict[Node, tuple[int, int]] = {}
    for step, found in enumerate(groups):
        for node in (stored.get(n, n) for n in found.inputs):
            if node in held:
                held[node] = held[node][0], step
        for value in found.stored:
            memory = stored.get(value, value)
            if memory in held:
                held[memory] = held[memory][0], step
            elif memory not in outside and memory.op == "call_function":
                held[memory] = step, step
    for node in (stored.get(n, n) for n in ends):
        if node in held:  # copied to its place after all groups
            held[node] = held[node][0], len(groups)
    return held


def _pack(
    held: Mapping[Node, tuple[int, int]], bytes_of: Mapping[Node, Dim], first: Mapping[Node, Node]
) -> dict[Node, int]:
    """Offsets in one block; none if a size is named, or if too many values are held at the same time."""
    sizes = [bytes_of[node] for node in held]
    numbers = [size for size in sizes if type(size) is int]
    if len(numbers) < len(sizes):
        return {}
    extents = [Extent(size, *held[node]) for size, node in zip(numbers, held)]
    return dict(zip(held, pack(extents, _same(held, first)) or ()))


def _same(held: Iterable[Node], first: Mapping[Node, Node]) -> list[int]:
    """For each value the number of the value whose place it takes."""
    number = {node: n for n, node in enumerate(held)}
    return [number[first.get(node, node)] for node in number]


def _in_slots(
    held: Mapping[Node, Span], bytes_of: Mapping[Node, Dim], first: Mapping[Node, Node]
) -> tuple[list[Slot], dict[Node, int]]:
    """The slots, and the slot of each value: the smaller of two plans if values share places."""
    sizes, same = [bytes_of[node] for node in held], _same(held, first)
    found = in_slots(sizes, list(held.values()), same)
    other = in_fewest_slots(sizes, list(held.values()), same) if first else None
    if other is not None and _bytes_at_samples(other[0]) < _bytes_at_samples(found[0]):
        found = other
    return found[0], dict(zip(held, found[1]))


def _bytes_at_samples(slots: Sequence[Slot]) -> list[int]:
    """Bytes of slots for several values of all named sizes, largest first."""
    total = sum(slot.size for slot in slots)
    names = shapes.names(total)
    return [shapes.substitute(total, dict.fromkeys(names, size)) for size in SAMPLES]


SAMPLES = (300, 16, 1)
"""Values of named sizes at which memory plans are compared."""


def rounded(size: Dim) -> Dim:
    """Size in bytes rounded up to the alignment; named sizes are rounded when they are known."""
    if type(size) is int:
        return -(-size // ALIGNMENT) * ALIGNMENT
    return shapes.normalize(shapes.floordiv(size + (ALIGNMENT - 1), ALIGNMENT) * ALIGNMENT)


# -- to look at ------------------------------------------------------------------------------------
def memory_plan(program: Program, kernels: Sequence[str], sizes: Mapping[str, int]) -> MemoryTimeline:
    """The slots of a program's arena over its ``kernels``, which are named in order. The scratch space of
    templates, inputs, results and weights are not part of the arena's slots.

    Raises ArgumentError for missing sizes, and for sizes of dims that the program does not have."""
    if set(sizes) != set(program.dims):
        wanted = ", ".join(f"{name}=8" for name in program.dims) or "no sizes"
        raise ArgumentError(
            f"{program.module.name}: the memory plan takes {wanted}, not sizes of {', '.join(sizes) or 'nothing'}"
        )
    slots = tuple(int(shapes.substitute(slot.size, sizes)) for slot in program.slots)
    starts = [0, *itertools.accumulate(slots)]
    buffers = tuple(
        Buffer(
            node,
            int(shapes.substitute(program.type_of(node).nbytes, sizes)),
            first,
            min(last, len(kernels) - 1),
            program.slot_of[node],
            starts[program.slot_of[node]] + program.offset_of.get(node, 0),
        )
        for node, (first, last) in program.lifetimes.items()
    )
    return MemoryTimeline(program.module.name, dict(sizes), tuple(kernels), buffers, program.arena_bytes, slots)
