"""Integer products of two computed matrices in C, on several instruction sets, and what of them is
fused."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.codegen.c.product.gemm import Operand
from fxlite.codegen.c.product.gemm_integers import Int8Spec, Right, render_int8
from fxlite.codegen.kernel.builder import text_of
from fxlite.scalar.index import Index
from tests.codegen.compiling import expression, flags_of, shared_library, with_tiles

Array = np.ndarray[Any, Any]

SIZES = [(1, 1, 1), (3, 33, 7), (12, 65, 66), (40, 31, 18), (2, 100, 130), (5, 32, 64)]
DTYPES = {"u8": np.uint8, "i8": np.int8}
PARAMETERS = "const void *a_data, const void *b_data, int32_t *restrict y, int64_t N, int64_t K"


@dataclass(frozen=True)
class Case:
    """Two matrices of each operand: types, zero points; which axis of the right one is contiguous,
    if any; whether its sizes are known."""

    types: tuple[str, str]
    zero_points: tuple[int, int]
    layout: str  # "rows" | "columns" | "every second"
    known: bool
    size: tuple[int, int, int]

    @property
    def name(self) -> str:
        return "_".join([*self.types, self.layout.replace(" ", "_"), *map(str, self.size)])

    def spec(self) -> Int8Spec:
        m, n, k = self.size
        n_text, k_text = (str(n), str(k)) if self.known else ("N", "K")
        ctypes_ = {"u8": "uint8_t", "i8": "int8_t"}
        steps = {"rows": (n_text, "1"), "columns": ("1", k_text), "every second": (f"{n_text} * 2", "2")}[self.layout]
        gap = 2 if self.layout == "every second" else 1
        of_right = (f"batch * {k_text} * {n_text} * {gap}", *steps)
        right = Operand(f"(const {ctypes_[self.types[1]]} *)b_data", *map(expression, of_right))
        of_left = (f"batch * {m} * {k_text}", k_text, "1")
        left = Operand(f"(const {ctypes_[self.types[0]]} *)a_data", *map(expression, of_left))
        return Int8Spec(
            name=f"product_{self.name}",
            parameters=PARAMETERS,
            batch=(("batch", Index.of(2)),),
            m=Index.of(m),
            n=expression(n_text),
            k=expression(k_text),
            a=left,
            type=self.types[0],
            b=Right(right, self.types[1], self.zero_points[1], self.zero_points[0]),
            comment="",
            epilogue=lambda s, row, column: f"y[batch * {m * n} + {row * n + column}] = {s};",
        )

    def arrays(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """The operands, [2, m, k] and [2, k, n]."""
        m, n, k = self.size
        made = []
        for type, shape in zip(self.types, ((2, m, k), (2, k, n)), strict=True):
            info = np.iinfo(DTYPES[type])
            made.append(rng.integers(info.min, info.max, shape, endpoint=True).astype(info.dtype))
        return made[0], made[1]

    def stored(self, y: Array) -> Array:
        """The right operand as it lies in memory."""
        if self.layout == "columns":
            return np.ascontiguousarray(y.swapaxes(1, 2))
        if self.layout == "rows":
            return y
        wide = np.zeros((*y.shape, 2), y.dtype)
        wide[..., 0] = y
        return wide


CASES = [
    Case((left, right), zero_points, layout, number % 2 == 0, size)
    for number, (left, right, zero_points) in enumerate(
        [
            ("u8", "u8", (7, 130)),
            ("u8", "u8", (255, 128)),
            ("u8", "i8", (128, 0)),
            ("i8", "i8", (-128, 5)),
            ("i8", "u8", (0, 0)),
        ]
    )
    for size, layout in zip(SIZES, ("rows", "columns", "every second") * 2, strict=True)
][::2]


@pytest.fixture(scope="module", params=["native", "AVX2", "SSE2", "AVX-512 without VNNI"])
def library(request: pytest.FixtureRequest, tmp_path_factory: Any) -> ctypes.CDLL:
    parts = []
    for number, case in enumerate(CASES):
        rendered = render_int8(case.spec())
        text = rendered.text.replace(f"product_{case.name}", f"product_{number}")
        extra = "".join(f", {name}" for name in rendered.extra_parameters)
        parts.append(
            f"{text}\n"
            f"int64_t bytes_{number}(int64_t N, int64_t K)\n"
            f"{{\n    (void)N, (void)K;\n    return {text_of(rendered.workspace)};\n}}\n"
            f"void run_{number}(const void *a, const void *b, void *y, int64_t N, int64_t K,\n"
            f"    void *workspace, int n_threads)\n"
            f"{{\n    (void)n_threads;\n    product_{number}(a, b, y, N, K{extra});\n}}\n"
        )
    target = tmp_path_factory.mktemp("int8_pair") / "int8_pair.so"
    flags = ("-fwrapv", *flags_of(request.param))
    found = shared_library(with_tiles("\n".join(parts)), target, *flags)
    for number in range(len(CASES)):
        found[f"bytes_{number}"].restype = ctypes.c_int64
    return found


@pytest.mark.parametrize("n_threads", [1, 3])
def test_sums_are_exact(library: ctypes.CDLL, n_threads: int) -> None:
    for number, case in enumerate(CASES):
        x, y = case.arrays(np.random.default_rng(1))
        left, right = (a.astype(np.int64) - z for a, z in zip((x, y), case.zero_points))
        m, n, k = case.size
        sums = np.full(2 * m * n + 8, 7777, np.int32)
        sizes = [ctypes.c_int64(n), ctypes.c_int64(k)]
        size = getattr(library, f"bytes_{number}")(*sizes)
        workspace = np.full(size + 64, 99, np.uint8)
        workspace = workspace[-workspace.ctypes.data % 64 :][:size]
        arrays = (x, case.stored(y), sums, workspace)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        getattr(library, f"run_{number}")(*pointers[:3], *sizes, pointers[3], n_threads)
        assert (sums[2 * m * n :] == 7777).all(), case.name
        np.testing.assert_array_equal(sums[: 2 * m * n].reshape(2, m, n), left @ right, case.name)


def test_attention_of_integers_is_two_products_that_read_views() -> None:
    def scores(q: Any, k: Any) -> Any:
        sums = ops.int_matmul(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), x_zero_point=120, y_zero_point=131)
        return ops.requantize(sums, 0.002, 3, dtype="u8")

    rng = np.random.default_rng(0)
    gm = fx.symbolic_trace(scores, "u8[B,T,H,16]", "u8[B,S,H,16]")
    function = fx.compile(gm, backend="c")
    assert [kernel.anchor.name for kernel in function.kernels] == ["int_matmul"]
    for b, t, s in ((2, 5, 40), (1, 1, 1), (1, 3, 0)):
        q, k = (rng.integers(0, 256, (b, size, 3, 16)).astype(np.uint8) for size in (t, s))
        np.testing.assert_array_equal(function(q, k), scores(q, k))


def test_a_left_operand_whose_rows_are_not_contiguous_is_stored_first() -> None:
    def program(x: Any, y: Any) -> Any:
        return ops.int_matmul(x.transpose(0, 2, 1), y)

    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, s).astype(np.int8) for s in ((2, 20, 9), (2, 20, 33)))
    function = fx.compile(fx.symbolic_trace(program, "i8[2,20,9]", "i8[2,20,33]"), backend="c")
    assert len(function.kernels) == 2
    np.testing.assert_array_equal(function(x, y), program(x, y))
