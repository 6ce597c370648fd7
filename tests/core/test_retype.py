"""Types follow edits: what is typed anew, what is not, and what happens to an edit that does not
fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import ShapeError
from fxlite.graph.graph import Graph


class Tail(nn.Module):
    """Two linear layers and a sum over what is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h = np.tanh(self.up(x))
        return self.down(h) + h.sum(axis=-1, keepdims=True)


def types(gm: fx.GraphModule) -> dict[str, str]:
    return {n.name: str(n.type) for n in gm.graph.nodes}


def node(gm: fx.GraphModule, name: str) -> Any:
    return next(n for n in gm.graph.nodes if n.name == name)


def test_only_what_a_change_reaches_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any) -> Any:
        y = x.reshape(2, 6).sum(axis=0).sum()  # nothing behind it depends on the 6
        for _ in range(50):
            y = np.exp(y)
        return y + x

    gm = fx.symbolic_trace(program, x="f32[12]")
    asked = []
    infer = Graph._infer

    def counting(self: Graph, *args: Any) -> Any:
        asked.append(args[1])
        return infer(self, *args)

    monkeypatch.setattr(Graph, "_infer", counting)
    node(gm, "reshape").update_kwarg("shape", (3, 4))
    assert [str(target) for target in asked] == ["fx.ops.reshape", "fx.ops.sum", "fx.ops.sum"]
    assert types(gm)["sum"] == "f32[4]" and types(gm)["sum_1"] == "f32"
    gm.graph.lint(full=True)


def test_edits_at_the_start_of_a_long_graph_cost_what_they_change() -> None:
    """Thousands of edits that change a type, each in front of 20,000 nodes that it does not
    reach."""
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[4,6]"))
    short = graph.call_function("reshape", (x,), {"shape": (24,)})
    value = graph.call_function("sum", (short,))
    for _ in range(20_000):
        value = graph.call_function("exp", (value,))
    graph.output(value)
    for turn in range(3_000):
        short.update_kwarg("shape", ((24,), (2, 12), (12, 2))[turn % 3])
    assert str(short.type) == "f32[12,2]" and str(value.type) == "f32"


def test_an_input_with_another_type() -> None:
    gm = fx.symbolic_trace(Tail(), x="f32[2,4]")
    node(gm, "x").type = fx.parse_type("f32[B,T,4]")
    assert types(gm)["tanh"] == "f32[B,T,8]" and types(gm)["output"] == "f32[B,T,3]"
    gm.undo()
    assert types(gm)["output"] == "f32[2,3]"
    gm.redo()
    assert types(gm)["output"] == "f32[B,T,3]"
    gm.graph.lint(full=True)


def test_operands_that_change_together() -> None:
    """``x + relu(x)``: neither reader fits before the other one reads the new value, too."""
    gm = fx.symbolic_trace(lambda x, y: x + np.maximum(x, 0), "f32[4]", "f32[7]")
    x, y = gm.graph.placeholders
    x.replace_all_uses_with(y)
    assert types(gm)["output"] == "f32[7]"
    gm.graph.lint(full=True)
    gm.undo()
    assert types(gm)["output"] == "f32[4]"


def test_an_edit_that_does_not_fit_is_taken_back_and_says_where() -> None:
    gm = fx.symbolic_trace(Tail(), x="f32[2,4]")
    before, text = types(gm), gm.graph.text(full=True)
    with gm.graph.inserting_after(node(gm, "tanh")):
        pooled = gm.graph.call_function("max", (node(gm, "tanh"),), {"axis": 1})
    with pytest.raises(ShapeError) as caught:
        node(gm, "tanh").replace_all_uses_with(pooled, lambda user: user is not pooled)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("linear(f32[2], f32[3,8], f32[3]): x has 2 features")
    assert lines[1].startswith("  in node linear_1: f32[2,3] = linear (down (Linear), test_retype")
    assert lines[2].endswith(": self.down(h)")
    assert lines[3].startswith("  x.shape[0] is 2: max at test_retype.py:")
    assert lines[3].endswith(", axis 0 of the input x")
    assert lines[4] == "  weight.shape[1] is 8: axis 1 of the weight down.weight"
    with pytest.raises(ShapeError, match=r"in node linear: f32\[2,8\] = linear \(up \(Linear\)"):
        node(gm, "x").type = fx.parse_type("f32[2,5]")
    gm.undo()
    assert types(gm) == before and gm.graph.text(full=True) == text
    gm.graph.lint(full=True)


def test_another_op() -> None:
    gm = fx.symbolic_trace(lambda x, y: np.exp(x + y).sum(axis=1), "f32[3,4]", "f32[3,4]")
    node(gm, "sum").target = fx.ops.argmax
    assert types(gm)["output"] == "i64[3]"
    with pytest.raises(ShapeError, match="in node add"):
        node(gm, "add").target = fx.ops.matmul
    assert node(gm, "add").target is fx.ops.add
    gm.graph.lint(full=True)


def test_weights_of_another_shape() -> None:
    gm = fx.symbolic_trace(Tail(), x="f32[2,4]")
    with pytest.raises(ShapeError, match=r"in node linear_1.*\n.*\n  x.shape\[1\] is 8"):
        gm.set_attribute("down.weight", np.zeros((3, 9), np.float32))
    assert gm.get_attribute("down.weight").shape == (3, 8)
    with gm.graph.transaction("wider"):
        gm.set_attribute("down.bias", np.zeros(3, np.float64))
    assert types(gm)["down_bias"] == "f64[3]" and types(gm)["output"] == "f64[2,3]"
    gm.graph.lint(full=True)
    assert gm(np.ones((2, 4), np.float32)).dtype == np.float64
    gm.undo()
    assert types(gm)["output"] == "f32[2,3]"
    with pytest.raises(ShapeError, match=r"bias.shape\[0\] is 3: axis 0 of the weight down.bias"):
        node(gm, "up_bias").target = "down.bias"
    assert node(gm, "up_bias").target == "up.bias"


def test_a_leaf_module() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            return np.exp(self.inner(x))

    traced = fx.symbolic_trace(Outer(), x="f32[2,4]", leaf=nn.Linear)
    node(traced, "x").type = fx.parse_type("f32[B,3,4]")
    assert types(traced)["output"] == "f32[B,3,5]"
    with pytest.raises(ShapeError, match="in node inner"):
        node(traced, "x").type = fx.parse_type("f32[B,3]")
    assert types(traced)["output"] == "f32[B,3,5]"


def test_a_graph_that_is_out_of_order_for_a_while() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[4]"))
    first = graph.call_function("exp", (x,))
    second = graph.call_function("tanh", (first,))
    graph.output(second)
    late = graph.call_function("sum", (x,))  # behind its reader
    first.args = (late,)
    late.update_kwarg("keepdims", True)
    assert str(second.type) == "f32[1]"
    first.prepend(late)
    graph.erase_node(graph.output_node())
    graph.output(second)
    graph.lint(full=True)
