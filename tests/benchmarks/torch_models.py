"""The benchmark's models in torch, under the names of their weights in fxlite."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


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


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


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
            attention=Named(
                self_=Named(**qkv), output=Named(dense=nn.Linear(384, 384), LayerNorm=_norm())
            ),
            intermediate=Named(dense=nn.Linear(384, 1536)),
            output=Named(dense=nn.Linear(1536, 384), LayerNorm=_norm()),
        )

    def load(self, weights: dict[str, Any]) -> None:
        self.load_state_dict({k.replace(".self.", ".self_."): v for k, v in weights.items()})

    def forward(self, x: Any, mask: Any) -> Any:
        B, T = x.shape
        tables: Any = self.embeddings
        y = tables.word_embeddings(x) + tables.position_embeddings.weight[:T]
        y = tables.LayerNorm(y + tables.token_type_embeddings.weight[0])
        keep = mask[:, None, None, :] != 0
        for layer in self.encoder.layer:
            part = layer.attention.self_
            q, k, v = (
                linear(y).view(B, T, 12, 32).transpose(1, 2)
                for linear in (part.query, part.key, part.value)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
            mixed = mixed.transpose(1, 2).reshape(B, T, 384)
            output = layer.attention.output
            y = output.LayerNorm(output.dense(mixed) + y)
            inner = layer.output.dense(F.gelu(layer.intermediate.dense(y)))
            y = layer.output.LayerNorm(inner + y)
        weight = mask[:, :, None].to(y.dtype)
        return F.normalize((y * weight).sum(1) / weight.sum(1).clamp(min=1e-9), dim=1)
