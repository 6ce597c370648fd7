"""The attention template: its C text is compiled with gcc and compared with the op's reference.

Every case is an attention with a layout of its operands and a mask. All are compiled into one
shared object per set of flags; under the sanitizers they run in a program of their own, on buffers
of exactly the size they may touch, one thread against two.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fxlite import ops
from fxlite.codegen.c import attention
from fxlite.codegen.c.attention import AttentionSpec
from fxlite.codegen.c.product import gemm_spec
from fxlite.codegen.kernel.builder import Pointer, Rendered, symbol
from fxlite.codegen.runtime.launcher import INCLUDE_FOLDERS
from fxlite.codegen.runtime.toolchain import march_flag
from fxlite.scalar.index import Index
from fxlite.types.agreement import Chain, compare
from tests.codegen.compiling import (
    FILLED,
    OPTIMIZED,
    QUICK,
    SANITIZED,
    compile_c,
    evaluate,
    flag_of,
    run_sanitized,
    shared_library,
    with_tiles,
)

HEADERS = ("stdint", "stdbool", "stdlib", "stdio", "string", "math")
HEAD = "".join(f"#include <{name}.h>\n" for name in HEADERS)
SIZES = [  # queries, keys, features, columns
    (0, 5, 3, 4),
    (3, 0, 4, 5),
    (4, 7, 0, 3),
    (2, 3, 4, 0),
    (1, 1, 1, 1),
    (1, 40, 16, 16),
    (2, 33, 17, 70),
    (5, 3, 8, 6),
    (7, 31, 32, 32),
    (11, 64, 40, 33),
    (12, 65, 64, 64),
    (37, 130, 5, 31),
]
BATCH, HEADS = 2, 3


@dataclass(frozen=True)
class Case:
    """One C function: dtype, layout, mask, and its sizes, None where they are parameters."""

    ctype: str
    layout: str  # "plain" [B,H,L,E] | "heads" [B,L,H,E] | "turned" [B,H,E,L]
    mask: str = ""  # "bool rows", "bool keys" (one row for all queries), "float rows"
    causal: bool = False
    empty_is_nan: bool = False
    size: tuple[int, int, int, int] | None = None

    @property
    def name(self) -> str:
        words = [
            self.ctype,
            self.layout,
            *self.mask.split(),
            "causal" * self.causal,
            "nan" * self.empty_is_nan,
            *map(str, self.size or ()),
        ]
        return "_".join(word for word in words if word)

    def operand(self, pointer: str, rows: Index, columns: Index) -> gemm_spec.Operand:
        one, b, h = Index.of(1), symbol("b"), symbol("h")
        if self.layout == "heads":
            return gemm_spec.Operand(pointer, (b * rows * HEADS + h) * columns, columns * HEADS, one)
        strides = (columns, one) if self.layout == "plain" else (one, rows)
        return gemm_spec.Operand(pointer, (b * HEADS + h) * rows * columns, *strides)

    def array(self, memory: np.ndarray, rows: int, columns: int) -> np.ndarray:
        """Memory of that layout as [B,H,rows,columns]."""
        if self.layout == "heads":
            return memory.reshape(BATCH, rows, HEADS, columns).transpose(0, 2, 1, 3)
        if self.layout == "turned":
            return memory.reshape(BATCH, HEADS, columns, rows).swapaxes(2, 3)
        return memory.reshape(BATCH, HEADS, rows, columns)

    def spec(self) -> AttentionSpec:
        m, s, e, n = map(Index.of, self.size) if self.size else map(symbol, "LSEV")
        t, b, h = self.ctype, symbol("b"), symbol("h")
        masks = {
            "": None,
            "rows": gemm_spec.Operand("mask", b * m * s, s, Index.of(1)),
            "keys": gemm_spec.Operand("mask", b * s, Index.of(0), Index.of(1)),
        }
        mask_type = "bool" if "bool" in self.mask else t
        return AttentionSpec(
            name=self.name,
            ctype=t,
            parameters=f"const {t} *restrict q, const {t} *restrict k, const {t} *restrict v, "
            f"const {mask_type} *restrict mask, {t} *restrict y, "
            "int64_t L, int64_t S, int64_t E, int64_t V",
            batch=(("b", Index.of(BATCH)), ("h", Index.of(HEADS))),
            rows=m,
            keys=s,
            features=e,
            columns=n,
            q=self.operand("q", m, e),
            k=self.operand("k", s, e),
            v=self.operand("v", s, n),
            scale="0.3f" if t == "float" else "0.3",
            epilogue=lambda value, row, column: (
                f"{Pointer('y')[((b * HEADS + h) * m + row) * n + column]} = {value} + 1;"
            ),
            mask=masks[self.mask.partition(" ")[2]],
            mask_is_bool="bool" in self.mask,
            causal=self.causal,
            empty_is_nan=self.empty_is_nan or not self.mask,
            comment="y[b, h, row, column] = attention + 1",
        )

    def counts(self, sizes: tuple[int, int, int, int]) -> list[int]:
        """Elements of q, k, v, mask, y."""
        m, s, e, n = sizes
        mask = BATCH * (s if "keys" in self.mask else m * s)
        return [BATCH * HEADS * c for c in (m * e, s * e, s * n)] + [mask, BATCH * HEADS * m * n]


LAYOUTS = ("plain", "heads", "turned")
MASKS = ("", "float rows", "bool rows", "bool keys")
CASES = [
    *(Case("float", layout, mask) for layout, mask in zip(LAYOUTS * 2, MASKS * 2)),
    Case("float", "plain", causal=True),
    Case("float", "heads", causal=True),
    Case("double", "heads", "bool rows", empty_is_nan=True),
    Case("double", "turned", causal=True),
    Case("float", "plain", "bool keys", empty_is_nan=True),
    *(Case("float", "heads", "bool keys", size=(few, 1100, 64, 40)) for few in (1, 2)),
    *(Case("float", layout, size=(1, 600, 33, 21)) for layout in LAYOUTS),
    Case("double", "plain", "float rows", size=(2, 700, 16, 16)),
    Case("float", "heads", "bool rows", empty_is_nan=True, size=(1, 9, 4, 100)),
    *(Case("float", "plain", size=size) for size in ((1, 0, 4, 5), (0, 3, 4, 5), (3, 2, 4, 0))),
    Case("float", "heads", size=(40, 1100, 16, 32)),  # several blocks of keys, and of queries
    Case("float", "heads", causal=True, size=(400, 530, 16, 16)),
    Case("float", "plain", "float rows", size=(13, 200, 600, 90)),
]


def sizes_of(case: Case) -> list[tuple[int, int, int, int]]:
    return [case.size] if case.size else SIZES


@cache
def rendered(case: Case) -> Rendered:
    """The template's function: every library has the same."""
    return attention.render_attention(case.spec())


