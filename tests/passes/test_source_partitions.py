"""Nodes of one call of a module: by path, by class, and calls told apart."""

from __future__ import annotations

from typing import Any

import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import ArgumentError
from fxlite.passes import SourcePartition, cse, source_partitions
from tests.core.test_query import Layer


class Net(nn.Module):
    """Two layers of their own and a head that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.layers(x)
        return self.head(y) + self.head(x)


@pytest.fixture(scope="module")
def gm() -> fx.GraphModule:
    return fx.symbolic_trace(Net().eval(), x="f32[B,T,8]")


def shown(partitions: list[SourcePartition]) -> list[tuple[str, str, str]]:
    """Path, class and names of the nodes."""
    return [(p.path, p.class_name, " ".join(n.name for n in p.nodes)) for p in partitions]


def test_by_path(gm: fx.GraphModule) -> None:
    first, second = source_partitions(gm, "layers.*.attn")
    assert (first.path, second.path) == ("layers.0.attn", "layers.1.attn")
    assert first.class_name == "Attention"
    assert [n.name for n in first.nodes] == [
        "linear",
        "split",
        "getitem",
        "getitem_1",
        "getitem_2",
        "permute",
        "matmul",
        "softmax",
        "matmul_1",
        "linear_1",
    ]
    assert [n.name for n in first.input_nodes] == ["x"]
    assert [n.name for n in first.output_nodes] == ["linear_1"]
    assert [n.target for n in first.params] == [
        "layers.0.attn.qkv.weight",
        "layers.0.attn.qkv.bias",
        "layers.0.attn.out.weight",
    ]
    assert repr(first) == ("SourcePartition(layers.0.attn (Attention): linear, split, getitem, getitem_1, … 10 nodes)")


def test_by_class(gm: fx.GraphModule) -> None:
    by_class = source_partitions(gm, nn.LayerNorm)
    assert shown(by_class) == shown(source_partitions(gm, "LayerNorm"))
    assert shown(by_class) == [
        ("layers.0.norm", "LayerNorm", "layer_norm"),
        ("layers.1.norm", "LayerNorm", "layer_norm_1"),
    ]
    layers = source_partitions(gm, Layer)
    assert [len(p.nodes) for p in layers] == [12, 12]
    assert [n.name for n in layers[1].input_nodes] == ["layer_norm"]


def test_several_sources_in_the_order_of_the_graph(gm: fx.GraphModule) -> None:
    found = source_partitions(gm, nn.LayerNorm, "layers.*.attn.out", "head")
    assert [p.path for p in found] == [
        "layers.0.attn.out",
        "layers.0.norm",
        "layers.1.attn.out",
        "layers.1.norm",
        "head",
        "head",
    ]


def test_a_module_named_twice_is_found_once(gm: fx.GraphModule) -> None:
    found = source_partitions(gm, "layers.*.norm", nn.LayerNorm, "layers.0.**")
    assert [p.path for p in found].count("layers.0.norm") == 1
    assert len(found) == 6 and all(p.path.startswith("layers.") for p in found)


def test_whole_and_containers(gm: fx.GraphModule) -> None:
    (whole,) = source_partitions(gm, "")
    assert len(whole.nodes) == 27 and whole.class_name == "Net"
    assert [n.op for n in whole.input_nodes] == ["placeholder"]
    assert [n.name for n in whole.output_nodes] == ["add_2"]
    (layers,) = source_partitions(gm, "layers")
    assert len(layers.nodes) == 24 and layers.class_name == ""


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.block = Residual()
        self.act = nn.ReLU()

    def forward(self, x: Any) -> Any:
        for _ in range(3):
            x = self.block(x)
        return self.act(self.act(self.fc(self.fc(x))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        return x + self.norm(self.fc(x))


@pytest.mark.parametrize("saved", [False, True], ids=["traced", "parsed"])
def test_calls_of_one_module(saved: bool) -> None:
    """Neighbouring calls are told apart by repeated work on the same weights; also after a trip
    through text, where only path and class are kept."""
    gm = fx.symbolic_trace(Shared(), x="f32[B,4]")
    if saved:
        gm = fx.GraphModule(gm, fx.parse(gm.graph.text(full=True)))
    assert shown(source_partitions(gm, "fc")) == [("fc", "Linear", "linear_3"), ("fc", "Linear", "linear_4")]
    blocks = source_partitions(gm, "block")
    assert [len(p.nodes) for p in blocks] == [3, 3, 3]
    assert [n.name for n in blocks[1].input_nodes] == [n.name for n in blocks[0].output_nodes] == ["add"]
    assert len(source_partitions(gm, "block.fc")) == 3
    assert len(source_partitions(gm, "")) == 1
    assert len(source_partitions(gm, nn.ReLU)) == 1  # no weights: one stretch, as documented


def test_after_a_pass() -> None:
    """Partitions follow the graph as it is now."""
    traced = fx.symbolic_trace(Twice(nn.Sequential(nn.Linear(3, 3), nn.ReLU())), x="f32[2,3]")
    assert len(source_partitions(traced, nn.Linear)) == 2
    assert len(source_partitions(cse(traced), nn.Linear)) == 1


class Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.inner(x)


def test_leaf_modules() -> None:
    gm = fx.symbolic_trace(Twice(nn.Linear(3, 3)), x="f32[2,3]", leaf=[nn.Linear])
    found = source_partitions(gm, nn.Linear)
    assert [(p.path, p.class_name, len(p.nodes)) for p in found] == [("inner", "Linear", 1)] * 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("layers.*.atn", "no value made in a module 'layers.*.atn'; did you mean layers."),
        ("Linaer", "did you mean Linear"),
        (nn.Conv2d, "it has Linear, Attention"),
        ([nn.Linear], "one after another"),
    ],
)
def test_unknown_sources(gm: fx.GraphModule, source: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        source_partitions(gm, source)
    assert message in str(caught.value)
