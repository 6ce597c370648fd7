// mean_of_pixels: (x: f32[N,H,W,8]) -> (f32[N,8])
// Made by fxlite from mean_of_pixels.
#include "prelude.cuh"
#include "fx_math.h"

// mean: f32[N,8] = mean
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) mean_of_pixels_k0_mean(
    const float *__restrict__ x, float *__restrict__ mean, int64_t H, int64_t N, int64_t W) {
    for (int64_t element = fx_thread_index(); element < N*8; element += fx_thread_count()) {
        const int64_t i = element / 8;
        const int64_t j = element % 8;
        const float t0 = (float)(H*W);
        double wide = 0.0;
        for (int64_t r = 0; r < H*W; ++r) {
            wide += (double)x[(i*H*W + r)*8 + j];
        }
        const float total = (float)wide;
        mean[element] = total / t0;
    }
}

// launch: mean_of_pixels_k0_mean<<<(fx_min((N*8 + 255) / 256, 65535)), (256)>>>(x, mean, H, N, W)
