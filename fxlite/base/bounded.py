"""Reading text that somebody else may have made, in bounded time and depth.

In: a parser, or text in Python's syntax. Out: the parser, for which text that is nested too deeply
is an error like any other; the syntax tree.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from fxlite.base.errors import FxliteError, ParseError

Function = TypeVar("Function", bound=Callable[..., Any])
#: No size, count or number of a line is larger, in this or any other program.
LARGEST_INT = (1 << 63) - 1


def bounded(error: type[FxliteError], what: str) -> Callable[[Function], Function]:
    """Decorates a recursive parser: text that is nested deeper than Python's stack, or than its own
    parser can take, raises ``error``, which says so of ``what``."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def parse(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (RecursionError, MemoryError):
                raise error(f"{what} is nested too deeply") from None

        return parse  # type: ignore[return-value]

    return decorate


def syntax_tree(text: str, mode: Literal["eval", "exec"] = "eval") -> Any:
    """The tree of an expression, or of a program. Raises SyntaxError, whatever is wrong; and
    ParseError for text that is nested too deeply."""
    if "\0" in text:
        raise SyntaxError("the text holds a NUL character")
    try:
        return ast.parse(text, mode=mode)
    except (RecursionError, MemoryError):
        raise ParseError("the text is nested too deeply") from None
    except ValueError as error:  # numbers of more digits than Python converts
        raise SyntaxError(str(error)) from None
