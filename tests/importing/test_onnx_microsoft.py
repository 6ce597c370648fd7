"""Ops of com.microsoft, beside what their documentation says, written in NumPy; and beside ONNX Runtime
where that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(0)
DOMAINS = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def run(op: str, inputs: list[Any], outputs: int = 1, weights: tuple[int, ...] = (), **attributes: Any) -> Any:
    """The results of one node in the graph and in C; ``weights`` are inputs that are constants."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    kinds |= {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.uint8): TensorProto.UINT8}
    kinds |= {np.dtype(np.int8): TensorProto.INT8}
    given = [
        helper.make_tensor_value_info(n, kinds[v.dtype], v.shape)
        for k, (n, v) in enumerate(zip(names, inputs))
        if v is not None and k not in weights
    ]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, name="/block/op", domain="com.microsoft", **attributes)
    held = [numpy_helper.from_array(inputs[k], names[k]) for k in weights]
    empty = [helper.make_empty_tensor_value_info(r) for r in results]
    net = helper.make_model(helper.make_graph([node], "net", given, empty, held), opset_imports=DOMAINS)
    gm = fx.from_onnx(net)
    values = [v for k, v in enumerate(inputs) if v is not None and k not in weights]
    found = gm(*values)
    compiled = fx.compile(gm, backend="c")(*values)
    for one, other in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, compiled))):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    return found


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x: Any, count: int) -> Any:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def attended(q: Any, k: Any, v: Any, keep: Any = None, bias: Any = 0.0) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    scores = scores if keep is None else np.where(keep, scores, -1e30)
    found = softmax(scores) @ v
    return found.transpose(0, 2, 1, 3).reshape(found.shape[0], found.shape[2], -1)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_attention() -> None:
    x, weight, bias = draw(2, 5, 8), draw(8, 24), draw(24)
    q, k, v = (heads(part, 2) for part in np.split(x @ weight + bias, 3, axis=2))
    close(run("Attention", [x, weight, bias], num_heads=2), attended(q, k, v))
    lower = np.tri(5, dtype=bool)
    close(run("Attention", [x, weight, bias], num_heads=2, unidirectional=1), attended(q, k, v, lower))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    close(run("Attention", [x, weight, bias, mask], num_heads=2), attended(q, k, v, mask[:, None, None] == 1))


def test_multi_head_attention() -> None:
    q, k, v, bias = draw(2, 3, 8), draw(2, 5, 8), draw(2, 5, 8), draw(24)
    own = [heads(x + b, 2) for x, b in zip((q, k, v), np.split(bias, 3))]
    close(run("MultiHeadAttention", [q, k, v, bias], num_heads=2), attended(*own))
    position = draw(1, 2, 3, 5)
    plain = [heads(x, 2) for x in (q, k, v)]
    close(run("MultiHeadAttention", [q, k, v, None, None, position], num_heads=2), attended(*plain, bias=position))
    past = draw(2, 2, 4, 4), draw(2, 2, 4, 4)
    keys, values = np.concatenate([past[0], plain[1]], 2), np.concatenate([past[1], plain[2]], 2)
    found = run("MultiHeadAttention", [q, k, v, None, None, None, *past], 3, num_heads=2)
    for one, other in zip(found, (attended(plain[0], keys, values), keys, values)):
        close(one, other)
    causal = run("MultiHeadAttention", [q, *[v] * 2, None, None, None, *past], 3, num_heads=2, unidirectional=1)[0]
    keys, values = (np.concatenate([held, plain[2]], 2) for held in past)
    close(causal, attended(plain[0], keys, values, np.arange(3)[:, None] + 6 >= np.arange(9)))


def test_group_query_attention_with_positions() -> None:
    q, k, v = draw(1, 3, 16), draw(1, 3, 8), draw(1, 3, 8)
    past = draw(1, 2, 4, 4), draw(1, 2, 4, 4)
    angles = draw(16, 2)
    cos, sin = np.cos(angles), np.sin(angles)

    def turned(x: Any) -> Any:
        one, other, c, s = x[..., :2], x[..., 2:], cos[4:7], sin[4:7]
        return np.concatenate([one * c - other * s, one * s + other * c], -1)

    keys = np.concatenate([past[0], turned(heads(k, 2))], 2)
    values = np.concatenate([past[1], heads(v, 2)], 2)
    keep = np.arange(3)[:, None] + 4 >= np.arange(7)
    expected = attended(turned(heads(q, 4)), keys.repeat(2, 1), values.repeat(2, 1), keep)
    lengths = np.array([6], np.int32), np.array([7], np.int32)
    given = [q, k, v, *past, *lengths, cos, sin]
    found = run("GroupQueryAttention", given, 3, num_heads=4, kv_num_heads=2, do_rotary=1)
    for one, other in zip(found, (expected, keys, values)):
        close(one, other)


