"""Hand-written CUDA kernels on the CPU shim both ways, and a GPU if there is one.

Each kernel is checked against NumPy in ascending and descending thread order, and compiled for
real devices by NVRTC. The second half checks that the shim reports misuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fxlite.codegen.runtime.cuda_device import CudaToolkitNotFound, compile_cubin
from fxlite.codegen.runtime.cuda_shim import ShimError, ShimModule
from fxlite.codegen.runtime.launcher import parse_kernels
from tests.cuda_launchers import launch_on_arrays, launcher, places

KERNELS = r"""
#include "prelude.cuh"
#include "fx_math.h"

// y += a * x, by a grid-stride loop.
extern "C" __global__ void saxpy(const float *__restrict__ x, float *__restrict__ y, float a,
                                 int64_t n) {
    for (int64_t i = fx_thread_index(); i < n; i += fx_thread_count()) y[i] += a * x[i];
}

// C[m, n] = A[m, k] @ B[k, n] with 16 x 16 tiles in shared memory.
extern "C" __global__ void __launch_bounds__(256) matmul(
    const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int m, int n,
    int k) {
    __shared__ float a_tile[16][17], b_tile[16][17];
    const int y = threadIdx.y, x = threadIdx.x;
    const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0;
    for (int begin = 0; begin < k; begin += 16) {
        a_tile[y][x] = row < m && begin + x < k ? a[row * k + begin + x] : 0;
        b_tile[y][x] = begin + y < k && col < n ? b[(begin + y) * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += a_tile[y][i] * b_tile[i][x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

// One sum per block, by shuffles within the warps and shared memory between them.
extern "C" __global__ void reduce(const float *__restrict__ x, float *__restrict__ sums,
                                  int64_t n) {
    __shared__ float partial[32];
    float sum = 0;
    for (int64_t i = fx_thread_index(); i < n; i += fx_thread_count()) sum += x[i];
    for (int delta = 16; delta > 0; delta /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, delta);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? partial[lane] : 0;
        for (int delta = 16; delta > 0; delta /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, delta);
        if (lane == 0) sums[blockIdx.x] = sum;
    }
}

// Softmax of each row; a row is kept in dynamic shared memory.
extern "C" __global__ void softmax(const float *__restrict__ x, float *__restrict__ y,
                                   int64_t columns) {
    FX_DYN_SHARED(float, row);
    const int64_t start = blockIdx.x * columns;
    float highest = -INFINITY;
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = x[start + i];
        highest = fx_max(highest, row[i]);
    }
    highest = fx_block_max(highest);
    float sum = 0;
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = expf(row[i] - highest);
        sum += row[i];
    }
    sum = fx_block_sum(sum);
    // Backwards, so that every thread reads what another one wrote: the barriers matter.
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x)
        y[start + columns - 1 - i] = row[columns - 1 - i] / sum;
}

// Rows of a table; the first bad index is reported, and its row is 0.
extern "C" __global__ void gather(const float *__restrict__ table,
                                  const int64_t *__restrict__ index, float *__restrict__ y,
                                  fx_error *__restrict__ error, int64_t rows, int64_t columns,
                                  int64_t n) {
    for (int64_t i = fx_thread_index(); i < n * columns; i += fx_thread_count()) {
        const int64_t row = fx_index(index[i / columns], rows, 3, error);
        y[i] = row >= 0 ? table[row * columns + i % columns] : 0;
    }
}

// The block reductions: sum, product, maximum, minimum of one value per thread.
extern "C" __global__ void block_reduce(const double *__restrict__ x, double *__restrict__ out) {
    const int thread = fx_thread_in_block();
    const double value = x[thread];
    const double sum = fx_block_sum(value), twice = fx_block_sum(2 * value);
    const double product = fx_block_product(value);
    const double high = fx_block_max(value), low = fx_block_min(value);
    // The last thread writes: every thread has the result.
    if (thread == fx_block_threads() - 1) {
        out[0] = sum;
        out[1] = product;
        out[2] = high;
        out[3] = low;
        out[4] = (double)fx_block_threads();
    }
    const double position = (double)fx_block_sum((int64_t)thread);
    out[5 + thread] = twice == 2 * sum ? position : -1.0;
}

