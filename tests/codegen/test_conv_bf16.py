"""Convolutions of bf16 with float sums: the template against NumPy in float64.

They are compiled for several instruction sets, of which at most the native one has products of
bf16: the others take the portable text.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.c import templates
from fxlite.codegen.c.conv import conv, conv_plan
from fxlite.codegen.c.conv.conv_plan import reads_pairs, winograd_tile
from fxlite.codegen.c.render import conv_template
from fxlite.codegen.kernel.builder import Rendered, text_of
from fxlite.codegen.runtime.toolchain import march_flag
from tests.codegen.compiling import SANITIZED, compile_c, flag_of, flags_of, run_sanitized, shared_library, with_tiles
from tests.codegen.plain_loops import render_conv_naive
from tests.codegen.test_conv_template import C_FUNCTIONS, Case, reference

SAME, NONE = (1,) * 4, (0,) * 4


def case(c, k, kernel, stride, padding, size, dilation=1, groups=1) -> Case:
    pair = lambda x: x if isinstance(x, tuple) else (x, x)  # noqa: E731
    return Case("float", c, k, pair(kernel), pair(stride), padding, pair(dilation), groups, size)


CASES = [
    case(3, 40, 7, 2, (3,) * 4, (1, 23, 38)),  # the plan "channels"
    case(17, 20, 3, 2, SAME, (2, 9, 13)),
    case(34, 66, 3, 2, (0, 1, 2, 3), (1, 8, 71)),
    case(12, 33, (3, 2), (1, 3), NONE, (1, 7, 9), dilation=(2, 1)),
    case(15, 27, 3, 1, SAME, (2, 5, 6), groups=3),
    case(40, 34, 1, 2, NONE, (2, 7, 9)),
    case(10, 9, 1, 2, (0, 1, 1, 0), (1, 6, 5)),
    case(35, 10, 1, (1, 3), NONE, (1, 3, 211)),
    case(300, 34, 1, 1, NONE, (2, 5, 7)),  # of joined rows
    case(301, 33, 1, 1, NONE, (1, 5, 5)),
    case(20, 12, (1, 3), 1, (0, 1, 0, 1), (2, 1, 130)),
    case(5, 10, 5, 1, (2,) * 4, (1, 1, 1)),
    case(7, 12, 3, 2, SAME, None),
    case(33, 34, 3, 1, (1, 0, 2, 1), (2, 5, 9)),  # Winograd's
    case(32, 65, 3, 1, NONE, (1, 4, 71)),
    case(64, 32, 3, 1, SAME, (2, 7, 7)),
    case(47, 36, 3, 1, SAME, None),
]
LAST = [
    case(3, 33, 7, 2, (3,) * 4, (1, 15, 22)),
    case(66, 40, 3, 2, SAME, (2, 9, 7)),
    case(12, 18, (2, 3), 1, (0, 1, 2, 3), (1, 6, 26), dilation=(1, 2), groups=2),
    case(35, 20, 1, 2, NONE, (2, 5, 9)),
    case(9, 10, 3, 1, SAME, None),
]
"""Of images whose channels are last."""
TURNED = [case(9, 34, 1, 2, NONE, (2, 7, 9)), case(8, 16, 1, (3, 2), NONE, None, dilation=2, groups=4)]
"""Results whose channels are last, of images whose channels are first."""
CASES += LAST + TURNED
SIZES = [(1, 1, 1), (2, 3, 19), (1, 13, 7)]


def sizes(of: Case) -> list[tuple[int, int, int]]:
    return [of.size] if of.size else [size for size in SIZES if of.fits(size)]


def spec_of(of: Case) -> conv_plan.ConvSpec:
    spec = replace(of.spec(), bf16=True)
    if of in TURNED:
        spec = replace(spec, y_last=True)
    else:
        spec = replace(spec, x_last=True) if of in LAST else replace(spec, fetched=("y",))
    assert reads_pairs(spec), of.name
    weight = "const float *restrict weight"
    return replace(spec, parameters=spec.parameters.replace(weight, "const uint32_t *weight"))


@cache
def rendered(of: Case) -> Rendered:
    """The template's function: every library has the same."""
    return conv.render_conv(spec_of(of))


