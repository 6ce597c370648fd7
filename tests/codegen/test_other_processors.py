"""Saved C folders on other processors than this one, judged by their own self-tests.

For aarch64 (NEON) they are built by a cross compiler and run by qemu's user emulation; besides, as
every x86-64 machine can run them (SSE2). Both without OpenMP, which the emulation makes slow.
Debian's packages: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fxlite as fx
from tests.codegen.compiling import QUICK, UNTIMED, made
from tests.zoo import ZOO


@dataclass(frozen=True)
class Processor:
    """How to compile for a processor, and what to run its programs with."""

    compiler: str
    architecture: str
    emulator: tuple[str, ...] = ()

    def missing(self) -> str:
        """The first program that is needed and not installed; empty if all are."""
        needed = ("make", self.compiler, *self.emulator[:1])
        return next((p for p in needed if shutil.which(p) is None), "")


PROCESSORS = {
    "aarch64": Processor("aarch64-linux-gnu-gcc", "-march=armv8-a", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")),
    "x86-64": Processor("cc", "-march=x86-64"),
}


@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
@pytest.mark.parametrize("name", PROCESSORS)
def test_self_test_passes(name: str, entry, tmp_path: Path) -> None:
    processor = PROCESSORS[name]
    if missing := processor.missing():
        pytest.skip(f"{missing} is not installed")
    if not processor.emulator and platform.machine() != name.replace("-", "_"):
        pytest.skip(f"this machine is no {name}")
    program, types, _ = entry.make()
    function = fx.compile(fx.symbolic_trace(program, *types), backend="c")
    folder = tmp_path / "bundle"
    function.save(folder)
    test = f"{function.program.name}_selftest"
    made(test, folder, (processor.compiler,), "OPENMP=", f"CFLAGS={QUICK} {UNTIMED} {processor.architecture}")
    done = subprocess.run([*processor.emulator, f"./{test}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "OK:" in done.stdout


_CALLER = """
#include <stdio.h>
#include "small.h"
int main(void)
{
    fx_error error;
    const int code = small_run(0, 0, 1, 0, 0, 1, &error); /* touches nothing */
    printf("%d %d", code, error.code);
    return 0;
}
"""


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not (shutil.which("qemu-x86_64") and shutil.which("make")),
    reason="needs an x86-64 machine, make and qemu-x86_64",
)
def test_a_lesser_processor_is_refused(tmp_path: Path) -> None:
    """A model built for this machine says so, on one without its instructions, and runs nothing."""

    def small(x: Any) -> Any:
        return x * 2

    fx.compile(small, "f32[B,3]").save(tmp_path / "out")
    folder = tmp_path / "out"
    (folder / "caller.c").write_text(_CALLER)
    make = ["make", "-C", str(folder), "small.o", "OPENMP=", "CFLAGS=-O2 -march=x86-64-v3"]
    subprocess.run(make, check=True, capture_output=True)
    build = ["cc", "-static", "-march=x86-64", "caller.c", "small.o", "-o", "caller", "-lm"]
    subprocess.run(build, check=True, cwd=folder)
    run = ["qemu-x86_64", "-cpu", "qemu64", "./caller"]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True)
    assert done.stdout == "3 3", done.stderr
