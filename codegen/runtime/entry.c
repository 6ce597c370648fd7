/* The part of the calls that is specific to one model, compiled at the end of the file that defines
 * the model: dims and sizes, and the order of arguments. extension.c does the rest. Its names begin as
 * no model's names do. */

/* An example: one input f32[B] and one output f32[B]. */
#define MODEL model
#define SIGNATURE model(x: f32[B]) -> f32[B]
#define HELPERS
#define CALLED fx_separate(MODEL_workspace_bytes); fx_separate(MODEL_run);
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

HELPERS

/* The machine code of the model is what it would be without calls from here. */
#define fx_separate(function) __typeof__(function) function __attribute__((noinline))
CALLED

static const fx_input fx_entry_inputs[] = {
    INPUTS
};

static const int fx_entry_ranks[] = {RANKS};

static int fx_entry_measure(const ptrdiff_t *const *shapes, int64_t most_bytes, int64_t *dims, int64_t *sizes)
{
    (void)shapes, (void)most_bytes, (void)dims, (void)sizes;
    CHECKS
    FOUND_DIMS
    FOUND_SIZES
    return 1;
}

static int64_t fx_entry_workspace_bytes(const int64_t *dims, int n_threads)
{
    (void)dims;
    return MODEL_workspace_bytes(DIMS n_threads);
}

static int fx_entry_run(void *const *arrays, const int64_t *dims, const void *weights, void *workspace,
               int n_threads, fx_error *error)
{
    (void)arrays, (void)dims;
    return MODEL_run(ARRAYS DIMS weights, workspace, n_threads, error);
}

const fx_entry fxlite_entry = {
    "MODEL",
    COUNTS,
    fx_entry_inputs,
    fx_entry_ranks,
    N_SIZES,
    fx_entry_measure,
    fx_entry_workspace_bytes,
    fx_entry_run,
};
