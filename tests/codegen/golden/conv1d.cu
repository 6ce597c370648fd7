// conv1d: (x: f32[N,4,L]) -> (f32[N,6,L-2])
// Made by fxlite from conv1d.
#include "prelude.cuh"
#include "fx_math.h"

// conv1d: f32[N,6,L-2] = conv1d
// program.py:1
// One block for each tile of 32 x 32 elements.
extern "C" __global__ void __launch_bounds__(256) conv1d_k0_conv1d(const float *__restrict__ x,
    const float *__restrict__ weight, float *__restrict__ conv1d, int64_t L, int64_t N) {
    __shared__ __align__(16) float a_tile[64][36];  // [k][row]
    __shared__ __align__(16) float b_tile[64][36];  // [k][column]
    __shared__ __align__(16) float totals[32][36];
    const int64_t out_w = L - 2;
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
    // A: neighbouring threads load neighbours along rows
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int i = thread % 32;
        const int j = e*8 + thread / 32;
        const int64_t row = block_row + i;
        const int64_t k = j;
        const int64_t image = row / out_w;
        const int64_t out_col = row % out_w;
        const int64_t channel = k / 3;
        const int64_t kernel_col = k % 3;
        a_next[e] = row < N*out_w && k < 12 ? x[(image*4 + channel)*L + out_col + kernel_col] : 0;
    }
    // B: neighbouring threads load neighbours along k
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = (thread / 4) % 32;
        const int j = ((e*2 + thread / 128)*4 + (thread % 4))*4;
        const int64_t col = i;
        const int64_t k = j;
        const float4 four = col < 6 && k < 12 ? fx_four(&weight[col*12 + k]) : float4();
        b_next[e*4] = four.x;
        b_next[e*4 + 1] = four.y;
        b_next[e*4 + 2] = four.z;
        b_next[e*4 + 3] = four.w;
    }
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int i = thread % 32;
        const int j = e*8 + thread / 32;
        a_tile[j][i] = a_next[e];
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
        const int i = e % 32;
        const int j = e / 32;
        const int64_t row = block_row + i;
        const int64_t col = j;
        if (row < N*out_w && col < 6) {
            const float sum = totals[i][j];
            const int64_t image = row / out_w;
            const int64_t out_col = row % out_w;
            conv1d[(image*6 + col)*out_w + out_col] = sum;
        }
    }
}

// launch: conv1d_k0_conv1d<<<((N*out_w + 31) / 32), (256)>>>(x, weight, conv1d, L, N) where out_w = L - 2
