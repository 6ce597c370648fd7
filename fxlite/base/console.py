"""Printing for the command line: tables and coloured code.

In: a rich console and what to print. Out: text without trailing spaces, never cut.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def show(console: Console, thing: Any) -> None:
    """Print a table, without the spaces at the ends of its lines."""
    with console.capture() as captured:
        console.print(thing)
    console.file.write(re.sub(r"[ \t]+$", "", captured.get(), flags=re.MULTILINE))


def plain_text(thing: Any, width: int = 100) -> str:
    """A table or other rich object as text of at most ``width`` columns, without colours."""
    from rich.console import Console

    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(thing)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def print_code(console: Console, text: str) -> None:
    """Print Python text, in colour on a terminal; never wrapped or cut."""
    if not console.is_terminal:
        print(text)
        return
    from rich.syntax import Syntax

    syntax = Syntax(text, "python", theme="ansi_dark", background_color="default")
    console.print(syntax.highlight(text), soft_wrap=True, end="")
