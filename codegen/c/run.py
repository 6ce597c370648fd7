"""The steps of an emitted model in C: calls of its kernels, loops over equal layers, and a function for
each module that a loop repeats.

In: the calls of a program, as steps, and what their arguments point to. Out: lines of C. A call in a
loop has a pointer for each iteration as its argument. If these differ, the argument is an expression of
the loop's variable or, if there is none, an element of a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fxlite.codegen.c.calls import Call, dim_c
from fxlite.codegen.c.rolling import Loop, Step
from fxlite.codegen.c.structs import VALUES, WEIGHTS, Index, Reached, reduced
from fxlite.codegen.c.workspace import with_note
from fxlite.codegen.kernel.names import apart, own_name, spelled
from fxlite.codegen.kernel.text import comment, mentions, signature, wrap
from fxlite.types import shapes
from fxlite.types.shapes import Dim

Grid = np.ndarray[Any, Any]
"""Pointers: an axis for each loop around a call."""


@dataclass(frozen=True)
class Pointer:
    """What an argument points to: a value, named by a parameter or (``in_state``) by a member of the
    state, from element number ``start`` on. ``ctype`` is the type of its elements, and ``name`` the name of
    the value."""

    memory: str
    in_state: bool
    start: Dim = 0
    ctype: str = field(compare=False, default="")
    name: str = field(compare=False, default="")


@dataclass(frozen=True)
class Argument:
    """An argument of a call: text that is the same in all iterations; a weight with the name ``text`` and
    the type ``ctype``; or pointers, to memory that the call writes if ``is_output``."""

    text: str = ""
    ctype: str = ""
    weight: Reached | None = None
    grid: Grid | None = None
    is_output: bool = False


@dataclass(frozen=True)
class Body:
    """The function of a loop's body: its name and its description. If it has weights of its own, also the
    type of the elements of an array that it is called with, the first of them in C, and which
    ``elements`` of the array the first iteration reads."""

    name: str
    about: str
    tag: str = ""
    element: Index | None = None
    elements: tuple[int, ...] = ()


@dataclass
class _Place:
    """Where lines are printed: inside these ``loops``, in the run function or in that of the body of the
    loop ``own``, which gets ``parameters``: declaration and name by what the caller passes. The innermost
    loop begins with ``pointers``: declaration and name by what they point to."""

    loops: tuple[Loop, ...] = ()
    own: Loop | None = None
    parameters: dict[str, tuple[str, str]] = field(default_factory=dict)
    pointers: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def indent(self) -> str:
        return "    " * (len(self.loops) + (self.own is None))

    @property
    def state(self) -> str:
        return f"{VALUES}." if self.own is None else f"{VALUES}->"

    def variable(self, loop: Loop) -> str:
        """The variable of a loop around the place."""
        depth = self.loops.index(loop)
        return own_name(_VARIABLES[depth]) if depth < 3 else own_name(f"{_VARIABLES[2]}_{depth}")


_VARIABLES = ("layer", "part", "piece")


class Steps:
    """Prints steps. ``arguments`` are those of the calls in the steps; ``bodies`` are the loops whose
    bodies are functions; ``state`` is the type of the struct of values; ``declared`` has the other
    parameters of the run function by name. :attr:`functions` must be printed before the run function,
    and :attr:`tables` at its beginning."""

    def __init__(
        self,
        calls: Sequence[Call],
        arguments: Mapping[int, Sequence[Argument]],
        bodies: Mapping[Loop, Body],
        state: str,
        declared: Mapping[str, str],
        profile: bool,
    ) -> None:
        self.calls, self.arguments, self.bodies = calls, arguments, bodies
        self.state, self.declared, self.profile = state, declared, profile
        #: Lines behind calls, by their numbers.
        self.behind: dict[int, list[str]] = {}
        self.functions: list[str] = []
        self.tables: list[str] = []
        self._table_of: dict[Any, str] = {}

    def lines(self, steps: Sequence[Step], place: _Place | None = None) -> list[str]:
        """The lines of steps; in the run function unless a place is given."""
        place, lines = place or _Place(), list[str]()
        for step in steps:
            if isinstance(step, int):
                lines += self._call(step, place)
            elif step in self.bodies:
                lines += self._loop_of_calls(step, place)
            else:
                inside = replace(place, loops=(*place.loops, step), pointers={})
                body = self.lines(step.body, inside)
                lines.append(f"{place.indent}{_head(step, inside)} {{")
                for value, (declaration, _) in inside.pointers.items():
                    lines += wrap(f"{inside.indent}{declaration} = {value};")
                lines += [*body, f"{place.indent}}}"]
        return lines

    def _loop_of_calls(self, loop: Loop, place: _Place) -> list[str]:
        """A loop that calls the function of its body, which is printed as well."""
        body, inside = self.bodies[loop], _Place((loop,))
        within = _Place((loop,), loop)
        lines = self.lines(loop.body, within)
        text = re.sub(r"//.*", "", "\n".join(lines))
        given, declared = list[str](), list[str]()
        if body.element is not None:
            given.append(f"&{WEIGHTS}.{body.element.text(inside.variable)}")
            declared.append(f"const struct {body.tag} *{WEIGHTS}")
        if mentions(text, VALUES):
            given.append(f"&{VALUES}")
            declared.append(f"const struct {self.state} *{VALUES}")
        for value, (declaration, _) in within.parameters.items():
            given.append(value)
            declared.append(declaration)
        for name, declaration in self.declared.items():
            if mentions(text, name):
                given.append(name)
                declared.append(declaration)
        self.functions += [comment(body.about), *signature(body.name, declared), *lines, "}", ""]
        head, call = _head(loop, inside), f"{body.name}({', '.join(given)});"
        if "error" not in given:
            return [f"{place.indent}{head}", *wrap(f"{inside.indent}{call}")]
        failed = f"{inside.indent}if (error->code) return error->code;"
        call_lines = wrap(f"{inside.indent}{call}")
        return [f"{place.indent}{head} {{", *call_lines, failed, f"{place.indent}}}"]

    def _call(self, number: int, place: _Place) -> list[str]:
        call = self.calls[number]
        given = ", ".join(self.argument(a, place) for a in self.arguments[number])
        value = f"{call.group.root.name}: {call.group.root.type}"
        lines = with_note(f"{place.indent}{call.function}({given});", value) if call.text else []
        if "error" in call.arguments:
            result = " error->code" if place.own is None else ""
            lines.append(f"{place.indent}if (error->code) return{result};")
        if self.profile:
            lines.append(f"{place.indent}fx_tick();")
        return lines + self.behind.get(number, [])

    # -- arguments -----------------------------------------------------------------------------
    def argument(self, argument: Argument, place: _Place | None = None) -> str:
        """The argument as C; in the run function, outside loops, if no place is given."""
        place = place or _Place()
        if argument.weight is not None:
            return self._weight(argument.weight, argument, place)
        if argument.grid is None:
            return argument.text
        grid, loops = reduced(argument.grid, place.loops)
        if place.own is not None and place.own in loops:
            value = self._expression(grid, loops, _Place(place.loops), argument.is_output)
            return _named(place.parameters, value, grid.flat[0], argument.is_output)
        value = self._expression(grid, loops, place, argument.is_output)
        if " ? " not in value:
            return value
        name = own_name("to" if argument.is_output else "from")
        pointer = replace(grid.flat[0], name=name)
        return _named(place.pointers, value, pointer, argument.is_output, "const ")

    def _weight(self, weight: Reached, argument: Argument, place: _Place) -> str:
        parts = [index.text(place.variable) for index in weight.indices] if weight.indices else []
        if place.own is not None and weight.varies:
            body = self.bodies[place.own]
            at = weight.indices[0].first - body.elements[0]
            root = f"{WEIGHTS}->" if len(body.elements) == 1 else f"{WEIGHTS}[{at}]."
            return root + ".".join([*parts[1:], weight.name])
        value = ".".join([WEIGHTS, *parts, weight.name])
        if place.own is None:
            return value
        named = Pointer("", False, 0, argument.ctype, argument.text)
        return _named(place.parameters, value, named, False)

    def _expression(self, grid: Grid, loops: Sequence[Loop], place: _Place, is_output: bool) -> str:
        """Pointers that differ along all axes, as a C expression."""
        if not loops:
            return self._pointer(grid.item(), place, is_output)
        if len(loops) == 1:
            found = _pattern(grid.tolist())
            if found is not None:
                return self._of_pattern(found, place.variable(loops[0]), place, is_output)
        table = self._table(grid, place, is_output)
        return table + "".join(f"[{place.variable(loop)}]" for loop in loops)

    def _pointer(self, pointer: Pointer, place: _Place, is_output: bool) -> str:
        base = pointer.memory
        if pointer.in_state:
            base = place.state + base
        elif place.own is not None:
            base = _named(place.parameters, base, pointer, is_output)
        return base if pointer.start == 0 else f"{base} + {dim_c(pointer.start)}"

    def _of_pattern(self, found: _Pattern, variable: str, place: _Place, is_output: bool) -> str:
        """The pointer that a pattern describes, in terms of the loop's variable."""
        texts = [self._pointer(pointer, place, is_output) for pointer in found.middle]
        middle = texts[0] if len(texts) == 1 else f"{variable} % 2 ? {texts[1]} : {texts[0]}"
        if found.step != 0:
            middle += f" + {variable}*{_factor(found.step)}"
        if found.last is not None:
            last = self._pointer(found.last, place, is_output)
            middle = f"{variable} == {found.count - 1} ? {last} : {middle}"
        if found.first is not None:
            first = self._pointer(found.first, place, is_output)
            middle = f"{variable} == 0 ? {first} : {middle}"
        return middle

    def _table(self, grid: Grid, place: _Place, is_output: bool) -> str:
        """The name of a table of pointers, which is created if there is none."""
        here = replace(place, loops=())
        texts = np.vectorize(lambda p: self._pointer(p, here, is_output), otypes=[object])(grid)
        key = tuple(texts.ravel().tolist())
        if key not in self._table_of:
            base = re.sub(r"_*\d+$", "", spelled(grid.flat[0].name))
            name = apart(own_name(base), self._table_of.values())
            self._table_of[key] = name
            const = "" if is_output else "const "
            sizes = "".join(f"[{size}]" for size in grid.shape)
            line = f"    {const}{grid.flat[0].ctype} *const {name}{sizes} = {_braced(texts)};"
            self.tables += wrap(line)
        return self._table_of[key]


