// weight_only_int4: (x: f32[B,128]) -> (f32[B,32])
// Made by fxlite from weight_only_int4.
#include "prelude.cuh"
#include "fx_math.h"

// linear_weight_only: f32[B,32] = linear_weight_only
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) weight_only_int4_k0_linear_weight_only(
    const float *__restrict__ x, const uint8_t *__restrict__ weight,
    const float *__restrict__ scale, float *__restrict__ linear_weight_only, int64_t B) {
    __shared__ __align__(16) float a_tile[16][68];  // [k][row]
    __shared__ __align__(16) float b_tile[16][68];  // [k][column]
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    float sums[4][4] = {};
    for (int64_t k_begin = 0; k_begin < 128; k_begin += 16) {
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = block_row + i;
            const int64_t k = k_begin + j;
            a_tile[j][i] = row < B ? x[row*128 + k] : 0;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 128; e += 256) {
            const int i = e / 2;
            const int j = e % 2;
            const int64_t col = i;
            const int64_t k = k_begin + j*8;
            const uint32_t word = col < 32 ? (uint32_t)fx_quad(&weight[col*64 + k / 2]) : 0;
            const float scale_of_word = col < 32 ? scale[col*4 + k / 32] : 0;
            #pragma unroll
            for (int part = 0; part < 8; ++part) {
                b_tile[j*8 + part][i] = (float)((int)(word << (28 - part*4)) >> 28) * scale_of_word;
            }
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
        __syncthreads();  // the tiles are overwritten next
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int64_t row = block_row + thread_row + i;
            const int64_t col = thread_col + j;
            if (row < B && col < 32) {
                linear_weight_only[row*32 + col] = sums[i][j];
            }
        }
    }
}

// launch: weight_only_int4_k0_linear_weight_only<<<((B + 63) / 64), (256)>>>(x, weight, scale, linear_weight_only, B)
