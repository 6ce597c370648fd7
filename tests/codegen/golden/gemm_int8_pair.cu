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
    __shared__ __align__(16) int a_tile[32][68];  // [quad along k][row]
    __shared__ __align__(16) int b_tile[32][68];  // [quad along k][column]
    __shared__ __align__(16) int totals[64][68];
    __shared__ int b_sums[64];
    __shared__ int a_sums[64];
    const int thread = (int)threadIdx.x;
    const int group = thread / 64;
    const int thread_row = ((thread % 64) / 8)*4;
    const int thread_col = ((thread % 64) % 8)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    const int64_t block_col = (int64_t)blockIdx.y*64;
    for (int64_t batch = blockIdx.z; batch < B; batch += gridDim.z) {
        #pragma unroll
        for (int e = thread; e < 4096; e += 256) {
            totals[e / 64][e % 64] = 0;
        }
        int sums[8][8] = {};
        int line_sum = 0;
        int a_next[8];
        int b_next[8];
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            const int i = (e % 4)*16 + thread / 16;
            const int j = (e / 4)*16 + (thread % 16);
            const int64_t row = block_row + i;
            const int64_t k = j*4;
            a_next[e] = row < T && k < 20 ? fx_quad(&x[(batch*T + row)*20 + k]) ^ 0x80808080 : 0;
        }
        // B: neighbouring threads load neighbours along columns
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            const int i = thread % 64;
            const int j = e*4 + thread / 64;
            const int64_t col = block_col + i;
            int quad = 0;
            #pragma unroll
            for (int step = 0; step < 4; ++step) {
                const int64_t k = j*4 + step;
                quad |= col < U && k < 20 ? (int)(((y[(batch*20 + k)*U
                    + col] ^ 128) & 255u) << step*8) : 0;
            }
            b_next[e] = quad;
        }
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            const int i = (e % 4)*16 + thread / 16;
            const int j = (e / 4)*16 + (thread % 16);
            a_tile[j][i] = a_next[e];
        }
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            const int i = thread % 64;
            const int j = e*4 + thread / 64;
            b_tile[j][i] = b_next[e];
        }
        __syncthreads();
        #pragma unroll
        for (int step = 0; step < 8; ++step) {
            int a_part[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                a_part[i] = a_tile[group*8 + step][thread_row + (i / 4)*32 + (i % 4)];
            }
            int b_part[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                b_part[i] = b_tile[group*8 + step][thread_col + (i / 4)*32 + (i % 4)];
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    sums[i][j] = __dp4a(a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        if (thread < 64) {
            for (int item = 0; item < 32; ++item) {
                line_sum = __dp4a(b_tile[item][thread], 0x01010101, line_sum);
            }
        }
        if (thread >= 64 && thread < 128) {
            for (int item = 0; item < 32; ++item) {
                line_sum = __dp4a(a_tile[item][thread - 64], 0x01010101, line_sum);
            }
        }
        for (int turn = 0; turn < 4; ++turn) {
            if (group == turn) {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) {
                        totals[thread_row + (i / 4)*32 + (i % 4)][thread_col + (j / 4)*32
                            + (j % 4)] += sums[i][j];
                        sums[i][j] = 0;
                    }
                }
            }
            __syncthreads();
        }
        if (thread < 64) b_sums[thread] = line_sum;
        if (thread >= 64 && thread < 128) a_sums[thread - 64] = line_sum;
        __syncthreads();
        for (int e = thread; e < 4096; e += 256) {
            const int i = e / 64;
            const int j = e % 64;
            const int64_t row = block_row + i;
            const int64_t col = block_col + j;
            if (row < T && col < U) {
                const int sum = (int)(totals[i][j] + 121u * b_sums[j] + 28u * a_sums[i] + 3388u
                    * 20u);
                dequantize[(batch*T + row)*U + col] = fx_product_f32((float)sum, 0.5f);
            }
        }
        __syncthreads();  // the totals are cleared next
    }
}

// launch: gemm_int8_pair_k0_dequantize<<<((T + 63) / 64, (U + 63) / 64, fx_min(B, 65535)), (256)>>>(x, y, dequantize, B, T, U)
