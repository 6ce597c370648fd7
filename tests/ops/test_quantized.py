"""The semantics of docs/quantization.md, value by value; every back end's bits are compared by
tests/fuzz/quantized.py."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.base.errors import DTypeError, ShapeError
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.show.node_cost import node_flops
from fxlite.types import dtypes
from fxlite.types.tensor_type import type_of
from tests.codegen.compiling import emitted

Array = np.ndarray[Any, Any]


def every(dtype: str) -> Array:
    """All values of a type of one byte."""
    return np.arange(256, dtype=np.uint8).view(dtype)


# -- quantize, dequantize, requantize --------------------------------------------------------------
def test_halves_go_to_even_and_the_rest_saturates() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 300, -128.5, -129.5, 1e30], np.float32)
    expected = [0, 2, 2, 0, -2, 126, 127, 127, -128, -128, 127]
    np.testing.assert_array_equal(ops.quantize(x, 1.0), expected)
    np.testing.assert_array_equal(ops.quantize(x, 1.0, 10, dtype="u8")[:4], [10, 12, 12, 10])
    np.testing.assert_array_equal(ops.quantize(x, 1.0, qmin=-127).min(), -127)
    np.testing.assert_array_equal(ops.quantize(x, 1.0, qmin=-8, qmax=7)[5:], [7] * 3 + [-8] * 2 + [7])


def test_what_is_not_a_finite_number() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    np.testing.assert_array_equal(ops.quantize(x, 0.1, 3), [-128, 127, -128, 3, 3])
    np.testing.assert_array_equal(ops.quantize(x, 0.1, 3, qmin=0), [0, 127, 0, 3, 3])
    for scale in (np.nan, 2.0**-140):  # the reciprocal is NaN, or infinite
        assert ops.quantize(np.zeros(1, np.float32), np.float32(scale), 3) == -128
    assert ops.quantize(np.ones(1, np.float32), np.float32(np.inf), 3) == 3


@pytest.mark.parametrize("dtype", ["i1", "u1"])
def test_quantize_undoes_dequantize(dtype: str) -> None:
    rng = np.random.default_rng(0)
    q = every(dtype)
    for scale in [2.0**-126, 2.0**120, 1.0, 0.1, *2.0 ** rng.uniform(-126, 120, 400)]:
        for zero in (int(q.min()), 0, int(q.max())):
            x = ops.dequantize(q, np.float32(scale), zero)
            again = ops.quantize(x, np.float32(scale), zero, dtype=dtypes.dtype(q.dtype))
            np.testing.assert_array_equal(again, q)


def test_the_formulas_in_float64() -> None:
    rng = np.random.default_rng(1)
    sums = rng.integers(-(2**24), 2**24, 5000).astype(np.int32)
    scale = (rng.uniform(0.5, 1, 5000) * 2.0**-17).astype(np.float32)
    product = (sums.astype(np.float64) * scale).astype(np.float32)  # rounded once
    expected = np.clip(np.rint(product) + 7, -128, 127)
    np.testing.assert_array_equal(ops.requantize(sums, scale, 7), expected)
    np.testing.assert_array_equal(ops.dequantize(sums, scale), product)
    large = np.array([2**31 - 1, -(2**31), 2**24 + 1], np.int32)
    np.testing.assert_array_equal(ops.dequantize(large, 1.0), [2.0**31, -(2.0**31), 2.0**24])


def test_torch_quantizes_alike() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(20000) * 9).astype(np.float32)
    x[:5000] = (rng.integers(-200, 200, 5000) + 0.5) * 0.0625
    for number, zero, kind in ((0.0625, 0, "qint8"), (0.071, 128, "quint8"), (0.3, 0, "quint8")):
        scale = np.float32(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = torch.quantize_per_tensor(torch.from_numpy(x), float(scale), zero, getattr(torch, kind))
        values = theirs.int_repr().numpy()
        np.testing.assert_array_equal(ops.dequantize(values, scale, zero), theirs.dequantize().numpy())
        ours = ops.quantize(x, scale, zero, dtype="u8" if kind == "quint8" else "i8")
        if zero == 0:
            np.testing.assert_array_equal(ours, values)
        else:  # torch rounds after it has added the zero point, so that near halves one may differ
            assert (ours != values).mean() < 1e-3


# -- int4 ------------------------------------------------------------------------------------------
def test_int4_pairs() -> None:
    low, high = np.meshgrid(np.arange(-8, 8), np.arange(-8, 8))
    q = np.stack((low, high), axis=-1).astype(np.int8)
    packed = ops.pack_int4(q)
    np.testing.assert_array_equal(packed[..., 0], (high % 16) * 16 + low % 16)
    np.testing.assert_array_equal(ops.unpack_int4(packed), q)


# -- products --------------------------------------------------------------------------------------
def test_the_longest_sum_fits_and_one_more_is_refused() -> None:
    assert largest_depth(dtypes.uint8, dtypes.int8) == 65793
    assert largest_depth(dtypes.int8, dtypes.int8) == 131071
    assert largest_depth(dtypes.uint8, dtypes.int8, 128) == 131071
    x, weight = np.full((1, 65793), 255, np.uint8), np.full((1, 65793), -128, np.int8)
    assert ops.int_linear(x, weight) == -65793 * 255 * 128 >= -(2**31)
    with pytest.raises(ShapeError, match="hold 65793 products"):
        ops.int_linear(np.zeros((1, 65794), np.uint8), np.zeros((1, 65794), np.int8))


def test_a_product_that_may_overflow_is_named() -> None:
    def program(x: Any, weight: Any) -> Any:
        return ops.int_linear(x, weight)

    with pytest.raises(ShapeError, match=r"test_quantized\.py.*ops\.int_linear"):
        fx.symbolic_trace(program, "u8[B,70000]", "i8[4,70000]")


@pytest.mark.parametrize("depth", [64, 600])  # sums in float32, and in float64
def test_sums_are_exact(depth: int) -> None:
    x = np.full((2, depth), 255, np.uint8)
    weight = np.full((3, depth), -128, np.int8)
    weight[:, ::2] = 127
    exact = (x.astype(np.int64) - 1) @ weight.T.astype(np.int64)
    np.testing.assert_array_equal(ops.int_linear(x, weight, x_zero_point=1), exact)
    y = np.ascontiguousarray(weight.T)
    np.testing.assert_array_equal(ops.int_matmul(x, y, x_zero_point=1), exact)


def test_padding_is_the_zero_point() -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (1, 2, 5, 5)).astype(np.uint8)
    weight = rng.integers(-128, 128, (3, 2, 3, 3)).astype(np.int8)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=200)
    np.testing.assert_array_equal(
        ops.int_conv2d(x, weight, padding=1, x_zero_point=200), ops.int_conv2d(padded, weight, x_zero_point=200)
    )


def test_a_bias_wraps() -> None:
    x, weight = np.ones((1, 1), np.int8), np.ones((1, 1), np.int8)
    bias = np.array([2**31 - 1], np.int32)
    assert ops.int_linear(x, weight, bias) == -(2**31)


@pytest.mark.parametrize("bits", [8, 4])
def test_weight_only_is_linear_with_the_dequantized_weight(bits: int) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((5, 64)).astype(np.float32)
    integers = rng.integers(-8, 8, (7, 64)).astype(np.int8)
    scale = rng.uniform(0.01, 0.1, (7, 2)).astype(np.float32)
    weight = ops.dequantize(integers.reshape(7, 2, 32), scale[:, :, None]).reshape(7, 64)
    stored = ops.pack_int4(integers) if bits == 4 else integers
    np.testing.assert_array_equal(
        ops.linear_weight_only(x, stored, scale, bits=bits, group_size=32), ops.linear(x, weight)
    )


def test_costs_are_those_of_the_float_products() -> None:
    def program(x: Any, weight: Any, image: Any, kernel: Any) -> Any:
        return (ops.int_linear(x, weight, x_zero_point=3), ops.int_conv2d(image, kernel, padding=1, x_zero_point=1))

    gm = fx.symbolic_trace(program, "u8[5,32]", "i8[64,32]", "u8[1,8,6,6]", "i8[16,8,3,3]")
    linear, conv = gm.graph.find_nodes(op="call_function")
    assert node_flops(linear) == 2 * 5 * 32 * 64
    assert node_flops(conv) == 2 * 16 * 36 * 8 * 9


# -- kernels ---------------------------------------------------------------------------------------
def test_requantization_is_part_of_the_product() -> None:
    rng = np.random.default_rng(5)
    weight = rng.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8)
    scale = rng.uniform(1e-4, 1e-3, (8, 1, 1)).astype(np.float32)

    def program(x: Any) -> Any:
        q = ops.quantize(x, 0.02, 128, dtype="u8")
        sums = ops.int_conv2d(q, weight, padding=1, x_zero_point=128)
        q = ops.requantize(sums, scale, 5, dtype="u8", qmin=5)
        return ops.dequantize(ops.max_pool2d(q, kernel_size=3, stride=2, padding=1), 0.1, 5)

    stored = [call.group.root.type.dtype.name for call in emitted(program, "f32[B,4,9,9]").calls]
    assert stored == ["u8", "u8", "f32"], "sums of 32 bits are never stored"


def test_a_product_is_rounded_before_something_is_added() -> None:
    rng = np.random.default_rng(6)
    scale = rng.uniform(0.1, 1, 64).astype(np.float32)
    bias = rng.standard_normal(64).astype(np.float32)

    def program(sums: Any) -> Any:
        return ops.dequantize(sums, scale) + bias

    sums = rng.integers(-100, 100, (50, 64)).astype(np.int32)
    expected = program(sums)
    fused = (sums.astype(np.float64) * scale + bias).astype(np.float32)
    assert (fused != expected).any(), "a fused multiply-add would show"
    function = fx.compile(fx.symbolic_trace(program, "i32[B,64]"), backend="c")
    assert function(sums).tobytes() == expected.tobytes()


@pytest.mark.parametrize("scale", [np.float64(0.1), np.array(0.1)])
def test_a_scale_of_another_type_is_refused_by_calls_as_by_traces(scale: Any) -> None:
    """NumPy's float64 is one of Python's floats, too, but has a type."""
    x = np.ones(4, np.float32)
    for op, operand in ((ops.quantize, x), (ops.requantize, x.astype(np.int32)), (ops.dequantize, x.astype(np.int8))):
        with pytest.raises(DTypeError, match="scale must be f32, not f64"):
            op(operand, scale)
        with pytest.raises(DTypeError, match="scale must be f32, not f64"):
            fx.symbolic_trace(lambda x, op=op: op(x, scale), type_of(operand))
