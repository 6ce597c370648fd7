// two_layers: (x: f32[B,32]) -> (f32[B,32])
// Made by fxlite from two_layers.
#include "prelude.cuh"
#include "fx_math.h"

// relu: f32[B,32] = linear -> relu
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) two_layers_k0_relu(const float *__restrict__ x,
    const float *__restrict__ w1, const float *__restrict__ b1, float *__restrict__ relu,
    int64_t B) {
    __shared__ __align__(16) float a_tile[16][68];  // [k][row]
    __shared__ __align__(16) float b_tile[16][68];  // [k][column]
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    float sums[4][4] = {};
    for (int64_t k_begin = 0; k_begin < 32; k_begin += 16) {
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = block_row + i;
            const int64_t k = k_begin + j;
            a_tile[j][i] = row < B ? x[row*32 + k] : 0;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t col = i;
            const int64_t k = k_begin + j;
            b_tile[j][i] = col < 32 ? w1[k + col*32] : 0;
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
                relu[row*32 + col] = fx_maximum_f32(sums[i][j] + b1[col], 0.0f);
            }
        }
    }
}

// relu_1: f32[B,32] = linear -> relu
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) two_layers_k1_relu_1(
    const float *__restrict__ relu, const float *__restrict__ w2, const float *__restrict__ b2,
    float *__restrict__ relu_1, int64_t B) {
    __shared__ __align__(16) float a_tile[16][68];  // [k][row]
    __shared__ __align__(16) float b_tile[16][68];  // [k][column]
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    float sums[4][4] = {};
    for (int64_t k_begin = 0; k_begin < 32; k_begin += 16) {
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = block_row + i;
            const int64_t k = k_begin + j;
            a_tile[j][i] = row < B ? relu[row*32 + k] : 0;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t col = i;
            const int64_t k = k_begin + j;
            b_tile[j][i] = col < 32 ? w2[k + col*32] : 0;
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
                relu_1[row*32 + col] = fx_maximum_f32(sums[i][j] + b2[col], 0.0f);
            }
        }
    }
}

// launch: two_layers_k0_relu<<<((B + 63) / 64), (256)>>>(x, w1, b1, relu, B)
// launch: two_layers_k1_relu_1<<<((B + 63) / 64), (256)>>>(relu, w2, b2, relu_1, B)
