"""The memory plan of compiled C: slots, who lies in them when, and the arena's size."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.console import plain_text
from fxlite.base.errors import ArgumentError
from fxlite.codegen.c import templates
from fxlite.codegen.c.workspace import plan_workspace
from fxlite.codegen.program.program import plan
from fxlite.nn import functional as F
from fxlite.types import shapes
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
        assert plan.steps[buffer.first] == next(k.name for k in function.kernels if k.root is buffer.node)
    assert plan.peak == shapes.substitute(plan.formula, sizes)
    assert max(plan.held) <= plan.peak <= function.workspace_bytes(sizes)


def packed_program(scratch: Any, arena: Any) -> Any:
    """Products that need scratch, values read late, and inputs with the names of what C calls
    memory."""
    first = np.exp(scratch @ arena)
    second = F.softmax(np.tanh(first) @ arena, -1)
    third = (second.reshape(150, 2, 30) + 1).sum(axis=1) @ arena[:30, :20]
    return third @ first[:20], second.mean()


def test_packed() -> None:
    """With known sizes values start anywhere; at no step do two overlap, or one and scratch."""
    function: Any = fx.compile(packed_program, scratch="f32[150,60]", arena="f32[60,60]", threads=2)
    memory, program = function.memory_plan(), function.program
    assert memory.is_packed and max(b.start for b in memory.buffers) > 0
    scratch = plan_workspace(program.name, program.program, program.calls).scratch
    assert scratch
    for step in range(len(memory.steps)):
        here = sorted((b.start, b.start + b.nbytes) for b in memory.at(step))
        assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(here))
        if step in scratch:
            assert scratch[step][1] >= here[-1][1]
    assert max(memory.held) <= memory.peak <= function.workspace_bytes({})
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) / 8 for s in ((150, 60), (60, 60))]
    for found, wanted in zip(function(*arrays), packed_program(*arrays)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    text = plain_text(memory, 80)
    assert re.search(r"^arena    [\d,]+ bytes, for \d values of [\d,]+ bytes$", text, re.M)
    assert re.search(r"^\S+ +[\d.]+ kB  at [\d.]+ kB +█+$", text, re.M)
    assert " bytes from byte " in memory.to_svg() and "slot" not in memory.to_svg()


def test_named_sizes_and_buffers_have_slots() -> None:
    """One named size is enough for slots; CUDA, whose slots are buffers, has them at any size."""
    numbers: Any = fx.compile(packed_program, scratch="f32[150,60]", arena="f32[60,60]")
    assert numbers.program.program.offset_of and len(numbers.memory_plan().slots) == 1
    module = numbers.optimized
    assert not plan(module, templates.claims).offset_of
    named: Any = fx.compile(lambda x: F.softmax(F.softmax(x, 0).T, 0).sum(0) + 1, x="f32[N,8]")
    assert not named.program.program.offset_of


def test_text_and_picture() -> None:
    function: Any = fx.compile(traced("gpt_block"), threads=1)
    plan = function.memory_plan(B=8, T=128)
    for width in (80, 100):
        lines = plain_text(plan, width).splitlines()
        assert max(map(len, lines)) <= width
    assert lines[1].startswith("arena    2,097,152 bytes in 3 slots, for 6 values of")
    assert any(line.startswith("slot 2    1.05 MB") for line in lines)
    assert plan.to_svg().count("<title>") == len(plan.buffers)


def test_arguments() -> None:
    function: Any = fx.compile(traced("gpt_block"), threads=1)
    for sizes in ({"B": 2}, {"B": 2, "T": 3, "S": 4}, {}):
        with pytest.raises(ArgumentError, match="takes B=8, T=8, not sizes of"):
            function.memory_plan(**sizes)
    single: Any = fx.compile(lambda x: np.exp(x) + 1, x="f32[4]")
    assert single.memory_plan().peak == 0


def test_views_follow_a_value_into_the_memory_that_it_takes() -> None:
    """A loop writes into a new array; a routine reads its result as a view, behind other kernels."""

    def marked(x: Any) -> Any:
        found = np.zeros(x.shape)
        for i in range(1, x.shape[0] - 1):
            found[i] = x[i - 1] - x[i + 1] if x[i].sum() > 0 else found[i - 1]
        low = found.min()
        scaled = (found - low) / (found - low).max()
        return scaled, np.sort(found.reshape(-1)), np.flatnonzero(found.reshape(-1) > 0).sum()

    x = np.random.default_rng(0).standard_normal((30, 40))
    for found, expected in zip(fx.compile(marked, x)(x), marked(x), strict=True):
        np.testing.assert_allclose(found, expected)
