"""What commands print and what is written to files: tables, coloured code, files whole or not at
all.

In: a rich console and what to print; a path and what it is to hold. Out: text without trailing
spaces, never cut. A full disk or an interrupt while writing leaves the file that was there: the
text goes into one beside it, which then takes the name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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


class Printed:
    """What prints as a rich table: ``str()`` gives the same as text without colours, and ``repr``
    says in a line what it is."""

    @property
    def about(self) -> str:
        """What is in it, in a few words."""
        return ""

    def __str__(self) -> str:
        return plain_text(self)

    def __repr__(self) -> str:
        about = self.about
        return f"<{type(self).__name__}: {about}>" if about else f"<{type(self).__name__}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What notebooks show."""
        printer.text(str(self))


def borderless(texts: Iterable[str], numbers: Iterable[str] = (), folded: int | None = None, **options: Any) -> Table:
    """A table without lines: columns of text, of which the first ones are ``folded`` where they do
    not fit (None: all), then columns of numbers with these options."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, heading in enumerate(texts):
        is_folded = folded is None or place < folded
        table.add_column(heading, overflow="fold" if is_folded else "ellipsis")
    for heading in numbers:
        table.add_column(heading, justify="right", **options)
    return table


def print_code(console: Console, text: str) -> None:
    """Print Python text, in colour on a terminal; never wrapped or cut."""
    if not console.is_terminal:
        print(text)
        return
    from rich.syntax import Syntax

    syntax = Syntax(text, "python", theme="ansi_dark", background_color="default")
    console.print(syntax.highlight(text), soft_wrap=True, end="")


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Make ``content`` (a str as UTF-8) the file at ``path``; pipes and devices are written to.
    Raises OSError, and leaves an earlier file as it was."""
    data = content.encode() if isinstance(content, str) else content
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        Path(path).write_bytes(data)
        return
    draft = target.with_name(f".{target.name[:100]}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o7777)
        os.replace(draft, target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
    finally:
        draft.unlink(missing_ok=True)
