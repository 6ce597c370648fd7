// lookup: (tokens: i64[B,T]) -> (f32[B,T,16], f32[B,16])
// Made by fxlite from lookup.
#include "prelude.cuh"
#include "fx_math.h"

// where 0: take along axis 0
// where 1: slice along axis 0

// add: f32[B,T,16] = take -> slice -> add
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) lookup_k0_add(const int64_t *__restrict__ tokens,
    const float *__restrict__ table, const float *__restrict__ places, float *__restrict__ add,
    int64_t B, int64_t T, fx_error *error) {
    for (int64_t element = fx_thread_index(); element < B*T*16; element += fx_thread_count()) {
        const int64_t i = element / (T*16);
        const int64_t j = (element / 16) % T;
        const int64_t k = element % 16;
        const int64_t t0 = fx_index(tokens[i*T + j], 100, 0, error);
        const int64_t t1 = fx_index(j, 512, 1, error);
        add[element] = (t0 >= 0 ? table[t0*16 + k] : 0) + (t1 >= 0 ? places[j*16 + k] : 0);
    }
}

// mean: f32[B,16] = mean
// program.py:2
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) lookup_k1_mean(const float *__restrict__ add,
    float *__restrict__ mean, int64_t B, int64_t T) {
    for (int64_t element = fx_thread_index(); element < B*16; element += fx_thread_count()) {
        const int64_t i = element / 16;
        const int64_t j = element % 16;
        const float t0 = (float)T;
        double wide = 0.0;
        for (int64_t r = 0; r < T; ++r) {
            wide += (double)add[(i*T + r)*16 + j];
        }
        const float total = (float)wide;
        mean[element] = total / t0;
    }
}

// launch: lookup_k0_add<<<(fx_min((B*T*16 + 255) / 256, 65535)), (256)>>>(tokens, table, places, add, B, T, error)
// launch: lookup_k1_mean<<<(fx_min((B*16 + 255) / 256, 65535)), (256)>>>(add, mean, B, T)
