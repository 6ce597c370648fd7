"""Reductions with ``initial=``, which are also defined for axes without elements, known or named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.oracle import agree, agree_on_all

RNG = np.random.default_rng(7)


def extremes(x: Any) -> Any:
    several = x.max(0, initial=-0.5), np.min(x, axis=1, initial=-9, keepdims=True), np.amax(x, initial=3.0)
    return *several, np.max(x, axis=0, initial=-np.inf), np.min(x, axis=0, initial=np.inf), np.amin(x, 0, initial=0)


def sums(x: Any) -> Any:
    return x.sum(0, initial=2.0), x.prod(0, initial=3.0), np.sum(x, initial=1), np.prod(x, axis=1, initial=2)


def of_some(x: Any) -> Any:
    several = np.max(x, axis=0, where=x > 0, initial=-1.0), np.min(x, 0, where=x > 0, initial=7.0)
    return *several, np.sum(x, 0, where=x > 0, initial=4.0), x[x > 0].max(initial=0.0), x[x > 0].min(initial=9.0)


def by_ufuncs(x: Any) -> Any:
    several = np.maximum.reduce(x, initial=0.5), np.minimum.reduce(x, axis=None, initial=0.5)
    return *several, np.add.reduce(x, initial=1.0), np.multiply.reduce(x, axis=0, initial=2.0)


def without_nan(x: Any) -> Any:
    several = np.nanmax(x, axis=0, initial=0.5), np.nanmin(x, axis=0, initial=0.5)
    return *several, np.nansum(x, axis=0, initial=0.5), np.nanprod(x, axis=0, initial=0.5)


def computed(x: Any) -> Any:
    v = x.sum()
    return x.max(0, initial=v), np.min(x, initial=v)


def of_other_dtypes(x: Any) -> Any:
    small, half = (x * 3).astype(np.int8), x.astype(np.float16)
    several = small.max(0, initial=-5), small.min(0, initial=5), half.max(0, initial=-5), half.min(0, initial=5)
    unsigned = abs(small).astype(np.uint16)
    return *several, unsigned.max(0, initial=2), unsigned.min(0, initial=2), (x > 0).max(0, initial=False)


PROGRAMS = [extremes, sums, of_some, by_ufuncs, without_nan, computed, of_other_dtypes]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_axis_without_elements(program: Any) -> None:
    agree_on_all(program, [(RNG.normal(size=(n, 3)),) for n in (0, 1, 70)], types=["f64[N,3]"])
    agree(program, np.zeros((0, 3)), rungs=("graph", "python"))


def test_nothing_is_required_of_a_size() -> None:
    assert not fx.symbolic_trace(lambda x: x.max(0, initial=0.0), "f64[N,3]").graph.guards
    assert [str(g) for g in fx.symbolic_trace(lambda x: x.max(0), "f64[N,3]").graph.guards] == ["N >= 1"]
    text = fx.symbolic_trace(lambda x: x.max(1, initial=0.0), "f64[N,3]").graph.text()
    assert "initial=" not in text, "an axis that is known to have elements needs none"


def test_ufuncs_without_an_op_start_from_the_initial_value() -> None:
    def program(x: Any) -> Any:
        several = np.subtract.reduce(x, axis=1, initial=10.0), np.hypot.reduce(x, axis=1, initial=0.5)
        return *several, np.fmax.reduce(x, axis=1, initial=0.5), np.fmax.reduce(x, axis=None, initial=9.0)

    agree(program, RNG.normal(size=(2, 4)))
    agree(program, np.zeros((2, 0)), rungs=("graph", "python"))


def test_integers_have_no_nan_but_an_initial_value() -> None:
    def program(n: Any) -> Any:
        return np.nanmax(n, initial=7), np.nanmin(n, axis=0, where=n > 1, initial=9)

    agree(program, np.arange(6).reshape(2, 3))


def test_initial_is_combined_where_no_axis_is_reduced() -> None:
    x = np.array([[3.0, 4.0]])
    agree(lambda x: np.hypot.reduce(x, axis=(), initial=1.0), x)
