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
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("ndindex", "pytest_jsonreport"))), reason="needs fxlite[array_api]"
)
def test_the_standard_s_own_tests() -> None:
    found = array_api.run(array_api.MODULES["fxlite.lazy"].format(backend="interpreter"), "2024.12", 2, ["-k", SAMPLE])
    assert len(found) > 50
    assert [name for name in array_api.failures(found) if not array_api.reason(name)] == []


def test_the_page_has_a_reason_for_each_failure() -> None:
    results: array_api.Results = {
        ("2024.12", "numpy"): {"a.py::test_a": ("PASSED", "")},
        ("2023.12", "fxlite.lazy"): {"a.py::test_sort": ("FAILED", "")},
        ("2024.12", "fxlite.lazy"): {
            "a.py::test_a": ("PASSED", ""),
            "a.py::test_sort": ("FAILED", ""),
            "a.py::test_sum[a|b]": ("ERROR", "E"),
            "b.py:3: why (0)": ("SKIPPED", ""),
        },
    }
    page = array_api.page(results)
    assert "| 2024.12 | fxlite.lazy | 1 | 2 | 1 | 33.3 % |" in page
    assert "| NumPy's `sort` and `argsort` have no `descending=`. | 1: `test_sort` |" in page
    assert r"| **not explained** | 1: `test_sum[a\|b]` (2024.12 only) |" in page
    assert "**not explained**" not in array_api.PAGE.read_text()
