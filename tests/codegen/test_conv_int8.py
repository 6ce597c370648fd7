"""Convolutions of integers in C: the template against NumPy, in both layouts, on several sets of
instructions, one of which at most has products of quads: the others take the text of pairs or of
single bytes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.codegen.c.conv.conv_int8 import Int8ConvSpec, pack_conv_int8, render_conv_int8
from fxlite.ops.image.spatial import TO_LAST
from fxlite.scalar.index import Index
from tests.codegen.compiling import evaluate, flags_of, shared_library, with_tiles

Array = np.ndarray[Any, Any]

PARAMETERS = "const {}_t *restrict x, const int32_t *restrict weight, int32_t *restrict y"


@dataclass(frozen=True)
class Case:
    """One convolution: the shapes of image and weight as [N, C, H, W], and attributes."""

    name: str
    image: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    type: str = "u8"
    zero_point: int = 0
    x_last: bool = True

    def spec(self) -> Int8ConvSpec:
        n, c, h, w = self.image
        k, _, r, s = self.weight
        sizes = {"out_h": 0, "out_w": 0}
        spec = Int8ConvSpec(
            name=f"convolve_{self.name}",
            ctype="int32_t",
            parameters=PARAMETERS.format("uint8" if self.type == "u8" else "int8"),
            n=Index.of(n),
            c=c,
            h=Index.of(h),
            w=Index.of(w),
            k=k,
            r=r,
            s=s,
            x="x",
            weight="weight",
            epilogue=lambda total, n, k, oh, ow: (
                f"y[(({n} * {sizes['out_h']} + {oh}) * {sizes['out_w']} + {ow}) * {self.weight[0]} + {k}] = {total};"
            ),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            type=self.type,
            zero_point=self.zero_point,
            x_last=self.x_last,
            y_last=True,
        )
        sizes["out_h"], sizes["out_w"] = (size.constant for size in spec.output_size())
        return spec

    def arrays(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Image and weight, with channels first, the longest sums among them."""
        dtype = np.dtype(np.uint8 if self.type == "u8" else np.int8)
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, self.image, endpoint=True)
        weight = rng.integers(-128, 127, self.weight, endpoint=True)
        x[:, :, : x.shape[2] // 2], weight[: len(weight) // 3] = info.max, -128
        return x.astype(dtype), weight.astype(np.int8)

    def exact(self, x: Array, weight: Array) -> Array:
        """The sums, with channels last."""
        top, left, bottom, right = self.padding
        total = ops.int_conv2d(
            x,
            weight,
            stride=self.stride,
            padding=((top, bottom), (left, right)),
            dilation=self.dilation,
            groups=self.groups,
            x_zero_point=self.zero_point,
        )
        return np.asarray(total).transpose(TO_LAST)


_SAME = (1, 1, 1, 1)
CASES = [
    Case("first", (1, 3, 23, 19), (40, 3, 7, 7), (2, 2), (3, 3, 3, 3), zero_point=117),
    Case("first_nchw", (2, 3, 9, 30), (16, 3, 3, 3), (2, 2), _SAME, type="i8", zero_point=-9, x_last=False),
    Case("wide", (2, 64, 9, 25), (31, 64, 3, 3), padding=(0, 1, 2, 0), zero_point=255),
    Case("in_place", (1, 8, 7, 13), (33, 8, 3, 2), type="i8", zero_point=5),
    Case("odd", (2, 5, 6, 7), (64, 5, 1, 1), type="i8"),
    Case("strided", (2, 12, 8, 9), (70, 12, 1, 1), (2, 2), zero_point=3),
    Case("dilated", (2, 5, 9, 11), (33, 5, 3, 2), padding=(2, 2, 2, 2), dilation=(2, 3), zero_point=7),
    Case("grouped", (1, 12, 14, 14), (24, 3, 3, 3), padding=_SAME, groups=4, type="i8", zero_point=-128),
    Case("grouped_nchw", (1, 8, 5, 6), (72, 4, 3, 3), padding=_SAME, groups=2, x_last=False),
    Case("depthwise", (2, 70, 9, 13), (70, 1, 3, 3), padding=_SAME, groups=70, zero_point=128),
    Case("depthwise_5", (2, 130, 11, 13), (130, 1, 5, 5), padding=(2, 2, 2, 2), groups=130, type="i8", zero_point=-3),
    Case("depthwise_strided", (1, 64, 11, 12), (64, 1, 3, 3), (2, 2), groups=64, zero_point=9),
    Case("depthwise_dilated", (1, 24, 11, 12), (24, 1, 5, 4), (1, 3), (2, 2, 2, 2), (2, 1), 24),
    Case("depthwise_nchw", (2, 33, 6, 5), (33, 1, 3, 3), padding=_SAME, groups=33, type="i8", x_last=False),
]


def functions(cases: list[Case]) -> str:
    """The cases as run_NAME."""
    parts = []
    for case in cases:
        rendered = render_conv_int8(case.spec())
        extra = "".join(f", {name}" for name in rendered.extra_parameters)
        parts.append(
            f"{rendered.text}\n"
            f"void run_{case.name}(const void *x, const void *weight, void *y, void *workspace,\n"
            f"    int n_threads)\n"
            f"{{\n    (void)n_threads, (void)workspace;\n"
            f"    convolve_{case.name}(x, weight, y{extra});\n}}\n"
        )
    return "\n".join(parts)


@pytest.fixture(scope="module", params=["native", "AVX2", "SSE2", "AVX-512 without VNNI"])
def library(request: pytest.FixtureRequest, tmp_path_factory: Any) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("conv_int8") / "conv_int8.so"
    flags = ("-fwrapv", *flags_of(request.param))
    return shared_library(with_tiles(functions(CASES)), target, *flags)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_sums_are_exact(library: ctypes.CDLL, n_threads: int) -> None:
    check_sums(library, CASES, n_threads)


def check_sums(library: ctypes.CDLL, cases: list[Case], n_threads: int) -> None:
    for case in cases:
        x, weight = case.arrays(np.random.default_rng(1))
        expected = case.exact(x, weight)
        spec = case.spec()
        y = np.full(expected.size + 8, 7777, np.int32)
        size = evaluate(render_conv_int8(case.spec()).workspace, n_threads=n_threads)
        workspace = np.full(size + 64, 99, np.uint8)
        workspace = workspace[-workspace.ctypes.data % 64 :][:size]
        stored = np.ascontiguousarray(x.transpose(TO_LAST)) if case.x_last else x
        arrays = (stored, pack_conv_int8(weight, spec), y, workspace)
        library[f"run_{case.name}"](*(ctypes.c_void_p(a.ctypes.data) for a in arrays), n_threads)
        assert (y[expected.size :] == 7777).all(), case.name
        sums = y[: expected.size].reshape(expected.shape)
        np.testing.assert_array_equal(sums, expected, case.name)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolution_is_one_kernel_with_its_epilogue(layout: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (40, 8, 3, 3)).astype(np.int8)
    bias = rng.integers(-999, 999, 40).astype(np.int32)
    scale = rng.uniform(1e-4, 1e-2, 40).astype(np.float32)
    scale = scale[:, None, None] if layout == "NCHW" else scale

    def program(x: Any, skip: Any) -> Any:
        sums = ops.int_conv2d(x, weight, bias, padding=1, x_zero_point=3, layout=layout)
        total = ops.dequantize(sums, scale) + ops.dequantize(skip, 0.2, 7)
        return ops.quantize(total, 0.3, 9, dtype="u8", qmin=9)

    image, result = ("8,H,W", "40,H,W") if layout == "NCHW" else ("H,W,8", "H,W,40")
    gm = fx.symbolic_trace(program, f"u8[B,{image}]", f"i8[B,{result}]")
    function = fx.compile(gm, backend="c")
    anchors = [kernel.anchor.name for kernel in function.kernels if kernel.anchor]
    assert anchors == ["int_conv2d"]
    assert layout == "NCHW" or len(function.kernels) == 1
    for n, h, w in ((2, 5, 12), (1, 1, 1), (0, 3, 3)):
        sizes = [(n, c, h, w) if layout == "NCHW" else (n, h, w, c) for c in (8, 40)]
        x, skip = (rng.integers(0, 256, size).astype(np.uint8) for size in sizes)
        np.testing.assert_array_equal(function(x, skip.view(np.int8)), program(x, skip.view(np.int8)))
