// conv1d: (x: f32[N,4,L]) -> (f32[N,6,L-2])
// Made by fxlite from conv1d.
#include "prelude.cuh"
#include "fx_math.h"

// conv1d: f32[N,6,L-2] = conv1d
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) conv1d_k0_conv1d(const float *__restrict__ x,
    const float *__restrict__ weight, float *__restrict__ conv1d, int64_t L, int64_t N) {
    for (int64_t element = fx_thread_index(); element < (L - 2)*N*6; element += fx_thread_count()) {
        const int64_t i = element / (L*6 - 12);
        const int64_t j = (element / (L - 2)) % 6;
        const int64_t k = element % (L - 2);
        float total = 0.0f;
        for (int64_t r = 0; r < 4; ++r) {
            for (int64_t s = 0; s < 3; ++s) {
                total += x[(i*4 + r)*L + k + s] * weight[(j*4 + r)*3 + s];
            }
        }
        conv1d[element] = total;
    }
}

// launch: conv1d_k0_conv1d<<<(fx_min(fx_floor_div(L*N*6 - N*12 + 255, 256), 65535)), (256)>>>(x, weight, conv1d, L, N)
