"""Random programs with loops and conditions inside of each other, and of names that are exchanged in them; and C of
some programs under the address and undefined-behaviour sanitizers.

``python -m tests.fuzz --control 1000`` and ``--bindings 5000`` are the long runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import fxlite as fx
from tests.codegen.test_control_flow import PROGRAMS
from tests.fuzz.bindings import check_bindings
from tests.fuzz.control import check_control
from tests.test_sanitizers import check_clean


@pytest.mark.parametrize("number", range(8))
def test_back_ends_agree(number: int) -> None:
    assert check_control(11, number) > 0


#: Programs that were wrong, or ended in an error of Python.
FOUND = (29, 707, 807, 888, 963, 1084, 1102, 1106)


def test_names_that_are_exchanged(tmp_path: Path) -> None:
    found = [check_bindings(tmp_path, 1, number) for number in (*FOUND, *range(40))]
    assert found.count(True) > 25


def test_arrays_that_are_held_elsewhere(tmp_path: Path) -> None:
    """In attributes, and items of lists and dicts; 195 did not end."""
    found = [check_bindings(tmp_path, 11, number, is_held=True) for number in (195, *range(20))]
    assert found[0] and found.count(True) > 10


@pytest.mark.parametrize("name", PROGRAMS)
def test_emitted_c_is_clean(name: str, tmp_path: Path) -> None:
    program, types, *_ = PROGRAMS[name]
    function = fx.compile(fx.symbolic_trace(program, *types), backend="c")
    check_clean(function, tmp_path / "bundle")
