// gemv_int8: (x: u8[1,40]) -> (i32[1,50])
// Made by fxlite from gemv_int8.
#include "prelude.cuh"
#include "fx_math.h"

// int_linear: i32[1,50] = int_linear
// program.py:1
// One warp for each column.
extern "C" __global__ void __launch_bounds__(256) gemv_int8_k0_int_linear(
    const uint8_t *__restrict__ x, const int8_t *__restrict__ weight,
    int32_t *__restrict__ int_linear) {
    const int64_t lane = threadIdx.x % 32;
    const int col = (int)(blockIdx.x*8 + threadIdx.x / 32);
    if (col >= 50) return;  // the whole warp
    int sums = 0, b_sums = 0;
    for (int64_t k_begin = lane*4; k_begin < 40; k_begin += 128) {
        const int a_part = fx_quad(&x[k_begin]) ^ 0x80808080;
        const int b_part = fx_quad(&weight[col*40 + k_begin]);
        sums = __dp4a(a_part, b_part, sums);
        b_sums = __dp4a(b_part, 0x01010101, b_sums);
    }
    sums = (int)fx_warp_sum((uint32_t)sums);
    b_sums = (int)fx_warp_sum((uint32_t)b_sums);
    const int sum = (int)(sums + 121u * b_sums);
    if (lane == 0) {
        int_linear[col] = sum;
    }
}

// launch: gemv_int8_k0_int_linear<<<(7), (256)>>>(x, weight, int_linear)
