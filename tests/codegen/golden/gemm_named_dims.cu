// gemm_named_dims: (x: f64[2,H,T,8], y: f64[2,H,T,8]) -> (f64[2,H,T,T])
// Made by fxlite from gemm_named_dims.
#include "prelude.cuh"
#include "fx_math.h"

// mul: f64[2,H,T,T] = permute -> matmul -> mul
// program.py:1
// One block for each tile of 32 x 32 elements.
extern "C" __global__ void __launch_bounds__(256) gemm_named_dims_k0_mul(
    const double *__restrict__ x, const double *__restrict__ y, double *__restrict__ mul,
    int64_t H, int64_t T) {
    __shared__ __align__(16) double a_tile[32][36];  // [k][row]
    __shared__ __align__(16) double b_tile[32][36];  // [k][column]
    __shared__ __align__(16) double totals[32][36];
    const int thread = (int)threadIdx.x;
    const int group = thread / 64;
    const int thread_row = ((thread % 64) / 8)*4;
    const int thread_col = ((thread % 64) % 8)*4;
    const int64_t block_row = (int64_t)blockIdx.x*32;
    const int64_t block_col = (int64_t)blockIdx.y*32;
    for (int64_t batch = blockIdx.z; batch < H*2; batch += gridDim.z) {
        const int64_t batch_0 = batch / H;
        const int64_t batch_1 = batch % H;
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            totals[e / 32][e % 32] = 0;
        }
        double sums[4][4] = {};
        double a_next[4];
        double b_next[4];
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = (e % 2)*16 + thread / 16;
            const int j = (e / 2)*16 + (thread % 16);
            const int64_t row = block_row + i;
            const int64_t k = j;
            a_next[e] = row < T && k < 8 ? x[((batch_0*H + batch_1)*T + row)*8 + k] : 0;
        }
        // B: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = (e % 2)*16 + thread / 16;
            const int j = (e / 2)*16 + (thread % 16);
            const int64_t col = block_col + i;
            const int64_t k = j;
            b_next[e] = col < T && k < 8 ? y[((batch_0*H + batch_1)*T + col)*8 + k] : 0;
        }
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = (e % 2)*16 + thread / 16;
            const int j = (e / 2)*16 + (thread % 16);
            a_tile[j][i] = a_next[e];
        }
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = (e % 2)*16 + thread / 16;
            const int j = (e / 2)*16 + (thread % 16);
            b_tile[j][i] = b_next[e];
        }
        __syncthreads();
        #pragma unroll
        for (int step = 0; step < 8; ++step) {
            double a_part[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                a_part[i] = a_tile[group*8 + step][thread_row + i];
            }
            double b_part[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                b_part[i] = b_tile[group*8 + step][thread_col + i];
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] += a_part[i] * b_part[j];
                }
            }
        }
        for (int turn = 0; turn < 4; ++turn) {
            if (group == turn) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        totals[thread_row + i][thread_col + j] += sums[i][j];
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
            const int64_t col = block_col + j;
            if (row < T && col < T) {
                const double sum = totals[i][j];
                mul[((batch_0*H + batch_1)*T + row)*T + col] = sum * 0.5;
            }
        }
        __syncthreads();  // the totals are cleared next
    }
}

// launch: gemm_named_dims_k0_mul<<<((T + 31) / 32, (T + 31) / 32, fx_min(H*2, 65535)), (256)>>>(x, y, mul, H, T)
