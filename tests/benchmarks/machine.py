"""The machine that benchmarks run on: its name, its idle cores, what else runs, and versions."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path

from fxlite.codegen.runtime.toolchain import CompilerNotFound, find_compiler, instruction_sets, processor_name
from tests.benchmarks.timing import busy_seconds


def choose_cores(count: int) -> list[int]:
    """The cores that have least to do just now. Raises SystemExit where there are too few."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cores = cores or list(range(os.cpu_count() or 1))
    if len(cores) < count:
        raise SystemExit(f"--threads {count}: this machine has {len(cores)} cores")
    before = _idle_ticks()
    time.sleep(0.5)
    after = _idle_ticks()
    quiet = sorted(cores, key=lambda c: before.get(c, 0) - after.get(c, 0))
    return sorted(quiet[:count])


def _idle_ticks() -> dict[int, int]:
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    fields = [line.split() for line in lines if line.startswith("cpu") and line[3] != " "]
    return {int(f[0][3:]): int(f[4]) for f in fields}


def foreign_load(seconds: float = 1.0) -> float:
    """Cores that are in use while this program sleeps."""
    busy = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - busy) / seconds


def machine() -> str:
    """``AMD EPYC, 2 cores, Linux``."""
    known = ("avx2", "avx512f", "avx512vnni", "avx512bf16", "amxtile")
    simd = [name for name in known if name in instruction_sets()]
    name = processor_name() + (f" ({', '.join(simd)})" if simd else "")
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def versions(*packages: str) -> str:
    """``fxlite 0.1.0, torch 2.13.0, onnxruntime 1.31.1, numpy 2.4.6, gcc 12.2.0, Python 3.11``."""
    import fxlite

    parts = [f"fxlite {fxlite.__version__}"]
    for name in packages:
        if importlib.util.find_spec(name):
            parts.append(f"{name} {importlib.metadata.version(name)}")
    with contextlib.suppress(CompilerNotFound):
        parts.append(find_compiler().version.partition("\n")[0])
    return ", ".join([*parts, f"Python {platform.python_version()}"])


def paragraphs(*parts: str | Iterable[str]) -> list[str]:
    """The lines of a page: texts, and lists of lines, each with an empty line behind."""
    return [line for part in parts for line in (*([part] if isinstance(part, str) else part), "")]
