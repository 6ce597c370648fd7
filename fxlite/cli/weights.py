"""``fxlite weights``: what is in a file of weights.

In: the path of a file that ``fx.load_weights`` reads. Out: a table of its arrays. Numbers are not
read, and nothing of the file is run.
"""

from __future__ import annotations

import argparse
import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fxlite.base.console import show
from fxlite.files.weights.read import weight_entries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite weights``."""
    parser.add_argument(
        "file", metavar="FILE", help=".safetensors, .pt, .pth, .bin, .gguf, .npz, or the .json index of several"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite weights``."""
    entries = weight_entries(options.file)
    table = Table("name", "dtype", "shape", "bytes", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    table.columns[3].justify = "right"
    for entry in entries:
        shape = "×".join(map(str, entry.shape)) or "scalar"
        table.add_row(Text(entry.name), entry.dtype, shape, f"{entry.nbytes:,}")
    numbers, nbytes = sum(math.prod(e.shape) for e in entries), sum(e.nbytes for e in entries)
    table.add_section()
    table.add_row(Text(f"{len(entries):,} arrays"), "", f"{numbers:,}", f"{nbytes:,}")
    show(console, table)
    return 0
