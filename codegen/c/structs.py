"""The structs of an emitted model: pointers to its weights, by module; pointers to the values of a call;
and the memory kept from call to call, ``struct NAME_state``, which the caller owns.

In: names of weights, one for each iteration if they are read in loops, and their positions in the blob.
Out: C text of the struct and of the function that fills it, and how to access each weight.
In: a planned program whose states are owned. Out: the struct of the states, and the function that gives
them the values that the model's buffers had when it was compiled. The run function updates states in
place.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fxlite.base import outside_text
from fxlite.codegen.c.rolling import Loop
from fxlite.codegen.c.tiles.library import macros
from fxlite.codegen.c.weights import Array
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import Scope, apart, derived, own_name, parts
from fxlite.codegen.kernel.text import comment, wrap
from fxlite.codegen.program.program import Program
from fxlite.codegen.program.states import Place, state_places
from fxlite.graph.graph import Node

WEIGHTS, VALUES, STATE = own_name("w"), own_name("s"), own_name("state")
"""The structs of weights, of the values of a call, and of the memory kept from call to call: as variables, and as
pointers to them."""

Names = np.ndarray[Any, Any]
"""Names of arrays: an axis for each loop around a call."""


@dataclass
class Struct:
    """A struct under construction, with a marked ``tag``. Its ``members`` are found by keys; their names
    are final once :attr:`names` has been read."""

    tag: str
    members: dict[Hashable, Member] = field(default_factory=dict)
    spelled: dict[str, str] | None = None

    def add(self, key: Hashable, wish: str, kind: str | Struct, count: int = 0) -> Member:
        """The member for a key, which is added if there is none, with a name as close as possible to the
        wish. ``kind`` is the type it points to, or the struct of which there are ``count``."""
        if key not in self.members:
            assert self.spelled is None
            name = apart(own_name(wish), {member.name for member in self.members.values()})
            self.members[key] = Member(name, kind, count)
        return self.members[key]

    def name(self, member: Member) -> str:
        """The spelling of a member's name."""
        if self.spelled is None:
            self.spelled = Scope(" ".join(m.name for m in self.members.values()), macros()).names
        return self.spelled[member.name]

    def text(self, defined: set[str] | None = None) -> list[str]:
        """The definition, without the text after its last brace; structs that are ``defined`` already are
        only named."""
        lines: list[str] = []
        defined = set() if defined is None else defined
        for member in self.members.values():
            if not isinstance(member.kind, Struct):
                lines.append(f"{member.kind} *{self.name(member)};")
                continue
            inner = [f"struct {member.kind.tag}"]
            if member.kind.tag not in defined:
                inner = member.kind.text(defined)
                defined.add(member.kind.tag)
            lines += [*inner[:-1], f"{inner[-1]} {self.name(member)}[{member.count}];"]
        return [f"struct {self.tag} {{", *(f"    {line}" for line in lines), "}"]


@dataclass
class Member:
    """A pointer, or an array of structs, with its marked name. ``places`` are the bytes of the blob at
    which it begins, for all elements of the surrounding structs; ``container`` is the path of the modules."""

    name: str
    kind: str | Struct
    count: int = 0
    places: Names | None = None
    container: tuple[str, ...] = ()


@dataclass(frozen=True)
class Index:
    """The index of an array element: ``first``, plus a step for each iteration of each loop."""

    array: str
    first: int
    steps: tuple[tuple[Loop, int], ...] = ()

    def text(self, variable: Callable[[Loop], str]) -> str:
        """The index as C."""
        terms = [(f"{step}*" if step != 1 else "") + variable(loop) for loop, step in self.steps]
        if self.first or not terms:
            terms.append(str(self.first))
        return f"{self.array}[{' + '.join(terms)}]"


@dataclass(frozen=True)
class Reached:
    """The access to a weight from the struct of all weights: elements of arrays, then a name."""

    indices: tuple[Index, ...]
    name: str

    @property
    def varies(self) -> bool:
        """Whether the weight differs between iterations of some loop."""
        return any(index.steps for index in self.indices)


@dataclass(frozen=True)
class _Path:
    """The position of a weight in the tree of modules: elements of arrays (path of the list, number, size),
    and the rest of the path."""

    elements: tuple[tuple[tuple[str, ...], int, int], ...]
    rest: tuple[str, ...]

    @property
    def arrays(self) -> tuple[tuple[str, ...], ...]:
        return tuple(array for array, _, _ in self.elements)


