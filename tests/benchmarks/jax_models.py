"""The benchmark's models in JAX: functions of the weights, by their names in torch, and the inputs.

Convolutions run in NHWC order with their weights turned (:func:`parameters`): XLA's CPU back end is
faster that way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.benchmarks.models import GPT2_HEADS, GPT2_LAYERS, MOBILENET

Weights = Mapping[str, Any]


def parameters(weights: Weights) -> dict[str, Any]:
    """The weights as JAX arrays, those of convolutions as HWIO."""
    turned = {n: a.transpose(2, 3, 1, 0) if a.ndim == 4 else a for n, a in weights.items()}
    return {name: jnp.asarray(array) for name, array in turned.items()}


def linear(w: Weights, name: str, x: Any) -> Any:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(w: Weights, name: str, x: Any, eps: float = 1e-5) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    normal = (x - mean) * lax.rsqrt(variance + eps)
    return normal * w[f"{name}.weight"] + w[f"{name}.bias"]


def conv(w: Weights, name: str, x: Any, stride: int = 1, groups: int = 1) -> Any:
    weight = w[f"{name}.weight"]
    around = (weight.shape[0] - 1) // 2
    return lax.conv_general_dilated(
        x,
        weight,
        (stride, stride),
        [(around, around)] * 2,
        feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def batch_norm(w: Weights, name: str, x: Any) -> Any:
    scale = w[f"{name}.weight"] * lax.rsqrt(w[f"{name}.running_var"] + 1e-5)
    return x * scale + (w[f"{name}.bias"] - w[f"{name}.running_mean"] * scale)


def max_pool(x: Any, size: int, stride: int, around: int) -> Any:
    pads = [(0, 0), (around, around), (around, around), (0, 0)]
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), pads)


def attention(q: Any, k: Any, v: Any, keep: Any = None) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if keep is not None:
        scores = jnp.where(keep, scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def split_heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def merge_heads(x: Any) -> Any:
    batch, _, length, _ = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, -1)


# -- models ----------------------------------------------------------------------------------------
def digits(w: Weights, x: Any) -> Any:
    x = x.transpose(0, 2, 3, 1)
    x = jax.nn.relu(batch_norm(w, "bn1", conv(w, "conv1", x)))
    x = max_pool(jax.nn.relu(batch_norm(w, "bn2", conv(w, "conv2", x))), 2, 2, 0)
    return linear(w, "fc", x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1))


def mlp(w: Weights, x: Any) -> Any:
    return linear(w, "4", jax.nn.relu(linear(w, "2", jax.nn.relu(linear(w, "0", x)))))


def matmul(w: Weights, x: Any) -> Any:
    return x @ w["weight"].T


def pointwise(w: Weights, x: Any) -> Any:
    y = jax.nn.gelu(x * 1.3 + 0.2, approximate=False) * jax.nn.sigmoid(x) + jnp.tanh(x)
    return jax.nn.relu(y - x * 0.1)


def _recurrence(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, bias: Any) -> Any:
    def step(state: Any, gates: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ w_hh.T, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), y = lax.scan(step, (h, c), x @ w_ih.T + bias)
    return y, h, c


def lstm_cell(w: Weights, x: Any, h: Any, c: Any) -> Any:
    return _recurrence(x, h, c, w["w_ih"], w["w_hh"], w["b_ih"] + w["b_hh"])


def lstm(w: Weights, x: Any, h: Any, c: Any) -> Any:
    bias = w["lstm.bias_ih_l0"] + w["lstm.bias_hh_l0"]
    y, h, c = _recurrence(x, h[0], c[0], w["lstm.weight_ih_l0"], w["lstm.weight_hh_l0"], bias)
    return y, h[None], c[None]


def _resnet(w: Weights, x: Any, counts: tuple[int, ...], strided: int, convs: int) -> Any:
    """``strided``: which convolution of a block has the stride; ``convs``: how many it has."""
    x = x.transpose(0, 2, 3, 1)
    x = max_pool(jax.nn.relu(batch_norm(w, "bn1", conv(w, "conv1", x, 2))), 3, 2, 1)
    for stage, count in enumerate(counts):
        for block in range(count):
            name, stride = f"layer{stage + 1}.{block}", 2 if block == 0 and stage > 0 else 1
            skip, y = x, x
            if f"{name}.downsample.0.weight" in w:
                skip = conv(w, f"{name}.downsample.0", x, stride)
                skip = batch_norm(w, f"{name}.downsample.1", skip)
            for n in range(1, convs + 1):
                y = conv(w, f"{name}.conv{n}", y, stride if n == strided else 1)
                y = batch_norm(w, f"{name}.bn{n}", y)
                y = jax.nn.relu(y) if n < convs else y
            x = jax.nn.relu(y + skip)
    return linear(w, "fc", x.mean((1, 2)))


def mobilenet(w: Weights, x: Any) -> Any:
    def convolution(name: str, x: Any, stride: int = 1, groups: int = 1) -> Any:
        return jax.nn.relu6(batch_norm(w, f"{name}.1", conv(w, f"{name}.0", x, stride, groups)))

    x = convolution("features.0", x.transpose(0, 2, 3, 1), 2)
    number, inside = 1, 32
    for expansion, width, count, first_stride in MOBILENET:
        for position in range(count):
            name, stride = f"features.{number}.conv", first_stride if position == 0 else 1
            y, step = x, 0
            if expansion != 1:
                y, step = convolution(f"{name}.0", y), 1
            y = convolution(f"{name}.{step}", y, stride, inside * expansion)
            y = batch_norm(w, f"{name}.{step + 2}", conv(w, f"{name}.{step + 1}", y))
            x = x + y if stride == 1 and inside == width else y
            number, inside = number + 1, width
    return linear(w, "fc", convolution(f"features.{number}", x).mean((1, 2)))


def minilm(w: Weights, x: Any, mask: Any) -> Any:
    y = w["embeddings.word_embeddings.weight"][x]
    y = y + w["embeddings.position_embeddings.weight"][: x.shape[1]]
    y = y + w["embeddings.token_type_embeddings.weight"][0]
    y = layer_norm(w, "embeddings.LayerNorm", y, 1e-12)
    keep = mask[:, None, None, :] != 0
    for number in range(6):
        name = f"encoder.layer.{number}"
        q, k, v = (split_heads(linear(w, f"{name}.attention.self.{part}", y), 12) for part in ("query", "key", "value"))
        mixed = linear(w, f"{name}.attention.output.dense", merge_heads(attention(q, k, v, keep)))
        y = layer_norm(w, f"{name}.attention.output.LayerNorm", mixed + y, 1e-12)
        inner = jax.nn.gelu(linear(w, f"{name}.intermediate.dense", y), approximate=False)
        inner = linear(w, f"{name}.output.dense", inner)
        y = layer_norm(w, f"{name}.output.LayerNorm", inner + y, 1e-12)
    weight = mask[:, :, None].astype(y.dtype)
    mean = (y * weight).sum(1) / jnp.maximum(weight.sum(1), 1e-9)
    return mean / jnp.maximum(jnp.linalg.norm(mean, axis=1, keepdims=True), 1e-12)


def bert(w: Weights, tokens: Any, mask: Any) -> Any:
    keep = mask[:, None, None, :] != 0
    x = w["words.weight"][tokens] + w["positions.weight"][: tokens.shape[1]]
    x = layer_norm(w, "norm", x)
    for number in range(12):
        name = f"layers.{number}"
        q, k, v = (split_heads(linear(w, f"{name}.{part}", x), 12) for part in ("query", "key", "value"))
        mixed = merge_heads(attention(q, k, v, keep))
        x = layer_norm(w, f"{name}.norm1", x + linear(w, f"{name}.dense", mixed))
        inner = jax.nn.gelu(linear(w, f"{name}.up", x), approximate=False)
        x = layer_norm(w, f"{name}.norm2", x + linear(w, f"{name}.down", inner))
    return x


def gpt2(w: Weights, x: Any, keys: Any = None, values: Any = None) -> Any:
    length = x.shape[1]
    past = 0 if keys is None else keys.shape[3]
    y = w["wte.weight"][x] + w["wpe.weight"][past : past + length]
    new_keys, new_values = [], []
    for number in range(GPT2_LAYERS):
        name = f"h.{number}"
        qkv = linear(w, f"{name}.c_attn", layer_norm(w, f"{name}.ln_1", y))
        q, k, v = (split_heads(part, GPT2_HEADS) for part in jnp.split(qkv, 3, -1))
        new_keys.append(k)
        new_values.append(v)
        if keys is None:
            mixed = attention(q, k, v, jnp.tril(jnp.ones((length, length), bool)))
        else:
            all_keys = jnp.concatenate([keys[number], k], 2)
            all_values = jnp.concatenate([values[number], v], 2)
            mixed = attention(q, all_keys, all_values)
        y = y + linear(w, f"{name}.c_proj", merge_heads(mixed))
        inner = jax.nn.gelu(linear(w, f"{name}.up", layer_norm(w, f"{name}.ln_2", y)))
        y = y + linear(w, f"{name}.down", inner)
    logits = layer_norm(w, "ln_f", y[:, -1:]) @ w["wte.weight"].T
    return logits, jnp.stack(new_keys), jnp.stack(new_values)


def recommender(w: Weights, x: Any) -> Any:
    for number in range(6):
        x = jax.nn.selu(linear(w, f"layers.{number}", x))
    return x


#: Workload.model -> the function of its weights and inputs
MODELS: dict[str, Callable[..., Any]] = {
    "mlp": mlp,
    "matmul 1024": matmul,
    "matmul 2048": matmul,
    "pointwise": pointwise,
    "lstm cell": lstm_cell,
    "lstm": lstm,
    "resnet18": lambda w, x: _resnet(w, x, (2, 2, 2, 2), 1, 2),
    "resnet50": lambda w, x: _resnet(w, x, (3, 4, 6, 3), 2, 3),
    "mobilenet": mobilenet,
    "minilm": minilm,
    "bert": bert,
    "gpt2": gpt2,
    "recommender": recommender,
    "digits": digits,
}
