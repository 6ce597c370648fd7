// extents_of_one: (x: f32[1,N], y: f32[1,1]) -> (f32[N,1,1])
// Made by fxlite from extents_of_one.
#include "prelude.cuh"
#include "fx_math.h"

// add: f32[N,1,1] = mul -> reshape -> permute -> add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) extents_of_one_k0_add(
    const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ add, int64_t N) {
    for (int64_t i = fx_thread_index(); i < N; i += fx_thread_count()) {
        add[i] = x[i] * y[0] + 1.0f;
    }
}

// launch: extents_of_one_k0_add<<<(fx_min((N + 255) / 256, 65535)), (256)>>>(x, y, add, N)
