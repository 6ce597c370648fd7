// gemm_packed: (x: f32[B,40]) -> (f32[B,50])
// Made by fxlite from gemm_packed.
#include "prelude.cuh"
#include "fx_math.h"

// mul: f32[B,50] = linear -> relu -> mul
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) gemm_packed_k0_mul(const float *__restrict__ x,
    const float *__restrict__ weight, const float *__restrict__ bias, float *__restrict__ mul,
    int64_t B) {
    __shared__ __align__(16) float a_tile[16][68];  // [k][row]
    __shared__ __align__(16) float b_tile[16][68];  // [k][column]
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    float sums[4][4] = {};
    for (int64_t k_begin = 0; k_begin < 40; k_begin += 16) {
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = block_row + i;
            const int64_t k = k_begin + j;
            a_tile[j][i] = row < B && k < 40 ? x[row*40 + k] : 0;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t col = i;
            const int64_t k = k_begin + j;
            b_tile[j][i] = col < 50 && k < 40 ? weight[k + col*40] : 0;
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
            if (row < B && col < 50) {
                mul[row*50 + col] = fx_maximum_f32(sums[i][j] + bias[col], 0.0f) * 2.0f;
            }
        }
    }
}

// launch: gemm_packed_k0_mul<<<((B + 63) / 64), (256)>>>(x, weight, bias, mul, B)
