"""Products of bf16 with float sums: the template against NumPy, and `matmul_precision="medium"`.

The template's cases are compiled for several instruction sets, of which at most the native one has
products of bf16: the others take the portable text.
"""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.cli import main
from fxlite.codegen.c import templates
from fxlite.codegen.c.conv import conv, conv_plan
from fxlite.codegen.c.product import gemm, gemm_spec
from fxlite.codegen.c.product.gemm_spec import bf16_pairs
from fxlite.codegen.c.render import conv_template
from fxlite.codegen.kernel.builder import Rendered
from fxlite.scalar.index import Index
from tests.codegen.compiling import (
    SANITIZED,
    compile_c,
    emitted,
    evaluate,
    flag_of,
    flags_of,
    make_test,
    run_sanitized,
    shared_library,
    with_tiles,
)
from tests.codegen.plain_loops import render_conv_naive, render_gemm_naive
from tests.oracle import agree

SIZES = [
    (0, 5, 3),
    (3, 0, 4),
    (4, 7, 0),
    (1, 1, 1),
    (1, 33, 7),
    (1, 100, 130),
    (2, 10, 5),
    (3, 17, 66),
    (4, 64, 33),
    (5, 16, 64),
    (6, 31, 2),
    (7, 48, 3),
    (11, 64, 40),
    (12, 65, 33),
    (23, 96, 18),
    (64, 33, 1),
    (130, 70, 31),
]
PARAMETERS = "const {a} *restrict a, const {b} *restrict b, const float *restrict bias, float *y"


