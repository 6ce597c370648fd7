// integers: (x: i32[N], y: u8[N]) -> (i32[N], u8[N])
// Made by fxlite from integers.
#include "prelude.cuh"
#include "fx_math.h"

// add_1: i32[N] = floor_divide -> remainder -> add -> clip -> add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) integers_k0_add_1(const int32_t *__restrict__ x,
    const uint8_t *__restrict__ y, int32_t *__restrict__ add_1, int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        const int32_t t0 = x[i];
        add_1[i] = fx_minimum_i32(fx_maximum_i32(fx_floordiv_i32(t0, 3) + fx_mod_i32(t0, 7), -5),
            300) + (int32_t)y[i];
    }
}

// bitwise_and: u8[N] = left_shift -> bitwise_and
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) integers_k1_bitwise_and(
    const uint8_t *__restrict__ y, uint8_t *__restrict__ bitwise_and, int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        bitwise_and[i] = fx_shl_u8(y[i], 2) & 63;
    }
}

// launch: integers_k0_add_1<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(x, y, add_1, N)
// launch: integers_k1_bitwise_and<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(y, bitwise_and, N)
