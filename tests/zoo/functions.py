"""Programs of the zoo that are functions, and small modules around one idea."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from tests.zoo.registry import Made, fill, normal, program, rng


@program
def relu_spellings() -> Made:
    def relu_spellings(x: Any) -> Any:
        return (np.maximum(x, 0), x.clip(0), F.relu(x + 1), np.maximum(0, x) + nn.ReLU()(x))

    return relu_spellings, ("f32[N,3]",), (normal(4, 3),)


@program
def softmax_layer_norm() -> Made:
    def softmax_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        y = F.layer_norm(x, (6,), weight, bias)
        return F.softmax(y, dim=1), F.log_softmax(y, dim=-1), F.gelu(y, approximate="tanh")

    return (softmax_layer_norm, ("f32[B,6]", "f32[6]", "f32[6]"), (normal(3, 6), normal(6), normal(6)))


@program
def einsums() -> Made:
    def einsums(x: Any, y: Any) -> Any:
        return (np.einsum("bij,bjk->bik", x, y), np.einsum("bij->bj", x), np.einsum("bij,bij->b", x, x))

    return einsums, ("f32[B,4,5]", "f32[B,5,3]"), (normal(2, 4, 5), normal(2, 5, 3))


@program
def pooling() -> Made:
    def pooling(x: Any) -> Any:
        y = F.avg_pool2d(x, 2, stride=1, padding=1)
        return F.max_pool2d(y, 3, 2), F.adaptive_avg_pool2d(x, (2, 3)), F.avg_pool2d(x, 2)

    return pooling, ("f32[B,2,7,9]",), (normal(2, 2, 7, 9),)


@program
def gather_scatter() -> Made:
    def gather_scatter(x: Any, index: Any) -> Any:
        picked = np.take_along_axis(x, index, axis=1)
        spread = ops.scatter_add(np.zeros_like(x), index, picked * 2, axis=1)
        return picked, spread, np.take(x, index[0], axis=1), F.one_hot(index[:, 0], 6)

    index = rng().integers(0, 6, (3, 4))
    return gather_scatter, ("f32[3,6]", "i64[3,4]"), (normal(3, 6), index)


@program
def scans() -> Made:
    def scans(x: Any) -> Any:
        total = np.cumsum(x, axis=1)
        return total / np.arange(1, 6, dtype=np.float32), np.cumsum(x[:, ::-1], axis=0)

    return scans, ("f32[B,5]",), (normal(3, 5),)


@program
def integers_and_logic() -> Made:
    def integers_and_logic(a: Any, b: Any, keep: Any) -> Any:
        wide = a.astype(np.int64) * 3 // 2 % 7
        bits = (a & 6) | (b ^ 1)
        shifted = (a << 2) >> 1
        some = (a > b) & keep | ~keep
        return np.where(some, wide, b), bits, shifted, some.any(axis=0), np.logical_not(some).sum()

    generator = rng()
    inputs = (generator.integers(-9, 9, (4, 3)).astype(np.int32), generator.integers(-9, 9, 3).astype(np.int32))
    return (integers_and_logic, ("i32[N,3]", "i32[3]", "bool[N,1]"), (*inputs, generator.random((4, 1)) < 0.5))


@program
def nested_outputs() -> Made:
    def nested_outputs(x: Any) -> Any:
        unused = np.exp(x) + 3  # noqa: F841
        again = np.exp(x)
        return {"both": [again, (again, np.exp(x))], "sum": x.sum(), "x": x}

    return nested_outputs, ("f32[B,3]",), (normal(2, 3),)


@program
def named_dims() -> Made:
    def named_dims(x: Any, y: Any) -> Any:
        batch, length = x.shape[:2]
        flat = x.reshape(batch * length, -1)
        back = flat.reshape(batch, length, 2, 3).transpose(0, 2, 1, 3).reshape(batch, 2 * length, 3)
        half = x[:, : length // 2]
        spread = np.broadcast_to(y, (batch, *y.shape)) / length
        return back, half.mean(axis=1), spread, np.zeros_like(x) + ops.full((batch, 1, 1), 2.0)

    return named_dims, ("f32[B,T,6]", "f32[2*T]"), (normal(2, 5, 6), normal(10))


@program
def identities() -> Made:
    """What simplify takes away, and what looks like it and must stay."""

    def identities(x: Any, n: Any) -> Any:
        y = -((-(x * 1 / 1 - 0.0)) ** 1)
        y = y + 0  # turns -0.0 into 0.0
        y = F.relu(F.relu(y)) + np.abs(-x)
        z = y.reshape(2, 6).reshape(3, 4).reshape(x.shape).transpose(1, 0).transpose(1, 0)
        z = np.squeeze(np.expand_dims(z, 0), 0)[:, 0:4].clip(-2, 3).clip(-1, 5).clip(0.5, 4)
        z = np.concatenate([z.astype(np.float64).astype(np.float32)]) * np.maximum(n, n)[:, None].astype(np.float32)
        return z, (n + 0) * 1, (n | 0) << 0, n.astype(np.float32).astype(np.int32), x * True

    x = normal(3, 4)
    x[0, :3] = (-0.0, np.nan, np.inf)
    return identities, ("f32[3,4]", "i32[3]"), (x, np.array([1, 2, 3], np.int32))


@program
def constants() -> Made:
    """What const_fold computes: weights permuted, scaled and combined with constants."""

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(normal(4, 3))
            self.scale = nn.Parameter(normal(4))
            self.register_buffer("mask", rng().random((3, 4)) < 0.5)

        def forward(self, x: Any) -> Any:
            weight = np.where(self.mask, self.weight.T * np.exp(self.scale), 0.0)
            table = np.broadcast_to(self.scale * 2, (1000, 4))
            row = np.arange(4, dtype=np.float32) + np.array([1, 2, 3, 4], np.float32)
            return x @ weight + row, x @ self.weight.T + table[5] + row

    return fill(Constants()), ("f32[B,3]",), (normal(2, 3),)


@program
def splits() -> Made:
    def splits(x: Any) -> Any:
        a, b, c = np.split(x, [2, 5], axis=1)
        (whole,) = np.split(x, 1, axis=0)
        return a + c, b * 2, whole, np.stack([a, c], axis=1), np.concatenate([c, b, a], axis=-1)

    return splits, ("f32[B,7]",), (normal(3, 7),)


@program
def half_precision() -> Made:
    def half_precision(x: Any, y: Any) -> Any:
        z = x * 2 + y.astype(np.float16)
        return (
            z.astype(np.float64).astype(np.float32),
            y.astype(fx.bfloat16.numpy) * y.astype(fx.bfloat16.numpy),
            z.sum(axis=0),
        )

    return (half_precision, ("f16[N,4]", "f32[N,4]"), (normal(3, 4).astype(np.float16), normal(3, 4)))


@program
def group_norms() -> Made:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.group = nn.GroupNorm(2, 4)
            self.rms = nn.RMSNorm(5)

        def forward(self, x: Any) -> Any:
            return F.silu(self.rms(self.group(x)))

    return fill(Norms()), ("f32[B,4,5]",), (normal(2, 4, 5),)


@program
def losses() -> Made:
    def losses(x: Any, target: Any) -> Any:
        return (F.cross_entropy(x, target), F.mse_loss(x, x * 0.5), F.l1_loss(x, -x, reduction="none"))

    return losses, ("f32[B,5]", "i64[B]"), (normal(4, 5), rng().integers(0, 5, 4))


@program
def scalars_and_empty() -> Made:
    def scalars_and_empty(x: Any, empty: Any) -> Any:
        return (x * 2.0**x + empty.sum(), np.concatenate([empty, empty * 2], axis=0), empty.max(axis=1))

    return scalars_and_empty, ("f32[]", "f32[N,3]"), (np.float32(1.5), np.zeros((0, 3), np.float32))


@program
def in_place() -> Made:
    """Writes through views of several values, traced as new values."""

    def in_place(x: Any, mask: Any) -> Any:
        padded = ops.zeros((*x.shape[:-1], 6))
        padded[:, 1:-1] = x
        edges = padded[:, ::5]
        edges += 2
        y = np.exp(padded)
        np.multiply(y, 0.5, out=y)
        y.T[0] = y[:, -1]
        y[:, [1, 3]] *= -1
        z = y[1:].reshape(-1)
        z[0] = 7
        x = x.copy()
        x[mask] = 0
        return padded, y, z, x

    keep = np.array([[True, False, False, True], [False] * 4, [True] * 4])
    return in_place, ("f32[B,4]", "bool[B,4]"), (normal(3, 4), keep)


@program
def integers() -> Made:
    """A quantized network: convolution, pooling and a residual in integers, a linear that is
    quantized per token while it runs, and one with int4 weights."""
    generator = rng()

    def weight(*shape: int, low: int = -128, high: int = 128) -> Any:
        return generator.integers(low, high, shape).astype(np.int8)

    conv, first, second = weight(6, 3, 3, 3), weight(8, 24), weight(4, 8)
    bias = generator.integers(-500, 500, 6).astype(np.int32)
    scale = generator.uniform(1e-4, 1e-3, (6, 1, 1)).astype(np.float32)
    packed = ops.pack_int4(weight(5, 4, low=-8, high=8))

    def integers(x: Any) -> Any:
        q = ops.quantize(x, 0.02, 128, dtype="u8")
        sums = ops.int_conv2d(q, conv, bias, padding=1, x_zero_point=128)
        q = ops.max_pool2d(ops.requantize(sums, scale, 3, qmin=3), kernel_size=2)
        rows = q.reshape(q.shape[0], -1)
        y = ops.dequantize(ops.int_linear(rows, first, x_zero_point=3), 1e-3)
        y = ops.relu(y + ops.dequantize(rows[:, :8], 0.05, 3))
        token = ops.maximum(ops.max(ops.abs(y), axis=-1, keepdims=True), 1e-6) * np.float32(1 / 127)
        z = ops.dequantize(ops.int_linear(ops.quantize(y, token), second), token)
        return ops.quantize(z, 0.5), ops.linear_weight_only(z, packed, scale[:5, 0, 0], bits=4)

    return integers, ("f32[B,3,4,4]",), (normal(2, 3, 4, 4),)
