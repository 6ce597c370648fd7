"""Output of commands, of notebooks and to files: tables, coloured code, and files that are written
completely or not at all.

In: a rich console and an object to print; a path and its content. Out: text without trailing spaces that
is never cut. If the disk is full or writing is interrupted, the earlier file stays: the text is written
to a temporary file next to it, which is then renamed.

In: an object that prints as rich tables, a picture, or a whole page. Out: HTML for ``_repr_html_`` that
loads nothing and runs nothing. JupyterLab, VS Code and nbconvert show tables as tables of the notebook,
in its colours; pictures as SVG in the document, so that their tooltips work; and pages in a frame of
their own, which their style and scripts cannot leave.
"""

from __future__ import annotations

import html
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table


def show(console: Console, thing: Any) -> None:
    """Print a table without spaces at the ends of its lines. A table whose numbers do not fit the width of
    the console is printed as records, with a line for each cell."""
    with console.capture() as captured:
        for part in _parts(thing, console):
            console.print(_as_records(part) if _is_too_wide(part, console.width) else part)
    console.file.write(re.sub(r"[ \t]+$", "", captured.get(), flags=re.MULTILINE))


def _parts(thing: Any, console: Console) -> Iterator[Any]:
    """The parts that are printed below each other: tables and other objects."""
    from rich.console import Group
    from rich.table import Table

    if isinstance(thing, Group):
        for part in thing.renderables:
            yield from _parts(part, console)
    elif not isinstance(thing, Table) and hasattr(thing, "__rich__"):
        yield from _parts(thing.__rich__(), console)
    elif isinstance(thing, Printed):
        for part in thing.__rich_console__(console, console.options):  # type: ignore[attr-defined]
            yield from _parts(part, console)
    else:
        yield thing


#: The number of columns that is enough for a cell of text, which is folded or shortened.
_ENOUGH = 12


def _is_too_wide(part: Any, width: int) -> bool:
    """Whether a table with headings is too wide for the numbers in it to fit."""
    from rich.table import Table

    if not isinstance(part, Table) or not part.show_header:
        return False
    needed = 2 * (len(part.columns) - 1)
    for column in part.columns:
        cells = [str(column.header), *column.cells] if column.no_wrap else column.cells
        widest = max((len(line) for cell in cells for line in str(cell).splitlines()), default=0)
        needed += widest if column.justify == "right" else min(widest, _ENOUGH)
    return needed > width


def _as_records(table: Table) -> Group:
    """Each row as lines of ``heading  value``, below its first cell."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    headings = [str(column.header).replace("\n", "") for column in table.columns]
    records = []
    for row, (first, *cells) in zip(table.rows, zip(*(column.cells for column in table.columns))):
        title = first if isinstance(first, Text) else Text(str(first))
        if title.plain.isdecimal():
            title = Text(f"{headings[0]} {title}")
        title.no_wrap, title.overflow = False, "fold"
        record = Table.grid(padding=(0, 2, 0, 0))
        record.add_column(min_width=max(map(len, headings)) + 2)
        record.add_column(overflow="fold")
        for heading, cell in zip(headings[1:], cells):
            if str(cell):
                record.add_row(f"  {heading}", cell)
        records.append(Group(Text.assemble(title, style=row.style or ""), record))
    return Group(*records)


def plain_text(thing: Any, width: int = 100) -> str:
    """A table or other rich object as text of at most ``width`` columns, without colours."""
    from rich.console import Console

    console = Console(width=width, no_color=True, highlight=False, force_jupyter=False, force_terminal=False)
    with console.capture() as captured:
        console.print(thing)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


class Printed:
    """Base class of results that print as a rich table. ``str()`` gives the same as text without colours,
    and ``repr`` describes it in one line."""

    @property
    def about(self) -> str:
        """The content in a few words."""
        return ""

    def __str__(self) -> str:
        return plain_text(self)

    def __repr__(self) -> str:
        about = self.about
        return f"<{type(self).__name__}: {about}>" if about else f"<{type(self).__name__}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text that IPython shows in a terminal."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        from rich.console import Console

        console = Console(width=110, force_jupyter=False)
        whole = getattr(self, "__rich__", None)
        parts = [whole()] if whole else self.__rich_console__(console, console.options)  # type: ignore[attr-defined]
        return printed_html(parts)


def borderless(texts: Iterable[str], numbers: Iterable[str] = (), folded: int | None = None, **options: Any) -> Table:
    """A table without lines: first columns of ``texts``, of which the first ``folded`` ones are wrapped if
    they do not fit (None: all), then columns of ``numbers``, with these options."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, heading in enumerate(texts):
        is_folded = folded is None or place < folded
        table.add_column(heading, overflow="fold" if is_folded else "ellipsis")
    for heading in numbers:
        table.add_column(heading, justify="right", **options)
    return table


