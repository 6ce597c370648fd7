"""``donate=``: a result is stored in the memory of an input, without a copy, or an error says why not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, CodegenError
from tests.codegen.compiling import make_test


def step(x: Any, row: Any, i: Any) -> Any:
    x = x.copy()
    x[i] = row
    return x, x.sum(0)


def arrays() -> list[np.ndarray[Any, Any]]:
    return [np.zeros((5, 3), np.float32), np.arange(3, dtype=np.float32), np.array(2)]


def test_a_part_is_written_into_the_donated_array() -> None:
    function = fx.compile(step, "f32[5,3]", "f32[3]", "i64[]", backend="c", donate=("x",))
    x, row, i = arrays()
    expected = step(x, row, i)
    result = function(x, row, i)
    assert result[0] is x
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert "fx_copy(" not in function.sources["step.c"]
    # run_flat, which profiles and checks call, writes into nothing
    before = x.copy()
    function.run_flat({"x": x, "row": row + 1, "i": i})
    np.testing.assert_array_equal(x, before)


def test_what_is_computed_of_the_same_element() -> None:
    function = fx.jit(lambda x, y: x * 2 + y, backend="c", donate="x")
    for size in (4, 7):
        x, y = np.ones((size, 3)), np.ones((size, 3))
        result = function(x, y)
        assert result is x and (x == 3).all()


def test_several() -> None:
    def move(position: Any, velocity: Any) -> Any:
        return position + velocity, velocity * 0.5

    function = fx.compile(move, "f64[N]", "f64[N]", backend="c", donate=("position", "velocity"))
    position, velocity = np.zeros(9), np.ones(9)
    # the second result cannot be stored before the first has read what it was, which it does
    result = function(position, velocity)
    assert result[0] is position and result[1] is velocity
    assert (position == 1).all() and (velocity == 0.5).all()


def test_refused_when_compiled() -> None:
    with pytest.raises(ArgumentError, match="no such input that is only read"):
        fx.compile(step, "f32[5,3]", "f32[3]", "i64[]", backend="c", donate=("z",))
    with pytest.raises(ArgumentError, match=r"no result of .* has the type of i, i64"):
        fx.compile(step, "f32[5,3]", "f32[3]", "i64[]", backend="c", donate=("i",))
    with pytest.raises(CodegenError, match="cannot be stored over x"):
        fx.compile(lambda x: x + x[::-1], x="f32[4]", backend="c", donate=("x",))
    with pytest.raises(ArgumentError, match="names of inputs"):
        fx.compile(lambda x: x + 1, x="f32[4]", backend="c", donate=3)
    with pytest.raises(fx.errors.FxliteError, match="donate"):
        fx.compile(lambda x: x + 1, x="f32[4]", backend="python", donate=("x",))


def test_refused_when_called() -> None:
    function = fx.compile(lambda x, y: x + y, x="f64[3,4]", y="f64[3,4]", backend="c", donate=("x",))
    x, y = np.zeros((3, 4)), np.ones((3, 4))
    frozen = x.copy()
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        function(frozen, y)
    with pytest.raises(ArgumentError, match="C-contiguous"):
        function(np.zeros((4, 3)).T, y)
    with pytest.raises(ArgumentError, match="shares memory with y"):
        function(x, x)
    assert function(x, y) is x and (x == 1).all()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_folder_tests_what_is_donated(tmp_path: Path) -> None:
    function = fx.compile(step, "f32[5,3]", "f32[3]", "i64[]", backend="c", donate=("x",))
    function.save(tmp_path / "out")
    header = (tmp_path / "out" / "step.h").read_text()
    assert "@param[in,out] x" in header
    done = make_test(tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