def translation_unit(cases: list[Case]) -> str:
    """The cases, each as fast_NAME and plain_NAME with one list of arguments."""
    parts = []
    for one in cases:
        spec = spec_of(one)
        fast, plain = rendered(one), render_conv_naive(spec)
        parts += [fast.text, plain.text.replace(f"void {spec.name}(", f"void naive_{spec.name}(")]
        extra = "".join(f", {name}" for name in fast.extra_parameters)
        for kind, name in (("fast", spec.name), ("plain", f"naive_{spec.name}")):
            parts.append(
                f"void {kind}_{spec.name}(const void *x, const void *weight, const void *bias,"
                " void *y, int64_t N, int64_t H, int64_t W, void *workspace, int n_threads)\n"
                f"{{\n    {name}(x, weight, bias, y, N, H, W{extra});\n}}\n"
            )
    return with_tiles("\n".join(parts))


def workspace_bytes(of: Case, size: tuple[int, int, int], n_threads: int) -> int:
    text = text_of(rendered(of).workspace).replace("/", "//")
    names = {**dict(zip("NHW", size)), "n_threads": n_threads}
    return int(eval(text, C_FUNCTIONS, names))


@pytest.fixture(scope="module", params=["native", "AVX2", "SSE2", "AVX-512 without bf16"])
def library(request, tmp_path_factory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("conv_bf16") / "conv.so"
    return shared_library(translation_unit(CASES), target, *flags_of(request.param))


def arrays_of(of: Case, size: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, h, w = size
    rng = np.random.default_rng(n * 100 + h * 10 + w)
    shapes = (n, of.c, h, w), (of.k, of.c // of.groups, *of.kernel), (of.k,)
    x, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return x, weight, bias


def run(library: ctypes.CDLL, kind: str, of: Case, arrays, n_threads: int = 1) -> np.ndarray:
    """The function's result; fails where it writes beyond its result or its workspace."""
    x, weight, bias = arrays
    size = (x.shape[0], *x.shape[2:])
    packed = conv_plan.pack_conv_weight(weight, spec_of(of))
    shape = (size[0], of.k, *of.output(*size[1:]))
    needed, count = workspace_bytes(of, size, n_threads), int(np.prod(shape))
    workspace, y = np.full(needed + 64, 0xFF, np.uint8), np.full(count + 8, 7777, np.float32)
    x = np.ascontiguousarray(np.moveaxis(x, 1, 3)) if of in LAST else x
    library[f"{kind}_{of.name}"](
        *(ctypes.c_void_p(array.ctypes.data) for array in (x, packed, bias, y)),
        *map(ctypes.c_int64, size),
        ctypes.c_void_p(workspace.ctypes.data),
        n_threads,
    )
    assert (workspace[needed:] == 0xFF).all() and (y[count:] == 7777).all(), of.name
    return y[:count].reshape(shape)


def rounded(x: np.ndarray) -> np.ndarray:
    """To the nearest bf16, in float64."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_convolutions_agree_with_numpy(library: ctypes.CDLL, n_threads: int) -> None:
    check_convolutions(library, CASES, n_threads)


def check_convolutions(library: ctypes.CDLL, cases: list[Case], n_threads: int) -> None:
    """By the definition, sums are those of rounded operands but for rounding in float32. Winograd's
    points are rounded instead of pixels and weights, which is off by a few 2^-9 of the largest."""
    for one in cases:
        for size in sizes(one):
            x, weight, bias = arrays = arrays_of(one, size)
            winograd = winograd_tile(spec_of(one)) is not None
            operands = (x, weight) if winograd else (rounded(x), rounded(weight))
            expected = reference(one, *operands, bias)
            largest = np.abs(expected).max(initial=1)
            limit = 1.2e-2 if winograd else 2e-7 * (weight[0].size + 4) ** 0.5
            for kind in ("fast", "plain"):
                error = np.abs(run(library, kind, one, arrays, n_threads) - expected).max(initial=0)
                assert error <= limit * largest, (kind, one.name, size, error / largest)


@pytest.mark.parametrize("kernel, limit", [((3, 3), 7e-3), ((5, 3), 4e-3)])
def test_error_of_a_usual_convolution(tmp_path: Path, kernel, limit: float) -> None:
    """What docs/fast_c.md states, of the largest output: about 3.5e-3 by Winograd's F(2x2, 3x3),
    2.5e-3 by the definition."""
    one = case(256, 64, kernel, 1, NONE, (1, 16, 16))
    assert (winograd_tile(spec_of(one)) == 2) == (kernel == (3, 3))
    path = compile_c(translation_unit([one]), tmp_path / "conv.so", "-shared", "-fPIC", "-O2", march_flag(), "-fopenmp")
    arrays = arrays_of(one, one.size)
    expected = reference(one, *arrays)
    got = run(ctypes.CDLL(str(path)), "fast", one, arrays)
    shown = expected > -1  # the others are cut off
    error = np.abs(got - expected)[shown].max() / np.abs(expected).max()
    assert limit / 5 < error < limit


def test_results_do_not_depend_on_the_number_of_threads(library: ctypes.CDLL) -> None:
    for one in CASES:
        arrays = arrays_of(one, sizes(one)[-1])
        results = {run(library, "fast", one, arrays, n).tobytes() for n in (1, 2, 3, 7)}
        assert len(results) == 1, one.name


def test_nan_and_infinity_stay_where_they_belong(library: ctypes.CDLL) -> None:
    """A NaN or an infinite pixel reaches the pixels whose kernels cover it, and no other."""
    for one in CASES:
        n, h, w = sizes(one)[-1]
        x, weight, bias = arrays_of(one, (n, h, w))
        x[0, 0, h // 2, w // 2], x[-1, -1, 0, 0] = np.nan, np.inf
        with np.errstate(invalid="ignore"):
            expected = reference(one, rounded(x), rounded(weight), bias)
        y = run(library, "fast", one, (x, weight, bias), 2)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected), one.name)
        np.testing.assert_array_equal(np.isposinf(y), np.isposinf(expected), one.name)


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_convolutions_under_the_sanitizers(march: str, tmp_path: Path) -> None:
    """A program of its own runs the cases on memory of exactly the size they may touch."""
    cases = CASES if march == "native" else CASES[::3]
    lines = ["int main(void)\n{\n    float sum = 0;"]
    for one in cases:
        for size in sizes(one):
            n, h, w = size
            x, weight, bias = arrays_of(one, size)
            count = n * one.k * int(np.prod(one.output(h, w)))
            packed = conv_plan.pack_conv_weight(weight, spec_of(one))
            scratch = workspace_bytes(one, size, 2)
            total = (x.nbytes, packed.nbytes, bias.nbytes, 4 * count, scratch)
            parts = ", ".join(f"calloc(1, {size})" for size in total)
            lines.append(f"    {{\n        void *p[5] = {{{parts}}};")
            given = f"p[0], p[1], p[2], p[3], {n}, {h}, {w}, p[4], 2"
            lines.append(f"        fast_{one.name}({given});")
            lines.append(f"        for (int i = 0; i < {count}; i++) sum += ((float *)p[3])[i];")
            lines.append("        for (int i = 0; i < 5; i++) free(p[i]);\n    }")
    text = "\n".join([translation_unit(cases), *lines, "    return sum != sum;\n}"])
    run_sanitized(compile_c(text, tmp_path / "conv", flag_of(march), *SANITIZED))


class Net(nn.Module):
    """A first layer, a strided convolution, Winograd's with a residual, grouped and depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 7, stride=2, padding=3)
        self.half = nn.Conv2d(32, 128, 3, stride=2, padding=1)
        self.same = nn.Conv2d(128, 128, 3, padding=1)
        self.grouped = nn.Conv2d(128, 36, 3, padding=1, groups=2)
        self.alone = nn.Conv2d(36, 36, 3, padding=1, groups=36)

    def forward(self, x):
        half = np.maximum(self.half(np.maximum(self.first(x), 0)), 0)
        return self.alone(self.grouped(np.maximum(self.same(half) + half, 0)))


@pytest.mark.parametrize("shape", ["f32[2,3,30,44]", "f32[B,3,H,W]"])
def test_a_network_is_near_float_and_alike_on_all_threads(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (templates, conv_template):
        monkeypatch.setattr(module, "has_bf16_tiles", lambda: False)
    model = Net()
    x = np.random.default_rng(0).standard_normal((2, 3, 30, 44)).astype(np.float32)
    exact = fx.compile(model, x=shape)(x)
    two, one = (fx.compile(model, x=shape, matmul_precision="medium", threads=n) for n in (2, 1))
    source = "".join(two.sources.values())
    assert "sum_tile_bf16" in source and "winograd_input_2_bf16" in source
    got = two(x)
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert 1e-4 < error < 2e-2
    assert got.tobytes() == one(x).tobytes()
