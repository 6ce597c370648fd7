// two_layers: (x: f32[B,32]) -> (f32[B,32])
// Made by fxlite from two_layers.
#include "prelude.cuh"
#include "fx_math.h"

// relu: f32[B,32] = linear -> relu
// program.py:1
// One block for each tile of 32 x 32 elements.
// Launched 2 times: for relu, relu_1
extern "C" __global__ void __launch_bounds__(256) two_layers_k0_relu(const float *__restrict__ x,
    const float *__restrict__ w1, const float *__restrict__ b1, float *__restrict__ relu,
    int64_t B) {
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
    float a_next[8];
    float b_next[8];
    // A: neighbouring threads load neighbours along k
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = (thread / 4) % 32;
        const int j = ((e*2 + thread / 128)*4 + (thread % 4))*4;
        const int64_t row = block_row + i;
        const int64_t k = j;
        const float4 four = row < B && k < 32 ? fx_four(&x[row*32 + k]) : float4();
        a_next[e*4] = four.x;
        a_next[e*4 + 1] = four.y;
        a_next[e*4 + 2] = four.z;
        a_next[e*4 + 3] = four.w;
    }
    // B: neighbouring threads load neighbours along k
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = (thread / 4) % 32;
        const int j = ((e*2 + thread / 128)*4 + (thread % 4))*4;
        const int64_t col = i;
        const int64_t k = j;
        const float4 four = k < 32 ? fx_four(&w1[col*32 + k]) : float4();
        b_next[e*4] = four.x;
        b_next[e*4 + 1] = four.y;
        b_next[e*4 + 2] = four.z;
        b_next[e*4 + 3] = four.w;
    }
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = (thread / 4) % 32;
        const int j = ((e*2 + thread / 128)*4 + (thread % 4))*4;
        #pragma unroll
        for (int part = 0; part < 4; ++part) {
            a_tile[j + part][i] = a_next[e*4 + part];
        }
    }
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = (thread / 4) % 32;
        const int j = ((e*2 + thread / 128)*4 + (thread % 4))*4;
        #pragma unroll
        for (int part = 0; part < 4; ++part) {
            b_tile[j + part][i] = b_next[e*4 + part];
        }
    }
    __syncthreads();
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
            relu[row*32 + col] = fx_maximum_f32(sum + b1[col], 0.0f);
        }
    }
}

// launch: two_layers_k0_relu<<<((B + 31) / 32), (256)>>>(x, w1, b1, relu, B)
// launch: two_layers_k0_relu<<<((B + 31) / 32), (256)>>>(relu, w2, b2, relu_1, B)
