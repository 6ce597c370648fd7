"""The zoo's emitted C under the address and undefined-behaviour sanitizers, as a plain C
program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import fxlite as fx
from fxlite import nn
from tests.codegen.compiling import SANITIZED, run_sanitized
from tests.codegen.test_rolling import GPT, MODELS, Layers
from tests.zoo import ZOO


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
def test_emitted_c_is_clean(entry, tmp_path: Path) -> None:
    program, types, _ = entry.make()
    function = fx.compile(fx.symbolic_trace(program, *types), backend="c")
    function.save(tmp_path / "bundle")
    # These programs are small: unoptimized code takes a quarter of the time to build and run.
    make = ["make", "-C", str(tmp_path / "bundle"), "sanitize", "CHECKED=-O0 -g1"]
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "OK:" in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("name", ["gpt", "residual", "all_results", "experts"])
def test_loops_over_layers_are_clean(name: str, tmp_path: Path) -> None:
    model = Layers(*MODELS[name][:2]) if name in MODELS else GPT(4)
    types = "f32[B,8]" if name in MODELS else "i64[B,T]"
    function = fx.compile(model.eval(), types, backend="c")
    assert "for (int layer" in function.program.functions
    function.save(tmp_path / "bundle")
    make = ["make", "-C", str(tmp_path / "bundle"), "sanitize", "CHECKED=-O0 -g1"]
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


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
def test_a_call_without_elements_may_have_no_memory(name: str, tmp_path: Path) -> None:
    """A caller in C may give null pointers where all arrays and the workspace have no bytes."""
    module, declared = EMPTY[name]
    program = fx.compile(module, declared, backend="c").program
    for file, text in program.sources.items():
        (tmp_path / file).write_text(text)
    arrays = ["NULL"] * (len(program.inputs) + len(program.outputs))
    given = ", ".join([*arrays, "0", "weights"])
    (tmp_path / "main.c").write_text(
        f"""#include "{program.name}.h"
#include <stddef.h>
static _Alignas(64) unsigned char weights[{max(len(program.weights), 1)}];
int main(void)
{{
    fx_error error;
    return {program.name}_run({given}, NULL, 1, &error);
}}
"""
    )
    built = tmp_path / "main"
    command = ["gcc", "-std=gnu11", *SANITIZED, "main.c", f"{program.name}.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run_sanitized(built)
