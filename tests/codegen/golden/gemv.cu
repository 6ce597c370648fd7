// gemv: (x: f32[1,40]) -> (f32[1,50])
// Made by fxlite from gemv.
#include "prelude.cuh"
#include "fx_math.h"

// linear: f32[1,50] = linear
// program.py:1
// One warp for each column.
extern "C" __global__ void __launch_bounds__(256) gemv_k0_linear(const float *__restrict__ x,
    const float *__restrict__ weight, const float *__restrict__ bias, float *__restrict__ linear) {
    const int64_t lane = threadIdx.x % 32;
    const int64_t col = (int64_t)blockIdx.x*8 + threadIdx.x / 32;
    if (col >= 50) return;  // the whole warp
    float sums = 0;
    for (int64_t k = lane; k < 40; k += 32) {
        sums += x[k] * weight[k + col*40];
    }
    const float sum = fx_warp_sum(sums);
    if (lane == 0) {
        linear[col] = sum + bias[col];
    }
}

// launch: gemv_k0_linear<<<(7), (256)>>>(x, weight, bias, linear)