@dataclass(frozen=True)
class _Pattern:
    """The pointers of ``count`` iterations: the ``middle`` one, or two that alternate, each a ``step``
    further than the previous one; and others in the first or last iteration."""

    count: int
    middle: tuple[Pointer, ...]
    step: Dim = 0
    first: Pointer | None = None
    last: Pointer | None = None


def _pattern(seq: Sequence[Pointer]) -> _Pattern | None:
    """The simplest pattern that describes the pointers."""
    count = len(seq)
    step = shapes.normalize(seq[1].start - seq[0].start)
    expected = (replace(seq[0], start=shapes.normalize(seq[0].start + n * step)) for n in range(count))
    if seq[0].memory == seq[1].memory and all(map(_same, seq, expected)):
        return _Pattern(count, (seq[0],), step)
    for first, last in ((0, 0), (1, 0), (0, 1), (1, 1)):
        middle = seq[first : count - last]
        ends = seq[0] if first else None, seq[-1] if last else None
        if not middle:
            continue
        if all(p == middle[0] for p in middle):
            return _Pattern(count, (middle[0],), 0, *ends)
    for first, last in ((0, 0), (1, 0), (0, 1), (1, 1)):
        middle = seq[first : count - last]
        ends = seq[0] if first else None, seq[-1] if last else None
        if len(middle) > 2 and all(p == middle[n % 2] for n, p in enumerate(middle)):
            pair = middle[:2] if not first else (middle[1], middle[0])
            return _Pattern(count, tuple(pair), 0, *ends)
    return None


