"""The matrix product template: its C text is compiled with gcc and compared with NumPy in float64.

Every case is a product with a random layout of its operands. All are compiled into one shared
object per set of flags; under the sanitizers they run in a program of their own, on buffers of
exactly the size they may touch, against the naive twin.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.codegen.c.product import gemm, gemm_spec
from fxlite.codegen.kernel.builder import Rendered, symbol
from fxlite.scalar.index import Index
from fxlite.types.agreement import Chain, compare
from tests.codegen.compiling import (
    DIFFERING,
    FILLED,
    FLAGS,
    NOT_CHECKED,
    SANITIZED,
    c_file,
    compile_c,
    evaluate,
    expression,
    flag_of,
    flags_of,
    run_sanitized,
    shared_library,
    with_tiles,
)
from tests.codegen.plain_loops import render_gemm_naive
from tests.oracle import agree

SIZES = [
    (0, 5, 3),
    (3, 0, 4),
    (4, 7, 0),
    (0, 0, 0),
    (1, 1, 1),
    (1, 32, 9),
    (1, 33, 7),
    (1, 100, 130),
    (2, 10, 5),
    (3, 17, 66),
    (5, 16, 64),
    (6, 31, 2),
    (7, 48, 3),
    (11, 64, 40),
    (12, 65, 33),
    (13, 15, 100),
    (23, 96, 18),
    (34, 40, 17),
    (64, 33, 1),
    (130, 70, 31),
]


@dataclass(frozen=True)
class Case:
    """One C function: layouts and dtype, and its sizes, None where they are parameters."""

    ctype: str
    a_layout: str  # "rows" | "columns" | "padded" | "every second"
    b_layout: str  # "packed" | "rows" | "columns" | "every second"
    batched: bool
    turned: bool  # the rows of A, from the last to the first
    size: tuple[int, int, int] | None

    @property
    def name(self) -> str:
        words = [self.ctype, self.a_layout, self.b_layout, "b" * self.batched, "t" * self.turned]
        words += [str(n) for n in self.size or ()]
        return "_".join(word.replace(" ", "") for word in words if word)

    def strides(self, layout: str, rows: str, columns: str) -> tuple[str, str, str]:
        """(row stride, column stride, elements of one matrix) as C expressions."""
        if layout == "columns":
            return "1", rows, f"{rows} * {columns}"
        if layout == "padded":
            return f"({columns} + 3)", "1", f"{rows} * ({columns} + 3)"
        if layout == "every second":
            return f"({columns} * 2)", "2", f"{rows} * {columns} * 2"
        return columns, "1", f"{rows} * {columns}"

    def spec(self) -> gemm_spec.GemmSpec:
        m, n, k = map(str, self.size) if self.size else ("M", "N", "K")
        batch = (("b", Index.of(2)), ("h", symbol("H"))) if self.batched else ()
        index = "(b * H + h)" if self.batched else "0"

        def operand(pointer: str, layout: str, rows: str, columns: str) -> gemm_spec.Operand:
            row, column, size = self.strides(layout, rows, columns)
            offset = f"{index} * {size}" if self.batched else "0"
            if self.size:  # literals, as the lead's printer gives them
                row, column = (str(eval(text)) for text in (row, column))
            return gemm_spec.Operand(pointer, *map(expression, (offset, row, column)))

        b: gemm_spec.Operand | gemm_spec.PackedOperand = gemm_spec.PackedOperand("b_data")
        if self.b_layout != "packed":
            b = operand("b_data", self.b_layout, k, n)
        a = operand("a_data", self.a_layout, m, k)
        t = self.ctype
        return gemm_spec.GemmSpec(
            name=self.name,
            ctype=t,
            parameters=f"const {t} *restrict a_data, const {t} *restrict b_data, "
            f"const {t} *restrict bias, {t} *restrict y, "
            "int64_t H, int64_t M, int64_t N, int64_t K",
            batch=batch,
            m=expression(m),
            n=expression(n),
            k=expression(k),
            a=a,
            b=b,
            epilogue=lambda s, row, column: (
                f"const {t} value = {s} * 2 + bias[{column}];\n"
                f"y[({index} * {m} + {row}) * {n} + {column}] = value < -4 ? -4 : value;"
            ),
            vectors=lambda s, row, column, count: (
                "",
                f"const {t}_vec value = {s} * 2 + load_{t}(&bias[{column}], {count});\n"
                f"store_{t}(&y[({index} * {m} + {row}) * {n} + {column}], "
                f"maximum_{t}(value, all_{t}(-4)), {count});",
            ),
            row_start=(lambda row: a.start(expression(m) - 1 - row)) if self.turned else None,
            comment="y[b, h, m, n] = max(2 * a[b, h, m, k] @ b[b, h, k, n] + bias[n], -4)",
        )


def all_cases() -> list[Case]:
    a_layouts = ["rows", "columns", "padded", "every second"]
    b_layouts = ["packed", "rows", "columns", "every second"]
    layouts = list(itertools.product(a_layouts, b_layouts))
    named = [
        *(Case("float", a, b, False, False, None) for a, b in layouts),
        *(Case("float", a, b, True, False, None) for a, b in layouts[1::2] if b != "packed"),
        Case("double", "rows", "packed", False, True, None),
        Case("double", "rows", "columns", True, True, None),
        Case("float", "columns", "rows", True, True, None),
        Case("float", "rows", "packed", False, True, None),
    ]
    choose = random.Random(1)
    fixed = [
        Case(
            choose.choice(["float", "float", "double"]),
            choose.choice(["rows", *a_layouts]),
            choose.choice(["packed", *b_layouts]),
            False,
            choose.random() < 0.2,
            size,
        )
        for size in [*SIZES, (7, 40, 1024), (40, 33, 1024), (9, 512, 784)]
    ]
    strips = [(1, 2050, 9), (3, 100, 513), (10, 33, 8200), (8, 32, 7), (2, 70, 1), (5, 129, 12), (1, 40, 9000)]
    few = [Case(t, "rows", "rows", False, False, size) for t in ("float", "double") for size in strips]
    few += [Case("float", a, "rows", False, False, (4, 100, 37)) for a in ("columns", "padded", "every second")]
    grouped = [
        Case("float", a, b, False, False, (130, 1100, 5)) for a, b in itertools.product(a_layouts[:2], b_layouts[:3])
    ]
    grouped += [Case("double", "rows", "rows", False, False, size) for size in [(2300, 70, 2), (24, 4000, 30)]]
    return list(dict.fromkeys(named + fixed + few + grouped))


CASES = all_cases()


@cache
def rendered(case: Case) -> Rendered:
    """The template's function: every library has the same."""
    return gemm.render_gemm(case.spec())


