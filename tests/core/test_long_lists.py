"""Arrays that are made of long lists of values, which a program computes one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx

X = np.random.default_rng(0).random(150)


def of_a_comprehension(x: Any) -> Any:
    return np.array([x[i] * i - x[i - 1] for i in range(len(x))])


def of_appended_values(x: Any) -> Any:
    found = []
    for value in x:
        found.append(value * 2 if value > 0.5 else value)
    return np.array(found)


def of_a_list_that_is_written(x: Any) -> Any:
    found = [0.0] * len(x)
    for i in range(1, len(x)):
        found[i] = found[i - 1] * 0.5 + x[i]
    return np.array(found)


def of_rows(x: Any) -> Any:
    return np.concatenate([x[i : i + 2] * i for i in range(len(x) - 1)])


@pytest.mark.parametrize("backend", ["c", "python"])
@pytest.mark.parametrize(
    "program", [of_a_comprehension, of_appended_values, of_a_list_that_is_written, of_rows], ids=lambda f: f.__name__
)
def test_arrays_of_long_lists(program: Any, backend: str) -> None:
    result, expected = fx.jit(program, backend=backend)(X), program(X)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(result, expected)
