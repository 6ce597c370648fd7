"""C text of the helpers of integer products' epilogues, which finish a vector of int32 sums at a
time; `vector_printer.print_integer_vectors` prints the calls. `INT8_EPILOGUE` is part of
`int8_tile.INT8_PREAMBLE`.

``count`` is how many elements are wanted, or any larger number for all. A whole vector of numbers
of 8 bits is a quarter of one of floats.
"""

from __future__ import annotations

_HEAD = """
/* ---- Epilogues: vectors of 32 bits, of which `count` elements (or all) are wanted ------------ */
typedef uint8_t u8_vec __attribute__((vector_size(VECTOR_BYTES / 4), aligned(1), may_alias));
typedef int8_t i8_vec __attribute__((vector_size(VECTOR_BYTES / 4), aligned(1), may_alias));
"""

_WORDS = """
static inline __attribute__((always_inline)) WHOLE load_NAME(const TYPE *from, int count)
{
    if (count >= int_lanes)
        return *(const WHOLE *)from;
#if defined(__AVX512F__)
    return (WHOLE)_mm512_maskz_loadu_epi32((1 << count) - 1, from);
#else
    WHOLE x = {0};
    for (int i = 0; i < int_lanes && i < count; i++)
        x[i] = from[i];
    return x;
#endif
}

static inline __attribute__((always_inline)) void store_NAME(TYPE *to, WHOLE x, int count)
{
    if (count >= int_lanes)
        *(WHOLE *)to = x;
#if defined(__AVX512F__)
    else
        _mm512_mask_storeu_epi32(to, (1 << count) - 1, (__m512i)x);
#else
    for (int i = 0; count < int_lanes && i < count; i++)
        to[i] = x[i];
#endif
}
"""

_BYTES = """
static inline __attribute__((always_inline)) int_vec widen_NAME(NAME_vec x)
{
#if defined(__AVX512F__)
    return (int_vec)_mm512_cvtepSIGN8_epi32((__m128i)x);
#elif defined(__AVX2__)
    int64_t bytes;
    __builtin_memcpy(&bytes, &x, 8);
    return (int_vec)_mm256_cvtepSIGN8_epi32(_mm_cvtsi64_si128(bytes));
#else
    return __builtin_convertvector(x, int_vec);
#endif
}

static inline __attribute__((always_inline)) int_vec load_NAME(const TYPE *from, int count)
{
    NAME_vec x = {0};
    if (count >= int_lanes)
        return widen_NAME(*(const NAME_vec *)from);
    for (int i = 0; i < int_lanes && i < count; i++)
        x[i] = from[i];
    return widen_NAME(x);
}

static inline __attribute__((always_inline)) void store_NAME(TYPE *to, int_vec x, int count)
{
    const NAME_vec bytes = __builtin_convertvector(x, NAME_vec);
    if (count >= int_lanes) {
        *(NAME_vec *)to = bytes;
        return;
    }
    TYPE all[VECTOR_BYTES / 4], *from = all;
    *(NAME_vec *)all = bytes;
    #pragma GCC unroll 4
    for (int size = VECTOR_BYTES / 8; size > 0; size /= 2) {
        if (count & size)
            __builtin_memcpy(to, from, size);
        from += count & size, to += count & size;
    }
}
"""

_ROUND = """
/* Rounded to the nearest whole number, halves to even, plus the zero point, within [low, high]; NaN
 * gives low. To clip before rounding is the same: the limits are whole numbers. */
static inline __attribute__((always_inline)) int_vec saturate_f32(
    float_vec x, const int zero_point, const int low, const int high)
{
    const float least = low - zero_point, most = high - zero_point;
#if defined(__AVX512F__)
    x = (float_vec)_mm512_max_ps((__m512)x, _mm512_set1_ps(least));
    x = (float_vec)_mm512_min_ps((__m512)x, _mm512_set1_ps(most));
    return (int_vec)_mm512_cvtps_epi32((__m512)x) + zero_point;
#elif defined(__AVX2__)
    x = (float_vec)_mm256_max_ps((__m256)x, _mm256_set1_ps(least));
    x = (float_vec)_mm256_min_ps((__m256)x, _mm256_set1_ps(most));
    return (int_vec)_mm256_cvtps_epi32((__m256)x) + zero_point;
#else
    int_vec whole;
    for (int i = 0; i < int_lanes; i++) {
        const float above = x[i] > least ? x[i] : least, within = above < most ? above : most;
        whole[i] = (int32_t)__builtin_rintf(within) + zero_point;
    }
    return whole;
#endif
}

/* a * b, rounded: no part of a fused multiply-add, as fx_product_f32. */
static inline __attribute__((always_inline)) float_vec product_f32(float_vec a, float_vec b)
{
#if defined(__AVX512F__)
    return (float_vec)_mm512_fmadd_ps((__m512)a, (__m512)b, _mm512_set1_ps(-0.0f));
#elif defined(__FMA__)
    return (float_vec)_mm256_fmadd_ps((__m256)a, (__m256)b, _mm256_set1_ps(-0.0f));
#elif defined(__FP_FAST_FMAF)
    for (int i = 0; i < int_lanes; i++)
        a[i] = __builtin_fmaf(a[i], b[i], -0.0f);
    return a;
#else
    return a * b;
#endif
}
"""


_STORE = """
/* store_NAME of saturate_f32. */
static inline __attribute__((always_inline)) void store_rounded_NAME(
    TYPE *to, float_vec x, const int zero_point, const int low, const int high, int count)
{
#if defined(__AVX512F__)
    if ((TYPE)-1 > 0 && zero_point == 0 && low == 0 && high == 255 && count >= int_lanes) {
        /* Both conversions saturate, from 0 on. */
        x = (float_vec)_mm512_max_ps((__m512)x, _mm512_setzero_ps());
        *(NAME_vec *)to = (NAME_vec)_mm512_cvtusepi32_epi8(_mm512_cvtps_epu32((__m512)x));
        return;
    }
#endif
    store_NAME(to, saturate_f32(x, zero_point, low, high), count);
}
"""


def _typed(text: str, name: str, kind: str, vector: str = "") -> str:
    """A template for elements of one type."""
    words = {"NAME": name, "TYPE": kind, "WHOLE": vector, "SIGN": name[0]}
    for word, value in words.items():
        text = text.replace(word, value)
    return text


INT8_EPILOGUE = (
    _HEAD + _typed(_WORDS, "f32", "float", "float_vec")
    + _typed(_WORDS, "i32", "int32_t", "int_vec") + _typed(_BYTES, "u8", "uint8_t")
    + _typed(_BYTES, "i8", "int8_t") + _ROUND + _typed(_STORE, "u8", "uint8_t")
    + _typed(_STORE, "i8", "int8_t")
)  # fmt: skip
"""C text that must follow `int8_tile`'s vectors of int32 and precede its products' functions."""
