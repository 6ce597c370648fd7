/* profiled: (x: f32[N]) -> f32[N]
 * Made by fxlite from profiled. */
#include "profiled.h"
#include <time.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "fx_math.h"

/* Enter the bytes of a value in those of the largest. False if there cannot be one: a size is
   negative, its bytes cannot be counted, or it has no elements but axes to loop over for hours. */
static bool fx_count(double *largest, bool stored, double bytes, int rank, const double *shape) {
    double counted = bytes; /* with empty axes as one element */
    bool empty = false;
    for (int axis = 0; axis < rank; axis++) {
        if (!(shape[axis] >= 0)) return false;
        if (shape[axis] >= 1) counted *= shape[axis];
        else empty = true;
    }
    if (empty) return counted <= 0x1p32;
    if (counted > (stored ? 0x1p47 : 0x1p56)) return false;
    if (stored && counted > *largest) *largest = counted;
    return true;
}

/* Whether this processor has the instructions that this file was compiled for. */
static inline int processor_fits(void)
{
    int fits = 1;
#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __AVX__
    fits &= __builtin_cpu_supports("avx") != 0;
#endif
#ifdef __AVX2__
    fits &= __builtin_cpu_supports("avx2") != 0;
#endif
#ifdef __FMA__
    fits &= __builtin_cpu_supports("fma") != 0;
#endif
#ifdef __AVX512F__
    fits &= __builtin_cpu_supports("avx512f") != 0;
#endif
#ifdef __AVX512BW__
    fits &= __builtin_cpu_supports("avx512bw") != 0;
#endif
#ifdef __AVX512DQ__
    fits &= __builtin_cpu_supports("avx512dq") != 0;
#endif
#ifdef __AVX512VL__
    fits &= __builtin_cpu_supports("avx512vl") != 0;
#endif
#ifdef __AVX512BF16__
    fits &= __builtin_cpu_supports("avx512bf16") != 0;
#endif
#ifdef __AVX512VNNI__
    fits &= __builtin_cpu_supports("avx512vnni") != 0;
#endif
#endif
    return fits;
}

/* Operations (an addition is one, an exp eight) from which a loop is worth a second thread. */
enum { PARALLEL_OPERATIONS = 65536 };

/* sqrt: f32[N] = sqrt
 * program.py:1 */
static void k0_sqrt(const float *restrict x, float *restrict sqrt, int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (N*8 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        sqrt[i] = fx_sqrt_f32(x[i]);
    }
}

int64_t profiled_largest_bytes(int64_t N) {
    double fx_largest = 0;
    if (!fx_count(&fx_largest, true, 4, 1, (const double[]){N})) return -1;
    return (int64_t)fx_largest;
}

int64_t profiled_workspace_bytes(int64_t N, int n_threads) {
    (void)n_threads;  // not needed by this model
    if (profiled_largest_bytes(N) < 0) return -1;
    return 0;
}

static _Thread_local int64_t fx_ticks[2];

const int64_t *profiled_ticks(void) { return fx_ticks; }

static int64_t fx_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int profiled_run(const float *x, float *sqrt, int64_t N, const void *weights, void *workspace,
    int n_threads, fx_error *error) {
    (void)weights, (void)workspace;  // not needed by this model
    error->code = 0;
    if (!processor_fits()) return error->code = 3;
    if (profiled_largest_bytes(N) < 0) return error->code = 4;
    fx_ticks[0] = fx_nanoseconds();
    k0_sqrt(x, sqrt, N, n_threads);  // sqrt: f32[N]
    fx_ticks[1] = fx_nanoseconds();
    return 0;
}
