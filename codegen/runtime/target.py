"""The processor that code is made for: this machine's, or the one that `$FXLITE_MARCH` names.

In come `/proc/cpuinfo`, the sizes of the caches, and `$FXLITE_MARCH`, one of the names that the C
compiler knows for ``-march=`` (``-mcpu=`` on ARM and POWER): ``haswell``, ``x86-64-v3``. Out come
the compiler's flags, the processor's sets of instructions, by which kernels and cost models choose,
and the text that tells one processor from another in keys of the cache. Whatever depends on the
processor asks here, so that the variable makes this machine compile, predict and measure as one
with fewer instructions does.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path

from fxlite.base.errors import FxliteError
from fxlite.codegen.runtime.toolchain import COMPILE_FLAGS, find_compiler

_ARM_OR_POWER = platform.machine().lower() in ("aarch64", "arm64", "ppc64le")
_FLAG = "-mcpu=" if _ARM_OR_POWER else "-march="


class UnknownProcessor(FxliteError, ValueError):
    """`$FXLITE_MARCH` names no processor that the C compiler knows."""


def march() -> str:
    """The name of the processor that code is made for: `$FXLITE_MARCH`, else ``native``.

    Raises `UnknownProcessor` for what cannot be such a name."""
    name = os.environ.get("FXLITE_MARCH", "").strip() or "native"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise UnknownProcessor(
            f"FXLITE_MARCH={name!r} is no name of a processor; give one that the C compiler knows "
            f"for {_FLAG}, such as x86-64-v3 or haswell, or unset it for this machine's"
        )
    return name


def march_flag() -> str:
    """The compiler's flag for that processor: ``-march=native``."""
    return _FLAG + march()


def compile_flags() -> tuple[str, ...]:
    """What compiles every file: the flags for any processor, and those for this one.

    Raises as `instruction_sets`."""
    if march() != "native":
        instruction_sets()
    l2 = cache_sizes().get(2) or 1 << 20
    return (*COMPILE_FLAGS, march_flag(), f"-DL2_BYTES={l2}")  # by which products are cut


@cache
def cache_sizes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Bytes of the first CPU's caches for data, by level; empty where the system does not say."""
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
    """The sets of instructions that code may use, as Linux calls them without underscores:
    ``avx2``, ``avx512vnni``, ``amxbf16``. Those of this machine, or those that the compiler takes
    the processor of `$FXLITE_MARCH` to have.

    Raises `UnknownProcessor`, and `CompilerNotFound` where a processor is named."""
    if march() == "native":
        return frozenset(word.replace("_", "") for word in _machine().split())
    return _compiled_for(find_compiler().command, march_flag())


@cache
def _compiled_for(command: tuple[str, ...], flag: str) -> frozenset[str]:
    """The names of the macros that the compiler defines with a flag, in lower case and without
    underscores: GCC and Clang call them as Linux does (``__AVX512VNNI__``)."""
    asked = subprocess.run(
        [*command, flag, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True
    )
    if asked.returncode != 0:
        reason = next(iter(asked.stderr.strip().splitlines()), "no reason given")
        raise UnknownProcessor(
            f"FXLITE_MARCH={march()!r}: {command[0]} knows no such processor ({reason}); "
            "unset it for this machine's"
        )
    names = re.findall(r"^#define __(\w+?)__ 1$", asked.stdout, re.MULTILINE)
    return frozenset(name.replace("_", "").lower() for name in names)


def has_bf16_tiles() -> bool:
    """Whether the processor multiplies tiles of bf16 (AMX), and the system lets programs do so."""
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
    """What the processor is called, and how it is used where `$FXLITE_MARCH` says so."""
    name = platform.processor() or platform.machine()
    for line in _machine().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
    return name if march() == "native" else f"{name}, used as {march()}"
