// sums_of_axes_apart: (x: f32[A,N,64], y: f32[A,N,5]) -> (f32[N], f32[N])
// Made by fxlite from sums_of_axes_apart.
#include "prelude.cuh"
#include "fx_math.h"

// sum: f32[N] = sum
// program.py:1
// One block of 256 threads for each of N rows.
extern "C" __global__ void __launch_bounds__(256) sums_of_axes_apart_k0_sum(
    const float *__restrict__ x, float *__restrict__ sum, int64_t A, int64_t N) {
    for (int64_t i = blockIdx.x; i < N; i += gridDim.x) {
        double wide = 0.0;
        for (int64_t position = threadIdx.x; position < A*64; position += blockDim.x) {
            const int64_t r = position / 64;
            const int64_t s = position % 64;
            wide += (double)x[(r*N + i)*64 + s];
        }
        wide = fx_block_sum(wide);
        const float total = (float)wide;
        if (threadIdx.x == 0) sum[i] = total;
    }
}

// sum_1: f32[N] = sum
// program.py:1
// One block of 256 threads for each of N rows.
extern "C" __global__ void __launch_bounds__(256) sums_of_axes_apart_k1_sum_1(
    const float *__restrict__ y, float *__restrict__ sum_1, int64_t A, int64_t N) {
    for (int64_t i = blockIdx.x; i < N; i += gridDim.x) {
        double wide = 0.0;
        for (int64_t position = threadIdx.x; position < A*5; position += blockDim.x) {
            const int64_t r = position / 5;
            const int64_t s = position % 5;
            wide += (double)y[(r*N + i)*5 + s];
        }
        wide = fx_block_sum(wide);
        const float total = (float)wide;
        if (threadIdx.x == 0) sum_1[i] = total;
    }
}

// launch: sums_of_axes_apart_k0_sum<<<(fx_min(N, 65535)), (256)>>>(x, sum, A, N)
// launch: sums_of_axes_apart_k1_sum_1<<<(fx_min(N, 65535)), (256)>>>(y, sum_1, A, N)
