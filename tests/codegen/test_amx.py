"""Products on the tiles of AMX: the emitted C against NumPy, on emulated instructions
(`amx_emulation.h`), and `matmul_precision="high"`.

What a processor with AMX adds is one test here, which compares the emulation with it; all others
run on any x86-64.
"""

from __future__ import annotations

import ctypes
import itertools
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.c import templates
from fxlite.codegen.c.conv.conv_plan import winograd_tile
from fxlite.codegen.c.emit import emit
from fxlite.codegen.c.product import gemm, gemm_fused, gemm_spec, gemm_walk
from fxlite.codegen.c.product.gemm_spec import bf16_pairs, bf16_parts
from fxlite.codegen.runtime.toolchain import has_bf16_tiles, march_flag
from tests.codegen import test_conv_bf16, test_gemm_bf16, test_gemm_int8, test_gemm_long, test_recurrence_template
from tests.codegen.compiling import QUICK, SANITIZED, compile_c, run_sanitized, shared_library, with_tiles

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is of x86-64")

NO_TILES = ("-mno-amx-tile", "-mno-amx-bf16", "-mno-amx-int8")
EMULATED = (*NO_TILES, "-include", str(Path(__file__).with_name("amx_emulation.h")))
FLAGS = {"native": (QUICK, march_flag(), *EMULATED, "-fopenmp"), "SSE2": (QUICK, *EMULATED, "-fopenmp")}
SIZES = [
    (0, 5, 3),
    (3, 0, 4),
    (4, 7, 0),
    (1, 1, 1),
    (1, 33, 7),
    (1, 16, 64),
    (2, 17, 32),
    (15, 31, 33),
    (16, 32, 31),
    (17, 33, 32),
    (31, 16, 47),
    (32, 15, 96),
    (33, 64, 17),
    (48, 1, 65),
    (65, 70, 130),
    (130, 40, 31),
    (40, 33, 1024),
]


def amx_library(text: str, folder: Path, flags: tuple[str, ...]) -> ctypes.CDLL:
    return shared_library(text, folder / "amx.so", "-fwrapv", *flags)


# ---- the emulation ------------------------------------------------------------------------------
_PROBE = """
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
void probe(const void *config, const void *operands, unsigned char *sums)
{
    const unsigned char *const a = operands, *const b = a + 1024;
    syscall(SYS_arch_prctl, 0x1023, 18);
    _tile_loadconfig(config);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
#define PRODUCT(number, name) \\
    _tile_loadd(0, sums + 1024 * number, 64); \\
    name(0, 1, 2); \\
    _tile_stored(0, sums + 1024 * number, 64);
    PRODUCT(0, _tile_dpbf16ps)
    PRODUCT(1, _tile_dpbssd)
    PRODUCT(2, _tile_dpbsud)
    PRODUCT(3, _tile_dpbusd)
    PRODUCT(4, _tile_dpbuud)
    _tile_release();
}
"""


def probe(library: ctypes.CDLL, a: Array, b: Array, sums: Array, rows: int, depth: int) -> Array:
    """sums [5, 16, 16] of 32 bits after the five products of tiles a and b of 16 x 64 bytes, of
    which `rows` rows and `depth` quads are configured."""
    config = np.zeros(64, np.uint8)
    config[0] = 1
    config[16:22].view(np.uint16)[:] = 64, 4 * depth, 64
    config[48:51] = rows, rows, depth
    operands, result = np.concatenate([a.ravel(), b.ravel()]), sums.copy()
    library.probe(*(ctypes.c_void_p(x.ctypes.data) for x in (config, operands, result)))
    return result


