"""Printing C for the templates: comments, and the heads of functions."""

from __future__ import annotations

import re

from fxlite.codegen.kernel.text import comment

WIDTH = 100
"""Columns of emitted C."""


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


def signature(name: str, parameters: str, extra: tuple[str, ...]) -> list[str]:
    """The head of a static function, in lines."""
    types = {"workspace": "void *restrict workspace", "n_threads": "int n_threads"}
    arguments = [part.strip() for part in parameters.split(",") if part.strip()]
    arguments += [types[item] for item in extra]
    start = f"static void {name}("
    indent = " " * (len(start) if len(start) <= 40 else 8)
    lines = [start]
    for position, argument in enumerate(arguments or ["void"]):
        piece = argument + ("," if position < len(arguments) - 1 else ")")
        if len(lines[-1]) + len(piece) + 1 > WIDTH and lines[-1].strip():
            lines.append(indent)
        lines[-1] += ("" if lines[-1] in (start, indent) else " ") + piece
    return lines


def parameter_names(parameters: str) -> list[str]:
    """The names in a parameter list."""
    return [re.split(r"[ *]+", part.strip())[-1] for part in parameters.split(",") if part.strip()]


def block_comment(*paragraphs: str) -> list[str]:
    """A C comment of the non-empty paragraphs, line by line."""
    text = "\n".join(paragraph for paragraph in paragraphs if paragraph)
    return comment(text).splitlines() if text else []
