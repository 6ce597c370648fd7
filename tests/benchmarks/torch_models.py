"""The benchmark's models in torch, under the names of their weights in fxlite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests import models as plain
from tests.benchmarks import models
from tests.benchmarks.models import GPT2_HEADS, GPT2_WIDTH
from tests.torch_models import EncoderLayer, in_torch


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.fc = nn.Linear(512, 10)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


class Named(nn.Module):
    """A module whose children are given by name."""

    def __init__(self, **children: nn.Module) -> None:
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)


def _norm() -> nn.Module:
    return nn.LayerNorm(384, eps=1e-12)


class MiniLM(nn.Module):
    """The encoder with torch's own attention, mean pooling and normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Named(
            word_embeddings=nn.Embedding(30522, 384),
            position_embeddings=nn.Embedding(512, 384),
            token_type_embeddings=nn.Embedding(2, 384),
            LayerNorm=_norm(),
        )
        self.embeddings.register_buffer("position_ids", torch.arange(512)[None])
        self.encoder = Named(layer=nn.ModuleList(self._layer() for _ in range(6)))
        self.pooler = Named(dense=nn.Linear(384, 384))

    @staticmethod
    def _layer() -> nn.Module:
        qkv = {name: nn.Linear(384, 384) for name in ("query", "key", "value")}
        return Named(
            attention=Named(self_=Named(**qkv), output=Named(dense=nn.Linear(384, 384), LayerNorm=_norm())),
            intermediate=Named(dense=nn.Linear(384, 1536)),
            output=Named(dense=nn.Linear(1536, 384), LayerNorm=_norm()),
        )

    def forward(self, x: Any, mask: Any) -> Any:
        B, T = x.shape
        tables: Any = self.embeddings
        y = tables.word_embeddings(x) + tables.position_embeddings.weight[:T]
        y = tables.LayerNorm(y + tables.token_type_embeddings.weight[0])
        keep = mask[:, None, None, :] != 0
        for layer in self.encoder.layer:
            part = layer.attention.self_
            q, k, v = (linear(y).view(B, T, 12, 32).transpose(1, 2) for linear in (part.query, part.key, part.value))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
            mixed = mixed.transpose(1, 2).reshape(B, T, 384)
            output = layer.attention.output
            y = output.LayerNorm(output.dense(mixed) + y)
            inner = layer.output.dense(F.gelu(layer.intermediate.dense(y)))
            y = layer.output.LayerNorm(inner + y)
        weight = mask[:, :, None].to(y.dtype)
        return F.normalize((y * weight).sum(1) / weight.sum(1).clamp(min=1e-9), dim=1)


class Matmul(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, size))

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight)


class Pointwise(nn.Module):
    def forward(self, x: Any) -> Any:
        y = F.gelu(x * 1.3 + 0.2) * torch.sigmoid(x) + torch.tanh(x)
        return F.relu(y - x * 0.1)


class LstmCellLoop(nn.Module):
    def __init__(self, inputs: int = 128, hidden: int = 128) -> None:
        super().__init__()
        self.w_ih = nn.Parameter(torch.zeros(4 * hidden, inputs))
        self.w_hh = nn.Parameter(torch.zeros(4 * hidden, hidden))
        self.b_ih = nn.Parameter(torch.zeros(4 * hidden))
        self.b_hh = nn.Parameter(torch.zeros(4 * hidden))

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        outputs = []
        for t in range(x.shape[0]):
            gates = F.linear(x[t], self.w_ih, self.b_ih) + F.linear(h, self.w_hh, self.b_hh)
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs), h, c


class GptLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = GPT2_WIDTH
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, keys: Any = None, values: Any = None) -> Any:
        q, k, v = (
            part.view(*x.shape[:2], GPT2_HEADS, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).chunk(3, -1)
        )
        if keys is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            seen = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            mixed = F.scaled_dot_product_attention(q, *seen)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh")), k, v


RESNET = (plain.BasicBlock, plain.ResNet18)
Bert = in_torch(EncoderLayer, plain.Bert)

#: Workload.model -> makes it; those of which NumPy's text is torch's are made of it
MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": in_torch(models.mlp),
    "matmul 1024": lambda: Matmul(1024),
    "matmul 2048": lambda: Matmul(2048),
    "pointwise": Pointwise,
    "lstm cell": LstmCellLoop,
    "lstm": in_torch(models.Lstm),
    "resnet18": in_torch(*RESNET),
    "resnet50": in_torch(*RESNET, models.Bottleneck, models.ResNet50),
    "mobilenet": in_torch(models._convolution, models.InvertedResidual, models.MobileNetV2),
    "minilm": MiniLM,
    "bert": lambda: Bert(12, 768, 12),
    "gpt2": in_torch(GptLayer, models.Gpt2),
    "recommender": in_torch(models.Recommender),
    "digits": Digits,
}


def load(model: str, weights: Mapping[str, Any]) -> nn.Module:
    """A model with weights, in inference mode; the arrays are copied."""
    with torch.device("meta"):  # no time is spent on drawing weights
        made = MODELS[model]()
    if isinstance(made, MiniLM):  # a module of torch cannot be called ``self``
        weights = {k.replace(".self.", ".self_."): v for k, v in weights.items()}
    made.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()}, assign=True)
    return made.eval()