def _same(one: Pointer, other: Pointer) -> bool:
    same = one.memory == other.memory and one.in_state == other.in_state
    return same and shapes.equal(one.start, other.start)


def _factor(step: Dim) -> str:
    text = dim_c(step)
    if isinstance(step, int):
        return f"INT64_C({text})"
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _braced(texts: Grid) -> str:
    parts = texts.tolist() if texts.ndim == 1 else [_braced(part) for part in texts]
    return f"{{{', '.join(parts)}}}"


def _head(loop: Loop, inside: _Place) -> str:
    variable = inside.variable(loop)
    return f"for (int {variable} = 0; {variable} < {loop.count}; ++{variable})"


def is_table(argument: Argument, loops: Sequence[Loop]) -> bool:
    """Whether the pointers in loops can only be written as a table."""
    if argument.grid is None:
        return False
    grid, varying = reduced(argument.grid, loops)
    return len(varying) > 1 or (len(varying) == 1 and _pattern(grid.tolist()) is None)


def _named(names: dict[str, tuple[str, str]], value: str, pointer: Pointer, is_output: bool, constant: str = "") -> str:
    """The name for a value; it is declared if there is none."""
    known = names.get(value)
    name = apart(pointer.name, [n for _, n in names.values()]) if known is None else known[1]
    if known is None or is_output:
        const = "" if is_output else "const "
        names[value] = f"{const}{pointer.ctype} *{constant}{name}", name
    return name


def is_passed(argument: Argument, loop: Loop, loops: Sequence[Loop]) -> bool:
    """Whether the pointers of a call in ``loops`` can be passed to the function of a loop's body."""
    if argument.grid is None:
        return True
    _, varying = reduced(argument.grid, loops)
    return len(varying) == 1 if loop in varying else not is_table(argument, loops)
