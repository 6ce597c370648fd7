// broadcast: (x: f32[B,3,1], y: f32[B,1,N]) -> (f32[B,3,N])
// Made by fxlite from broadcast.
#include "prelude.cuh"
#include "fx_math.h"

// add: f32[B,3,N] = exp -> gt -> mul -> where -> add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) broadcast_k0_add(const float *__restrict__ x,
    const float *__restrict__ y, float *__restrict__ add, int64_t B, int64_t N) {
    for (int64_t element = fx_thread_index(); element < B*N*3; element += fx_thread_count()) {
        const int64_t i = element / (N*3);
        const int64_t j = (element / N) % 3;
        const int64_t k = element % N;
        const float exp = fx_exp_f32(x[i*3 + j]);
        const float t0 = y[i*N + k];
        add[element] = exp + (t0 > 0.0f ? t0 : 2.0f * t0);
    }
}

// launch: broadcast_k0_add<<<(fx_min((B*N*3 + 255) / 256, 65535)), (256)>>>(x, y, add, B, N)
