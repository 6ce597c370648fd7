// softmax: (x: f32[B,N]) -> (f32[B,N])
// Made by fxlite from softmax.
#include "prelude.cuh"
#include "fx_math.h"

// softmax: f32[B,N] = max -> sub -> exp -> sum -> div
// program.py:1
// One block of 256 threads for each of B rows.
extern "C" __global__ void __launch_bounds__(256) softmax_k0_softmax(const float *__restrict__ x,
    float *__restrict__ softmax, int64_t B, int64_t N) {
    for (int64_t i = blockIdx.x; i < B; i += gridDim.x) {
        float total = -INFINITY;
        for (int64_t r = threadIdx.x; r < N; r += blockDim.x) {
            total = fx_maximum_f32(total, x[i*N + r]);
        }
        total = fx_block_max(total);
        double wide = 0.0;
        for (int64_t r = threadIdx.x; r < N; r += blockDim.x) {
            wide += (double)fx_exp_weight_f32(x[i*N + r] - total);
        }
        wide = fx_block_sum(wide);
        const float total1 = (float)wide;
        for (int64_t j = threadIdx.x; j < N; j += blockDim.x) {
            softmax[i*N + j] = fx_exp_weight_f32(x[i*N + j] - total) / total1;
        }
    }
}

// launch: softmax_k0_softmax<<<(fx_min(B, 65535)), (256)>>>(x, softmax, B, N)
