"""Breaking long lines of generated Python, as ruff would.

In: one line of code. Out: lines of at most a given width, broken at its outermost brackets.
"""

from __future__ import annotations

import re


def wrap_code(line: str, width: int = 100, always: bool = False) -> list[str]:
    """A line of Python in lines of at most ``width`` columns, as ruff would break its outermost
    brackets; left as it is where there are none. ``always``: also where it would fit."""
    is_head = line.lstrip().startswith("def ")
    found = _BRACKET.search(line, 0 if is_head else line.find(" = ") + 1)
    start = found.start() if found else 0
    inner = _inside(line, start) if found and (always or len(line) > width) else None
    if not inner:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    end, tail = line[start + 1 + len(inner) :], []
    if end.startswith(") for "):  # of a comprehension
        end, tail = end[:1], [indent + end[2:]]
    body = f"{indent}    {inner}"
    if len(body) <= width:
        return [line[: start + 1], body, indent + end, *tail]
    parts = _split(inner)
    is_one = len(parts) == 1 and (" for " in inner or inner[0] in "([{")
    comma = "" if is_one or (len(parts) == 1 and line[start] != "(") else ","
    broken = [text for p in parts for text in wrap_code(f"{indent}    {p}{comma}", width)]
    return [line[: start + 1], *broken, indent + end, *tail]


_BRACKET = re.compile(r"[(\[{]")


def _inside(line: str, start: int) -> str | None:
    """What stands between the bracket at ``start`` and its partner, if little follows that."""
    depth, quote = 0, ""
    for position in range(start, len(line)):
        c = line[position]
        if quote:
            quote = "" if c == quote and line[position - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                rest = line[position + 1 :]
                ends = len(rest) <= 2 or rest.startswith(" for ")
                return line[start + 1 : position] if ends else None
    return None


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for position, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[position - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return [p for p in (*parts, text[begin:].strip()) if p]