class Weights:
    """The struct of a model's weights, with an array of structs for each list of modules that have the
    same weights. ``places`` are those of the blob. ``tag_of`` names an element of such a list, by its path,
    or the weights of a loop that no list fits. Once all weights have been added, :meth:`settle` must be
    called."""

    def __init__(self, tag: str, places: Mapping[str, tuple[int, str]], tag_of: Callable[[Loop | str], str]) -> None:
        self.root, self.places, self.tag_of = Struct(tag), places, tag_of
        kinds: dict[tuple[str, ...], tuple[str, str]] = {}
        for name, (_, ctype) in places.items():
            kinds.setdefault(tuple(parts(name)), (ctype, name))
        found = _in_lists({path: ctype for path, (ctype, _) in kinds.items()})
        self.path_of = {kinds[path][1]: place for path, place in found.items()}
        self.fields: dict[tuple[Any, ...], tuple[str, Names]] = {}  # types and places of members
        for name, path in self.path_of.items():
            place, kind = places[name]
            grid = np.zeros([count for _, _, count in path.elements], object)
            _, grid = self.fields.setdefault((path.arrays, path.rest), (kind, grid))
            grid[tuple(number for _, number, _ in path.elements)] = place

    def add(self, names: Names, loops: Sequence[Loop]) -> Callable[[], Reached]:
        """Add a weight, or those of all iterations of loops; returns a function that gives the access to it
        once all weights have been added."""
        names, chain = reduced(names, loops)
        paths = [self.path_of.get(name) for name in names.flat]
        first = paths[0]
        if first is not None and len({p and (p.arrays, p.rest) for p in paths}) == 1:
            numbers = np.array([[n for _, n, _ in p.elements] for p in paths if p], np.int64)
            numbers = numbers.reshape(*names.shape, len(first.elements))
            affine = [_steps(numbers[..., i]) for i in range(len(first.elements))]
            if None not in affine:
                return self._by_path(first, [a for a in affine if a], chain)
        return self._by_loops(names, chain)

    def _by_path(
        self, path: _Path, indices: Sequence[tuple[int, list[int]]], loops: Sequence[Loop]
    ) -> Callable[[], Reached]:
        struct, found, module = self.root, list[tuple[Struct, Member]](), ""
        for array, _, count in path.elements:
            module = ".".join(filter(None, [module, *array, "0"]))
            if array not in struct.members:
                element = Struct(own_name(self.tag_of(module)))
                struct.add(array, "_".join(array) or "layers", element, count)
            found.append((struct, struct.members[array]))
            inner = struct.members[array].kind
            assert isinstance(inner, Struct)
            struct = inner
        key = path.arrays, path.rest
        kind, places = self.fields[key]
        member = struct.add(key, "_".join(path.rest), f"const {kind}")
        member.places = places
        steps = [(first, tuple((loop, s) for loop, s in zip(loops, step) if s)) for first, step in indices]
        return lambda: Reached(tuple(Index(s.name(m), *at) for (s, m), at in zip(found, steps)), struct.name(member))

    def _by_loops(self, names: Names, loops: Sequence[Loop]) -> Callable[[], Reached]:
        struct, found = self.root, list[tuple[Struct, Member]]()
        containers, rest = _paths(names)
        for loop, container in zip(loops, containers):
            element = struct.members.get(loop)
            if element is None:
                made = Struct(own_name(self.tag_of(loop)))
                element = struct.add(loop, "_".join(container) or "layers", made, loop.count)
                element.container = container
            elif element.container != container:
                rest = (*container, *rest)
            found.append((struct, element))
            assert isinstance(element.kind, Struct)
            struct = element.kind
        places = np.array([self.places[name][0] for name in names.flat], object)
        ctype = self.places[names.flat[0]][1]
        member = struct.add(tuple(names.flat), "_".join(rest), f"const {ctype}")
        member.places = places.reshape(names.shape)
        return lambda: Reached(
            tuple(Index(s.name(m), 0, ((loop, 1),)) for (s, m), loop in zip(found, loops)), struct.name(member)
        )

    def settle(self) -> None:
        """Give equal elements one type, and different elements different types."""
        self._settle(self.root, {})

    def _settle(self, struct: Struct, known: dict[str, dict[tuple[str, ...], str]]) -> None:
        for member in struct.members.values():
            if isinstance(element := member.kind, Struct):
                self._settle(element, known)
                same = known.setdefault(element.tag, {})
                new = apart(element.tag, same.values())
                element.tag = same.setdefault(tuple(element.text()[1:]), new)

    @property
    def tags(self) -> list[str]:
        """The types of elements."""
        return re.findall(r"\bstruct (\w+)", "\n".join(self.root.text()))

    def tag_of_array(self, array: str) -> str:
        """The type of the elements of an outermost array."""
        kinds = {self.root.name(member): member.kind for member in self.root.members.values()}
        element = kinds[array]
        assert isinstance(element, Struct)
        return element.tag

    def filled(self, name: str) -> list[str]:
        """The function that fills the struct from the address of the blob."""
        head = f"static struct {self.root.tag} {name}(const void *memory) {{"
        return [
            comment("Where the weights lie in memory."),
            head,
            "    const char *const at = memory;",
            f"    struct {self.root.tag} {WEIGHTS};",
            *self._fill(self.root, f"{WEIGHTS}.", ()),
            f"    return {WEIGHTS};",
            "}",
        ]

    def _fill(self, struct: Struct, place: str, indices: tuple[str, ...]) -> list[str]:
        """Lines that set the members of a struct inside loops over these indices."""
        indent = "    " * (len(indices) + 1)
        lines: list[str] = []
        for member in struct.members.values():
            at = f"{place}{struct.name(member)}"
            if isinstance(member.kind, Struct):
                index = "ijklmn"[len(indices)] if len(indices) < 6 else f"i{len(indices)}"
                inner = self._fill(member.kind, f"{at}[{index}].", (*indices, index))
                if inner:
                    head = f"for (int64_t {index} = 0; {index} < {member.count}; ++{index}) {{"
                    lines += [f"{indent}{head}", *inner, f"{indent}}}"]
                if not indices:
                    lines += self._irregular(member, at)
            elif (offset := _affine(member.places, indices)) is not None:
                lines += wrap(f"{indent}{at} = ({member.kind} *)(at + {offset});")
        return lines

    def _irregular(self, array: Member, place: str, index: tuple[int, ...] = ()) -> list[str]:
        """Lines for members of elements that are not at equal distances."""
        lines: list[str] = []
        assert isinstance(array.kind, Struct)
        for number, member in itertools.product(range(array.count), array.kind.members.values()):
            at, here = f"{place}[{number}].{array.kind.name(member)}", (*index, number)
            if isinstance(member.kind, Struct):
                lines += self._irregular(member, at, here)
            elif _affine(member.places, ("i",) * len(here)) is None:
                assert member.places is not None
                offset = member.places[here]
                lines += wrap(f"    {at} = ({member.kind} *)(at + {offset});")
        return lines


