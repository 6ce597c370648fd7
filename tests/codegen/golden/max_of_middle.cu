// max_of_middle: (x: f32[A,N,C]) -> (f32[A,C])
// Made by fxlite from max_of_middle.
#include "prelude.cuh"
#include "fx_math.h"

// max: f32[A,C] = max
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) max_of_middle_k0_max(const float *__restrict__ x,
    float *__restrict__ max, int64_t A, int64_t C, int64_t N) {
    for (int64_t element = fx_thread_index(); element < A*C; element += fx_thread_count()) {
        const int64_t i = element / C;
        const int64_t j = element % C;
        float total = -INFINITY;
        for (int64_t r = 0; r < N; ++r) {
            total = fx_maximum_f32(total, x[(i*N + r)*C + j]);
        }
        max[element] = total;
    }
}

// launch: max_of_middle_k0_max<<<(fx_min((A*C + 255) / 256, 65535)), (256)>>>(x, max, A, C, N)
