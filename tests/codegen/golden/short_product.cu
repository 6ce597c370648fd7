// short_product: (x: f64[5,3]) -> (f64[5])
// Made by fxlite from short_product.
#include "prelude.cuh"
#include "fx_math.h"

// prod: f64[5] = prod
// program.py:1
// One thread per element, 256 in a block.
extern "C" __global__ void __launch_bounds__(256) short_product_k0_prod(
    const double *__restrict__ x, double *__restrict__ prod) {
    for (int64_t i = fx_thread_index(); i < 5; i += fx_thread_count()) {
        double total = 1.0;
        for (int64_t r = 0; r < 3; ++r) {
            total *= x[i*3 + r];
        }
        prod[i] = total;
    }
}

// launch: short_product_k0_prod<<<(1), (256)>>>(x, prod)
