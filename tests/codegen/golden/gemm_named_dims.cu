// gemm_named_dims: (x: f64[2,H,T,8], y: f64[2,H,T,8]) -> (f64[2,H,T,T])
// Made by fxlite from gemm_named_dims.
#include "prelude.cuh"
#include "fx_math.h"

// mul: f64[2,H,T,T] = permute -> matmul -> mul
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) gemm_named_dims_k0_mul(
    const double *__restrict__ x, const double *__restrict__ y, double *__restrict__ mul,
    int64_t H, int64_t T) {
    __shared__ __align__(16) double a_tile[16][68];  // [k][row]
    __shared__ __align__(16) double b_tile[16][68];  // [k][column]
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    const int64_t block_row = (int64_t)blockIdx.x*64;
    const int64_t block_col = (int64_t)blockIdx.y*64;
    for (int64_t batch = blockIdx.z; batch < H*2; batch += gridDim.z) {
        const int64_t batch_0 = batch / H;
        const int64_t batch_1 = batch % H;
        double sums[4][4] = {};
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = block_row + i;
            const int64_t k = j;
            a_tile[j][i] = row < T && k < 8 ? x[((batch_0*H + batch_1)*T + row)*8 + k] : 0;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t col = block_col + i;
            const int64_t k = j;
            b_tile[j][i] = col < T && k < 8 ? y[((batch_0*H + batch_1)*T + col)*8 + k] : 0;
        }
        __syncthreads();
        #pragma unroll
        for (int tile_k = 0; tile_k < 16; ++tile_k) {
            double a_part[4], b_part[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                a_part[i] = a_tile[tile_k][thread_row + i];
                b_part[i] = b_tile[tile_k][thread_col + i];
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] += a_part[i] * b_part[j];
                }
            }
        }
        __syncthreads();  // the tiles are overwritten next
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int64_t row = block_row + thread_row + i;
                const int64_t col = block_col + thread_col + j;
                if (row < T && col < T) {
                    mul[((batch_0*H + batch_1)*T + row)*T + col] = sums[i][j] * 0.5;
                }
            }
        }
    }
}

// launch: gemm_named_dims_k0_mul<<<((T + 63) / 64, (T + 63) / 64, fx_min(H*2, 65535)), (256)>>>(x, y, mul, H, T)
