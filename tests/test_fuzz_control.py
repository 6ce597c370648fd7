"""Random programs with loops and conditions inside of each other; and C of some programs under the
address and undefined-behaviour sanitizers.

``python -m tests.fuzz --control 1000`` is the long run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import fxlite as fx
from tests.codegen.test_control_flow import PROGRAMS
from tests.fuzz.control import check_control
from tests.test_sanitizers import check_clean


@pytest.mark.parametrize("number", range(8))
def test_back_ends_agree(number: int) -> None:
    assert check_control(11, number) > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_emitted_c_is_clean(name: str, tmp_path: Path) -> None:
    program, types, *_ = PROGRAMS[name]
    function = fx.compile(fx.symbolic_trace(program, *types), backend="c")
    check_clean(function, tmp_path / "bundle")
