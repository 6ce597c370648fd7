"""What several tests of passes want set up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fxlite import passes


@pytest.fixture
def registry() -> Iterator[None]:
    """Rules that a test makes do not stay among the passes."""
    known = dict(passes.PASSES)
    yield
    passes.PASSES.clear()
    passes.PASSES.update(known)
