// gemm_int8: (x: u8[B,300]) -> (u8[B,32])
// Made by fxlite from gemm_int8.
#include "prelude.cuh"
#include "fx_math.h"

// requantize: u8[B,32] = int_linear -> requantize
// program.py:1
// program.py:2
// One block for each tile of 32 x 32 elements.
extern "C" __global__ void __launch_bounds__(256) gemm_int8_k0_requantize(
    const uint8_t *__restrict__ x, const int8_t *__restrict__ weight,
    const int32_t *__restrict__ bias, const float *__restrict__ scale,
    uint8_t *__restrict__ requantize, int64_t B) {
    __shared__ __align__(16) int a_tile[64][36];  // [quad along k][row]
    __shared__ __align__(16) int b_tile[64][36];  // [quad along k][column]
    __shared__ __align__(16) int totals[32][36];
    __shared__ int b_sums[32];
    const int thread = (int)threadIdx.x;
    const int group = thread / 32;
    const int thread_row = ((thread % 32) / 8)*4;
    const int thread_col = ((thread % 32) % 8)*4;
    const int64_t block_row = (int64_t)blockIdx.x*32;
    #pragma unroll
    for (int e = thread; e < 1024; e += 256) {
        totals[e / 32][e % 32] = 0;
    }
    int sums[8][4] = {};
    int line_sum = 0;
    for (int64_t k_next = 0; k_next < 556; k_next += 256) {
        int a_next[8];
        int b_next[8];
        if (k_next < 300) {
            // A: neighbouring threads load neighbours along k
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const int i = (e % 2)*16 + thread / 16;
                const int j = (e / 2)*16 + (thread % 16);
                const int64_t row = block_row + i;
                const int64_t k = k_next + j*4;
                a_next[e] = row < B && k < 300 ? fx_quad(&x[row*300 + k]) ^ 0x80808080 : 0;
            }
            // B: neighbouring threads load neighbours along k
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const int i = (e % 2)*16 + thread / 16;
                const int j = (e / 2)*16 + (thread % 16);
                const int64_t col = i;
                const int64_t k = k_next + j*4;
                b_next[e] = k < 300 ? fx_quad(&weight[col*300 + k]) : 0;
            }
        }
        if (k_next > 0) {
            #pragma unroll
            for (int step = 0; step < 8; ++step) {
                int a_part[8];
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    a_part[i] = a_tile[group*8 + step][thread_row + (i / 4)*16 + (i % 4)];
                }
                int b_part[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    b_part[i] = b_tile[group*8 + step][thread_col + i];
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        sums[i][j] = __dp4a(a_part[i], b_part[j], sums[i][j]);
                    }
                }
            }
            if (thread < 32) {
                for (int item = 0; item < 64; ++item) {
                    line_sum = __dp4a(b_tile[item][thread], 0x01010101, line_sum);
                }
            }
        }
        __syncthreads();
        if (k_next < 300) {
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const int i = (e % 2)*16 + thread / 16;
                const int j = (e / 2)*16 + (thread % 16);
                a_tile[j][i] = a_next[e];
            }
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const int i = (e % 2)*16 + thread / 16;
                const int j = (e / 2)*16 + (thread % 16);
                b_tile[j][i] = b_next[e];
            }
        }
        __syncthreads();
    }
    for (int turn = 0; turn < 8; ++turn) {
        if (group == turn) {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    totals[thread_row + (i / 4)*16 + (i % 4)][thread_col + j] += sums[i][j];
                    sums[i][j] = 0;
                }
            }
        }
        __syncthreads();
    }
    if (thread < 32) b_sums[thread] = line_sum;
    __syncthreads();
    for (int e = thread; e < 1024; e += 256) {
        const int i = e / 32;
        const int j = e % 32;
        const int64_t row = block_row + i;
        const int64_t col = j;
        if (row < B) {
            const int sum = (int)(totals[i][j] + 121u * b_sums[j]);
            requantize[row*32 + col] = (uint8_t)fx_saturate_f32(fx_round_f32((float)(sum
                + bias[col]) * scale[col]) + 3.0f, 0.0f, 255.0f);
        }
    }
}

// launch: gemm_int8_k0_requantize<<<((B + 31) / 32), (256)>>>(x, weight, bias, scale, requantize, B)