def reduced(grid: Names, loops: Sequence[Loop]) -> tuple[Names, tuple[Loop, ...]]:
    """The values for each iteration of some loops, without the axes along which they do not vary."""
    axes = [a for a in range(grid.ndim) if (grid != grid.take([0], axis=a)).any()]
    found = grid[tuple(slice(None) if a in axes else 0 for a in range(grid.ndim))]
    return (found if axes else np.array(found, object)), tuple(loops[a] for a in axes)


def _steps(grid: Names) -> tuple[int, list[int]] | None:
    """The first number of a grid and the steps along its axes; None if the steps are not constant."""
    first = grid[(0,) * grid.ndim]
    steps = [grid.take([1], axis=a).flat[0] - first for a in range(grid.ndim)]
    terms = (g * s for g, s in zip(np.indices(grid.shape), steps))
    expected = first + sum(terms, np.zeros(grid.shape, np.int64))
    return None if (expected != grid).any() else (int(first), [int(s) for s in steps])


def _affine(places: Names | None, indices: tuple[str, ...]) -> str | None:
    """The place as C in terms of indices; None if the steps are not constant."""
    assert places is not None
    if (found := _steps(places)) is None:
        return None
    first, steps = found
    return " + ".join([str(first), *(f"{i}*{s}" for i, s in zip(indices, steps) if s)])


def _in_lists(kinds: Mapping[tuple[str, ...], str]) -> dict[tuple[str, ...], _Path]:
    """The positions of weights, by path and type, if each list of modules with the same weights becomes an
    array."""
    found: dict[tuple[str, ...], _Path] = {}
    lists: dict[tuple[str, ...], dict[str, dict[tuple[str, ...], str]]] = {}
    for path, kind in kinds.items():
        cut = next((i for i, part in enumerate(path[:-1]) if part.isdecimal()), None)
        if cut is None:
            found[path] = _Path((), path)
        else:
            lists.setdefault(path[:cut], {}).setdefault(path[cut], {})[path[cut + 1 :]] = kind
    for array, elements in lists.items():
        count, same = len(elements), next(iter(elements.values()))
        alike = count > 1 and all(inner == same for inner in elements.values())
        is_array = alike and set(elements) == set(map(str, range(count)))
        for number, inner in elements.items():
            before = (*array, number)
            for path, within in _in_lists(inner).items():
                if is_array:
                    place = _Path(((array, int(number), count), *within.elements), within.rest)
                elif within.elements:
                    (outer, at, size), *others = within.elements
                    first = ((*before, *outer), at, size)
                    place = _Path((first, *others), within.rest)
                else:
                    place = _Path((), (*before, *within.rest))
                found[*before, *path] = place
    return found


