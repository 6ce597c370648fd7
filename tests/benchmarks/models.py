"""The benchmark's models in fxlite that nothing else needs; the others are in :mod:`tests.models`
and in the tutorials.

In: sizes. Out: modules whose parameters have the same names as those of
:mod:`tests.benchmarks.torch_models`. What a model keeps between calls (the states of an LSTM, the
keys and values of a decoder) goes in and comes out as arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite import nn
from tests.models import ResNet18

#: expansion, channels, repetitions, stride of each stage (Sandler et al., "MobileNetV2", table 2)
MOBILENET = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
#: Items rated, and the widths in between (Kuchaiev and Ginsburg, "Training Deep AutoEncoders for
#: Collaborative Filtering")
RECOMMENDER = (17768, 512, 512, 1024, 512, 512, 17768)
GPT2_LAYERS, GPT2_WIDTH, GPT2_HEADS, GPT2_VOCABULARY, GPT2_POSITIONS = 12, 768, 12, 50257, 1024


def mlp() -> nn.Module:
    """784-512-512-10 with relu."""
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class Matmul(nn.Module):
    """``x @ weight.T``: one large matrix product."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.zeros((size, size), np.float32))

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight)


class Pointwise(nn.Module):
    """Ten pointwise operations on a vector."""

    def forward(self, x: Any) -> Any:
        y = F.gelu(x * 1.3 + 0.2) * F.sigmoid(x) + np.tanh(x)
        return F.relu(y - x * 0.1)


class LstmCellLoop(nn.Module):
    """An LSTM cell written out, called in a Python loop: x [T,B,I], h and c [B,H]."""

    def __init__(self, inputs: int = 128, hidden: int = 128) -> None:
        super().__init__()
        self.w_ih = nn.Parameter(np.zeros((4 * hidden, inputs), np.float32))
        self.w_hh = nn.Parameter(np.zeros((4 * hidden, hidden), np.float32))
        self.b_ih = nn.Parameter(np.zeros(4 * hidden, np.float32))
        self.b_hh = nn.Parameter(np.zeros(4 * hidden, np.float32))

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        outputs = []
        for t in range(x.shape[0]):
            gates = F.linear(x[t], self.w_ih, self.b_ih) + F.linear(h, self.w_hh, self.b_hh)
            i, f, g, o = np.split(gates, 4, axis=1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * np.tanh(g)
            h = F.sigmoid(o) * np.tanh(c)
            outputs.append(h)
        return np.stack(outputs), h, c


class Lstm(nn.Module):
    """The layer: x [T,B,I], h and c [1,B,H]."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 128)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions and a skip."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or inside != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Any) -> Any:
        skip = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + skip)


class ResNet50(ResNet18):
    """torchvision's resnet50."""

    def __init__(self) -> None:
        super().__init__()
        inside = 64
        for number, count in enumerate((3, 4, 6, 3)):
            width, blocks = 64 << number, []
            for block in range(count):
                stride = 2 if block == 0 and number > 0 else 1
                blocks.append(Bottleneck(inside, width, stride))
                inside = 4 * width
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inside, 1000)


def _convolution(inside: int, width: int, size: int, stride: int, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, width, size, stride, (size - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """Wide in the middle, where the convolution is depthwise."""

    def __init__(self, inside: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inside * expansion
        steps = [_convolution(inside, hidden, 1, 1)] if expansion != 1 else []
        self.conv = nn.Sequential(
            *steps,
            _convolution(hidden, hidden, 3, stride, hidden),
            nn.Conv2d(hidden, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.has_skip = stride == 1 and inside == width

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.has_skip else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 1."""

    def __init__(self) -> None:
        super().__init__()
        blocks, inside = [_convolution(3, 32, 3, 2)], 32
        for expansion, width, count, stride in MOBILENET:
            for number in range(count):
                blocks.append(InvertedResidual(inside, width, stride if number == 0 else 1, expansion))
                inside = width
        self.features = nn.Sequential(*blocks, _convolution(inside, 1280, 1, 1))
        self.fc = nn.Linear(1280, 1000)

    def forward(self, x: Any) -> Any:
        return self.fc(self.features(x).mean(axis=(2, 3)))


class GptLayer(nn.Module):
    """A layer of GPT-2. ``keys`` and ``values`` [B,heads,P,width/heads] are those of earlier
    tokens; without them the tokens see those before them."""

    def __init__(self) -> None:
        super().__init__()
        width = GPT2_WIDTH
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, keys: Any = None, values: Any = None) -> Any:
        batch, length, width = x.shape
        shape = (batch, length, GPT2_HEADS, width // GPT2_HEADS)
        parts = np.split(self.c_attn(self.ln_1(x)), 3, axis=-1)
        q, k, v = (part.reshape(shape).transpose(0, 2, 1, 3) for part in parts)
        if keys is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            all_keys = np.concatenate([keys, k], axis=2)
            all_values = np.concatenate([values, v], axis=2)
            mixed = F.scaled_dot_product_attention(q, all_keys, all_values)
        x = x + self.c_proj(mixed.transpose(0, 2, 1, 3).reshape(x.shape))
        inner = F.gelu(self.up(self.ln_2(x)), approximate="tanh")
        return x + self.down(inner), k, v


class Gpt2(nn.Module):
    """GPT-2 small: tokens [B,T] to the logits of the next one [B,1,vocabulary], and the keys and
    values [layers,B,heads,T,64] of these tokens. With those of P earlier tokens as ``keys`` and
    ``values`` it goes on from there."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(GPT2_VOCABULARY, GPT2_WIDTH)
        self.wpe = nn.Embedding(GPT2_POSITIONS, GPT2_WIDTH)
        self.h = nn.ModuleList(GptLayer() for _ in range(GPT2_LAYERS))
        self.ln_f = nn.LayerNorm(GPT2_WIDTH)

    def forward(self, x: Any, keys: Any = None, values: Any = None) -> Any:
        past = 0 if keys is None else keys.shape[3]
        y = self.wte(x) + self.wpe.weight[past : past + x.shape[1]]
        new_keys, new_values = [], []
        for number, layer in enumerate(self.h):
            if keys is None:
                y, k, v = layer(y)
            else:
                y, k, v = layer(y, keys[number], values[number])
            new_keys.append(k)
            new_values.append(v)
        logits = F.linear(self.ln_f(y[:, -1:]), self.wte.weight)
        return logits, np.stack(new_keys), np.stack(new_values)


class Recommender(nn.Module):
    """A deep autoencoder of ratings, with selu behind every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(nn.Linear, RECOMMENDER, RECOMMENDER[1:]))
        self.drop = nn.Dropout(0.8)

    def forward(self, x: Any) -> Any:
        for number, layer in enumerate(self.layers):
            x = F.selu(layer(x))
            if number == 2:
                x = self.drop(x)
        return x