def translation_unit(cases: list[Case]) -> str:
    """The cases, each as run_NAME with one list of arguments."""
    parts = []
    parameters = (
        "const void *q, const void *k, const void *v, const void *mask, void *y, int64_t L, "
        "int64_t S, int64_t E, int64_t V, void *workspace, int n_threads"
    )
    for case in cases:
        function = rendered(case)
        given = ", ".join(("q, k, v, mask, y, L, S, E, V", *function.extra_parameters))
        parts.append(f"{function.text}void run_{case.name}({parameters})\n{{\n    {case.name}({given});\n}}\n")
    math = INCLUDE_FOLDERS[1].joinpath("fx_math.h").read_text()
    return with_tiles("\n".join(parts), HEAD + math)


ALWAYS = ("-Wno-unused-function", "-fno-math-errno", "-fno-trapping-math")
FLAGS = {"native": (*ALWAYS, *OPTIMIZED, march_flag(), "-fopenmp"), "SSE2, no OpenMP": (*ALWAYS, QUICK)}


@pytest.fixture(scope="module", params=FLAGS)
def library(request, tmp_path_factory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("attention") / "attention.so"
    return shared_library(translation_unit(CASES), target, *FLAGS[request.param])


def draw(case: Case, sizes: tuple[int, int, int, int]) -> list[np.ndarray]:
    """Memory of q, k, v and the mask."""
    dtype = np.float32 if case.ctype == "float" else np.float64
    rng = np.random.default_rng(sum(sizes))
    counts = case.counts(sizes)
    arrays = [rng.standard_normal(c).astype(dtype) for c in counts[:3]]
    if "bool" in case.mask:  # some rows keep nothing
        mask = rng.random(counts[3]) < 0.7
        mask[: counts[3] // 2] &= rng.random() < 0.5
    else:
        mask = rng.standard_normal(counts[3]).astype(dtype)
        mask[rng.random(counts[3]) < 0.2] = -np.inf
    return [*arrays, mask]


def run(
    library: ctypes.CDLL, case: Case, arrays: list[np.ndarray], sizes: tuple[int, int, int, int], n_threads: int
) -> np.ndarray:
    """The result, on memory with fences."""
    names = dict(zip("LSEV", sizes))
    size = evaluate(rendered(case).workspace, **names, n_threads=n_threads)
    workspace = np.full(size + 64, 0xA5, np.uint8)
    count = case.counts(sizes)[4]
    y = np.full(count + 8, 7777, arrays[0].dtype)
    getattr(library, f"run_{case.name}")(
        *(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, y)),
        *map(ctypes.c_int64, sizes),
        ctypes.c_void_p(workspace.ctypes.data),
        n_threads,
    )
    assert (workspace[size:] == 0xA5).all(), f"{case.name} {sizes}: wrote past its workspace"
    assert (y[count:] == 7777).all(), f"{case.name} {sizes}: wrote past its result"
    return y[:count].reshape(BATCH, HEADS, sizes[0], sizes[3])


def expected(case: Case, arrays: list[np.ndarray], sizes: tuple[int, int, int, int]) -> np.ndarray:
    m, s, e, n = sizes
    q, k, v = (case.array(a, *shape) for a, shape in zip(arrays, ((m, e), (s, e), (s, n))))
    mask = arrays[3].reshape(BATCH, 1, -1, s) if case.mask and s else None
    result = ops.scaled_dot_product_attention(
        q.astype(np.float64),
        k.astype(np.float64),
        v.astype(np.float64),
        mask.astype(np.float64) if mask is not None and mask.dtype != bool else mask,
        is_causal=case.causal,
        scale=0.3,
        empty_rows="nan" if case.empty_is_nan else "zero",
    )
    return result + 1


@pytest.mark.parametrize("n_threads", [1, 3])
def test_attention_agrees_with_the_reference(library: ctypes.CDLL, n_threads: int) -> None:
    for case in CASES:
        for sizes in sizes_of(case):
            arrays = draw(case, sizes)
            want = expected(case, arrays, sizes)
            chain = Chain(3, 2 * (sizes[1] + sizes[2]), 2)
            got = run(library, case, arrays, sizes, n_threads)
            found = compare(want.astype(got.dtype), got, chain=chain)
            assert found.agrees, (case.name, sizes, str(found))


def test_the_number_of_threads_changes_no_bit(library: ctypes.CDLL) -> None:
    large = [case for case in CASES if case.size and case.size[1] > 500]
    assert len(large) > 5
    for case in large:
        arrays = draw(case, case.size)
        one, three = (run(library, case, arrays, case.size, n) for n in (1, 3))
        assert np.array_equal(one, three, equal_nan=True), case.name


@pytest.mark.parametrize("where", range(3))
def test_nan_and_infinity_stand_where_they_do_in_numpy(library: ctypes.CDLL, where: int) -> None:
    """In queries, keys and values, hidden by a mask or the diagonal, too: 0 * infinity is NaN."""
    for case in CASES[1::2]:
        for sizes in sizes_of(case):
            arrays = draw(case, sizes)
            rng = np.random.default_rng(where)
            for value in (np.nan, np.inf, -np.inf):
                if arrays[where].size > 50:
                    arrays[where][rng.integers(0, arrays[where].size, 2)] = value
            with np.errstate(all="ignore"):
                want = expected(case, arrays, sizes)
            got = run(library, case, arrays, sizes, 2)
            assert np.array_equal(np.isnan(got), np.isnan(want)), (case.name, sizes)
            infinite = np.isinf(want)
            assert np.array_equal(got[infinite], want[infinite]), (case.name, sizes)


MAIN = """
typedef void function(const void *, const void *, const void *, const void *, void *, int64_t,
                      int64_t, int64_t, int64_t, void *, int);

static int check(const char *name, function *run, int item, int mask_item, int l, int s, int e,
                 int v, long q_count, long k_count, long v_count, long mask_count, long count,
                 long workspace_bytes)
{
    void *q = filled(q_count, item), *k = filled(k_count, item), *values = filled(v_count, item);
    void *mask = filled(mask_count, mask_item), *workspace = malloc(workspace_bytes);
    void *y = filled(count, item), *z = filled(count, item);
    run(q, k, values, mask, y, l, s, e, v, workspace, 1);
    run(q, k, values, mask, z, l, s, e, v, workspace, 2);
    const int wrong = memcmp(y, z, count * item);
    if (wrong)
        printf("%s %d %d %d %d: two threads differ from one\\n", name, l, s, e, v);
    free(q), free(k), free(values), free(mask), free(y), free(z), free(workspace);
    return wrong != 0;
}

int main(void)
{
    int wrong = 0;
"""


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_attention_under_the_sanitizers(march: str, tmp_path: Path) -> None:
    cases = CASES[::2] if march == "native" else CASES[1::4]
    lines = [FILLED, MAIN]
    for case in cases:
        workspace = rendered(case).workspace
        item = f"sizeof({case.ctype})"
        mask_item = "sizeof(bool)" if "bool" in case.mask else item
        for sizes in sizes_of(case):
            size = evaluate(workspace, **dict(zip("LSEV", sizes)), n_threads=2)
            numbers = ", ".join(map(str, (*sizes, *case.counts(sizes), size)))
            lines.append(
                f'    wrong += check("{case.name}", (function *)run_{case.name}, {item}, {mask_item}, {numbers});'
            )
    program = compile_c(
        translation_unit(cases) + "\n".join([*lines, "    return wrong != 0;", "}"]),
        tmp_path / "attention",
        flag_of(march),
        *ALWAYS,
        *SANITIZED,
    )
    run_sanitized(program)