def _paths(names: Names) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """For weights that differ along some axes: for each axis the path of the list in which it selects a
    module, relative to the previous axis, and the rest of the path."""
    first = (0,) * names.ndim
    here = parts(names[first])
    cursor, containers = 0, list[tuple[str, ...]]()
    dropped = dict[int, str]()
    for axis in range(names.ndim):
        along = [parts(names[(*first[:axis], i, *first[axis + 1 :])]) for i in range(names.shape[axis])]
        varying: list[int] = []
        if all(len(other) == len(here) for other in along):
            varying = [i for i in range(cursor, len(here)) if len({o[i] for o in along}) > 1]
        if not varying:
            containers.append(())
            continue
        place = varying[0]
        if here[place].isdecimal():
            containers.append(tuple(here[cursor:place]))
            cursor = place + 1
        else:
            containers.append(())
        dropped |= {i: re.sub(r"_*\d+$", "", here[i]) for i in varying}
    rest = [dropped.get(i, part) for i, part in enumerate(here) if i >= cursor]
    return containers, tuple(part for part in rest if part) or ("value",)


# -- what is kept from call to call ----------------------------------------------------------------
@dataclass(frozen=True)
class StateMember:
    """A state as a member of the struct: its name, and its initial value."""

    node: Node
    place: Place
    name: str
    initial: Array

    @property
    def pointer(self) -> str:
        """The pointer through which the run function reads and writes the state."""
        return f"{STATE}->{self.name}"

    @cached_property
    def stored(self) -> str:
        """The name of the initial value among the weights; empty if all bytes are 0."""
        return derived(buffer_name(self.node), "initial") if self.initial.view(np.uint8).any() else ""


class State:
    """The struct of a program's states, named after the model, with its ``members``."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self.members: dict[Node, StateMember] = {}
        nodes = {node.target: node for node in program.states}
        spelled = Scope(" ".join(map(own_name, nodes)), macros())
        for place in state_places(program.module) if nodes else ():
            value = np.array(program.module.get_attribute(place.path), place.type.dtype.numpy, order="C")
            node = nodes[place.target]
            self.members[node] = StateMember(node, place, spelled.names[own_name(place.target)], value.reshape(-1))

    def __bool__(self) -> bool:
        return bool(self.members)

    @property
    def initial(self) -> dict[str, tuple[Node, Array]]:
        """The initial values that are stored among the weights, by their names there."""
        return {m.stored: (m.node, m.initial) for m in self.members.values() if m.stored}

    @property
    def tag(self) -> str:
        return f"struct {self.name}_state"

    def definition(self) -> list[str]:
        """The struct definition for the header."""
        said = "What the model keeps from call to call, dense and row-major. The caller owns it."
        lines = [f"/*{comment(said)[1:]}", f"{self.tag} {{"]
        for member in self.members.values():
            about = outside_text.comment(f"{member.place.type}, {member.place.path}")
            line = f"    {member.node.type.dtype.c_stored} {member.name}[{member.place.count}];"
            lines.append(f"{line}  /* {about} */")
        return [*lines, "};", ""]

    @property
    def signature(self) -> str:
        """The head of the function that sets the initial values."""
        return f"void {self.name}_state_init({self.tag} *{STATE}, const void *weights)"

    def declaration(self) -> list[str]:
        """The prototype of that function, for the header."""
        return ["/** The values that the model begins with. */", *wrap(f"{self.signature};"), ""]

    def init(self, places: Mapping[str, tuple[int, str]]) -> list[str]:
        """The function that sets the initial values, of which some are stored among the weights."""
        if not self.members:
            return []
        lines = [f"    memset({STATE}, 0, sizeof *{STATE});"]
        for member in self.members.values():
            if member.stored:
                start, size = places[member.stored][0], member.initial.nbytes
                lines += wrap(f"    memcpy({member.pointer}, (const char *)weights + {start}, {size});")
        if not self.initial:
            lines.append("    (void)weights;  // all is 0 at first")
        return [f"{self.signature} {{", *lines, "}", ""]
