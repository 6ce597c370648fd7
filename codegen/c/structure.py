"""How an emitted model is structured: which calls become loops, where their values lie, and what each
argument points to.

In: a planned program. Out: :class:`Structure`: steps, the structs of weights and values, and the
arguments of the calls in the steps. A loop is given up if its buffers would take noticeably more
memory, or if the differences between its iterations would fill more lines than it saves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fxlite.codegen.c.calls import Call, Planned, common_path
from fxlite.codegen.c.rolling import Loop, Step, leaves, numbers, rolled, with_steady_memory
from fxlite.codegen.c.run import Argument, Body, Grid, Pointer, is_passed, is_table
from fxlite.codegen.c.structs import Reached, State, Weights
from fxlite.codegen.c.weights import Array, Blob, make_blob
from fxlite.codegen.c.workspace import Workspace, plan_workspace
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import apart, file_name, own_name
from fxlite.codegen.program.program import SAMPLES, Program
from fxlite.codegen.runtime.sizes import ValueSize
from fxlite.graph.graph import Node
from fxlite.types import shapes
from fxlite.types.shapes import Dim

_MORE_MEMORY = 1.1
"""The factor by which loops may enlarge the arena, at most."""
_ENTRIES = 6
"""The most table elements for each call that a loop saves."""


@dataclass(frozen=True)
class Structure:
    """``program`` has the memory plan for the loops in ``steps``. ``arguments`` are those of the calls in
    the steps. ``results`` are those of the program, followed by the values copied to owned inputs and the
    counts of sizes that depend on values. ``bodies`` are the loops whose bodies are functions."""

    program: Program
    steps: tuple[Step, ...]
    blob: Blob
    weights: Weights
    workspace: Workspace
    arguments: Mapping[int, list[Argument]]
    results: list[Argument]
    state: State
    bodies: Mapping[Loop, Body]


def structure_of(
    name: str, planned: Planned, values: tuple[ValueSize, ...], data: Array | None, loops: bool
) -> Structure:
    """The structure of the model that is emitted under a name; ``data`` is the blob of its weights if it
    exists already. With ``loops=False`` each call is printed separately."""
    finder = _Finder(name, planned, values, data)
    each = tuple(range(len(planned.calls)))
    steps = finder.steps() if loops else each
    # sizes that depend on values become known behind a call, which may not be one of a loop
    counting = set(planned.program.counted_at.values())
    return finder.structure(steps if counting.issubset(s for s in steps if isinstance(s, int)) else each)


class _Finder:
    def __init__(self, name: str, planned: Planned, values: tuple[ValueSize, ...], data: Array | None) -> None:
        self.name, self.planned, self.values = name, planned, values
        self.program, self.calls = planned.program, planned.calls
        graph = self.program.module.graph
        self.nodes = {buffer_name(node): node for node in graph.nodes}
        self.classes = {n.scope.path: n.scope.class_name for n in graph.nodes if n.scope is not None}
        self.paths = [_path(call) for call in self.calls]
        operands = [[self.operand(call, a) for a in call.arguments] for call in self.calls]
        self.operands, self.turns = operands, list[Loop]()
        read = [o.name for each in operands for o in each if isinstance(o, _Weight)]
        self.state = State(name, self.program)
        for node in self.program.ends:
            memory = self.program.memory(node)
            if memory.op == "get_attr":
                read.append(buffer_name(memory))
        read += self.state.initial
        self.blob = make_blob(read, planned.packed, planned.arrays, data, self.state.initial)

    def operand(self, call: Call, argument: str) -> _Operand:
        """The operand that an argument of a call is."""
        node, start = call.shifted.get(argument, (self.nodes.get(argument), 0))
        if argument in self.planned.packed:
            return _Weight(argument)
        if node is None:
            return argument
        memory = self.program.memory(node)
        if memory.op == "get_attr":
            return _Weight(buffer_name(memory))
        return _Value(memory, start, node in call.group.stored)

    # -- loops ---------------------------------------------------------------------------------
    def steps(self) -> tuple[Step, ...]:
        """The steps with all loops that memory permits."""
        keys: list[Hashable] = []
        for call, operands in zip(self.calls, self.operands):
            kinds = tuple(o if isinstance(o, str) else type(o) for o in operands)
            keys.append((call.function, call.scratch, kinds))
        return self.small(rolled(keys, self.paths))

    def small(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps without outermost loops that would take too much memory; those in which two places
        alternate are added to :attr:`turns`."""
        left = [step for step in steps if isinstance(step, Loop)]
        if self.is_small(steps):
            return steps
        given_up: list[Loop] = []
        while left:
            loop = left.pop(0)
            alone = self.without(steps, [*given_up, *left])
            if self.is_small(alone):
                continue
            self.turns.append(loop)
            if not self.is_small(alone):
                self.turns.remove(loop)
                given_up.append(loop)
        return self.without(steps, given_up)

    def is_small(self, steps: Sequence[Step]) -> bool:
        """Whether the arena is about as small as without loops."""
        planned, _ = with_steady_memory(self.program, steps, self.read, self.turns)
        for size in SAMPLES:
            sizes = dict.fromkeys(self.program.dims, size)
            before, after = (shapes.substitute(p.arena_bytes, sizes) for p in (self.program, planned))
            if after > _MORE_MEMORY * before:
                return False
        return True

    @cached_property
    def read(self) -> list[list[Node]]:
        """The values passed to each call, in the order of its arguments."""
        return [[o.node for o in each if isinstance(o, _Value)] for each in self.operands]

    def without(self, steps: Sequence[Step], given_up: Collection[Loop]) -> tuple[Step, ...]:
        """The steps, with some loops replaced by their calls."""
        found: list[Step] = []
        for step in steps:
            if isinstance(step, Loop) and step in given_up:
                first = next(leaves(step.body))[0]
                found += range(first, first + step.count * step.size)
            else:
                found.append(step)
        return tuple(found)

    # -- the whole -----------------------------------------------------------------------------
    def structure(self, steps: tuple[Step, ...]) -> Structure:
        """Everything that follows from the steps."""
        program, sets = with_steady_memory(self.program, steps, self.read, self.turns)
        inside = [(number, loops) for number, loops in leaves(steps) if loops]
        together = [numbers(number, loops).ravel().tolist() for number, loops in inside]
        workspace = plan_workspace(self.name, program, self.calls, self.values, sets, together)
        pointers = _Pointers(program, workspace, self.state)
        grids = {number: self.grids(number, loops, pointers) for number, loops in leaves(steps)}
        entries: dict[Loop, int] = {}
        for number, loops in inside:
            for argument in filter(lambda a: is_table(a, loops), grids[number]):
                assert argument.grid is not None
                entries[loops[0]] = entries.get(loops[0], 0) + argument.grid.size
        many = [loop for loop, n in entries.items() if n > _ENTRIES * (loop.count - 1) * loop.size]
        if many:
            return self.structure(self.without(steps, many))
        weights, results = self.with_weights(steps, grids, pointers)
        bodies = self.bodies(steps, grids, weights)
        return Structure(program, steps, self.blob, weights, workspace, grids, results, self.state, bodies)

    def grids(self, number: int, loops: Sequence[Loop], pointers: _Pointers) -> list[Argument]:
        """The arguments of a call in the steps, without weights."""
        where = numbers(number, loops)
        found = []
        for position, operand in enumerate(self.operands[number]):
            if operand == "scratch":
                found.append(Argument(grid=pointers.scratch(number)))
            elif isinstance(operand, str):
                found.append(Argument(operand))
            elif isinstance(operand, _Weight):
                found.append(Argument(operand.name, self.blob.places[operand.name][1]))
            else:
                grid = np.empty(where.shape, object)
                for index, other in np.ndenumerate(where):
                    value = self.operands[other][position]
                    assert isinstance(value, _Value)
                    grid[index] = pointers.of(value.node, value.start)
                found.append(Argument(grid=grid, is_output=operand.is_output))
        return found

    def with_weights(
        self, steps: Sequence[Step], arguments: dict[int, list[Argument]], pointers: _Pointers
    ) -> tuple[Weights, list[Argument]]:
        """Create the struct of weights and put weights and results into the arguments."""
        weights = Weights(f"{self.name}_weights", self.blob.places, self.tag)
        entered: list[tuple[list[Argument], int, Callable[[], Reached]]] = []
        for number, loops in leaves(steps):
            where = numbers(number, loops)
            for position, operand in enumerate(self.operands[number]):
                if isinstance(operand, _Weight):
                    names = np.empty(where.shape, object)
                    for index, other in np.ndenumerate(where):
                        weight = self.operands[other][position]
                        assert isinstance(weight, _Weight)
                        names[index] = weight.name
                    entered.append((arguments[number], position, weights.add(names, loops)))
        results: list[Argument] = []
        ends = [*self.program.results, *(new for _, new in self.program.copied)]
        ends += [size.count for size in self.program.data_sizes.values()]
        for node in map(self.program.memory, ends):
            if node.op == "get_attr":
                name = buffer_name(node)
                names = np.array(name, object)
                entered.append((results, len(results), weights.add(names, ())))
                results.append(Argument(name, self.blob.places[name][1]))
            else:
                results.append(Argument(grid=np.array(pointers.of(node), object)))
        weights.settle()
        for place, position, reached in entered:
            place[position] = replace(place[position], weight=reached())
        return weights, results

    # -- modules -------------------------------------------------------------------------------
    def modules(self, loop: Loop) -> list[str]:
        """The module of each iteration of a loop; empty if they are not modules of one class."""
        first = next(leaves(loop.body))[0]
        starts = range(first, first + loop.count * loop.size, loop.size)
        paths = [common_path(self.paths[at : at + loop.size]) for at in starts]
        classes = {self.classes.get(path) for path in paths}
        return paths if len(classes) == 1 and all(paths) else []

    def tag(self, of: Loop | str) -> str:
        """The name for elements: for modules, given the path of the first, or for the weights of a loop."""
        path = of if isinstance(of, str) else next(iter(self.modules(of)), "layer")
        return f"{self.name}_{file_name(self.classes.get(path) or re.split(r'[.][0-9]', path)[0])}"

    def bodies(
        self, steps: Sequence[Step], arguments: Mapping[int, list[Argument]], weights: Weights
    ) -> dict[Loop, Body]:
        """The loops whose bodies are functions: those with several calls in one module."""
        found: dict[Loop, Body] = {}
        for loop in steps:
            if not isinstance(loop, Loop) or loop.size < 2 or not (paths := self.modules(loop)):
                continue
            inside = list(leaves(loop.body, (loop,)))
            if not all(is_passed(a, loop, ls) for n, ls in inside for a in arguments[n]):
                continue
            given = [a.weight for n, _ in inside for a in arguments[n] if a.weight is not None]
            own = {w.indices[0] for w in given if w.varies}
            if len({(index.array, index.steps) for index in own}) > 1:
                continue
            element = min(own, key=lambda index: index.first, default=None)
            if element is not None and [other for other, _ in element.steps] != [loop]:
                continue
            tag = "" if element is None else weights.tag_of_array(element.array)
            elements = tuple(sorted(index.first for index in own))
            same = len(set(paths)) == 1
            name = self.classes.get(paths[0])
            about = paths[0] if same else f"{paths[0]} to {paths[-1]}"
            about += f" ({name})" if name else ""
            taken = {body.name for body in found.values()}
            unique = apart(own_name(f"{self.tag(loop)}_run"), taken)
            found[loop] = Body(unique, about, tag, element, elements)
        return found


@dataclass(frozen=True)
class _Weight:
    name: str


@dataclass(frozen=True)
class _Value:
    node: Node
    start: Dim
    is_output: bool


_Operand = str | _Weight | _Value


@dataclass(frozen=True)
class _Pointers:
    """The places of the values of a program with its final memory plan."""

    program: Program
    workspace: Workspace
    state: State

    def of(self, node: Node, start: Dim = 0) -> Pointer:
        """A pointer to an element of a value."""
        name, ctype = buffer_name(node), node.type.dtype.c_stored
        member = self.workspace.values.get(node)
        kept = self.state.members.get(node)
        if kept is not None:
            return Pointer(kept.pointer, False, start, ctype, name)
        return Pointer(member or name, member is not None, start, ctype, name)

    def scratch(self, number: int) -> Grid:
        """A pointer to the scratch of a call."""
        member, start = self.workspace.scratch[number]
        return np.array(Pointer(member, True, start), object)


def _path(call: Call) -> str:
    node = call.group.anchor or call.group.root
    return node.scope.path if node.scope is not None else ""
