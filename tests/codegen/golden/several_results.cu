// several_results: (x: f32[2,8]) -> (f32[2,8], f32[2,8], f32[8], f32[4,4], f32[2,8])
// Made by fxlite from several_results.
#include "prelude.cuh"
#include "fx_math.h"

// mul: f32[2,8] = mul
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) several_results_k0_mul(
    const float *__restrict__ x, const float *__restrict__ weight, float *__restrict__ mul) {
    for (int64_t element = fx_thread_index(); element < 16; element += fx_thread_count()) {
        const int64_t j = element % 8;
        mul[element] = x[element] * weight[j];
    }
}

// reshape: f32[4,4] = reshape
// program.py:2
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) several_results_k1_reshape(
    const float *__restrict__ mul, float *__restrict__ reshape) {
    for (int64_t i = fx_thread_index(); i < 16; i += fx_thread_count()) {
        reshape[i] = mul[i];
    }
}

// launch: several_results_k0_mul<<<(1), (256)>>>(x, weight, mul)
// launch: several_results_k1_reshape<<<(1), (256)>>>(mul, reshape)
