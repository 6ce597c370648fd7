"""Measures the limits of this machine: arithmetic and memory, on one thread and on all.

In: the machine. Out: :class:`fxlite.show.node_cost.Roofs`, kept in the cache folder by CPU, compiler
and number of usable CPUs. The work is done by ``roofs.c``, in one process for each rate, so that the
state of this Python process has no influence, and an instruction that the CPU does not support after
all ends only its own measurement.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import subprocess
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from fxlite.codegen.runtime.build import build_executable
from fxlite.codegen.runtime.cache import cache_folder, find_note, keep_note
from fxlite.codegen.runtime.toolchain import (
    cache_sizes,
    compile_flags,
    cpu_identity,
    find_compiler,
    instruction_sets,
    processor_name,
    usable_cpus,
)
from fxlite.show.node_cost import Roof, Roofs, quantity_text

#: Seconds for each rate and number of threads; the best few milliseconds of them count.
SECONDS = 0.25
#: Where threads together do not reach what their number promises, another program may have been in
#: the way (or they share a core, or the memory): they get so many trials.
_TRIALS = 3
_SMALLEST_ARRAY = 256 << 20  # bytes; larger than most last-level caches several times over
_LARGEST_ARRAY = 2 << 30
_RATES = ("one_thread", "all_threads")
_TIMEOUT = 120  # seconds; a measurement that does not end is left out

#: Name, unit, which sets of instructions it needs (one of them), and how it is measured.
_COMPUTE = (
    ("fma_f32", "FLOP/s", (), "12 chains of vector multiply-adds in registers"),
    ("fma_f64", "FLOP/s", (), "the same in double precision"),
    ("pairs_int8", "OP/s", ("sse2",), "12 chains of pairs, u8 x s8 widened to 16 bits, into i32"),
    ("dot_int8", "OP/s", ("avx512vnni", "avxvnni"), "12 chains of VNNI, four u8 x s8 into i32"),
    ("tile_int8", "OP/s", ("amxint8",), "AMX: four tiles of 16 x 16 sums, s8 x s8 into i32"),
    ("tile_bf16", "FLOP/s", ("amxbf16",), "AMX: four tiles of 16 x 16 sums, bf16 into f32"),
)


def machine_roofs(refresh: bool = False) -> Roofs:
    """The roofs of this machine, measured once and then taken from the cache folder. Measuring takes some
    seconds, and other programs reduce the rates; ``refresh`` measures again and keeps the better value of
    each rate.

    Raises `CompilerNotFound` and `BuildError`."""
    folder, key = cache_folder() / "roofs", _key()
    known: Roofs | None = None
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        known = _from_data(find_note(folder, key) or {})  # None if not measured yet
    if known is not None and not refresh:
        return known
    found = _better(measure(), known)
    keep_note(folder, key, asdict(found))
    return found


def _better(found: Roofs, known: Roofs | None) -> Roofs:
    """The higher of each rate, because nothing makes a machine faster than it is."""
    if known is None:
        return found
    roofs = dict(found.roofs)
    for name, old in known.roofs.items():
        new = roofs.get(name, old)
        one, every = (max(getattr(r, rate) for r in (old, new)) for rate in _RATES)
        roofs[name] = replace(new, one_thread=one, all_threads=every)
    return replace(found, roofs=roofs)


def measure(seconds: float = SECONDS, array_bytes: int | None = None) -> Roofs:
    """Measure all rates, each for ``seconds`` on one thread and on all. ``array_bytes`` is the size of the
    arrays in memory, by default several times the last-level cache.

    Raises what :func:`machine_roofs` raises."""
    program = build_executable({"roofs.c": _source()}, name="roofs")
    threads = usable_cpus() if find_compiler().openmp else 1
    cache = last_level_cache()
    large = array_bytes or max(_SMALLEST_ARRAY, min(4 * cache, _LARGEST_ARRAY))
    small = cache // 4
    sets = instruction_sets()
    roofs: dict[str, Roof] = {}
    left_out: list[str] = []

    def add(name: str, unit: str, how: str, what: str, size: int = 0) -> None:
        try:
            one = _run(program, what, 1, seconds, size)
            every = one
            for _ in range(_TRIALS if threads > 1 and one > 0 else 0):
                every = max(every, _run(program, what, threads, seconds, size))
                if every >= 0.9 * threads * one:
                    break
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            left_out.append(f"{name}: the measurement failed: {error}")
            return
        if one > 0:
            roofs[name] = Roof(name, unit, one, every, how)
        else:
            left_out.append(f"{name}: the compiler or the operating system does not offer it")

    for name, unit, needed, how in _COMPUTE:
        if needed and not sets.intersection(needed):
            left_out.append(f"{name}: this CPU has no {' or '.join(needed)}")
        else:
            add(name, unit, how, name)
    for prefix, size in (("", large), ("cached_", small)):
        part = "a quarter of the last-level cache" if prefix else "more than any cache"
        for what, verb in (("read", "reads"), ("write", "writes")):
            how = f"vector {verb} over {quantity_text(size, 'B')}, {part}"
            add(f"{prefix}{what}", "B/s", how, what, size)
    today = datetime.date.today().isoformat()
    return Roofs(processor_name(), threads, cache, roofs, tuple(left_out), today)


def last_level_cache() -> int:
    """Bytes of the largest cache of the first CPU; 32 MiB if the system does not report it."""
    return max(cache_sizes().values(), default=0) or 32 << 20


def _run(program: Path, what: str, threads: int, seconds: float, size: int) -> float:
    command = [str(program), what, str(threads), str(seconds), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=True)
    return float(done.stdout)


def _source() -> str:
    return files("fxlite.codegen.runtime").joinpath("roofs.c").read_text(encoding="utf-8")


def _key() -> str:
    facts = (cpu_identity(), find_compiler().identity, compile_flags(), usable_cpus(), last_level_cache(), _source())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _from_data(data: dict[str, Any]) -> Roofs:
    data["roofs"] = {name: Roof(**roof) for name, roof in data["roofs"].items()}
    data["left_out"] = tuple(data["left_out"])
    return Roofs(**data)
