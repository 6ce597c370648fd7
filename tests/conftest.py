"""Random weights that are the same in every run, and the options of tests.

The generator of `fxlite.nn` is started anew before each test file is imported (models at module
level) and before each test, so no result depends on which tests ran before, nor in which process.
"""

from __future__ import annotations

import pytest

from fxlite.nn import init


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "write the texts of tests/codegen/golden anew"
    parser.addoption("--update-golden", action="store_true", help=what)


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        init.manual_seed(0)


@pytest.fixture(autouse=True)
def seeded() -> None:
    init.manual_seed(0)
