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
    __shared__ __align__(16) float a_tile[32][68];  // [k][row]
    __shared__ __align__(16) float b_tile[32][68];  // [k][column]
    __shared__ __align__(16) float totals[64][68];
    const int thread = (int)threadIdx.x;
    const int group = thread / 64;
    const int thread_row = ((thread % 64) / 8)*4;
    const int thread_col = ((thread % 64) % 8)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    #pragma unroll
    for (int e = thread; e < 4096; e += 256) {
        totals[e / 64][e % 64] = 0;
    }
    float sums[8][8] = {};
    for (int64_t k_next = 0; k_next < 72; k_next += 32) {
        float a_next[8];
        float b_next[8];
        if (k_next < 40) {
            // A: neighbouring threads load neighbours along k
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = thread / 4;
                const int j = e*16 + (thread % 4)*4;
                const int64_t row = block_row + i;
                const int64_t k = k_next + j;
                const float4 four = row < B && k < 40 ? fx_four(&x[row*40 + k]) : float4();
                a_next[e*4] = four.x;
                a_next[e*4 + 1] = four.y;
                a_next[e*4 + 2] = four.z;
                a_next[e*4 + 3] = four.w;
            }
            // B: neighbouring threads load neighbours along k
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = thread / 4;
                const int j = e*16 + (thread % 4)*4;
                const int64_t col = i;
                const int64_t k = k_next + j;
                const float4 four = col < 50 && k < 40 ? fx_four(&weight[col*40 + k]) : float4();
                b_next[e*4] = four.x;
                b_next[e*4 + 1] = four.y;
                b_next[e*4 + 2] = four.z;
                b_next[e*4 + 3] = four.w;
            }
        }
        if (k_next > 0) {
            #pragma unroll
            for (int step = 0; step < 8; ++step) {
                float a_part[8];
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    a_part[i] = a_tile[group*8 + step][thread_row + (i / 4)*32 + (i % 4)];
                }
                float b_part[8];
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    b_part[i] = b_tile[group*8 + step][thread_col + (i / 4)*32 + (i % 4)];
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) {
                        sums[i][j] += a_part[i] * b_part[j];
                    }
                }
            }
        }
        __syncthreads();
        if (k_next < 40) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = thread / 4;
                const int j = e*16 + (thread % 4)*4;
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    a_tile[j + part][i] = a_next[e*4 + part];
                }
            }
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = thread / 4;
                const int j = e*16 + (thread % 4)*4;
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    b_tile[j + part][i] = b_next[e*4 + part];
                }
            }
        }
        __syncthreads();
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
    for (int e = thread; e < 4096; e += 256) {
        const int i = e / 64;
        const int j = e % 64;
        const int64_t row = block_row + i;
        const int64_t col = j;
        if (row < B && col < 50) {
            const float sum = totals[i][j];
            mul[row*50 + col] = fx_maximum_f32(sum + bias[col], 0.0f) * 2.0f;
        }
    }
}

// launch: gemm_packed_k0_mul<<<((B + 63) / 64), (256)>>>(x, weight, bias, mul, B)
