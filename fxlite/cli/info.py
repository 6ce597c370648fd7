"""``fxlite info``: what fxlite finds on this machine.

In: parsed options and a console. Out: a table of versions, compilers, processor, cache and devices;
or what the machine can do at most; or an empty cache.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import math
import os
import platform
import shutil
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

import fxlite
from fxlite.backend import backends
from fxlite.base.console import show
from fxlite.base.errors import FxliteError
from fxlite.codegen.reporting import check_and_time as report
from fxlite.codegen.runtime import toolchain
from fxlite.codegen.runtime.cache import PROGRAMS, STAMP, cache_folder, cache_limit, is_entry, named_folder
from fxlite.codegen.runtime.roofs import machine_roofs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite info``."""
    parser.add_argument(
        "--roofs", action="store_true", help="measure what arithmetic and memory can do at most (some seconds)"
    )
    parser.add_argument("--clear-cache", action="store_true", help="remove all cached builds")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite info``."""
    if options.roofs:
        show(console, machine_roofs(refresh=True))
    else:
        show(console, clear_cache() if options.clear_cache else info_table())
    return 0


def info_table() -> Table:
    """What fxlite finds on this machine."""
    table = Table.grid(padding=(0, 2))
    table.add_row("fxlite", fxlite.__version__)
    table.add_row("Python", f"{platform.python_version()} ({platform.system()})")
    for package in ("numpy", "sympy"):
        table.add_row(package, _version(package) or "not installed")
    try:
        cpu = f"{toolchain.processor_name()}, {toolchain.usable_cpus()} usable"
        table.add_row("CPU", cpu)
    except FxliteError as error:
        table.add_row("CPU", Text(str(error)))
    folder = cache_folder()
    table.add_row("cache", f"{folder}: {_cache_content(folder)} ({_limit_text()})")
    for backend in backends():
        for name, value in backend.describe().items():
            table.add_row(name, Text(value))
    return table


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cache_content(folder: Path) -> str:
    """Numbers of cached builds and kept programs, and the size of all files."""
    count = {folder: 0, folder / PROGRAMS: 0}
    size = 0
    for path, folders, files in os.walk(folder):
        if Path(path) in count:
            count[Path(path)] = sum(map(is_entry, folders))
        for name in files:
            with contextlib.suppress(OSError):  # another process has just removed it
                size += os.stat(os.path.join(path, name)).st_size
    builds, programs = count.values()
    return f"{builds} builds, {programs} programs, {report.quantity(size, 'B')}"


def _limit_text() -> str:
    limit = cache_limit()
    return "no limit" if math.isinf(limit) else f"at most {report.quantity(int(limit), 'B')}"


#: Folders of the cache, beside those of builds.
_FOLDERS = (PROGRAMS, "failed", "compilers", "roofs", "tuning", "nvrtc", "cuda_shim")


def clear_cache() -> str:
    """Remove what fxlite put into its cache folder, and nothing else; says how much that was."""
    folder = named_folder()
    content = _cache_content(folder)
    if folder.is_dir():
        for path in folder.iterdir():
            if is_entry(path.name) or path.name in _FOLDERS or path.name.startswith("work-"):
                shutil.rmtree(path, ignore_errors=True)
        (folder / STAMP).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return f"removed {content}, from {folder}"
