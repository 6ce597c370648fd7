"""``fxlite passes``: the passes that can be named on the command line, and where they come from.

In: parsed options and a console. Out: a table of passes of fxlite, of imported modules and of
installed distributions; or what some of them are, which imports those.
"""

from __future__ import annotations

import argparse
import inspect

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fxlite.base.console import show
from fxlite.passes.base import GROUP, PASSES, Pass, PassError, as_pass, installed_passes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite passes``."""
    parser.description = (
        "List the passes that --passes takes: those of fxlite, of modules given to --import, and "
        f"of installed distributions (entry points {GROUP}), of which nothing is imported. With "
        "names: what these are, which imports them. The exit status is 1 if one cannot be."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or DISTRIBUTION:NAME")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite passes``. Raises what :func:`as_pass` does for a single name."""
    if not options.names:
        show(console, _table())
        return 0
    if len(options.names) == 1:
        _describe(console, options.names[0], as_pass(options.names[0]))
        return 0
    status = 0
    for number, name in enumerate(options.names):
        if number:
            console.print()
        try:
            _describe(console, name, as_pass(name))
        except PassError as error:
            console.print(f"{name}: {error}", markup=False, soft_wrap=True)
            status = 1
    return status


def _table() -> Table:
    table = Table.grid(padding=(0, 2))
    for name, item in sorted(PASSES.items()):
        table.add_row(name, _origin(item), Text(item.summary))
    for found in installed_passes():
        name = found.full_name if found.name in PASSES else found.name
        table.add_row(Text(name), Text(f"{found.distribution} {found.version}"), Text(f"({found.where})"))
    return table


def _origin(item: Pass) -> str:
    module = item.__module__ or "?"
    return "fxlite" if module.split(".")[0] == "fxlite" else module


def _describe(console: Console, name: str, item: Pass) -> None:
    """The options of a pass, and its own words."""
    options = [
        p
        for p in list(inspect.signature(item.function).parameters.values())[1:]
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    lines = [f"{name} ({item.exactness}), from {_origin(item)}"]
    if options:
        lines.append(f"options: {', '.join(map(str, options))}")
    lines += ["", inspect.cleandoc(item.__doc__ or "It says nothing of itself.")]
    console.print("\n".join(lines), markup=False, soft_wrap=True)
