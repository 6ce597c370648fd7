"""The workspace of a C program: where values and the scratch of kernels lie in it, and its size.

In: a planned program and its calls. Out: :class:`Workspace`, C text for the source and for the run
function. The workspace begins with the arena. Values of a packed program start at bytes that are
written into the source, and each kernel's scratch begins behind the values that are held while it
runs, so that it takes turns with the others. Else slots are as large as the named sizes say, and
the scratch of all kernels begins behind them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fxlite.base import outside_text
from fxlite.codegen.c.calls import Call, dim_c
from fxlite.codegen.c.text.sizes import size_check
from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.text import comment, signature, wrap
from fxlite.codegen.program.program import ALIGNMENT, Extent, Program, ends
from fxlite.codegen.runtime.sizes import ValueSize
from fxlite.graph.graph import Node


@dataclass(frozen=True)
class Workspace:
    """``functions`` tell how large it is; ``opening`` begins the run function. ``places`` are the
    bytes at which values start, as C, and ``scratch`` is what calls are given for theirs, by their
    numbers."""

    functions: tuple[str, ...]
    opening: tuple[str, ...]
    places: Mapping[Node, str]
    scratch: Mapping[int, str]


def workspace_signature(name: str, program: Program) -> str:
    """The function that gives the size, without what follows it."""
    dims = "".join(f"int64_t {dim_name(d)}, " for d in program.dims)
    return f"int64_t {name}_workspace_bytes({dims}int n_threads)"


def plan_workspace(
    name: str, program: Program, calls: Sequence[Call], values: Sequence[ValueSize] = ()
) -> Workspace:
    """The workspace of the program that is emitted under a name; its size is -1 where one of the
    ``values`` cannot be counted."""
    using = [number for number, call in enumerate(calls) if call.scratch != "0"]
    if program.offset_of:
        return _packed(name, program, calls, using, values)
    return _in_slots(name, program, calls, using, values)


def _packed(
    name: str, program: Program, calls: Sequence[Call], using: list[int],
    values: Sequence[ValueSize],
) -> Workspace:  # fmt: skip
    extents = [Extent(n.type.nbytes, *program.lifetimes[n]) for n in program.offset_of]
    behind = [
        -(-end // ALIGNMENT) * ALIGNMENT
        for end in ends(extents, list(program.offset_of.values()), len(calls))
    ]
    highest: dict[str, tuple[int, str]] = {}  # of each kind of scratch: where the last one begins
    for number in using:
        scratch, kernel = calls[number].scratch, calls[number].function
        highest[scratch] = max(highest.get(scratch, (-1, "")), (behind[number], kernel))
    lines = [f"    return {program.arena_bytes};  // of values, which take turns"]
    if highest:
        lines = [f"    int64_t bytes = {program.arena_bytes};  // of values, which take turns"]
        for scratch, (start, kernel) in highest.items():
            more = f"({scratch})" if " ? " in scratch else scratch
            line = f"    bytes = fx_max(bytes, {start} + {more});"
            lines += with_note(line, f"scratch of {kernel}, behind values")
        lines.append("    return (bytes + 63) / 64 * 64;")
    return Workspace(
        (*_size_function(name, program, lines, values), ""),
        ("    unsigned char *const arena = workspace;",),
        {node: f"arena + {offset}" for node, offset in program.offset_of.items()},
        {number: f"arena + {behind[number]}" for number in using},
    )


def _in_slots(
    name: str, program: Program, calls: Sequence[Call], using: list[int],
    values: Sequence[ValueSize],
) -> Workspace:  # fmt: skip
    scratch: dict[str, str] = {}
    for number in using:
        scratch.setdefault(calls[number].scratch, calls[number].function)
    lines = _slot_offsets(program, scratch)
    count = len(program.slots) + bool(using) + 1
    if count == 1:
        nothing = _size_function(name, program, ["    return 0;"], values)
        return Workspace((*nothing, ""), (), {}, {})
    parameters = [*map(dim_name, program.dims), "n_threads"]
    needed = [p for p in parameters if re.search(rf"\b{p}\b", "\n".join(lines))]
    types = [f"{'int' if n == 'n_threads' else 'int64_t'} {n}" for n in needed]
    note = "Byte offsets in the workspace, in whose parts values take turns; the last is its end."
    layout = [
        comment(note),
        *signature("layout", [*types, f"int64_t offset[{count}]"]),
        *lines, "}", "",
    ]  # fmt: skip
    ask = [
        f"    int64_t offset[{count}];",
        f"    layout({', '.join([*needed, 'offset'])});",
    ]
    size = _size_function(name, program, [*ask, f"    return offset[{count - 1}];"], values)
    opening = [*ask, "    unsigned char *const arena = workspace;"]
    if using:
        opening.append(f"    void *const scratch = arena + offset[{len(program.slots)}];")
    return Workspace(
        (*layout, *size, ""),
        tuple(opening),
        {node: f"arena + offset[{slot}]" for node, slot in program.slot_of.items()},
        dict.fromkeys(using, "scratch"),
    )


def _slot_offsets(program: Program, scratch: Mapping[str, str]) -> list[str]:
    """The body of the function `layout`; ``scratch``: bytes that a function needs, in C."""
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


def _size_function(
    name: str, program: Program, body: Sequence[str], values: Sequence[ValueSize]
) -> list[str]:
    body = [*size_check(name, program.dims, values, "return -1"), *body]
    text = "\n".join(body)
    names = [*map(dim_name, program.dims), "n_threads"]
    ignored = [n for n in names if not re.search(rf"\b{n}\b", text)]
    return [workspace_signature(name, program) + " {", *unused(ignored), *body, "}"]


def unused(names: Sequence[str]) -> list[str]:
    """A line for those parameters of a public function that this model does without."""
    ignored = ", ".join(f"(void){name}" for name in names)
    return [f"    {ignored};  // not needed by this model"] if names else []


def with_note(line: str, note: str) -> list[str]:
    """A line of C and what it is about: beside it, or above where there is no room."""
    lines, note = wrap(line), outside_text.comment(note)
    if len(lines) == 1 and len(line) + 5 + len(note) <= 100:
        return [f"{line}  // {note}"]
    return [f"    // {note}", *lines]