#: The number of columns if nothing else determines it: in files and pipes.
USUAL_WIDTH = 100


def output_width() -> int:
    """The width of the standard output in columns: that of the terminal, or the value of ``COLUMNS``, or 100
    if it is not a terminal."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or USUAL_WIDTH
    except (OSError, AttributeError, ValueError):  # not a terminal; an object without fileno(); closed
        return USUAL_WIDTH


def output_console(**options: Any) -> Console:
    """A console on the standard output that is :func:`output_width` columns wide."""
    from rich.console import Console

    return Console(highlight=False, width=output_width(), **options)


def print_code(console: Console, text: str, links: Mapping[str, str] | None = None) -> None:
    """Print Python text without wrapping or cutting it. On a terminal it is coloured and, if the terminal
    supports links, has ``links`` (word of the text -> address)."""
    if not console.is_terminal:
        print(text, file=console.file)
        return
    from rich.style import Style
    from rich.syntax import Syntax

    syntax = Syntax(text, "python", theme="ansi_dark", background_color="default")
    coloured = syntax.highlight(text)
    for found in re.finditer(r"[^\s,()]+:\d+", coloured.plain) if links else ():
        if found[0] in (links or {}):
            coloured.stylize(Style(link=(links or {})[found[0]]), *found.span())
    console.print(coloured, soft_wrap=True, end="")


# -- notebooks -------------------------------------------------------------------------------------
_HIGHEST = 640  # pixels of height up to which a picture is shown without scrolling


def printed_html(parts: Iterable[Any]) -> str:
    """The parts that rich would print, below each other: tables as HTML tables, everything else as text."""
    from rich.console import Group
    from rich.table import Table

    pieces: list[str] = []
    texts: list[str] = []
    groups = (part.renderables if isinstance(part, Group) else [part] for part in parts)
    for part in (*itertools.chain.from_iterable(groups), None):
        if texts and (part is None or isinstance(part, Table)):
            pieces.append(f'<pre style="white-space: pre-wrap">{html.escape(chr(10).join(texts))}</pre>')
            texts = []
        if isinstance(part, Table):
            pieces.append(_table(part))
        elif part is not None:
            texts.append(plain_text(part))
    return "\n".join(pieces)


def _table(table: Table) -> str:
    sides = ["right" if column.justify == "right" else "left" for column in table.columns]

    def row(tag: str, cells: Iterable[Any]) -> str:
        made = (
            f'<{tag} style="text-align: {side}">{html.escape(plain_text(c))}</{tag}>' for side, c in zip(sides, cells)
        )
        return f"<tr>{''.join(made)}</tr>"

    title = f"<caption>{html.escape(plain_text(table.title))}</caption>" if table.title else ""
    head = f"<thead>{row('th', (column.header for column in table.columns))}</thead>" if table.show_header else ""
    body = "\n".join(row("td", cells) for cells in zip(*(column.cells for column in table.columns)))
    return f'<div style="overflow-x: auto"><table>{title}{head}<tbody>\n{body}\n</tbody></table></div>'


def picture_html(svg: str) -> str:
    """A picture in a box that scrolls if it is large."""
    style = f"max-height: {_HIGHEST}px; overflow: auto"
    return f'<div style="{style}" tabindex="0" role="group" aria-label="picture">{shrinking(svg)}</div>'


def shrinking(svg: str) -> str:
    """A picture for a page, smaller where the page is not wide enough, down to half its size."""
    (width,) = re.findall(r'^<svg [^>]*\bwidth="(\d+)"', svg)
    return svg.replace("<svg ", f'<svg style="max-width: max(100%, {int(width) // 2}px); height: auto" ', 1)


def page_html(page: str, height: int, title: str) -> str:
    """A whole page in a frame, ``height`` pixels high."""
    style = "width: 100%; border: 1px solid #8c959f; border-radius: 4px"
    return (
        f'<iframe title="{html.escape(title)}" height="{height}" style="{style}" '
        f'sandbox="allow-scripts allow-downloads" srcdoc="{html.escape(page)}"></iframe>'
    )


# -- files -----------------------------------------------------------------------------------------
def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Replace the file at ``path`` by ``content`` (a str is encoded as UTF-8); pipes and devices are written
    to directly. Raises OSError, and then leaves an earlier file unchanged."""
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
