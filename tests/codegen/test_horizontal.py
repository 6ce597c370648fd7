"""Reductions of the same elements are computed in one pass over them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.codegen.compiling import c_file, emitted
from tests.oracle import agree


def extremes(x: Any) -> Any:
    return x.min(), x.max()


def normalized(x: Any) -> Any:
    low, high = x.min(), x.max()
    return (x - low) / (high - low)


def sums(x: Any) -> Any:
    return x.mean(), (x * x).sum()


def of_rows(x: Any) -> Any:
    return x.max(-1) - x.min(-1), x.sum(-1) / (x * x).sum(-1)


def spread(x: Any) -> Any:
    return np.ptp(x)


def dependent(x: Any) -> Any:
    low = x.min()
    return low, np.maximum(x, low * 0.5).max(), (x - low).sum()


def different(x: Any) -> Any:
    return x.min(), x[1:].max(), x.sum(), x.argmax(), x.max(0), (x > 0).any()


def of_integers(x: Any) -> Any:
    i = (x * 100).astype(np.int32)
    return i.min(), i.max(), i.sum(), (i * i).sum(), (i > 3).sum(), (i < 7).sum()


PROGRAMS = [extremes, normalized, sums, of_rows, spread, dependent, different, of_integers]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_all_ways_agree(program: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 5), (2, 1), (40, 70)):
        x = rng.normal(size=shape)
        agree(program, x)
        agree(program, x.astype("f4"), types=["f32[N,C]"])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("types", ["f64[900,200]", "f64[N,C]"])
def test_long_ones_are_the_same_for_any_number_of_threads(program: Callable[..., Any], types: str) -> None:
    x = np.random.default_rng(1).normal(size=(900, 200))
    x[3, 7] = np.nan
    for given in (np.nan_to_num(x), x):
        one, two = (fx.compile(program, types, threads=threads)(given) for threads in (1, 2))
        with np.errstate(invalid="ignore"):
            wanted = program(given)
        for a, b, c in zip(*(v if isinstance(v, tuple) else (v,) for v in (one, two, wanted)), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("type_", ["f64[900,200]", "f32[7]", "f64[N,C]"])
def test_elements_are_read_once(type_: str) -> None:
    """From memory: the largest and the least of a block have loops of their own, one after the other."""
    for program, kernels in ((extremes, 1), (sums, 1), (spread, 1), (normalized, 2), (dependent, 3)):
        assert len(emitted(program, type_).calls) == kernels, program
    for program in (extremes, sums, spread):
        source = c_file(program, type_)
        kernel = source[source.index("static void k0") :]
        loops = [len(re.findall(r"\bx\[", part)) for part in kernel[: kernel.index("\n}")].split("for (")[1:]]
        assert set(loops) <= {0, 1, 2} and loops.count(1) % 2 == 0, kernel
