"""Scales of values that are quantized by their own range, stored beside what they are the scales
of: by the convolution that computes an image, and by the loops that quantize a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.codegen.c import templates
from fxlite.codegen.c.dynamic_scale import join_scales
from fxlite.codegen.program.program import plan
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.passes import quantize as q
from tests.codegen.compiling import c_file
from tests.oracle import agree
from tests.zoo.registry import fill

Array = np.ndarray[Any, Any]


class Images(nn.Module):
    """3x3, 1x1, depthwise and strided convolutions; channels that are no whole vectors; a value
    that two layers read, and one that is a result."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 24, 3, padding=1)
        self.wide = nn.Conv2d(24, 40, 1)
        self.each = nn.Conv2d(40, 40, 3, padding=1, groups=40)
        self.narrow = nn.Conv2d(40, 8, 1)
        self.down = nn.Conv2d(40, 33, 3, stride=2)
        self.last = nn.Conv2d(8, 16, 1)

    def forward(self, x: Any) -> Any:
        wide = np.maximum(self.wide(np.maximum(self.first(x), 0)), 0)
        each = np.clip(self.each(wide), 0, 6)
        narrow = self.narrow(each)
        return narrow, self.last(narrow), self.down(each)


class Rows(nn.Module):
    """Linear layers in a row, one of whose inputs can be negative."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(37, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 5))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def converted(module: nn.Module, **types: str) -> fx.GraphModule:
    mapping = q.QConfigMapping().set_global(q.dynamic_int8())
    return q.convert(q.prepare(fx.symbolic_trace(fill(module), inputs=types), mapping))


def images(count: int) -> Array:
    """Images of ranges far apart: of zeros alone, with an infinity, with NaN, of denormals."""
    x = np.random.default_rng(0).standard_normal((count, 16, 9, 13)).astype(np.float32)
    x *= np.logspace(-3, 3, count, dtype=np.float32).reshape(-1, 1, 1, 1)
    x[1], x[2, 3, 4, 5], x[3, 0, 0, 0], x[4] = 0, np.inf, np.nan, 1e-41
    return x


def same_bits(module: fx.GraphModule, function: Callable[..., Any], x: Array) -> None:
    for got, wanted in zip(function(x), module(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.fixture(scope="module")
def program() -> tuple[fx.GraphModule, Any]:
    """Convolutions as integers, in NumPy and in C."""
    gm = converted(Images(), x="f32[B,16,9,13]")
    return gm, fx.compile(gm, threads=1)


def test_convolutions_store_the_scale_of_what_they_compute(program: tuple[fx.GraphModule, Any]) -> None:
    gm, function = program
    alone = [k.name for k in function.kernels if k.root.target.name == "dynamic_scale"]
    assert len(alone) == 2  # of the input, and of the result that is turned
    source = function.sources["images.c"]
    assert source.count("finish_scales(") == 3  # of three convolutions
    with np.errstate(all="ignore"):
        same_bits(gm, function, images(6))
        same_bits(gm, function, images(6)[:1])
        same_bits(gm, fx.compile(gm, threads=3), images(6))


@pytest.mark.parametrize("flags", ["-march=haswell", "-march=x86-64"])
def test_on_lesser_processors(program: tuple[fx.GraphModule, Any], flags: str) -> None:
    gm, function = program
    emitted = function.program
    library = build(dict(emitted.sources), emitted.entry, flags=["-O1", "-fwrapv", flags])
    other = CompiledFunction(emitted.entry, library, emitted.weights, 2)
    with np.errstate(all="ignore"):
        same_bits(gm, other, images(6))


def test_rows_are_read_once() -> None:
    gm = converted(Rows(), x="f32[B,37]")
    function = fx.compile(gm, threads=2)
    made = [[n.target.name for n in k.nodes] for k in function.kernels if k.anchor is None]
    assert made == [["dynamic_scale", "quantize"]] * 3
    x = images(6).reshape(6, -1)[:, :37]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(function(x), gm(x))
    assert [k.root.type.dtype.name for k in function.kernels if k.anchor is None] == ["i8", "u8", "i8"]


def test_a_scale_that_is_a_result_or_read_before_is_one_all_the_same() -> None:
    def rows(x: Any) -> Any:
        scale = ops.dynamic_scale(x, axis=-1, keepdims=True)
        return scale, ops.quantize(x, scale, qmin=-127), scale * 2

    agree(rows, np.random.default_rng(0).standard_normal((3, 5, 40)).astype(np.float32))


def test_other_scales_stay_kernels_of_their_own() -> None:
    def by_column(x: Any) -> Any:
        scale = ops.dynamic_scale(x, axis=0, keepdims=True)
        return ops.quantize(x, scale, qmin=-127)

    gm = fx.symbolic_trace(by_column, x="f32[4,40]")
    groups = plan(gm, templates.claims, (), join_scales).groups
    assert [g.root.target.name for g in groups] == ["dynamic_scale", "quantize"]
    assert all(g.beside is None for g in groups)


def test_the_maximum_of_magnitudes_reads_in_the_order_of_memory() -> None:
    def scale(x: Any) -> Any:
        return ops.dynamic_scale(ops.permute(x, axes=(0, 2, 3, 1)), axis=(1, 2, 3))

    x = np.random.default_rng(0).standard_normal((2, 3, 5, 37)).astype(np.float32)
    x[1, 2, 4, 36] = np.nan
    agree(scale, x)
    source = c_file(fx.symbolic_trace(scale, x="f32[2,3,5,37]"))
    assert "fx_larger_magnitude_f32" in source and "i*555 + block + lane]" in source
