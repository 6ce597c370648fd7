// scatter: (x: f32[N,C], i: i64[M,C], y: f32[M,C]) -> (f32[N,C])
// Made by fxlite from scatter.
#include "prelude.cuh"
#include "fx_math.h"

// where 0: node scatter_add: f32[N,C] = scatter_add (program.py:1)

// scatter_add: f32[N,C] = scatter_add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) scatter_k0_scatter_add_0(
    const float *__restrict__ x, float *__restrict__ scatter_add, int64_t C, int64_t N) {
    for (int64_t j = fx_thread_index(); j < C*N; j += fx_thread_count()) {
        scatter_add[j] = x[j];
    }
}

// scatter_add: f32[N,C] = scatter_add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) scatter_k0_scatter_add_1(
    const int64_t *__restrict__ i, const float *__restrict__ y, float *__restrict__ scatter_add,
    int64_t C, int64_t M, int64_t N, fx_error *error) {
    for (int64_t j = fx_thread_index(); j < C; j += fx_thread_count()) {
        for (int64_t k = 0; k < M; ++k) {
            const int64_t t0 = fx_index(i[k*C + j], N, 0, error);
            if (t0 >= 0) {
                scatter_add[t0*C + j] += y[k*C + j];
            }
        }
    }
}

// launch: scatter_k0_scatter_add_0<<<(fx_min((C*N + 255) / 256, 65535)), (256)>>>(x, scatter_add, C, N)
// launch: scatter_k0_scatter_add_1<<<(fx_min((C + 255) / 256, 65535)), (256)>>>(i, y, scatter_add, C, M, N, error)
