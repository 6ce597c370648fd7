"""Functions that answer before they are compiled: the same results, states that go over, and errors that are said."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.backend import find_backend
from fxlite.base.errors import CodegenError, PicklingError

X = np.random.default_rng(0).standard_normal((3, 8), np.float32)


@pytest.fixture
def may_go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is compiled before this event is set."""
    event = threading.Event()

    def later(compile: Any) -> Any:
        def compiled(self: Any, module: Any, *args: Any, **options: Any) -> Any:
            assert event.wait(60)
            return compile(self, module, *args, **options)

        return compiled

    for name in ("c", "python"):
        kind = type(find_backend(name))
        monkeypatch.setattr(kind, "compile", later(kind.compile))
    yield event
    event.set()


def test_it_answers_before_and_after(may_go_on: threading.Event) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    expected = model(X)
    module = fx.symbolic_trace(model, "f32[B,8]")
    function = fx.compile(module, warm=False, threads=1)
    for node in module.graph.find_nodes(op="call_module"):
        node.replace_all_uses_with(node.args[0])  # an edit of the user's module afterwards
    assert not function.is_ready and repr(function).startswith("<StartingFunction Sequential(")
    np.testing.assert_allclose(function(X), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(TimeoutError, match=r"Sequential is not compiled after 0\.01 seconds; calls go on with NumPy"):
        function.wait(0.01)
    may_go_on.set()
    compiled = function.wait()
    assert function.is_ready and repr(function) == repr(compiled) and function.threads == 1
    np.testing.assert_allclose(function(X), expected, rtol=1e-4, atol=1e-5)
    assert "sequential.c" in function.sources
    with pytest.raises(AttributeError, match="nothing"):
        function.nothing  # noqa: B018
    with pytest.raises(PicklingError, match="cannot be pickled"):
        pickle.dumps(function)


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", np.zeros((8, 2), np.float32))
        self.register_buffer("count", np.zeros((), np.int64))

    def forward(self, x: Any) -> Any:
        self.rows[self.count] = x
        self.count += 1
        return self.rows.sum(axis=0)


@pytest.mark.parametrize("backend", ["c", "python"])
def test_states_go_over(backend: str, may_go_on: threading.Event) -> None:
    program, expected = Sum(), Sum()
    function = fx.compile(program, "f32[2]", backend=backend, warm=False)
    for number in range(6):
        if number == 3:
            may_go_on.set()
            function.wait()
        x = np.float32([number, 1])
        np.testing.assert_array_equal(function(x), expected(x))
        holder = getattr(function.wait(), "holder", function.graph_module) if number > 2 else function.graph_module
        assert holder.get_buffer("count") == number + 1
    assert program.count == 0


def test_what_does_not_compile_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, module: Any, *args: Any, **options: Any) -> Any:
        raise CodegenError("no code for this")

    monkeypatch.setattr(type(find_backend("c")), "compile", fails)
    function = fx.compile(nn.Linear(8, 2), "f32[B,8]", warm=False)
    for call in (function.wait, lambda: function(X), lambda: function.sources):
        with pytest.raises(CodegenError, match="no code for this"):
            call()
    assert repr(function).endswith(", which did not compile: CodegenError>")
