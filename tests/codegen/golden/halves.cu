// halves: (x: f16[N], y: bf16[N]) -> (f32[N], bf16[N])
// Made by fxlite from halves.
#include "prelude.cuh"
#include "fx_math.h"

// cast_1: f32[N] = mul -> cast -> add -> cast
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) halves_k0_cast_1(const uint16_t *__restrict__ x,
    const uint16_t *__restrict__ y, float *__restrict__ cast_1, int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        cast_1[i] =
            fx_f32_from_f16(fx_f16_from_f32(fx_f32_from_f16(fx_f16_from_f32(fx_f32_from_f16(x[i])
            * 3.0f)) + fx_f32_from_f16(fx_f16_from_f32(fx_f32_from_bf16(y[i])))));
    }
}

// exp: bf16[N] = exp
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) halves_k1_exp(const uint16_t *__restrict__ y,
    uint16_t *__restrict__ exp, int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        exp[i] = fx_bf16_from_f32(fx_exp_f32(fx_f32_from_bf16(y[i])));
    }
}

// launch: halves_k0_cast_1<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(x, y, cast_1, N)
// launch: halves_k1_exp<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(y, exp, N)
