"""The programs whose emitted code is compared with the texts in `golden/`: small ones, so that each
text is short, and of every kind, so that each printer, plan and template is seen.

A program is a function of arrays; parameters with defaults are its weights. `test_golden.py` emits
them and says what of the emitted code is compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.types.tensor_type import parse_type


@dataclass(frozen=True)
class Case:
    """A program, and how its code is made and compared.

    types       of its inputs, in order
    targets     "c", "cuda", "header": of C
    precision   of matrix products in C
    march       the processor, a name that C compilers know
    shown       of C: "kernels"; "functions", those around the kernels, too; or the whole "file"
    profile     whether a run takes the time after each kernel
    naive       whether products are the plain loops that tests compare them with
    """

    program: Callable[..., Any]
    types: tuple[str, ...]
    targets: tuple[str, ...] = ("c",)
    precision: str = "highest"
    march: str = "haswell"
    shown: str = "kernels"
    profile: bool = False
    naive: bool = False

    @property
    def name(self) -> str:
        """That of the program; of another processor than haswell, followed by its name."""
        own = self.program.__name__
        return own if self.march == "haswell" else f"{own}_{self.march.replace('-', '_')}"

    def module(self) -> nn.Module:
        """The program with its weights; no text shows their values."""
        signature = inspect.signature(self.program)
        weights, inputs = [], []
        for p in signature.parameters.values():
            (inputs if p.default is p.empty else weights).append(p)

        def forward(self: nn.Module, *arrays: Any) -> Any:
            return program(*arrays, **{p.name: getattr(self, p.name) for p in weights})

        program = self.program
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        forward.__signature__ = signature.replace(parameters=[itself, *inputs])
        made = type(program.__name__, (nn.Module,), {"forward": forward})()
        for number, p in enumerate(weights):
            found = parse_type(p.default)
            made.register_buffer(p.name, np.full(found.shape, number, found.dtype.numpy))
        return made.eval()


# To read one: `golden/NAME.c`, `.cu`, `.h`. To write all: pytest tests/codegen/test_golden.py
# --update-golden. Some plans have no kernel of less than 60 lines; those are as short as they get.
CASES: list[Case] = []

BOTH = ("c", "cuda")


def case(*types: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: one more case."""

    def entered(program: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(program, types, **options))
        return program

    return entered


# ---- loops: elements ------------------------------------------------------------------------


@case("f32[B,N]", "f32[N]", targets=BOTH)
def pointwise(x, y):
    return np.tanh(x) * y + 1


@case("f32[B,N]", "f32[N]")
def transposed(x, y):
    return x.T * 2 + y[:, None]


@case("f32[B,3,1]", "f32[B,1,N]", targets=BOTH)
def broadcast(x, y):
    return np.exp(x) + np.where(y > 0, y, 2 * y)