// Warp collectives: prefix sums, votes, sub-warps, and a mask that leaves lanes out.
extern "C" __global__ void warp(const int *__restrict__ x, int *__restrict__ out) {
    const int lane = threadIdx.x;
    int prefix = x[lane];
    for (int delta = 1; delta < 32; delta *= 2) {
        const int below = __shfl_up_sync(0xffffffff, prefix, delta);
        if (lane >= delta) prefix += below;
    }
    out[lane] = prefix;
    out[32 + lane] = (int)__ballot_sync(0xffffffff, x[lane] > 0);
    out[64 + lane] = __any_sync(0xffffffff, x[lane] > 90) + 2 * __all_sync(0xffffffff, x[lane] > 0);
    out[96 + lane] = __shfl_sync(0xffffffff, x[lane], 1, 8);          // lane 1 of each 8
    out[128 + lane] = __shfl_down_sync(0xffffffff, x[lane], 1, 4);    // own at the end of each 4
    out[160 + lane] = fx_warp_max(x[lane]) - fx_warp_min(x[lane]) + fx_warp_sum(0);
    if (lane < 4) out[192 + lane] = __shfl_xor_sync(0xf, x[lane], 1);
    __syncwarp();
    if (lane >= 4)
        out[192 + lane] = (int)__shfl_sync(0xfffffff0, (long long)x[lane] << 32, 31) + lane;
}

// Atomics on integers and floats.
extern "C" __global__ void atomics(const int *__restrict__ x, int *__restrict__ counts,
                                   float *__restrict__ floats, int64_t n) {
    for (int64_t i = fx_thread_index(); i < n; i += fx_thread_count()) {
        atomicAdd(&counts[x[i] % 8], 1);
        atomicMax(&counts[8], x[i]);
        atomicMin(&counts[9], x[i]);
        if (atomicCAS(&counts[10], 0, 1) == 0) atomicAdd(&counts[11], 1);
        atomicAdd(&floats[0], 0.5f);
        fx_atomic_max(&floats[1], (float)x[i]);
        fx_atomic_min(&floats[2], (float)x[i]);
        fx_atomic_max(&floats[3], i == n / 2 ? NAN : (float)x[i]);
    }
}

