"""FLOPs of whole models against torch's flop counter, which counts matrix products and
convolutions (without bias) alone."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import fxlite as fx
from fxlite import nn, shapes
from fxlite.cost import node_flops
from fxlite.passes.decompose import decompose
from tests import models

torch = pytest.importorskip("torch")
attention = pytest.importorskip("torch.nn.attention")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
functional = torch.nn.functional


def in_torch(*classes: type) -> Any:
    """The last of the classes, made again from its source with torch's layers."""
    names: dict[str, Any] = {"nn": torch.nn, "F": functional, "Any": Any}
    for each in classes:
        exec(inspect.getsource(each), names)
    return names[classes[-1].__name__]().eval()


def split(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


class GptBlock(torch.nn.Module):  # type: ignore[name-defined,misc]
    """:class:`tests.models.GptBlock`."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers = torch.nn
        self.ln_1, self.ln_2 = layers.LayerNorm(width), layers.LayerNorm(width)
        self.c_attn, self.c_proj = layers.Linear(width, 3 * width), layers.Linear(width, width)
        self.up, self.down = layers.Linear(width, 4 * width), layers.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = (split(part, 4) for part in self.c_attn(self.ln_1(x)).chunk(3, -1))
        seen = torch.ones(x.shape[1], x.shape[1]).tril() != 0
        scores = (q @ k.transpose(2, 3) / 4).masked_fill(~seen, float("-inf"))
        mixed = scores.softmax(-1) @ v
        x = x + self.c_proj(mixed.permute(0, 2, 1, 3).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.ln_2(x))))


class EncoderLayer(torch.nn.Module):  # type: ignore[name-defined,misc]
    """:class:`tests.models.EncoderLayer`."""

    def __init__(self, width: int = 384) -> None:
        super().__init__()
        layers = torch.nn
        self.query, self.key, self.value, self.dense = (
            layers.Linear(width, width) for _ in range(4)
        )
        self.up, self.down = layers.Linear(width, 4 * width), layers.Linear(4 * width, width)
        self.norm1, self.norm2 = layers.LayerNorm(width), layers.LayerNorm(width)

    def forward(self, x: Any, keep: Any) -> Any:
        q, k, v = (split(layer(x), 12) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = self.norm1(x + self.dense(mixed.permute(0, 2, 1, 3).reshape(x.shape)))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


def mlp(layers: Any) -> Any:
    return layers.Sequential(
        layers.Linear(784, 512), layers.ReLU(), layers.Linear(512, 512), layers.ReLU(),
        layers.Linear(512, 10),
    ).eval()  # fmt: skip


#: Name -> (model, its inputs' types, torch's model, torch's inputs, named dims)
CASES: dict[str, Any] = {
    "resnet18": lambda: (
        models.ResNet18(), ["f32[B,3,H,224]"], in_torch(models.BasicBlock, models.ResNet18),
        [torch.zeros(2, 3, 224, 224)], {"B": 2, "H": 224},
    ),
    "mlp": lambda: (mlp(nn), ["f32[B,784]"], mlp(torch.nn), [torch.zeros(5, 784)], {"B": 5}),
    "lstm": lambda: (
        models.Tagger(), ["i64[B,7]"], in_torch(models.Tagger),
        [torch.zeros(3, 7, dtype=torch.long)], {"B": 3},
    ),
    "gpt_block": lambda: (
        models.GptBlock(), ["f32[B,T,64]"], GptBlock(), [torch.zeros(2, 19, 64)], {"B": 2, "T": 19}
    ),
    "minilm_layer": lambda: (
        models.EncoderLayer(384, 12), ["f32[B,T,384]", "bool[B,1,1,T]"], EncoderLayer(),
        [torch.zeros(2, 33, 384), torch.ones(2, 1, 1, 33) != 0], {"B": 2, "T": 33},
    ),
}  # fmt: skip


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
    theirs = in_torch(models.BasicBlock, models.ResNet18)
    assert ours == sum(p.numel() for p in theirs.parameters()) == 11_689_512
