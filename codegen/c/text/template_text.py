"""Printing C for the templates: integer expressions, indented lines, comments, function heads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fxlite.codegen.kernel.builder import symbol
from fxlite.codegen.kernel.text import comment, wrap
from fxlite.scalar.index import Index

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


_PRODUCT = re.compile(r"\w+( ?\* ?\w+)+")
"""A product of names and numbers."""


def expression(text: str) -> Index:
    """A C integer expression that is not negative as an index, for those who hold text."""
    return Index.of(int(text)) if text.isdecimal() else symbol(atom(text))


def multiply(*factors: str) -> str:
    """Product of C integer expressions, literals multiplied out."""
    literal = 1
    others = []
    for factor in factors:
        parts = re.split(r" ?\* ?", factor) if _PRODUCT.fullmatch(factor) else [factor]
        for part in parts:
            if part.isdecimal():
                literal *= int(part)
            else:
                others.append(atom(part))
    if literal == 0 or not others:
        return str(literal)
    return " * ".join(others if literal == 1 else [*others, str(literal)])


def add(*terms: str) -> str:
    """Sum of C integer expressions, literals added up."""
    literal = sum(int(term) for term in terms if term.isdecimal())
    others = [term for term in terms if not term.isdecimal()]
    return " + ".join([*others, str(literal)] if literal or not others else others)


def divide_up(expression: str, divisor: int) -> str:
    """An expression >= 0 divided by a literal, rounded up."""
    if expression.isdecimal():
        return str(-(-int(expression) // divisor))
    return f"({add(expression, str(divisor - 1))}) / {divisor}"


def round_up(expression: str, step: int) -> str:
    """An expression >= 0 rounded up to a multiple of a literal."""
    return multiply(divide_up(expression, step), str(step))


def mentions(text: str, name: str) -> bool:
    """Whether C text uses the name."""
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


class Lines:
    """Lines of C under construction, with the current depth of indentation."""

    def __init__(self, depth: int = 1) -> None:
        self.depth = depth
        self.lines: list[str] = []

    def put(self, text: str) -> None:
        """Add text, one or more lines, at the current depth."""
        for line in text.splitlines():
            self.lines += wrap("    " * self.depth + line) if line else [""]

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """`head { ... }`."""
        self.put(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.put("}")

    @contextmanager
    def loops(self, loops: Sequence[tuple[str, str]], pragma: str = "") -> Iterator[None]:
        """Perfectly nested loops (variable, extent), the pragma (if any) in front."""
        if pragma:
            self.put(pragma)
        for variable, extent in loops:
            self.put(f"for (int64_t {variable} = 0; {variable} < {extent}; {variable}++) {{")
            self.depth += 1
        yield
        for _ in loops:
            self.depth -= 1
            self.put("}")


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
