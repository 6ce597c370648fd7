"""Whole models of known shapes, for tests of pictures, costs and profiles.

In: nothing, or sizes. Out: modules in inference mode, as torch has them, with the types of their
inputs in :data:`MODELS`. Weights are as they were initialized: what counts here is the structure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a skip; 1×1 convolution on the skip where the shape changes."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inside != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Any) -> Any:
        skip = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + skip)


class ResNet18(nn.Module):
    """torchvision's resnet18."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(64), nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(512, 1000)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).reshape(x.shape[0], -1))


class EncoderLayer(nn.Module):
    """A layer of BERT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def split(self, x: Any) -> Any:
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)

    def forward(self, x: Any, keep: Any) -> Any:
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = self.norm1(x + self.dense(mixed.transpose(0, 2, 1, 3).reshape(x.shape)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """An encoder with word and position vectors: ``f32[B,T,width]`` of tokens and a mask."""

    def __init__(self, layers: int = 12, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(1000, width), nn.Embedding(128, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))

    def forward(self, tokens: Any, mask: Any) -> Any:
        keep = mask[:, None, None, :] != 0
        x = self.norm(self.words(tokens) + self.positions.weight[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x, keep)
        return x


class Tagger(nn.Module):
    """A two-way LSTM over words, and a tag for each."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 32)
        self.lstm = nn.LSTM(32, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(96, 17)

    def forward(self, tokens: Any) -> Any:
        return F.log_softmax(self.tag(self.lstm(self.words(tokens))[0]), -1)


class LstmCells(nn.Module):
    """An LSTM cell called in a Python loop, which tracing unrolls: x [T,B,16]."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(16, 24)

    def forward(self, x: Any) -> Any:
        states = []
        state = None
        for step in x:
            state = self.cell(step, state)
            states.append(state[0])
        return np.stack(states)


def double_conv(inside: int, width: int) -> nn.Module:
    """Convolution, batch norm and relu, twice."""
    return nn.Sequential(
        nn.Conv2d(inside, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Four levels down and up with skips."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64, 128)
        self.down = nn.ModuleList(map(double_conv, (3, *widths[:-1]), widths))
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, stride=2) for w in widths[:0:-1])
        self.merge = nn.ModuleList(double_conv(w, w // 2) for w in widths[:0:-1])
        self.head = nn.Conv2d(widths[0], 4, 1)

    def forward(self, x: Any) -> Any:
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(x)
        for up, merge, skip in zip(self.up, self.merge, skips[-2::-1]):
            x = merge(np.concatenate([skip, up(x)], axis=1))
        return self.head(x)


class GptBlock(nn.Module):
    """A block of GPT-2: causal attention and two linear layers, each behind a layer norm."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def attention(self, x: Any) -> Any:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        parts = np.split(self.c_attn(x), 3, axis=-1)
        q, k, v = (part.reshape(shape).transpose(0, 2, 1, 3) for part in parts)
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32((width // self.heads) ** 0.5)
        seen = ops.tril(ops.ones((length, length), dtype="bool"))
        mixed = F.softmax(np.where(seen, scores, -np.inf), -1) @ v
        return self.c_proj(mixed.transpose(0, 2, 1, 3).reshape(x.shape))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


#: Name -> (makes the model, types of its inputs)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "resnet18": (ResNet18, ("f32[B,3,224,224]",)),
    "bert": (Bert, ("i64[B,T]", "i64[B,T]")),
    "lstm_tagger": (Tagger, ("i64[B,12]",)),
    "lstm_cells": (LstmCells, ("f32[12,B,16]",)),
    "unet": (UNet, ("f32[B,3,64,64]",)),
    "gpt_block": (GptBlock, ("f32[B,T,64]",)),
}


def traced(name: str) -> fx.GraphModule:
    """The traced model of that name."""
    make, types = MODELS[name]
    return fx.symbolic_trace(make().eval(), *types)
