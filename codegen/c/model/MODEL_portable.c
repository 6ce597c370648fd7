/* Chooses, if the model was compiled for several processors of x86-64 (make PORTABLE=1), the
 * functions for this one. */
#include <stdint.h>

#include "MODEL.h"

HELPERS

/* 4 with AVX-512, 3 with AVX2, else 1: x86-64-v4, -v3 and any. */
static int level(void)
{
    static int answer; /* 0: not known yet */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == 0) {
        const uint32_t avx = 1u << 28 | 1u << 29 | 1u << 22 | 1u << 12; /* F16C, MOVBE, FMA */
        const uint32_t avx2 = 1u << 5 | 1u << 3 | 1u << 8;              /* BMI1, BMI2 */
        const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
        known = processor_has(avx, avx2, 0, 0) ? 3 : 1;
        if (processor_has(avx, avx2 | avx512, 0, 0))
            known = 4;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known;
}

#define CHOICE(type, name, parameters, arguments) \
    type name##_v1 parameters; \
    type name##_v3 parameters; \
    type name##_v4 parameters; \
    type name parameters \
    { \
        const int known = level(); \
        return known == 4 ? name##_v4 arguments \
            : known == 3 ? name##_v3 arguments : name##_v1 arguments; \
    }

CHOICES
