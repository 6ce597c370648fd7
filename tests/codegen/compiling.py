"""The C of a program without compiling it, and compiling the C text of templates: sets of instructions, and the
sanitizers.

In: a program; or functions in C. Out: its C; or a shared object, or a program that has run.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fxlite as fx
from fxlite.codegen.c import templates
from fxlite.codegen.c.emit import CProgram, emit
from fxlite.codegen.c.tiles.library import needed
from fxlite.codegen.kernel.builder import symbol, text_of
from fxlite.codegen.kernel.text import atom
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.cache import (
    cache_folder,
    file_digest,
    find_note,
    intact_file,
    keep_note,
    mark_used,
    publish,
    trim_cache,
)
from fxlite.codegen.runtime.toolchain import cpu_identity, has_bf16_tiles, instruction_sets, march_flag
from fxlite.scalar.index import Index

HEAD = "".join(f"#include <{n}.h>\n" for n in ("stdint", "stdlib", "stdio", "string", "math"))
WARN = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-parameter")
QUICK = "-Og"
"""GCC inlines and folds what tiles are made of, and takes less than half of the time of -O1."""
UNTIMED = "-DSECONDS=0"
"""A self-test runs each case three times, and not for as long as it takes to measure its time."""

#: Those of fxlite, and then those of the suite (tests/conftest.py).
OPTIMIZED = ("-O3", *os.environ.get("FXLITE_CFLAGS", "").split())

FLAGS = {
    "native": (*OPTIMIZED, march_flag(), "-fopenmp"),
    "native, no OpenMP": (QUICK, march_flag()),
    "AVX2": (QUICK, "-march=haswell", "-fopenmp"),
    "SSE2": (QUICK,),
}
SANITIZED = (
    "-O0",  # twice as quick as -O1, which runs half as long
    "-g1",
    "-fopenmp",
    "-Wno-cast-function-type",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-sanitize=pointer-overflow",  # takes a third of the time; what is read through pointers is checked
    "--param=asan-instrumentation-with-call-threshold=0",  # checks are calls: quicker to compile
)

NOT_CHECKED = '__attribute__((no_sanitize("address", "undefined"), optimize("O1")))'
"""Of the twins and what compares: they take four times as long checked, or not optimized."""

FILLED = """
NOT_CHECKED static void *filled(long count, int item)
{
    static uint64_t state = 1;
    char *data = malloc(count * item);
    for (long i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const double value = (double)(state >> 40) / (1 << 23) - 1;
        if (item == 4)
            ((float *)data)[i] = value;
        else if (item == 8)
            ((double *)data)[i] = value;
        else
            data[i] = value > -0.3;
    }
    return data;
}
""".replace("NOT_CHECKED", NOT_CHECKED)
"""C text: memory of `count` floats or doubles from -1 to 1, or of masks that mostly hold 1."""

DIFFERING = """
NOT_CHECKED static int differing(const void *y, const void *z, long count, int item)
{
    int differing = 0;
    for (long i = 0; i < count; i++) {
        const double u = item == 4 ? ((float *)y)[i] : ((double *)y)[i];
        const double v = item == 4 ? ((float *)z)[i] : ((double *)z)[i];
        differing += !(fabs(u - v) <= 1e-4 * (1 + fabs(v)));
    }
    return differing;
}
""".replace("NOT_CHECKED", NOT_CHECKED)
"""C text: how many of `count` floats or doubles are not nearly those of a twin."""


def emitted(program: Any, *types: Any, matmul_precision: str = "highest", **options: Any) -> CProgram:
    """What `fx.compile` gives to the C compiler, for tests that read it and do not run it; compiling takes most of the
    time. ``options`` are those of `fx.symbolic_trace`."""
    module = program if isinstance(program, fx.GraphModule) else fx.symbolic_trace(program, *types, **options)
    optimized, _ = optimize(module, False, templates.claims, matmul_precision, tiles=has_bf16_tiles())
    return emit(optimized, matmul_precision=matmul_precision)


def c_file(program: Any, *types: Any, **options: Any) -> str:
    """The C file among what is :func:`emitted`: its kernels and what calls them."""
    made = emitted(program, *types, **options)
    return made.sources[f"{made.name}.c"]


def with_tiles(functions: str, head: str = HEAD) -> str:
    """A translation unit of functions, behind what they call."""
    return f"{head}{needed(functions)}{functions}"


def flags_of(instructions: str) -> tuple[str, ...]:
    """The compiler's flags for a key of FLAGS, or for "AVX-512 without" what came later; skips the
    test where they cannot run."""
    without = instructions not in FLAGS
    needed = {"AVX2": "avx2"}.get(instructions, "avx512bw" if without else "")
    if needed and needed not in instruction_sets():
        pytest.skip(f"no {needed} here")
    return (*OPTIMIZED, "-march=skylake-avx512", "-fopenmp") if without else FLAGS[instructions]


def flag_of(march: str) -> str:
    """The compiler's flag for "native", the processor that fxlite compiles for, or another one."""
    return march_flag() if march == "native" else f"-march={march}"


