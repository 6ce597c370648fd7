"""Parameters with defaults and those that a trace gives a value stay parameters, as in torch.fx."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn

X = np.float32([1, -2, 3])
SHIFT = np.float32([1, 0, 1])


def scaled(x: Any, y: Any = 3) -> Any:
    return x * y


def doubled(x: Any, flag: Any) -> Any:
    return x * 2 if flag else x


def test_a_default_stays_an_input_without_types() -> None:
    gm = fx.symbolic_trace(scaled)
    assert gm(2, 3) == 6 and gm(2) == 6 and gm(2, y=5) == 10
    assert str(gm.__signature__) == "(x, y=3)"
    assert [n.args for n in gm.graph.placeholders] == [(), (3,)]
    assert fx.Interpreter(gm).run(2) == 6 and fx.Interpreter(gm).run(2, 4) == 8


def test_a_default_that_has_to_be_a_number_is_baked_in() -> None:
    def summed(x: Any, axis: int = 0, n: int = 2) -> Any:
        for _ in range(n):
            x = x + 1
        return x.sum(axis=axis)

    gm = fx.symbolic_trace(summed)
    assert gm(X) == gm(X, 0, 2) == 8 and str(gm.__signature__) == "(x, axis=0, n=2)"
    with pytest.raises(fx.errors.ArgumentError, match=r"summed: n was 2 when .* cannot be 3: trace"):
        gm(X, n=3)


@pytest.mark.parametrize("types", [{}, {"x": "f32[3]"}])
def test_a_specialized_argument_stays_a_parameter(types: dict[str, str], tmp_path: Path) -> None:
    gm = fx.symbolic_trace(doubled, concrete_args={"flag": True}, **types)
    fx.save(gm, tmp_path / "gm.fxl")
    made = [gm, gm.copy(), pickle.loads(pickle.dumps(gm)), fx.load(tmp_path / "gm.fxl")]
    made += [fx.passes.PassManager(["dce"])(gm), fx.symbolic_trace(gm)]
    made += [fx.compile(gm, backend="c"), fx.compile(gm, backend="python")] if types else []
    for fn in made:
        for result in (fn(X), fn(X, True), fn(X, flag=True), fn(flag=True, x=X)):
            np.testing.assert_array_equal(result, X * 2)
        with pytest.raises(fx.errors.ArgumentError, match=r"flag was True when .* cannot be False"):
            fn(X, False)
        with pytest.raises(fx.errors.ArgumentError, match=r"doubled\(x, flag=True\)"):
            fn(X, True, 3)
    assert str(gm.__signature__) == "(x, flag=True)"


def test_a_specialized_argument_may_stand_first() -> None:
    def program(flag: Any, x: Any, y: Any = 1) -> Any:
        return x + y if flag else x - y

    gm = fx.symbolic_trace(program, concrete_args={"flag": False}, x="f32[3]", y="f32[]")
    assert str(gm.__signature__).startswith("(flag, x, y=")
    for result in (gm(False, X), gm(X), gm(x=X), gm(False, X, np.float32(1)), gm(X, y=np.ones((), "f"))):
        np.testing.assert_array_equal(result, X - 1)
    with pytest.raises(fx.errors.ArgumentError, match="flag was False"):
        gm(True, X)


def test_values_that_are_no_data() -> None:
    def higher(a: Any, f: Any) -> Any:
        return f(a)

    def square(v: Any) -> Any:
        return v * v

    gm = fx.symbolic_trace(higher, concrete_args={"f": square})
    assert gm(3, square) == gm(3) == 9
    loaded = pickle.loads(pickle.dumps(gm))
    assert loaded(3) == 9
    with pytest.raises(fx.errors.ArgumentError, match="f was a function when"):
        loaded(3, lambda v: v)
    table = np.float32([1, 2, 3])
    gm = fx.symbolic_trace(lambda x, t: x * t, "f32[3]", concrete_args={"t": table})
    np.testing.assert_array_equal(gm(X, table.copy()), X * table)
    with pytest.raises(fx.errors.ArgumentError, match="t was another one when"):
        gm(X, X)


def test_a_default_is_kept_where_the_input_has_its_type(tmp_path: Path) -> None:
    def program(x: Any, k: Any = 2, shift: Any = SHIFT, mask: Any = None) -> Any:
        return x * np.exp(k) + shift if mask is None else x * mask

    gm = fx.symbolic_trace(program, x="f32[N]", k="f32[]", shift="f32[N]")
    expected = X * np.exp(np.float32(2)) + np.float32([1, 0, 1])
    for made in (gm, fx.compile(gm, backend="c"), fx.compile(gm, backend="python")):
        np.testing.assert_allclose(made(X), expected, rtol=1e-6)
        np.testing.assert_allclose(made(X, shift=X), expected + X - [1, 0, 1], rtol=1e-5)
    assert "k: f32 = 2, shift: f32[N] = (1.0, 0.0, 1.0)" in gm.graph.text(full=True)
    fx.assert_same(fx.parse(gm.graph.text(full=True)), gm.graph)
    fx.save(gm, tmp_path / "gm.fxl")
    np.testing.assert_allclose(fx.load(tmp_path / "gm.fxl")(X), expected, rtol=1e-6)
    for dialect, text in (
        ("fxlite", "k=np.float32(2.0), shift=np.array((1.0, 0.0, 1.0), np.float32)"),
        ("numpy", "k=np.float32(2.0), shift=np.array((1.0, 0.0, 1.0), np.float32)"),
        ("torch", "k=torch.tensor(2, dtype=torch.float32), shift=torch.tensor("),
    ):
        assert text in " ".join(gm.source(dialect=dialect).split())


def test_an_input_without_its_default_must_be_given() -> None:
    def program(x: Any, k: Any = 2, mask: Any = None) -> Any:
        return x * k if mask is None else x * k * mask

    gm = fx.symbolic_trace(program, x="f32[3]", k="f32[]", mask="f32[3]")
    assert str(gm.__signature__) == "(x, k, mask)"  # Python knows no default before mask
    np.testing.assert_array_equal(gm(X, mask=X), X * 2 * X)
    with pytest.raises(fx.errors.ArgumentError, match="mask"):
        gm(X)
    assert "k: f32 = 2, mask: f32[3] = ..." in gm.graph.text(full=True)
    fx.assert_same(fx.parse(gm.graph.text(full=True)), gm.graph)
    gm = fx.symbolic_trace(lambda x, k=2.5: x * k, x="f32[3]", k="i32[]")
    with pytest.raises(fx.errors.ArgumentError, match="missing a required argument: 'k'"):
        gm(X)


def test_options_of_modules_called_in_a_program() -> None:
    class Inner(nn.Module):
        def forward(self, x: Any, scale: Any = 2, mode: str = "add") -> Any:
            return x + scale if mode == "add" else x * scale

    inner = fx.symbolic_trace(Inner(), x="f32[3]")
    outer = fx.symbolic_trace(lambda x: inner(x, 2, mode="add"), x="f32[3]")
    np.testing.assert_array_equal(outer(X), X + 2)
    with pytest.raises(fx.errors.ArgumentError, match="scale was 2"):
        fx.symbolic_trace(lambda x: inner(x, 7), x="f32[3]")


def test_retraced_with_a_value_for_an_input() -> None:
    gm = fx.symbolic_trace(lambda x, y: x - y, x="f32[3]", y="f32[3]")
    fixed = fx.symbolic_trace(gm, concrete_args={"y": X})
    np.testing.assert_array_equal(fixed(X * 3), X * 2)
    np.testing.assert_array_equal(fixed(X * 3, X.copy()), X * 2)
    with pytest.raises(fx.errors.ArgumentError, match="y was another one"):
        fixed(X, X * 2)
