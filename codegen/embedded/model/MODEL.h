ABOUT
#ifndef FX_UPPER_H
#define FX_UPPER_H

ERROR_TYPE

PLACES

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of constants, the weights, in MODEL_weights.h. */
#define UPPER_WEIGHTS_BYTES SIZE_OF_WEIGHTS

ARENA

RUN

#ifdef __cplusplus
}
#endif
#endif
