// weight_only_int4: (x: f32[B,128]) -> (f32[B,32])
// Made by fxlite from weight_only_int4.
#include "prelude.cuh"
#include "fx_math.h"

// linear_weight_only: f32[B,32] = linear_weight_only
// program.py:1
// One block for each tile of 32 x 32 elements.
extern "C" __global__ void __launch_bounds__(256) weight_only_int4_k0_linear_weight_only(
    const float *__restrict__ x, const uint8_t *__restrict__ weight,
    const float *__restrict__ scale, float *__restrict__ linear_weight_only, int64_t B) {
    __shared__ __align__(16) float a_tile[64][36];  // [k][row]
    __shared__ __align__(16) float b_tile[64][36];  // [k][column]
    __shared__ __align__(16) float totals[32][36];
    const int thread = (int)threadIdx.x;
    const int group = thread / 32;
    const int thread_row = ((thread % 32) / 8)*4;
    const int thread_col = ((thread % 32) % 8)*4;
    const int64_t block_row = (int64_t)blockIdx.x*32;
    #pragma unroll
    for (int e = thread; e < 1024; e += 256) {
        totals[e / 32][e % 32] = 0;
    }
    float sums[8][4] = {};
    for (int64_t k_next = 0; k_next < 192; k_next += 64) {
        float a_next[8];
        float b_next[8];
        if (k_next < 128) {
            // A: neighbouring threads load neighbours along k
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = (thread / 4) % 32;
                const int j = ((e*2 + thread / 128)*4 + (thread % 4))*4;
                const int64_t row = block_row + i;
                const int64_t k = k_next + j;
                const float4 four = row < B ? fx_four(&x[row*128 + k]) : float4();
                a_next[e*4] = four.x;
                a_next[e*4 + 1] = four.y;
                a_next[e*4 + 2] = four.z;
                a_next[e*4 + 3] = four.w;
            }
            // B: neighbouring threads load neighbours along k
            const int i = (thread / 2) % 32;
            const int j = (thread / 64)*16 + (thread % 2)*8;
            const int64_t col = i;
            const int64_t k = k_next + j;
            const uint32_t word = (uint32_t)fx_quad(&weight[col*64 + k / 2]);
            const float scale_of_word = scale[col*4 + k / 32];
            #pragma unroll
            for (int part = 0; part < 8; ++part) {
                b_next[part] = (float)((int)(word << (28 - part*4)) >> 28) * scale_of_word;
            }
        }
        if (k_next > 0) {
            #pragma unroll
            for (int step = 0; step < 8; ++step) {
                float a_part[8];
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    a_part[i] = a_tile[group*8 + step][thread_row + (i / 4)*16 + (i % 4)];
                }
                float b_part[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    b_part[i] = b_tile[group*8 + step][thread_col + i];
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        sums[i][j] += a_part[i] * b_part[j];
                    }
                }
            }
        }
        __syncthreads();
        if (k_next < 128) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = (thread / 4) % 32;
                const int j = ((e*2 + thread / 128)*4 + (thread % 4))*4;
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    a_tile[j + part][i] = a_next[e*4 + part];
                }
            }
            const int i = (thread / 2) % 32;
            const int j = (thread / 64)*16 + (thread % 2)*8;
            #pragma unroll
            for (int part = 0; part < 8; ++part) {
                b_tile[j + part][i] = b_next[part];
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
    for (int e = thread; e < 1024; e += 256) {
        const int i = e / 32;
        const int j = e % 32;
        const int64_t row = block_row + i;
        const int64_t col = j;
        if (row < B) {
            const float sum = totals[i][j];
            linear_weight_only[row*32 + col] = sum;
        }
    }
}

// launch: weight_only_int4_k0_linear_weight_only<<<((B + 31) / 32), (256)>>>(x, weight, scale, linear_weight_only, B)