// Where each thread is, in three dimensions.
extern "C" __global__ void positions(int *__restrict__ out) {
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int i = block * fx_block_threads() + fx_thread_in_block();
    out[i] = i + 1000000 * (int)threadIdx.z + 10000000 * (int)blockIdx.y;
}
"""

Run = Callable[[str, Any, Any, int, list[Any]], list[np.ndarray]]


@pytest.fixture(scope="module", params=places())
def run(request: pytest.FixtureRequest) -> Run:
    """Launch with arrays in place of pointers; copies of the arrays are returned as the kernel left
    them."""
    module = launcher(KERNELS, request.param)

    def call(kernel: str, grid: Any, block: Any, shmem: int, args: list[Any]) -> list[np.ndarray]:
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        launch_on_arrays(module, kernel, grid, block, given, shmem)
        return [a for a in given if isinstance(a, np.ndarray)]

    return call


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 33, 5000])
def test_saxpy_grid_stride(run: Run, n: int) -> None:
    x, y = uniform(n), uniform(n, 1)[:, 0]
    _, result = run("saxpy", (4,), (96,), 0, [x, y, 2.5, n])
    np.testing.assert_allclose(result, y + np.float32(2.5) * x, rtol=1e-6, atol=1e-6)


def test_empty_grid_runs_nothing(run: Run) -> None:
    y = uniform(8)
    np.testing.assert_array_equal(run("saxpy", (0,), (32,), 0, [y, y, 1.0, 8])[1], y)


@pytest.mark.parametrize("m, n, k", [(16, 16, 16), (33, 17, 20), (1, 50, 3), (40, 1, 0)])
def test_tiled_matmul(run: Run, m: int, n: int, k: int) -> None:
    a, b = uniform(m, k), uniform(k, n)
    grid = ((n + 15) // 16, (m + 15) // 16)
    c = run("matmul", grid, (16, 16), 0, [a, b, np.full((m, n), np.nan, "f"), m, n, k])[2]
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block", [32, 256, 1024])
def test_shuffle_reduction(run: Run, block: int) -> None:
    x = uniform(10000)
    sums = run("reduce", (3,), (block,), 0, [x, np.full(3, np.nan, "f"), x.size])[1]
    np.testing.assert_allclose(sums.sum(), x.sum(dtype=np.float64), atol=1e-3)


@pytest.mark.parametrize("block", [32, 40, 96, 256])
@pytest.mark.parametrize("columns", [1, 31, 500])
def test_row_softmax_in_dynamic_shared_memory(run: Run, block: int, columns: int) -> None:
    x = uniform(5, columns) * 20
    x[1, columns // 2] = np.nan
    x[2, 0] = np.inf
    with np.errstate(invalid="ignore"):
        shifted = np.exp(x - x.max(axis=1, keepdims=True))
        expected = shifted / shifted.sum(axis=1, keepdims=True)
    args = [x, np.full_like(x, -1), columns]
    result = run("softmax", (5,), (block,), 4 * columns, args)[1]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-7)


def test_dynamic_shared_memory_beyond_48_kilobytes(run: Run) -> None:
    columns = 15000
    x = uniform(2, columns)
    result = run("softmax", (2,), (256,), 4 * columns, [x, np.full_like(x, -1), columns])[1]
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-4)


def test_gather_counts_from_the_end_and_flags_bad_indices(run: Run) -> None:
    table, error = uniform(7, 3), np.zeros(4, np.int64)
    index = np.array([0, 6, -1, -7, 3])
    _, _, rows, flag = run("gather", (2,), (32,), 0, [table, index, np.full((5, 3), np.nan, "f"), error, 7, 3, 5])
    np.testing.assert_array_equal(rows, table[index])
    assert list(flag) == [0, 0, 0, 0]
    for bad in (7, -8, 2**40):
        index[2] = bad
        _, _, rows, flag = run("gather", (2,), (32,), 0, [table, index, np.full((5, 3), np.nan, "f"), error, 7, 3, 5])
        assert list(flag) == [1, bad, 7, 3]  # fx_error: code, value, limit, where
        np.testing.assert_array_equal(rows[[0, 1, 3, 4]], table[index[[0, 1, 3, 4]]])


@pytest.mark.parametrize("block", [(1,), (20,), (64,), (100,), (16, 4, 3), (1024,)])
def test_block_reductions(run: Run, block: tuple[int, ...]) -> None:
    threads = int(np.prod(block))
    x = np.random.default_rng(threads).uniform(0.5, 1.5, threads)
    out = run("block_reduce", (1,), block, 0, [x, np.full(5 + threads, np.nan)])[1]
    expected = [x.sum(), x.prod(), x.max(), x.min(), threads]
    np.testing.assert_allclose(out[:5], expected, rtol=1e-12)
    np.testing.assert_array_equal(out[5:], np.full(threads, threads * (threads - 1) // 2))


@pytest.mark.parametrize("where", [0, 31, 69])
def test_block_reductions_pass_nan_on(run: Run, where: int) -> None:
    x = np.ones(70)
    x[where] = np.nan
    assert np.isnan(run("block_reduce", (1,), (70,), 0, [x, np.zeros(75)])[1][:4]).all()


def test_block_reductions_do_not_depend_on_the_order() -> None:
    x = np.random.default_rng(0).standard_normal(1000) * 1e10
    results = []
    for order in ("forward", "backward"):
        out = np.zeros(5 + x.size)
        ShimModule(KERNELS, order=order).launch("block_reduce", (1,), (1000,), 0, [x, out])
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])


def test_warp_collectives(run: Run) -> None:
    x = np.random.default_rng(5).integers(-100, 100, 32).astype(np.int32)
    out = run("warp", (1,), (32,), 0, [x, np.zeros(224, np.int32)])[1].reshape(7, 32)
    votes = int(np.sum((x > 0) * (1 << np.arange(32, dtype=np.uint64))))
    shifted = np.where(np.arange(32) % 4 == 3, x, np.roll(x, -1))
    np.testing.assert_array_equal(out[0], np.cumsum(x))
    np.testing.assert_array_equal(out[1].view(np.uint32), np.full(32, votes))
    np.testing.assert_array_equal(out[2], np.full(32, (x > 90).any() + 2 * (x > 0).all()))
    np.testing.assert_array_equal(out[3], np.repeat(x.reshape(4, 8)[:, 1], 8))
    np.testing.assert_array_equal(out[4], shifted)
    np.testing.assert_array_equal(out[5], np.full(32, np.ptp(x)))
    np.testing.assert_array_equal(out[6], [x[1], x[0], x[3], x[2], *range(4, 32)])


def test_atomics(run: Run) -> None:
    x = np.random.default_rng(1).integers(0, 1000, 3000).astype(np.int32)
    counts = np.zeros(12, np.int32)
    counts[9] = 10**6
    floats = np.array([0, -np.inf, np.inf, 0], np.float32)
    _, counts, floats = run("atomics", (3,), (128,), 0, [x, counts, floats, x.size])
    np.testing.assert_array_equal(counts[:8], np.bincount(x % 8, minlength=8))
    assert list(counts[8:]) == [x.max(), x.min(), 1, 1]
    np.testing.assert_array_equal(floats, [x.size / 2, x.max(), x.min(), np.nan])


def test_positions_in_three_dimensions(run: Run) -> None:
    out = run("positions", (2, 3, 2), (5, 4, 2), 0, [np.zeros(480, np.int32)])[0]
    i = np.arange(480)
    np.testing.assert_array_equal(out, i + 1000000 * (i // 20 % 2) + 10000000 * (i // 80 % 3))


def test_portable_fibers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    x = uniform(2000)
    module = ShimModule(KERNELS, flags=["-DFX_SHIM_UCONTEXT"])
    sums = np.full(2, np.nan, np.float32)
    module.launch("reduce", (2,), (64,), 0, [x, sums, x.size])
    expected = np.full(2, np.nan, np.float32)
    ShimModule(KERNELS).launch("reduce", (2,), (64,), 0, [x, expected, x.size])
    np.testing.assert_array_equal(sums, expected)


# ---- The scalar functions of fx_math.h, as CUDA, against NumPy -----------------------------------

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, -7.5, 3.0, 1e30, -1e-30, np.inf, -np.inf, np.nan]
SCALARS: dict[str, tuple[str, str, Any]] = {
    # name: (C expression of a and b, C type, NumPy function)
    "max_f": ("fx_max(a, b)", "float", np.maximum),
    "min_f": ("fx_min(a, b)", "float", np.minimum),
    "max_d": ("fx_max(a, b)", "double", np.maximum),
    "min_i": ("fx_min(a, b)", "int64_t", np.minimum),
    "floor_divide_f": ("fx_floordiv_f32(a, b)", "float", np.floor_divide),
    "floor_divide_d": ("fx_floordiv_f64(a, b)", "double", np.floor_divide),
    "floor_divide_b": ("fx_floordiv_i8(a, b)", "int8_t", np.floor_divide),
    "floor_divide_i": ("fx_floordiv_i32(a, b)", "int32_t", np.floor_divide),
    "floor_divide_l": ("fx_floordiv_i64(a, b)", "int64_t", np.floor_divide),
    "floor_divide_u": ("fx_floordiv_u8(a, b)", "uint8_t", np.floor_divide),
    "remainder_f": ("fx_mod_f32(a, b)", "float", np.remainder),
    "remainder_d": ("fx_mod_f64(a, b)", "double", np.remainder),
    "remainder_i": ("fx_mod_i32(a, b)", "int32_t", np.remainder),
    "remainder_l": ("fx_mod_i64(a, b)", "int64_t", np.remainder),
    "sign_f": ("fx_sign_f32(a)", "float", lambda a, b: np.sign(a)),
    "sign_i": ("fx_sign_i32(a)", "int32_t", lambda a, b: np.sign(a)),
    "power_i": ("fx_pow_i32(a, (int32_t)(b & 7))", "int32_t", lambda a, b: a ** (b & 7)),
    "shl_i": ("fx_shl_i32(a, b)", "int32_t", np.left_shift),
    "shr_i": ("fx_shr_i32(a, b)", "int32_t", np.right_shift),
    "shr_u": ("fx_shr_u8(a, b)", "uint8_t", np.right_shift),
}
NUMPY_TYPES = {"float": np.float32, "double": np.float64}
SCALAR_KERNELS = (
    '#include "prelude.cuh"\n#include "fx_math.h"\n'
    + "".join(
        f'extern "C" __global__ void {name}(const {c} *x, const {c} *y, {c} *z, int n) {{\n'
        f"    for (int i = (int)fx_thread_index(); i < n; i += (int)fx_thread_count()) {{\n"
        f"        const {c} a = x[i], b = y[i];\n        z[i] = {text};\n    }}\n}}\n"
        for name, (text, c, _) in SCALARS.items()
    )
    + r"""