def translation_unit(cases: list[Case]) -> str:
    """The cases, each as fast_NAME and naive_NAME with one list of arguments."""
    parts = []
    for case in cases:
        spec = case.spec()
        fast = rendered(case)
        naive = render_gemm_naive(spec)
        parts.append(fast.text)
        parts.append(naive.text.replace(f"void {spec.name}(", f"{NOT_CHECKED} void naive_{spec.name}("))
        t = case.ctype
        parameters = (
            f"const {t} *a, const {t} *b, const {t} *bias, {t} *y, int64_t H, int64_t M,"
            " int64_t N, int64_t K, void *workspace, int n_threads"
        )
        for prefix, name in (("fast", spec.name), ("twin", f"naive_{spec.name}")):
            extra = "".join(f", {item}" for item in fast.extra_parameters)
            parts.append(
                f"void {prefix}_{spec.name}({parameters})\n{{\n"
                f"    (void)workspace, (void)n_threads;\n"
                f"    {name}(a, b, bias, y, H, M, N, K{extra});\n}}\n"
            )
    return with_tiles("\n".join(parts))


def elements(case: Case, layout: str, rows: int, columns: int) -> int:
    return int(eval(case.strides(layout, str(rows), str(columns))[2]))


def reference(case: Case, arrays, sizes, heads):
    """The product in float64, and the packed b."""
    a_data, b_data, bias = arrays
    m, n, k = sizes
    a_data, b_data = a_data.reshape(heads, -1), b_data.reshape(heads, -1)

    def view(flat, layout, rows, columns):
        row, column, _ = (int(eval(s)) for s in case.strides(layout, str(rows), str(columns)))
        steps = (row * flat.itemsize, column * flat.itemsize)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), steps)

    result = np.zeros((heads, m, n))
    packed = []
    for h in range(heads):
        a = view(a_data[h], case.a_layout, m, k).astype(np.float64)
        layout = "rows" if case.b_layout == "packed" else case.b_layout
        b = view(b_data[h], layout, k, n)
        packed.append(gemm_spec.pack_b(np.ascontiguousarray(b)))
        a = a[::-1] if case.turned else a
        result[h] = np.maximum(2 * (a @ b.astype(np.float64)) + bias, -4)
    return result, packed[0]


