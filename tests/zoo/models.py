"""Programs of the zoo that have weights."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite import nn, ops
from tests.zoo.registry import Made, fill, normal, program, rng


class Cnn(nn.Module):
    """Convolutions with batch norm, pooling and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 6, 3, stride=2, groups=2)
        self.bn2 = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x: Any) -> Any:
        x = np.maximum(self.bn1(self.conv1(x)), 0)
        x = F.max_pool2d(x, 2)
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean(axis=(2, 3)))


@program
def cnn() -> Made:
    return fill(Cnn()), ("f32[B,3,12,12]",), (normal(2, 3, 12, 12),)


class ResNetBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.down = nn.Sequential(nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.down(x))


@program
def resnet_block() -> Made:
    return fill(ResNetBlock()), ("f32[B,4,8,8]",), (normal(2, 4, 8, 8),)


@program
def mlp() -> Made:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    return fill(model), ("f32[B,6]",), (normal(4, 6),)


class TransformerBlock(nn.Module):
    """Attention written out, layer norm, gelu."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        size = width // self.heads
        parts = np.split(self.qkv(self.norm1(x)), 3, axis=-1)
        shape = (batch, length, self.heads, size)
        q, k, v = (p.reshape(shape).transpose(0, 2, 1, 3) for p in parts)
        scores = F.softmax(q @ k.transpose(0, 1, 3, 2) / np.float32(size**0.5), -1)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@program
def transformer_block() -> Made:
    return fill(TransformerBlock()), ("f32[B,T,8]",), (normal(2, 5, 8),)


@program
def causal_attention() -> Made:
    def causal_attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ np.swapaxes(k, -1, -2) * 0.5
        ones = ops.ones((q.shape[-2], k.shape[-2]), dtype="bool")
        return F.softmax(np.where(ops.tril(ones), scores, -np.inf), dim=-1) @ v

    typed = "f32[B,2,6,4]"
    return causal_attention, (typed,) * 3, tuple(normal(2, 2, 6, 4) * s for s in (1, 2, 3))


@program
def masked_attention() -> Made:
    def masked_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = rng().random((5, 7)) < 0.7
    mask[:, 0] = True
    inputs = (normal(2, 5, 4), normal(2, 7, 4), normal(2, 7, 3), mask)
    return masked_attention, ("f32[B,T,4]", "f32[B,S,4]", "f32[B,S,3]", "bool[T,S]"), inputs


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: Any) -> Any:
        y, (h, c) = self.lstm(x)
        return {"last": y[:, -1], "state": (h, c)}


@program
def lstm() -> Made:
    return fill(Recurrent()), ("f32[B,3,4]",), (normal(2, 3, 4),)


@program
def gru() -> Made:
    class Gru(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 4)

        def forward(self, x: Any) -> Any:
            return self.gru(x)[0]

    return fill(Gru()), ("f32[3,B,3]",), (normal(3, 2, 3),)


class UnetPiece(nn.Module):
    """Down, up by a transposed convolution with batch norm, skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, padding=1)
        self.middle = nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        skip = F.relu(self.down(x))
        y = F.relu(self.middle(F.max_pool2d(skip, 2)))
        y = F.relu(self.norm(self.up(y)))
        return self.last(np.concatenate([skip, y], axis=1))


@program
def unet_piece() -> Made:
    return fill(UnetPiece()), ("f32[B,2,8,8]",), (normal(2, 2, 8, 8),)


class EmbeddingBag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, ids: Any, weight: Any) -> Any:
        return self.fc((self.table(ids) * weight[..., None]).sum(axis=1))


@program
def embedding_bag() -> Made:
    ids = rng().integers(0, 11, (3, 5))
    weight = np.abs(normal(3, 5))
    return fill(EmbeddingBag()), ("i64[B,T]", "f32[B,T]"), (ids, weight)


class SharedConv(nn.Module):
    """One convolution called twice in front of two batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.a, self.b = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x: Any, y: Any) -> Any:
        return self.a(self.conv(x)) + self.b(self.conv(y))


@program
def shared_conv() -> Made:
    typed = "f32[B,3,6,6]"
    return fill(SharedConv()), (typed, typed), (normal(2, 3, 6, 6), normal(2, 3, 6, 6) * 2)


class NormalizedLinear(nn.Module):
    """Batch norm after linear and conv1d layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3)
        self.bn1 = nn.BatchNorm1d(4)
        self.fc = nn.Linear(4, 5)
        self.bn2 = nn.BatchNorm1d(5)

    def forward(self, x: Any) -> Any:
        return self.bn2(self.fc(F.relu(self.bn1(self.conv(x))).mean(axis=2)))


@program
def normalized_linear() -> Made:
    return fill(NormalizedLinear()), ("f32[B,3,9]",), (normal(4, 3, 9),)


@program
def tied_weights() -> Made:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.head(np.tanh(self.table(ids)))

    return fill(Tied()), ("i64[B,T]",), (rng().integers(0, 7, (2, 3)),)
