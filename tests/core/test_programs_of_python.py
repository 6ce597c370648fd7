"""NumPy programs with what Python itself has for numbers: ``sorted``, ``map``, ``math``, ``copy``, lists of an array's
elements. A jitted function gives what the function gives, down to the type of a number."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import fxlite as fx
from tests.core.test_programs_people_write import floats, integers

# -- what the results are --------------------------------------------------------------------------
class Found(NamedTuple):
    place: int
    value: float


def results_of_all_kinds(x: Any) -> Any:
    best, place = 0.0, -1
    for i, v in enumerate(x):
        if v > best:
            best, place = v, i
    inside = 0.5 in x
    numbers = {"sum": x.sum(), "n": len(x), "half": len(x) / 2, "count": int((x > 0.5).sum()), "none": None}
    return Found(place, float(best)), best, numbers, [x.mean(), inside, not x[0] > 2], np.zeros(()), x


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(part) for key, part in value.items()}
    return [types_of(part) for part in value] if isinstance(value, (list, tuple)) else type(value)


@pytest.mark.parametrize("backend", ["python", "c"])
def test_numbers_are_numbers(backend: str) -> None:
    for dynamic in (True, False):
        jitted = fx.jit(results_of_all_kinds, backend=backend, dynamic=dynamic)
        for size in (5, 8):
            mine, eager = jitted(floats(size)), results_of_all_kinds(floats(size))
            assert type(mine) is type(eager) and type(mine[0]) is Found
            assert types_of(mine) == types_of(eager)
    assert type(fx.jit(np.sum)(integers(4))) is np.int64
