// conv_int8: (x: i8[N,8,H,W]) -> (i8[N,16,(H-1)//2+1,(W-1)//2+1])
// Made by fxlite from conv_int8.
#include "prelude.cuh"
#include "fx_math.h"

// requantize: i8[N,16,(H-1)//2+1,(W-1)//2+1] = int_conv2d -> requantize
// program.py:1
// program.py:2
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) conv_int8_k0_requantize(
    const int8_t *__restrict__ x, const int8_t *__restrict__ weight,
    const float *__restrict__ scale, int8_t *__restrict__ requantize, int64_t H, int64_t N,
    int64_t W) {
    __shared__ __align__(16) int a_tile[16][68];  // [quad along k][row]
    __shared__ __align__(16) int b_tile[16][68];  // [quad along k][column]
    const int64_t out_h = fx_floor_div(H - 1, 2) + 1;
    const int64_t out_w = fx_floor_div(W - 1, 2) + 1;
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread % 16)*4;
    const int thread_col = (thread / 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    int sums[4][4] = {};
    for (int64_t k_begin = 0; k_begin < 72; k_begin += 64) {
        // A: neighbouring threads load neighbours along rows
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e % 64;
            const int j = e / 64;
            const int64_t row = block_row + i;
            const int64_t image = row / (out_h*out_w);
            const int64_t out_row = (row / out_w) % out_h;
            const int64_t out_col = row % out_w;
            int quad = 0;
            #pragma unroll
            for (int step = 0; step < 4; ++step) {
                const int64_t k = k_begin + j*4 + step;
                const int64_t channel = k / 9;
                const int64_t kernel_row = (k / 3) % 3;
                const int64_t kernel_col = k % 3;
                quad |= row < N*out_h*out_w && k < 72 && out_row*2 + kernel_row - 1 >= 0
                    && out_row*2 + kernel_row - 1 < H && out_col*2 + kernel_col - 1 >= 0
                    && out_col*2 + kernel_col - 1 < W
                    ? (int)((x[((image*H*4 + out_row)*W + out_col)*2 + channel*H*W + kernel_row*W
                    + kernel_col - W - 1] & 255u) << step*8) : 0;
            }
            a_tile[j][i] = quad;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t col = i;
            const int64_t k = k_begin + j*4;
            b_tile[j][i] = col < 16 && k < 72 ? fx_quad(&weight[col*72 + k]) : 0;
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
        __syncthreads();  // the tiles are overwritten next
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int64_t row = block_row + thread_row + i;
            const int64_t col = thread_col + j;
            if (row < N*out_h*out_w && col < 16) {
                const int64_t image = row / (out_h*out_w);
                const int64_t out_row = (row / out_w) % out_h;
                const int64_t out_col = row % out_w;
                requantize[((image*16 + col)*out_h + out_row)*out_w + out_col] =
                    (int8_t)fx_saturate_f32(fx_round_f32((float)sums[i][j] * scale[col]), -128.0f,
                    127.0f);
            }
        }
    }
}

// launch: conv_int8_k0_requantize<<<((N*out_h*out_w + 63) / 64), (256)>>>(x, weight, scale, requantize, H, N, W) where out_h = fx_floor_div(H - 1, 2) + 1, out_w = fx_floor_div(W - 1, 2) + 1
