/* The weights of MODEL: whether memory holds them. */
#ifndef FX_UPPER_WEIGHTS_H
#define FX_UPPER_WEIGHTS_H

#include <string.h>

#include "MODEL.h"

/** What made MODEL_weights.bin, and the digest of its contents. */
#define UPPER_WEIGHTS_MADE_BY "fxlite FX_VERSION"
#define UPPER_WEIGHTS_DIGEST UINT64_C(DIGEST_VALUE)

#if STORED
/** Bytes of MODEL_weights.bin, which holds some weights as integers. */
#define UPPER_STORED_BYTES SIZE_OF_FILE

#endif // STORED
/** Whether memory, read or mapped from MODEL_weights.bin, holds the weights that the code was made
 * for, at an address that it can read them from. Costs one pass over them.
 *
 * @param memory  64-byte aligned
 * @param bytes   how many there are
 * @return 0, or FX_WRONG_WEIGHTS */
static inline int MODEL_weights_check(const void *memory, int64_t bytes) {
    if (bytes != FILE_BYTES || (uintptr_t)memory % 64) return FX_WRONG_WEIGHTS;
    uint64_t digest = 0, word;
    for (int64_t i = 0; i < bytes; i += 8) {
        memcpy(&word, (const char *)memory + i, 8);
        digest = digest * UINT64_C(FACTOR) + word;
    }
    return digest == UPPER_WEIGHTS_DIGEST ? 0 : FX_WRONG_WEIGHTS;
}

#if STORED
/* Floats from integers times scales: each row of `width` scales is for `run` numbers. */
static inline void MODEL_expand(const char *file, char *floats, int bits, int64_t count,
                               int64_t run, int64_t width) {
    const float *scale = (const float *)(const void *)file;
    const signed char *const integers = (const signed char *)(scale + count / run * width);
    float *const to = (float *)(void *)floats;
    for (int64_t i = 0; i < count; i += run, scale += width) {
        for (int64_t j = 0; j < run; ++j) {
            int value = integers[bits == 4 ? (i + j) / 2 : i + j];
            if (bits == 4) value = ((((i + j) % 2 ? value >> 4 : value) & 15) ^ 8) - 8;
            to[i + j] = (float)value * scale[j % width];
        }
    }
}

/** Convert the contents of MODEL_weights.bin to what MODEL_run reads. The file is not needed then.
 *
 * @param file          contents that MODEL_weights_check accepts
 * @param[out] weights  UPPER_WEIGHTS_BYTES bytes, 64-byte aligned */
static inline void MODEL_weights_expand(const void *file, void *weights) {
    const char *const from = file;
    char *const to = weights;
LINES}

#endif // STORED
#endif
