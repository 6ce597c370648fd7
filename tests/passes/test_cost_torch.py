"""FLOPs of whole models against torch's flop counter, which counts matrix products and
convolutions (without bias) alone."""

from __future__ import annotations

from typing import Any

import pytest

import fxlite as fx
from fxlite import nn
from fxlite.passes.rules.decompose import decompose
from fxlite.show.node_cost import node_flops
from fxlite.types import shapes
from tests import models

torch = pytest.importorskip("torch")
attention = pytest.importorskip("torch.nn.attention")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
torch_models = pytest.importorskip("tests.torch_models")


def mlp(layers: Any) -> Any:
    return layers.Sequential(
        layers.Linear(784, 512), layers.ReLU(), layers.Linear(512, 512), layers.ReLU(), layers.Linear(512, 10)
    ).eval()


#: Name -> (model, its inputs' types, torch's model, torch's inputs, named dims)
CASES: dict[str, Any] = {
    "resnet18": lambda: (
        models.ResNet18(),
        ["f32[B,3,H,224]"],
        torch_models.torch_model("resnet18"),
        [torch.zeros(2, 3, 224, 224)],
        {"B": 2, "H": 224},
    ),
    "mlp": lambda: (mlp(nn), ["f32[B,784]"], mlp(torch.nn), [torch.zeros(5, 784)], {"B": 5}),
    "lstm": lambda: (
        models.Tagger(),
        ["i64[B,7]"],
        torch_models.torch_model("lstm_tagger"),
        [torch.zeros(3, 7, dtype=torch.long)],
        {"B": 3},
    ),
    "gpt_block": lambda: (
        models.GptBlock(),
        ["f32[B,T,64]"],
        torch_models.GptBlock(),
        [torch.zeros(2, 19, 64)],
        {"B": 2, "T": 19},
    ),
    "minilm_layer": lambda: (
        models.EncoderLayer(384, 12),
        ["f32[B,T,384]", "bool[B,1,1,T]"],
        torch_models.EncoderLayer(),
        [torch.zeros(2, 33, 384), torch.ones(2, 1, 1, 33) != 0],
        {"B": 2, "T": 33},
    ),
}


def contraction_flops(gm: fx.GraphModule) -> Any:
    """FLOPs of matrix products and convolutions, without the addition of a bias."""
    total: Any = 0
    for node in decompose(gm).graph.find_nodes(op="call_function"):
        if node.target.kind == "contraction":
            has_bias = node.arguments.get("bias") is not None
            total += node_flops(node) - (node.type.size if has_bias else 0)
    return total


@pytest.mark.parametrize("name", CASES)
def test_contractions(name: str) -> None:
    model, types, theirs, inputs, dims = CASES[name]()
    ours = contraction_flops(fx.symbolic_trace(model.eval(), *types))
    counter = flop_counter.FlopCounterMode(display=False)
    # what is counted are the products inside: neither fused attention nor a fused LSTM
    plain = attention.sdpa_kernel(attention.SDPBackend.MATH)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), plain, counter:
        theirs(*inputs)
    assert counter.get_total_flops() > 0
    assert shapes.substitute(ours, dims) == counter.get_total_flops()


def test_parameters() -> None:
    ours = models.traced("resnet18").summary().parameters
    theirs = torch_models.torch_model("resnet18")
    assert ours == sum(p.numel() for p in theirs.parameters()) == 11_689_512
