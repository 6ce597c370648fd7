"""Parse errors that quote the line and put a caret under what is wrong.

In: lines of Python text and a part of its syntax tree. Out: :class:`ParseError`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fxlite.base.errors import ParseError


def error_at(lines: Sequence[str], at: ast.AST | int, message: str) -> ParseError:
    """``at`` is a part of the tree, which gets carets, or the number of a line."""
    number = at if isinstance(at, int) else getattr(at, "lineno", 1)
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    if isinstance(at, int) or not isinstance(at, (ast.expr, ast.stmt, ast.arg)):
        return ParseError(f"line {number}: {message}\n  {line.strip()}")
    end = at.end_col_offset if at.end_lineno == number else None
    width = len(cut(line, at.col_offset, end).rstrip())
    return error_at_column(lines, number, len(cut(line, 0, at.col_offset)), width, message)


def error_at_column(
    lines: Sequence[str], number: int, column: int, width: int, message: str
) -> ParseError:
    """The error for ``width`` characters of a line from ``column`` on."""
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    column = max(0, column - (len(line) - len(line.lstrip())))
    carets = " " * column + "^" * max(1, width)
    return ParseError(f"line {number}: {message}\n  {line.strip()}\n  {carets}")


def cut(line: str, start: int, end: int | None) -> str:
    """Part of a line by the columns of :mod:`ast`, which count UTF-8 bytes."""
    return line[start:end] if line.isascii() else line.encode()[start:end].decode()
