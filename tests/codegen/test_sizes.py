"""Sizes that wrap in 64-bit integers give an error that names the value, on every rung, and nothing
is allocated or computed before; calls without elements give what NumPy gives. All programs and
sizes: ``python -m tests.codegen.size_cases``."""

import itertools
import subprocess

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, MemoryLimitError, OptionError, ShapeError
from fxlite.codegen.c.emit import emit
from fxlite.codegen.cuda.emit import emit as cuda_emit
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime import sizes as limits
from fxlite.codegen.runtime.launcher import three
from fxlite.codegen.runtime.toolchain import find_compiler, march_flag
from tests.codegen.size_cases import LIMIT, SIZES, TYPES, judge, pairs, program, rungs

T32 = 2**32
F32 = np.float32


def product(x, y):
    return (x @ y.T).reshape(-1)


@pytest.fixture(scope="module")
def products():
    return fx.compile(product, x="f32[B,K]", y="f32[M,K]", memory_limit=LIMIT)


@pytest.mark.parametrize("name", ["fused product", "tile both", "concat outer", "cumsum"])
def test_sizes_that_wrap(name):
    module = fx.symbolic_trace(program(name), **TYPES)
    for rung, call in rungs(module):
        seen = [judge(module, call, sizes) for sizes in pairs()]
        assert set(seen) == {"result", "MemoryLimitError"}, rung


def test_the_error_names_the_value_and_what_to_do(products):
    with pytest.raises(MemoryLimitError) as found:
        products(np.zeros((T32, 0), F32), np.zeros((T32, 0), F32))
    for text in (
        "matmul (",
        "test_sizes.py:",
        "f32[B,M]",
        "has the shape (4294967296, 4294967296)",
        "B = 4294967296 from axis 0 of 'x'",
        "73,786,976,294,838,206,464 bytes",
    ):
        assert text in str(found.value)
    with pytest.raises(MemoryLimitError, match=r"a value may take 268,435,456; .*memory_limit="):
        products(np.zeros((2**14, 0), F32), np.zeros((2**13, 0), F32))
    assert products(np.zeros((2**10, 0), F32), np.zeros((2**13, 0), F32)).shape == (2**23,)


def test_numbers_that_no_machine_holds_are_found_when_compiling():
    for backend in ({}, {"backend": "cuda", "device": "shim"}):
        with pytest.raises(MemoryLimitError, match=r"matmul \(test_sizes.py:\d+\), f32\[4294967296,"):
            fx.compile(product, x=f"f32[{T32},0]", y=f"f32[{T32},0]", **backend)


@pytest.mark.parametrize("backend", [{}, {"backend": "cuda", "device": "shim"}], ids=["c", "cuda"])
@pytest.mark.parametrize("types", ["f32[B,T]", f"f32[{2**40},0]"])
def test_values_without_elements_and_long_axes(backend, types):
    def ends(x):
        return x + 1, x.sum(), (x * 2).reshape(-1)

    x = np.zeros((2**40, 0), F32)
    results = fx.compile(ends, x=types, **backend)(x)
    assert [r.shape for r in results] == [(2**40, 0), (), (0,)]
    assert all(r.dtype == F32 for r in results) and results[1] == 0
    with pytest.raises(MemoryLimitError, match=r"sum.* has the shape \(1099511627776,\)"):
        fx.compile(lambda x: x.sum(1), x=types, memory_limit=2**41, **backend)(x)


def test_a_negative_size_inside_a_program():
    module = fx.symbolic_trace(lambda x: fx.ops.conv1d(x, np.ones((1, 1, 4), F32)).sum(axis=(1, 2)), x="f32[B,1,T]")
    module.graph.guards = ()  # as a file may come
    run = fx.compile(module)
    assert run(np.ones((2, 1, 4), F32)).tolist() == [4, 4]
    with pytest.raises(ValueError, match="T >= 4 is required"):
        run(np.ones((2, 1, 2), F32))
    run = fx.compile(lambda x: fx.ops.zeros((x.shape[0] - 3,), F32).sum() + x.sum(), x="f32[T]")
    assert run(np.ones(5, F32)) == 5
    with pytest.raises(ValueError, match="T >= 3 is required by test_sizes"):
        run(np.ones(2, F32))


def test_results_and_workspace_together():
    def five(x):
        return tuple(np.tanh(x[:, None] * n + np.zeros(2**10, F32)) for n in range(5))

    run = fx.compile(five, x="f32[B]", memory_limit=2**24)
    assert len(run(np.ones(2**9, F32))) == 5
    with pytest.raises(MemoryLimitError, match="results and workspace of this call take 20,971,5"):
        run(np.ones(2**10, F32))


def test_a_strided_input_that_is_too_large_to_copy():
    run = fx.compile(lambda x: x.sum(), x="f32[B,4]", memory_limit=2**20)
    wide = np.broadcast_to(F32(1), (T32, 4))
    with pytest.raises(MemoryLimitError, match=r"a copy of float32\[4294967296,4\] takes"):
        run(wide)


