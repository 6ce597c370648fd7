"""The zoo's emitted C under the address and undefined-behaviour sanitizers, as a plain C
program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.runtime.build import build_executable
from tests.codegen.compiling import UNTIMED, emitted, run_sanitized
from tests.codegen.test_rolling import GPT, MODELS, Layers
from tests.zoo import ZOO

#: As `make sanitize` has it, but unoptimized: these programs are small, and take a quarter of the
#: time to build and run.
FLAGS = ("-ffp-contract=fast", "-O0", "-g1", UNTIMED)
CHECKED = ("-std=c99", *FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def check_clean(function: Any, folder: Path) -> None:
    """Build the self-test of a saved folder under the sanitizers and run it. The cache shares the
    tiles, which are most of what there is to compile, between programs."""
    function.save(folder)
    name = function.program.name
    wanted = (f"{name}.c", f"{name}_selftest.c", *(file.name for file in folder.glob("*.h")))
    texts = {file: (folder / file).read_text() for file in wanted}
    program = build_executable(texts, flags=CHECKED, name=f"{name}_sanitize")
    done = subprocess.run([program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "OK:" in done.stdout


@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
def test_emitted_c_is_clean(entry, tmp_path: Path) -> None:
    program, types, _ = entry.make()
    function = fx.compile(fx.symbolic_trace(program, *types), backend="c")
    check_clean(function, tmp_path / "bundle")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_builds_under_the_sanitizers(tmp_path: Path) -> None:
    function = fx.compile(nn.LayerNorm(5), "f32[B,5]", backend="c")
    function.save(tmp_path / "bundle")
    make = ["make", "-C", str(tmp_path / "bundle"), "sanitize", f"CHECKED=-O0 -g1 {UNTIMED}"]
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "OK:" in done.stdout and "-fsanitize=address,undefined" in done.stdout


@pytest.mark.parametrize("name", ["gpt", "residual", "all_results", "experts"])
def test_loops_over_layers_are_clean(name: str, tmp_path: Path) -> None:
    model = Layers(*MODELS[name][:2]) if name in MODELS else GPT(4)
    types = "f32[B,8]" if name in MODELS else "i64[B,T]"
    function = fx.compile(model.eval(), types, backend="c")
    assert "for (int layer" in function.program.functions
    check_clean(function, tmp_path / "bundle")


class Handed(nn.Module):
    """Results that no kernel stores."""

    def forward(self, x):
        return x, x, x + 1


EMPTY = {
    "lstm": (nn.LSTM(3, 4, batch_first=True), "f32[B,5,3]"),
    "gru": (nn.GRU(3, 4, num_layers=2, batch_first=True), "f32[B,5,3]"),
    "handed": (Handed(), "f32[B,3]"),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16).eval(), "f32[B,6,8]"),
    "convolution": (nn.Conv2d(3, 4, 3, padding=1), "f32[B,3,6,6]"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_call_without_elements_may_have_no_memory(name: str) -> None:
    """A caller in C may give null pointers where all arrays and the workspace have no bytes."""
    module, declared = EMPTY[name]
    program = emitted(module, declared)
    arrays = ["NULL"] * (len(program.inputs) + len(program.outputs))
    given = ", ".join([*arrays, "0", "weights"])
    main = f"""#include "{program.name}.h"
#include <stddef.h>
static _Alignas(64) unsigned char weights[{max(len(program.weights), 1)}];
int main(void)
{{
    fx_error error;
    return {program.name}_run({given}, NULL, 1, &error);
}}
"""
    texts = {**program.sources, "main.c": main}
    run_sanitized(build_executable(texts, flags=CHECKED, name=f"{program.name}_empty"))
