"""Linear layers with integer weights in C, against float64, on several instruction sets."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.codegen.c.product.gemm_integers import WeightOnlySpec, render_gemm_weight_only
from fxlite.codegen.c.product.gemm_spec import Operand, pack_b, pack_integers
from fxlite.scalar.index import Index
from tests.codegen.compiling import evaluate, flags_of, shared_library, with_tiles

Array = np.ndarray[Any, Any]

PARAMETERS = "const float *a, const int32_t *weight, const float *scale, float *restrict y"


@dataclass(frozen=True)
class Case:
    """One product of m rows, n columns and k features."""

    bits: int
    m: int
    n: int
    k: int
    group_size: int

    @property
    def name(self) -> str:
        return f"int{self.bits}_{self.m}_{self.n}_{self.k}_{self.group_size}"

    def spec(self) -> WeightOnlySpec:
        return WeightOnlySpec(
            name=f"product_{self.name}",
            parameters=PARAMETERS,
            batch=(),
            m=Index.of(self.m),
            n=Index.of(self.n),
            k=Index.of(self.k),
            a=Operand("a", *map(Index.of, (0, self.k, 1))),
            bits=self.bits,
            group_size=self.group_size,
            weight="weight",
            scale="scale",
            comment="",
            epilogue=lambda total, row, column: f"y[{row * self.n + column}] = {total};",
        )

    def arrays(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Activations, integers [n, k] and their scales."""
        half = 1 << (self.bits - 1)
        integers = rng.integers(-half, half, (self.n, self.k)).astype(np.int8)
        scale = rng.uniform(0.01, 0.1, (self.n, -(-self.k // self.group_size))).astype(np.float32)
        return rng.normal(size=(self.m, self.k)).astype(np.float32), integers, scale


def packed_pairs(integers: Array) -> Array:
    """int4 in pairs, an odd row with a half that is not to be read."""
    odd = np.pad(integers, ((0, 0), (0, integers.shape[1] % 2)), constant_values=7)
    return np.asarray(ops.pack_int4(odd))


CASES = [
    Case(bits, m, n, k, group_size)
    for bits in (8, 4)
    for m, n, k, group_size in [
        (1, 1, 8, 8),
        (1, 33, 96, 32),
        (2, 31, 64, 64),
        (3, 64, 40, 8),
        (4, 5, 128, 128),
        (7, 70, 24, 24),
        (12, 16, 64, 32),
        (130, 40, 48, 16),
        (1, 640, 1024, 128),
        # a last group that is shorter, odd rows, and K in blocks that begin within a word
        (1, 40, 50, 32),
        (4, 33, 45, 45),
        (9, 33, 37, 8),
        (13, 40, 83, 16),
        (24, 70, 2565, 32),
        (40, 33, 2051, 2051),
        (16, 8, 2100, 64),
    ]
]


@pytest.fixture(scope="module", params=["native", "AVX2", "SSE2"])
def library(request: pytest.FixtureRequest, tmp_path_factory: Any) -> ctypes.CDLL:
    parts = []
    for case in CASES:
        rendered = render_gemm_weight_only(case.spec())
        extra = "".join(f", {name}" for name in rendered.extra_parameters)
        parts.append(
            f"{rendered.text}\n"
            f"void run_{case.name}(const void *a, const void *b, const void *scale, void *y,\n"
            f"    void *workspace, int n_threads)\n"
            f"{{\n    (void)workspace, (void)n_threads;\n"
            f"    product_{case.name}(a, b, scale, y{extra});\n}}\n"
        )
    target = tmp_path_factory.mktemp("weight_only") / "weight_only.so"
    flags = ("-fwrapv", *flags_of(request.param))
    return shared_library(with_tiles("\n".join(parts)), target, *flags)


def run(library: ctypes.CDLL, case: Case, n_threads: int) -> Array:
    """The product of the case's arrays, in guarded memory and a workspace that holds NaN."""
    x, integers, scale = case.arrays(np.random.default_rng(1))
    stored = integers if case.bits == 8 else packed_pairs(integers)
    size = evaluate(render_gemm_weight_only(case.spec()).workspace, n_threads=n_threads)
    y = np.full(case.m * case.n + 8, 7777, np.float32)
    arrays = (x, pack_integers(stored, case.bits), pack_b(scale.T), y)
    workspace = np.full(size // 4, np.nan, np.float32)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, workspace)]
    library[f"run_{case.name}"](*pointers, n_threads)
    assert (y[case.m * case.n :] == 7777).all(), case.name
    return y[: case.m * case.n].reshape(case.m, case.n)


def test_products_agree_with_float64(library: ctypes.CDLL) -> None:
    for case in CASES:
        x, integers, scale = case.arrays(np.random.default_rng(1))
        scales = np.repeat(scale.astype(np.float64), case.group_size, axis=1)
        wide = integers * scales[:, : case.k]
        expected = x.astype(np.float64) @ wide.T
        bound = np.abs(x).astype(np.float64) @ np.abs(wide).T
        y = run(library, case, 1)
        assert (np.abs(y - expected) <= bound * case.k * 2.0**-24).all(), case.name
        np.testing.assert_array_equal(y, run(library, case, 3))  # threads change no bit


@pytest.mark.parametrize("bits", [8, 4])
def test_a_layer_is_one_kernel_that_reads_integers(bits: int) -> None:
    rng = np.random.default_rng(0)
    integers = rng.integers(-8, 8, (40, 64)).astype(np.int8)
    weight = integers if bits == 8 else np.asarray(ops.pack_int4(integers))
    scale = rng.uniform(0.01, 0.1, (40, 2)).astype(np.float32)
    bias = rng.normal(size=40).astype(np.float32)

    def program(x: Any) -> Any:
        made = ops.linear_weight_only(x, weight, scale, bias, bits=bits, group_size=32)
        return np.maximum(made, 0)

    function = fx.compile(fx.symbolic_trace(program, "f32[B,T,64]"), backend="c")
    assert [kernel.anchor.name for kernel in function.kernels] == ["linear_weight_only"]
    assert function.program.weights.nbytes < 64 * 64 * bits // 8 + 1024
    for shape in ((2, 3, 64), (5, 7, 64), (1, 1, 64), (0, 3, 64)):
        x = rng.normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(function(x), program(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("large, scale", [(1e37, 1e-2), (3e38, 1e-3), (1e-38, 1e30), (1.0, 1e37)])
def test_sums_that_overflow_before_they_are_scaled(large: float, scale: float) -> None:
    """Finite where the layer's float weights give finite sums, whatever the order of factors."""
    rng = np.random.default_rng(0)
    integers = rng.integers(-8, 8, (40, 96)).astype(np.int8)
    weights = {8: integers * 15, 4: np.asarray(ops.pack_int4(integers))}
    scales = {
        size: (rng.uniform(0.1, 1, (40, *groups)) * scale / 15).astype(np.float32)
        for size, groups in ((None, ()), (32, (3,)))
    }

    def program(x: Any) -> Any:
        return [
            ops.linear_weight_only(x, weights[bits], scales[size], bits=bits, group_size=size)
            for bits in (8, 4)
            for size in (None, 32)
        ]

    function = fx.compile(program, "f32[B,96]")
    for rows in (1, 5, 40):  # few, and many
        x = (rng.uniform(-0.1, 0.1, (rows, 96)) * large).astype(np.float32)
        with np.errstate(all="ignore"):
            expected = program(x)
        for result, want in zip(function(x), expected, strict=True):
            finite = np.isfinite(want)
            assert finite.any() and np.isfinite(result[finite]).all()
            error = np.abs(result[finite].astype(np.float64) - want[finite])
            assert error.max() <= 1e-5 * np.abs(want[finite]).max()