@case("i32[N]", "u8[N]", targets=BOTH)
def integers(x, y):
    return (x // 3 + x % 7).clip(-5, 300) + y, (y << 2) & 0x3F


@case("u64[N]", "u16[N]", "i64[N]", targets=BOTH)
def unsigned_integers(x, y, z):
    return (x - 1) // 3 + y * 70, -y * y, x < z, x > 2**63


@case("f16[N]", "bf16[N]", targets=BOTH)
def halves(x, y):
    return (x * 3 + y.astype(np.float16)).astype(np.float32), np.exp(y)


@case("f32[3,40,50]", targets=BOTH)
def turned(x):
    return x.transpose(1, 2, 0) * 2


@case("f32[B,8]", "f32[B,N]", targets=BOTH)
def padded_and_joined(x, y):
    return np.concatenate([np.pad(x, ((0, 0), (1, 2))), y[:, ::-1]], axis=1) + 1


@case("f32[1,N]", "f32[1,1]", targets=BOTH)
def extents_of_one(x, y):
    return (x * y).reshape(1, 1, -1).transpose(2, 0, 1) + 1


@case("f32[B,2*N+1]", targets=BOTH)
def derived_sizes(x):
    return np.concatenate([x, x], 0)[:, 1::2] * 0.5


# ---- loops: reductions and scans ------------------------------------------------------------


@case("f32[B,N]", targets=BOTH)
def sum_of_rows(x):
    return x.sum(1)


@case("f32[N,C]", targets=BOTH)
def sum_of_columns(x):
    return np.abs(x).sum(0)


@case("f32[A,N,C]", targets=BOTH)
def max_of_middle(x):
    return x.max(1)


@case("f32[N]", targets=BOTH)
def mean_of_all(x):
    return x.mean()


@case("f32[N,C,H,W]", targets=BOTH)
def mean_of_images(x):
    return x.mean((2, 3))


@case("f32[N,H,W,8]", targets=BOTH)
def mean_of_pixels(x):
    return x.mean((1, 2))


@case("f32[A,N,64]", "f32[A,N,5]", targets=BOTH)
def sums_of_axes_apart(x, y):
    return x.sum((0, 2)), y.sum((0, 2))


@case("i32[B,N]", targets=BOTH)
def any_and_largest(x):
    return (x > 3).any(1), x.max(1)


@case("f64[5,3]", targets=BOTH)
def short_product(x):
    return x.prod(1)


@case("f64[N]", targets=BOTH)
def sum_of_doubles(x):
    return (x * x).sum()


@case("f32[B,N]", targets=BOTH)
def argmax(x):
    return x.argmax(-1)


@case("f32[B,N]", targets=BOTH)
def softmax(x):
    return F.softmax(x, -1)


@case("f32[1,2,5,24]")
def resized_rows(x):
    """The weights and neighbours of a row are computed once."""
    return F.interpolate(x, size=(9, 64), mode="bilinear")


@case("f32[B,64]", targets=BOTH)
def layer_norm(x, weight="f32[64]", bias="f32[64]"):
    return F.layer_norm(x, (64,), weight, bias)


@case("f32[B,N]", targets=BOTH)
def cumsum(x):
    return x.cumsum(1)


@case("i32[N]", targets=BOTH)
def cumsum_of_all(x):
    return x.cumsum(0)


@case("f32[B,3,H,W]", targets=BOTH)
def max_pool(x):
    return F.max_pool2d(x, 3, 2, 1)


@case("f32[B,3,8,8]", targets=BOTH)
def avg_pool(x):
    return F.avg_pool2d(x, 2)


# ---- loops: gather and scatter --------------------------------------------------------------


@case("i64[N]", targets=BOTH)
def gather(i, table="f32[10,4]"):
    rows = ops.take(table, i, axis=0)
    return rows - rows.mean(-1, keepdims=True)


@case("f32[N,C]", "i64[M,C]", "f32[M,C]", targets=BOTH)
def scatter(x, i, y):
    return ops.scatter_add(x, i, y, axis=0)


# ---- matrix products ------------------------------------------------------------------------


@case("f32[B,40]", naive=True)
def gemm_naive(x, weight="f32[50,40]", bias="f32[50]"):
    return F.linear(x, weight, bias)


@case("f32[B,40]", targets=BOTH)
def gemm_packed(x, weight="f32[50,40]", bias="f32[50]"):
    return F.relu(F.linear(x, weight, bias)) * 2


@case("f32[24,40]")
def gemm_fused(x, weight="f32[32,40]", bias="f32[32]"):
    return F.relu(F.linear(x, weight, bias)) * 2


@case("f32[1,64]", "f32[64,48]")
def gemm_small(x, y):
    return x @ y


@case("f64[2,H,T,8]", "f64[2,H,T,8]", targets=BOTH)
def gemm_named_dims(x, y):
    return x @ y.transpose(0, 1, 3, 2) * 0.5


@case("f32[B,K,M]", "f32[K,20]")
def gemm_copied_rows(x, y):
    return x.transpose(0, 2, 1) @ y


@case("f32[8,544]")
def gemm_slices(x, weight="f32[544,96]"):
    return x @ weight


@case("f32[64,4100]", "f32[4100,1056]")
def gemm_blocks(x, y):
    return x @ y


@case("f32[B,T,40]", precision="medium")
def gemm_medium(x, weight="f32[32,40]"):
    return F.linear(x, weight)


@case("bf16[24,40]", precision="medium")
def gemm_medium_fused(x, weight="f32[32,40]"):
    return F.relu(F.linear(x.astype(np.float32), weight))


@case("f32[40,64]", precision="high", march="sapphirerapids")
def gemm_high(x, weight="f32[64,64]"):
    return F.linear(x, weight)


@case("f32[1,40]", targets=("cuda",))
def gemv(x, weight="f32[50,40]", bias="f32[50]"):
    return F.linear(x, weight, bias)


@case("u8[1,40]", targets=("cuda",))
def gemv_int8(x, weight="i8[50,40]"):
    return ops.int_linear(x, weight, x_zero_point=7)


# ---- products of integers -------------------------------------------------------------------

SCALE, ZERO = np.float32(0.5), np.int32(3)


@case("u8[B,300]", targets=BOTH)
def gemm_int8(x, weight="i8[32,300]", bias="i32[32]", scale="f32[32]"):
    sums = ops.int_linear(x, weight, bias, x_zero_point=7)
    return ops.requantize(sums, scale, ZERO, dtype="u8")


@case("u8[24,40]")
def gemm_int8_fused(x, weight="i8[32,40]", bias="i32[32]", scale="f32[32]"):
    return ops.dequantize(ops.int_linear(x, weight, bias, x_zero_point=7), scale)


@case("f32[B,300]")
def gemm_int8_dynamic(x, weight="i8[32,300]", scale="f32[32]"):
    x_scale = ops.dynamic_scale(x, axis=-1, keepdims=True)
    sums = ops.int_linear(ops.quantize(x, x_scale, qmin=-127), weight)
    return F.sigmoid(ops.dequantize(sums, x_scale * scale))


@case("u8[4096,8192]", "f32[4096,32]")
def gemm_int8_blocks(x, y, weight="i8[32,8192]"):
    return ops.dequantize(ops.int_linear(x, weight, x_zero_point=7), SCALE) + y


@case("u8[B,T,20]", "u8[B,20,U]", targets=BOTH)
def gemm_int8_pair(x, y):
    return ops.dequantize(ops.int_matmul(x, y, x_zero_point=7, y_zero_point=100), SCALE)


@case("f32[B,128]", targets=BOTH)
def weight_only_int4(x, weight="u8[32,64]", scale="f32[32,4]"):
    return ops.linear_weight_only(x, weight, scale, bits=4, group_size=32)


@case("f32[64,1056]")
def weight_only_int8_widened(x, weight="i8[64,1056]", scale="f32[64]"):
    return ops.linear_weight_only(x, weight, scale)


# ---- convolutions ---------------------------------------------------------------------------


@case("f32[N,3,H,W]")
def conv_pixels(x, weight="f32[8,3,3,3]", bias="f32[8]"):
    return F.relu(F.conv2d(x, weight, bias, stride=2, padding=1))


@case("f32[N,1,7,7]")
def conv_plane(x, weight="f32[8,1,3,3]"):
    return F.conv2d(x, weight, padding=1)


@case("f32[N,4,9,9]")
def conv_groups(x, weight="f32[8,2,3,3]"):
    return F.conv2d(x, weight, padding=1, groups=2)


@case("f32[1,16,16,16]")
def conv_channels(x, weight="f32[32,16,3,3]", bias="f32[32]"):
    return F.relu(F.conv2d(x, weight, bias, stride=2, padding=1))


@case("f32[N,16,8,8]", "f32[8]")
def conv_product(x, y, weight="f32[32,16,1,1]"):
    return F.conv2d(x, weight) + y


@case("f32[N,16,7,7]", "f32[7]")
def conv_product_declined(x, y, weight="f32[40,16,1,1]"):
    return F.conv2d(x, weight) + y


@case("f32[1,32,16,16]")
def conv_winograd(x, weight="f32[32,32,3,3]", bias="f32[32]"):
    return F.relu(F.conv2d(x, weight, bias, padding=1))


@case("f32[N,8,H,W]")
def conv_depthwise(x, weight="f32[8,1,3,3]", bias="f32[8]"):
    return F.conv2d(x, weight, bias, padding=1, groups=8)


@case("f32[N,H,W,16]")
def conv_nhwc(x, weight="f32[32,16,3,3]", bias="f32[32]"):
    return F.relu(ops.conv2d(x, weight, bias, stride=2, padding=1, layout="NHWC"))


@case("f32[N,H,W,16]")
def conv_nhwc_depthwise(x, weight="f32[16,1,3,3]", bias="f32[16]"):
    return ops.conv2d(x, weight, bias, padding=1, groups=16, layout="NHWC")


@case("bf16[N,H,W,16]", precision="medium")
def conv_nhwc_medium(x, weight="f32[32,16,3,3]"):
    x = x.astype(np.float32)
    return ops.conv2d(x, weight, padding=1, dilation=2, layout="NHWC")


@case("f32[1,16,16,16]", precision="medium")
def conv_channels_medium(x, weight="f32[32,16,3,3]", bias="f32[32]"):
    return F.relu(F.conv2d(x, weight, bias, stride=2, padding=1))


@case("f32[1,16,16,32]", precision="medium")
def conv_winograd_medium(x, weight="f32[32,32,3,3]"):
    return ops.conv2d(x, weight, padding=1, layout="NHWC")


@case("f32[1,8,8,16]", precision="high", march="sapphirerapids")
def conv_tiles(x, weight="f32[32,16,3,3]"):
    return ops.conv2d(x, weight, padding=1, layout="NHWC")


@case("i8[N,8,H,W]", targets=BOTH)
def conv_int8(x, weight="i8[16,8,3,3]", scale="f32[16,1,1]"):
    sums = ops.int_conv2d(x, weight, stride=2, padding=1)
    return ops.requantize(sums, scale)


@case("u8[1,8,8,16]")
def conv_int8_fused(x, weight="i8[32,16,3,3]", scale="f32[32]"):
    sums = ops.int_conv2d(x, weight, padding=1, x_zero_point=7, layout="NHWC")
    return ops.requantize(sums, scale, ZERO, dtype="u8")


@case("u8[N,H,W,16]")
def conv_int8_dynamic(x, weight="i8[32,16,3,3]", scale="f32[32]"):
    sums = ops.int_conv2d(x, weight, x_zero_point=7, layout="NHWC")
    y = F.relu(ops.dequantize(sums, scale))
    return y, ops.dynamic_scale(y, axis=(1, 2, 3), keepdims=True)


@case("u8[1,8,8,16]")
def conv_int8_depthwise(x, weight="i8[16,1,3,3]", scale="f32[16]"):
    sums = ops.int_conv2d(x, weight, padding=1, groups=16, x_zero_point=7, layout="NHWC")
    return ops.requantize(sums, scale, ZERO, dtype="u8")


@case("i8[N,8,5,W]")
def conv_int8_depthwise_turned(x, weight="i8[8,1,3,3]", scale="f32[8,1,1]"):
    sums = ops.int_conv2d(x, weight, padding=1, groups=8)
    return F.sigmoid(ops.dequantize(sums, scale))


@case("f32[N,4,L]", targets=BOTH)
def conv1d(x, weight="f32[6,4,3]"):
    return F.conv1d(x, weight)


# ---- attention, recurrence ------------------------------------------------------------------


@case("f32[B,60,32]", "f32[60,60]")
def attention(x, mask):
    heads = x.reshape(-1, 60, 4, 8).transpose(0, 2, 1, 3)
    return F.scaled_dot_product_attention(heads, heads, heads, mask).transpose(0, 2, 1, 3)


@case("f64[B,T,8]", "f64[B,T,8]", "f64[B,T,8]")
def attention_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case("f32[B,1,8]", "f32[B,S,8]", "f32[B,S,8]", "bool[B,1,S]")
def attention_rows(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask)


@case("f32[T,B,32]", "f32[B,8]", "f32[B,8]")
def lstm(gates, state, cell, weight_hh="f32[32,8]", bias="f32[32]"):
    return ops.recurrence(gates, weight_hh, state, cell, bias)


@case("f32[4,B,24]", "f32[B,8]", "f32[24,8]")
def gru(gates, state, weight_hh, bias="f32[24]"):
    return ops.recurrence(gates, weight_hh, state, bias_hh=bias, mode="gru")


@case("f32[4,1,32]", "f32[1,32]")
def rnn_int8(gates, state, weight_hh="i8[32,32]", scale="f32[32]"):
    return ops.int_recurrence(gates, weight_hh, scale, state, mode="rnn_tanh")


# ---- whole programs -------------------------------------------------------------------------


@case("f32[N]", shown="file", profile=True)
def profiled(x):
    return np.sqrt(x)


@case("f32[B,32]", shown="functions", targets=BOTH)
def two_layers(x, w1="f32[32,32]", b1="f32[32]", w2="f32[32,32]", b2="f32[32]"):
    return F.relu(F.linear(F.relu(F.linear(x, w1, b1)), w2, b2))


@case("f32[B,16]", shown="functions", targets=BOTH)
def linear_norm_gelu(x, weight="f32[32,16]", gain="f32[32]", bias="f32[32]"):
    return F.gelu(F.layer_norm(F.linear(x, weight), (32,), gain, bias))


@case("i64[B,T]", shown="functions", targets=(*BOTH, "header"))
def lookup(tokens, table="f32[100,16]", places="f32[512,16]"):
    rows = ops.take(table, tokens, axis=0) + places[: tokens.shape[1]]
    return {"rows": rows, "mean": rows.mean(1)}


@case("f32[B,N]", "f32[M,B*N]", shown="functions", targets=(*BOTH, "header"))
def named_sizes(x, y):
    z = np.exp(np.tanh(x).reshape(-1) + y)
    return z / z.max(0)


@case("f32[2,8]", shown="functions", targets=BOTH)
def several_results(x, weight="f32[8]"):
    y = x * weight
    return y, x, weight, y.reshape(4, 4), y


@case("f32[6,40]", "f32[40,8]", shown="functions", targets=BOTH)
def packed_memory(x, y):
    z = (x @ y).cumsum(0)
    return z.reshape(-1).cumsum(0) / z.sum()


@case("f32[B,1,8,8]", shown="functions")
def first_layer(x, weight="f32[16,1,3,3]"):
    return F.max_pool2d(F.relu(F.conv2d(x, weight, padding=1)), 2)
