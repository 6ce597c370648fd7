/* What is particular to the calls of one model, compiled next to the model's own files: dims and
 * sizes, and the order of arguments. extension.c does the rest. */

/* An example: one input f32[B] and one output f32[B]. */
#define MODEL model
#define SIGNATURE model(x: f32[B]) -> f32[B]
#define DECLARATIONS \
    int64_t MODEL_workspace_bytes(int64_t, int); \
    int MODEL_run(const void *, void *, int64_t, const void *, void *, int, fx_error *);
#define COUNTS 1, 1, 1, 1
#define INPUTS {"f", 4, 1}, /* x: f32[B] */
#define RANKS 1
#define N_SIZES 1
#define CHECKS int64_t dim_B = shapes[0][0];
#define FOUND_DIMS dims[0] = dim_B;
#define FOUND_SIZES sizes[0] = dim_B;
#define ARRAYS arrays[0], arrays[1],
#define DIMS dims[0],

/* The calls of SIGNATURE; written by fxlite. */

#include "fxlite_entry.h"

DECLARATIONS

static const Input inputs[] = {
    INPUTS
};

static const int ranks[] = {RANKS};

static int measure(const ssize_t *const *shapes, int64_t most_bytes, int64_t *dims, int64_t *sizes)
{
    (void)shapes, (void)most_bytes, (void)dims, (void)sizes;
    CHECKS
    FOUND_DIMS
    FOUND_SIZES
    return 1;
}

static int64_t workspace_bytes(const int64_t *dims, int n_threads)
{
    (void)dims;
    return MODEL_workspace_bytes(DIMS n_threads);
}

static int run(void *const *arrays, const int64_t *dims, const void *weights, void *workspace,
               int n_threads, fx_error *error)
{
    (void)arrays, (void)dims;
    return MODEL_run(ARRAYS DIMS weights, workspace, n_threads, error);
}

const Entry fxlite_entry = {
    "MODEL", COUNTS, inputs, ranks, N_SIZES, measure, workspace_bytes, run,
};
