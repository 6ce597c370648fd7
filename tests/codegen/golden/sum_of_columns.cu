// sum_of_columns: (x: f32[N,C]) -> (f32[C])
// Made by fxlite from sum_of_columns.
#include "prelude.cuh"
#include "fx_math.h"

// sum: f32[C] = abs -> sum
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) sum_of_columns_k0_sum(
    const float *__restrict__ x, float *__restrict__ sum, int64_t C, int64_t N) {
    for (int64_t i = fx_thread_index(); i < C; i += fx_thread_count()) {
        double wide = 0.0;
        for (int64_t r = 0; r < N; ++r) {
            wide += (double)fx_abs_f32(x[r*C + i]);
        }
        const float total = (float)wide;
        sum[i] = total;
    }
}

// launch: sum_of_columns_k0_sum<<<(fx_min((C + 255) / 256, 65535)), (256)>>>(x, sum, C, N)
