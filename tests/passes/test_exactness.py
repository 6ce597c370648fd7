"""What each promise allows, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fxlite.base.errors import ArgumentError
from fxlite.types.agreement import Exactness, allclose, as_exactness, compare, exact, sqnr

NAN, INF = np.nan, np.inf


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("promise", "expected", "actual", "holds"),
    [
        (exact, floats(1, NAN, 0), floats(1, NAN, 0), True),
        (exact, floats(0), floats(-0.0), False),
        (exact, floats(1), floats(1 + 2**-23), False),
        (exact, floats(1), np.array([1.0]), False),
        (exact, floats(1), floats(1, 1), False),
        (exact, (floats(1), floats(2)), (floats(1), floats(2)), True),
        (exact, (floats(1), floats(2)), (floats(1),), False),
        (exact, np.array([1, 2]), np.array([1, 3]), False),
        (allclose(), floats(1, 0), floats(1 + 1e-6, 1e-6), True),
        (allclose(), floats(1, 0), floats(1, 1e-3), False),
        (allclose(rtol=1e-2), floats(1, 0), floats(1, 1e-3), True),
        (allclose(atol=1e-2), floats(0), floats(1e-3), True),
        (allclose(), floats(NAN, INF), floats(INF, NAN), True),
        (allclose(), floats(NAN), floats(0), False),
        (allclose(), floats(0), floats(NAN), False),
        (allclose(), np.array([True]), np.array([False]), False),
        (sqnr(30), floats(1, 1), floats(1, 1.02), True),
        (sqnr(60), floats(1, 1), floats(1, 1.02), False),
        (sqnr(30), floats(1), np.array([1], np.float16), True),
        (sqnr(30), floats(1), floats(NAN), False),
        (sqnr(30), floats(0), floats(1), False),
    ],
)
def test_promises(promise: Exactness, expected: Any, actual: Any, holds: bool) -> None:
    assert compare(expected, actual, promise).agrees is holds


def test_message_has_place_and_count() -> None:
    found = compare(np.zeros((2, 2), "f4"), np.array([[0, 0], [1, 2]], "f4"), exact)
    assert str(found) == "expected 0.0, got 1.0 at [1, 0]; 2 of 4 elements differ"


def test_names() -> None:
    assert as_exactness("exact") is not None and str(as_exactness("sqnr")) == "sqnr(30 dB)"
    assert as_exactness(allclose(rtol=0.1)) == allclose(rtol=0.1)
    assert str(allclose(rtol=0.1, atol=1)) == "allclose(rtol=0.1, atol=1)"
    with pytest.raises(ArgumentError, match="exactness must be one of exact, allclose"):
        as_exactness("close")
