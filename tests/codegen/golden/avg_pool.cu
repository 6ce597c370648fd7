// avg_pool: (x: f32[B,3,8,8]) -> (f32[B,3,4,4])
// Made by fxlite from avg_pool.
#include "prelude.cuh"
#include "fx_math.h"

// avg_pool2d: f32[B,3,4,4] = avg_pool2d
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) avg_pool_k0_avg_pool2d(
    const float *__restrict__ x, float *__restrict__ avg_pool2d, int64_t B) {
    for (int64_t element = fx_thread_index(); element < B*48; element += fx_thread_count()) {
        const int64_t i = element / 4;
        const int64_t j = element % 4;
        float total = 0.0f;
        for (int64_t r = 0; r < 2; ++r) {
            for (int64_t s = 0; s < 2; ++s) {
                total += x[((r + i*2)*4 + j)*2 + s];
            }
        }
        avg_pool2d[element] = total / 4.0f;
    }
}

// launch: avg_pool_k0_avg_pool2d<<<(fx_min((B*48 + 255) / 256, 65535)), (256)>>>(x, avg_pool2d, B)
