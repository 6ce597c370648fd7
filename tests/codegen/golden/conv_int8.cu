// conv_int8: (x: i8[N,8,H,W]) -> (i8[N,16,(H-1)//2+1,(W-1)//2+1])
// Made by fxlite from conv_int8.
#include "prelude.cuh"
#include "fx_math.h"

// requantize: i8[N,16,(H-1)//2+1,(W-1)//2+1] = int_conv2d -> requantize
// program.py:1
// program.py:2
// One block for each tile of 32 x 32 elements.
extern "C" __global__ void __launch_bounds__(256) conv_int8_k0_requantize(
    const int8_t *__restrict__ x, const int8_t *__restrict__ weight,
    const float *__restrict__ scale, int8_t *__restrict__ requantize, int64_t H, int64_t N,
    int64_t W) {
    __shared__ __align__(16) int a_tile[64][36];  // [quad along k][row]
    __shared__ __align__(16) int b_tile[64][36];  // [quad along k][column]
    __shared__ __align__(16) int totals[32][36];
    const int64_t out_h = fx_floor_div(H - 1, 2) + 1;
    const int64_t out_w = fx_floor_div(W - 1, 2) + 1;
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
    int a_next[8];
    int b_next[8];
    // A: neighbouring threads load neighbours along rows
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int i = thread % 32;
        const int j = e*8 + thread / 32;
        const int64_t row = block_row + i;
        const int64_t image = row / (out_h*out_w);
        const int64_t out_row = (row / out_w) % out_h;
        const int64_t out_col = row % out_w;
        int quad = 0;
        #pragma unroll
        for (int step = 0; step < 4; ++step) {
            const int64_t k = j*4 + step;
            const int64_t channel = k / 9;
            const int64_t kernel_row = (k / 3) % 3;
            const int64_t kernel_col = k % 3;
            quad |= row < N*out_h*out_w && k < 72 && out_row*2 + kernel_row - 1 >= 0 && out_row*2
                + kernel_row - 1 < H && out_col*2 + kernel_col - 1 >= 0 && out_col*2 + kernel_col
                - 1 < W ? (int)((x[((image*H*4 + out_row)*W + out_col)*2 + channel*H*W
                + kernel_row*W + kernel_col - W - 1] & 255u) << step*8) : 0;
        }
        a_next[e] = quad;
    }
    // B: neighbouring threads load neighbours along k
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int i = (e % 2)*16 + thread / 16;
        const int j = (e / 2)*16 + (thread % 16);
        const int64_t col = i;
        const int64_t k = j*4;
        b_next[e] = col < 16 && k < 72 ? fx_quad(&weight[col*72 + k]) : 0;
    }
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int i = thread % 32;
        const int j = e*8 + thread / 32;
        a_tile[j][i] = a_next[e];
    }
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int i = (e % 2)*16 + thread / 16;
        const int j = (e / 2)*16 + (thread % 16);
        b_tile[j][i] = b_next[e];
    }
    __syncthreads();
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
        if (row < N*out_h*out_w && col < 16) {
            const int sum = totals[i][j];
            const int64_t image = row / (out_h*out_w);
            const int64_t out_row = (row / out_w) % out_h;
            const int64_t out_col = row % out_w;
            requantize[((image*16 + col)*out_h + out_row)*out_w + out_col] =
                (int8_t)fx_saturate_f32(fx_round_f32((float)sum * scale[col]), -128.0f, 127.0f);
        }
    }
}

// launch: conv_int8_k0_requantize<<<((N*out_h*out_w + 31) / 32), (256)>>>(x, weight, scale, requantize, H, N, W) where out_h = fx_floor_div(H - 1, 2) + 1, out_w = fx_floor_div(W - 1, 2) + 1
