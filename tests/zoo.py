"""The zoo: small programs of every sort, on which every pass and every back end is tried.

Each :class:`Program` makes a program, the input types to trace it with, and inputs for one run. Named
dims occur in most of them. ``ZOO`` is in order of name; ``by_name(name)`` finds one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops

Made = tuple[Any, tuple[str, ...], tuple[np.ndarray[Any, Any], ...]]


@dataclass(frozen=True)
class Program:
    """A named program; ``make()`` gives (program, input types, inputs)."""

    name: str
    make: Callable[[], Made]

    def trace(self) -> tuple[fx.GraphModule, Any, tuple[np.ndarray[Any, Any], ...]]:
        """The traced GraphModule, the program itself, and inputs."""
        program, types, inputs = self.make()
        return fx.symbolic_trace(program, *types), program, inputs


ZOO: list[Program] = []


def program(function: Callable[[], Made]) -> Callable[[], Made]:
    """Enter a program under the function's name."""
    ZOO.append(Program(function.__name__, function))
    return function


def by_name(name: str) -> Program:
    """The program of that name."""
    return next(p for p in ZOO if p.name == name)


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _rng().standard_normal(shape).astype(np.float32)


def _fill(model: nn.Module) -> nn.Module:
    """Random weights and statistics, so that no parameter is neutral; inference mode."""
    rng = _rng()
    for name, value in model.state_dict().items():
        if not np.issubdtype(value.dtype, np.floating):
            continue
        drawn = (
            rng.uniform(0.2, 0.9, value.shape) if "var" in name else rng.normal(0, 0.3, value.shape)
        )
        value[...] = drawn.astype(value.dtype)
    return model.eval()


# -- models ----------------------------------------------------------------------------------------
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
    return _fill(Cnn()), ("f32[B,3,12,12]",), (_normal(2, 3, 12, 12),)


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
    return _fill(ResNetBlock()), ("f32[B,4,8,8]",), (_normal(2, 4, 8, 8),)


@program
def mlp() -> Made:
    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)
    )
    return _fill(model), ("f32[B,6]",), (_normal(4, 6),)


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
    return _fill(TransformerBlock()), ("f32[B,T,8]",), (_normal(2, 5, 8),)


@program
def causal_attention() -> Made:
    def causal_attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ np.swapaxes(k, -1, -2) * 0.5
        ones = ops.ones((q.shape[-2], k.shape[-2]), dtype="bool")
        return F.softmax(np.where(ops.tril(ones), scores, -np.inf), dim=-1) @ v

    typed = "f32[B,2,6,4]"
    return causal_attention, (typed,) * 3, tuple(_normal(2, 2, 6, 4) * s for s in (1, 2, 3))


@program
def masked_attention() -> Made:
    def masked_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = _rng().random((5, 7)) < 0.7
    mask[:, 0] = True
    inputs = (_normal(2, 5, 4), _normal(2, 7, 4), _normal(2, 7, 3), mask)
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
    return _fill(Recurrent()), ("f32[B,3,4]",), (_normal(2, 3, 4),)


@program
def gru() -> Made:
    class Gru(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 4)

        def forward(self, x: Any) -> Any:
            return self.gru(x)[0]

    return _fill(Gru()), ("f32[3,B,3]",), (_normal(3, 2, 3),)


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
    return _fill(UnetPiece()), ("f32[B,2,8,8]",), (_normal(2, 2, 8, 8),)


class EmbeddingBag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, ids: Any, weight: Any) -> Any:
        return self.fc((self.table(ids) * weight[..., None]).sum(axis=1))


@program
def embedding_bag() -> Made:
    ids = _rng().integers(0, 11, (3, 5))
    weight = np.abs(_normal(3, 5))
    return _fill(EmbeddingBag()), ("i64[B,T]", "f32[B,T]"), (ids, weight)


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
    return _fill(SharedConv()), (typed, typed), (_normal(2, 3, 6, 6), _normal(2, 3, 6, 6) * 2)


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
    return _fill(NormalizedLinear()), ("f32[B,3,9]",), (_normal(4, 3, 9),)


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

    return _fill(Tied()), ("i64[B,T]",), (_rng().integers(0, 7, (2, 3)),)


