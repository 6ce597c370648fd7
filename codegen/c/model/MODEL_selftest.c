/* What the self-test of a C bundle calls; MODEL stands for the name of the model. */

/* Self-test of MODEL: runs the model on the inputs stored in selftest/ and compares its outputs with
   what NumPy computed from them.

   MODEL_selftest [THREADS]      in this folder; or: make test
   Exit status: 0 OK, 1 FAILED, 2 a file is missing or memory is short. */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "MODEL_weights.h"
#include "fx_math.h"

/* How long each case is run, at least three times, to measure its time. */
#ifndef SECONDS
#define SECONDS 0.2
#endif

static void stop(const char *problem, const char *name) {
    fprintf(stderr, "MODEL_selftest: %s: %s\n", name, problem);
    exit(2);
}

/* Memory aligned to 64 bytes; never NULL, not even for no bytes. */
static void *allocate(int64_t bytes) {
    char *const memory = malloc((size_t)bytes + 64 + sizeof memory);
    if (memory == NULL) stop("cannot allocate memory", "workspace");
    char *const after = memory + sizeof memory, *const aligned = after + (64 - (uintptr_t)after % 64);
    memcpy(aligned - sizeof memory, &memory, sizeof memory);
    return aligned;
}

static void release(void *aligned) {
    void *memory;
    memcpy(&memory, (char *)aligned - sizeof memory, sizeof memory);
    free(memory);
}

static void *read_file(const char *name, int64_t bytes) {
    FILE *file = fopen(name, "rb");
    if (file == NULL) stop("cannot open it (run the test in its own folder)", name);
    void *data = allocate(bytes);
    if (fread(data, 1, (size_t)bytes, file) != (size_t)bytes) stop("it is too short", name);
    if (fgetc(file) != EOF) stop("it is too long", name);
    fclose(file);
    return data;
}

/* The time in seconds; without OpenMP, where one thread runs, that of the processor. */
static double seconds(void) {
#ifdef _OPENMP
    return omp_get_wtime();
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

/* Floats in memory as C reads them. */
static double value_f32(const void *data, int64_t i) { return ((const float *)data)[i]; }

static double value_f64(const void *data, int64_t i) { return ((const double *)data)[i]; }

static double value_f16(const void *data, int64_t i) {
    return (double)fx_f32_from_f16(((const uint16_t *)data)[i]);
}

static double value_bf16(const void *data, int64_t i) {
    return (double)fx_f32_from_bf16(((const uint16_t *)data)[i]);
}

/* The largest difference between two arrays, relative to the largest expected value; NaN and infinity
   must be in the same places. Returns 1 if it is above the limit. */
static int compare_floats(const char *name, double (*value)(const void *, int64_t), const void *got,
                          const void *expected, int64_t count, double limit) {
    double largest = 0, error = 0;
    int64_t different = 0; /* places where one is NaN or infinite and the other is something else */
    for (int64_t i = 0; i < count; i++) {
        const double a = value(got, i), b = value(expected, i);
        if (isfinite(a) && isfinite(b)) {
            largest = fmax(largest, fabs(b));
            error = fmax(error, fabs(a - b));
        } else if (a != b && !(isnan(a) && isnan(b))) {
            different++;
        }
    }
    const int failed = different > 0 || !(error <= limit * largest);
    printf("    %-16s largest error %.1e of the largest value (limit %.1e): %s\n", name,
           largest > 0 ? error / largest : error, limit, failed ? "FAILED" : "OK");
    if (different) printf("    NaN or infinity differ at %" PRId64 " places\n", different);
    return failed;
}

/* Integers must be equal. Returns 1 if some are not. */
static int compare_integers(const char *name, const void *got, const void *expected, int64_t count,
                            size_t size) {
    int64_t different = 0;
    for (int64_t i = 0; i < count; i++) {
        const size_t at = (size_t)i * size;
        different += memcmp((const char *)got + at, (const char *)expected + at, size) != 0;
    }
    printf("    %-16s %" PRId64 " of %" PRId64 " values differ: %s\n", name, different, count,
           different ? "FAILED" : "OK");
    return different > 0;
}

/* Run case `number`. Returns 1 if it failed. */
HEAD
    char path[1000];
    printf("case %d: SHOWN\n", LABEL);
ARRAYS
    void *const workspace = allocate(MODEL_workspace_bytes(ARGUMENTS_OF_SIZE));
    fx_error error;
    int failed = 0, runs = 0;
    double best = HUGE_VAL;
    for (const double end = seconds() + SECONDS; runs < 3 || seconds() < end; runs++) {
PREPARED
        const double start = seconds();
RUN
            printf("    error %d: value %" PRId64 ", limit %" PRId64 ", where %" PRId64 " (see the header)\n",
                   error.code, error.value, error.limit, error.where);
            failed = 1;
            break;
        }
        best = fmin(best, seconds() - start);
    }
    if (!failed) {
COMPARED
        printf("    %-16s %.4f ms (the fastest of %d runs)\n", "time", best * 1e3, runs);
    }
    release(workspace);
RELEASED
    return failed;
}

int main(int argc, char **argv) {
    int n_threads = 1;
#ifdef _OPENMP
    n_threads = omp_get_max_threads();
#endif
    if (argc > 1) n_threads = atoi(argv[1]);
    if (n_threads < 1) n_threads = 1;
#ifdef EMBEDDED
    extern const unsigned char MODEL_embedded_weights[];
    const void *const READ = MODEL_embedded_weights;
#else
    void *const READ = read_file("MODEL_weights.bin", UPPER_KIND_BYTES);
#endif
    if (MODEL_weights_check(READ, UPPER_KIND_BYTES))
        stop(MODEL_error_message(FX_WRONG_WEIGHTS), "MODEL_weights.bin");
#if STORED
    void *const weights = allocate(UPPER_WEIGHTS_BYTES);
    MODEL_weights_expand(READ, weights);
#endif // STORED
    printf("MODEL: self-test, %d thread%s\n", n_threads, n_threads == 1 ? "" : "s");
    int failed = 0;
CALLS
#ifndef EMBEDDED
    release(READ);
#endif
#if STORED
    release(weights);
#endif // STORED
    printf("%s: %d of NUMBER cases agree with NumPy\n", failed ? "FAILED" : "OK", NUMBER - failed);
    return failed != 0;
}
