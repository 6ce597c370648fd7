"""What a saved C folder promises to C compilers: strict C99 without warnings, and a self-test that
passes whatever compiler and processor it is built for.

What is not installed is skipped. Debian's packages: gcc-11, clang, tcc, gcc-aarch64-linux-gnu,
gcc-arm-linux-gnueabihf, gcc-riscv64-linux-gnu, qemu-user; the package index's: ziglang, wasmtime
(`pip install fxlite[compilers]`).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c import emit as c
from fxlite.codegen.c import templates
from fxlite.codegen.c.header import weights_header
from fxlite.codegen.c.selftest import selftest_source
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.toolchain import instruction_sets
from tests.codegen.compiling import QUICK, UNTIMED, compile_c, made, run_in, shared_library
from tests.codegen.golden_cases import CASES
from tests.codegen.test_rolling import GPT, Cached
from tests.zoo import ZOO

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-pedantic", "-Werror")


def routines(z: Any, x: Any) -> Any:
    """Transforms, sorting and factors of matrices."""
    transforms = np.fft.ifft(np.fft.fft(z) * 2), np.fft.rfft(x, n=11)
    return *transforms, np.argsort(x, axis=0), *np.linalg.qr(x), np.linalg.inv(x.T @ x)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of folders: the C of every golden program and of the zoo, and some self-tests."""
    programs = [
        (f"golden_{case.name}", case.module(), case.types, case.precision, case.profile)
        for case in CASES
        if "c" in case.targets
    ]
    programs += [(f"zoo_{e.name}", *e.make()[:2], "highest", False) for e in ZOO]
    cached = (Cached().eval(), ["f32[B,T,8]", "f32[4,2,B,2,S,4]"])
    programs += [("cached", *cached, "highest", False), ("gpt", GPT(12).eval(), ["i64[B,T]"], "highest", False)]
    programs += [("routines", routines, ["c128[4,8]", "f32[5,4]"], "highest", False)]
    root = tmp_path_factory.mktemp("sources")
    for number, (label, program, types, precision, profile) in enumerate(programs):
        module = fx.symbolic_trace(program, *types)
        optimized, _ = optimize(module, False, templates.claims, precision)
        made = c.emit(optimized, profile=profile, matmul_precision=precision)
        (root / label).mkdir()
        for file, text in made.sources.items():
            (root / label / file).write_text(text)
        if number % 10 == 0:
            text = selftest_source(made, make_cases(module)[-2:])
            (root / label / f"{made.name}_selftest.c").write_text(text)
            text = weights_header(made.name, 1, "0")
            (root / label / f"{made.name}_weights.h").write_text(text)
    return root


def check(compiler: str, flags: tuple[str, ...], root: Path, files: list[Path]) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    names = [str(file.relative_to(root)) for file in files]
    run_in(root, (compiler,), [compiler, *WARNINGS, *flags, "-fsyntax-only", *names])


@pytest.mark.slow
@pytest.mark.parametrize("compiler, flags", [("gcc", ("-fopenmp",)), ("clang", ())])
def test_no_warnings(compiler: str, flags: tuple[str, ...], sources: Path) -> None:
    check(compiler, flags, sources, sorted(sources.glob("*/*.c")))


@pytest.mark.parametrize(
    "compiler, flag",
    [
        ("gcc", "-march=x86-64-v3"),
        ("gcc", "-march=sapphirerapids"),
        ("gcc", "-DVECTOR_BYTES=4"),
        ("clang", "-march=x86-64-v3"),
        ("clang", "-DVECTOR_BYTES=4"),
    ],
)
def test_no_warnings_with_other_instructions(compiler: str, flag: str, sources: Path) -> None:
    """Where there are several ways to compute a thing, all of them: in as many programs as reach
    all tiles."""
    known: set[str] = set()
    found: list[Path] = []
    for tiles in sorted(sources.glob("*/*_tiles.h"), key=lambda path: -path.stat().st_size):
        text = tiles.read_text()
        defined = set(re.findall(r"^(?:TILE_FUNCTION )?static .*?(\w+)\(", text, re.MULTILINE))
        if "VECTOR" in text and not defined <= known:
            known |= defined
            found += tiles.parent.glob("*.c")
    assert len(known) > 150 and len(found) < 50
    check(compiler, (flag,), sources, found)


