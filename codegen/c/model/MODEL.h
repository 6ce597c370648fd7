ABOUT
#ifndef FX_UPPER_H
#define FX_UPPER_H

ERROR_TYPE

PLACES

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the weights in memory. */
#define UPPER_WEIGHTS_BYTES SIZE_OF_WEIGHTS

/** A sentence that says what the code of an error means. */
static inline const char *MODEL_error_message(int code) {
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

STATE

COUNT

/** Whether a call with these sizes is possible on this processor: 0, or the code of the
 * error that it would return. The run function checks this by itself. */
CHECK

WORKSPACE

RUN

#ifdef __cplusplus
}
#endif
#endif
