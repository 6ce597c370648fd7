"""gm.specialize: named dims replaced by numbers or other dims, everywhere in a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.errors import ArgumentError, ShapeError
from fxlite.graph.graph_module import check_inputs
from tests.oracle import compare
from tests.zoo import ZOO, Program


class Net(nn.Module):
    """Uses sizes in shapes, attributes and values."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        assert x.shape[1] <= 64
        return self.fc(x)[:, : x.shape[1] // 2] + ops.zeros((x.shape[0], 1, 4)) * x.shape[1]


B, T = fx.dims("B T", min=1, multiple_of={"T": 8})


def traced() -> fx.GraphModule:
    return fx.symbolic_trace(Net(), x=fx.float32[B, T, 4])


def test_numbers_take_the_place_of_names() -> None:
    gm = traced()
    before = gm.graph.text(full=True)
    gm.graph.nodes.__iter__().__next__().meta["note"] = 1
    done = gm.specialize(T=16)
    assert gm.graph.text(full=True) == before
    assert not any("T" in str(n.type) or "T" in str(n.kwargs) for n in done.graph.nodes)
    assert str(done.graph.output_node().type) == "f32[B,8,4]"
    assert done.graph.guards == () and set(done.graph.declared_dims) == {"B"}
    assert [(n.name, n.scope, n.loc, n.meta) for n in done.graph.nodes] == [
        (n.name, n.scope, n.loc, n.meta) for n in gm.graph.nodes
    ]
    assert done.fc.weight is gm.fc.weight
    x = np.random.default_rng(0).standard_normal((3, 16, 4)).astype(np.float32)
    np.testing.assert_array_equal(done(x), gm(x))
    done.graph.lint(full=True)


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_every_program(program: Program) -> None:
    gm, _, inputs = program.trace()
    sizes: dict[str, int] = check_inputs(
        "zoo", gm.graph.placeholders, {n.target: v for n, v in zip(gm.graph.placeholders, inputs)}
    )
    done = gm.specialize(sizes)
    done.graph.lint(full=True)
    assert all(n.type.is_concrete for n in done.graph.placeholders)
    compare(program.name, done(*inputs), gm(*inputs))


def test_another_size_is_refused_and_told_why(tmp_path: Path) -> None:
    done = traced().specialize(T=16)
    fx.save(done, tmp_path / "done.fxl")
    text = done.graph.text(full=True)
    assert "# specialized: T = 16" in text and fx.parse(text).text(full=True) == text
    again = fx.symbolic_trace(done, "f32[2,16,4]")
    for module in (done, done.copy(), fx.load(tmp_path / "done.fxl"), again):
        with pytest.raises(ShapeError, match=r"axis 1 must be 16, not 8 \(T was specialized to 16"):
            module(np.zeros((2, 8, 4), np.float32))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"T": 12}, r"specialize\(T=12\): Net: T % 8 == 0 is required \(declared by fx.dims\)"),
        ({"B": 0}, "B >= 1 is required"),
        ({"T": 72}, r"T <= 64 is required by test_specialize.py:\d+: assert x.shape\[1\] <= 64"),
        ({"t": 8}, "no named dim 't': there are B, T"),
        ({"T": -8}, "a size cannot be negative"),
        ({"T": "8 8"}, "is not a dim"),
        ({"T": 1.5}, "a dim is an int or a named dim"),
    ],
)
def test_sizes_that_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        traced().specialize(sizes)


def test_a_name_close_to_another() -> None:
    gm = fx.symbolic_trace(lambda x: x + 1, "f32[batch,T]")
    with pytest.raises(ArgumentError, match="did you mean batch"):
        gm.specialize(batsh=3)


def test_other_dims_take_over_what_is_required() -> None:
    renamed = traced().specialize(T="S")
    assert renamed.graph.declared_dims["S"].facts == T.facts
    assert [str(g) for g in renamed.graph.guards] == ["S <= 64"]
    doubled = fx.symbolic_trace(lambda x: x + 1, fx.float32[B, T]).specialize(T=8 * fx.dims("S"))
    assert [str(g) for g in doubled.graph.guards] == ["8*S >= 1"]
    assert str(doubled.graph.output_node().type) == "f32[B,8*S]"
    both = traced().specialize(T="S").specialize(S=16)
    with pytest.raises(ShapeError, match="T was specialized to 16, S was specialized to 16"):
        both(np.zeros((2, 8, 4), np.float32))


def test_nested_inputs_stay_nested() -> None:
    def program(batch: dict[str, Any]) -> Any:
        return batch["a"] + batch["b"]

    gm = fx.symbolic_trace(program, batch={"a": "f32[B,T]", "b": "f32[T]"})
    x = {"a": np.ones((2, 3), np.float32), "b": np.ones(3, np.float32)}
    np.testing.assert_array_equal(gm.specialize(T=3)(x), gm(x))
