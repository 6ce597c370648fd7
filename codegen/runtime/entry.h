/* What entry.c, compiled with each model, tells extension.c, compiled once for all. The type
   fx_error of fx_math.h stands before. */
#include <stddef.h>

/* An array that is read: the letters of formats in the buffer protocol that are its dtype. */
typedef struct { const char *formats; int bytes; int rank; } fx_input;

typedef struct {
    const char *name;
    int n_inputs, n_outputs, n_dims, single_output;
    const fx_input *inputs;
    const int *ranks; /* of the outputs */
    int n_sizes;      /* of the outputs' axes, all together */
    /* The dims for inputs of these shapes, and the sizes of the outputs' axes, one output after
       another; 0 where an axis or a condition does not fit, or a value takes too many bytes. */
    int (*measure)(const ptrdiff_t *const *shapes, int64_t most_bytes, int64_t *dims, int64_t *sizes);
    int64_t (*workspace_bytes)(const int64_t *dims, int n_threads);
    /* The arrays are the inputs, then the outputs. */
    int (*run)(void *const *arrays, const int64_t *dims, const void *weights, void *workspace,
               int n_threads, fx_error *error);
} fx_entry;

extern const fx_entry fxlite_entry __attribute__((visibility("hidden")));
