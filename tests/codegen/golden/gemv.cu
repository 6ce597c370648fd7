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
    const int col = (int)(blockIdx.x*8 + threadIdx.x / 32);
    if (col >= 50) return;  // the whole warp
    float sums = 0;
    for (int64_t k = lane*4; k < 40; k += 128) {
        const float4 a_four = fx_four(&x[k]);
        const float4 b_four = fx_four(&weight[col*40 + k]);
        sums += a_four.x * b_four.x + a_four.y * b_four.y + a_four.z * b_four.z + a_four.w
            * b_four.w;
    }
    const float sum = fx_warp_sum(sums);
    if (lane == 0) {
        linear[col] = sum + bias[col];
    }
}

// launch: gemv_k0_linear<<<(7), (256)>>>(x, weight, bias, linear)
