// packed_memory: (x: f32[6,40], y: f32[40,8]) -> (f32[48])
// Made by fxlite from packed_memory.
#include "prelude.cuh"
#include "fx_math.h"

// matmul: f32[6,8] = matmul
// program.py:1
// One block for each tile of 64 x 64 elements.
extern "C" __global__ void __launch_bounds__(256) packed_memory_k0_matmul(
    const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ matmul) {
    __shared__ __align__(16) float a_tile[16][68];  // [k][row]
    __shared__ __align__(16) float b_tile[16][68];  // [k][column]
    const int thread = (int)threadIdx.x;
    const int thread_row = (thread / 16)*4;
    const int thread_col = (thread % 16)*4;
    float sums[4][4] = {};
    for (int64_t k_begin = 0; k_begin < 40; k_begin += 16) {
        // A: neighbouring threads load neighbours along k
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e / 16;
            const int j = e % 16;
            const int64_t row = i;
            const int64_t k = k_begin + j;
            a_tile[j][i] = row < 6 && k < 40 ? x[row*40 + k] : 0;
        }
        // B: neighbouring threads load neighbours along columns
        #pragma unroll
        for (int e = thread; e < 1024; e += 256) {
            const int i = e % 64;
            const int j = e / 64;
            const int64_t col = i;
            const int64_t k = k_begin + j;
            b_tile[j][i] = col < 8 && k < 40 ? y[k*8 + col] : 0;
        }
        __syncthreads();
        #pragma unroll
        for (int tile_k = 0; tile_k < 16; ++tile_k) {
            float a_part[4], b_part[4];
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
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int64_t row = thread_row + i;
            const int64_t col = thread_col + j;
            if (row < 6 && col < 8) {
                matmul[row*8 + col] = sums[i][j];
            }
        }
    }
}

// cumsum: f32[6,8] = cumsum
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) packed_memory_k1_cumsum(
    const float *__restrict__ matmul, float *__restrict__ cumsum) {
    for (int64_t i = fx_thread_index(); i < 8; i += fx_thread_count()) {
        float total = 0.0f;
        for (int64_t r = 0; r < 6; ++r) {
            total += matmul[r*8 + i];
            cumsum[r*8 + i] = total;
        }
    }
}

// cumsum_1: f32[48] = cumsum
// program.py:2
// One thread.
extern "C" __global__ void __launch_bounds__(1) packed_memory_k2_cumsum_1(
    const float *__restrict__ reshape, float *__restrict__ cumsum_1) {
    float total = 0.0f;
    for (int64_t r = 0; r < 48; ++r) {
        total += reshape[r];
        cumsum_1[r] = total;
    }
}

// sum: f32 = sum
// program.py:2
// One block of 64 threads.
extern "C" __global__ void __launch_bounds__(64) packed_memory_k3_sum(
    const float *__restrict__ cumsum, float *__restrict__ sum) {
    float total = 0.0f;
    for (int64_t position = threadIdx.x; position < 48; position += blockDim.x) {
        total += cumsum[position];
    }
    total = fx_block_sum(total);
    if (threadIdx.x == 0) sum[0] = total;
}

// div: f32[48] = div
// program.py:2
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) packed_memory_k4_div(
    const float *__restrict__ cumsum_1, const float *__restrict__ sum, float *__restrict__ div) {
    for (int64_t i = fx_thread_index(); i < 48; i += fx_thread_count()) {
        div[i] = cumsum_1[i] / sum[0];
    }
}

// launch: packed_memory_k0_matmul<<<(1), (256)>>>(x, y, matmul)
// launch: packed_memory_k1_cumsum<<<(1), (256)>>>(matmul, cumsum)
// launch: packed_memory_k2_cumsum_1<<<(1), (1)>>>(reshape, cumsum_1)
// launch: packed_memory_k3_sum<<<(1), (64)>>>(cumsum, sum)
// launch: packed_memory_k4_div<<<(1), (256)>>>(cumsum_1, sum, div)
