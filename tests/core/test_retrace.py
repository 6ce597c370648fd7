"""Tracing what was traced: the same graph again, or with other types; copies and files likewise."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.errors import ShapeError
from tests.oracle import compare
from tests.zoo import ZOO, Program


def facts(graph: fx.Graph) -> list[Any]:
    """Everything that makes a graph what it is."""
    return [graph.interface] + [
        (n.name, n.op, n.target, str(n.args), str(n.kwargs), n.type, n.scope, n.loc, dict(n.meta)) for n in graph.nodes
    ]


def retraced(gm: fx.GraphModule) -> fx.GraphModule:
    return fx.GraphModule(gm, fx.Tracer().trace(gm))


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_retrace_is_the_same_graph(program: Program) -> None:
    gm, _, inputs = program.trace()
    for number, node in enumerate(gm.graph.nodes):
        node.meta["number"] = number
    again = retraced(gm)
    assert facts(again.graph) == facts(gm.graph)
    again.graph.lint()
    compare(program.name, again(*inputs), gm(*inputs))
    assert facts(fx.symbolic_trace(gm).graph) == facts(gm.graph)


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_copies_and_files_hold_the_same_graph(program: Program, tmp_path: Path) -> None:
    gm, _, _ = program.trace()
    for number, node in enumerate(gm.graph.nodes):
        node.meta["number"] = number
    fx.save(gm, tmp_path / "saved.fxl")
    loaded = fx.load(tmp_path / "saved.fxl")
    for other in (gm.copy(), copy.deepcopy(gm), pickle.loads(pickle.dumps(gm)), loaded):
        assert facts(other.graph) == facts(gm.graph)


def test_retrace_keeps_randomness_leaves_and_parts() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            first, second = np.split(self.drop(self.fc(x)), 2, axis=1)
            return {"first": first, "both": [second, (first, self.drop(x))]}

    gm = fx.symbolic_trace(Net(), "f32[B,4]", leaf="fc")
    assert facts(retraced(gm).graph) == facts(gm.graph)
    untyped = fx.symbolic_trace(lambda x: np.exp(x) + np.float32([1, 2]))
    assert facts(retraced(untyped).graph) == facts(untyped.graph)


def test_other_types() -> None:
    def program(x: Any, y: Any) -> Any:
        return (x.reshape(-1) / x.shape[0] + y.sum()).reshape(x.shape)

    gm = fx.symbolic_trace(program, "f32[B,4]", "f32[B,B]")
    typed = fx.symbolic_trace(gm, x="f32[8,4]")
    assert [str(n.type) for n in typed.graph.placeholders] == ["f32[8,4]", "f32[8,8]"]
    assert all(t.is_concrete for n in typed.graph.nodes for t in [n.type])
    x, y = np.ones((8, 4), np.float32), np.ones((8, 8), np.float32)
    np.testing.assert_array_equal(typed(x, y), program(x, y))
    typed.graph.lint(full=True)
    renamed = fx.symbolic_trace(gm, x="f32[N,4]")
    assert [str(n.type) for n in renamed.graph.placeholders] == ["f32[N,4]", "f32[N,N]"]
    double = fx.symbolic_trace(gm, x="f64[B,4]")
    assert str(double.graph.output_node().type) == "f64[B,4]"


def test_untyped_graph_gets_types() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x) * 2)
    typed = fx.symbolic_trace(gm, "f32[B,4]")
    assert str(typed.graph.output_node().type) == "f32[B,4]"


def test_types_that_contradict_the_graph_are_refused() -> None:
    gm = fx.symbolic_trace(lambda x: x * x.shape[0], "f32[8,B]")
    with pytest.raises(ShapeError, match=r"x was traced as f32\[8,B\], so f32\[9,3\] does not fit"):
        fx.symbolic_trace(gm, x="f32[9,3]")
    with pytest.raises(ShapeError, match="cannot replace"):
        fx.symbolic_trace(gm, x="f32[8]")
    square = fx.symbolic_trace(lambda x: x, "f32[B,B]")
    with pytest.raises(ShapeError, match="9 where 8 is expected"):
        fx.symbolic_trace(square, x="f32[8,9]")


def test_concrete_input_of_a_graph_module() -> None:
    gm = fx.symbolic_trace(lambda x, y: x * y, "f32[B]", "f32[B]")
    half = fx.symbolic_trace(gm, concrete_args={"y": np.float32([1, 2, 3])})
    assert [n.target for n in half.graph.placeholders] == ["x"]
    np.testing.assert_array_equal(half(np.ones(3, np.float32)), [1, 2, 3])


def test_graph_module_inside_a_program() -> None:
    inner = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "f32[B,4]")

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = inner

        def forward(self, x: Any) -> Any:
            return self.body(x) + self.body(x * 2)

    model = Outer()
    gm = fx.symbolic_trace(model, "f32[N,4]")
    gm.graph.lint(full=True)
    scopes = {n.scope.path for n in gm.graph.find_nodes(op="call_function") if n.scope is not None}
    assert {"body.0", "body.1", ""} <= scopes
    read = [n.target for n in gm.graph.find_nodes(op="get_attr")]
    assert sorted(read) == ["body.0.bias", "body.0.weight"]
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(gm(x), model(x), rtol=1e-6)
    function = fx.symbolic_trace(lambda x: inner(x), "f32[N,4]")
    np.testing.assert_allclose(function(x), inner(x), rtol=1e-6)


def test_a_wrapped_part_of_a_tuple_survives() -> None:
    gm = fx.symbolic_trace(lambda x: ops.split(x, (1, 3))[1], "f32[4]")
    assert facts(retraced(gm).graph) == facts(gm.graph)
