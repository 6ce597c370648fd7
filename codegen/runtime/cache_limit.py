"""Keeps the cache folder below a size: what was used longest ago goes first.

In: the cache folder, with a folder for each build and, in ``programs``, for each kept program
(:mod:`.kept`), whose times of change say when they were used last. Out: the same folder, at most
``FXLITE_CACHE_LIMIT`` gigabytes large (10 if that is not set, 0 for no limit). Nothing that was
used in the last hour is removed; a process that has loaded a file keeps it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = "programs"
"""The folder of kept programs in the cache."""
STAMP = "trimmed"
"""A file whose time is that of the last look at the sizes."""
_DEFAULT_LIMIT = 10.0  # gigabytes
_IN_USE = 3600  # seconds since the last use
_PAUSE = 600  # seconds until the sizes are added up again


def cache_limit() -> float:
    """Bytes; infinite for no limit. A limit that is no number counts as not set."""
    try:
        gigabytes = float(os.environ.get("FXLITE_CACHE_LIMIT", _DEFAULT_LIMIT))
    except ValueError:
        gigabytes = _DEFAULT_LIMIT
    return gigabytes * 1e9 if gigabytes > 0 else float("inf")


def mark_used(folder: Path) -> None:
    """Note that a folder of the cache is used now."""
    with contextlib.suppress(OSError):  # the cache is read-only: nothing will be removed
        os.utime(folder)


def trim_cache(root: Path) -> None:
    """Remove what was used longest ago until the limit is kept, at most once in ten minutes."""
    stamp = root / STAMP
    with contextlib.suppress(OSError):
        if time.time() - stamp.stat().st_mtime < _PAUSE:
            return
    try:
        stamp.touch()
    except OSError:
        return
    found = sorted(_entries(root))
    excess = sum(size for _, size, _ in found) - cache_limit()
    for used, size, folder in found:
        if excess <= 0 or time.time() - used < _IN_USE:
            return
        shutil.rmtree(folder, ignore_errors=True)
        excess -= size


def is_entry(name: str) -> bool:
    """Whether that is the name of a build or of a kept program: a key."""
    return len(name) == 32 and not set(name) - set("0123456789abcdef")


def _entries(root: Path) -> Iterator[tuple[float, int, str]]:
    """When it was used last, bytes and path of each build and each kept program."""
    for parent in (root, root / PROGRAMS):
        with contextlib.suppress(OSError), os.scandir(parent) as folders:
            for folder in folders:
                if is_entry(folder.name):
                    with contextlib.suppress(OSError):  # another process has just removed it
                        size = sum(file.stat().st_size for file in os.scandir(folder))
                        yield folder.stat().st_mtime, size, folder.path
