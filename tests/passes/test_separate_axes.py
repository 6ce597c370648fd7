"""separate_axes: images are interpolated along one axis after the other, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import passes
from fxlite.types.agreement import compare
from tests.codegen.compiling import emitted
from tests.graphs import ops_of
from tests.oracle import agree


def by_two(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear")


def by_fractions(x):
    return F.interpolate(x, scale_factor=(1.7, 1.3), mode="bilinear")


def to_size(x):
    return F.interpolate(x, size=(11, 9), mode="bilinear")


def to_corners(x):
    return F.interpolate(x, size=12, mode="bilinear", align_corners=True)


def scaled_and_added(x):
    large = F.interpolate(np.tanh(x), scale_factor=3, mode="bilinear", align_corners=True) * 2
    return large + large.mean((2, 3), keepdims=True)


@pytest.mark.parametrize("program", [by_two, by_fractions, to_size, to_corners, scaled_and_added])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_results_agree(program, dtype):
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(dtype)
    x[0, 0, 0, 0], x[1, 2, 4, 6] = np.inf, np.nan
    before = agree(program, x)
    after = passes.separate_axes(before)
    assert ops_of(after).count("interpolate") == ops_of(before).count("interpolate") + 1
    found = compare(fx.Interpreter(before).run(x), fx.Interpreter(after).run(x))
    assert found.agrees, str(found)


def test_named_sizes():
    gm = fx.symbolic_trace(by_two, "f32[B,C,H,W]")
    function = fx.compile(gm)
    assert [call.group.root.target.name for call in function.program.calls].count("reshape") == 1
    for shape in ((1, 1, 1, 1), (2, 3, 4, 9), (3, 1, 8, 2)):
        x = np.random.default_rng(0).standard_normal(shape).astype("f4")
        assert compare(by_two(x), function(x)).agrees


def test_the_second_step_reads_rows():
    """The permutes around it are views: the image is not copied."""
    assert len(emitted(by_two, "f32[2,4,16,16]").calls) == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.interpolate(x, size=(4, 20), mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x.transpose(0, 3, 1, 2), scale_factor=2, mode="bilinear"),
        lambda x: F.interpolate(x, size=(10, 7), mode="bilinear"),
        lambda x: F.interpolate(x.astype(np.float16), scale_factor=2, mode="bilinear"),
    ],
)
def test_left_alone(program):
    gm = fx.symbolic_trace(program, x="f32[2,5,6,7]")
    assert passes.separate_axes(gm).code == gm.code