def compile_c(text: str, target: Path, *flags: str) -> Path:
    """Compile; warnings are errors."""
    compiled(("gcc", *WARN, *flags), text, target)
    return target


def compiled(command: Sequence[str], text: str, target: Path) -> str:
    """Have a compiler make a file of a C text, and return what it says. The text includes files of the system, those
    that the command names, and those of folders that it names."""

    def run() -> tuple[str, list[Path]]:
        source = target.with_suffix(".c")
        source.write_text(text)
        done = subprocess.run([*command, str(source), "-o", str(target), "-lm"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr, [target]

    named = [(argument, _content(argument.removeprefix("-I"))) for argument in command[1:]]
    return _kept([_identity(command[0]), text, target.name, named], target.parent, run)


def made(target: str, folder: Path, compiler: Sequence[str], *given: str) -> None:
    """Have ``make`` build a target of a saved folder, whatever is built already, with these variables."""
    run_in(folder, compiler, ["make", "-B", target, f"CC={' '.join(compiler)}", *given])


def make_test(
    folder: Path, *given: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``make test`` in a saved folder with these variables; what is compiled for it is built once, as by
    :func:`run_in`."""
    (test,) = (path.stem for path in folder.glob("*_selftest.c"))
    run_in(folder, ("cc",), ["make", "-B", test, *given], environment)
    return subprocess.run(["make", "test", *given], cwd=folder, env=environment, capture_output=True, text=True)


def run_in(
    folder: Path, compiler: Sequence[str], command: Sequence[str], environment: Mapping[str, str] | None = None
) -> None:
    """Run a command in a folder, whose files are all that it compiles; what it builds is there afterwards."""

    def times() -> dict[str, int]:
        return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}

    def run() -> tuple[str, list[Path]]:
        before = times()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
        return done.stderr, [folder / name for name, time in times().items() if before.get(name) != time]

    files = [(name, file_digest(folder / name)) for name in sorted(times())]
    _kept([_identity(*compiler), command, environment, files], folder, run)


def _kept(facts: list[Any], folder: Path, run: Callable[[], tuple[str, list[Path]]]) -> str:
    """What ``run`` says, which builds files in a folder. If the same was done for this processor before, as ``facts``
    tell, the files are copied from fxlite's cache."""
    place = cache_folder() / hashlib.sha256(json.dumps([cpu_identity(), facts]).encode()).hexdigest()[:32]
    known = find_note(place, "build")
    if known is not None:
        files = {name: intact_file(place, f"{number}.made") for number, name in enumerate(known["files"])}
        if None not in files.values():
            mark_used(place)
            now = time.time_ns()
            for name, file in files.items():
                (folder / name).unlink(missing_ok=True)  # as a linker does: it may be a library that is loaded
                shutil.copyfile(file or name, folder / name)
                (folder / name).chmod(0o755)
                os.utime(folder / name, ns=(now, now))  # for make, none of them is older than another
            return str(known["said"])
    said, built = run()
    for number, file in enumerate(built):
        publish(file.read_bytes(), place, f"{number}.made")
    keep_note(place, "build", {"said": said, "files": [str(file.relative_to(folder)) for file in built]})
    trim_cache(cache_folder())
    return said


def _content(argument: str) -> list[str]:
    """Digests of a file, or of all headers in a folder, if this is the path of one."""
    path = Path(argument or os.devnull)
    files = sorted(path.rglob("*.h")) if path.is_dir() else [path] if path.is_file() else []
    return [file_digest(file) for file in files]


@cache
def _identity(*compiler: str) -> list[Any]:
    """What differs between compilers, and versions of one."""
    found = shutil.which(compiler[0])
    assert found is not None, f"{compiler[0]} is not installed"
    told = subprocess.run([*compiler, "--version"], capture_output=True, text=True)
    return [*compiler, os.stat(found).st_size, os.stat(found).st_mtime_ns, told.stdout]


def shared_library(text: str, target: Path, *flags: str) -> ctypes.CDLL:
    """Compile and load."""
    return ctypes.CDLL(str(compile_c(text, target, "-shared", "-fPIC", *flags)))


def run_sanitized(program: Path, **variables: str) -> None:
    """Run what was compiled with SANITIZED, with these variables of the environment; it must end
    with 0."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", **variables}
    subprocess.run([str(program)], check=True, env=environment)


def evaluate(size: Index, /, **names: int) -> int:
    """The value of Rendered.workspace, as the caller computes it."""
    text = text_of(size).replace("/", "//")
    return int(eval(text, {"fx_min": min, "fx_max": max}, names))


def expression(text: str) -> Index:
    """A C expression >= 0 as an index."""
    return Index.of(int(text)) if text.isdecimal() else symbol(atom(text))
