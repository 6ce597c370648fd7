"""Integer products in C: the template against NumPy, on several instruction sets, one of which at
most has products of quads: the others take the text of pairs or of single bytes."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.codegen.c.product.gemm import Operand
from fxlite.codegen.c.product.gemm_integers import Int8Spec, render_int8
from fxlite.codegen.c.product.gemm_spec import pack_int8
from fxlite.scalar.index import Index
from tests.codegen.compiling import evaluate, flags_of, shared_library, with_tiles

Array = np.ndarray[Any, Any]

SIZES = [
    (1, 1, 1),
    (1, 100, 130),
    (2, 10, 5),
    (3, 17, 66),
    (5, 16, 64),
    (11, 64, 40),
    (23, 96, 18),
    (64, 33, 1),
    (31, 200, 785),
    (37, 70, 9001),  # the last in blocks of K
]
PARAMETERS = "const {}_t *restrict a, const int32_t *restrict weight, int32_t *restrict y"


@dataclass(frozen=True)
class Case:
    """One product: the type and zero point of the activations, the distance of their rows."""

    type: str
    zero_point: int
    gap: int
    size: tuple[int, int, int]

    @property
    def name(self) -> str:
        return "_".join([self.type, *map(str, self.size)])

    def spec(self) -> Int8Spec:
        m, n, k = self.size
        ctype = "uint8" if self.type == "u8" else "int8"
        return Int8Spec(
            name=f"product_{self.name}",
            parameters=PARAMETERS.format(ctype),
            batch=(),
            m=Index.of(m),
            n=Index.of(n),
            k=Index.of(k),
            a=Operand("a", *map(Index.of, (0, k + self.gap, 1))),
            type=self.type,
            b="weight",
            comment="",
            epilogue=lambda s, row, column: f"y[{row * n + column}] = {s};",
        )

    def arrays(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Activations [m, k] and a weight [n, k], the longest sums among them."""
        m, n, k = self.size
        dtype = np.dtype(np.uint8 if self.type == "u8" else np.int8)
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, (m, k), endpoint=True)
        weight = rng.integers(-128, 127, (n, k), endpoint=True)
        x[: m // 3], weight[: n // 3] = info.max, -128
        return x.astype(dtype), weight.astype(np.int8)

    def stored(self, x: Array) -> Array:
        """The activations with gaps between rows, of exactly the size that may be read."""
        wide = np.full((len(x), x.shape[1] + self.gap), 77, x.dtype)
        wide[:, : x.shape[1]] = x
        flat = wide.reshape(-1)
        return flat[: len(flat) - self.gap].copy()

    @property
    def offset(self) -> int:
        return self.zero_point + (128 if self.type == "i8" else 0)


CASES = [
    Case(type, zero_point, gap, size)
    for type, zero_points in (("u8", (0, 128, 255)), ("i8", (0, -128, 5)))
    for size, zero_point, gap in zip(SIZES, itertools.cycle(zero_points), itertools.cycle((0, 3)))
]


def translation_unit(cases: list[Case]) -> str:
    """The cases, each as run_NAME with one list of arguments."""
    parts = []
    for case in cases:
        rendered = render_int8(case.spec())
        extra = "".join(f", {name}" for name in rendered.extra_parameters)
        size = evaluate(rendered.workspace, n_threads=8)
        parts.append(
            f"{rendered.text}\n"
            f"void run_{case.name}(const void *a, const void *weight, void *y, int n_threads)\n"
            f"{{\n    static int32_t workspace[{size} / 4 + 1];\n"
            f"    (void)n_threads, (void)workspace;\n"
            f"    product_{case.name}(a, weight, y{extra});\n}}\n"
        )
    return with_tiles("\n".join(parts))


@pytest.fixture(scope="module", params=["native", "AVX2", "SSE2", "AVX-512 without VNNI"])
def library(request: pytest.FixtureRequest, tmp_path_factory: Any) -> ctypes.CDLL:
    flags = flags_of(request.param)
    target = tmp_path_factory.mktemp("int8") / "int8.so"
    text = translation_unit(CASES)
    return shared_library(text, target, "-fwrapv", *flags)


def run(library: ctypes.CDLL, case: Case, x: Array, weight: Array, n_threads: int) -> Array:
    """The function's sums; fails where it writes beyond them."""
    m, n, _ = case.size
    y = np.full(m * n + 8, 7777, np.int32)
    arrays = (case.stored(x), pack_int8(weight, case.offset), y)
    library[f"run_{case.name}"](*(ctypes.c_void_p(a.ctypes.data) for a in arrays), n_threads)
    assert (y[m * n :] == 7777).all(), case.name
    return y[: m * n].reshape(m, n)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_sums_are_exact(library: ctypes.CDLL, n_threads: int) -> None:
    check_sums(library, CASES, n_threads)


def check_sums(library: ctypes.CDLL, cases: list[Case], n_threads: int) -> None:
    for case in cases:
        x, weight = case.arrays(np.random.default_rng(1))
        exact = (x.astype(np.int64) - case.zero_point) @ weight.T.astype(np.int64)
        sums = run(library, case, x, weight, n_threads)
        np.testing.assert_array_equal(sums, exact, case.name)


def test_the_longest_sum(library: ctypes.CDLL) -> None:
    """What stands before the zero point is subtracted may not fit int32; the result does."""

    def program(x: Any) -> Any:
        return ops.int_linear(x, np.full((1, 131071), -128, np.int8), x_zero_point=128)

    x = np.full((2, 131071), 0, np.uint8)
    x[1] = 255
    gm = fx.symbolic_trace(program, "u8[2,131071]")
    expected = np.array([[131071 * 128 * 128], [-131071 * 127 * 128]])
    np.testing.assert_array_equal(fx.compile(gm, backend="c")(x), expected)


def test_a_linear_is_one_kernel_with_its_epilogue() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (40, 24)).astype(np.int8)
    bias = rng.integers(-999, 999, 40).astype(np.int32)
    scale = rng.uniform(1e-4, 1e-2, 40).astype(np.float32)

    def program(x: Any) -> Any:
        sums = ops.int_linear(x, weight, bias, x_zero_point=3)
        return ops.requantize(sums, scale, 9, dtype="u8", qmin=9)

    gm = fx.symbolic_trace(program, "u8[B,T,24]")
    function = fx.compile(gm, backend="c")
    assert [kernel.anchor.name for kernel in function.kernels] == ["int_linear"]
    for shape in ((2, 3, 24), (1, 1, 24), (0, 3, 24)):
        x = rng.integers(0, 256, shape).astype(np.uint8)
        np.testing.assert_array_equal(function(x), program(x))


def test_one_row_needs_no_loop_over_rows() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (40, 24)).astype(np.int8)
    scale = rng.uniform(1e-4, 1e-2, 40).astype(np.float32)

    def program(x: Any) -> Any:
        return ops.dequantize(ops.int_linear(x, weight, x_zero_point=3), scale)

    x = rng.integers(0, 256, (1, 24)).astype(np.uint8)
    function = fx.compile(program, "u8[1,24]", backend="c")
    np.testing.assert_array_equal(function(x), program(x))
