"""The C compiler and its flags, and the processor for which code is generated: that of this machine,
or the one that `$FXLITE_MARCH` names.

In comes the environment: `$CC`, `$PATH`, `$FXLITE_CACHE`. Out come a `Compiler` (its command, its
version, and whether OpenMP works), whose identity is part of the key of each cached build, and the flags
that every build uses. After the first start nothing here runs a process.

In come `/proc/cpuinfo`, the sizes of the caches, and `$FXLITE_MARCH`, a name that the C compiler
accepts for ``-march=`` (``-mcpu=`` on ARM and POWER): ``haswell``, ``x86-64-v3``. Out come the
compiler's flags, the processor's instruction sets, by which kernels and cost models are chosen, and the
text that distinguishes processors in keys of the cache. Everything that depends on the processor asks
here, so that the variable makes this machine compile, predict and measure like one with fewer
instructions. `$FXLITE_CFLAGS` adds flags to every build, such as ``-g`` for a debugger.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
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

_ARM_OR_POWER = platform.machine().lower() in ("aarch64", "arm64", "ppc64le")
_FLAG = "-mcpu=" if _ARM_OR_POWER else "-march="
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")


class UnknownProcessor(FxliteError, ValueError):
    """`$FXLITE_MARCH` names no processor that the C compiler knows."""


def march() -> str:
    """The name of the processor for which code is generated: `$FXLITE_MARCH`, or else ``native``.

    Raises `UnknownProcessor` for text that cannot be such a name."""
    name = os.environ.get("FXLITE_MARCH", "").strip() or "native"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise UnknownProcessor(
            f"FXLITE_MARCH={name!r} is not the name of a processor; give one that the C compiler knows "
            f"for {_FLAG}, such as x86-64-v3 or haswell, or unset it for this machine's"
        )
    return name


def march_flag() -> str:
    """The compiler's flag for that processor: ``-march=native``."""
    return _FLAG + march()


def compile_flags() -> tuple[str, ...]:
    """The flags for every compilation: those for any processor, those for this one, and those in
    `$FXLITE_CFLAGS`, separated by spaces.

    Raises what `instruction_sets` and `find_compiler` raise."""
    if march() != "native":
        instruction_sets()
    l2 = cache_sizes().get(2) or 1 << 20
    own = GCC_FLAGS if find_compiler().is_gcc else ()
    cut = f"-DL2_BYTES={l2}"  # products are divided into blocks by it
    wide = WIDE_FLAGS if _IS_X86 else ()
    return (*COMPILE_FLAGS, *own, march_flag(), *wide, cut, *os.environ.get("FXLITE_CFLAGS", "").split())


@cache
def cache_sizes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Bytes of the first CPU's data caches, by level; empty if the system does not report them."""
    sizes: dict[int, int] = {}
    for folder in caches.glob("index*"):
        try:
            if (folder / "type").read_text(encoding="utf-8").strip() == "Instruction":
                continue
            level, text = (
                int((folder / "level").read_text(encoding="utf-8")),
                (folder / "size").read_text(encoding="utf-8"),
            )
            factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text.strip()[-1:], 1)
            sizes[level] = int(text.strip().rstrip("KMG")) * factor
        except (OSError, ValueError):
            continue
    return sizes


def instruction_sets() -> frozenset[str]:
    """The instruction sets that code may use, with Linux's names without underscores: ``avx2``,
    ``avx512vnni``, ``amxbf16``. They are those of this machine, or those that the compiler assumes for
    `$FXLITE_MARCH`.

    Raises `UnknownProcessor`, and `CompilerNotFound` if a processor is named."""
    if march() == "native":
        return frozenset(word.replace("_", "") for word in _machine().split())
    return _compiled_for(find_compiler().command, march_flag())


@cache
def _compiled_for(command: tuple[str, ...], flag: str) -> frozenset[str]:
    """The names of the macros that the compiler defines with a flag, in lower case and without
    underscores: GCC and Clang name them as Linux does (``__AVX512VNNI__``)."""
    asked = subprocess.run([*command, flag, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True)
    if asked.returncode != 0:
        reason = next(iter(asked.stderr.strip().splitlines()), "no reason given")
        raise UnknownProcessor(
            f"FXLITE_MARCH={march()!r}: {command[0]} knows no such processor ({reason}); unset it for this machine's"
        )
    names = re.findall(r"^#define __(\w+?)__ 1$", asked.stdout, re.MULTILINE)
    return frozenset(name.replace("_", "").lower() for name in names)


def has_bf16_tiles() -> bool:
    """Whether the processor multiplies tiles of bf16 (AMX), and the system lets programs use them."""
    return "amxbf16" in instruction_sets()


def cpu_identity() -> str:
    """Text that differs between processors for which the compiler may make different code."""
    return _machine() if march() == "native" else f"{_machine()}\n{march_flag()}"


@cache
def _machine() -> str:
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features")
    lines = [platform.machine(), platform.system()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            for line in stream:
                if not line.strip():
                    break  # the first CPU is enough, and the rest is slow to read
                if line.startswith(("CPU ", *wanted)):
                    lines.append(line.strip())
    except OSError:
        lines.append(platform.processor())
    return "\n".join(lines)


def processor_name() -> str:
    """The name of the processor, and how `$FXLITE_MARCH` restricts its use, if it does."""
    name = platform.processor() or platform.machine()
    for line in _machine().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
    return name if march() == "native" else f"{name}, used as {march()}"


# The flags for every file; `target.compile_flags` adds those that name the processor. Never
# -ffast-math: NaN, infinity and -0.0 must be computed correctly.
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
# -O3 of GCC tiles loops over rows, which takes the accumulators of a short sum out of registers: rows of
# 32 numbers took four times as long.
GCC_FLAGS = ("-fno-loop-unroll-and-jam",)
# In loops, compilers use half of the width of AVX-512's registers on Intel's processors, lest their clock
# slows down; but the tiles, which take most of the time, use the full width (EfficientNet B0: 0.84 of the time).
WIDE_FLAGS = ("-mprefer-vector-width=512",)
# The flags for a shared object. -Bsymbolic: a kernel called `index` or `round` is ours, not libc's.
SHARED_FLAGS = (
    ("-shared", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared", "-Wl,-Bsymbolic")
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


# -- the compiler ----------------------------------------------------------------------------------
class CompilerNotFound(FxliteError, RuntimeError):
    """There is no C compiler that runs."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler that runs: `command` starts its command line; `openmp` says whether -fopenmp works."""

    command: tuple[str, ...]
    version: str
    openmp: bool
    identity: str  # changes when the compiler is replaced or upgraded

    @property
    def is_gcc(self) -> bool:
        """Whether its code calls OpenMP as GCC's does, on Linux."""
        return sys.platform == "linux" and "Free Software Foundation" in self.version


def find_compiler() -> Compiler:
    """`$CC`, which may contain arguments, or else the first of gcc, clang, cc, zig that runs.

    Raises `CompilerNotFound`, whose message says what to install or set.
    """
    return _find_compiler(os.environ.get("CC", ""), os.environ.get("PATH", os.defpath), str(cache_folder()))


@cache
def _find_compiler(named: str, search_path: str, folder: str) -> Compiler:
    if named.strip():
        try:
            command = tuple(shlex.split(named))
        except ValueError as error:  # a quotation that is not closed
            reason = f"CC={named!r} is not a command line: {error}"
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
    """Facts about a compiler, found once per compiler binary and kept in the cache folder."""
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
