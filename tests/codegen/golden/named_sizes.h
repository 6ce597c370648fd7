/* named_sizes: (x: f32[B,N], y: f32[M,B*N]) -> f32[M,B*N]
 * Made by fxlite from named_sizes. */
#ifndef FX_NAMED_SIZES_H
#define FX_NAMED_SIZES_H

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

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the weights, the contents of named_sizes_weights.bin. */
#define NAMED_SIZES_WEIGHTS_BYTES 0

/* Bytes of the largest value that a call with these sizes stores; -1 if no such call is possible,
   since a size is negative, or one has more than 2^47 bytes (2^56 where it is not stored). */
int64_t named_sizes_largest_bytes(int64_t B, int64_t N, int64_t M);

/* Bytes of workspace that a call with these arguments needs; -1 for impossible sizes. */
int64_t named_sizes_workspace_bytes(int64_t B, int64_t N, int64_t M, int n_threads);

/* Run the model.
 *
 *   x          in   f32[B,N]
 *   y          in   f32[M,B*N]
 *   div        out  f32[M,B*N]
 *   B, N, M    sizes of the named dims, 0 or more
 *              M >= 1 is required by program.py:2: z.max(0)
 *   weights    NAMED_SIZES_WEIGHTS_BYTES bytes, 64-byte aligned; only read
 *   workspace  memory to compute in, 64-byte aligned; may be NULL if no bytes are needed
 *   n_threads  how many OpenMP threads to use at most, 1 to 4096
 *   error      filled in: what went wrong
 *
 * Arrays are dense and row-major; outputs may overlap nothing else.
 * Returns 0, or error->code. Calls with different workspaces and outputs may run at the
 * same time. */
int named_sizes_run(const float *x, const float *y, float *div, int64_t B, int64_t N, int64_t M,
    const void *weights, void *workspace, int n_threads, fx_error *error);

#ifdef __cplusplus
}
#endif
#endif
