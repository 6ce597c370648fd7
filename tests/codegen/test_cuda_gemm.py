"""The CUDA matrix-product kernels against NumPy, through the CPU shim and through NVRTC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fxlite.codegen.cuda.gemm import (
    CudaGemmSpec,
    Operand,
    RenderedKernel,
    render_gemm,
    render_gemm_naive,
)
from fxlite.codegen.runtime.cuda_device import CudaToolkitNotFound, compile_cubin
from fxlite.codegen.runtime.cuda_shim import ShimModule
from fxlite.types.agreement import Chain, compare

PARAMETERS = (
    "const {t} *__restrict__ a, const {t} *__restrict__ b, const {t} *__restrict__ bias, "
    "{t} *__restrict__ c, int64_t G, int64_t H, int64_t M, int64_t N, int64_t K"
)
LAYOUTS = {  # how (rows, columns) of an operand lie in memory
    "plain": Operand("{p}", "(g * H + h) * {r} * {c}", "{c}", "1"),
    "transposed": Operand("{p}", "(g * H + h) * {r} * {c}", "1", "{r}"),
}


def operand(layout: str, pointer: str, rows: str, columns: str) -> Operand:
    names = {"p": pointer, "r": rows, "c": columns}
    o = LAYOUTS[layout]
    fields = (o.pointer, o.offset, o.row_stride, o.col_stride)
    return Operand(*(field.format(**names) for field in fields))


def spec(ctype: str = "float", a: str = "plain", b: str = "plain") -> CudaGemmSpec:
    """relu(A @ B + bias) of G x H products."""
    return CudaGemmSpec(
        name=f"gemm_{ctype}_{a}_{b}",
        ctype=ctype,
        parameters=PARAMETERS.format(t=ctype),
        batch=(("g", "G"), ("h", "H")),
        m="M",
        n="N",
        k="K",
        a=operand(a, "a", "M", "K"),
        b=operand(b, "b", "K", "N"),
        epilogue=lambda value, row, col: (
            f"const {ctype} sum_and_bias = {value} + bias[{col}];\n"
            f"c[((g * H + h) * M + {row}) * N + {col}] = fx_max(sum_and_bias, ({ctype})0);"
        ),
        comment="relu(A @ B + bias)\n[G,H,M,K] x [G,H,K,N] -> [G,H,M,N]",
    )


SPECS = [
    spec(),
    spec(a="transposed"),
    spec(b="transposed"),
    spec("double", "transposed", "transposed"),
]


def naive(kernel: CudaGemmSpec) -> CudaGemmSpec:
    return replace(kernel, name=f"naive_{kernel.name}")


def rendered(kernel: CudaGemmSpec) -> RenderedKernel:
    return render_gemm_naive(kernel) if kernel.name.startswith("naive") else render_gemm(kernel)


ALL = [*SPECS, *map(naive, SPECS)]
SOURCE = '#include "prelude.cuh"\n\n' + "\n".join(rendered(kernel).text for kernel in ALL)


def launch(kernel: RenderedKernel, name: str, args: list[Any], order: Any, **sizes: int) -> None:
    grid = [eval(text, {"min": min}, sizes) for text in kernel.grid]
    ShimModule(SOURCE).launch(name, grid, kernel.block, kernel.shmem, args, order)


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.name)
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
def test_gemm(kernel: CudaGemmSpec, g: int, h: int, m: int, n: int, k: int, order: str) -> None:
    dtype = {"float": np.float32, "double": np.float64}[kernel.ctype]
    random = np.random.default_rng(m * n)
    a, b = (random.uniform(-1, 1, s).astype(dtype) for s in ((g, h, m, k), (g, h, k, n)))
    bias = random.uniform(-1, 1, n).astype(dtype)
    stored = [
        np.ascontiguousarray(x.swapaxes(2, 3) if o.col_stride != "1" else x)
        for x, o in ((a, kernel.a), (b, kernel.b))
    ]
    c = np.full((g, h, m, n), np.nan, dtype)
    args = [*stored, bias, c, g, h, m, n, k]
    launch(rendered(kernel), kernel.name, args, order, G=g, H=h, M=m, N=n, K=k)
    found = compare(np.maximum(a @ b + bias, 0), c, chain=Chain(2, 2 * k, 1))
    assert found.agrees, str(found)


def test_nan_and_infinity_pass_through_and_do_not_spread() -> None:
    a, b = np.ones((1, 1, 66, 20), np.float32), np.ones((1, 1, 20, 66), np.float32)
    a[0, 0, 65, 3], b[0, 0, 7, 1] = np.nan, np.inf
    c, bias = np.full((1, 1, 66, 66), -1, np.float32), np.zeros(66, np.float32)
    args = [a, b, bias, c, 1, 1, 66, 66, 20]
    launch(render_gemm(SPECS[0]), SPECS[0].name, args, "forward", G=1, H=1, M=66, N=66, K=20)
    np.testing.assert_array_equal(c, a @ b)


def test_more_products_than_a_grid_has_blocks() -> None:
    kernel = spec()
    count = 65537
    a, b = np.arange(count, dtype=np.float32), np.full(count, 2, np.float32)
    c = np.full(count, np.nan, np.float32)
    args = [a, b, np.zeros(1, np.float32), c, count, 1, 1, 1, 1]
    launch(render_gemm(kernel), kernel.name, args, "forward", G=count, H=1, M=1, N=1, K=1)
    np.testing.assert_array_equal(c, 2 * a)


def test_prologues_replace_loads_and_literal_sizes_fold() -> None:
    kernel = CudaGemmSpec(
        name="quantized",
        ctype="float",
        parameters="const int8_t *x, const uint16_t *w, float *y, float scale",
        batch=(),
        m="70",
        n="5",
        k="17",
        a=Operand("x", "0", "17", "1"),
        b=Operand("w", "0", "1", "17"),
        prologue_a=lambda row, k: f"scale * x[{row} * 17 + {k}]",
        prologue_b=lambda k, col: f"fx_f32_from_bf16(w[{col} * 17 + {k}])",
        epilogue=lambda value, row, col: f"y[{row} * 5 + {col}] = {value};",
    )
    result = render_gemm(kernel)
    assert result.grid == ("2", "1", "1") and result.shmem == 0
    random = np.random.default_rng(0)
    x = random.integers(-128, 128, (70, 17)).astype(np.int8)
    w = random.integers(-8, 8, (5, 17)).astype(np.float32)
    y = np.full((70, 5), np.nan, np.float32)
    module = ShimModule('#include "prelude.cuh"\n#include "fx_math.h"\n' + result.text)
    args: list[Any] = [x, (w.view(np.uint32) >> 16).astype(np.uint16), y, 0.5]
    module.launch("quantized", (2, 1, 1), result.block, 0, args)
    np.testing.assert_array_equal(y, 0.5 * x.astype(np.float32) @ w.T)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiles_for_devices(arch: str) -> None:
    try:
        cubin = compile_cubin(SOURCE, arch)
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))
    used = cubin.kernels[SPECS[0].name]
    assert used.spill_stores == 0 and used.shared == 2 * 16 * 68 * 4
    assert set(cubin.kernels) == {kernel.name for kernel in ALL}


def test_text_is_fit_to_read() -> None:
    text = render_gemm(SPECS[0]).text
    head = "// relu(A @ B + bias)\n// [G,H,M,K] x [G,H,K,N] -> [G,H,M,N]\n"
    assert text.startswith(f"{head}// One block for each tile of 64 x 64 elements.\nextern")
    assert max(map(len, text.splitlines())) <= 100
    assert "for (int64_t batch = blockIdx.z; batch < G * H; batch += gridDim.z)" in text


def test_bad_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="'half' is neither"):
        render_gemm(spec("half"))
