// argmax: (x: f32[B,N]) -> (i64[B])
// Made by fxlite from argmax.
#include "prelude.cuh"
#include "fx_math.h"

// argmax: i64[B] = argmax
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) argmax_k0_argmax(const float *__restrict__ x,
    int64_t *__restrict__ argmax, int64_t B, int64_t N) {
    for (int64_t i = fx_thread_index(); i < B; i += fx_thread_count()) {
        float best = -INFINITY;
        int64_t where = -1;
        for (int64_t r = 0; r < N; ++r) {
            const float t0 = x[i*N + r];
            if (t0 > best || (fx_isnan_f32(t0) && !fx_isnan_f32(best)) || where < 0) {
                best = t0;
                where = r;
            }
        }
        argmax[i] = where;
    }
}

// launch: argmax_k0_argmax<<<(fx_min((B + 255) / 256, 65535)), (256)>>>(x, argmax, B, N)
