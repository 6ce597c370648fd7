// packed_memory: (x: f32[6,40], y: f32[40,8]) -> (f32[48])
// Made by fxlite from packed_memory.
#include "prelude.cuh"
#include "fx_math.h"

// matmul: f32[6,8] = matmul
// program.py:1
// One block for each tile of 32 x 32 elements.
extern "C" __global__ void __launch_bounds__(256) packed_memory_k0_matmul(
    const float *__restrict__ x, const float *__restrict__ y, float *__restrict__ matmul) {
    __shared__ __align__(16) float a_tile[64][36];  // [k][row]
    __shared__ __align__(16) float b_tile[64][36];  // [k][column]
    __shared__ __align__(16) float totals[32][36];
    const int thread = (int)threadIdx.x;
    const int group = thread / 32;
    const int thread_row = ((thread % 32) / 8)*4;
    const int thread_col = ((thread % 32) % 8)*4;
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
        const int row = i;
        const int k = j;
        const float4 four = row < 6 && k < 40 ? fx_four(&x[row*40 + k]) : float4();
        a_next[e*4] = four.x;
        a_next[e*4 + 1] = four.y;
        a_next[e*4 + 2] = four.z;
        a_next[e*4 + 3] = four.w;
    }
    // B: neighbouring threads load neighbours along columns
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int i = (thread % 8)*4;
        const int j = e*32 + thread / 8;
        const int col = i;
        const int k = j;
        const float4 four = col < 8 && k < 40 ? fx_four(&y[k*8 + col]) : float4();
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
        const int i = (thread % 8)*4;
        const int j = e*32 + thread / 8;
        #pragma unroll
        for (int part = 0; part < 4; ++part) {
            b_tile[j][i + part] = b_next[e*4 + part];
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
        const int row = i;
        const int col = j;
        if (row < 6 && col < 8) {
            const float sum = totals[i][j];
            matmul[row*8 + col] = sum;
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

// cumsum_1: f32[48] = reshape -> cumsum
// program.py:2
// One thread.
extern "C" __global__ void __launch_bounds__(1) packed_memory_k2_cumsum_1(
    const float *__restrict__ cumsum, float *__restrict__ cumsum_1) {
    float total = 0.0f;
    for (int64_t r = 0; r < 48; ++r) {
        total += cumsum[r];
        cumsum_1[r] = total;
    }
}

// sum: f32 = sum
// program.py:2
// One block of 64 threads.
extern "C" __global__ void __launch_bounds__(64) packed_memory_k3_sum(
    const float *__restrict__ cumsum, float *__restrict__ sum) {
    float total = 0.0f;
    for (int64_t r = threadIdx.x; r < 48; r += blockDim.x) {
        total += cumsum[r];
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
// launch: packed_memory_k2_cumsum_1<<<(1), (1)>>>(cumsum, cumsum_1)
// launch: packed_memory_k3_sum<<<(1), (64)>>>(cumsum, sum)
// launch: packed_memory_k4_div<<<(1), (256)>>>(cumsum_1, sum, div)
