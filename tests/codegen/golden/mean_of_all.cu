// mean_of_all: (x: f32[N]) -> (f32)
// Made by fxlite from mean_of_all.
#include "prelude.cuh"
#include "fx_math.h"

// mean: f32 = mean
// program.py:1
// One block of 256 threads.
extern "C" __global__ void __launch_bounds__(256) mean_of_all_k0_mean(const float *__restrict__ x,
    float *__restrict__ mean, int64_t N) {
    double wide = 0.0;
    for (int64_t r = threadIdx.x; r < N; r += blockDim.x) {
        wide += (double)x[r];
    }
    wide = fx_block_sum(wide);
    const float total = (float)wide;
    if (threadIdx.x == 0) mean[0] = total / (float)N;
}

// launch: mean_of_all_k0_mean<<<(1), (256)>>>(x, mean, N)
