// linear_norm_gelu: (x: f32[B,16]) -> (f32[B,32])
// Made by fxlite from linear_norm_gelu.
#include "prelude.cuh"
#include "fx_math.h"

// linear: f32[B,32] = linear
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) linear_norm_gelu_k0_linear(
    const float *__restrict__ x, const float *__restrict__ weight, float *__restrict__ linear,
    int64_t B) {
    __shared__ __align__(16) float a_tile[16][68];  // [k][row]
    __shared__ __align__(16) float b_tile[16][68];  // [k][column]
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    float sums[4][4] = {};
    // A: neighbouring threads load neighbours along k
    #pragma unroll
    for (int e = thread; e < 1024; e += 256) {
        const int i = e / 16;
        const int j = e % 16;
        const int64_t row = block_row + i;
        const int64_t k = j;
        a_tile[j][i] = row < B ? x[row*16 + k] : 0;
    }
    // B: neighbouring threads load neighbours along k
    #pragma unroll
    for (int e = thread; e < 1024; e += 256) {
        const int i = e / 16;
        const int j = e % 16;
        const int64_t col = i;
        const int64_t k = j;
        b_tile[j][i] = col < 32 ? weight[k + col*16] : 0;
    }
    __syncthreads();
    #pragma unroll
    for (int tile_k = 0; tile_k < 16; ++tile_k) {
        float a_part[4], b_part[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            a_part[i] = a_tile[tile_k][thread_row + i];
            b_part[i] = b_tile[tile_k][thread_col + i];
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                sums[i][j] += a_part[i] * b_part[j];
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int64_t row = block_row + thread_row + i;
            const int64_t col = thread_col + j;
            if (row < B && col < 32) {
                linear[row*32 + col] = sums[i][j];
            }
        }
    }
}

// gelu: f32[B,32] = mean -> sub -> square -> mean -> add -> rsqrt -> mul -> mul -> add -> mul
// -> mul -> erf -> add -> mul
// program.py:1
// One block of 32 threads for each of B rows.
extern "C" __global__ void __launch_bounds__(32) linear_norm_gelu_k1_gelu(
    const float *__restrict__ linear, const float *__restrict__ gain,
    const float *__restrict__ bias, float *__restrict__ gelu, int64_t B) {
    for (int64_t i = blockIdx.x; i < B; i += gridDim.x) {
        float total = 0.0f;
        for (int64_t r = threadIdx.x; r < 32; r += blockDim.x) {
            total += linear[i*32 + r];
        }
        total = fx_block_sum(total);
        const float layer_norm_mean = total / 32.0f;
        float total1 = 0.0f;
        for (int64_t r = threadIdx.x; r < 32; r += blockDim.x) {
            const float layer_norm_sub = linear[i*32 + r] - layer_norm_mean;
            total1 += layer_norm_sub * layer_norm_sub;
        }
        total1 = fx_block_sum(total1);
        const float layer_norm_mean_1 = total1 / 32.0f;
        const float layer_norm_add = layer_norm_mean_1 + 1e-05f;
        const float layer_norm_rsqrt = fx_rsqrt_f32(layer_norm_add);
        for (int64_t j = threadIdx.x; j < 32; j += blockDim.x) {
            const float layer_norm = (linear[i*32 + j] - layer_norm_mean) * layer_norm_rsqrt
                * gain[j] + bias[j];
            gelu[i*32 + j] = layer_norm * 0.5f * (fx_erf_f32(layer_norm * 0.70710677f) + 1.0f);
        }
    }
}

// launch: linear_norm_gelu_k0_linear<<<((B + 63) / 64), (256)>>>(x, weight, linear, B)
// launch: linear_norm_gelu_k1_gelu<<<(fx_min(B, 65535)), (32)>>>(linear, gain, bias, gelu, B)