extern "C" __global__ void widen(const uint16_t *half, const uint16_t *bfloat, float *from_half,
                                 float *from_bfloat, int n) {
    for (int i = (int)fx_thread_index(); i < n; i += (int)fx_thread_count()) {
        from_half[i] = fx_f32_from_f16(half[i]);
        from_bfloat[i] = fx_f32_from_bf16(bfloat[i]);
    }
}
extern "C" __global__ void narrow(const float *x, uint16_t *half, uint16_t *bfloat, int n) {
    for (int i = (int)fx_thread_index(); i < n; i += (int)fx_thread_count()) {
        half[i] = fx_f16_from_f32(x[i]);
        bfloat[i] = fx_bf16_from_f32(x[i]);
    }
}
"""
)


@pytest.mark.parametrize("name", SCALARS)
def test_scalar_functions_are_numpys(name: str) -> None:
    _, c, function = SCALARS[name]
    dtype: Any = NUMPY_TYPES.get(c) or np.dtype(c.removesuffix("_t"))
    if c in NUMPY_TYPES:
        values = np.array(FLOATS, dtype)
    else:
        limits = np.iinfo(dtype)
        values = np.array([0, 1, 2, 3, 7, 31, 32, 33, limits.max, limits.min], dtype)
        if limits.min < 0:
            values = np.concatenate([values, np.array([-1, -2, -3, -7, -64], dtype)])
    a, b = (np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(values, values))
    result = np.full(a.shape, 77, dtype)
    launch_on_arrays(launcher(SCALAR_KERNELS, places()[-1]), name, (2,), (32,), [a, b, result, a.size])
    with np.errstate(all="ignore"):
        expected = function(a, b)
    assert expected.dtype == dtype
    np.testing.assert_array_equal(result, expected)
    if c in NUMPY_TYPES and not name.startswith(("max", "min")):
        zero = expected == 0  # the sign of zero, too
        np.testing.assert_array_equal(np.signbit(result[zero]), np.signbit(expected[zero]))


def bfloat_bits(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 by brute force: one of the two neighbours, ties to the even one."""
    low = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.int64)
    candidates = np.stack([low - 1, low, low + 1])
    values = (candidates.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    distance = np.abs(values - x.astype(np.float64))
    best = distance == distance.min(axis=0)
    even = np.where(best, candidates + (candidates % 2) * 2**20, 2**40).min(axis=0)
    result: np.ndarray = (even % 2**20).astype(np.uint16)
    return result


def test_every_16_bit_float_widens() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    from_half, from_bfloat = np.zeros((2, 65536), np.float32)
    arguments = [bits, bits, from_half, from_bfloat, 65536]
    launch_on_arrays(launcher(SCALAR_KERNELS, places()[-1]), "widen", (4,), (256,), arguments)
    np.testing.assert_array_equal(from_half, bits.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(from_bfloat, (bits.astype(np.uint32) << 16).view(np.float32))


def test_narrowing_rounds_to_nearest_even() -> None:
    random = np.random.default_rng(3)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    ties = (halves[:-1] + halves[1:]) / 2
    doubles = np.concatenate([halves, ties, np.nextafter(ties, 0), np.nextafter(ties, 1e9), random.normal(size=4000)])
    doubles = np.concatenate([doubles, -doubles, [65519.99, 65520.0, 1e-9, 3e38, 1e-300]])
    specials = np.array([np.inf, -np.inf, np.nan, 1e39, -1e300])
    with np.errstate(over="ignore"):
        floats = np.concatenate([doubles, specials]).astype(np.float32)
        half = floats.astype(np.float16)
    out = [np.zeros(floats.shape, np.uint16) for _ in range(2)]
    module = launcher(SCALAR_KERNELS, places()[-1])
    launch_on_arrays(module, "narrow", (4,), (256,), [floats, *out, floats.size])
    np.testing.assert_array_equal(out[0].view(np.float16), half)
    finite = (np.abs(floats) < 1e38) & (floats != 0)
    np.testing.assert_array_equal(out[1][finite], bfloat_bits(floats[finite]))
    assert list(out[1][-5:]) == [0x7F80, 0xFF80, 0x7FC0, 0x7F80, 0xFF80]


# ---- The same text on real devices ---------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("source", [KERNELS, SCALAR_KERNELS], ids=["kernels", "scalars"])
def test_compiles_for_devices(source: str, arch: str) -> None:
    try:
        cubin = compile_cubin(source, arch)
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))
    assert set(cubin.kernels) == set(parse_kernels(source))
    assert all(used.spill_stores == 0 for used in cubin.kernels.values())


