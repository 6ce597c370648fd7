// any_and_largest: (x: i32[B,N]) -> (bool[B], i32[B])
// Made by fxlite from any_and_largest.
#include "prelude.cuh"
#include "fx_math.h"

// any: bool[B] = gt -> any
// program.py:1
// One block of 256 threads for each of B rows.
extern "C" __global__ void __launch_bounds__(256) any_and_largest_k0_any(
    const int32_t *__restrict__ x, unsigned char *__restrict__ any, int64_t B, int64_t N) {
    for (int64_t i = blockIdx.x; i < B; i += gridDim.x) {
        bool total = false;
        for (int64_t r = threadIdx.x; r < N; r += blockDim.x) {
            total = total | (x[i*N + r] > 3);
        }
        total = fx_block_max(total);
        if (threadIdx.x == 0) any[i] = total;
    }
}

// max: i32[B] = max
// program.py:1
// One block of 256 threads for each of B rows.
extern "C" __global__ void __launch_bounds__(256) any_and_largest_k1_max(
    const int32_t *__restrict__ x, int32_t *__restrict__ max, int64_t B, int64_t N) {
    for (int64_t i = blockIdx.x; i < B; i += gridDim.x) {
        int32_t total = INT32_MIN;
        for (int64_t r = threadIdx.x; r < N; r += blockDim.x) {
            total = fx_maximum_i32(total, x[i*N + r]);
        }
        total = fx_block_max(total);
        if (threadIdx.x == 0) max[i] = total;
    }
}

// launch: any_and_largest_k0_any<<<(fx_min(B, 65535)), (256)>>>(x, any, B, N)
// launch: any_and_largest_k1_max<<<(fx_min(B, 65535)), (256)>>>(x, max, B, N)
