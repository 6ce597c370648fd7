ABOUT
#ifndef FX_UPPER_H
#define FX_UPPER_H

ERROR_TYPE

#ifndef FX_CUDA_SHIM
#include <cuda_runtime_api.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define UPPER_WEIGHTS_BYTES SIZE_OF_WEIGHTS

/** Bytes of workspace that a call with these sizes needs. */
int64_t MODEL_workspace_bytes(SIZES);

RUN

#ifdef __cplusplus
}
#endif
#endif
