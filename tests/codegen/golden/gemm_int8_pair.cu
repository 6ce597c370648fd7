// gemm_int8_pair: (x: u8[B,T,20], y: u8[B,20,U]) -> (f32[B,T,U])
// Made by fxlite from gemm_int8_pair.
#include "prelude.cuh"
#include "fx_math.h"

// dequantize: f32[B,T,U] = int_matmul -> dequantize
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) gemm_int8_pair_k0_dequantize(
    const uint8_t *__restrict__ x, const uint8_t *__restrict__ y, float *__restrict__ dequantize,
    int64_t B, int64_t T, int64_t U) {
    __shared__ __align__(16) int a_tile[16][68];  // [quad along k][row]
    __shared__ __align__(16) int b_tile[16][68];  // [quad along k][column]
    __shared__ int b_sums[64];
    __shared__ int a_sums[64];
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    const int64_t block_col = (int64_t)blockIdx.y*64;
    for (int64_t batch = blockIdx.z; batch < B; batch += gridDim.z) {
        int sums[4][4] = {};
        int line_sum = 0;
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = block_row + i;
            const int64_t k = j*4;
            a_tile[j][i] = row < T && k < 20 ? fx_quad(&x[(batch*T + row)*20 + k]) ^ 0x80808080 : 0;
        }
        // B: neighbouring threads load neighbours along columns
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e % 64;
            const int j = e / 64;
            const int64_t col = block_col + i;
            int quad = 0;
            #pragma unroll
            for (int step = 0; step < 4; ++step) {
                const int64_t k = j*4 + step;
                quad |= col < U && k < 20 ? (int)(((y[(batch*20 + k)*U
                    + col] ^ 128) & 255u) << step*8) : 0;
            }
            b_tile[j][i] = quad;
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
        if (thread >= 64 && thread < 128) {
            for (int tile_k = 0; tile_k < 16; ++tile_k) {
                line_sum = __dp4a(a_tile[tile_k][thread - 64], 0x01010101, line_sum);
            }
        }
        __syncthreads();  // the tiles are overwritten next
        if (thread < 64) b_sums[thread] = line_sum;
        if (thread >= 64 && thread < 128) a_sums[thread - 64] = line_sum;
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int64_t row = block_row + thread_row + i;
                const int64_t col = block_col + thread_col + j;
                if (row < T && col < U) {
                    const int sum = (int)(sums[i][j] + 121u * b_sums[thread_col + j] + 28u
                        * a_sums[thread_row + i] + 3388u * 20u);
                    dequantize[(batch*T + row)*U + col] = fx_product_f32((float)sum, 0.5f);
                }
            }
        }
    }
}

// launch: gemm_int8_pair_k0_dequantize<<<((T + 63) / 64, (U + 63) / 64, fx_min(B, 65535)), (256)>>>(x, y, dequantize, B, T, U)
