"""Every program of the zoo through every rung of the oracle."""

from __future__ import annotations

import pytest

from tests.oracle import agree
from tests.zoo import ZOO


@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
def test_rungs_agree(entry) -> None:
    program, types, inputs = entry.make()
    agree(program, *inputs, types=types)
