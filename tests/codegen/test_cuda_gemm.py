"""The CUDA matrix-product kernels against NumPy, on the CPU shim or a GPU, and through NVRTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fxlite.codegen.c.product.gemm_spec import Operand
from fxlite.codegen.cuda.gemm import CudaGemmSpec, render_gemm
from fxlite.codegen.cuda.schedule import KernelText
from fxlite.codegen.kernel.builder import Pointer, bare, symbol
from fxlite.codegen.runtime.cuda_device import CudaToolkitNotFound, compile_cubin
from fxlite.scalar.index import Index
from fxlite.types.agreement import Chain, compare
from tests.cuda_launchers import launch_on_arrays, launcher, places

PARAMETERS = (
    "const {t} *__restrict__ a, const {t} *__restrict__ b, const {t} *__restrict__ bias, "
    "{t} *__restrict__ c, int64_t G, int64_t H, int64_t M, int64_t N, int64_t K"
)
G, H, M, N, K, g, h = map(symbol, "GHMNKgh")


def operand(layout: str, pointer: str, rows: Index, columns: Index) -> Operand:
    """Rows and columns of a matrix that lies in memory as it is, or transposed."""
    strides = (columns, Index.of(1)) if layout == "plain" else (Index.of(1), rows)
    return Operand(pointer, (g * H + h) * rows * columns, *strides)


def spec(ctype: str = "float", a: str = "plain", b: str = "plain") -> CudaGemmSpec:
    """relu(A @ B + bias) of G x H products."""

    def epilogue(total: str, row: Index, column: Index) -> str:
        stored = Pointer("c")[((g * H + h) * M + row) * N + column]
        return (
            f"const {ctype} sum_and_bias = {total} + bias[{bare(column)}];\n"
            f"{stored} = fx_max(sum_and_bias, ({ctype})0);"
        )

    return CudaGemmSpec(
        name=f"gemm_{ctype}_{a}_{b}",
        ctype=ctype,
        parameters=PARAMETERS.format(t=ctype),
        batch=(("g", G), ("h", H)),
        m=M,
        n=N,
        k=K,
        a=operand(a, "a", M, K),
        b=operand(b, "b", K, N),
        epilogue=epilogue,
        comment="relu(A @ B + bias)\n[G,H,M,K] x [G,H,K,N] -> [G,H,M,N]",
    )


SPECS = [spec(), spec(a="transposed"), spec(b="transposed"), spec("double", "transposed", "transposed")]


SOURCE = '#include "prelude.cuh"\n\n' + "\n".join(render_gemm(kernel).text for kernel in SPECS)


def launch(kernel: KernelText, args: list[Any], place: str, flags: Sequence[str] = (), **sizes: int) -> None:
    grid = [int(size.evaluate(sizes)) for size in kernel.grid]
    launch_on_arrays(launcher(SOURCE, place, flags), kernel.name, grid, (kernel.threads,), args)


@pytest.mark.parametrize("place", places())
@pytest.mark.parametrize("kernel", SPECS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(
    "g, h, m, n, k",
    [
        (1, 1, 64, 64, 16),
        (2, 3, 65, 70, 33),
        (1, 2, 1, 1, 1),
        (1, 1, 130, 3, 40),
        (1, 1, 7, 9, 0),
        (1, 1, 0, 9, 5),
        (0, 2, 3, 3, 3),
    ],
)
def test_gemm(kernel: CudaGemmSpec, g: int, h: int, m: int, n: int, k: int, place: str) -> None:
    dtype = {"float": np.float32, "double": np.float64}[kernel.ctype]
    random = np.random.default_rng(m * n)
    a, b = (random.uniform(-1, 1, s).astype(dtype) for s in ((g, h, m, k), (g, h, k, n)))
    bias = random.uniform(-1, 1, n).astype(dtype)
    stored = [
        np.ascontiguousarray(x.swapaxes(2, 3) if o == "transposed" else x)
        for x, o in zip((a, b), kernel.name.split("_")[2:])
    ]
    c = np.full((g, h, m, n), np.nan, dtype)
    args = [*stored, bias, c, g, h, m, n, k]
    launch(render_gemm(kernel), args, place, G=g, H=h, M=m, N=n, K=k)
    found = compare(np.maximum(a @ b + bias, 0), c, chain=Chain(2, 2 * k, 1))
    assert found.agrees, str(found)


def test_nan_and_infinity_pass_through_and_do_not_spread() -> None:
    a, b = np.ones((1, 1, 66, 20), np.float32), np.ones((1, 1, 20, 66), np.float32)
    a[0, 0, 65, 3], b[0, 0, 7, 1] = np.nan, np.inf
    c, bias = np.full((1, 1, 66, 66), -1, np.float32), np.zeros(66, np.float32)
    args = [a, b, bias, c, 1, 1, 66, 66, 20]
    launch(render_gemm(SPECS[0]), args, places()[-1], G=1, H=1, M=66, N=66, K=20)
    np.testing.assert_array_equal(c, a @ b)


def test_more_products_than_a_grid_has_blocks() -> None:
    kernel = spec()
    count = 65537
    a, b = np.arange(count, dtype=np.float32), np.full(count, 2, np.float32)
    c = np.full(count, np.nan, np.float32)
    args = [a, b, np.zeros(1, np.float32), c, count, 1, 1, 1, 1]
    flags = ["-O2"]  # there is more to run than to compile
    launch(render_gemm(kernel), args, places()[-1], flags, G=count, H=1, M=1, N=1, K=1)
    np.testing.assert_array_equal(c, 2 * a)


@pytest.mark.parametrize(("m", "n", "k"), [(70, 5, 17), (128, 64, 16), (64, 130, 48)])
def test_what_is_known_of_sizes_is_not_asked(m: int, n: int, k: int) -> None:
    """Whole tiles need no conditions, a single slice no loop, a single tile no position."""
    one, zero = Index.of(1), Index.of(0)
    kernel = CudaGemmSpec(
        name="literal",
        ctype="float",
        parameters="const int8_t *x, const int8_t *w, float *y",
        batch=(),
        m=Index.of(m),
        n=Index.of(n),
        k=Index.of(k),
        a=Operand("x", zero, Index.of(k), one),
        b=Operand("w", zero, one, Index.of(k)),
        epilogue=lambda total, row, column: f"{Pointer('y')[row * n + column]} = {total};",
    )
    made, grid = render_gemm(kernel), (-(-m // 64), -(-n // 64), 1)
    assert made.grid == tuple(map(Index.of, grid))
    text = made.text
    for name, size, step in (("row", m, 64), ("col", n, 64), ("k", k, 16)):
        assert (re.search(rf"\b{name} < {size}\b", text) is None) == (size % step == 0)
    assert ("k_begin" in text) == (k > 16) and ("blockIdx.y" in text) == (n > 64)
    random = np.random.default_rng(0)
    x, w = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (n, k)))
    y = np.full((m, n), np.nan, np.float32)
    module = launcher('#include "prelude.cuh"\n' + text, places()[-1])
    launch_on_arrays(module, "literal", grid, (made.threads,), [x, w, y])
    np.testing.assert_array_equal(y, x.astype(np.float32) @ w.astype(np.float32).T)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiles_for_devices(arch: str) -> None:
    try:
        cubin = compile_cubin(SOURCE, arch)
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))
    used = cubin.kernels[SPECS[0].name]
    assert used.spill_stores == 0 and used.shared == 2 * 16 * 68 * 4
    assert set(cubin.kernels) == {kernel.name for kernel in SPECS}


def test_text_is_fit_to_read() -> None:
    text = render_gemm(SPECS[0]).text
    head = "// relu(A @ B + bias)\n// [G,H,M,K] x [G,H,K,N] -> [G,H,M,N]\n"
    assert text.startswith(f"{head}// One block for each tile of 64 x 64 elements.\nextern")
    assert max(map(len, text.splitlines())) <= 100
    assert "for (int64_t batch = blockIdx.z; batch < G*H; batch += gridDim.z) {" in text


def test_bad_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="'half' is neither"):
        render_gemm(spec("half"))