# -- functions -------------------------------------------------------------------------------------
@program
def relu_spellings() -> Made:
    def relu_spellings(x: Any) -> Any:
        return (np.maximum(x, 0), x.clip(0), F.relu(x + 1), np.maximum(0, x) + nn.ReLU()(x))

    return relu_spellings, ("f32[N,3]",), (_normal(4, 3),)


@program
def softmax_layer_norm() -> Made:
    def softmax_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        y = F.layer_norm(x, (6,), weight, bias)
        return F.softmax(y, dim=1), F.log_softmax(y, dim=-1), F.gelu(y, approximate="tanh")

    return (
        softmax_layer_norm,
        ("f32[B,6]", "f32[6]", "f32[6]"),
        (_normal(3, 6), _normal(6), _normal(6)),
    )


@program
def einsums() -> Made:
    def einsums(x: Any, y: Any) -> Any:
        return (
            np.einsum("bij,bjk->bik", x, y),
            np.einsum("bij->bj", x),
            np.einsum("bij,bij->b", x, x),
        )

    return einsums, ("f32[B,4,5]", "f32[B,5,3]"), (_normal(2, 4, 5), _normal(2, 5, 3))


@program
def pooling() -> Made:
    def pooling(x: Any) -> Any:
        y = F.avg_pool2d(x, 2, stride=1, padding=1)
        return F.max_pool2d(y, 3, 2), F.adaptive_avg_pool2d(x, (2, 3)), F.avg_pool2d(x, 2)

    return pooling, ("f32[B,2,7,9]",), (_normal(2, 2, 7, 9),)


@program
def gather_scatter() -> Made:
    def gather_scatter(x: Any, index: Any) -> Any:
        picked = np.take_along_axis(x, index, axis=1)
        spread = ops.scatter_add(np.zeros_like(x), index, picked * 2, axis=1)
        return picked, spread, np.take(x, index[0], axis=1), F.one_hot(index[:, 0], 6)

    index = _rng().integers(0, 6, (3, 4))
    return gather_scatter, ("f32[3,6]", "i64[3,4]"), (_normal(3, 6), index)


@program
def scans() -> Made:
    def scans(x: Any) -> Any:
        total = np.cumsum(x, axis=1)
        return total / np.arange(1, 6, dtype=np.float32), np.cumsum(x[:, ::-1], axis=0)

    return scans, ("f32[B,5]",), (_normal(3, 5),)


@program
def integers_and_logic() -> Made:
    def integers_and_logic(a: Any, b: Any, keep: Any) -> Any:
        wide = a.astype(np.int64) * 3 // 2 % 7
        bits = (a & 6) | (b ^ 1)
        shifted = (a << 2) >> 1
        some = (a > b) & keep | ~keep
        return np.where(some, wide, b), bits, shifted, some.any(axis=0), np.logical_not(some).sum()

    rng = _rng()
    inputs = (rng.integers(-9, 9, (4, 3)).astype(np.int32), rng.integers(-9, 9, 3).astype(np.int32))
    return (
        integers_and_logic,
        ("i32[N,3]", "i32[3]", "bool[N,1]"),
        (*inputs, rng.random((4, 1)) < 0.5),
    )


@program
def nested_outputs() -> Made:
    def nested_outputs(x: Any) -> Any:
        unused = np.exp(x) + 3  # noqa: F841
        again = np.exp(x)
        return {"both": [again, (again, np.exp(x))], "sum": x.sum(), "x": x}

    return nested_outputs, ("f32[B,3]",), (_normal(2, 3),)


