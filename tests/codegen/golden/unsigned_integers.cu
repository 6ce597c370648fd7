// unsigned_integers: (x: u64[N], y: u16[N], z: i64[N]) -> (u64[N], u16[N], bool[N], bool[N])
// Made by fxlite from unsigned_integers.
#include "prelude.cuh"
#include "fx_math.h"

// add: u64[N] = sub -> floor_divide -> mul -> add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) unsigned_integers_k0_add(
    const uint64_t *__restrict__ x, const uint16_t *__restrict__ y, uint64_t *__restrict__ add,
    int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        add[i] = fx_floordiv_u64(x[i] - 1ULL, 3ULL) + (uint64_t)(uint16_t)(y[i] * 70);
    }
}

// mul_1: u16[N] = neg -> mul
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) unsigned_integers_k1_mul_1(
    const uint16_t *__restrict__ y, uint16_t *__restrict__ mul_1, int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        const uint16_t t0 = y[i];
        mul_1[i] = (uint16_t)((uint16_t)(-t0) * t0);
    }
}

// lt: bool[N] = lt
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) unsigned_integers_k2_lt(
    const uint64_t *__restrict__ x, const int64_t *__restrict__ z, unsigned char *__restrict__ lt,
    int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        const int64_t t0 = z[i];
        const uint64_t t1 = x[i];
        lt[i] = t0 < 0 ? false : t1 < (uint64_t)t0;
    }
}

// gt: bool[N] = gt
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) unsigned_integers_k3_gt(
    const uint64_t *__restrict__ x, unsigned char *__restrict__ gt, int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        gt[i] = x[i] > 9223372036854775808ULL;
    }
}

// launch: unsigned_integers_k0_add<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(x, y, add, N)
// launch: unsigned_integers_k1_mul_1<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(y, mul_1, N)
// launch: unsigned_integers_k2_lt<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(x, z, lt, N)
// launch: unsigned_integers_k3_gt<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(x, gt, N)
