// named_sizes: (x: f32[B,N], y: f32[M,B*N]) -> (f32[M,B*N])
// Made by fxlite from named_sizes.
#include "prelude.cuh"
#include "fx_math.h"

// tanh: f32[B,N] = tanh
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) named_sizes_k0_tanh(const float *__restrict__ x,
    float *__restrict__ tanh, int64_t B, int64_t N) {
    for (int64_t i = fx_thread_index(); i < B*N; i += fx_thread_count()) {
        tanh[i] = fx_tanh_f32(x[i]);
    }
}

// exp: f32[M,B*N] = reshape -> add -> exp
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) named_sizes_k1_exp(
    const float *__restrict__ tanh, const float *__restrict__ y, float *__restrict__ exp,
    int64_t B, int64_t M, int64_t N) {
    for (int64_t element = fx_thread_index(); element < B*M*N; element += fx_thread_count()) {
        const int64_t j = element % (B*N);
        exp[element] = fx_exp_f32(tanh[j] + y[element]);
    }
}

// max: f32[B*N] = max
// program.py:2
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) named_sizes_k2_max(const float *__restrict__ exp,
    float *__restrict__ max, int64_t B, int64_t M, int64_t N) {
    for (int64_t i = fx_thread_index(); i < B*N; i += fx_thread_count()) {
        float total = -INFINITY;
        for (int64_t r = 0; r < M; ++r) {
            total = fx_maximum_f32(total, exp[r*B*N + i]);
        }
        max[i] = total;
    }
}

// div: f32[M,B*N] = div
// program.py:2
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) named_sizes_k3_div(const float *__restrict__ exp,
    const float *__restrict__ max, float *__restrict__ div, int64_t B, int64_t M, int64_t N) {
    for (int64_t element = fx_thread_index(); element < B*M*N; element += fx_thread_count()) {
        const int64_t j = element % (B*N);
        div[element] = exp[element] / max[j];
    }
}

// launch: named_sizes_k0_tanh<<<(fx_min((B*N + 255) / 256, 65535)), (256)>>>(x, tanh, B, N)
// launch: named_sizes_k1_exp<<<(fx_min((B*M*N + 255) / 256, 65535)), (256)>>>(tanh, y, exp, B, M, N)
// launch: named_sizes_k2_max<<<(fx_min((B*N + 255) / 256, 65535)), (256)>>>(exp, max, B, M, N)
// launch: named_sizes_k3_div<<<(fx_min((B*M*N + 255) / 256, 65535)), (256)>>>(exp, max, div, B, M, N)
