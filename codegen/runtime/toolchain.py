"""Which C compiler to call, with which flags; and where compiled code is kept.

In comes the environment: `$CC`, `$PATH`, `$FXLITE_CACHE`. Out come a `Compiler` (its command,
version, and whether OpenMP works), whose identity goes into the key of each cached build, and the
flags that every build uses on any processor (`target.py` adds those that name it). On a second
start nothing here runs a process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fxlite.base.errors import FxliteError
from fxlite.codegen.runtime.cache import cache_folder, find_note, keep_note

# What compiles every file; `target.compile_flags` adds those that name the processor. Never
# -ffast-math: NaN, infinity and -0.0 must come out right.
COMPILE_FLAGS = (
    "-std=gnu11",  # C11 with GCC's vector types and statement expressions
    "-O3",
    "-fPIC",
    "-fno-math-errno",  # sqrtf is an instruction; nobody reads errno
    "-fno-trapping-math",  # values stay exact; only the status flags of skipped lanes may differ
    "-fwrapv",  # signed integers wrap, as NumPy's do
    "-fno-semantic-interposition",  # calls within a file may be inlined although exported
    "-Werror=implicit-function-declaration",  # a missing helper is found here, not when loading
    "-pipe",  # no assembly text in /tmp
)
# What makes a shared object. -Bsymbolic: a kernel called `index` or `round` is ours, not libc's.
SHARED_FLAGS = (
    ("-shared", "-undefined", "dynamic_lookup")
    if sys.platform == "darwin"
    else ("-shared", "-Wl,-Bsymbolic")
)
OPENMP_FLAG = "-fopenmp"
# With team.c in place of libgomp. Its threads outlive every call: the code is never unloaded.
TEAM_LIBRARIES = ("-fno-openmp", "-pthread", "-Wl,-z,nodelete", "-lm")

_OPENMP_PROBE = """\
int main(void) {
    int total = 0;
#pragma omp parallel for reduction(+ : total)
    for (int i = 0; i < 8; i++) total += i;
    return total != 28;
}
"""
_NOT_FOUND = """\
no C compiler: {reason}. One of these helps:
  - install gcc or clang (Debian: apt-get install gcc libc6-dev)
  - pip install ziglang
  - set CC to the command of a compiler
  - use backend="python", which needs none"""


class CompilerNotFound(FxliteError, RuntimeError):
    """There is no C compiler that runs."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler that runs: `command` starts its command line, `openmp` says -fopenmp works."""

    command: tuple[str, ...]
    version: str
    openmp: bool
    identity: str  # changes when the compiler is replaced or upgraded

    @property
    def is_gcc(self) -> bool:
        """Whether its code calls OpenMP as GCC's does, on Linux."""
        return sys.platform == "linux" and "Free Software Foundation" in self.version


def find_compiler() -> Compiler:
    """`$CC`, which may hold arguments, else the first of gcc, clang, cc, zig that runs.

    Raises `CompilerNotFound`, whose message says what to install or set.
    """
    return _find_compiler(
        os.environ.get("CC", ""), os.environ.get("PATH", os.defpath), str(cache_folder())
    )


@cache
def _find_compiler(named: str, search_path: str, folder: str) -> Compiler:
    if named.strip():
        try:
            command = tuple(shlex.split(named))
        except ValueError as error:  # a quotation that is not closed
            reason = f"CC={named!r} is no command line: {error}"
            raise CompilerNotFound(_NOT_FOUND.format(reason=reason)) from None
        compiler = _examine(command, search_path, folder)
        if compiler is None:
            raise CompilerNotFound(_NOT_FOUND.format(reason=f"CC={named!r} does not run"))
        return compiler
    candidates: list[tuple[str, ...]] = [("gcc",), ("clang",), ("cc",), ("zig", "cc")]
    if importlib.util.find_spec("ziglang"):
        candidates.append((sys.executable, "-m", "ziglang", "cc"))
    for command in candidates:
        if compiler := _examine(command, search_path, folder):
            return compiler
    raise CompilerNotFound(_NOT_FOUND.format(reason="found no gcc, clang, cc or zig in PATH"))


def _examine(command: Sequence[str], search_path: str, folder: str) -> Compiler | None:
    """What is known of a compiler, asked once per compiler binary and kept in the cache folder."""
    path = shutil.which(command[0], path=search_path)
    if path is None:
        return None
    # Every word may be a program: CC="ccache gcc".
    programs = filter(None, (shutil.which(word, path=search_path) for word in command))
    facts = [(os.path.realpath(p), os.stat(p).st_mtime_ns, os.stat(p).st_size) for p in programs]
    identity = hashlib.sha256(repr((*command[1:], facts)).encode()).hexdigest()
    notes, full_command = Path(folder, "compilers"), (path, *command[1:])
    match find_note(notes, identity):
        case {"version": str(known), "openmp": bool(openmp)} if known.strip():
            return Compiler(full_command, known, openmp, identity)
    version = _version(full_command)
    if version is None:
        return None
    compiler = Compiler(full_command, version, _openmp_works(full_command), identity)
    keep_note(notes, identity, {"version": version, "openmp": compiler.openmp})
    return compiler


def _version(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _openmp_works(command: Sequence[str]) -> bool:
    """Whether a program with a parallel loop compiles, links and runs."""
    try:
        with tempfile.TemporaryDirectory(prefix="fxlite-probe-") as folder:
            Path(folder, "probe.c").write_text(_OPENMP_PROBE, encoding="utf-8")
            build = [*command, OPENMP_FLAG, "probe.c", "-o", "probe"]
            if subprocess.run(build, cwd=folder, capture_output=True).returncode != 0:
                return False
            return subprocess.run([str(Path(folder, "probe"))], cwd=folder).returncode == 0
    except OSError:
        return False


def usable_cpus() -> int:
    """The number of CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