def operands(seed: int) -> tuple[Array, Array, Array]:
    """Two tiles that hold usual bf16, subnormal ones, infinities and NaN among them, and sums."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((16, 32)).astype(ml_dtypes.bfloat16) for _ in range(2))
    if seed % 2:
        a[2, 3], a[4, 5], b[3, 8], b[7, 9] = np.inf, np.nan, 1e-39, -np.inf
        a[9] *= ml_dtypes.bfloat16(2.0**-120)
        b[:, 20] *= ml_dtypes.bfloat16(2.0**-120)
    sums = np.zeros((5, 16, 16), np.uint32)
    sums[0] = rng.standard_normal((16, 16)).astype(np.float32).view(np.uint32)
    sums[1:] = rng.integers(0, 2**32, (4, 16, 16), dtype=np.uint32)
    return a.view(np.uint8), b.view(np.uint8), sums


def normal(x: Array) -> Array:
    return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x)


def products(a: Array, b: Array, sums: Array, rows: int, depth: int) -> Array:
    """What the reference of the instruction set says of `probe`, in NumPy."""
    result = sums.copy()
    left, right = (normal(x.view(ml_dtypes.bfloat16).astype(np.float32)) for x in (a, b))
    parts = np.zeros((2, rows, 16), np.float32)
    with np.errstate(all="ignore"):
        for k, half in itertools.product(range(depth), range(2)):
            x, y = left[:rows, 2 * k + half].astype(float), right[k, half::2].astype(float)
            exact = x[:, None] * y + parts[half]  # of 53 bits, which products of 16 leave room for
            parts[half] = normal(exact.astype(np.float32))
        total = normal(parts[0] + parts[1])
        result[0, :rows] = normal(sums[0, :rows].view(np.float32) + total).view(np.uint32)
    types = itertools.product(("i1", "u1"), repeat=2)
    for number, (left_type, right_type) in enumerate(types, start=1):
        x = a.view(left_type)[:rows, : 4 * depth].astype(np.int64)
        y = b.view(right_type).reshape(16, 16, 4)[:depth].astype(np.int64)
        total = np.einsum("ikq,kjq->ij", x.reshape(rows, depth, 4), y)
        result[number, :rows] = (sums[number, :rows] + total).astype(np.uint32)
    return result


def same(got: Array, expected: Array) -> bool:
    """Equal bits, but for which NaN it is."""
    floats = got[0].view(np.float32), expected[0].view(np.float32)
    alike = (got[0] == expected[0]) | (np.isnan(floats[0]) & np.isnan(floats[1]))
    return bool(alike.all()) and np.array_equal(got[1:], expected[1:])


CASES = [(16, 16), (16, 1), (3, 16), (1, 7), (11, 5)]


def test_emulated_instructions_do_what_the_reference_says(tmp_path: Path) -> None:
    library = amx_library(_PROBE, tmp_path, FLAGS["native"])
    for seed, (rows, depth) in itertools.product(range(6), CASES):
        given = operands(seed)
        got = probe(library, *given, rows, depth)
        assert same(got, products(*given, rows, depth)), (seed, rows, depth)


@pytest.mark.skipif(not has_bf16_tiles(), reason="no AMX here")
def test_emulated_instructions_do_what_the_processor_does(tmp_path: Path) -> None:
    emulated = amx_library(_PROBE, tmp_path, FLAGS["native"])
    (tmp_path / "processor").mkdir()
    processor = amx_library(_PROBE, tmp_path / "processor", ("-O2", march_flag()))
    for seed, (rows, depth) in itertools.product(range(6), CASES):
        given = operands(seed)
        assert same(probe(emulated, *given, rows, depth), probe(processor, *given, rows, depth))


def test_the_emulation_ends_a_program_that_a_processor_would_end(tmp_path: Path) -> None:
    ask = "syscall(SYS_arch_prctl, 0x1023, 18);"
    faults = {
        "_tile_zero(0);": "not configured",
        "_tile_loadconfig(x);": "was not asked",
        f"{ask} x[0] = 2; _tile_loadconfig(x);": "palette 1",
        f"{ask} x[0] = 1; x[48] = 17; x[16] = 64; _tile_loadconfig(x);": "up to 16 rows",
        f"{ask} x[0] = x[48] = x[49] = x[50] = 1; x[16] = x[18] = x[20] = 8;"
        " _tile_loadconfig(x); _tile_dpbssd(0, 1, 2);": "do not fit",
    }
    cases = "\n".join(f"    case {i}: {body} break;" for i, body in enumerate(faults))
    main = "int main(int n, char **v)\n{\n    char x[64] = {0};\n    (void)v;\n    switch (n - 1)"
    text = f"#include <immintrin.h>\n{main} {{\n{cases}\n    }}\n    return 0;\n}}\n"
    program = compile_c(text, tmp_path / "faulty", *FLAGS["SSE2"])
    for i, message in enumerate(faults.values()):
        done = subprocess.run([program, *"x" * i], capture_output=True, text=True)
        assert done.returncode != 0 and message in done.stderr, message


# ---- products -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class SplitCase(test_gemm_bf16.Case):
    """A product whose operands are sums of two bf16."""

    @property
    def name(self) -> str:
        return f"split_{super().name}"

    def spec(self) -> gemm_spec.GemmSpec:
        fields = {**vars(super().spec()), "name": f"fast_{self.name}", "split": True}
        return gemm_spec.GemmSpec(**fields)

    def stored(self, a: Array, b: Array) -> tuple[Array, Array]:
        return super().stored(a, b)[0], gemm_spec.pack_b_split(b)


LAYOUTS = ["rows", "columns", "every second"]
ROUNDED = [
    test_gemm_bf16.Case(packed, layout, size)
    for packed, layouts in (("b", LAYOUTS), ("a", ["rows", "every second"]))
    for size, layout in zip(SIZES, itertools.cycle(layouts))
]
SPLIT = [SplitCase("b", layout, size) for size, layout in zip(SIZES, itertools.cycle(LAYOUTS))]


@pytest.fixture(scope="module")
def library(tmp_path_factory: Any) -> ctypes.CDLL:
    text = test_gemm_bf16.translation_unit([*ROUNDED, *SPLIT])
    return amx_library(text, tmp_path_factory.mktemp("amx"), FLAGS["native"])


@pytest.mark.parametrize("n_threads", [1, 3])
def test_medium_products_agree_with_numpy(library: ctypes.CDLL, n_threads: int) -> None:
    test_gemm_bf16.check_products(library, ROUNDED, n_threads)


def check_split(library: ctypes.CDLL, cases: list[SplitCase], n_threads: int) -> None:
    """An operand is off by 2^-17 of itself, and 2^-16 of a term is left out; float sums."""
    for case in cases:
        a, b, bias = arrays = case.arrays(np.random.default_rng(1))
        terms = np.abs(a.astype(np.float64)) @ np.abs(b)
        wanted = a.astype(np.float64) @ b + bias
        limit = 2.0**-15 * terms + 2.0**-22 * (terms + np.abs(bias)) * (case.size[2] + 4) ** 0.5
        for kind in ("fast", "naive"):
            y = test_gemm_bf16.run(library, kind, case, arrays, n_threads)
            assert (np.abs(y - wanted) <= limit).all(), (kind, case.name)
            if y.size and case.size[2] > 1:
                assert np.abs(y - wanted).max() <= 1e-5 * np.abs(wanted).max(), (kind, case.name)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_high_products_are_near_float64(library: ctypes.CDLL, n_threads: int) -> None:
    check_split(library, SPLIT, n_threads)


def test_results_do_not_depend_on_the_number_of_threads(library: ctypes.CDLL) -> None:
    for case in (*ROUNDED, *SPLIT):
        arrays = case.arrays(np.random.default_rng(0))
        results = {test_gemm_bf16.run(library, "fast", case, arrays, n).tobytes() for n in (1, 2, 7)}
        assert len(results) == 1, case.name


def test_high_has_nan_and_infinity_where_float_has_them(library: ctypes.CDLL) -> None:
    """Also where an infinity meets a lower part that is 0 or of the other sign, and for 3.4e38,
    whose nearest bf16 is infinite."""
    case = next(c for c in SPLIT if c.size == (65, 70, 130))
    a, b, bias = case.arrays(np.random.default_rng(0))
    a[4, 20], a[7, 0], a[9, 32], b[3, 36], b[32, 64] = np.nan, np.inf, 3.4e38, np.nan, -np.inf
    a[50, 7], b[7, 3], b[8] = -np.inf, 0, 1 / 3
    a[60], b[:, 66] = 1e-6, 1e-6  # no overflow with this row
    a[60, 5], b[5, 66] = 3.4e38, 1e-3
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64) @ b + bias).astype(np.float32)
    y = test_gemm_bf16.run(library, "fast", case, (a, b, bias))
    assert np.isnan(expected).any() and np.isinf(expected).any() and np.isfinite(expected[60, 66])
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(y[infinite], expected[infinite])
    usual = np.isfinite(expected) & (np.abs(expected) < 1e30)
    assert np.abs(y[usual] - expected[usual]).max() < 1e-5 * np.abs(expected[usual]).max()
    assert abs(y[60, 66] - expected[60, 66]) < 1e-5 * expected[60, 66]


def test_parts_add_up_and_the_c_has_the_same(library: ctypes.CDLL, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((33, 45)) * 2.0 ** rng.integers(-90, 90, (33, 45))).astype(np.float32)
    x[0, :4] = np.inf, -np.inf, np.nan, 3.4e38
    upper, lower = bf16_parts(x)
    finite = np.isfinite(x)
    off = np.abs(x[finite].astype(float) - upper[finite] - lower[finite])
    assert (off <= 2.0**-16 * np.abs(x[finite])).all() and (lower[~finite] == 0).all()
    text = with_tiles(
        "void split(const float *a, uint32_t *target)\n{\n    split_rows_bf16(33, 45, a, 45, 1, target, 80, 40);\n}\n"
    )
    target = np.zeros((33, 80), np.uint32)
    amx_library(text, tmp_path, ("-O2", march_flag())).split(
        *(ctypes.c_void_p(array.ctypes.data) for array in (x, target))
    )
    for part, start in ((upper, 0), (lower, 40)):
        got = target[:, start : start + 23].view(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(got, bf16_pairs(part).view(ml_dtypes.bfloat16).astype(np.float32))


def test_products_where_the_system_refuses_tiles(tmp_path: Path, monkeypatch: Any) -> None:
    """They take vectors then. The tiles are asked for once, so this is a library of its own."""
    monkeypatch.setenv("AMX_EMULATION_REFUSED", "1")
    rounded, split = ROUNDED[3::5], SPLIT[3::3]
    text = test_gemm_bf16.translation_unit([*rounded, *split])
    refused = amx_library(text, tmp_path, FLAGS["SSE2"])
    test_gemm_bf16.check_products(refused, rounded, 2)
    check_split(refused, split, 2)


def test_products_whose_k_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LARGE", 40_000), ("LARGE_ROWS", 64), ("BLOCK", 5), ("LEAST_SLICE", 9)):
        monkeypatch.setattr(gemm_fused, name, value)
    for module in (gemm_walk, gemm_fused):
        monkeypatch.setattr(module, "PARALLEL_PRODUCTS", 1)
    rounded, sizes = test_gemm_long.BF16, ((67, 130, 161), (9, 33, 77))
    split = [SplitCase("b", "rows", size) for size in sizes]
    assert all("sums + " in gemm.render_gemm(c.spec()).text for c in (*rounded, *split))
    text = test_gemm_bf16.translation_unit([*rounded, *split])
    library = amx_library(text, tmp_path, FLAGS["native"])
    test_gemm_bf16.check_products(library, rounded, 2)
    check_split(library, split, 3)


def test_products_under_the_sanitizers(tmp_path: Path) -> None:
    """A program of its own runs all cases on memory of exactly the size they may touch."""
    cases = [*ROUNDED[1::7], *SPLIT[1::4]]
    text = test_gemm_bf16.sanitizer_program(cases)
    run_sanitized(compile_c(text, tmp_path / "amx", *EMULATED, *SANITIZED))


def test_winograds_convolutions(tmp_path: Path) -> None:
    cases = [c for c in test_conv_bf16.CASES if winograd_tile(test_conv_bf16.spec_of(c))]
    text = test_conv_bf16.translation_unit(cases)
    assert len(cases) >= 3 and "multiply_tile_bf16" in text
    library = amx_library(text, tmp_path, FLAGS["native"])
    test_conv_bf16.check_convolutions(library, cases, 2)


# ---- integers -----------------------------------------------------------------------------------
QUADS = [
    test_gemm_int8.Case(type, zero_point, gap, size)
    for type, zero_points in (("u8", (0, 128, 255)), ("i8", (0, -128, 5)))
    for size, zero_point, gap in zip(
        [*(s for s in SIZES if 0 not in s), (37, 40, 8200)],  # the last in blocks of K
        itertools.cycle(zero_points),
        itertools.cycle((0, 3)),
    )
]


def test_integer_sums_are_exact(tmp_path: Path) -> None:
    library = amx_library(test_gemm_int8.translation_unit(QUADS), tmp_path, FLAGS["native"])
    for n_threads in (1, 3):
        test_gemm_int8.check_sums(library, QUADS, n_threads)


def test_integer_sums_where_the_system_refuses_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMX_EMULATION_REFUSED", "1")
    library = amx_library(test_gemm_int8.translation_unit(QUADS[::3]), tmp_path, FLAGS["SSE2"])
    test_gemm_int8.check_sums(library, QUADS[::3], 2)


def test_recurrences_of_integers(tmp_path: Path) -> None:
    specs = [spec for spec in test_recurrence_template.SPECS if spec.integers is not None][-3:]
    text = test_recurrence_template.translation_unit(specs)
    flags = (*FLAGS["native"], *test_recurrence_template.ALWAYS)
    library = amx_library(text, tmp_path, flags)
    test_recurrence_template.check_states(library, specs)


# ---- the instructions ---------------------------------------------------------------------------
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_compiled_for_such_a_processor_products_have_its_instructions(tmp_path: Path) -> None:
    """Without emulation: the code is looked at, not run."""
    rounded, split, quads = ROUNDED[5:6], SPLIT[5:6], QUADS[5:6]
    for text, wanted in (
        (test_gemm_bf16.translation_unit([*rounded, *split]), "tdpbf16ps"),
        (test_gemm_int8.translation_unit(quads), "tdpbusd"),
    ):
        flags = ("-shared", "-fPIC", "-O2", "-march=sapphirerapids", "-fopenmp")
        target = compile_c(text, tmp_path / "tiles.so", *flags)
        code = subprocess.run(["objdump", "-d", target], capture_output=True, text=True).stdout
        for name in (wanted, "ldtilecfg", "tileloadd", "tilestored", "tilerelease"):
            assert name in code, name


# ---- matmul_precision="high" --------------------------------------------------------------------
class Perceptron(nn.Module):
    """Linear layers, and a product of two values that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(63, 130)
        self.last = nn.Linear(130, 65)

    def forward(self, x):
        rows = np.maximum(self.first(x), 0)
        return self.last(rows) @ np.swapaxes(rows[..., :65], -1, -2)


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A processor that has tiles, for what chooses kernels; those here take vectors."""
    monkeypatch.setattr(templates, "has_bf16_tiles", lambda: True)
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path / "cache"))


def test_high_is_nearly_float_and_alike_on_all_threads(tiles: None, tmp_path: Path) -> None:
    model, shape = Perceptron(), "f32[B,T,63]"
    high = fx.compile(model, x=shape, matmul_precision="high", threads=2)
    one = fx.compile(model, x=shape, matmul_precision="high", threads=1)
    source = high.sources["perceptron.c"]
    assert high.matmul_precision == "high" and "multiply_tile_split(rows" in source
    assert "Operands are split in two bf16" in source and "multiply_tile_float" in source
    high.save(tmp_path / "out")
    assert 'matmul_precision="high"' in (tmp_path / "out" / "README.txt").read_text()
    wide = fx.symbolic_trace(model, x="f64[B,T,63]")
    for shape in ((0, 5, 63), (1, 7, 63), (2, 33, 63)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        got = high(x)
        assert np.array_equal(got, one(x))
        if x.size:
            expected = np.asarray(wide(x.astype(np.float64)))  # after two layers and a product
            assert np.abs(got - expected).max() < 4e-5 * np.abs(expected).max()


def test_high_is_highest_for_small_sides_and_where_there_are_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = {k: nn.Linear(k, n) for k, n in ((63, 70), (65, 70), (66, 63))}

    def source(precision: str, x: str) -> str:
        layer = layers[int(x.strip("]").replace("[", ",").split(",")[-1])]
        return emit(fx.symbolic_trace(layer, x=x), matmul_precision=precision).sources["linear.c"]

    monkeypatch.setattr(templates, "has_bf16_tiles", lambda: False)
    assert source("high", "f32[B,65]") == source("highest", "f32[B,65]")
    monkeypatch.setattr(templates, "has_bf16_tiles", lambda: True)
    for x in ("f32[3,65]", "f32[65]", "f64[40,65]", "f32[40,63]", "f32[40,66]"):
        assert source("high", x) == source("highest", x)
    assert source("high", "f32[40,65]") != source("highest", "f32[40,65]")