# ---- Misuse --------------------------------------------------------------------------------------


def kernel_text(name: str, body: str) -> str:
    """A kernel whose body starts in line 10."""
    head = f'extern "C" __global__ void {name}(float *out, int n) {{ const int t = threadIdx.x;'
    return f'#line 9 "misuse.cu"\n{head}\n{body}\n}}\n'


def both_ways(module: ShimModule, kernel: str, n: int = 256, grid: int = 1) -> list[Any]:
    """Run a kernel forward and backward: each result is an array or the error's text."""
    results: list[Any] = []
    for order in ("forward", "backward"):
        out = module.alloc(4 * n)
        try:
            module.launch(kernel, (grid,), (64,), 256, [out, n], order)
            results.append(module.download(out, (n,), np.float32))
        except ShimError as error:
            results.append(str(error))
    return results


MISUSE = {
    "returned": ("if (t < 40)\n__syncthreads();", "barrier: .* at misuse.cu:11, .* has returned"),
    "two_barriers": (
        "if (t < 40) __syncthreads();\nelse __syncthreads();",
        r"barrier: .* misuse.cu:1[01], but thread \(\d+,0,0\) waits at .* misuse.cu:1[01]",
    ),
    "block_sum": ("if (t >= 32) return;\nfx_block_sum(1.0f);", "divergent barrier: .* prelude.cuh:.* returned"),
    "caller_not_in_mask": (
        "if (t >= 8) __shfl_sync(0xff, t, 0);",
        r"lane \d+ of warp [01] calls it with mask 0x000000ff, which leaves it out",
    ),
    "source_not_in_mask": (
        "if (t < 8) __shfl_sync(0xff, t, 9);",
        "lane 0 of warp 0 reads lane 9, which is not in the mask",
    ),
    "source_returned": (
        "if (t == 3) return;\nout[t] = __shfl_sync(0xffffffff, t, 3);",
        "reads lane 3, which has returned",
    ),
    "lane_at_barrier": (
        "if (t != 3) __syncwarp();\nelse __syncthreads();",
        "never completes: .* at __syncwarp at misuse.cu:10 .* lane 3 is at __syncthreads at misuse.cu:11",
    ),
    "two_collectives": (
        "if (t % 2) __syncwarp();\nelse __ballot_sync(0xffffffff, 1);",
        "never completes: lane 0 of warp 0 waits at __ballot_sync at misuse.cu:11 with mask "
        "0xffffffff, but lane 1 is at __syncwarp at misuse.cu:10",
    ),
    "past_shared": (
        "FX_DYN_SHARED(float, s);\nif (t == 0) s[64] = 1;",
        "wrote past its 256 bytes of dynamic shared memory",
    ),
    "past_buffer": ("out[n + t % 4] = 1;", "wrote outside the 1024 bytes of out"),
    "before_buffer": ("out[-1 - t % 4] = 1;", "wrote outside the 1024 bytes of out"),
    "trap": ("if (t == 7) __trap();", r"thread \(7,0,0\): __trap at misuse.cu:10"),
    "stack": (
        "volatile char local[66000];\nfor (int i = 0; i < 66000; ++i) local[i] = (char)i;",
        "overflowed its stack",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_reported(name: str) -> None:
    kernels = [kernel_text(name, body) for name, (body, _) in MISUSE.items()]
    module = ShimModule('#include "prelude.cuh"\n' + "".join(kernels))
    for result in both_ways(module, name):
        assert isinstance(result, str), "no error was reported"
        assert re.search(MISUSE[name][1], result), result


BARRIERS = {
    "lanes_that_left": ("if (t % 2) return;\nout[t] = __shfl_sync(0xffffffff, (float)t, t & ~3);"),
    "reverse": "__shared__ float s[64];\ns[t] = t;\n__syncthreads();\nout[t] = s[63 - t];",
    "reverse_without": "__shared__ float s[64];\ns[t] = t;\nout[t] = s[63 - t];",
    "turns": """
        __shared__ float s[64];
        float sum = 0;
        for (int turn = 1; turn <= 3; ++turn) {
            s[t] = turn;
            __syncthreads();
            sum += s[63 - t];
            __syncthreads();
        }
        out[t] = sum;""",
    "turns_without": """
        __shared__ float s[64];
        float sum = 0;
        for (int turn = 1; turn <= 3; ++turn) {
            s[t] = turn;
            __syncthreads();
            sum += s[63 - t];
        }
        out[t] = sum;""",
    "static_uninitialized": "__shared__ float s[64];\nout[t] = s[t];\ns[t] = 1;",
    "dynamic_uninitialized": "FX_DYN_SHARED(float, s);\nout[t] = s[t];\ns[t] = 1;",
    "tickets": "out[t] = atomicAdd(out + n, 1.0f);\n__syncthreads();\nout[64 + t] = atomicAdd(out + n, 1.0f);",
    "sometimes_divergent": "if (t >= n) __syncthreads();\nout[t] = fx_block_sum(1.0f);",
}


@pytest.fixture(scope="module")
def barriers() -> ShimModule:
    kernels = [kernel_text(name, body) for name, body in BARRIERS.items()]
    return ShimModule('#include "prelude.cuh"\n' + "".join(kernels))


def test_returned_lanes_are_not_waited_for(barriers: ShimModule) -> None:
    for result in both_ways(barriers, "lanes_that_left", n=64):
        assert list(result[:12:2]) == [0, 0, 4, 4, 8, 8]


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_threads_run_in_the_order_asked_for(barriers: ShimModule, order: Any) -> None:
    out = np.zeros(129, np.float32)
    barriers.launch("tickets", (1,), (64,), 0, [out, 128], order)
    step = 1 if order == "forward" else -1
    np.testing.assert_array_equal(out[:64], np.arange(64)[::step])
    np.testing.assert_array_equal(out[64:128], np.arange(64, 128)[::step])


def test_missing_barrier_shows(barriers: ShimModule) -> None:
    for result in both_ways(barriers, "reverse", n=64):
        np.testing.assert_array_equal(result, np.arange(63, -1, -1))
    for result in both_ways(barriers, "reverse_without", n=64):
        assert np.isnan(result).any()


def test_missing_barrier_before_the_next_turn_shows(barriers: ShimModule) -> None:
    for result in both_ways(barriers, "turns", n=64):
        np.testing.assert_array_equal(result, np.full(64, 6))
    for result in both_ways(barriers, "turns_without", n=64):
        assert (result != 6).any()


@pytest.mark.parametrize("kernel", ["static_uninitialized", "dynamic_uninitialized"])
def test_shared_memory_starts_every_block_as_nan(barriers: ShimModule, kernel: str) -> None:
    for result in both_ways(barriers, kernel, n=64, grid=8):
        assert np.isnan(result).all()


def test_a_module_works_on_after_an_error(barriers: ShimModule) -> None:
    for _ in range(3):
        out = np.zeros(64, np.float32)
        with pytest.raises(ShimError, match="divergent"):
            barriers.launch("sometimes_divergent", (1,), (64,), 0, [out, 32])
        barriers.launch("sometimes_divergent", (1,), (64,), 0, [out, 64])
        np.testing.assert_array_equal(out, np.full(64, 64))


@pytest.mark.parametrize(
    "grid, block, shmem, message",
    [
        ((1,), (1025,), 0, "invalid block"),
        ((1,), (1, 1, 65), 0, "invalid block"),
        ((1,), (0,), 0, "invalid block"),
        ((1, 65536), (1,), 0, "not one to three sizes of .2147483647, 65535, 65535. at most"),
        ((1,), (1,), 240000, "dynamic shared memory"),
    ],
)
def test_launches_beyond_a_gpu_are_refused(grid: Any, block: Any, shmem: int, message: str) -> None:
    with pytest.raises((ShimError, ValueError), match=message):
        ShimModule(KERNELS).launch("positions", grid, block, shmem, [np.zeros(1, np.int32)])


def test_arguments_are_checked() -> None:
    module, x = ShimModule(KERNELS), np.zeros(4, np.float32)
    cases: list[tuple[type[Exception], str, list[Any]]] = [
        (TypeError, "takes 4 arguments, not 3", [x, x, 1.0]),
        (TypeError, r"argument n \(int64_t\) takes an integer, not float", [x, x, 1.0, 4.0]),
        (TypeError, "argument a .* takes a number", [x, x, "1", 4]),
        (TypeError, "pointer x takes a buffer, not int", [4, x, 1.0, 4]),
        (TypeError, "array y is not C-contiguous", [x, np.zeros((4, 2), "f")[:, 0], 1.0, 4]),
        (OverflowError, "cannot hold", [x, x, 1.0, 2**63]),
    ]
    for error, message, args in cases:
        with pytest.raises(error, match=message):
            module.launch("saxpy", (1,), (4,), 0, args)
    with pytest.raises(ValueError, match="order"):
        module.launch("saxpy", (1,), (4,), 0, [x, x, 1.0, 4], order="sideways")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="grid"):
        module.launch("saxpy", (-1,), (4,), 0, [x, x, 1.0, 4])


def test_buffers() -> None:
    module = ShimModule(KERNELS)
    buffer = module.upload(np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(module.download(buffer, (3, 2), np.float64), [[0, 3], [1, 4], [2, 5]])
    assert module.upload(np.zeros(6), into=buffer) is buffer
    assert not module.download(buffer, (6,), np.float64).any()
    assert np.isnan(module.download(module.alloc(8), (1,), np.float64))
    assert module.download(module.upload(np.zeros((0, 3))), (0, 3), np.float64).shape == (0, 3)
    with pytest.raises(ValueError, match="40 bytes do not fit a buffer of 48"):
        module.upload(np.zeros(5), into=buffer)
    with pytest.raises(ValueError, match="has 8 bytes, the buffer 48"):
        module.download(buffer, (1,), np.float64)
    module.free(buffer)
    with pytest.raises(ShimError, match="after free"):
        module.download(buffer, (6,), np.float64)


def test_compile_errors_name_the_line() -> None:
    with pytest.raises(ShimError, match=r"broken.cu:2:.*undeclared_name"):
        ShimModule('extern "C" __global__ void f(int n) {\n    n = undeclared_name;\n}', name="broken.cu")


def test_float_atomic_maximum_is_an_error_as_in_cuda() -> None:
    with pytest.raises(ShimError, match="atomicMax takes integers"):
        ShimModule('extern "C" __global__ void f(float *x) { atomicMax(x, 1.0f); }')


def test_builds_are_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    source = 'extern "C" __global__ void f(int *x) { *x = 4; }'
    path = ShimModule(source).path
    stamp = path.stat().st_mtime_ns
    assert ShimModule(source).path == path and path.stat().st_mtime_ns == stamp
    assert ShimModule(source.replace("4", "5")).path != path
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".so", ".so"]


def test_what_kernels_share_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By g++, which keeps what it has parsed, and the shim's functions; where that is missing it costs time, and
    nothing else."""
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    head = '#include "prelude.cuh"\n#include "fx_math.h"\n'
    source = head + 'extern "C" __global__ void f(float *x) { *x = fx_exp_f32(*x); }'
    folder = ShimModule(source).path.parent
    (parsed,), (library,) = folder.glob("*.gch"), folder.glob("*.o")
    assert parsed.stat().st_size > 1e6
    stamp = parsed.stat().st_mtime_ns
    parsed.with_suffix("").write_text("#error not parsed before\n")
    ShimModule(source.replace("exp", "tanh"))
    assert [p.stat().st_mtime_ns for p in folder.glob("*.gch")] == [stamp]
    library.unlink()
    ShimModule(source.replace("exp", "sigmoid"))
    parsed.with_suffix("").unlink()
    ShimModule(source.replace("exp", "erf"))


def test_contraction_can_be_switched_off() -> None:
    source = 'extern "C" __global__ void f(const float *x, float *y) { *y = x[0] * x[1] + x[2]; }'
    a = np.float32(1 + 2**-12)
    x = np.array([a, a, -(a * a)], np.float32)
    exact, fused = np.ones(1, np.float32), np.ones(1, np.float32)
    ShimModule(source, contract=False).launch("f", (1,), (1,), 0, [x, exact])
    ShimModule(source, flags=["-O2", "-mfma"]).launch("f", (1,), (1,), 0, [x, fused])
    assert exact == 0 and fused == np.float32(2**-24)


def test_parse_kernels() -> None:
    source = """
    // extern "C" __global__ void commented(int n) {}
    extern "C" __global__ void __launch_bounds__(256, 2) first(const float *__restrict__ x,
        const int64_t n, unsigned long long flags /* a comment */, fx_float16 *y) {}
    extern "C" __global__ void second() {}
    __device__ int helper(int n) { return n; }
    """
    kernels = parse_kernels(source)
    assert list(kernels) == ["first", "second"]
    assert [(p.name, p.type) for p in kernels["first"].parameters] == [
        ("x", "const float *"),
        ("n", "int64_t"),
        ("flags", "unsigned long long"),
        ("y", "fx_float16 *"),
    ]
    assert kernels["second"].parameters == ()
    assert str(kernels["first"]).startswith("first(const float * x, int64_t n")
    assert list(parse_kernels(source, ["second"])) == ["second"]
    with pytest.raises(ValueError, match=r"no kernel .*third.* defines first, second"):
        parse_kernels(source, ["third"])
    with pytest.raises(ValueError, match="parameter 'float4 v' is neither"):
        parse_kernels('extern "C" __global__ void f(float4 v) {}')
