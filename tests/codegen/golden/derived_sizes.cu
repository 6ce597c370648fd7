// derived_sizes: (x: f32[B,2*N+1]) -> (f32[2*B,N])
// Made by fxlite from derived_sizes.
#include "prelude.cuh"
#include "fx_math.h"

// mul: f32[2*B,N] = concat -> slice -> mul
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) derived_sizes_k0_mul(const float *__restrict__ x,
    float *__restrict__ mul, int64_t B, int64_t N) {
    for (int64_t element = fx_thread_index(); element < B*N*2; element += fx_thread_count()) {
        const int64_t i = element / N;
        const int64_t j = element % N;
        const bool t0 = i < B;
        mul[element] = (t0 ? x[(i*N + j)*2 + i + 1]
            : (B - 1 < i ? x[((i - B)*N + j)*2 + i - B + 1] : 0)) * 0.5f;
    }
}

// launch: derived_sizes_k0_mul<<<(fx_min((B*N*2 + 255) / 256, 65535)), (256)>>>(x, mul, B, N)
