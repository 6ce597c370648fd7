/* profiled: (x: f32[N]) -> f32[N]
 * Made by fxlite from profiled. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>
#include "profiled.h"
#include "fx_math.h"
#include "profiled_tiles.h"

/* sqrt: f32[N] = sqrt
 * program.py:1 */
static void k0_sqrt(const float *restrict x, float *restrict sqrt, int64_t N, int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: N*8 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < N; ++i) {
        sqrt[i] = fx_sqrt_f32(x[i]);
    }
}

int64_t profiled_largest_bytes(int64_t N) {
    double fx_largest = 0;
    if (!fx_count(&fx_largest, true, 4, 1, (const double[]){(double)N})) return -1;
    return (int64_t)fx_largest;
}

int profiled_check(int64_t N) {
    if (!processor_fits()) return FX_WRONG_PROCESSOR;
    if (profiled_largest_bytes(N) < 0) return FX_IMPOSSIBLE_SIZES;
    return 0;
}

int64_t profiled_workspace_bytes(int64_t N, int n_threads) {
    (void)n_threads;  // not needed by this model
    if (profiled_largest_bytes(N) < 0) return -1;
    return 0;
}

#if __STDC_VERSION__ >= 201112L
#define FX_THREAD _Thread_local
#else
#define FX_THREAD __thread
#endif
static FX_THREAD int64_t fx_ticks[2];
static FX_THREAD int fx_tick_count;

const int64_t *profiled_ticks(void) { return fx_ticks; }

static void fx_tick(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fx_ticks[fx_tick_count++] = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int profiled_run(const float *x, float *sqrt, int64_t N, const void *weights, void *workspace,
    int n_threads, fx_error *error) {
    (void)weights, (void)workspace;  // not needed by this model
    error->code = profiled_check(N);
    if (error->code) return error->code;
    fx_tick_count = 0;
    fx_tick();
    k0_sqrt(x, sqrt, N, n_threads);  // sqrt: f32[N]
    fx_tick();
    return 0;
}
