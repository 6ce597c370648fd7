"""How a saved C folder is built and called: make, CMake, pkg-config, C++, Python."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from tests.codegen.compiling import QUICK, UNTIMED, make_test, run_in

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"]


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def bundle(tmp_path: Path) -> tuple[Path, Any]:
    """A folder, and the function that it has."""
    function = fx.compile(nn.Sequential(nn.Linear(40, 64), nn.GELU()).eval(), x="f32[3,40]")
    function.save(tmp_path / "out")
    return tmp_path / "out", function


def test_one_program_for_all_processors(bundle: tuple[Path, Any]) -> None:
    """It takes no instruction that a processor lacks."""
    folder, _ = bundle
    if platform.machine() != "x86_64":
        pytest.skip("this machine is no x86-64")
    needs("make", "cc")
    given = ["PORTABLE=1", "EMBED=1", f"CFLAGS=-O1 {UNTIMED} {' '.join(WARNINGS)}", "OPENMP=-fopenmp"]
    done = make_test(folder, *given)
    assert "OK: 1 of 1" in done.stdout, done.stdout + done.stderr
    (folder / "sequential_weights.bin").unlink()  # they are in the program
    assert "OK: 1 of 1" in run("./sequential_selftest", folder=folder)
    symbols = run("nm", "sequential_v4.o", folder=folder)
    assert "sequential_run_v4" in symbols and "sequential_run\n" not in symbols
    needs("qemu-x86_64")
    for processor in ("qemu64", "Haswell"):
        run("qemu-x86_64", "-cpu", processor, "./sequential_selftest", "1", folder=folder)


CALLER = """
#include <cstdint>
#include <cstdio>
#include <vector>

#include "sequential.h"

extern "C" const unsigned char sequential_embedded_weights[];

int main() {
    std::vector<float> x(3 * 40, 0.5f), y(3 * 64);
    const std::int64_t bytes = sequential_workspace_bytes(1);
    std::vector<unsigned char> memory(static_cast<std::size_t>(bytes) + 64);
    unsigned char *workspace = memory.data();
    while (reinterpret_cast<std::uintptr_t>(workspace) % 64 != 0) ++workspace;
    fx_error error;
    const unsigned char *const weights = sequential_embedded_weights;
    if (sequential_run(x.data(), y.data(), weights, workspace, 1, &error) != 0) return 1;
    for (float value : y) std::printf("%.9g\\n", static_cast<double>(value));
    return 0;
}
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_cmake_and_cpp(compiler: str, bundle: tuple[Path, Any], tmp_path: Path) -> None:
    """One of both with code for several processors."""
    folder, function = bundle
    needs("cmake", compiler)
    is_portable = compiler == "g++" and platform.machine() == "x86_64"
    run(
        "cmake",
        "-S",
        folder,
        "-B",
        "build",
        "-DEMBED=ON",
        f"-DCMAKE_C_FLAGS_RELEASE={QUICK}",
        "-DCMAKE_INSTALL_PREFIX=there",
        f"-DPORTABLE={'ON' if is_portable else 'OFF'}",
        folder=tmp_path,
    )
    run("cmake", "--build", "build", folder=tmp_path)
    run("ctest", "--output-on-failure", folder=tmp_path / "build")
    symbols = run("nm", "build/libsequential.a", folder=tmp_path) if shutil.which("nm") else ""
    assert ("T sequential_run_v4" in symbols) == (is_portable and bool(symbols))
    run("cmake", "--install", "build", folder=tmp_path)
    (tmp_path / "caller.cpp").write_text(CALLER)
    run(
        compiler,
        "-std=c++11",
        *WARNINGS,
        "-Ithere/include",
        "caller.cpp",
        "-Lthere/lib",
        "-lsequential",
        "-lm",
        "-fopenmp" if compiler == "g++" else "-lgomp",
        "-o",
        "caller",
        folder=tmp_path,
    )
    printed = np.array(run("./caller", folder=tmp_path).split(), np.float32).reshape(3, 64)
    np.testing.assert_allclose(printed, function(np.full((3, 40), 0.5, np.float32)), rtol=1e-5)


def test_pkg_config_and_python(bundle: tuple[Path, Any], tmp_path: Path) -> None:
    """`make install`, and a call of the library by ctypes with what was installed."""
    folder, function = bundle
    needs("make", "cc")
    run_in(folder, ("cc",), ["make", "shared", f"CFLAGS={QUICK}"])
    run("make", "install", f"PREFIX={tmp_path}/there", f"CFLAGS={QUICK}", folder=folder)
    there = tmp_path / "there"
    if shutil.which("pkg-config"):
        path = there / "lib/pkgconfig"
        flags = run("env", f"PKG_CONFIG_PATH={path}", "pkg-config", "--cflags", "--libs", "sequential", folder=tmp_path)
        assert flags.split() == [f"-I{there}/include", f"-L{there}/lib", "-lsequential", "-lm"]
    library = ctypes.CDLL(str(there / "lib/libsequential.so"))
    library.sequential_workspace_bytes.restype = ctypes.c_int64

    def aligned(data: bytes) -> np.ndarray:
        memory = np.empty(len(data) + 64, np.uint8)
        start = -memory.ctypes.data % 64
        memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return memory[start : start + len(data)]

    weights = aligned((there / "share/sequential/sequential_weights.bin").read_bytes())
    workspace = aligned(bytes(library.sequential_workspace_bytes(1)))
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    y = np.empty((3, 64), np.float32)
    arrays = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, weights, workspace)]
    error = (ctypes.c_int64 * 4)()
    assert library.sequential_run(*arrays, 1, error) == 0
    np.testing.assert_allclose(y, function(x), rtol=1e-5, atol=1e-6)


def test_doxygen(bundle: tuple[Path, Any]) -> None:
    """It finds documentation of all that the headers declare."""
    needs("doxygen")
    folder, _ = bundle
    (folder / "Doxyfile").write_text(
        "INPUT = sequential.h sequential_weights.h\nGENERATE_LATEX = NO\nGENERATE_HTML = NO\n"
        "GENERATE_XML = YES\nQUIET = YES\nEXTRACT_STATIC = YES\nWARN_NO_PARAMDOC = YES\n"
        "WARN_AS_ERROR = FAIL_ON_WARNINGS\nJAVADOC_AUTOBRIEF = YES\n"
    )
    run("doxygen", folder=folder)
