"""Products whose K is cut into blocks and slices, with thresholds so low that small ones are; and
those whose epilogue runs in registers. As in `test_gemm_template`, C is compiled and compared with
NumPy in float64 and with the naive twin.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fxlite.codegen.c.product import gemm, gemm_fused, gemm_spec, gemm_walk
from fxlite.codegen.runtime.toolchain import march_flag
from tests.codegen import test_gemm_bf16
from tests.codegen.compiling import FLAGS, SANITIZED, compile_c, evaluate, flags_of, run_sanitized, shared_library
from tests.codegen.test_gemm_template import Case, check, sanitizer_program, translation_unit

LONG = [
    Case("float", "rows", "packed", False, False, (70, 300, 83)),  # blocks, sums in the workspace
    Case("float", "rows", "packed", False, False, (270, 40, 50)),  # sums of a task, in several blocks of rows
    Case("float", "rows", "rows", False, False, (129, 290, 47)),  # B packed block by block, sums for each thread
    Case("double", "columns", "columns", False, True, (90, 150, 161)),  # A copied, too, and more blocks
    Case("float", "rows", "packed", False, False, (7, 33, 101)),  # slices
    Case("double", "padded", "rows", False, False, (11, 16, 64)),
    Case("float", "rows", "every second", False, False, (1, 40, 333)),
]
FUSED = [
    Case("float", "rows", "packed", False, False, (12, 8, 16)),
    Case("float", "rows", "packed", False, False, (132, 24, 31)),
    Case("float", "padded", "rows", False, False, (47, 144, 24)),
    Case("double", "rows", "packed", False, False, (25, 45, 7)),
    Case("double", "columns", "columns", False, True, (91, 5, 256)),
    Case("float", "rows", "packed", False, False, (12, 1, 1)),
]
CASES = [*LONG, *FUSED]
BF16 = [
    test_gemm_bf16.Case("b", "rows", (67, 130, 161)),
    test_gemm_bf16.Case("a", "rows", (70, 260, 83)),
    test_gemm_bf16.Case("b", "columns", (5, 40, 101)),
    test_gemm_bf16.Case("a", "every second", (9, 33, 77)),
]


@pytest.fixture(scope="module", autouse=True)
def low_thresholds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        low = {"LARGE": 40_000, "LARGE_ROWS": 64, "BLOCK": 5, "LONG_ROWS": 160, "BLOCK_BYTES": 32}
        low |= {"PACKED_BLOCK": 16, "MOST_PACKED": 60}
        for name, value in low.items():
            patch.setattr(gemm_fused, name, value)
        patch.setattr(gemm, "PACKED_BLOCK", 16)
        patch.setattr(gemm_fused, "LEAST_SLICE", 9)
        for module in (gemm_walk, gemm_fused):
            patch.setattr(module, "PARALLEL_PRODUCTS", 1)
        yield


def test_these_are_the_cases() -> None:
    texts = [gemm.render_gemm(case.spec()).text for case in CASES]
    blocks = [("sums + " in text, "int64_t block = 0;" in text, "slice" in text) for text in texts]
    assert all(b[0] for b in blocks[: len(LONG)]) and not any(b[0] for b in blocks[len(LONG) :])
    assert [b[2] for b in blocks[: len(LONG)]] == [False] * 4 + [True] * 3
    assert all(f"{case.name}_tile(" in text for case, text in zip(FUSED, texts[len(LONG) :]))


@pytest.fixture(scope="module", params=FLAGS)
def library(request, tmp_path_factory, low_thresholds) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("gemm") / "gemm.so"
    return shared_library(translation_unit(CASES), target, *flags_of(request.param))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_products_agree_with_numpy(library: ctypes.CDLL, n_threads: int) -> None:
    for case in CASES:
        check(library, case, case.size, n_threads)


def test_results_do_not_depend_on_the_number_of_threads(library: ctypes.CDLL) -> None:
    for case in CASES:
        m, n, k = case.size
        dtype = np.float32 if case.ctype == "float" else np.float64
        rng = np.random.default_rng(0)
        counts = (2 * m * (k + 3), 2 * (k + 3) * (n + 32), n)
        arrays = [rng.standard_normal(count).astype(dtype) for count in counts]
        rendered = gemm.render_gemm(case.spec())
        results = []
        for n_threads in (1, 2, 3, 7):
            workspace = np.empty(evaluate(rendered.workspace, n_threads=n_threads), np.uint8)
            y = np.zeros(m * n, dtype)
            library[f"fast_{case.name}"](
                *(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, y)),
                *(ctypes.c_int64(value) for value in (1, m, n, k)),
                ctypes.c_void_p(workspace.ctypes.data),
                n_threads,
            )
            results.append(y.tobytes())
        assert len(set(results)) == 1, case.name


def test_nan_and_infinity_stay_where_they_belong(library: ctypes.CDLL) -> None:
    """A NaN in A reaches its row, whether sums are cut or finished in registers."""
    for case in (LONG[0], LONG[1], LONG[4], FUSED[0], FUSED[1]):
        m, n, k = case.size
        rng = np.random.default_rng(0)
        a = rng.standard_normal((m, k)).astype(np.float32)
        a[m - 1, k - 1], a[0, 0] = np.nan, np.inf
        b = np.abs(rng.standard_normal((k, n))).astype(np.float32)
        packed, bias, y = gemm_spec.pack_b(b), np.zeros(n, np.float32), np.zeros((m, n), np.float32)
        size = evaluate(gemm.render_gemm(case.spec()).workspace, n_threads=2)
        workspace = np.empty(size, np.uint8)
        library[f"fast_{case.name}"](
            *(ctypes.c_void_p(array.ctypes.data) for array in (a, packed, bias, y)),
            *(ctypes.c_int64(value) for value in (1, m, n, k)),
            ctypes.c_void_p(workspace.ctypes.data),
            2,
        )
        assert np.isnan(y[m - 1]).all() and not np.isnan(y[: m - 1]).any(), case.name
        assert (y[0] == np.inf).all() and np.isfinite(y[1 : m - 1]).all(), case.name


def test_products_of_bf16_agree_with_numpy(tmp_path: Path) -> None:
    text = test_gemm_bf16.translation_unit(BF16)
    assert all("sums + " in gemm.render_gemm(case.spec()).text for case in BF16)
    library = shared_library(text, tmp_path / "bf16.so", *FLAGS["native"])
    for n_threads in (1, 3):
        test_gemm_bf16.check_products(library, BF16, n_threads)


def test_products_under_the_sanitizers(tmp_path: Path) -> None:
    cases = [LONG[0], LONG[1], LONG[4]]
    text = translation_unit(cases) + sanitizer_program(cases)
    run_sanitized(compile_c(text, tmp_path / "gemm", march_flag(), *SANITIZED))
