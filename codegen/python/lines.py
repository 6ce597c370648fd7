"""Lines of regenerated Python: numbers in them that may still become parameters, what they say of
types, and how long ones are broken.

In: the code of a statement, a type, a docstring. Out: lines of at most 100 columns, as ruff formats
them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from fxlite.base.outside_text import comment, docstring, is_name
from fxlite.codegen.python.parameters import nested_text
from fxlite.graph.graph import Node
from fxlite.show.text.pretty import wrap_code
from fxlite.types.tensor_type import TensorType

WIDTH = 100
ANY = "*"  # a number of what a module lacks


@dataclass
class Line:
    """A line of a method, whose numbers may still become parameters; ``note`` stands behind it.
    ``fills``: the list to which it appends, ``filled``: the one that it makes of a loop."""

    code: str
    depth: int = 2
    note: str = ""
    fills: str = ""
    filled: str = ""

    @property
    def is_comment(self) -> bool:
        return self.code.startswith("#")


def last_word(path: str) -> str:
    """What a module is called whose path may end in numbers: ``blocks`` of ``encoder.blocks.0``."""
    words = [part for part in path.split(".") if is_name(part)]
    return words[-1] if words else "layers"


def singular(path: str) -> str:
    """What one of a list is called: ``block`` of ``blocks``."""
    name = last_word(path)
    return name[:-1] if name.endswith("s") and len(name) > 2 else "layer"


def docstring_lines(text: str, depth: int) -> list[str]:
    """Documentation that the program had."""
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
    """The same for each number, to compare texts that are alike but for these."""
    return "\0"


def note_of(node: Node, order: Sequence[int] = ()) -> str:
    """The type of a value, or those of several in that order."""
    found = node.type
    if isinstance(found, tuple) and len(found) > 1:
        if len({*map(str, found)}) == 1 and isinstance(found[0], TensorType):
            return f"{comment(nested_text(found[0]))} each"
        found = tuple(found[i] for i in order) or found
    return comment(nested_text(found)) if found is not None else ""


def formatted(line: Line) -> Line:
    """Types with parameters in them, ``"f32[{size}]"``, as formatted strings."""
    return Line(re.sub(r'(?<!f)("[a-z0-9]+\[[^"\]]*\{)', r"f\1", line.code), line.depth)


def wrapped(line: Line) -> list[str]:
    """A line in lines of at most 100 columns, its note behind it or before it."""
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
