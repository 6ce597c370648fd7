// gemm_int8: (x: u8[B,300]) -> (u8[B,32])
// Made by fxlite from gemm_int8.
#include "prelude.cuh"
#include "fx_math.h"

// requantize: u8[B,32] = int_linear -> requantize
// program.py:1
// program.py:2
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) gemm_int8_k0_requantize(
    const uint8_t *__restrict__ x, const int8_t *__restrict__ weight,
    const int32_t *__restrict__ bias, const float *__restrict__ scale,
    uint8_t *__restrict__ requantize, int64_t B) {
    __shared__ __align__(16) int a_tile[16][68];  // [quad along k][row]
    __shared__ __align__(16) int b_tile[16][68];  // [quad along k][column]
    __shared__ int b_sums[64];
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    int sums[4][4] = {};
    int line_sum = 0;
    for (int64_t k_begin = 0; k_begin < 300; k_begin += 64) {
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = block_row + i;
            const int64_t k = k_begin + j*4;
            a_tile[j][i] = row < B && k < 300 ? fx_quad(&x[row*300 + k]) ^ 0x80808080 : 0;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t col = i;
            const int64_t k = k_begin + j*4;
            b_tile[j][i] = col < 32 && k < 300 ? fx_quad(&weight[col*300 + k]) : 0;
        }
        __syncthreads();
        #pragma unroll
        for (int tile_k = 0; tile_k < 16; ++tile_k) {
            int a_part[4], b_part[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                a_part[i] = a_tile[tile_k][thread_row + i];
                b_part[i] = b_tile[tile_k][thread_col + i];
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] = __dp4a(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        if (thread < 64) {
            for (int tile_k = 0; tile_k < 16; ++tile_k) {
                line_sum = __dp4a(b_tile[tile_k][thread], 0x01010101, line_sum);
            }
        }
        __syncthreads();  // the tiles are overwritten next
    }
    if (thread < 64) b_sums[thread] = line_sum;
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int64_t row = block_row + thread_row + i;
            const int64_t col = thread_col + j;
            if (row < B && col < 32) {
                const int sum = (int)(sums[i][j] + 121u * b_sums[thread_col + j]);
                requantize[row*32 + col] = (uint8_t)fx_saturate_f32(fx_round_f32((float)(sum
                    + bias[col]) * scale[col]) + 3.0f, 0.0f, 255.0f);
            }
        }
    }
}

// launch: gemm_int8_k0_requantize<<<((B + 63) / 64), (256)>>>(x, weight, bias, scale, requantize, B)
