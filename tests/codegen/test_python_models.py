"""Models of usual kinds come back as what a person wrote: their length, and what is in them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.python.source import python_program, save_python
from fxlite.passes.cutting.outline_modules import with_own_constants
from tests.codegen.test_python_random import random_program
from tests.oracle import compare
from tests.source_lines import MODELS, lines_by_hand, lines_of, quantized, traced


def agree(gm: fx.GraphModule, inputs: Any) -> None:
    """The regenerated program computes the same, and traces to the same graph."""
    model = python_program(gm)
    compare("regenerated", model(*inputs), gm(*inputs))
    again = fx.symbolic_trace(model, *[n.type for n in gm.graph.placeholders])
    one, other = (with_own_constants(passes.dce(program)) for program in (gm, again))
    fx.assert_same(one, other)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    gm = traced(name)
    inputs = tuple(make_cases(gm)[1].inputs.values())
    agree(gm, inputs)
    assert lines_of(gm) <= 1.3 * lines_by_hand(MODELS[name][2])
    if name in ("ViT", "GPT block"):
        agree(quantized(passes.simplify(gm)), inputs)


class Scaled(nn.Module):
    """Numbers and arrays that no module holds, and one that all share."""

    shared = np.float32(0.1)

    def __init__(self, size: int, factor: float) -> None:
        super().__init__()
        self.factor = np.float32(factor)
        self.mask = np.arange(size) % 2 == 0
        self.fc = nn.Linear(size, size)

    def forward(self, x: Any) -> Any:
        y = np.where(self.mask, self.fc(x), np.float32(-0.0)) / self.factor
        return y * np.float32(1 / 3) + self.shared


class Residual(nn.Module):
    def __init__(self, factors: tuple[float, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Scaled(4, factor) for factor in factors])
        self.norms = nn.ModuleList([nn.LayerNorm(4) for _ in factors])

    def forward(self, x: Any) -> Any:
        for part, norm in zip(self.parts, self.norms):
            # What each adds.
            y = part(norm(x))
            x = x + y
        return x * 2.0


def test_constants_belong_to_the_modules_that_read_them() -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    gm = fx.symbolic_trace(Residual((2.0, 2.0, 2.0)), x="f32[B,4]")
    agree(gm, (x,))
    source = gm.source()
    for text in (
        "self.parts = nn.ModuleList([Scaled() for _ in range(3)])\n",
        'self.register_buffer("mask", ops.zeros((4,), dtype="bool"))\n',
        "y = np.where(self.mask, self.fc(x), np.float32(-0.0)) / np.float32(2.0)",
        "return y * np.float32(0.33333334) + np.float32(0.1)",
    ):
        assert text in source, source
    assert "constant" not in source


def test_constants_in_which_modules_differ_are_parameters() -> None:
    gm = fx.symbolic_trace(Residual((2.0, 3.0, 2.0)), x="f32[B,4]")
    agree(gm, (np.ones((2, 4), np.float32),))
    source = gm.source()
    assert "[Scaled(2.0), Scaled(3.0), Scaled(2.0)]" in source
    assert "/ np.float32(self.factor)" in source


def test_lines_that_repeat_for_the_modules_of_lists_are_a_loop() -> None:
    gm = fx.symbolic_trace(Residual((2.0,) * 5), x="f32[B,4]")
    assert (
        "        for part, norm in zip(self.parts, self.norms):\n"
        "            # What each adds.\n"
        "            y = part(norm(x))  # f32[B,4]\n"
        "            x = x + y  # f32[B,4]\n"
    ) in gm.source()


class Uneven(Residual):
    """No loop: each is called in another way."""

    def forward(self, x: Any) -> Any:
        for part, sign in zip(self.parts, (1, -1, 1, -1)):
            x = x + part(x) if sign > 0 else part(x) - x
        return x


def test_lines_that_differ_are_no_loop() -> None:
    gm = fx.symbolic_trace(Uneven((2.0,) * 4), x="f32[B,4]")
    agree(gm, (np.ones((2, 4), np.float32),))
    assert "for part" not in gm.source()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i32", "u8", "bool"])
def test_numbers_keep_their_dtype(dtype: str) -> None:
    number = np.ones((), fx.dtypes.dtype(dtype).numpy)[()]
    gm = fx.symbolic_trace(lambda x: fx.ops.where(x > 0, number, x), x=f"{dtype}[3]")
    agree(gm, (np.ones(3, number.dtype),))


class Gated(nn.Module):
    """Some have a gate, some a row of layers behind; what these give is read once or twice."""

    def __init__(self, size: int, gate: bool, behind: bool, twice: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(size, size)
        self.gate = nn.Linear(size, size) if gate else None
        self.behind = nn.Sequential(nn.Linear(size, size), nn.Tanh()) if behind else None
        self.twice = twice

    def forward(self, x: Any, y: Any) -> Any:
        kept = y if self.gate is None else self.gate(y)
        z = self.fc(x) * kept
        z = z if self.behind is None else self.behind(z)
        return z + kept if self.twice else np.concatenate([z, y], axis=-1)[..., : x.shape[-1]]


class Gates(nn.Module):
    def __init__(self, kinds: list[tuple[int, bool, bool, bool]]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Gated(*kind) for kind in kinds])

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x, x * 2.0)
        return x


@pytest.mark.parametrize("seed", range(12))
def test_what_only_some_modules_have_is_optional(seed: int) -> None:
    draw = random.Random(seed)
    count, twice = draw.randrange(2, 6), draw.random() < 0.5
    flags = [tuple(draw.random() < 0.5 for _ in range(2)) for _ in range(count)]
    gm = fx.symbolic_trace(Gates([(4, a, b, twice) for a, b in flags]), x="f32[B,4]")
    agree(gm, (np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4),))
    if (True, True) in flags:  # then the others lack some of what that one has
        assert gm.source().count("class Gated") == 1
        if any(not gate for gate, _ in flags):
            assert "        if has_gate:\n            self.gate = " in gm.source()


def test_results_have_the_order_and_names_of_the_program() -> None:
    """The graph of the program has them in the order in which they are computed."""
    source = traced("GPT with cache").source()
    assert "        return x, keys, values\n" in source
    assert (
        "        new_keys, new_values = [], []\n"
        "        for i, block in enumerate(self.blocks):\n"
        "            x, k, v = block(x, keys[i], values[i])  "
        "# (f32[B,1,32], f32[B,4,S+1,8], f32[B,4,S+1,8])\n"
        "            new_keys.append(k)\n"
        "            new_values.append(v)\n"
    ) in source
    assert "q, k, v = np.split(self.qkv(self.norm1(x)), 3, axis=-1)  # f32[B,1,32] each\n" in source


def test_rows_of_modules_that_repeat_are_made_by_a_function() -> None:
    source = traced("U-Net").source()
    assert "def down_block(in_channels, out_channels):\n    return nn.Sequential(\n" in source
    assert "[down_block(128, 64), down_block(64, 32), down_block(32, 16)]" in source


@pytest.mark.skipif(shutil.which("ruff", path=str(Path(sys.executable).parent)) is None, reason="ruff")
def test_ruff_would_change_nothing_and_mypy_is_content(tmp_path: Path) -> None:
    """But for values that nobody reads, which are the program's own."""
    for number, name in enumerate(MODELS):
        gm = traced(name)
        save_python(gm, tmp_path, f"model_{number}")
        save_python(quantized(passes.simplify(passes.fuse_conv_bn(gm))), tmp_path, f"int_{number}")
    for seed in range(20):
        gm = random_program(seed, tmp_path)
        save_python(gm, tmp_path, f"random_{seed}")
        save_python(passes.cse(gm), tmp_path, f"merged_{seed}")
    for path in tmp_path.glob("written_*.py"):
        path.unlink()
    python = Path(sys.executable).parent
    ruff, config = str(python / "ruff"), str(Path(__file__).parents[2] / "pyproject.toml")
    for command in (["format", "--diff"], ["check", "--ignore", "F841,RET504,RUF059"]):
        done = subprocess.run(
            [ruff, *command, "--config", config, "--line-length=100", str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    # an optional layer is an Identity first, and then perhaps another module
    options = ["--config-file=", "--cache-dir=/dev/null", "--check-untyped-defs", "--disable-error-code=assignment"]
    mypy = [sys.executable, "-m", "mypy", *options, "--follow-imports=silent", "."]
    # mypy does not see what an editable installation finds by a hook
    found = os.environ | {"MYPYPATH": str(Path(fx.__file__).parents[1])}
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, env=found)
    assert done.returncode == 0, done.stdout + done.stderr
