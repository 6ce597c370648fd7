"""The workspace of a C program: the positions of values and of the kernels' scratch in it, and its size.

In: a planned program and its calls. Out: :class:`Workspace`, C text for the source, with a struct that
has a pointer to each place. The workspace begins with the arena. Values of a packed program start at
bytes that are written into the source, and each kernel's scratch begins after the values that are held
while it runs, so that they share memory in turns. Otherwise slots are as large as the named sizes
require, and the scratch of all kernels begins after them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fxlite.base import outside_text
from fxlite.codegen.c.calls import Call, dim_c
from fxlite.codegen.c.structs import Struct
from fxlite.codegen.kernel.lower import buffer_name
from fxlite.codegen.kernel.names import dim_name, spelled
from fxlite.codegen.kernel.text import comment, signature, table, wrap
from fxlite.codegen.program.data_sizes import at_most
from fxlite.codegen.program.memory import ALIGNMENT, Extent, ends
from fxlite.codegen.program.program import Program
from fxlite.codegen.runtime.abi import Dim
from fxlite.codegen.runtime.sizes import ValueSize
from fxlite.graph.graph import Node


@dataclass(frozen=True)
class Workspace:
    """``definition`` is that of the struct, if it has members; ``size`` is the function that returns the
    size of the workspace; ``functions`` fill the struct, and ``filled`` is the call that does so.
    ``values`` are the members that point to values; ``scratch`` says by the number of a call where its
    scratch begins: at a member, plus a number of bytes."""

    definition: tuple[str, ...]
    size: tuple[str, ...]
    functions: tuple[str, ...]
    filled: str
    values: Mapping[Node, str]
    scratch: Mapping[int, tuple[str, int]]


def workspace_signature(name: str, program: Program) -> str:
    """The head of the function that returns the size."""
    dims = "".join(f"int64_t {dim_name(d)}, " for d in program.dims)
    return f"int64_t {name}_workspace_bytes({dims}int n_threads)"


def plan_workspace(
    name: str,
    program: Program,
    calls: Sequence[Call],
    values: Sequence[ValueSize] = (),
    sets: Sequence[Sequence[Node]] = (),
    together: Iterable[Sequence[int]] = (),
) -> Workspace:
    """The workspace of the program that is emitted under a name. Its size is -1 if the size of one of the
    ``values`` is impossible. The values of each of the ``sets`` share a place, and so does the scratch of
    calls that are ``together`` in a loop."""
    using = [number for number, call in enumerate(calls) if call.scratch != "0"]
    struct = Struct(f"{name}_values")
    first = {node: same[0] for same in sets for node in same}
    for node in program.lifetimes:
        if first.get(node, node) is node:
            struct.add(node, spelled(buffer_name(node)), node.type.dtype.c_stored)
    layout, behind = _Layout((), (), 0), dict[int, int]()
    if program.offset_of:
        lines, behind = _packed(program, calls, using, together)
        places: dict[Hashable, str] = {n: str(place) for n, place in program.offset_of.items()}
    else:
        layout = _slots(program, calls, using)
        lines = [f"    return offset[{layout.count - 1}];" if layout.count else "    return 0;"]
        places = {node: f"offset[{slot}]" for node, slot in program.slot_of.items()}
    size = (*layout.definition, *_size_function(name, program, [*layout.ask, *lines], values), "")
    if using:
        struct.add(_SCRATCH, "arena" if behind else "scratch", "unsigned char")
        places[_SCRATCH] = "0" if behind else f"offset[{len(program.slots)}]"
    if not struct.members:
        return Workspace((), size, (), "", {}, {})
    parameters = ["void *workspace", *map(_typed, layout.parameters)]
    functions = [
        comment("The values of a call in its workspace."),
        *signature(f"{name}_values_at", parameters, f"static struct {struct.tag}"),
        *layout.ask,
        "    unsigned char *const arena = workspace;",
        f"    return (struct {struct.tag}){{",
    ]
    for key, member in struct.members.items():
        place = f"arena + {places[key]}"
        value = place if key == _SCRATCH else f"({member.kind} *)({place})"
        functions.append(f"        .{struct.name(member)} = {value},")
    memory = struct.name(struct.members[_SCRATCH]) if using else ""
    return Workspace(
        (comment(_timeline(program, struct, sets, calls, places)), *struct.text()),
        size,
        (*functions, "    };", "}", ""),
        f"{name}_values_at({', '.join(['workspace', *layout.parameters])})",
        {node: struct.name(struct.members[first.get(node, node)]) for node in program.lifetimes},
        {n: (memory, behind.get(n, 0)) for n in using},
    )


@dataclass(frozen=True)
class _Layout:
    """The function that computes where slots begin, its parameters, and how many numbers it returns."""

    definition: tuple[str, ...]
    parameters: tuple[str, ...]
    count: int

    @property
    def ask(self) -> list[str]:
        """Lines that call it."""
        if not self.count:
            return []
        given = ", ".join([*self.parameters, "offset"])
        return [f"    int64_t offset[{self.count}];", f"    layout({given});"]


def _timeline(
    program: Program,
    struct: Struct,
    sets: Sequence[Sequence[Node]],
    calls: Sequence[Call],
    places: Mapping[Hashable, str],
) -> str:
    """A comment that shows which values lie where, and from which kernel to which."""
    same = {values[0]: values for values in sets}
    rows = [("values", "type", "bytes", "kernels", "begins at byte")]
    for key, member in struct.members.items():
        if not isinstance(key, Node):
            continue
        held = [program.lifetimes[node] for node in same.get(key, [key])]
        first, last = min(f for f, _ in held), min(max(k for _, k in held), len(calls) - 1)
        count = f"{len(held)} " if len(held) > 1 else ""
        size = str(program.type_of(key).nbytes).replace(" ", "")
        rows.append((count + struct.name(member), str(key.type), size, f"{first} to {last}", places[key]))
    lines = table(rows)
    head = "Pointers to the values of a call, which share the workspace. Kernels are numbered from 0."
    return "\n".join([head, *([""] if len(rows) > 1 else []), *(f"  {x}" for x in lines[len(rows) == 1 :])])


_SCRATCH = "scratch"


def _packed(
    program: Program, calls: Sequence[Call], using: list[int], together: Iterable[Sequence[int]]
) -> tuple[list[str], dict[int, int]]:
    """The lines that compute the size, and the byte after which the scratch of each call begins."""
    extents = [Extent(program.type_of(n).nbytes, *program.lifetimes[n]) for n in program.offset_of]
    places = list(program.offset_of.values())
    behind = [-(-end // ALIGNMENT) * ALIGNMENT for end in ends(extents, places, len(calls))]
    for same in together:
        highest_end = max(behind[number] for number in same)
        for number in same:
            behind[number] = highest_end
    highest: dict[str, tuple[int, str]] = {}  # for each kind of scratch where the last one begins
    for number in using:
        scratch, kernel = calls[number].scratch, calls[number].function
        highest[scratch] = max(highest.get(scratch, (-1, "")), (behind[number], kernel))
    lines = [f"    return {program.arena_bytes};  // of values, which share them"]
    if highest:
        lines = [f"    int64_t bytes = {program.arena_bytes};  // of values, which share them"]
        for scratch, (start, kernel) in highest.items():
            more = f"({scratch})" if " ? " in scratch else scratch
            line = f"    bytes = fx_max(bytes, {start} + {more});"
            lines += with_note(line, f"scratch of {kernel}, behind values")
        lines.append("    return (bytes + 63) / 64 * 64;")
        lines = [*_largest_sizes(program, lines), *lines]
    return lines, {number: behind[number] for number in using}


def _slots(program: Program, calls: Sequence[Call], using: list[int]) -> _Layout:
    scratch: dict[str, str] = {}
    for number in using:
        scratch.setdefault(calls[number].scratch, calls[number].function)
    count = len(program.slots) + bool(using) + 1
    if count == 1:
        return _Layout((), (), 0)
    lines = _slot_offsets(program, scratch)
    lines = [*_largest_sizes(program, lines), *lines]
    parameters = [*map(dim_name, program.dims), "n_threads"]
    needed = [p for p in parameters if re.search(rf"\b{p}\b", "\n".join(lines))]
    note = "Byte offsets of the parts of the workspace, which values share; the last one is its end."
    given = [*map(_typed, needed), f"int64_t offset[{count}]"]
    definition = [comment(note), *signature("layout", given), *lines, "}", ""]
    return _Layout(tuple(definition), tuple(needed), count)


def _largest_sizes(program: Program, lines: Sequence[str]) -> list[str]:
    """The sizes that lines read and that become known later, at their largest values."""
    text = "\n".join(lines)
    sizes = {dim_name(name): at_most(size.bound, program.data_sizes) for name, size in program.data_sizes.items()}
    return [f"    const int64_t {n} = {dim_c(most)};" for n, most in sizes.items() if re.search(rf"\b{n}\b", text)]


def _typed(parameter: str) -> str:
    return f"{'int' if parameter == 'n_threads' else 'int64_t'} {parameter}"


def _slot_offsets(program: Program, scratch: Mapping[str, str]) -> list[str]:
    """The body of the function `layout`; ``scratch`` has the bytes that each function needs, in C."""
    users: dict[int, list[str]] = {}
    for node, slot in program.slot_of.items():
        users.setdefault(slot, []).append(node.name)
    lines = ["    offset[0] = 0;"]
    for number, each in enumerate(program.slots):
        names = ", ".join(users[number][:6]) + (", ..." if len(users[number]) > 6 else "")
        start = f"offset[{number}] + {dim_c(each.size)}"
        lines += with_note(f"    offset[{number + 1}] = {start};", names)
    if scratch:
        count = len(program.slots)
        (first, kernel), *others = scratch.items()
        lines += with_note(f"    int64_t scratch = {first};", f"of {kernel}")
        for other, kernel in others:
            lines += with_note(f"    scratch = fx_max(scratch, {other});", f"of {kernel}")
        end = f"offset[{count}] + (scratch + 63) / 64 * 64"
        lines += with_note(f"    offset[{count + 1}] = {end};", "scratch of the kernels")
    return lines


def _size_function(name: str, program: Program, body: Sequence[str], values: Sequence[ValueSize]) -> list[str]:
    body = [*size_check(name, program.dims, values, "return -1"), *body]
    text = "\n".join(body)
    names = [*map(dim_name, program.dims), "n_threads"]
    ignored = [n for n in names if not re.search(rf"\b{n}\b", text)]
    return [workspace_signature(name, program) + " {", *unused(ignored), *body, "}"]


def unused(names: Sequence[str]) -> list[str]:
    """A line for the parameters of a public function that this model does not need."""
    ignored = ", ".join(f"(void){name}" for name in names)
    return [f"    {ignored};  // not needed by this model"] if names else []


def with_note(line: str, note: str) -> list[str]:
    """A line of C with a comment, beside it or above it if there is no room."""
    lines, note = wrap(line), outside_text.comment(note)
    if len(lines) == 1 and len(line) + 5 + len(note) <= 100:
        return [f"{line}  // {note}"]
    indent = line[: len(line) - len(line.lstrip())]
    return [f"{indent}// {note}", *lines]


# -- the C function that counts the values of a call before anything is computed -------------------
# In: the values to check (:mod:`fxlite.codegen.program.calls`). Out: ``NAME_largest_bytes``, which
# callers of a model may call and which its other functions call themselves. It computes in double, which
# does not overflow; that a size near 2^53 is rounded does not matter next to powers of two.


SIZE_DOCUMENTATION = """\
/** Bytes of the largest value that a call with these sizes stores; -1 if no such call is possible,
 * since a size is negative, or one has more than 2^47 bytes (2^56 where it is not stored). */"""


def head_of(function: str, dims: Sequence[str]) -> str:
    """The head of a function of sizes, such as ``int NAME_check``, without what follows it."""
    parameters = ", ".join(f"int64_t {dim_name(d)}" for d in dims)
    return f"{function}({parameters or 'void'})"


def size_function(name: str, dims: Sequence[str], values: Sequence[ValueSize]) -> list[str]:
    """The function; empty if no value has to be checked."""
    if not values:
        return []
    lines = [f"{head_of(f'int64_t {name}_largest_bytes', dims)} {{", "    double fx_largest = 0;"]
    for value in values:
        shape = ", ".join(map(real_c, value.shape))
        stored = "true" if value.stored else "false"
        given = f"&fx_largest, {stored}, {value.itemsize}, {len(value.shape)}"
        call = f"fx_count({given}, (const double[]){{{shape}}})"
        lines += wrap(f"    if (!{call}) return -1;")
    return [*lines, "    return (int64_t)fx_largest;", "}", ""]


def size_check(name: str, dims: Sequence[str], values: Sequence[ValueSize], then: str) -> list[str]:
    """The beginning of a function that must not run at impossible sizes."""
    if not values:
        return []
    return [f"    if ({name}_largest_bytes({', '.join(map(dim_name, dims))}) < 0) {then};"]


def real_c(dim: Dim) -> str:
    """A dim as C in doubles."""
    return str(dim) if isinstance(dim, int) else dim.real_c(dim_name)


def divisors(dim: Dim) -> tuple[Dim, ...]:
    """The divisors in a dim, which have to be positive, inner ones first."""
    return () if isinstance(dim, int) else dim.divisors
