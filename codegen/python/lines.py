"""Lines of regenerated Python: the numbers in them that may still become parameters, their comments with
types, and how long lines are broken; and loops of lines that repeat with increasing indices, together with
the lists that such loops fill.

In: the code of a statement, a type, a docstring. Out: lines of at most 100 columns, formatted as by ruff.

In: the lines of a method, unrolled. Out: the same statements in loops::

    grown = []
    for layer, (keys, values) in zip(self.layers, cache, strict=True):
        x, keys, values = layer(x, keys, values)
        grown.append((keys, values))

The same statements run: iterations have equal text except for indices that count up. If an index is that of
a list of modules or of a list among the program's inputs, the loop is over that list, or over a slice of
it; otherwise the loop counts.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fxlite.base.outside_text import comment, docstring, is_name
from fxlite.codegen.python.parameters import nested_text
from fxlite.codegen.python.text import number_text, with_numbers
from fxlite.graph.graph import Node
from fxlite.show.text.pretty import wrap_code
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.codegen.python.draft import Draft

WIDTH = 100
ANY = "*"  # a number of a part that a module lacks


@dataclass
class Line:
    """A line of a method, whose numbers may still become parameters; ``note`` is the comment after it.
    ``fills`` is the list to which it appends, ``filled`` the one that it makes in a comprehension."""

    code: str
    depth: int = 2
    note: str = ""
    fills: str = ""
    filled: str = ""

    @property
    def is_comment(self) -> bool:
        return self.code.startswith("#")


def last_word(path: str) -> str:
    """The name of a module whose path may end in numbers: ``blocks`` for ``encoder.blocks.0``."""
    words = [part for part in path.split(".") if is_name(part)]
    return words[-1] if words else "layers"


def singular(path: str) -> str:
    """The name for one item of a list: ``block`` for ``blocks``."""
    name = last_word(path)
    return name[:-1] if name.endswith("s") and len(name) > 2 else "layer"


def docstring_lines(text: str, depth: int) -> list[str]:
    """The lines of a docstring of the program."""
    if not text:
        return []
    indent = "    " * depth
    width = WIDTH - len(indent) - 6
    first, *rest = [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(docstring(line), width, drop_whitespace=True) or [""]
    ]
    if not rest:
        return [f'{indent}"""{first}"""']
    return [f'{indent}"""{first}', *(f"{indent}{x}".rstrip() for x in rest), f'{indent}"""']


def hidden(role: str, literal: str) -> str:
    """The same text for every number, to compare texts that are equal except for numbers."""
    return "\0"


def note_of(node: Node, order: Sequence[int] = ()) -> str:
    """The type of a value, or those of several values in that order."""
    found = node.type
    if isinstance(found, tuple) and len(found) > 1:
        if len({*map(str, found)}) == 1 and isinstance(found[0], TensorType):
            return f"{comment(nested_text(found[0]))} each"
        found = tuple(found[i] for i in order) or found
    return comment(nested_text(found)) if found is not None else ""


def formatted(line: Line) -> Line:
    """A line in which types that contain parameters, ``"f32[{size}]"``, are f-strings."""
    return Line(re.sub(r'(?<!f)("[a-z0-9]+\[[^"\]]*\{)', r"f\1", line.code), line.depth)


def wrapped(line: Line) -> list[str]:
    """A line as lines of at most 100 columns, with its note after it or before it."""
    code, note = f"{'    ' * line.depth}{line.code}", line.note
    if line.is_comment:
        width = WIDTH - 4 * line.depth - 2
        parts = textwrap.wrap(line.code[2:], width, break_long_words=False) or [""]
        return [f"{'    ' * line.depth}# {part}".rstrip() for part in parts]
    if note and len(code) + len(note) + 4 <= WIDTH:
        return [f"{code}  # {note}"]
    lines = wrap_code(code)
    if note and (len(lines) == 1 or len(lines[-1]) + len(note) + 4 > WIDTH):
        return [f"{'    ' * line.depth}# {note}"[:WIDTH], *lines]
    return [*lines[:-1], f"{lines[-1]}  # {note}"] if note else lines


# -- loops -----------------------------------------------------------------------------------------
ALIKE = 3  #: rounds that become a loop
_BODIES = range(1, 17)  # number of lines in a loop's body
_SITE = re.compile(r"\[(\d+)\]|\0[^\0{]*\0(\d+)\0")  # an index of a list; a number
_ACCESS = re.compile(r"(?:self\.)?[\w.]+(?:\[[^][]*\])*$")
_TARGET = re.compile(r"[\w, ()]+")


@dataclass(frozen=True)
class _Unit:
    """A line, the comments above it, and its text with the indices separated."""

    line: Line
    comments: tuple[Line, ...]
    skeleton: str
    values: tuple[int, ...]


@dataclass
class _Loop:
    """Iterations that begin at a unit: how many, of how many units each, and for each unit the places of
    indices that count up."""

    start: int
    size: int
    count: int = 1
    varying: list[list[int]] = field(default_factory=list)


def rolled(lines: Sequence[Line], lists: Draft, filled: Mapping[str, int]) -> list[Line]:
    """Lines with loops. ``lists`` knows lists by their text, such as ``self.blocks`` or ``cache``. ``filled``
    says by name how many items are appended to lists that exist only for that; :attr:`Line.fills` marks the
    lines that append."""
    made = [*lines]
    while True:
        again = _once(made, lists, filled)
        if len(again) == len(made):
            return made
        made = again


def _once(lines: Sequence[Line], lists: Draft, filled: Mapping[str, int]) -> list[Line]:
    units: list[_Unit] = []
    above: list[Line] = []
    for line in lines:
        if line.is_comment:
            above.append(line)
            continue
        values = tuple(int(a or b) for a, b in _SITE.findall(line.code))
        units.append(_Unit(line, tuple(above), _SITE.sub("\2", line.code), values))
        above = []
    made: list[Line] = []
    position = 0
    while position < len(units):
        written = None
        for size in _BODIES:
            loop = _found(units, position, size)
            written = None if loop is None else _written(units, loop, lists, filled)
            if loop is not None and written is not None:
                made += written
                position += loop.count * loop.size
                break
        if written is None:
            made += [*units[position].comments, units[position].line]
            position += 1
    return [*made, *above]


def _found(units: Sequence[_Unit], start: int, size: int) -> _Loop | None:
    """The iterations that begin at a unit."""
    body = units[start : start + size]
    loop, depth = _Loop(start, size), units[start].line.depth
    if start + ALIKE * size > len(units) or any(u.line.depth < depth for u in body):
        return None
    while True:
        begin = start + loop.count * size
        if not _continues(body, units[begin : begin + size], loop):
            break
        loop.count += 1
    end = start + loop.count * size
    while loop.count and end < len(units) and units[end].line.depth > depth:
        loop.count, end = loop.count - 1, end - size  # the repetition continues inside the last iteration
    return loop if loop.count >= ALIKE else None


def _continues(body: Sequence[_Unit], others: Sequence[_Unit], loop: _Loop) -> bool:
    """Whether units are the next iteration."""
    if len(others) < len(body):
        return False
    is_first = loop.count == 1
    found: list[list[int]] = []
    for number, (one, other) in enumerate(zip(body, others)):
        if (one.skeleton, one.line.depth) != (other.skeleton, other.line.depth):
            return False
        varying = [i for i, (a, b) in enumerate(zip(one.values, other.values)) if a != b]
        if not is_first and varying != loop.varying[number]:
            return False
        if any(other.values[i] != one.values[i] + loop.count for i in varying):
            return False
        found.append(varying)
    loop.varying = found
    return True


def _written(units: Sequence[_Unit], loop: _Loop, lists: Draft, filled: Mapping[str, int]) -> list[Line] | None:
    """The loop, or one line with the list that it fills; None if it cannot be written as a loop."""
    body = units[loop.start : loop.start + loop.size]
    rounds = [units[loop.start + n * loop.size :][: loop.size] for n in range(loop.count)]
    items: dict[tuple[str, int], int] = {}
    starts: set[int] = set()
    codes: list[str] = []
    for unit, varying in zip(body, loop.varying):
        code, last = "", 0
        for number, found in enumerate(_SITE.finditer(unit.line.code)):
            code += unit.line.code[last : found.start()]
            last = found.end()
            if number not in varying:
                code += found[0]
                continue
            start, access = unit.values[number], _ACCESS.search(code)
            if found[1] and access and lists.length(access[0]) >= start + loop.count:
                item = items.setdefault((access[0], start), len(items))
                code = f"{code[: access.start()]}\5{item}\5"
                continue
            starts.add(start)
            code += "[\6]" if found[1] else "\6"
        codes.append(code + unit.line.code[last:])
    fills = [unit.line.fills for unit in body if unit.line.fills]
    if len(starts) > 1 or any(filled[name] != loop.count for name in fills):
        return None
    listed = [text for text, _ in items]
    index = lists.index(listed[0] if listed else "") if starts else ""
    variables, codes = _variables(listed, codes, lists)
    over = [_slice(*item, loop.count, lists.length(item[0])) for item in items]
    is_given = any(map(lists.is_given, listed))
    head = _head(index, max(starts, default=0), variables, over, is_given, loop.count)
    codes = [code.replace("\6", index) for code in codes]
    notes = [{r[i].line.note for r in rounds} for i in range(loop.size)]
    depth = body[0].line.depth
    if loop.size == 1 and fills and not any(u.comments for r in rounds for u in r):
        value = codes[0].removeprefix(f"{fills[0]}.append(")[:-1]
        return [Line(f"{fills[0]} = [{value} {head}]", depth, filled=fills[0])]
    made: list[Line] = []
    if fills:
        empty = ", ".join(["[]"] * len(fills))
        made.append(Line(f"{', '.join(fills)} = {empty}", depth))
    made.append(Line(f"{head}:", depth))
    for number, (unit, code) in enumerate(zip(body, codes)):
        said = dict.fromkeys(c.code for r in rounds for c in r[number].comments)
        made += [Line(text, unit.line.depth + 1) for text in said]
        note = notes[number].pop() if len(notes[number]) == 1 else ""
        made.append(replace(unit.line, code=code, depth=unit.line.depth + 1, note=note, fills=""))
    return made


def _variables(listed: Sequence[str], codes: list[str], lists: Draft) -> tuple[list[str], list[str]]:
    """The variables of a loop, one for each list or, in brackets, those for the parts of its items; and the
    lines of its body with them."""
    variables: list[str] = []
    for number, text in enumerate(listed):
        mark, names = f"\5{number}\5", lists.parts(text)
        parts = re.compile(rf"{mark}\[(\d+)\]")
        used = {int(n) for code in codes for n in parts.findall(code)}
        if names and not any(mark in parts.sub("", code) for code in codes):
            own = {i: _name(names[i], rf"{mark}\[{i}\]", codes, lists) for i in used}
            codes = [parts.sub(lambda found: own[int(found[1])], code) for code in codes]  # noqa: B023
            shown = ", ".join(own.get(i, "_") for i in range(len(names)))
            variables.append(f"({shown}{',' * (len(names) == 1)})")
            continue
        name = _name(lists.item(text), mark, codes, lists)
        while name in variables:
            name += "_"
        codes = [code.replace(mark, name) for code in codes]
        variables.append(name)
    return variables, codes


def _name(wish: str, mark: str, codes: Sequence[str], lists: Draft) -> str:
    """The name of a loop variable. It may be the same as that of a value in the body if nothing reads the
    variable after that, or the value before."""
    word = re.compile(rf"(?<![\w.]){re.escape(wish)}\b")
    for number, code in enumerate(codes):
        left, _, right = code.rpartition(" = ")
        if _TARGET.fullmatch(left) and word.search(left):
            is_last = not any(re.search(mark, later) for later in codes[number + 1 :])
            is_first = not any(map(word.search, (*codes[:number], right)))
            return wish if is_last and is_first else lists.unique(wish)
    return lists.unique(wish)


def _head(index: str, start: int, variables: Sequence[str], over: Sequence[str], is_given: bool, count: int) -> str:
    """``for i, block in enumerate(self.blocks)``"""
    if not variables:
        bounds = [number_text(n, "count") for n in ([start] if start else []) + [start + count]]
        return f"for {index or '_'} in range({', '.join(bounds)})"
    names, text = ", ".join(variables), over[0]
    if len(over) > 1:
        text = f"zip({', '.join(over)}{', strict=True' * is_given})"
    if not index:
        return f"for {names if len(over) > 1 else names.strip('()')} in {text}"
    names = f"({names})" if len(over) > 1 else names
    return f"for {index}, {names} in enumerate({text}{f', {start}' if start else ''})"


def _slice(listed: str, start: int, count: int, length: int) -> str:
    """``self.blocks[:-1]``"""
    left = length - start - count
    if start == left == 0:
        return listed
    return f"{listed}[{start or ''}:{-left or ''}]"


def displayed(lines: Sequence[Line], names: Collection[str]) -> list[Line]:
    """Inline lists that are made in one line and that nobody named, if the next line reads them. They are
    found by their name, with the brackets around it there."""
    made: list[Line] = []
    for line in lines:
        before = made[-1] if made else None
        if before is not None and before.filled in names and not line.is_comment:
            value = before.code.partition(" = ")[2]
            read = re.compile(rf"\b{before.filled}\b")
            code = read.sub(lambda _: value, line.code)  # noqa: B023
            is_once = len(read.findall(line.code)) == 1
            if is_once and len(with_numbers(code)) + 4 * line.depth <= WIDTH:
                made[-1] = replace(line, code=code)
                continue
        made.append(line)
    return made
