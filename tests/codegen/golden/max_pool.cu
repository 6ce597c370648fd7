// max_pool: (x: f32[B,3,H,W]) -> (f32[B,3,(H-1)//2+1,(W-1)//2+1])
// Made by fxlite from max_pool.
#include "prelude.cuh"
#include "fx_math.h"

// max_pool2d: f32[B,3,(H-1)//2+1,(W-1)//2+1] = max_pool2d
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) max_pool_k0_max_pool2d(
    const float *__restrict__ x, float *__restrict__ max_pool2d, int64_t B, int64_t H, int64_t W) {
    for (int64_t element = fx_thread_index(); element < B*3 + fx_floor_div(W - 1, 2)*B*3
        + fx_floor_div(H - 1, 2)*B*3 + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*B*3;
        element += fx_thread_count()) {
        const int64_t i = element / (fx_floor_div(H - 1, 2) + fx_floor_div(W - 1, 2)
            + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2) + 1);
        const int64_t j = (element / (fx_floor_div(W - 1, 2) + 1)) % (fx_floor_div(H - 1, 2) + 1);
        const int64_t k = element % (fx_floor_div(W - 1, 2) + 1);
        float total = -INFINITY;
        for (int64_t r = 0; r < 3; ++r) {
            for (int64_t s = 0; s < 3; ++s) {
                const bool t0 = j*2 + r - 1 >= 0 && j*2 + r - 1 < H && k*2 + s - 1 >= 0 && k*2
                    + s - 1 < W;
                total = fx_maximum_f32(total, (t0 ? x[(j*W + k)*2 + i*H*W + r*W + s - W - 1]
                    : -INFINITY));
            }
        }
        max_pool2d[element] = total;
    }
}

// launch: max_pool_k0_max_pool2d<<<(fx_min(fx_floor_div(B*3 + fx_floor_div(W - 1, 2)*B*3 + fx_floor_div(H - 1, 2)*B*3 + fx_floor_div(H - 1, 2)*fx_floor_div(W - 1, 2)*B*3 + 255, 256), 65535)), (256)>>>(x, max_pool2d, B, H, W)
