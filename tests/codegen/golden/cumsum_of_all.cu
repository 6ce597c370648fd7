// cumsum_of_all: (x: i32[N]) -> (i64[N])
// Made by fxlite from cumsum_of_all.
#include "prelude.cuh"
#include "fx_math.h"

// cumsum: i64[N] = cumsum
// program.py:1
// One thread.
extern "C" __global__ void __launch_bounds__(1) cumsum_of_all_k0_cumsum(
    const int32_t *__restrict__ x, int64_t *__restrict__ cumsum, int64_t N) {
    int64_t total = 0;
    for (int64_t r = 0; r < N; ++r) {
        total += (int64_t)x[r];
        cumsum[r] = total;
    }
}

// launch: cumsum_of_all_k0_cumsum<<<(1), (1)>>>(x, cumsum, N)
