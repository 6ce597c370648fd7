"""The memory plan of compiled C: slots, who lies in them when, and the arena's size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import shapes
from fxlite.console import plain_text
from fxlite.errors import ArgumentError
from tests.models import traced


@pytest.mark.parametrize(("name", "sizes"), [("gpt_block", {"B": 3, "T": 5}), ("unet", {"B": 2})])
def test_plan(name: str, sizes: dict[str, int]) -> None:
    """No two values are in one slot at one time, each fits, and the sizes are those of the C."""
    function: Any = fx.compile(traced(name), threads=1)
    plan = function.memory_plan(**sizes)
    assert plan.steps == tuple(kernel.name for kernel in function.kernels)
    for step in range(len(plan.steps)):
        slots = [b.slot for b in plan.at(step)]
        assert len(slots) == len(set(slots))
    assert len(plan.buffers) > len(plan.slots) > 2
    for buffer in plan.buffers:
        assert buffer.nbytes <= plan.slots[buffer.slot]
        assert plan.steps[buffer.first] == next(
            k.name for k in function.kernels if k.root is buffer.node
        )
    assert plan.peak == shapes.substitute(plan.formula, sizes)
    assert max(plan.held) <= plan.peak <= function.workspace_bytes(sizes)


def test_text_and_picture() -> None:
    function: Any = fx.compile(traced("gpt_block"), threads=1)
    plan = function.memory_plan(B=8, T=128)
    for width in (80, 100):
        lines = plain_text(plan, width).splitlines()
        assert max(map(len, lines)) <= width
    assert lines[1].startswith("arena    2,097,152 bytes in 3 slots, for 6 values of")
    assert any(line.startswith("slot 2     1.05MB") for line in lines)
    assert plan.to_svg().count("<title>") == len(plan.buffers)


def test_arguments() -> None:
    function: Any = fx.compile(traced("gpt_block"), threads=1)
    for sizes in ({"B": 2}, {"B": 2, "T": 3, "S": 4}, {}):
        with pytest.raises(ArgumentError, match="takes B=8, T=8, not sizes of"):
            function.memory_plan(**sizes)
    single: Any = fx.compile(lambda x: np.exp(x) + 1, x="f32[4]")
    assert single.memory_plan().peak == 0
