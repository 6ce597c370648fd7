// turned: (x: f32[3,40,50]) -> (f32[40,50,3])
// Made by fxlite from turned.
#include "prelude.cuh"
#include "fx_math.h"

// mul: f32[40,50,3] = permute -> mul
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) turned_k0_mul(const float *__restrict__ x,
    float *__restrict__ mul) {
    for (int64_t element = fx_thread_index(); element < 6000; element += fx_thread_count()) {
        const int64_t i = element / 3;
        const int64_t j = element % 3;
        mul[element] = x[j*2000 + i] * 2.0f;
    }
}

// launch: turned_k0_mul<<<(24), (256)>>>(x, mul)
