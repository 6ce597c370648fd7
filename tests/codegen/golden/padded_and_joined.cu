// padded_and_joined: (x: f32[B,8], y: f32[B,N]) -> (f32[B,N+11])
// Made by fxlite from padded_and_joined.
#include "prelude.cuh"
#include "fx_math.h"

// add: f32[B,N+11] = pad -> flip -> concat -> add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) padded_and_joined_k0_add(
    const float *__restrict__ y, const float *__restrict__ x, float *__restrict__ add, int64_t B,
    int64_t N) {
    for (int64_t element = fx_thread_index(); element < (N + 11)*B; element += fx_thread_count()) {
        const int64_t i = element / (N + 11);
        const int64_t j = element % (N + 11);
        const bool t0 = j < 11;
        add[element] = (t0 ? (t0 && (j - 1 >= 0 && j - 1 < 8) ? x[i*8 + j - 1] : 0)
            : (10 < j ? y[i*N + N - j + 10] : 0)) + 1.0f;
    }
}

// launch: padded_and_joined_k0_add<<<(fx_min((B*11 + B*N + 255) / 256, 65535)), (256)>>>(y, x, add, B, N)
