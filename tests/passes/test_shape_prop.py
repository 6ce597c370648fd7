"""Types inferred anew (shape_prop), and types compared with the arrays of a run (ShapeProp)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.passes.shape_prop import ShapeProp, TensorMetadata, shape_prop
from tests import models
from tests.zoo import ZOO


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, stride=2), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(np.maximum(self.conv(x), 0).mean(axis=(2, 3)))


def types(gm: fx.GraphModule) -> list[str]:
    return [str(n.type) for n in gm.graph.nodes]


@pytest.mark.parametrize("before", [None, "f32[2,3,9,9]", "f32[N,3,H,H]"])
@pytest.mark.parametrize("after", ["f32[B,3,H,W]", "f32[1,3,224,224]", "f64[2,3,H,16]"])
def test_as_if_traced_so(before: str | None, after: str) -> None:
    """From no types, numbers or names to names, numbers or another dtype."""
    net = Net()
    gm = fx.symbolic_trace(net, x=before) if before else fx.symbolic_trace(net)
    known = types(gm)
    made = shape_prop(gm, x=after)
    assert types(gm) == known
    assert made.graph.text(full=True) == fx.symbolic_trace(net, x=after).graph.text(full=True)
    assert made.get_attribute("fc.weight") is net.fc.weight
    made.graph.lint(full=True)


@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
def test_zoo(entry: Any) -> None:
    """Every type of every program is that of the array, also where the types come from the sizes of
    a run; without new types nothing changes."""
    program, declared, inputs = entry.make()
    gm = fx.symbolic_trace(program, *declared)
    assert shape_prop(gm).graph.text(full=True) == gm.graph.text(full=True)
    ShapeProp(gm).propagate(*inputs)
    at_sizes = shape_prop(gm, *inputs)
    ShapeProp(at_sizes).propagate(*inputs)
    for node in at_sizes.graph.nodes:
        found = node.meta["tensor_meta"]
        if isinstance(node.type, fx.TensorType):
            assert (found.shape, found.dtype) == (node.type.shape, node.type.dtype)
            assert found.nbytes == node.type.nbytes


def test_names_that_the_graph_writes_follow() -> None:
    gm = models.traced("gpt_block")
    made = shape_prop(gm, x="f32[2,S,64]")
    reshape = made.graph.find_nodes(op="call_function", target="reshape")[0]
    assert str(reshape.kwargs["shape"]) == "(2, S, 4, 16)" and str(reshape.type) == "f32[2,S,4,16]"
    x = np.ones((2, 5, 64), np.float32)
    np.testing.assert_array_equal(made(x), gm(x))


def test_a_value_gives_way_to_a_dim_of_its_name() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), "f32[4]")
    next(n for n in gm.graph.nodes if n.target is fx.ops.exp).name = "H"
    made = shape_prop(gm, "f32[H]")
    assert [n.name for n in made.graph.nodes] == ["x", "H_1", "output"]
    assert fx.parse(made.graph.text(full=True)) == made.graph


def test_facts_of_named_dims_hold_on() -> None:
    sizes = fx.dims("T", max=512)
    gm = fx.symbolic_trace(lambda x: np.exp(x), fx.TensorType((sizes, 4), fx.float32))
    made = shape_prop(gm, "f32[S,8]")
    with pytest.raises(ShapeError, match="S must be at most 512"):
        made(np.zeros((513, 8), np.float32))
    with pytest.raises(ShapeError, match="T <= 512"):
        shape_prop(gm, "f32[513,8]")


def test_what_does_not_fit() -> None:
    gm = fx.symbolic_trace(Net(), x="f32[2,3,9,9]")
    with pytest.raises(ShapeError) as caught:
        shape_prop(gm, "f32[2,4,9,9]")
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("  in node conv2d: f32[2,8,4,4] = conv2d (conv (Conv2d), test_shape")
    assert lines[3] == "  x.shape[1] is 4: axis 1 of the input x"
    with pytest.raises(ArgumentError, match="no parameter 'y'"):
        shape_prop(gm, y="f32[2]")

    def flat(x: Any) -> Any:
        return x.reshape(x.shape[0], -1).reshape(2, 3, 3)

    with pytest.raises(ShapeError, match=r"\n  x.shape\[1\] is .*: reshape at test_shape_prop"):
        shape_prop(fx.symbolic_trace(flat, "f32[2,9]"), "f32[2,10]")


def test_metadata() -> None:
    gm = fx.symbolic_trace(lambda x: (x.T, np.split(x, 2)), "f32[2*B,3]")
    result = fx.ShapeProp(gm).propagate(x=np.zeros((4, 3), np.float32))
    assert result[0].shape == (3, 4)
    permute = gm.graph.find_nodes(op="call_function", target="permute")[0]
    assert permute.meta["tensor_meta"] == TensorMetadata((3, 4), fx.float32, (1, 3), 48)
    split = gm.graph.find_nodes(op="call_function", target="split")[0]
    assert [part.shape for part in split.meta["tensor_meta"]] == [(2, 3), (2, 3)]
    assert passes.ShapeProp is fx.ShapeProp


def test_a_type_that_is_not_true() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(np.tanh(x)), "f32[B,3]")
    exp = gm.graph.find_nodes(op="call_function", target="exp")[0]
    x = np.zeros((2, 3), np.float32)
    exp.type = fx.parse_type("f32[B,4]")
    with pytest.raises(ShapeError, match=r"the value is f32\[2,3\], but its type says f32\[B,4\]"):
        ShapeProp(gm).propagate(x)
    exp.type = fx.parse_type("f64[B,3]")
    with pytest.raises(DTypeError, match=r"the value is f32\[2,3\], but its type says f64\[B,3\]"):
        ShapeProp(gm).propagate(x)