def check(library: ctypes.CDLL, case: Case, sizes: tuple[int, int, int], n_threads: int) -> None:
    m, n, k = sizes
    heads = 6 if case.batched else 1
    dtype = np.float32 if case.ctype == "float" else np.float64
    rng = np.random.default_rng(m * 7 + n * 3 + k)
    b_layout = "rows" if case.b_layout == "packed" else case.b_layout
    counts = (heads * elements(case, case.a_layout, m, k), heads * elements(case, b_layout, k, n), n)
    arrays = [rng.standard_normal(count).astype(dtype) for count in counts]
    expected, packed = reference(case, arrays, sizes, heads)
    if case.b_layout == "packed":
        arrays[1] = packed
    size = evaluate(rendered(case).workspace, H=3, M=m, N=n, K=k, n_threads=n_threads)
    fence = 64
    workspace = np.full(size + fence, 0xA5, np.uint8)
    for prefix in ("fast", "twin"):
        y = np.full(heads * m * n + 8, 7777, dtype)
        workspace[:] = 0xA5
        getattr(library, f"{prefix}_{case.name}")(
            *(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, y)),
            *(ctypes.c_int64(value) for value in (3, m, n, k)),
            ctypes.c_void_p(workspace.ctypes.data),
            n_threads,
        )
        assert (workspace[size:] == 0xA5).all(), f"{case.name} {sizes}: wrote past its workspace"
        assert (y[heads * m * n :] == 7777).all(), f"{case.name} {sizes}: wrote past its result"
        got = y[: heads * m * n].reshape(heads, m, n)
        found = compare(expected.astype(dtype), got, chain=Chain(4, 2 * k, 1))
        assert found.agrees, (prefix, case.name, sizes, str(found))


@pytest.fixture(scope="module", params=FLAGS)
def library(request, tmp_path_factory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("gemm") / "gemm.so"
    return shared_library(translation_unit(CASES), target, *flags_of(request.param))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_products_agree_with_numpy(library: ctypes.CDLL, n_threads: int) -> None:
    for case in CASES:
        for sizes in [case.size] if case.size else SIZES:
            check(library, case, sizes, n_threads)


def test_nan_and_infinity_stay_where_they_belong(library: ctypes.CDLL) -> None:
    """A NaN in a row of A or a column of B reaches exactly that row or column."""
    case = Case("float", "rows", "packed", False, False, None)
    m, n, k = 13, 37, 21
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    a[4, 20], b[3, 36], a[7, 0] = np.nan, np.nan, np.inf
    packed, bias, y = gemm_spec.pack_b(b), np.zeros(n, np.float32), np.zeros((m, n), np.float32)
    library[f"fast_{case.name}"](
        *(ctypes.c_void_p(array.ctypes.data) for array in (a, packed, bias, y)),
        *(ctypes.c_int64(value) for value in (1, m, n, k)),
        None,
        1,
    )
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b
    # NaN < -4 is false: the epilogue keeps it
    assert np.array_equal(np.isnan(y), np.isnan(expected))
    infinite = np.isinf(expected)
    assert np.array_equal(y[infinite] > 0, expected[infinite] > 0)


def test_results_do_not_depend_on_the_number_of_threads(library: ctypes.CDLL) -> None:
    m, n, k = 130, 170, 41
    cases = [c for c in CASES if c.size is None and c.ctype == "float"]
    for case in cases:
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(count).astype(np.float32) for count in (12 * m * (k + 3), 12 * (k + 3) * 192, n)]
        results = []
        for n_threads in (1, 2, 3, 7):
            size = evaluate(rendered(case).workspace, H=3, M=m, N=n, K=k, n_threads=n_threads)
            workspace, y = np.empty(size, np.uint8), np.zeros(6 * m * n, np.float32)
            library[f"fast_{case.name}"](
                *(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, y)),
                *(ctypes.c_int64(value) for value in (3, m, n, k)),
                ctypes.c_void_p(workspace.ctypes.data),
                n_threads,
            )
            results.append(y.tobytes())
        assert len(set(results)) == 1, case.name


def test_finished_tiles_are_read_by_whole_vectors(tmp_path: Path) -> None:
    """GCC reads them by gathers, which take as long as the product of 64 steps, where it cannot
    see that an index grows by one: with -fwrapv that is so for products of int."""
    cases = [case for case in CASES if case.size is None and case.b_layout == "packed"]
    text = translation_unit([case for case in cases if case.a_layout == "rows"])
    flags = ("-O3", "-fwrapv", "-fopenmp", "-march=skylake-avx512", "-S")
    assembly = compile_c(text, tmp_path / "gemm.s", *flags).read_text()
    assert "vfmadd" in assembly and "gather" not in assembly