def test_memory_limits(monkeypatch):
    machine = limits._memory_of_machine()
    assert 2**20 < machine <= limits.STORED_VALUE
    for text, bytes in [
        ("2", 2 * 10**9),
        ("0.5", 5 * 10**8),
        ("0", limits.STORED_VALUE),
        ("1e300", limits.STORED_VALUE),
        ("inf", limits.STORED_VALUE),
        ("nan", machine),
        ("-1", machine),
        ("", machine),
        ("much", machine),
    ]:
        monkeypatch.setenv("FXLITE_MEMORY_LIMIT", text)
        assert limits.memory_limit() == bytes, text
    for value, error in [
        (0, OptionError),
        (-5, OptionError),
        (1.5, ArgumentError),
        ("2", ArgumentError),
        (True, ArgumentError),
    ]:
        with pytest.raises(error, match="memory_limit must be"):
            fx.compile(lambda x: x + 1, x="f32[B]", memory_limit=value)
    with pytest.raises(ArgumentError, match="the back end 'python' has no option memory_limit"):
        fx.compile(lambda x: x + 1, x="f32[B]", backend="python", memory_limit=1)


def test_the_workspace_of_impossible_sizes(products):
    assert products.workspace_bytes({"B": 8, "K": 4, "M": 2}) > 0
    with pytest.raises(MemoryLimitError, match="73,786,976,294,838,206,464 bytes"):
        products.workspace_bytes({"B": T32, "K": 0, "M": T32})
    with pytest.raises(ShapeError, match="would have the shape"):
        products.workspace_bytes({"B": -1, "K": 4, "M": 2})


def test_values_that_are_never_larger_than_others_are_not_counted():
    def block(x):
        y = np.tanh(x @ np.ones((8, 64), F32) + 1)
        return y @ np.ones((64, 8), F32) + x, x.mean(1), x[:, 0, :1] * np.arange(5.0)

    module, _ = optimize(fx.symbolic_trace(block, x="f32[B,T,8]"))
    found = {(v.dtype, *map(str, v.shape), v.stored) for v in emit(module).entry.values}
    assert found == {("f32", "B", "T", "64", True), ("f64", "B", "5", True)}


def test_a_program_of_numbers_has_no_check():
    module, _ = optimize(fx.symbolic_trace(product, x="f32[8,4]", y="f32[3,4]"))
    program = emit(module)
    assert not program.entry.values and "largest_bytes" not in "".join(program.sources.values())


_CALLER = """\
#include <stdio.h>
#include "product.h"

int main(void) {
    const int64_t sizes[] = {%s};
    const int count = sizeof sizes / sizeof *sizes;
    fx_error error;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            const int64_t B = sizes[i], M = sizes[j];
            int code = -1; /* not run: there are no arrays */
            if (product_largest_bytes(B, 0, M) < 0 || B == 0)
                code = product_run(NULL, NULL, NULL, B, 0, M, NULL, NULL, 1, &error);
            printf("%%lld %%lld %%lld %%lld %%d\\n", (long long)B, (long long)M,
                   (long long)product_largest_bytes(B, 0, M),
                   (long long)product_workspace_bytes(B, 0, M, 1), code);
        }
    return 0;
}
"""


def test_a_caller_in_c(products, tmp_path):
    for name, text in products.sources.items():
        (tmp_path / name).write_text(text)
    sizes = [-1, *SIZES]
    (tmp_path / "caller.c").write_text(_CALLER % ", ".join(f"{s}LL" for s in sizes))
    build = [
        *find_compiler().command,
        "-std=gnu11",
        "-O1",
        "-fwrapv",
        march_flag(),
        "caller.c",
        "product.c",
        "-lm",
        "-o",
        "caller",
    ]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    lines = subprocess.run(["./caller"], cwd=tmp_path, check=True, capture_output=True, text=True)
    seen = [tuple(map(int, line.split())) for line in lines.stdout.splitlines()]
    assert [s[:2] for s in seen] == list(itertools.product(sizes, repeat=2))
    for rows, columns, largest, workspace, code in seen:
        exact, counted = rows * columns * 4, max(rows, 1) * max(columns, 1) * 4
        fits = min(rows, columns) >= 0 and 4 * max(rows, columns) <= limits.HOLLOW
        fits &= counted <= (limits.STORED_VALUE if exact else limits.HOLLOW)
        assert (largest == exact and workspace >= 0) if fits else largest == workspace == -1
        assert code == (4 if not fits else 0 if rows == 0 else -1), (rows, columns)


@pytest.mark.parametrize(
    "types",
    [
        {"x": "f32[B,8]", "y": f"f32[{2**28},8]"},
        {"x": "f32[3,8]", "y": f"f32[{T32},8]"},
        {"x": "f32[A,B,8]", "y": f"f32[A,{2**23},8]"},
    ],
)
def test_products_of_many_columns_fit_into_a_grid(types):
    """Along y and z a grid has 65535 blocks at most, along x 2^31 - 1."""
    module = fx.symbolic_trace(lambda x, y: x @ y.swapaxes(-1, -2), **types)
    program = cuda_emit(optimize(module)[0])
    for sizes in itertools.product((0, 1, 3, 2**12 + 1), (1, 2**17)):
        dims = dict(zip("BA", sizes))
        grids = [launch.blocks(dims) for launch in program.launches]
        assert all(three(grid, "grid") == grid for grid in grids if 0 not in grid)
