// layer_norm: (x: f32[B,64]) -> (f32[B,64])
// Made by fxlite from layer_norm.
#include "prelude.cuh"
#include "fx_math.h"

// layer_norm: f32[B,64] = mean -> sub -> square -> mean -> add -> rsqrt -> mul -> mul -> add
// program.py:1
// One block of 64 threads for each of B rows.
extern "C" __global__ void __launch_bounds__(64) layer_norm_k0_layer_norm(
    const float *__restrict__ x, const float *__restrict__ weight, const float *__restrict__ bias,
    float *__restrict__ layer_norm, int64_t B) {
    for (int64_t i = blockIdx.x; i < B; i += gridDim.x) {
        float total = 0.0f;
        for (int64_t r = threadIdx.x; r < 64; r += blockDim.x) {
            total += x[i*64 + r];
        }
        total = fx_block_sum(total);
        const float layer_norm_mean = total / 64.0f;
        float total1 = 0.0f;
        for (int64_t r = threadIdx.x; r < 64; r += blockDim.x) {
            const float layer_norm_sub = x[i*64 + r] - layer_norm_mean;
            total1 += layer_norm_sub * layer_norm_sub;
        }
        total1 = fx_block_sum(total1);
        const float layer_norm_mean_1 = total1 / 64.0f;
        const float layer_norm_add = layer_norm_mean_1 + 1e-05f;
        const float layer_norm_rsqrt = fx_rsqrt_f32(layer_norm_add);
        for (int64_t j = threadIdx.x; j < 64; j += blockDim.x) {
            layer_norm[i*64 + j] = (x[i*64 + j] - layer_norm_mean) * layer_norm_rsqrt * weight[j]
                + bias[j];
        }
    }
}

// launch: layer_norm_k0_layer_norm<<<(fx_min(B, 65535)), (64)>>>(x, weight, bias, layer_norm, B)
