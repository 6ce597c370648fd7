"""The benchmark's models in torch, under the names of their weights in fxlite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.benchmarks.models import (
    GPT2_HEADS,
    GPT2_LAYERS,
    GPT2_POSITIONS,
    GPT2_VOCABULARY,
    GPT2_WIDTH,
    MOBILENET,
    RECOMMENDER,
)


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
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


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


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 128)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


def _skip(inside: int, width: int, stride: int) -> nn.Module | None:
    if stride == 1 and inside == width:
        return None
    return nn.Sequential(nn.Conv2d(inside, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _skip(inside, width, stride)

    def forward(self, x: Any) -> Any:
        skip = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + skip)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _skip(inside, 4 * width, stride)

    def forward(self, x: Any) -> Any:
        skip = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + skip)


class ResNet(nn.Module):
    """resnet18 or resnet50, by the block and how many of them each stage has."""

    def __init__(self, block: Any, counts: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1, self.maxpool = nn.BatchNorm2d(64), nn.MaxPool2d(3, stride=2, padding=1)
        inside = 64
        for number, count in enumerate(counts):
            width, blocks = 64 << number, []
            for position in range(count):
                blocks.append(block(inside, width, 2 if position == 0 and number > 0 else 1))
                inside = width * block.expansion
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inside, 1000)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for number in range(4):
            x = getattr(self, f"layer{number + 1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def _convolution(inside: int, width: int, size: int, stride: int, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, width, size, stride, (size - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
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
    def __init__(self) -> None:
        super().__init__()
        blocks, inside = [_convolution(3, 32, 3, 2)], 32
        for expansion, width, count, stride in MOBILENET:
            for number in range(count):
                step = stride if number == 0 else 1
                blocks.append(InvertedResidual(inside, width, step, expansion))
                inside = width
        self.features = nn.Sequential(*blocks, _convolution(inside, 1280, 1, 1))
        self.fc = nn.Linear(1280, 1000)

    def forward(self, x: Any) -> Any:
        return self.fc(self.features(x).mean((2, 3)))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Any, keep: Any) -> Any:
        q, k, v = (
            layer(x).view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = self.norm1(x + self.dense(mixed.transpose(1, 2).reshape(x.shape)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
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


class Gpt2(nn.Module):
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
            earlier = () if keys is None else (keys[number], values[number])
            y, k, v = layer(y, *earlier)
            new_keys.append(k)
            new_values.append(v)
        logits = F.linear(self.ln_f(y[:, -1:]), self.wte.weight)
        return logits, torch.stack(new_keys), torch.stack(new_values)


class Recommender(nn.Module):
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


#: Workload.model -> makes it
MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "matmul 1024": lambda: Matmul(1024),
    "matmul 2048": lambda: Matmul(2048),
    "pointwise": Pointwise,
    "lstm cell": LstmCellLoop,
    "lstm": Lstm,
    "resnet18": lambda: ResNet(BasicBlock, (2, 2, 2, 2)),
    "resnet50": lambda: ResNet(Bottleneck, (3, 4, 6, 3)),
    "mobilenet": MobileNetV2,
    "minilm": MiniLM,
    "bert": lambda: Bert(12, 768, 12),
    "gpt2": Gpt2,
    "recommender": Recommender,
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
