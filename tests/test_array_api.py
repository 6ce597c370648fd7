"""A sample of the array API standard's own test suite against fxlite.lazy; all of it:
``python -m tests.array_api``."""

from __future__ import annotations

import importlib.util

import pytest

from tests import array_api

SAMPLE = (
    "test_add or test_matmul or test_concat or test_getitem or test_setitem or test_sum or "
    "test_where or test_argmax or test_broadcast_to or test_iop"
)


@pytest.mark.skipif(not array_api.FOLDER.exists(), reason="the standard's test suite is not there")
@pytest.mark.skipif(importlib.util.find_spec("ndindex") is None, reason="needs ndindex")
def test_the_standard_s_own_tests() -> None:
    found = array_api.run(array_api.MODULES["fxlite.lazy"].format(backend="interpreter"), "2024.12", 2, ["-k", SAMPLE])
    failed = [name for name, (outcome, _) in found.items() if outcome in ("FAILED", "ERROR")]
    # NumPy's own floor_divide of infinities is another than the standard's
    assert len(found) > 50
    assert [name for name in failed if "floordiv" not in name] == []