@dataclass(frozen=True)
class Case:
    """One product: which operand was packed when compiling, the layout of the other one, sizes."""

    packed: str  # "a" | "b"
    layout: str  # "rows" | "columns" | "every second"
    size: tuple[int, int, int]

    @property
    def name(self) -> str:
        return "_".join([self.packed, self.layout.replace(" ", ""), *map(str, self.size)])

    def spec(self) -> gemm_spec.GemmSpec:
        m, n, k = self.size
        rows, columns = (m, k) if self.packed == "b" else (k, n)
        steps = {"rows": (columns, 1), "columns": (1, rows), "every second": (2 * columns, 2)}
        row, column = steps[self.layout]
        a = gemm_spec.Operand("a", *map(Index.of, (0, row, column)))
        b: gemm_spec.Operand | gemm_spec.PackedOperand = gemm_spec.PackedOperand("b")
        if self.packed == "a":
            a, b = (
                gemm_spec.Operand("a", *map(Index.of, (0, (k + 1) // 2, 1))),
                gemm_spec.Operand("b", *map(Index.of, (0, row, column))),
            )
        types = {"a": "float", "b": "float", self.packed: "uint32_t"}
        return gemm_spec.GemmSpec(
            name=f"fast_{self.name}",
            ctype="float",
            parameters=PARAMETERS.format(**types),
            batch=(),
            m=Index.of(m),
            n=Index.of(n),
            k=Index.of(k),
            a=a,
            b=b,
            bf16=self.packed,
            epilogue=lambda s, row, column: f"y[{row * n + column}] = {s} + bias[{column}];",
        )

    def arrays(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """A [m, k], B [k, n] and the bias as float32."""
        m, n, k = self.size
        return tuple(rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))

    def stored(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The operands as the function reads them, dense and of exactly the size it may read."""
        other = a if self.packed == "b" else b
        if self.layout == "columns":
            other = other.T
        if self.layout == "every second":
            other = np.repeat(other, 2, axis=1)
        other = np.ascontiguousarray(other)
        return (other, gemm_spec.pack_b_bf16(b)) if self.packed == "b" else (bf16_pairs(a), other)


CASES = [
    Case(packed, layout, size)
    for packed, layouts in (("b", ["rows", "rows", "columns"]), ("a", ["rows", "every second"]))
    for size, layout in zip([*SIZES, (40, 33, 1024), (9, 512, 784)], itertools.cycle(layouts))
]


@cache
def rendered(case: Case) -> Rendered:
    """The template's function: every library has the same."""
    return gemm.render_gemm(case.spec())


def translation_unit(cases: list[Case]) -> str:
    """The cases, each as run_fast_NAME and run_naive_NAME with one list of arguments."""
    parts = []
    for case in cases:
        spec = case.spec()
        fast, naive = rendered(case), render_gemm_naive(spec)
        parts += [fast.text, naive.text.replace(spec.name, f"naive_{case.name}")]
        extra = "".join(f", {name}" for name in fast.extra_parameters)
        for kind in ("fast", "naive"):
            parts.append(
                f"void run_{kind}_{case.name}(const void *a, const void *b, const void *bias,"
                " void *y, void *workspace, int n_threads)\n{\n    (void)workspace,"
                f" (void)n_threads;\n    {kind}_{case.name}(a, b, bias, y{extra});\n}}\n"
            )
    parts.append(
        "void run_round_rows(int64_t rows, int64_t depth, const float *a, uint32_t *target)\n"
        "{\n    round_rows_bf16(rows, depth, a, depth, 1, target, (depth + 31) / 32 * 16);\n}\n"
    )
    return with_tiles("\n".join(parts))


@pytest.fixture(scope="module", params=["native", "AVX2", "SSE2", "AVX-512 without bf16"])
def library(request, tmp_path_factory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("bf16") / "bf16.so"
    return shared_library(translation_unit(CASES), target, *flags_of(request.param))


def run(library: ctypes.CDLL, kind: str, case: Case, arrays, n_threads: int = 1) -> np.ndarray:
    """The function's result; fails where it writes beyond its result or its workspace."""
    a, b, bias = arrays
    m, n, _ = case.size
    size = evaluate(rendered(case).workspace, n_threads=n_threads)
    workspace, y = np.full(size + 64, 0xA5, np.uint8), np.full(m * n + 8, 7777, np.float32)
    arrays = (*case.stored(a, b), bias, y, workspace)
    given = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
    library[f"run_{kind}_{case.name}"](*given, n_threads)
    assert (workspace[size:] == 0xA5).all() and (y[m * n :] == 7777).all(), case.name
    return y[: m * n].reshape(m, n)


def rounded(x: np.ndarray) -> np.ndarray:
    """To the nearest bf16, in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_products_agree_with_numpy(library: ctypes.CDLL, n_threads: int) -> None:
    check_products(library, CASES, n_threads)


def check_products(library: ctypes.CDLL, cases: list[Case], n_threads: int) -> None:
    """Sums are those of rounded operands but for rounding in float32; and rounding changes a term
    by 2^-7 of itself at most (and to second order by a little more)."""
    for case in cases:
        a, b, bias = arrays = case.arrays(np.random.default_rng(1))
        terms = np.abs(a.astype(np.float64)) @ np.abs(b)
        exact = rounded(a) @ rounded(b) + bias
        wanted = a.astype(np.float64) @ b + bias
        for kind in ("fast", "naive"):
            y = run(library, kind, case, arrays, n_threads)
            limit = 2.0**-22 * (terms + np.abs(bias)) * (case.size[2] + 4) ** 0.5
            assert (np.abs(y - exact) <= limit).all(), (kind, case.name)
            assert (np.abs(y - wanted) <= 1.01 * 2.0**-7 * terms + limit).all(), (kind, case.name)


def test_error_of_a_usual_product(library: ctypes.CDLL) -> None:
    """What docs/design.md states: about 2e-3 of the largest output."""
    case = next(c for c in CASES if c.packed == "b" and c.size == (40, 33, 1024))
    a, b, bias = arrays = case.arrays(np.random.default_rng(2))
    wanted = a.astype(np.float64) @ b + bias
    error = np.abs(run(library, "fast", case, arrays) - wanted).max() / np.abs(wanted).max()
    assert 5e-4 < error < 4e-3


def test_results_do_not_depend_on_the_number_of_threads(library: ctypes.CDLL) -> None:
    for case in CASES:
        arrays = case.arrays(np.random.default_rng(0))
        results = {run(library, "fast", case, arrays, n).tobytes() for n in (1, 2, 3, 7)}
        assert len(results) == 1, case.name


def test_rounding_is_that_of_ml_dtypes(library: ctypes.CDLL) -> None:
    """Ties, the largest numbers, infinities; a NaN stays one. Subnormals may count as zero."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = (upper[:, None] | lower).view(np.float32).ravel()
    values = values[(np.abs(values) >= 2.0**-126) | np.isnan(values)]
    values = np.concatenate([values, np.zeros(-values.size % 33, np.float32)]).reshape(-1, 33)
    got = np.zeros((len(values), 32), np.uint32)
    library.run_round_rows(
        ctypes.c_int64(len(values)),
        ctypes.c_int64(33),
        *(ctypes.c_void_p(x.ctypes.data) for x in (np.ascontiguousarray(values), got)),
    )
    expected = bf16_pairs(values).view(ml_dtypes.bfloat16).astype(np.float32)
    halves = got[:, :17].copy().view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(halves, expected)
    assert not got[:, 17:].any()


@pytest.mark.parametrize("packed", ["a", "b"])
def test_nan_infinity_and_overflow_stay_where_they_belong(library: ctypes.CDLL, packed: str) -> None:
    """As products of the rounded operands; 3.4e38 rounds to infinity."""
    case = next(c for c in CASES if c.packed == packed and c.size == (12, 65, 33))
    a, b, bias = case.arrays(np.random.default_rng(0))
    a[4, 20], a[7, 0], a[9, 32], b[3, 36], b[32, 64] = np.nan, np.inf, 3.4e38, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        expected = rounded(a) @ rounded(b) + bias
    for kind in ("fast", "naive"):
        y = run(library, kind, case, (a, b, bias))
        assert np.isinf(expected[9, :36]).all() and np.isnan(expected).any()
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(y[infinite], expected[infinite])


def sanitizer_program(cases: list[Case]) -> str:
    """A program that runs all cases on memory of exactly the size they may touch."""
    lines = ["int main(void)\n{\n    float sum = 0;"]
    for case in cases:
        m, n, k = case.size
        a, b = case.stored(np.zeros((m, k), np.float32), np.zeros((k, n), np.float32))
        workspace = evaluate(rendered(case).workspace, n_threads=2)
        sizes = (a.nbytes, b.nbytes, 4 * n, 4 * m * n, workspace)
        parts = ", ".join(f"calloc(1, {size})" for size in sizes)
        lines.append(f"    {{\n        void *p[5] = {{{parts}}};")
        lines.append(f"        run_fast_{case.name}(p[0], p[1], p[2], p[3], p[4], 2);")
        lines.append(f"        for (int i = 0; i < {m * n}; i++) sum += ((float *)p[3])[i];")
        lines.append("        for (int i = 0; i < 5; i++) free(p[i]);\n    }")
    return "\n".join([translation_unit(cases), *lines, "    return sum != 0;\n}"])


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_products_under_the_sanitizers(march: str, tmp_path: Path) -> None:
    cases = CASES[::2] if march == "native" else CASES[1::6]
    text = sanitizer_program(cases)
    run_sanitized(compile_c(text, tmp_path / "bf16", flag_of(march), *SANITIZED))


def test_packed_layout() -> None:
    b = np.arange(3 * 50, dtype=np.float32).reshape(3, 50)
    packed = gemm_spec.pack_b_bf16(b).view(ml_dtypes.bfloat16).reshape(2, 2, 32, 2).astype(np.float32)
    assert np.array_equal(packed[0, 0, :, 0], b[0, :32])
    assert np.array_equal(packed[0, 0, :, 1], b[1, :32])
    assert np.array_equal(packed[1, 1, :18, 0], b[2, 32:])
    assert not packed[:, 1, :, 1].any() and not packed[1, :, 18:].any()


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_pointwise_convolutions_agree_with_their_plain_loops(march: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts, runs = [], []
    for groups, channels, outputs, height in ((1, 13, 40, 7), (2, 34, 66, 4), (1, 2048, 9, 16)):
        name = f"fast_{channels}"
        spec = conv_plan.ConvSpec(
            name=name,
            ctype="float",
            n=Index.of(2),
            c=channels,
            h=Index.of(height),
            w=Index.of(9),
            k=outputs,
            r=1,
            s=1,
            parameters="const float *restrict x, const uint32_t *restrict weight, float *y",
            x="x",
            weight="weight",
            groups=groups,
            joinable=True,
            bf16=True,
            epilogue=lambda s, n, k, oh, ow, size=(outputs, height): (
                f"y[(({n} * {size[0]} + {k}) * {size[1]} + {oh}) * 9 + {ow}] = {s};"
            ),
        )
        assert conv_plan.plan_of(spec) == "product"
        fast, plain = conv.render_conv(spec), render_conv_naive(spec)
        extra = "".join(f", {n}" for n in fast.extra_parameters)
        texts += [fast.text, plain.text.replace(name, f"plain_{channels}")]
        texts += [
            f"void run_{kind}(float *x, uint32_t *weight, float *y, void *workspace, int n_threads)"
            f"\n{{\n    (void)workspace, (void)n_threads;\n    {kind}(x, weight, y{extra});\n}}\n"
            for kind in (name, f"plain_{channels}")
        ]
        weight = rng.standard_normal((outputs, channels // groups, 1, 1)).astype(np.float32)
        x = rng.standard_normal((2, channels, height, 9)).astype(np.float32)
        workspace = np.empty(evaluate(fast.workspace, n_threads=2), np.uint8)
        runs.append((spec, x, weight, np.zeros((2, outputs, height, 9), np.float32), workspace))
    path = compile_c(
        with_tiles("\n".join(texts)), tmp_path / "conv.so", "-shared", "-fPIC", "-O2", flag_of(march), "-fopenmp"
    )
    library = ctypes.CDLL(str(path))
    for spec, x, weight, y, workspace in runs:
        packed = conv_plan.pack_conv_weight(weight, spec)
        split = rounded(x).reshape(2, spec.groups, -1, spec.h.constant * 9)
        matrices = rounded(weight).reshape(spec.groups, -1, weight.shape[1])
        expected = (matrices @ split).reshape(y.shape)
        for kind in (spec.name, f"plain_{spec.c}"):
            y[:] = np.nan
            given = (ctypes.c_void_p(array.ctypes.data) for array in (x, packed, y, workspace))
            library[f"run_{kind}"](*given, 2)
            assert np.abs(y - expected).max() < 2e-6 * spec.c**0.5 * np.abs(expected).max(), kind


# ---- matmul_precision ---------------------------------------------------------------------------


class Mixed(nn.Module):
    """Linear layers, 1x1 and other convolutions, products with a weight and of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.point = nn.Conv2d(13, 40, 1)
        self.groups = nn.Conv2d(40, 34, 1, groups=2)
        self.spread = nn.Conv2d(34, 20, 3, padding=1)
        self.first = nn.Linear(63, 65)
        self.last = nn.Linear(65, 11)

    def forward(self, x):
        image = self.spread(self.groups(np.maximum(self.point(x), 0)))
        rows = np.maximum(self.first(image.reshape(-1, 20, 63)), 0)
        return self.last(rows) @ np.swapaxes(rows[:, :, :11], 1, 2)


def source(program, precision: str, **types: str) -> str:
    sources = emitted(program, matmul_precision=precision, **types).sources
    return "".join(text for name, text in sources.items() if name != "fx_math.h")


def test_medium_is_near_float_and_alike_on_all_threads() -> None:
    model, shape = Mixed(), "f32[B,13,7,9]"
    near = fx.compile(model, x=shape, matmul_precision="medium", threads=2)
    assert near.matmul_precision == "medium"
    one = fx.compile(model, x=shape, matmul_precision="medium", threads=1)
    for size in (0, 1, 5):
        x = np.random.default_rng(size).standard_normal((size, 13, 7, 9)).astype(np.float32)
        expected, got = near.graph_module(x), near(x)
        assert got.shape == expected.shape and np.array_equal(got, one(x))
        if size:
            error = np.abs(got - expected).max() / np.abs(expected).max()
            assert 1e-4 < error < 2e-2


def test_medium_changes_products_of_float32_with_constant_weights_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (templates, conv_template):
        monkeypatch.setattr(module, "has_bf16_tiles", lambda: False)
    layer = nn.Linear(8, 8)
    wide = nn.Linear(8, 8, dtype="f64")
    near = source(layer, "medium", x="f32[B,8]")
    assert "multiply_tile_bf16(rows" in near and "Operands are rounded to bf16" in near
    assert "_bf16(" not in source(layer, "highest", x="f32[B,8]")
    for program, types in (
        (wide, {"x": "f64[B,8]"}),
        (nn.Conv2d(4, 8, 3), {"x": "f32[1,4,9,9]"}),
        (lambda x, y: x @ y, {"x": "f32[B,8]", "y": "f32[8,8]"}),
    ):
        assert source(program, "medium", **types) == source(program, "highest", **types)
    assert source(layer, "high", x="f32[B,8]") == source(layer, "highest", x="f32[B,8]")


def test_command_line_checks_and_saves_a_folder_that_passes_its_self_test(tmp_path: Path) -> None:
    program = tmp_path / "layer.py"
    program.write_text("from fxlite import nn\n\nmodel = nn.Linear(40, 30)\n")
    options = ["-i", "x=f32[B,40]", "--matmul-precision", "medium", "-o", str(tmp_path / "out")]
    assert main(["compile", f"{program}:model", *options]) == 0
    assert "multiply_tile_bf16" in (tmp_path / "out" / "linear.c").read_text()
    assert "matmul_precision" in (tmp_path / "out" / "README.txt").read_text()
    done = make_test(tmp_path / "out", "ARCH=-march=x86-64")
    assert done.returncode == 0 and "OK: 2 of 2" in done.stdout, done.stdout + done.stderr


class Tied(nn.Module):
    """A weight that is used as it is and transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.there = nn.Linear(8, 8)

    def forward(self, x):
        return self.there(x) @ self.there.weight


def test_a_weight_and_its_transpose_are_packed_each() -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    agree(Tied(), x)
    near = fx.compile(Tied(), x="f32[B,8]", matmul_precision="medium")
    expected = near.graph_module(x)
    assert np.abs(near(x) - expected).max() < 2e-2 * np.abs(expected).max()
