// pointwise: (x: f32[B,N], y: f32[N]) -> (f32[B,N])
// Made by fxlite from pointwise.
#include "prelude.cuh"
#include "fx_math.h"

// add: f32[B,N] = tanh -> mul -> add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) pointwise_k0_add(const float *__restrict__ x,
    const float *__restrict__ y, float *__restrict__ add, int64_t B, int64_t N) {
    for (int64_t element = fx_thread_index(); element < B*N; element += fx_thread_count()) {
        const int64_t j = element % N;
        add[element] = fx_tanh_f32(x[element]) * y[j] + 1.0f;
    }
}

// launch: pointwise_k0_add<<<(fx_min((B*N + 255) / 256, 65535)), (256)>>>(x, y, add, B, N)
