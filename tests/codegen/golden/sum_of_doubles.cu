// sum_of_doubles: (x: f64[N]) -> (f64)
// Made by fxlite from sum_of_doubles.
#include "prelude.cuh"
#include "fx_math.h"

// sum: f64 = mul -> sum
// program.py:1
// One block of 256 threads.
extern "C" __global__ void __launch_bounds__(256) sum_of_doubles_k0_sum(
    const double *__restrict__ x, double *__restrict__ sum, int64_t N) {
    double wide = 0.0;
    double left = 0.0;
    for (int64_t r = threadIdx.x; r < N; r += blockDim.x) {
        const double t0 = x[r];
        const double mul = t0 * t0;
        const double t1 = wide + mul;
        const double t2 = t1 - wide;
        left += wide - (t1 - t2) + (mul - t2);
        wide += mul;
    }
    left = fx_block_sum(left);
    wide = fx_block_sum(wide);
    const double total = fx_isnan_f64(left) ? wide : wide + left;
    if (threadIdx.x == 0) sum[0] = total;
}

// launch: sum_of_doubles_k0_sum<<<(1), (256)>>>(x, sum, N)
