"""NPBench's programs at small sizes, unchanged, traced and run."""

from __future__ import annotations

import pytest

from tests import npbench


@pytest.mark.skipif(not npbench.names(), reason="NPBench is not in ../shared/programs")
def test_programs_by_others_are_traced_unchanged() -> None:
    found = {}
    for name in npbench.names():
        try:
            npbench.run(name)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    assert not found