def test_attention_with_a_past_and_of_integers() -> None:
    x, weight, bias, past = draw(2, 3, 8), draw(8, 24), draw(24), draw(2, 2, 2, 4, 4)
    q, k, v = (heads(part, 2) for part in np.split(x @ weight + bias, 3, axis=2))
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    keep = np.arange(3)[:, None] + 4 >= np.arange(7)
    found = run("Attention", [x, weight, bias, None, past], 2, num_heads=2, unidirectional=1)
    close(found[0], attended(q, k, v, keep))
    close(found[1], np.stack([k, v]))
    whole = RNG.integers(0, 255, (1, 3, 8)).astype(np.uint8), RNG.integers(-127, 127, (8, 24)).astype(np.int8)
    real = (whole[0].astype(np.float32) - 120) @ whole[1].astype(np.float32) * np.float32(0.001) + bias
    scales, points = [np.float32(v) for v in (0.05, 0.02)], [np.uint8(120), np.int8(0)]
    given = [np.asarray(v) for v in (*whole, bias, *scales)]
    held = run("QAttention", [*given, None, *map(np.asarray, points)], weights=(1, 2, 3, 4, 6, 7), num_heads=2)
    close(held, attended(*(heads(part, 2) for part in np.split(real, 3, axis=2))))


def test_group_query_attention_with_a_window_and_a_cap() -> None:
    q, k, v, past = draw(1, 3, 16), draw(1, 3, 8), draw(1, 3, 8), (draw(1, 2, 4, 4), draw(1, 2, 4, 4))
    keys, values = np.concatenate([past[0], heads(k, 2)], 2), np.concatenate([past[1], heads(v, 2)], 2)
    keys, values = keys.repeat(2, 1), values.repeat(2, 1)
    apart = np.arange(3)[:, None] + 4 - np.arange(7)
    keep = (apart >= 0) & (apart < 3)
    given = [q, k, v, *past, np.array([6], np.int32), np.array([7], np.int32)]
    options = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 3}
    close(run("GroupQueryAttention", given, 3, **options)[0], attended(heads(q, 4), keys, values, keep))
    scores = np.tanh(heads(q, 4) @ keys.swapaxes(-1, -2) / 2 / 1.5) * 1.5
    expected = softmax(np.where(keep, scores, -np.inf)) @ values
    capped = run("GroupQueryAttention", given, 3, softcap=1.5, **options)[0]
    close(capped, expected.transpose(0, 2, 1, 3).reshape(1, 3, 16))


def test_embeddings_with_a_mask_and_positions() -> None:
    ids, places = np.array([[1, 2, 0]], np.int32), np.array([[2, 1, 0]], np.int32)
    words, at, scale, beta, mask = draw(5, 4), draw(6, 4), draw(4), draw(4), np.array([[1, 1, 0]], np.int32)
    given = [ids, None, words, at, None, scale, beta, mask, places]
    found, counted, whole = run("EmbedLayerNormalization", given, 3, epsilon=1e-5)
    close(whole, words[ids] + at[places])
    close(counted, [2])
    mean, var = whole.mean(-1, keepdims=True), whole.var(-1, keepdims=True)
    close(found, (whole - mean) / np.sqrt(var + 1e-5) * scale + beta)


def test_normalizations() -> None:
    x, skip, scale, beta, bias = draw(2, 3, 8), draw(2, 3, 8), draw(8), draw(8), draw(8)
    whole = x + skip + bias
    mean, var = whole.mean(-1, keepdims=True), whole.var(-1, keepdims=True)
    expected = (whole - mean) / np.sqrt(var + 1e-5) * scale + beta
    close(run("SkipLayerNormalization", [x, skip, scale, beta, bias], epsilon=1e-5), expected)
    rms = (x + skip) / np.sqrt(((x + skip) ** 2).mean(-1, keepdims=True) + 1e-5) * scale
    close(run("SkipSimplifiedLayerNormalization", [x, skip, scale], epsilon=1e-5), rms)


def test_products_and_activations() -> None:
    a, b = draw(2, 3, 4), draw(2, 5, 4)
    close(run("FusedMatMul", [a, b], transB=1, alpha=0.5), 0.5 * a @ b.swapaxes(1, 2))
    close(run("QuickGelu", [a], alpha=1.702), a / (1 + np.exp(-1.702 * a)))
    close(run("BiasGelu", [a, draw(4) * 0]), run("Gelu", [a]))
    square, c = draw(4, 4), draw(4)
    close(run("Inverse", [square]), np.linalg.inv(square))
    close(run("Trilu", [square]), np.triu(square))
    close(run("Pad", [square, np.array([1, 0, 0, 2]), np.asarray(np.float32(3))], weights=(1, 2)), _padded(square))
    close(run("CDist", [a[0], b[0]], metric="euclidean"), np.linalg.norm(a[0][:, None] - b[0], axis=-1))
    gemm = run("FusedGemm", [a[0], square, c], activation="LeakyRelu", activation_alpha=0.1, alpha=0.5)
    close(gemm, _leaky(0.5 * a[0] @ square + c, 0.1))


def _padded(x: Any) -> Any:
    return np.pad(x, ((1, 0), (0, 2)), constant_values=3)


