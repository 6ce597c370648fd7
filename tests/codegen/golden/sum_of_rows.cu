// sum_of_rows: (x: f32[B,N]) -> (f32[B])
// Made by fxlite from sum_of_rows.
#include "prelude.cuh"
#include "fx_math.h"

// sum: f32[B] = sum
// program.py:1
// One block of 256 threads for each of B rows.
extern "C" __global__ void __launch_bounds__(256) sum_of_rows_k0_sum(const float *__restrict__ x,
    float *__restrict__ sum, int64_t B, int64_t N) {
    for (int64_t i = blockIdx.x; i < B; i += gridDim.x) {
        double wide = 0.0;
        for (int64_t r = threadIdx.x; r < N; r += blockDim.x) {
            wide += (double)x[i*N + r];
        }
        wide = fx_block_sum(wide);
        const float total = (float)wide;
        if (threadIdx.x == 0) sum[i] = total;
    }
}

// launch: sum_of_rows_k0_sum<<<(fx_min(B, 65535)), (256)>>>(x, sum, B, N)
