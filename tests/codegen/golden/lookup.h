/* lookup: (tokens: i64[B,T]) -> (f32[B,T,16], f32[B,16])
 * Made by fxlite from lookup. */
#ifndef FX_LOOKUP_H
#define FX_LOOKUP_H

#include <stdint.h>

#ifndef FX_ERROR_DEFINED
#define FX_ERROR_DEFINED
/* Why a call failed: an index `value` that is out of range for an axis of `limit` elements,
   at the place number `where`; no memory; a processor that lacks instructions which the code
   was compiled for; sizes that cannot be. The code is 0 if it did not fail. */
enum {
    FX_INDEX_OUT_OF_RANGE = 1, FX_OUT_OF_MEMORY, FX_WRONG_PROCESSOR, FX_IMPOSSIBLE_SIZES
};
typedef struct { int code; int64_t value; int64_t limit; int64_t where; } fx_error;
#endif

/* where 0: take along axis 0 */
/* where 1: slice along axis 0 */

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the weights, the contents of lookup_weights.bin. */
#define LOOKUP_WEIGHTS_BYTES 39168

/* Bytes of the largest value that a call with these sizes stores; -1 if no such call is possible,
   since a size is negative, or one has more than 2^47 bytes (2^56 where it is not stored). */
int64_t lookup_largest_bytes(int64_t B, int64_t T);

/* Bytes of workspace that a call with these arguments needs; -1 for impossible sizes. */
int64_t lookup_workspace_bytes(int64_t B, int64_t T, int n_threads);

/* Run the model.
 *
 *   tokens     in   i64[B,T]
 *   add        out  f32[B,T,16]  (the program's ["rows"])
 *   mean       out  f32[B,16]  (the program's ["mean"])
 *   B, T       sizes of the named dims, 0 or more
 *   weights    LOOKUP_WEIGHTS_BYTES bytes, 64-byte aligned; only read
 *   workspace  memory to compute in, 64-byte aligned; may be NULL if no bytes are needed
 *   n_threads  how many OpenMP threads to use at most, 1 to 4096
 *   error      filled in: what went wrong
 *
 * Arrays are dense and row-major; outputs may overlap nothing else.
 * Returns 0, or error->code. Calls with different workspaces and outputs may run at the
 * same time. */
int lookup_run(const int64_t *tokens, float *add, float *mean, int64_t B, int64_t T,
    const void *weights, void *workspace, int n_threads, fx_error *error);

#ifdef __cplusplus
}
#endif
#endif
