"""Where a size comes from, and the lines that a ShapeError has on it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.base.errors import GraphError, ShapeError
from fxlite.graph.size_origin import size_origin
from tests import models


def ends(node: Any, axis: int) -> list[str]:
    return [step.title for step in size_origin(node, axis).ends]


def result(gm: fx.GraphModule) -> Any:
    return gm.graph.output_node().all_input_nodes[0]


@pytest.mark.parametrize(
    ("program", "types", "expected"),
    [
        (lambda x: np.exp(x).T, ["f32[B,6]"], ["axis 1 of the input x", "axis 0 of the input x"]),
        (lambda x, y: x + y, ["f32[B,1]", "f32[4]"], ["axis 0 of the input x", "axis 0 of the input y"]),
        (lambda x, y: x @ y, ["f32[3,4]", "f32[4,4]"], ["axis 0 of the input x", "axis 1 of the input y"]),
        (
            lambda x: x.reshape(x.shape[0], -1),
            ["f32[4,2,1,3]"],
            ["axis 0 of the input x", "axis 1 of the input x, axis 3 of the input x"],
        ),
        (lambda x: x.reshape(8, 2, 2), ["f32[8,4]"], ["axis 0 of the input x", "reshape", "reshape"]),
        (
            lambda x, y: np.concatenate([x, y]),
            ["f32[B,3]", "f32[5,3]"],
            ["axis 0 of the input x, axis 0 of the input y", "axis 1 of the input x"],
        ),
        (lambda x: np.split(x, [2], axis=1)[1], ["f32[B,5]"], ["axis 0 of the input x", "split"]),
        (lambda x: np.split(x, 2, axis=1)[1], ["f32[B,4]"], ["axis 0 of the input x", "split"]),
        (
            lambda x, y: np.einsum("ij,jk", x, y),
            ["f32[4,4]", "f32[4,4]"],
            ["axis 0 of the input x", "axis 1 of the input y"],
        ),
        (lambda x: fx.ops.zeros((x.shape[1], 3)), ["f32[B,T]"], ["axis 1 of the input x", "full"]),
        (lambda x: F.layer_norm(x, (4,)), ["f32[B,4]"], ["axis 0 of the input x", "axis 1 of the input x"]),
    ],
)
def test_ends(program: Any, types: list[str], expected: list[str]) -> None:
    node = result(fx.symbolic_trace(program, *types))
    found = [", ".join(ends(node, axis)) for axis in range(node.type.rank)]
    assert [re.sub(r" at \S+:\d+", "", text) for text in found] == expected


def test_models() -> None:
    """Layers decide channels, inputs the rest, however far away they are."""
    bert = result(models.traced("bert"))
    assert ends(bert, 0) == ["axis 0 of the input tokens"]
    assert ends(bert, 1) == ["axis 1 of the input tokens"]
    assert ends(bert, -1) == ["axis 1 of the weight words.weight"]
    unet = result(fx.symbolic_trace(models.UNet().eval(), x="f32[B,3,16*H,64]"))
    assert ends(unet, 1) == ["axis 0 of the weight head.weight"]
    assert ends(unet, 2) == ["axis 2 of the input x"]
    resnet = models.traced("resnet18").graph
    (pooled,) = resnet.find_nodes(op="call_function", target="max_pool2d")
    assert ends(pooled, 2) == ["axis 2 of the input x"]
    assert str(resnet.explain_size(pooled, 1)).splitlines()[-1] == (
        "  64: axis 0 of the weight conv1.weight, f32[64,3,7,7]"
    )


def test_text() -> None:
    def program(x: Any) -> Any:
        return np.exp(np.tanh(x).reshape(x.shape[0], -1))

    gm = fx.symbolic_trace(program, x="f32[B,4,6]")
    lines = str(gm.graph.explain_size(result(gm), 1)).splitlines()
    assert lines[0] == "axis 1 of exp is 24"
    assert re.fullmatch(r"  passed on by exp at test_size_origin.py:\d+", lines[1])
    assert re.fullmatch(
        r"  24: reshape at test_size_origin.py:\d+: np.tanh\(x\).reshape\(x.shape\[0\], -1\), "
        r"from 4 \(axis 1 of tanh\), 6 \(axis 2 of tanh\)",
        lines[2],
    )
    assert lines[4] == "  4: axis 1 of the input x, f32[B,4,6]"


def test_what_is_refused() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x))
    with pytest.raises(GraphError, match="has no type"):
        gm.graph.explain_size(result(gm), 0)
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    with pytest.raises(ShapeError, match="axis 1 is out of range for node exp"):
        gm.graph.explain_size(result(gm), 1)


def test_the_way_back_through_a_deep_graph() -> None:
    graph = fx.Graph()
    value = graph.placeholder("x", fx.parse_type("f32[B,4]"))
    for _ in range(20_000):
        value = graph.call_function("add", (value, value))
    graph.output(value)
    found = size_origin(value, 0)
    assert len(found.steps) == 20_001 and len(str(found)) < 400
    assert not size_origin(value, 0, most=10).is_whole


# -- errors ----------------------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj, self.head = nn.Linear(8, 6), nn.Linear(7, 2)
        self.conv, self.norm = nn.Conv2d(6, 4, 3, groups=2), nn.LayerNorm(5)


class Product(Net):
    def forward(self, x: Any, y: Any) -> Any:
        return np.maximum(self.proj(x), 0) @ y


class Head(Net):
    def forward(self, x: Any) -> Any:
        return self.head(self.proj(x))


class Convolution(Net):
    def forward(self, x: Any) -> Any:
        return self.conv(np.tanh(x))


class Norm(Net):
    def forward(self, x: Any) -> Any:
        return self.norm(self.proj(x))


@pytest.mark.parametrize(
    ("program", "types", "lines"),
    [
        (
            Product(),
            ["f32[B,T,8]", "f32[7,3]"],
            [
                "x.shape[2] is 6: relu at FILE, axis 0 of the weight proj.weight (linear at FILE)",
                "y.shape[0] is 7: axis 0 of the input y",
            ],
        ),
        (
            Head(),
            ["f32[B,8]"],
            [
                "x.shape[1] is 6: axis 0 of the weight proj.weight (linear at FILE)",
                "weight.shape[1] is 7: axis 1 of the weight head.weight",
            ],
        ),
        (
            Convolution(),
            ["f32[B,5,H,W]"],
            [
                "x.shape[1] is 5: tanh at FILE, axis 1 of the input x",
                "weight.shape[1] is 3: axis 1 of the weight conv.weight",
            ],
        ),
        (
            Norm(),
            ["f32[B,8]"],
            [
                "x.shape[1] is 6: axis 0 of the weight proj.weight (linear at FILE)",
                "weight.shape[0] is 5: axis 0 of the weight norm.weight",
            ],
        ),
        (
            lambda x: F.layer_norm(x, (5,)),
            ["f32[B,8]"],
            ["x.shape[1] is 8: axis 1 of the input x", "5 would fit normalized_shape=(5,)"],
        ),
        (
            lambda x, y: np.exp(x) * y,
            ["f32[B,4,1]", "f32[3,6]"],
            ["x.shape[1] is 4: exp at FILE, axis 1 of the input x", "y.shape[0] is 3: axis 0 of the input y"],
        ),
        (
            lambda x, y: x + y,
            ["f32[H,W]", "f32[W,H]"],
            [
                "x.shape[1] is W: axis 1 of the input x",
                "y.shape[1] is H: axis 1 of the input y",
                "x.shape[0] is H: axis 0 of the input x",
                "y.shape[0] is W: axis 0 of the input y",
            ],
        ),
        (
            lambda x, y: np.where(x > 0, y, x),
            ["f32[B,4]", "f32[B,3]"],
            ["condition.shape[1] is 4: gt at FILE, axis 1 of the input x", "x.shape[1] is 3: axis 1 of the input y"],
        ),
        (
            lambda x, y: np.concatenate([x, y, x]),
            ["f32[B,4]", "f32[2,3]"],
            ["tensors[0].shape[1] is 4: axis 1 of the input x", "tensors[1].shape[1] is 3: axis 1 of the input y"],
        ),
        (
            lambda x, y: np.stack([x, y]),
            ["f32[B]", "f32[C]"],
            ["tensors[0].shape[0] is B: axis 0 of the input x", "tensors[1].shape[0] is C: axis 0 of the input y"],
        ),
        (
            lambda x: np.exp(x).reshape(4, 6),
            ["f32[4,5]"],
            ["x.shape[1] is 5: exp at FILE, axis 1 of the input x", "6 would fit shape=(4, 6)"],
        ),
    ],
)
def test_a_shape_error_says_where_the_sizes_come_from(program: Any, types: list[str], lines: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        fx.symbolic_trace(program, *types)
    found = re.sub(r"test_size_origin\.py:\d+", "FILE", str(caught.value)).splitlines()
    assert found[1].startswith("  at ") and found[2:] == [f"  {line}" for line in lines]


def test_an_error_in_a_large_concat_looks_at_few_operands() -> None:
    def program(x: Any, y: Any) -> Any:
        return np.concatenate([x] * 1000 + [y])

    with pytest.raises(ShapeError, match=r"tensors\[1000\].shape\[1\] is 3: axis 1 of the input y"):
        fx.symbolic_trace(program, "f32[B,4]", "f32[B,3]")
    joined = result(fx.symbolic_trace(program, "f32[B,4]", "f32[B,4]"))
    assert ends(joined, 0) == ["axis 0 of the input x", "axis 0 of the input y"]
    assert ends(joined, 1) == ["axis 1 of the input x"]