def _leaky(x: Any, slope: float) -> Any:
    return np.where(x > 0, x, slope * x)


def test_products_of_integers() -> None:
    a, b = RNG.integers(0, 255, (2, 4)).astype(np.uint8), RNG.integers(-127, 127, (3, 4)).astype(np.int8)
    c, scales = np.array([5, 6, 7], np.int32), np.float32([0.2, 0.1, 0.3])
    sums = (a.astype(int) - 100) @ b.T.astype(int) + c
    given = [a, np.float32(0.1), np.uint8(100), b, scales, np.zeros(3, np.int8), c]
    held = [np.asarray(v) for v in given]
    weights = tuple(range(1, 7))
    close(run("QGemm", held, weights=weights, transB=1, alpha=0.5), sums * 0.05 * scales)
    ends = [np.asarray(np.float32(0.5)), np.asarray(np.uint8(90))]
    expected = np.clip(np.rint(sums * 0.2 * scales) + 90, 0, 255).astype(np.uint8)
    found = run("QGemm", [*held, *ends], weights=(*weights, 7, 8), transB=1)
    assert np.abs(found.astype(int) - expected).max() <= 1
    x = draw(2, 4)
    real = run("DynamicQuantizeMatMul", [x, b.T.copy(), scales, np.zeros(3, np.int8)], weights=(1, 2, 3))
    assert np.abs(real - x @ (b.T * scales)).max() < 0.02 * np.abs(b).sum(1).max() * scales.max()


def test_rows_of_a_table_of_four_bits() -> None:
    whole = RNG.integers(0, 16, (5, 32)).astype(np.uint8)
    packed, scales, ids = whole[:, 0::2] | whole[:, 1::2] << 4, np.abs(draw(5, 2)), np.array([[3, 1]])
    options = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16, "bits": 4}
    found = run("GatherBlockQuantized", [packed, ids, scales], weights=(0, 2), **options)
    close(found, ((whole.astype(np.float32) - 8) * scales.repeat(16, 1))[ids])


@pytest.mark.parametrize("with_zeros", [False, True])
def test_weights_of_four_bits(with_zeros: bool) -> None:
    x, whole = draw(3, 32), RNG.integers(0, 16, (6, 2, 16)).astype(np.uint8)
    packed = (whole[..., 0::2] | whole[..., 1::2] << 4).reshape(6, 2, 8)
    scales = np.abs(draw(12))
    zeros = RNG.integers(0, 16, (6, 2)).astype(np.uint8)
    points = zeros if with_zeros else np.full((6, 2), 8)
    weight = (whole.astype(np.float32) - points[..., None]) * scales.reshape(6, 2, 1)
    held = [x, packed, scales, *([(zeros[:, 0] | zeros[:, 1] << 4)] if with_zeros else [])]
    found = run("MatMulNBits", held, weights=tuple(range(1, len(held))), K=32, N=6, bits=4, block_size=16)
    close(found, x @ weight.reshape(6, 32).T)


def test_integers_element_by_element() -> None:
    a, b = (RNG.integers(-100, 100, (4, 5)).astype(np.int8) for _ in range(2))
    scales = [np.float32(v) for v in (0.5, 0.25, 1.0)]
    points = [np.int8(v) for v in (3, -2, 1)]
    real = (a.astype(int) - 3) * 0.5 + (b.astype(int) + 2) * 0.25
    given = [a, scales[0], points[0], b, scales[1], points[1], scales[2], points[2]]
    given = [np.asarray(v) for v in given]
    found = run("QLinearAdd", given, weights=(1, 2, 4, 5, 6, 7))
    np.testing.assert_array_equal(found, np.clip(np.rint(real) + 1, -128, 127).astype(np.int8))


def test_norms_of_small_numbers_without_an_epsilon() -> None:
    """Those that skip and embed add 1e-12 to the variance, the plain one 1e-5."""
    x, skip, scale, beta = 1e-3 * draw(2, 3, 4), 1e-3 * draw(2, 3, 4), draw(4), draw(4)

    def normal(whole: Any, eps: float) -> Any:
        apart = whole - whole.mean(-1, keepdims=True)
        return apart / np.sqrt(np.square(apart).mean(-1, keepdims=True) + eps) * scale + beta

    close(run("SkipLayerNormalization", [x, skip, scale, beta]), normal(x + skip, 1e-12))
    close(run("LayerNormalization", [x, scale, beta]), normal(x, 1e-5))
    rms = (x + skip) / np.sqrt(np.square(x + skip).mean(-1, keepdims=True) + 1e-12) * scale
    close(run("SkipSimplifiedLayerNormalization", [x, skip, scale]), rms)
    words, places, ids = 1e-3 * draw(9, 4), 1e-3 * draw(3, 4), np.array([[1, 2, 8]], np.int32)
    found = run("EmbedLayerNormalization", [ids, None, words, places, None, scale, beta], 2)
    close(found[0], normal(words[ids] + places, 1e-12))
