"""Epilogues of integer products by vectors: the helpers against the definition on several sets of
instructions, and which programs are printed with them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from tests.codegen.compiling import flags_of, shared_library, with_tiles

#: (type, zero point, least, most); the first is the one whose conversions saturate.
RANGES = [("u8", 0, 0, 255), ("u8", 125, 0, 255), ("u8", 7, 7, 200), ("i8", -3, -127, 127)]

_FUNCTION = """
void store_{n}(const float *x, {type}_t *y, int total)
{{
    for (int i = 0; i < total; i += int_lanes)
        store_rounded_{name}(y + i, load_f32(x + i, total - i), {rest}, total - i);
}}
"""
_WIDENED = """
void convert_{name}(const {type}_t *x, int32_t *y, int total)
{{
    for (int i = 0; i < total; i += int_lanes)
        store_i32(y + i, load_{name}(x + i, total - i), total - i);
}}
"""


def _type(name: str) -> str:
    return {"u8": "uint8", "i8": "int8"}[name]


@pytest.fixture(scope="module", params=["native", "AVX2", "SSE2"])
def library(request: pytest.FixtureRequest, tmp_path_factory: Any) -> ctypes.CDLL:
    parts = []
    for n, (name, *numbers) in enumerate(RANGES):
        rest = ", ".join(map(str, numbers))
        parts.append(_FUNCTION.format(n=n, name=name, type=_type(name), rest=rest))
    parts += [_WIDENED.format(name=name, type=_type(name)) for name in ("u8", "i8")]
    target = tmp_path_factory.mktemp("epilogue") / "epilogue.so"
    flags = ("-fwrapv", *flags_of(request.param))
    return shared_library(with_tiles("\n".join(parts)), target, *flags)


def _pointers(*arrays: Any) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


def test_rounding_saturates_and_stores_no_more_than_asked(library: ctypes.CDLL) -> None:
    edges = [0.5, 1.5, -0.5, 2.5, 254.5, 255.5, -128.5, 126.5, 2.0**31, 2.0**33, 3e38, np.inf, 0.0]
    x = np.array([*edges, *(-e for e in edges), np.nan, *np.linspace(-300, 300, 64)], np.float32)
    for n, (name, zero_point, low, high) in enumerate(RANGES):
        whole = np.where(np.isnan(x), -np.inf, np.rint(x)) + zero_point
        expected = np.clip(whole, low, high).astype(_type(name))
        for total in (1, 3, 15, 16, 21, 40, len(x)):
            y = np.full(len(x) + 64, 77, _type(name))
            library[f"store_{n}"](*_pointers(x, y), total)
            np.testing.assert_array_equal(y[:total], expected[:total], f"{RANGES[n]}, {total}")
            assert (y[total:] == 77).all()


def test_bytes_are_widened(library: ctypes.CDLL) -> None:
    for name in ("u8", "i8"):
        x = np.arange(256).astype(_type(name))
        for total in (1, 13, 16, 250):
            y = np.full(300, 777, np.int32)
            library[f"convert_{name}"](*_pointers(x, y), total)
            np.testing.assert_array_equal(y[:total], x[:total])
            assert (y[total:] == 777).all()


def test_which_epilogues_run_by_vectors() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (37, 20)).astype(np.int8)
    scale = rng.uniform(1e-3, 1e-2, 37).astype(np.float32)

    def residual(x: Any, skip: Any) -> Any:
        total = ops.dequantize(ops.int_linear(x, weight), scale) + ops.dequantize(skip, 0.2, 7)
        return ops.quantize(np.maximum(total, -1.0), 0.3, 9, dtype="u8")

    def curved(x: Any, skip: Any) -> Any:
        return np.tanh(ops.dequantize(ops.int_linear(x, weight), scale)) + skip

    x = rng.integers(0, 256, (23, 20)).astype(np.uint8)
    skip = rng.integers(-128, 128, (23, 37)).astype(np.int8)
    for program, by_vectors in ((residual, True), (curved, False)):
        gm = fx.symbolic_trace(program, "u8[T,20]", "i8[T,37]")
        function = fx.compile(gm, backend="c")
        (source,) = (s for name, s in function.sources.items() if name.endswith(f"{gm.name}.c"))
        assert ("j += int_lanes" in source) == by_vectors
        if by_vectors:
            np.testing.assert_array_equal(function(x, skip), program(x, skip))
