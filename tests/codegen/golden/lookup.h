/* lookup: (tokens: i64[B,T]) -> (f32[B,T,16], f32[B,16])
 * Made by fxlite from lookup. */
#ifndef FX_LOOKUP_H
#define FX_LOOKUP_H

#include <stdint.h>

#ifndef FX_ERROR_DEFINED
#define FX_ERROR_DEFINED
/** The codes of errors; 0 means that a call succeeded. */
enum {
    FX_INDEX_OUT_OF_RANGE = 1, /**< an index is out of range for its axis */
    FX_OUT_OF_MEMORY,          /**< there is not enough memory */
    FX_WRONG_PROCESSOR,        /**< the processor lacks instructions that the code was made for */
    FX_IMPOSSIBLE_SIZES,       /**< no call with these sizes is possible */
    FX_WRONG_WEIGHTS,          /**< the weights are not those that the code was made for */
    FX_NO_FACTORS              /**< a matrix is singular, or not positive definite */
};
/** Why a call failed. */
typedef struct {
    int code;      /**< 0 if it did not fail */
    int64_t value; /**< the index */
    int64_t limit; /**< how many elements the axis has */
    int64_t where; /**< the number of the place in the program; the header lists the places */
} fx_error;
#endif

/* where 0: slice along axis 0 */
/* where 1: take along axis 0 */

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the weights in memory. */
#define LOOKUP_WEIGHTS_BYTES 39168

/** A sentence that says what the code of an error means. */
static inline const char *lookup_error_message(int code) {
    switch (code) {
    case 0: return "No error.";
    case FX_INDEX_OUT_OF_RANGE: return "An index is out of range for its axis.";
    case FX_OUT_OF_MEMORY: return "There is not enough memory.";
    case FX_WRONG_PROCESSOR: return "The processor lacks instructions that it was compiled for.";
    case FX_IMPOSSIBLE_SIZES: return "No call with these sizes of the named dims is possible.";
    case FX_WRONG_WEIGHTS: return "The weights are not those that the code was made for.";
    case FX_NO_FACTORS: return "A matrix is singular, or not positive definite.";
    default: return "The code of the error is unknown.";
    }
}

/** Bytes of the largest value that a call with these sizes stores; -1 if no such call is possible,
 * since a size is negative, or one has more than 2^47 bytes (2^56 where it is not stored). */
int64_t lookup_largest_bytes(int64_t B, int64_t T);

/** Whether a call with these sizes is possible on this processor: 0, or the code of the
 * error that it would return. The run function checks this by itself. */
int lookup_check(int64_t B, int64_t T);

/** Bytes of workspace that a call with these arguments needs; -1 for impossible sizes. */
int64_t lookup_workspace_bytes(int64_t B, int64_t T, int n_threads);

/** Run the model.
 *
 * @param[in] tokens  i64[B,T]
 * @param[out] add    f32[B,T,16] (the program's ["rows"])
 * @param[out] mean   f32[B,16] (the program's ["mean"])
 * @param B           size of a named dim, 0 or more
 * @param T           size of a named dim, 0 or more
 * @param weights     LOOKUP_WEIGHTS_BYTES bytes, 64-byte aligned; only read
 * @param workspace   memory to compute in, 64-byte aligned; may be NULL if none is needed
 * @param n_threads   how many OpenMP threads to use at most, 1 to 4096
 * @param[out] error  filled in: what went wrong
 * @return 0, or error->code
 *
 * Arrays are dense and row-major; outputs must not overlap other arrays. Calls with
 * different workspaces and outputs may run at the same time. */
int lookup_run(const int64_t *tokens, float *add, float *mean, int64_t B, int64_t T,
    const void *weights, void *workspace, int n_threads, fx_error *error);

#ifdef __cplusplus
}
#endif
#endif