MAIN = """
typedef void function(const void *, const void *, const void *, void *, int64_t, int64_t, int64_t,
                      int64_t, void *, int);

static int check(const char *name, function *fast, function *twin, int item, int m, int n, int k,
                 long a_count, long b_count, long count, long workspace_bytes)
{
    void *a = filled(a_count, item), *b = filled(b_count, item), *bias = filled(n, item);
    void *y = filled(count, item), *z = filled(count, item), *workspace = malloc(workspace_bytes);
    fast(a, b, bias, y, 3, m, n, k, workspace, 2);
    twin(a, b, bias, z, 3, m, n, k, workspace, 2);
    const int wrong = differing(y, z, count, item);
    if (wrong)
        printf("%s %d %d %d: %d wrong\\n", name, m, n, k, wrong);
    free(a), free(b), free(bias), free(y), free(z), free(workspace);
    return wrong != 0;
}

int main(void)
{
    int wrong = 0;
"""


def sanitizer_program(cases: list[Case]) -> str:
    """A main() that runs each case on exactly sized buffers and compares it with its twin."""
    lines = [FILLED, DIFFERING, MAIN]
    for case in cases:
        workspace = rendered(case).workspace
        panel = 16 if case.ctype == "double" else 32
        for m, n, k in [case.size] if case.size else SIZES:
            heads = 6 if case.batched else 1
            b_count = k * (-(-n // panel) * panel)
            if case.b_layout != "packed":
                b_count = heads * elements(case, case.b_layout, k, n)
            counts = (
                heads * elements(case, case.a_layout, m, k),
                b_count,
                heads * m * n,
                evaluate(workspace, H=3, M=m, N=n, K=k, n_threads=2),
            )
            lines.append(
                f'    wrong += check("{case.name}", (function *)fast_{case.name},'
                f" (function *)twin_{case.name}, sizeof({case.ctype}), {m}, {n}, {k},"
                f" {', '.join(map(str, counts))});"
            )
    return "\n".join([*lines, "    return wrong != 0;", "}"])


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_products_under_the_sanitizers(march: str, tmp_path: Path) -> None:
    cases = CASES if march == "native" else CASES[::3]
    text = translation_unit(cases) + sanitizer_program(cases)
    run_sanitized(compile_c(text, tmp_path / "gemm", flag_of(march), *SANITIZED))


def test_no_loop_is_empty() -> None:
    """As one that would pack a group of panels whose weight was packed at compile time."""
    assert not [case.name for case in CASES if re.search(r"\{\s*\}", rendered(case).text)]


def test_packed_layout() -> None:
    b = np.arange(3 * 50, dtype=np.float32).reshape(3, 50)
    packed = gemm_spec.pack_b(b).reshape(2, 3, 32)
    assert np.array_equal(packed[0], b[:, :32])
    assert np.array_equal(packed[1, :, :18], b[:, 32:])
    assert not packed[1, :, 18:].any()
    assert gemm_spec.pack_b(b.astype(np.float64)).size == 3 * 64
    assert gemm_spec.pack_b(b[:, :0]).size == 0


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("rows", "columns"), [(70, 5), (129, 129), (200, 3000), (333, 65)])
def test_a_matrix_by_its_own_transpose(dtype: str, rows: int, columns: int) -> None:
    """Half of the tiles are computed; each element is stored once, with what its place adds, and the sums are
    symmetric to the last bit, whatever the number of threads, also where the left operand is a part of the rows."""
    x = np.random.default_rng(4).normal(size=(rows, columns)).astype(dtype.replace("f32", "f4").replace("f64", "f8"))

    def gram(x: Any) -> Any:
        return x @ x.T, x @ x.T * 2 + np.arange(x.shape[0]), x[:-3] @ x.T

    for kind in (f"{dtype}[{rows},{columns}]", f"{dtype}[N+3,M]"):
        module = fx.symbolic_trace(gram, kind)
        compiled = [fx.compile(module, backend="c", threads=threads) for threads in (1, 3)]
        assert "".join(compiled[0].sources.values()).count("what is below the diagonal is mirrored") == 2
        (plain, other, part), again = (function(x) for function in compiled)
        assert np.array_equal(part, plain[:-3])
        assert np.array_equal(plain, plain.T) and np.array_equal(plain, again[0])
        expected = x.astype("f8") @ x.T.astype("f8")
        bound = 4 * np.finfo(x.dtype).eps * (np.abs(x) @ np.abs(x).T).astype("f8") * 8
        assert (np.abs(plain - expected) <= bound).all()
        np.testing.assert_allclose(other, plain * 2 + np.arange(rows), rtol=1e-5 if dtype == "f32" else 1e-13)


def test_threads_share_the_tiles_of_a_symmetric_product() -> None:
    """Blocks of columns further right have more tiles: if each thread always got the same ones, two threads would take
    as long as one."""
    x = np.random.default_rng(4).normal(size=(1400, 1800))
    compiled = fx.compile(lambda x: x @ x.T, "f64[1400,1800]", backend="c", threads=2)
    (text,) = (t for name, t in compiled.sources.items() if name.endswith(".c"))
    assert "const int64_t turn = (panel_block + row_block) % panel_blocks;" in text
    np.testing.assert_allclose(compiled(x), x @ x.T, atol=1e-10)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_matrix_of_named_sizes_by_a_vector(dtype: str) -> None:
    """Several rows at a time, as with known sizes, however short they are."""
    compiled = fx.compile(lambda a, x: a @ x, f"{dtype}[N,K]", f"{dtype}[K]", backend="c", threads=2)
    assert f"multiply_dots_{'float' if dtype == 'f32' else 'double'}(1, " in "".join(compiled.sources.values())
    rng, kind = np.random.default_rng(5), np.dtype(dtype.replace("f32", "f4").replace("f64", "f8"))
    shapes = [(0, 4), (5, 0), (1, 1), (4, 3), (33, 8), (17, 15), (16, 16), (100, 17), (7, 100), (40, 5000)]
    for n, k in (*shapes, *((n, k) for n in (15, 16, 64, 70) for k in (2, 4, 8))):
        a, x = rng.normal(size=(n, k)).astype(kind), rng.normal(size=k).astype(kind)
        bound = 8 * np.finfo(kind).eps * (np.abs(a) @ np.abs(x))
        assert (np.abs(compiled(a, x) - a.astype("f8") @ x.astype("f8")) <= bound + 1e-300).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_named_sizes_that_turn_out_few(dtype: str) -> None:
    """Few rows, columns or steps of named sizes are computed as those of known sizes are, by dot products or by strips,
    which are functions of their own."""
    kind = np.dtype(dtype.replace("f32", "f4").replace("f64", "f8"))
    by_columns, by_rows = f"{dtype}[B,K,N]", f"{dtype}[B,N,K]"
    programs = [
        (lambda x, y: x @ y + 1, "M,K", by_columns, ("rows", "strips")),
        (lambda x, y: x @ y.swapaxes(-1, -2) + 1, "M,K", by_rows, ("rows",)),
        (lambda x, y: x[0] @ y[0].T + 1, "3,K", by_rows, ("rows",)),
        (lambda x, y: x[1] @ y[1] + 1, "3,K", by_columns, ("rows",)),
        (lambda x, y: np.tanh(x @ y), "M,K", by_columns, ("rows", "strips", "turned")),
        (lambda x, y: np.tanh(x @ y.swapaxes(-1, -2)), "M,K", by_rows, ("rows", "turned")),
        (lambda x, y: x.swapaxes(-1, -2) @ y, "K,M", by_columns, ("strips", "turned")),
    ]
    rng = np.random.default_rng(5)
    sizes = [(1, 1, 5), (2, 70, 2), (3, 40, 65), (3, 33, 129), (6, 9, 300), (7, 9, 300), (30, 5, 99), (40, 6, 96)]
    sizes += [(25, 1, 17), (5, 3, 0), (0, 4, 40), (2, 2, 20000), (12, 2, 9000), (6, 100, 9000), (4, 2100, 9)]
    sizes += [(70, 6, 3), (33, 2, 0), (65, 4, 33)]
    for program, left, right, ways in programs:
        function = fx.compile(program, f"{dtype}[B,{left}]", right, backend="c", threads=2)
        text = "".join(function.sources.values())
        assert ways == tuple(way for way in ("rows", "strips", "turned") if re.search(rf"\{{\s+k\d_\w+_{way}\(", text))
        for m, n, k in sizes:
            m = 3 if left == "3,K" else m
            x, y = rng.normal(size=(2, m, k)).astype(kind), rng.normal(size=(2, n, k)).astype(kind)
            x = np.ascontiguousarray(x.swapaxes(1, 2)) if left == "K,M" else x
            y = np.ascontiguousarray(y.swapaxes(1, 2)) if right == by_columns else y
            bound = k * np.finfo(kind).eps * 8 + 1e-6
            np.testing.assert_allclose(function(x, y), program(x, y), rtol=bound, atol=bound)


@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("n", [2, 6])
def test_functions_of_few_columns(n: int, k: int) -> None:
    """They are computed for the rows of the product in lanes."""
    x, y, w = (np.random.default_rng(n).normal(size=size).astype("f4") for size in ((70, k), (k, n), (n, k)))
    for program, right in ((lambda x, y: np.tanh(x @ y), y), (lambda x, w: np.tanh(x @ w.T), w)):
        function = fx.compile(program, x, right)
        kernel = "".join(function.sources.values()).partition("static void k0")[2].partition("\n}")[0]
        assert (f"[column*{n} + " in kernel) == (k < 16 * n)
        np.testing.assert_allclose(function(x, right), program(x, right), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("rows", [11, 17, 22])
def test_the_last_columns_fill_half_a_vector(rows: int, dtype: str) -> None:
    """They have the same bits as in a panel that is full."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(rows, 501)).astype(dtype), rng.normal(size=(2, 501, 64)).astype(dtype)
    whole = fx.compile(lambda x, y: x @ y, x, y)(x, y)
    for columns in (33, 34, 36, 37, 40, 41, 48, 49):
        part = np.ascontiguousarray(y[:, :, :columns])
        compiled = fx.compile(lambda x, y: x @ y, x, part)
        assert "multiply_tile" in "".join(compiled.sources.values())
        np.testing.assert_array_equal(compiled(x, part), whole[:, :, :columns])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("rows", [1, 7, 8])
def test_few_rows_by_few_columns(rows: int, dtype: str) -> None:
    """The matrix is read in place, and no tiles are compiled, unless most of the last vector would be empty. The last
    columns have the same bits as among others."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(rows, 603)).astype(dtype), rng.normal(size=(603, 96)).astype(dtype)
    whole = fx.compile(lambda x, y: x @ y, x, y)(x, y)
    for columns in (2, 3, 5, 7, 8, 9, 10, 15, 16, 17, 24, 29, 31, 33, 45, 84):
        part = np.ascontiguousarray(y[:, :columns])
        compiled = fx.compile(lambda x, y: x @ y, x, part)
        rest = columns * x.itemsize % 64
        fills = columns >= 32 or not rest or rest > 32
        text = "".join(compiled.sources.values())
        if fills and max(rows, columns) >= 8 and "multiply_dots_" not in text:
            assert "multiply_strip_" in text and "multiply_tile_" not in text, columns
            np.testing.assert_array_equal(compiled(x, part), whole[:, :columns])
        np.testing.assert_allclose(compiled(x, part), x @ part, rtol=0, atol=603 * np.finfo(dtype).eps * 8)


@pytest.mark.parametrize("k", [1, 2, 4, 8, 16, 33, 64, 130, 257])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_dot_products_of_rows(dtype: str, k: int) -> None:
    """Of few rows by rows that lie along k, whatever the sizes: operands are read where they are. An infinity shows
    in its own row alone, also where the last vector of a row begins among elements that were added before."""

    def by_rows(pairs: Any) -> Any:
        return [x @ y.swapaxes(-1, -2) + 1 for x, y in pairs]

    def by_columns(pairs: Any) -> Any:
        return [x @ y + 1 for x, y in pairs]

    rng = np.random.default_rng(8)
    sizes = [(1, 1), (1, 37), (2, 3), (3, 9), (5, 70), (40, 5), (13, 4), (14, 3), (9, 2), (4, 1)]
    rows = [tuple(rng.normal(size=(2, count, k)).astype(dtype) for count in size) for size in sizes]
    for x, y in rows:
        x[1, -1, k // 2] = np.inf
        y[0, 0, -1] = np.nan
    columns = [(x, np.ascontiguousarray(y.swapaxes(-1, -2))) for x, y in rows]
    with np.errstate(invalid="ignore"):
        expected = by_rows(rows)
    for program, given in ((by_rows, rows), (by_columns, columns)):
        compiled = fx.compile(program, given, threads=2)
        for result, right in zip(compiled(given), expected, strict=True):
            np.testing.assert_allclose(result, right, rtol=0, atol=k * np.finfo(dtype).eps * 8)
        if k > 256:  # each product is one kernel
            kernels = "".join(compiled.sources.values()).split("\nstatic void k")[1:]
            for (m, n), kernel in zip(sizes, kernels, strict=True):
                if max(m, n) >= 8 and (n < 6 or program is by_rows):
                    assert "multiply_dots_" in kernel


def test_few_columns_of_a_transposed_matrix() -> None:
    """They are rows of the transposed product, by a matrix that is read in place."""
    for k, m, n, batch in ((70, 90, 3, ()), (513, 40, 8, (3,)), (9, 33, 1, (2,))):
        x, y = (np.random.default_rng(n).normal(size=(*batch, k, size)) for size in (m, n))
        program = lambda x, y: np.tanh(x.swapaxes(-1, -2) @ y + 1)  # noqa: E731
        function = fx.compile(program, x, y, threads=2)
        assert n == 1 or f"multiply_strip_double({n}, 1, " in "".join(function.sources.values())
        np.testing.assert_allclose(function(x, y), program(x, y), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("k", "m", "n", "batch"), [(70, 90, 12, ()), (130, 90, 12, ()), (130, 257, 64, (3,)), (300, 40, 33, (2,))]
)
def test_some_columns_of_a_transposed_matrix(k: int, m: int, n: int, batch: tuple[int, ...]) -> None:
    """Up to a quarter of its rows, they are rows of the transposed product; beyond that, and where so few terms are
    added that storing takes longer, a transposed matrix is copied whole lines of what is stored at a time."""
    x, y = (np.random.default_rng(n).normal(size=(*batch, k, size)) for size in (m, n))
    program = lambda x, y: np.tanh(x.swapaxes(-1, -2) @ y + 1)  # noqa: E731
    function = fx.compile(program, x, y, threads=2)
    text = "".join(function.sources.values())
    assert (f"min(32, {m} - row_0)" in text) == (4 * n > m or k < 96)
    np.testing.assert_allclose(function(x, y), program(x, y), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("batch", "tokens", "channels"), [((), 49, 96), ((2,), 50, 70), ((1,), 196, 256), ((3,), 20, 7)]
)
def test_products_of_columns_are_stored_by_rows(batch: tuple[int, ...], tokens: int, channels: int) -> None:
    """Tokens mixed by a layer, as in gMLP: of a matrix that is read and stored transposed, the transposed product is
    computed, and its epilogue runs along rows."""
    rng = np.random.default_rng(tokens)
    u, v = (rng.normal(size=(*batch, tokens, channels)).astype("f4") for _ in range(2))
    weight, bias = rng.normal(size=(tokens, tokens)).astype("f4"), rng.normal(size=tokens).astype("f4")

    def program(u: Any, v: Any) -> Any:
        return u * (v.swapaxes(-1, -2) @ weight + bias).swapaxes(-1, -2)

    agree(program, u, v)
    if batch:
        agree(program, u, v, types=[f"f32[B,{tokens},{channels}]"] * 2)
    text = c_file(program, u, v)
    assert (f"m = {tokens}, n = {channels}, k = {tokens}" in text) == (channels > 15), text


@pytest.mark.parametrize(
    ("steps", "right"), [(3, "columns"), (50, "columns"), (70, "columns"), (3, "rows"), (200, "rows")]
)
@pytest.mark.parametrize("named", [False, True])
def test_transposed_results_are_stored_by_rows(steps: int, right: str, named: bool) -> None:
    """What is stored column by column is the transposed product, if K is short or B's columns are adjacent along K."""
    rng = np.random.default_rng(steps)
    x, y = rng.normal(size=(61, steps)), rng.normal(size=(50, steps))
    y = np.ascontiguousarray(y if right == "rows" else y.T)

    def program(x: Any, y: Any) -> Any:
        return (x @ (y.T if right == "rows" else y)).T + 1

    types = [f"f64[M,{steps}]", f"f64[N,{steps}]" if right == "rows" else f"f64[{steps},N]"]
    if not named:
        types = [f"f64[{', '.join(map(str, array.shape))}]" for array in (x, y)]
    agree(program, x, y, types=types)
    text = c_file(program, *types)
    *_, found = re.findall(r"m = (\w+), n = (\w+), k", text)
    is_turned = right == "rows" or steps <= (32 if named else 61)
    assert (found == (("N", "M") if named else ("50", "61"))) == is_turned, text


@pytest.mark.parametrize(("rows", "columns"), [(1, 33), (11, 32), (12, 64), (35, 70), (6, 31)])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_tiles_of_unknown_sizes_are_finished_in_registers(dtype: str, rows: int, columns: int) -> None:
    """Whole ones, if K is short; other sizes are left to memory."""
    rng = np.random.default_rng(rows)
    x, y = (rng.normal(size=size).astype(dtype.replace("f", "float")) for size in ((rows, 7), (7, columns)))
    b = rng.normal(size=columns).astype(x.dtype)

    def program(x: Any, y: Any, b: Any) -> Any:
        return np.maximum(x @ y + b, 0)

    for sizes in (("M", "N"), ("M", "70"), ("35", "N")):
        m, n = (known if known.isdecimal() else size for known, size in zip(sizes, (rows, columns), strict=True))
        given = np.resize(x, (int(m), 7)), np.resize(y, (7, int(n))), np.resize(b, int(n))
        types = [f"{dtype}[{sizes[0]},7]", f"{dtype}[7,{sizes[1]}]", f"{dtype}[{sizes[1]}]"]
        agree(program, *given, types=types)
        assert "K is short" in c_file(program, *types)


def test_a_batch_packs_its_right_operand_once() -> None:
    """All matrices of a batch read it; the few rows of each matrix do not count alone."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(20, 40))

    def program(x: Any, y: Any) -> Any:
        return x.swapaxes(1, 2) @ y

    for shape, text in (((5, 20, 30), "f64[5,20,30]"), ((5, 20, 3), "f64[B,20,M]"), ((1, 20, 3), "f64[B,20,M]")):
        x = rng.normal(size=shape)
        agree(program, x, y, types=[text, "f64[20,40]"])
        source = c_file(program, text, "f64[20,40]")
        assert "The right operand is packed first" in source
        assert source.count("pack_panel_double(") == (1 if "B" not in text else 2)


def test_long_products_of_two_batch_axes() -> None:
    """The number of a matrix is asked for twice in one block: for its sums and for its copied rows."""
    x = np.random.default_rng(1).standard_normal((3, 12500, 8, 2)).astype("f4")
    agree(lambda x: x.swapaxes(1, 3) @ x.swapaxes(1, 3).swapaxes(-1, -2), x)


def test_rows_pages_apart_are_copied_for_several_panels() -> None:
    """A single panel reads each of them once."""
    x = np.random.default_rng(0).normal(size=(40, 512))
    for columns, is_copied in ((32, False), (33, True)):
        y = np.random.default_rng(columns).normal(size=(512, columns))
        function = fx.compile(lambda x, y: x @ y, x, y)
        assert ("a_rows" in "".join(function.sources.values())) == is_copied
        np.testing.assert_allclose(function(x, y), x @ y, rtol=1e-11, atol=1e-11)


def test_a_matrix_by_a_vector() -> None:
    """Four rows at a time, where nothing but the product reads what was computed before."""
    x, y = (np.random.default_rng(9).normal(size=size) for size in ((70, 300), 300))

    def text(program: Any, *given: Any) -> str:
        function = fx.compile(program, *given)
        np.testing.assert_allclose(function(*given), program(*given), rtol=1e-12)
        return "".join(function.sources.values())

    assert "multiply_dots_double(" in text(lambda x, y: x @ y + y[:70], x, y)
    assert "multiply_dots_double(" in text(lambda x, y: x @ y, np.stack([x, x]), y)
    assert "multiply_" in text(lambda y: x @ y, y)
    assert "multiply_" not in text(lambda x, y: (x * 2) @ y, x, y)
    assert "multiply_" not in text(lambda x, y: x.T @ y, np.ascontiguousarray(x.T), y)


class EverySecondPixel(nn.Module):
    """A 1x1 convolution of a channels-last image, of which it reads every second pixel."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.weight = nn.Parameter(rng.standard_normal((96, 24, 1, 1)).astype(np.float32))

    def forward(self, x: Any) -> Any:
        return ops.relu(ops.conv2d(x, self.weight, stride=2, layout="NHWC"))


def test_short_products_of_a_batch_by_one_weight_are_one_product() -> None:
    """Rows of two images, five rows of each and five pixels of these: the weight passes by once."""
    x = np.random.default_rng(1).standard_normal((2, 9, 10, 24)).astype(np.float32)
    model = EverySecondPixel()
    compiled = fx.compile(model, x, backend="c")
    assert "m = 50, n = 96, k = 24" in "".join(compiled.sources.values())
    assert compare(model(x), compiled(x), chain=Chain(2, 48, 1)).agrees
