"""Models of usual kinds come back as what a person wrote: their length, and what is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.python.source import python_program
from fxlite.passes.cutting.outline_modules import with_own_constants
from tests.oracle import compare
from tests.source_lines import MODELS, lines_by_hand, lines_of, quantized, traced

#: Lines regenerated for each line by hand, at most.
MOST = {
    "ResNet-18": 1.55, "U-Net": 4.2, "BERT": 1.4, "LSTM text classifier": 1.4,
    "two-way LSTM tagger": 1.7, "GPT with cache": 1.6, "GPT block": 1.4,
}  # fmt: skip


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
    assert lines_of(gm) <= MOST.get(name, 1.3) * lines_by_hand(MODELS[name][2])
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
        "        # What each adds.\n"
        "        for part, norm in zip(self.parts, self.norms):\n"
        "            y = part(norm(x))  # f32[B,4]\n"
        "            x = x + y  # f32[B,4]\n"
    ) in gm.source()


class Uneven(Residual):
    """No loop: the last one is called in another way."""

    def forward(self, x: Any) -> Any:
        for part in self.parts[:-1]:
            x = x + part(x)
        return self.parts[-1](x) - x


def test_lines_that_differ_are_no_loop() -> None:
    gm = fx.symbolic_trace(Uneven((2.0,) * 4), x="f32[B,4]")
    agree(gm, (np.ones((2, 4), np.float32),))
    assert "for part" not in gm.source()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i32", "u8", "bool"])
def test_numbers_keep_their_dtype(dtype: str) -> None:
    number = np.ones((), fx.dtypes.dtype(dtype).numpy)[()]
    gm = fx.symbolic_trace(lambda x: fx.ops.where(x > 0, number, x), x=f"{dtype}[3]")
    agree(gm, (np.ones(3, number.dtype),))
