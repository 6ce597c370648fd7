// mean_of_images: (x: f32[N,C,H,W]) -> (f32[N,C])
// Made by fxlite from mean_of_images.
#include "prelude.cuh"
#include "fx_math.h"

// mean: f32[N,C] = mean
// program.py:1
// One block of 256 threads for each of C*N rows.
extern "C" __global__ void __launch_bounds__(256) mean_of_images_k0_mean(
    const float *__restrict__ x, float *__restrict__ mean, int64_t C, int64_t H, int64_t N,
    int64_t W) {
    for (int64_t i = blockIdx.x; i < C*N; i += gridDim.x) {
        const float t0 = (float)(H*W);
        double wide = 0.0;
        for (int64_t r = threadIdx.x; r < H*W; r += blockDim.x) {
            wide += (double)x[i*H*W + r];
        }
        wide = fx_block_sum(wide);
        const float total = (float)wide;
        if (threadIdx.x == 0) mean[i] = total / t0;
    }
}

// launch: mean_of_images_k0_mean<<<(fx_min(C*N, 65535)), (256)>>>(x, mean, C, H, N, W)
