// gather: (i: i64[N]) -> (f32[N,4])
// Made by fxlite from gather.
#include "prelude.cuh"
#include "fx_math.h"

// where 0: take along axis 0

// sub: f32[N,4] = take -> mean -> sub
// program.py:1
// program.py:2
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) gather_k0_sub(const int64_t *__restrict__ i,
    const float *__restrict__ table, float *__restrict__ sub, int64_t N, fx_error *error) {
    for (int64_t j = fx_thread_index(); j < N; j += fx_thread_count()) {
        const int64_t t0 = fx_index(i[j], 10, 0, error);
        float total = 0.0f;
        for (int64_t r = 0; r < 4; ++r) {
            total += (t0 >= 0 ? table[t0*4 + r] : 0);
        }
        const float mean = total / 4.0f;
        for (int64_t k = 0; k < 4; ++k) {
            sub[j*4 + k] = (t0 >= 0 ? table[t0*4 + k] : 0) - mean;
        }
    }
}

// launch: gather_k0_sub<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(i, table, sub, N, error)