def test_what_tests_compile_is_kept_until_anything_of_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path / "cache"))
    header = tmp_path / "include" / "number.h"
    header.parent.mkdir()
    header.write_text("#define NUMBER 1\n")

    def number(name: str, text: str, more: int) -> int:
        flags = (f"-I{header.parent}", f"-DMORE={more}")
        return shared_library(f'#include "number.h"\nint number(void);\n{text}', tmp_path / name, *flags).number()

    text = "int number(void) { return NUMBER + MORE; }\n"
    assert (number("one.so", text, 1), number("two.so", text, 2)) == (2, 3)
    header.write_text("#define NUMBER 5\n")
    assert (number("three.so", text, 1), number("four.so", text.replace("+", "*"), 2)) == (6, 10)
    with pytest.raises(AssertionError, match="unused"):
        compile_c("static int number(void) { return 1; }\n", tmp_path / "five.so", "-shared")
    (tmp_path / "again").mkdir()
    monkeypatch.setattr(subprocess, "run", None)
    assert number("again/three.so", text, 1) == 6


# -- self-tests ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Target:
    """A compiler, its flags, and what runs its programs; `needs` is a set of instructions."""

    compiler: tuple[str, ...]
    flags: str = "-O1"
    emulator: tuple[str, ...] = ()
    needs: str = ""
    openmp: bool = False

    def missing(self) -> str:
        """What is needed and not there; empty if nothing is."""
        if self.needs and self.needs not in instruction_sets():
            return self.needs
        for program in ("make", self.compiler[0], *self.emulator[:1]):
            if shutil.which(program) is None:
                return program
        modules = [word for word in self.compiler + self.emulator if word in MODULES]
        return next((m for m in modules if importlib.util.find_spec(m) is None), "")


MODULES = ("ziglang", "wasmtime")
ZIG = (sys.executable, "-m", "ziglang", "cc")
#: Runs a program for WASI, which sees the files of this folder.
WASM = """
import sys, wasmtime
engine = wasmtime.Engine()
linker, store, wasi = wasmtime.Linker(engine), wasmtime.Store(engine), wasmtime.WasiConfig()
linker.define_wasi()
wasi.inherit_stdout(), wasi.inherit_stderr(), wasi.preopen_dir(".", ".")
store.set_wasi(wasi)
program = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[-1]))
try:
    program.exports(store)["_start"](store)
except wasmtime.ExitTrap as end:
    sys.exit(end.code)
"""


def emulated(processor: str, system: str, flags: str = "") -> Target:
    emulator = (f"qemu-{processor}", "-L", f"/usr/{system}")
    return Target((f"{system}-gcc",), f"{QUICK} {flags}", emulator)


TARGETS = {
    **{f"gcc-{n}": Target((f"gcc-{n}",), QUICK, openmp=True) for n in (9, 10, 11, 12, 13, 14)},
    "clang": Target(("clang",)),
    "tcc": Target(("tcc",)),
    "zig": Target(ZIG),
    "no vectors": Target(("gcc",), f"{QUICK} -DVECTOR_BYTES=4", openmp=True),
    "AVX2": Target(("gcc",), f"{QUICK} -march=x86-64-v3", needs="avx2", openmp=True),
    "AVX-512": Target(("gcc",), f"{QUICK} -march=x86-64-v4", needs="avx512bw", openmp=True),
    "aarch64": emulated("aarch64", "aarch64-linux-gnu"),
    "armv7": emulated("arm", "arm-linux-gnueabihf", "-mfpu=neon"),
    "riscv64": emulated("riscv64", "riscv64-linux-gnu"),
    "wasm32": Target((*ZIG, "-target", "wasm32-wasi"), "-O1", (sys.executable, "-c", WASM, "wasmtime")),
}
PROGRAMS = ("mlp", "integers", "resnet_block")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bundles")
    for entry in ZOO:
        if entry.name in PROGRAMS:
            program, types, _ = entry.make()
            fx.compile(fx.symbolic_trace(program, *types), backend="c").save(root / entry.name)
    return root


