"""Slices whose type is true for axes that are not empty: what a call must fulfil, in every back
end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn


def guards(program: Any, type: Any) -> list[str]:
    return [str(guard) for guard in fx.symbolic_trace(program, type).graph.guards]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x: x[:, -1:], ["T >= 1"]), (lambda x: x[:, 1:] - x[:, :-1], ["T >= 1"]),
        (lambda x: x[:, :1], ["T >= 1"]), (lambda x: x[:, -2:], []), (lambda x: x[:, :2], []),
        (lambda x: x[:, 1:3], ["T >= 1"]), (lambda x: x[:1, 1:], ["B >= 1", "T >= 1"]),
        (lambda x: x[:, :, 1:], []), (lambda x: x[:, : x.shape[0]], []), (lambda x: x[:, ::2], []),
    ],
)  # fmt: skip
def test_what_is_required(program: Any, expected: list[str]) -> None:
    """Where nothing is required, the type says what NumPy does, for empty axes too."""
    gm = fx.symbolic_trace(program, "f32[B,T,4]")
    assert sorted(map(str, gm.graph.guards)) == expected
    x = np.zeros((0, 0, 4), np.float32)
    if not expected:
        fx.ShapeProp(gm).propagate(x)


def test_a_fact_decides() -> None:
    length = fx.dims("T", min=1)
    assert guards(lambda x: x[-1:], fx.TensorType((length,), fx.float32)) == []


def test_an_empty_axis_is_refused_with_the_line() -> None:
    class Last(nn.Module):
        def forward(self, x: Any) -> Any:
            return np.exp(x[:, -1:])

    gm = fx.symbolic_trace(Last(), "f32[B,T,4]")
    rule = r"T >= 1 is required by test_nonempty.py:\d+: x\[:, -1:\]; got T ?= ?0"
    for function in (gm, fx.compile(gm, backend="c", threads=1), fx.Interpreter(gm).run):
        assert function(np.ones((2, 3, 4), np.float32)).shape == (2, 1, 4)
        with pytest.raises(ValueError, match=rule):
            function(np.zeros((2, 0, 4), np.float32))


def test_a_graph_that_was_edited_needs_elements_in_compiled_code_too() -> None:
    gm = fx.symbolic_trace(lambda x: x + 1, x="f32[N]")
    (add,) = gm.graph.find_nodes(op="call_function")
    with gm.graph.inserting_after(add):
        largest = gm.graph.call_function(fx.ops.max, (add,))
    add.replace_all_uses_with(largest, lambda user: user is not largest)
    compiled = fx.compile(gm)
    assert compiled(np.arange(3, dtype=np.float32)) == 3
    with pytest.raises(ValueError, match="N >= 1 is required by test_nonempty"):
        compiled(np.zeros(0, np.float32))
