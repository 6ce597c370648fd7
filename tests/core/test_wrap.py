"""fx.wrap: a Python function as one node."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, CodegenError, ParseError, TraceError
from fxlite.codegen.python.source import python_program, python_source
from fxlite.passes import dce

fx.wrap("late")


@fx.wrap(infer=lambda x, axis: x)
def sort_along(axis: int, x: Any) -> Any:
    """Attributes may come before arrays."""
    assert isinstance(x, np.ndarray)
    return np.sort(x, axis)


@fx.wrap
def shifted(x, by=1.0, mode="up"):  # type: ignore[no-untyped-def]
    return x + by if mode == "up" else x - by


@fx.wrap(infer=lambda x: (x, "i64"))
def with_count(x: Any) -> Any:
    return np.abs(x), np.asarray(x.size)


@fx.wrap(infer="f32[]")
def total(xs: list[Any]) -> Any:
    return np.float32(sum(x.sum() for x in xs))


def late(x: Any) -> Any:
    return np.sort(x)


X = np.float32([[3, 1, 2], [0, -1, 5]])


def program(x: Any) -> Any:
    return sort_along(1, x * 2) + shifted(x, mode="down")


def test_one_node_that_runs_everywhere() -> None:
    gm = fx.symbolic_trace(program, "f32[B,3]")
    node = gm.graph.find_nodes(op="call_function", target=sort_along.wrapped_op)[0]
    assert node.name == "sort_along"
    assert str(node.type) == "f32[B,3]"
    assert node.kwargs == {"axis": 1}
    assert node.loc is not None
    assert node.loc.expression == "sort_along(1, x * 2)"
    for run in (
        gm,
        fx.Interpreter(gm).run,
        pickle.loads(pickle.dumps(gm)),
        dce(gm),
        fx.compile(program, "f32[B,3]", backend="python"),
        fx.Transformer(gm).transform(),
        python_program(gm),
    ):
        np.testing.assert_array_equal(run(X), program(X))
    gm.graph.lint(full=True)


def test_text_parses_back() -> None:
    gm = fx.symbolic_trace(program, "f32[B,3]")
    assert f"ops.wrapped.{__name__}.sort_along(mul, axis=1)" in gm.graph.text(full=True)
    assert fx.parse(gm.graph.text(full=True)) == gm.graph


def test_files(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(program, "f32[B,3]")
    fx.save(gm, tmp_path / "wrapped.fxl")
    np.testing.assert_array_equal(fx.load(tmp_path / "wrapped.fxl")(X), program(X))


def test_regenerated_python_imports_the_function() -> None:
    source = python_source(fx.symbolic_trace(program, "f32[B,3]"))
    assert f"from {__name__} import shifted, sort_along" in source
    assert "sort_along(x=x * 2, axis=1)" in source


def test_outside_of_tracing_it_is_the_function() -> None:
    np.testing.assert_array_equal(sort_along(0, X), np.sort(X, 0))
    np.testing.assert_array_equal(shifted(X), X + 1)
    assert sort_along.__doc__ == "Attributes may come before arrays."


def test_wrapped_by_name_before_it_is_defined() -> None:
    gm = fx.symbolic_trace(lambda x: late(x) * 2)
    assert any(n.name == "late" for n in gm.graph.nodes)
    np.testing.assert_array_equal(gm(X), np.sort(X) * 2)
    np.testing.assert_array_equal(late(X), np.sort(X))


def test_several_results_and_sequences() -> None:
    def both(x: Any) -> Any:
        positive, count = with_count(x)
        return positive * count, total([x, positive, positive])

    gm = fx.symbolic_trace(both, "f32[B,3]")
    for one, other in zip(gm(X), both(X), strict=True):
        np.testing.assert_array_equal(one, other)
    gm.graph.lint(full=True)


def test_untyped_result() -> None:
    gm = fx.symbolic_trace(lambda x: shifted(x) * 2, "f32[B,3]")
    assert gm.graph.output_node().type is None
    np.testing.assert_array_equal(gm(X), (X + 1) * 2)


@pytest.mark.parametrize("backend", ["c", "cuda"])
def test_compiled_code_says_why_not(backend: str) -> None:
    options = {"device": "shim"} if backend == "cuda" else {}
    with pytest.raises(CodegenError, match=r'sort_along is a Python function, .*backend="python"'):
        fx.compile(lambda x: sort_along(1, x), "f32[B,3]", backend=backend, **options)


def test_local_functions_keep_their_own_meaning() -> None:
    def make(k: float) -> fx.GraphModule:
        @fx.wrap
        def times(x: Any) -> Any:
            return x * k

        return fx.symbolic_trace(lambda x: times(x))

    two, three = make(2.0), make(3.0)
    np.testing.assert_array_equal(two(X), X * 2)
    np.testing.assert_array_equal(three(X), X * 3)
    np.testing.assert_array_equal(fx.parse(two.graph.text(full=True)) == two.graph, True)
    with pytest.raises(CodegenError, match="define it at the level of a module"):
        python_source(two)


def test_wrong_uses() -> None:
    with pytest.raises(ArgumentError, match=r"\*xs.* cannot be an argument of a node"):
        fx.wrap(variadic)
    with pytest.raises(ArgumentError, match="needs a function with a name"):
        fx.wrap(lambda x: x)
    with pytest.raises(ArgumentError, match="at the level of the module"):
        fx.wrap("late")
    with pytest.raises(TraceError, match=r"axis of .*sort_along is annotated as a plain value"):
        fx.symbolic_trace(lambda x: sort_along(x, x), "i64[3]")
    with pytest.raises(ParseError, match="import its module first"):
        fx.parse("def forward(self, x: f32[3]):\n    y = ops.wrapped.nowhere.f(x)\n    return y")


def variadic(*xs: Any) -> Any:
    return xs


def test_wrapping_twice_is_wrapping_once() -> None:
    assert fx.wrap(shifted) is shifted
    assert fx.wrap(shifted.__wrapped__).wrapped_op is shifted.wrapped_op
    assert sys.modules[__name__].late.__name__ == "late"
