// cumsum: (x: f32[B,N]) -> (f32[B,N])
// Made by fxlite from cumsum.
#include "prelude.cuh"
#include "fx_math.h"

// cumsum: f32[B,N] = cumsum
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) cumsum_k0_cumsum(const float *__restrict__ x,
    float *__restrict__ cumsum, int64_t B, int64_t N) {
    for (int64_t i = fx_thread_index(); i < B; i += fx_thread_count()) {
        float total = 0.0f;
        for (int64_t r = 0; r < N; ++r) {
            total += x[i*N + r];
            cumsum[i*N + r] = total;
        }
    }
}

// launch: cumsum_k0_cumsum<<<(fx_min((B + 255) / 256, 65535)), (256)>>>(x, cumsum, B, N)
