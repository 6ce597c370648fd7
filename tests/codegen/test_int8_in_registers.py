"""Integer products whose epilogue runs in the registers of the tile: the emitted C, on several sets
of instructions, against the operators' definition."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.codegen.c.emit import emit
from fxlite.codegen.c.templates import claims
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.load import CompiledFunction
from tests.codegen.compiling import flags_of
from tests.codegen.test_amx import EMULATED

Array = np.ndarray[Any, Any]

_RNG = np.random.default_rng(0)
_BIAS = _RNG.integers(-9999, 9999, 40).astype(np.int32)


def _integers(*shape: int, dtype: str = "int8") -> Array:
    return _RNG.integers(0, 256, shape).astype(np.uint8).view(dtype)


_POINTS, _FIRST, _WIDE = _integers(40, 16, 1, 1), _integers(33, 3, 3, 3), _integers(13, 64)
_DEPTHWISE, _DEPTHWISE_5 = _integers(70, 1, 3, 3), _integers(70, 1, 5, 5)


def _points(x: Any, skip: Any) -> Any:
    """Rows are pixels; with a residual."""
    sums = ops.int_conv2d(x, _POINTS, _BIAS, x_zero_point=3, layout="NHWC")
    total = ops.dequantize(sums, 0.002) + ops.dequantize(skip, 0.2, 7)
    return ops.quantize(total, 0.3, dtype="u8")


def _first(x: Any) -> Any:
    """A first layer: runs of 9 numbers, and rows of pixels that are cut in tiles of two heights."""
    sums = ops.int_conv2d(x, _FIRST, _BIAS[:33], stride=2, padding=1, x_zero_point=11, layout="NHWC")
    return ops.quantize(ops.dequantize(sums, 0.003), 0.3, -5, dtype="i8")


def _depthwise(x: Any) -> Any:
    """Pairs of output rows, the last one alone."""
    sums = ops.int_conv2d(x, _DEPTHWISE, padding=1, groups=70, x_zero_point=-9, layout="NHWC")
    return ops.quantize(ops.dequantize(sums, 0.003), 0.3, 9, dtype="u8", qmin=9)


def _depthwise_5(x: Any) -> Any:
    """Kernels of two groups of woven rows, and results that are floats."""
    sums = ops.int_conv2d(x, _DEPTHWISE_5, stride=2, padding=2, groups=70, layout="NHWC")
    return ops.dequantize(sums, 0.003)


def _linear(x: Any) -> Any:
    """Tiles of two heights, and a panel of 13 columns."""
    return ops.dequantize(ops.int_linear(x, _WIDE), 0.01)


def _all(points: Any, skip: Any, first: Any, depthwise: Any, depthwise_5: Any, rows: Any) -> Any:
    return (_points(points, skip), _first(first), _depthwise(depthwise), _depthwise_5(depthwise_5), _linear(rows))


@pytest.mark.parametrize("instructions", ["native", "AVX2", "SSE2", "AMX"])
def test_results_are_those_of_the_operators(instructions: str) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("flags are those of x86-64")
    amx = ("-D_GNU_SOURCE", *EMULATED)  # which includes headers before the source can
    named = amx if instructions == "AMX" else flags_of(instructions)
    flags = [*(["-march=x86-64"] if instructions == "SSE2" else []), *named, "-O1"]
    inputs = [
        _integers(2, 5, 7, 16, dtype="uint8"),
        _integers(2, 5, 7, 40),
        _integers(1, 9, 27, 3, dtype="uint8"),
        _integers(1, 5, 11, 70),
        _integers(2, 7, 19, 70, dtype="uint8"),
        _integers(25, 64),
    ]
    types = ("u8[2,5,7,16]", "i8[2,5,7,40]", "u8[1,9,27,3]", "i8[1,5,11,70]", "u8[2,7,19,70]", "i8[25,64]")
    emitted = emit(optimize(fx.symbolic_trace(_all, *types), keep=claims)[0], "products")
    source = "\n".join(emitted.sources.values())
    assert source.count("    sum_rows_int8(rows, vectors, 1,") == 2  # of _points and _linear
    assert source.count("    sum_pixels_int8(pixels,") == 1
    assert source.count("    add_columns(") == 2 + 1  # and the one in add_tile
    library = build(emitted.sources, emitted.entry, flags=flags)
    function = CompiledFunction(emitted.entry, library, emitted.weights, 2, use_extension=False)
    for result, expected in zip(function(*inputs), _all(*inputs), strict=True):
        np.testing.assert_array_equal(result, np.asarray(expected))
