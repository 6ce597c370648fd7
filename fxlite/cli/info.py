"""``fxlite info``: what fxlite finds on this machine.

In: the parsers of the command line. Out: its parser among them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fxlite.cli.shared import Commands

if TYPE_CHECKING:
    from rich.console import Console


def add_info(commands: Commands) -> None:
    """The parser of ``fxlite info``."""
    parser = commands.add_parser("info", help="version, compiler, CPU, cache and devices")
    parser.add_argument(
        "--roofs", action="store_true",
        help="measure what arithmetic and memory can do at most (some seconds)",
    )  # fmt: skip
    parser.add_argument("--clear-cache", action="store_true", help="remove all cached builds")
    parser.set_defaults(run=_info)


def _info(options: argparse.Namespace, console: Console) -> int:
    from fxlite.base.console import show
    from fxlite.codegen.command import clear_cache, info_table

    if options.roofs:
        from fxlite.codegen.runtime.roofs import machine_roofs

        show(console, machine_roofs(refresh=True))
        return 0
    show(console, clear_cache() if options.clear_cache else info_table())
    return 0
