"""Loops in C that store whole rows: running totals across rows, and rows in which each element is repeated."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from tests.codegen.compiling import c_file
from tests.oracle import agree


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "c8", "f2", "?"])
def test_running_totals_along_each_axis(dtype: str) -> None:
    """Of rows of less than a vector, of several blocks of columns, and of a block and a rest."""
    draw = np.random.default_rng(0)
    arrays = [draw.integers(0, 3, s).astype(dtype) for s in ((5, 3), (4, 4), (3, 256), (6, 600), (2, 7, 9), (3, 1, 5))]

    def program(*given: Any) -> Any:
        return [x.cumsum(axis) for x in given for axis in range(x.ndim)]

    agree(program, *arrays, rungs=("kernel", "c"))
    if dtype != "?":
        agree(lambda *given: [np.cumprod(x, 0) for x in given], *arrays, rungs=("kernel", "c"))


def test_running_totals_of_rows_of_named_sizes() -> None:
    compiled = fx.compile(lambda x: np.exp(x * 2).cumsum(0), inputs={"x": "f32[M,N]"})
    for shape in ((1, 1), (3, 2), (5, 300), (0, 4), (4, 0)):
        x = np.random.default_rng(1).standard_normal(shape).astype("f4")
        np.testing.assert_allclose(compiled(x), np.exp(x * 2).cumsum(0), rtol=1e-5)


def test_running_totals_of_a_row_are_added_together() -> None:
    assert "total[lane] += x[r*64 + lane]" in c_file(lambda x: x.cumsum(0), x="f32[8,64]")
    assert "lane" not in c_file(lambda x: x.cumsum(1), x="f32[8,64]")
    assert "lane" not in c_file(lambda x: x.cumsum(0), x="f32[8,3]")


@pytest.mark.parametrize("count", [2, 3, 7, 8, 9])
def test_repeated_elements(count: int) -> None:
    """In rows and in pairs of rows, beside what is not repeated, and behind what is computed."""
    draw = np.random.default_rng(2)
    x, y = draw.standard_normal((4, 5)).astype("f4"), draw.standard_normal((4, 5 * count)).astype("f4")

    def program(x: Any, y: Any) -> Any:
        wide = np.repeat(x, count, 1)
        return wide, wide + y, np.repeat(np.exp(x), count, 0), np.tile(x[:, :count], (2, 3)), np.where(y > 0, wide, -y)

    agree(program, x, y, rungs=("kernel", "c"))


def test_repeated_elements_are_read_once_and_stored_beside_each_other() -> None:
    text = c_file(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), x="f32[B,4,X,16]")
    assert text.count("= x[") == 2 and "/ 2)*16 + k]" in text


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_narrow_images_are_resized_by_tables(mode: str) -> None:
    """The places and weights of a row are computed once, however short it is."""
    x = np.random.default_rng(3).standard_normal((2, 8, 6, 7)).astype("f4")
    agree(lambda x: F.interpolate(x, scale_factor=2, mode=mode), x, rungs=("kernel", "c"))
    assert "of_place" in c_file(lambda x: F.interpolate(x, scale_factor=2, mode=mode), x="f32[2,8,6,7]")


def test_loads_with_guards_are_not_stored_several_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """GCC before 12.4 and 13.3 makes wrong SIMD code of such loops (its bug 114375), at -O3 alone: padded images of
    two channels, joined, rolled or repeated."""
    monkeypatch.setenv("FXLITE_CFLAGS", "")
    pads = [(0, 0), (2, 3), (0, 0)]
    programs: list[Callable[..., Any]] = [
        lambda x: np.concatenate([np.pad(x, pads), np.pad(x, pads) * 2], 1),
        lambda x: np.roll(np.pad(x, pads), 3, 1),
        lambda x: np.stack([np.pad(x, pads)[:, :-1], np.pad(x, pads)[:, 1:]], 3).reshape(len(x), -1),
        lambda x: np.repeat(np.pad(x[:, :, 0], [(0, 0), (1, 2)]), 2, 1),
        lambda x: np.pad(x, pads).reshape(len(x), -1, 4)[:, :, ::-1] * 3,
    ]
    for dtype, channels in itertools.product(("f4", "f8", "i8"), (2, 3, 4)):
        x = (np.random.default_rng(5).standard_normal((6, 23, channels)) * 9).astype(dtype)
        for program in programs:
            agree(program, x, rungs=("c",))
    joined = c_file(programs[0], x="f64[6,23,2]")
    assert "?" not in joined, joined
