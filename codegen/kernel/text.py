"""C as text, for all printers: wrapped lines, comments, heads of functions; and files that are the same for
all models except for some words.

In: lines, texts, parameters. Out: the same in lines of at most 100 columns.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable

from fxlite.base import outside_text

_BREAK = re.compile(r" (?=&& |\|\| |\? |: |\+ |- |\* )|(?<=[,;]) |(?<= =) ")
_NESTING = {"(": 1, "[": 1, ")": -1, "]": -1}


def wrap(line: str, width: int = 100) -> list[str]:
    """A line of C as lines of at most ``width`` columns, broken where the fewest parentheses and brackets are
    open."""
    if line.lstrip().startswith("#pragma"):
        return _wrap_pragma(line, width)
    if line.lstrip().startswith(("#", "//")):
        return [line]
    result: list[str] = []
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    while len(line) > width:
        depths = list(itertools.accumulate(_NESTING.get(c, 0) for c in line[:width]))
        places = [m.start() for m in _BREAK.finditer(line, len(indent) + 4, width)]
        if not places:
            break
        later = [p for p in places if p >= (2 * len(indent) + width) // 3] or places
        place = min(later, key=lambda p: (depths[p], line[p - 1] not in ",=", -p))
        result.append(line[:place])
        line = indent + line[place + 1 :]
    return [*result, line]


def _wrap_pragma(line: str, width: int) -> list[str]:
    """A pragma in pieces that end in a backslash, broken before its condition or after a comma, or else where other
    lines are."""
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    result: list[str] = []
    while len(line) > width:
        for places in (r"\) (?=if )|, ", _BREAK):
            ends = [m.start() + 1 for m in re.finditer(places, line[: width - 2]) if m.start() > len(indent)]
            if ends:
                break
        else:
            break
        head, line = line[: ends[-1]].rstrip(), indent + line[ends[-1] :].lstrip()
        result.append(f"{head} \\")
    return [*result, line]


def comment(text: str) -> str:
    """A C comment block, its lines folded at 100 columns."""
    lines: list[str] = []
    for line in map(outside_text.comment, text.splitlines() or [""]):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += textwrap.wrap(line, 94, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
            ""
        ]
    return "\n * ".join(lines).replace(" * \n", " *\n").join(("/* ", " */"))


def signature(name: str, parameters: Sequence[str], result: str = "static void") -> list[str]:
    """Function head, wrapped at 100 columns."""
    head = f"{result} {name}("
    one = head + ", ".join(parameters) + ") {"
    if len(one) <= 100:
        return [one]
    lines, current = [], head
    for position, part in enumerate(parameters):
        piece = part + (", " if position < len(parameters) - 1 else ") {")
        if len(current) + len(piece) > 100:
            lines.append(current.rstrip())
            current = " " * 4
        current += piece
    return [*lines, current]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths)).rstrip() for row in rows]


def filled(file: Traversable, values: Mapping[str, str]) -> str:
    """The text of a file with values in place of words in capitals, which may be parts of names (``MODEL_run``).
    If a word without a value is alone on its line, the line is removed, with an empty line after it; so is the text
    between ``#if WORD`` and ``#endif // WORD``."""
    text = file.read_text(encoding="utf-8")
    for word, value in values.items():
        text = re.sub(rf"^#if {word}\n(.*?)#endif // {word}\n", r"\1" if value else "", text, flags=re.M | re.S)
        text = text if value else re.sub(rf"^{word}\n\n?", "", text, flags=re.M)
    words = "|".join(sorted(values, key=len, reverse=True))
    return re.sub(rf"(?<![A-Z0-9])(?:{words})(?![A-Za-z0-9])", lambda found: values[found[0]], text)


def atom(expression: str) -> str:
    """The expression, in parentheses unless it is a name, a number, a call or an index."""
    depth = 0
    for character in expression:
        depth += (character in "([") - (character in ")]")
        if depth == 0 and not (character.isalnum() or character in "_.)]"):
            return f"({expression})"
    return expression


def mentions(text: str, name: str) -> bool:
    """Whether C text uses the name."""
    return re.search(rf"\b{re.escape(name)}\b", text) is not None