@program
def named_dims() -> Made:
    def named_dims(x: Any, y: Any) -> Any:
        batch, length = x.shape[:2]
        flat = x.reshape(batch * length, -1)
        back = flat.reshape(batch, length, 2, 3).transpose(0, 2, 1, 3).reshape(batch, 2 * length, 3)
        half = x[:, : length // 2]
        spread = np.broadcast_to(y, (batch, *y.shape)) / length
        return back, half.mean(axis=1), spread, np.zeros_like(x) + ops.full((batch, 1, 1), 2.0)

    return named_dims, ("f32[B,T,6]", "f32[2*T]"), (_normal(2, 5, 6), _normal(10))


@program
def identities() -> Made:
    """What simplify takes away, and what looks like it and must stay."""

    def identities(x: Any, n: Any) -> Any:
        y = -((-(x * 1 / 1 - 0.0)) ** 1)
        y = y + 0  # turns -0.0 into 0.0
        y = F.relu(F.relu(y)) + np.abs(-x)
        z = y.reshape(2, 6).reshape(3, 4).reshape(x.shape).transpose(1, 0).transpose(1, 0)
        z = np.squeeze(np.expand_dims(z, 0), 0)[:, 0:4].clip(-2, 3).clip(-1, 5).clip(0.5, 4)
        z = np.concatenate([z.astype(np.float64).astype(np.float32)]) * np.maximum(n, n)[
            :, None
        ].astype(np.float32)
        return z, (n + 0) * 1, (n | 0) << 0, x.astype(np.int32).astype(np.float32), x * True

    x = _normal(3, 4)
    x[0, :3] = (-0.0, np.nan, np.inf)
    return identities, ("f32[3,4]", "i32[3]"), (x, np.array([1, 2, 3], np.int32))


@program
def constants() -> Made:
    """What const_fold computes: weights permuted, scaled and combined with constants."""

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(_normal(4, 3))
            self.scale = nn.Parameter(_normal(4))
            self.register_buffer("mask", _rng().random((3, 4)) < 0.5)

        def forward(self, x: Any) -> Any:
            weight = np.where(self.mask, self.weight.T * np.exp(self.scale), 0.0)
            table = np.broadcast_to(self.scale * 2, (1000, 4))
            row = np.arange(4, dtype=np.float32) + np.array([1, 2, 3, 4], np.float32)
            return x @ weight + row, x @ self.weight.T + table[5] + row

    return _fill(Constants()), ("f32[B,3]",), (_normal(2, 3),)


@program
def splits() -> Made:
    def splits(x: Any) -> Any:
        a, b, c = np.split(x, [2, 5], axis=1)
        (whole,) = np.split(x, 1, axis=0)
        return a + c, b * 2, whole, np.stack([a, c], axis=1), np.concatenate([c, b, a], axis=-1)

    return splits, ("f32[B,7]",), (_normal(3, 7),)


@program
def half_precision() -> Made:
    def half_precision(x: Any, y: Any) -> Any:
        z = x * 2 + y.astype(np.float16)
        return (
            z.astype(np.float64).astype(np.float32),
            y.astype(fx.bfloat16.numpy) * y.astype(fx.bfloat16.numpy),
            z.sum(axis=0),
        )

    return (
        half_precision,
        ("f16[N,4]", "f32[N,4]"),
        (_normal(3, 4).astype(np.float16), _normal(3, 4)),
    )


@program
def group_norms() -> Made:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.group = nn.GroupNorm(2, 4)
            self.rms = nn.RMSNorm(5)

        def forward(self, x: Any) -> Any:
            return F.silu(self.rms(self.group(x)))

    return _fill(Norms()), ("f32[B,4,5]",), (_normal(2, 4, 5),)


@program
def losses() -> Made:
    def losses(x: Any, target: Any) -> Any:
        return (
            F.cross_entropy(x, target),
            F.mse_loss(x, x * 0.5),
            F.l1_loss(x, -x, reduction="none"),
        )

    return losses, ("f32[B,5]", "i64[B]"), (_normal(4, 5), _rng().integers(0, 5, 4))


@program
def scalars_and_empty() -> Made:
    def scalars_and_empty(x: Any, empty: Any) -> Any:
        return (
            x * 2.0**x + empty.sum(),
            np.concatenate([empty, empty * 2], axis=0),
            empty.max(axis=1),
        )

    return scalars_and_empty, ("f32[]", "f32[N,3]"), (np.float32(1.5), np.zeros((0, 3), np.float32))


ZOO.sort(key=lambda p: p.name)