def built(target: Target, bundle: Path, *more: str) -> str:
    """The self-test of a saved folder, made for a target."""
    (test,) = (path.stem for path in bundle.glob("*_selftest.c"))
    openmp = "OPENMP=-fopenmp" if target.openmp else "OPENMP="
    made(test, bundle, target.compiler, f"CFLAGS={target.flags} {UNTIMED}", openmp, *more)
    return test


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", TARGETS)
def test_self_test_passes(name: str, program: str, bundles: Path, tmp_path: Path) -> None:
    target = TARGETS[name]
    if missing := target.missing():
        pytest.skip(f"{missing} is missing")
    bundle = shutil.copytree(bundles / program, tmp_path / program)
    test = built(target, bundle)
    command = [*target.emulator, f"./{test}"]
    done = subprocess.run(command, cwd=bundle, capture_output=True, text=True)
    assert done.returncode == 0 and "OK:" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]


def test_windows(bundles: Path, tmp_path: Path) -> None:
    """Programs for Windows compile, and MinGW has all that they call; nothing here runs them. They are
    not linked, since zig would first compile the hundreds of files that MinGW consists of."""
    target = Target((*ZIG, "-target", "x86_64-windows-gnu", "-c"))
    if missing := target.missing():
        pytest.skip(f"{missing} is missing")
    bundle = shutil.copytree(bundles / "integers", tmp_path / "integers")
    (bundle / "Makefile").write_text((bundle / "Makefile").read_text().replace("$(OBJECTS) -o $@ -lm", "-o $@"))
    test = built(target, bundle)
    listed = subprocess.run(["nm", f"{test}", "integers.o"], cwd=bundle, capture_output=True, text=True, check=True)
    symbols = re.findall(r"^[0-9a-f ]* ([A-Za-z]) (\w+)$", listed.stdout, re.MULTILINE)
    defined = {name for kind, name in symbols if kind not in "Uw"}
    assert {"main", "integers_run"} <= defined
    called = {name.removeprefix("__imp_") for kind, name in symbols if kind == "U"} - defined
    assert {"malloc", "printf"} <= called and called <= names_of_mingw()


def names_of_mingw() -> set[str]:
    """The words in the lists of what the C library of Windows exports, and in the sources of MinGW's
    and zig's additions."""
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    library = Path(spec.origin).parent / "lib"
    mingw = library / "libc/mingw"
    texts = [*mingw.glob("lib-common/api-ms-win-crt-*"), *library.glob("c/**/*.zig")]
    texts += [
        file for folder in ("crt", "math", "misc", "stdio", "string") for file in mingw.glob(f"{folder}/**/*.[cS]")
    ]
    return set(re.findall(r"\w+", "\n".join(text.read_text(errors="replace") for text in texts)))


def test_microsofts_dialect(sources: Path, tmp_path: Path) -> None:
    """The syntax of C as Microsoft's compiler has it, whose own headers are not to be had: those of
    MinGW stand in for them."""
    zig = importlib.util.find_spec("ziglang")
    if shutil.which("clang") is None or zig is None or zig.origin is None:
        pytest.skip("clang or ziglang is missing")
    headers = Path(zig.origin).parent / "lib/libc/include/any-windows-any"
    command = [
        "clang",
        "--driver-mode=cl",
        "--target=x86_64-pc-windows-msvc",
        "/Zs",
        "/std:c11",
        "/W3",
        "/WX",
        "-Wvla",
        "-imsvc",
        str(headers),
    ]
    found = [
        path
        for label in ("conv_int8_fused", "gemm_medium", "attention", "conv_winograd", "lstm")
        for path in sources.glob(f"golden_{label}/{label}.c")
    ]
    assert found
    done = subprocess.run([*command, *map(str, found)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
