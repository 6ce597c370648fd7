"""Choices that were measured, kept in the cache folder: a JSON file for each kernel and machine.

In: what identifies a kernel, and what was found. Out: the same in the next process, which then
measures nothing. A file says in words what it is about; removing it makes the next compilation
measure again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from fxlite.codegen.runtime.cache import cache_folder, find_note, keep_note
from fxlite.codegen.runtime.target import cpu_identity, processor_name
from fxlite.codegen.runtime.toolchain import find_compiler

#: Its folder in the cache folder.
FOLDER = "tuning"


@dataclass(frozen=True)
class Measured:
    """One candidate: its name, the usual seconds of a run, and how many times as fast as the
    model's choice it was."""

    name: str
    seconds: float
    speedup: float


@dataclass(frozen=True)
class Entry:
    """What was measured about a kernel: ``candidates``, the model's choice first, and the number of
    the one to take."""

    candidates: tuple[Measured, ...]
    winner: int


def load(key: Sequence[Any]) -> Entry | None:
    """What was kept under a key; None if nothing, or nothing that can be read."""
    with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
        data = find_note(cache_folder() / FOLDER, _name(key)) or {}
        found = tuple(Measured(**candidate) for candidate in data["candidates"])
        if 0 <= data["winner"] < len(found):
            return Entry(found, data["winner"])
    return None


def keep(key: Sequence[Any], kernel: str, sizes: str, threads: int, entry: Entry) -> None:
    """Keep what was measured about a kernel at these sizes. A cache that cannot be written costs
    time only."""
    about = {
        "kernel": kernel,
        "sizes": sizes,
        "processor": processor_name(),
        "threads": threads,
        "compiler": find_compiler().version.splitlines()[0],
    }
    keep_note(cache_folder() / FOLDER, _name(key), {**about, **asdict(entry)})


def _name(key: Sequence[Any]) -> str:
    facts = (*key, cpu_identity(), find_compiler().identity, _templates())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


@functools.cache
def _templates() -> str:
    """Digest of the files that print kernels: other kernels need other measurements."""
    digest = hashlib.sha256()
    for folder in ("fxlite.codegen.c", "fxlite.codegen"):
        for file in sorted(files(folder).iterdir(), key=lambda f: f.name):
            if file.name.endswith((".py", ".h")):
                digest.update(file.read_bytes())
    return digest.hexdigest()
