"""What several tests of passes want set up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fxlite import passes
from fxlite.codegen.runtime import toolchain


@pytest.fixture
def registry() -> Iterator[None]:
    """Rules that a test makes do not stay among the passes."""
    known = dict(passes.PASSES)
    yield
    passes.PASSES.clear()
    passes.PASSES.update(known)


@pytest.fixture(autouse=True)
def compiled_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs in C are compiled with -Og, in a third of the time: passes are tested by values, and
    tests/codegen by the usual flags, too."""
    flags = tuple("-Og" if flag == "-O3" else flag for flag in toolchain.COMPILE_FLAGS)
    monkeypatch.setattr(toolchain, "COMPILE_FLAGS", flags)
