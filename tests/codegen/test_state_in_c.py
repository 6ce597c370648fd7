"""State in emitted C: ``struct NAME_state`` belongs to the caller and is written in place. Read from
the emitted text and from the plan: what is copied, and that a folder builds and agrees with NumPy.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import fxlite as fx
from tests.codegen.compiling import emitted, make_test
from tests.core.test_state import PROGRAMS, Cache, calls, same


@pytest.mark.parametrize("name", ["cache", "shift", "nested", "batch_norm"])
def test_no_state_is_copied(name: str) -> None:
    make, declared = PROGRAMS[name]
    made = emitted(make(), declared)
    assert [node.name for node, _ in made.program.copied] == []
    header = made.sources[f"{made.name}.h"]
    assert f"struct {made.name}_state {{" in header
    assert f"void {made.name}_state_init(" in header


def test_states_that_trade_places_need_one_copy() -> None:
    make, declared = PROGRAMS["swap"]
    assert len(emitted(make(), declared).program.copied) == 1


def test_a_row_is_written_where_it_lies() -> None:
    function = fx.compile(Cache(), "f32[3]", backend="c")
    text = function.sources["cache.c"]
    assert "fx_copy(" not in text
    assert "k1_index_update(state->count, s.matmul, state->cache, error)" in text
    view = function.graph_module.get_buffer("cache")
    function(np.ones(3, np.float32))
    assert function.graph_module.get_buffer("cache") is view and view[0].any()
    assert not view[1:].any()


def test_the_state_of_a_compiled_function_can_be_put() -> None:
    program, function = Cache(), fx.compile(Cache(), "f32[3]", backend="c")
    first, *others = calls("f32[3]")
    function(first)
    saved = {path: array.copy() for path, array in function.graph_module.state_dict().items()}
    after = [function(x) for x in others]
    function.graph_module.load_state_dict(saved)
    for x, expected in zip(others, after, strict=True):
        np.testing.assert_array_equal(function(x), expected)
    function.graph_module.set_attribute("count", np.zeros((), np.int64))
    function.graph_module.set_attribute("cache", np.zeros((6, 3), np.float32))
    same(program(first), function(first), "as new")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("name", ["nested", "batch_norm"])
def test_a_folder_tests_results_and_states(name: str, tmp_path: Path) -> None:
    make, declared = PROGRAMS[name]
    fx.compile(make(), declared, backend="c").save(tmp_path / "out")
    done = make_test(tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK:" in done.stdout
    assert ("layers_0_h" if name == "nested" else "running_mean") in done.stdout
