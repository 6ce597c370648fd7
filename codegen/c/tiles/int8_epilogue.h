/* Epilogues of integer products, which finish a vector of int32 sums at a time. `count` is the
 * number of elements needed, or any larger number for all. A whole vector of 8-bit numbers has a
 * quarter of the bytes of one of floats. */

#if INSTANCE == 0
#define WORD f32
#define WORD_TYPE float
#define WORD_VEC float_vec
#else
#define WORD i32
#define WORD_TYPE int32_t
#define WORD_VEC int_vec
#endif

#if INSTANCE == 0
#define BYTE u8
#define BYTE_TYPE uint8_t
#define WIDEN_256 _mm256_cvtepu8_epi32
#define WIDEN_512 _mm512_cvtepu8_epi32
#else
#define BYTE i8
#define BYTE_TYPE int8_t
#define WIDEN_256 _mm256_cvtepi8_epi32
#define WIDEN_512 _mm512_cvtepi8_epi32
#endif

/* ---- Epilogues: vectors of 32 bits, of which `count` elements (or all) are needed ------------ */
typedef uint8_t u8_vec VECTOR(VECTOR_BYTES / 4, 1);
typedef int8_t i8_vec VECTOR(VECTOR_BYTES / 4, 1);

static TILE_INLINE WORD_VEC load_WORD(const WORD_TYPE *from, int count)
{
    if (count >= int_lanes)
        return *(const WORD_VEC *)from;
#if VECTOR_BYTES == 64
    return (WORD_VEC)_mm512_maskz_loadu_epi32((__mmask16)((1 << count) - 1), from);
#else
    WORD_VEC x = {0};
    for (int i = 0; i < int_lanes && i < count; i++)
        LANE(x, i) = from[i];
    return x;
#endif
}

static TILE_INLINE void store_WORD(WORD_TYPE *to, WORD_VEC x, int count)
{
    if (count >= int_lanes)
        *(WORD_VEC *)to = x;
#if VECTOR_BYTES == 64
    else
        _mm512_mask_storeu_epi32(to, (__mmask16)((1 << count) - 1), (__m512i)x);
#else
    for (int i = 0; count < int_lanes && i < count; i++)
        to[i] = LANE(x, i);
#endif
}

static TILE_INLINE int_vec widen_BYTE(BYTE_vec x)
{
#if VECTOR_BYTES == 64
    return (int_vec)WIDEN_512((__m128i)x);
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
    int64_t bytes;
    memcpy(&bytes, &x, 8);
    return (int_vec)WIDEN_256(_mm_cvtsi64_si128(bytes));
#else
    return CONVERT(x, int_vec);
#endif
}

static TILE_INLINE int_vec load_BYTE(const BYTE_TYPE *from, int count)
{
    BYTE_vec x = {0};
    if (count >= int_lanes)
        return widen_BYTE(*(const BYTE_vec *)from);
    for (int i = 0; i < int_lanes && i < count; i++)
        LANE(x, i) = from[i];
    return widen_BYTE(x);
}

static TILE_INLINE void store_BYTE(BYTE_TYPE *to, int_vec x, int count)
{
    const BYTE_vec bytes = CONVERT(x, BYTE_vec);
    if (count >= int_lanes) {
        *(BYTE_vec *)to = bytes;
        return;
    }
    BYTE_TYPE all[VECTOR_BYTES / 4], *from = all;
    *(BYTE_vec *)all = bytes;
    #pragma GCC unroll 4
    for (int size = VECTOR_BYTES / 8; size > 0; size /= 2) {
        if (count & size)
            memcpy(to, from, (size_t)size);
        from += count & size, to += count & size;
    }
}

/* x rounded to the nearest whole number, halves to even, plus the zero point, within [low, high];
 * NaN gives low. Clipping before rounding is equivalent, because the limits are whole numbers. */
static TILE_INLINE int_vec saturate_f32(
    float_vec x, const int zero_point, const int low, const int high)
{
    const float least = (float)(low - zero_point), most = (float)(high - zero_point);
#if VECTOR_BYTES == 64
    x = (float_vec)_mm512_max_ps((__m512)x, _mm512_set1_ps(least));
    x = (float_vec)_mm512_min_ps((__m512)x, _mm512_set1_ps(most));
    return (int_vec)_mm512_cvtps_epi32((__m512)x) + zero_point;
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
    x = (float_vec)_mm256_max_ps((__m256)x, _mm256_set1_ps(least));
    x = (float_vec)_mm256_min_ps((__m256)x, _mm256_set1_ps(most));
    return (int_vec)_mm256_cvtps_epi32((__m256)x) + zero_point;
#else
    int_vec whole;
    for (int i = 0; i < int_lanes; i++) {
        const float above = LANE(x, i) > least ? LANE(x, i) : least;
        const float within = above < most ? above : most;
        LANE(whole, i) = (int32_t)rintf(within) + zero_point;
    }
    return whole;
#endif
}

/* a * b, rounded, never part of a fused multiply-add; like fx_product_f32. */
static TILE_INLINE float_vec product_f32(float_vec a, float_vec b)
{
#if VECTOR_BYTES == 64
    return (float_vec)_mm512_fmadd_ps((__m512)a, (__m512)b, _mm512_set1_ps(-0.0f));
#elif VECTOR_BYTES == 32 && defined(__FMA__)
    return (float_vec)_mm256_fmadd_ps((__m256)a, (__m256)b, _mm256_set1_ps(-0.0f));
#elif defined(__FP_FAST_FMAF)
    for (int i = 0; i < int_lanes; i++)
        LANE(a, i) = fmaf(LANE(a, i), LANE(b, i), -0.0f);
    return a;
#else
    return a * b;
#endif
}

/* store_BYTE of saturate_f32. */
static TILE_INLINE void store_rounded_BYTE(
    BYTE_TYPE *to, float_vec x, const int zero_point, const int low, const int high, int count)
{
#if VECTOR_BYTES == 64
    if ((BYTE_TYPE)-1 > 0 && zero_point == 0 && low == 0 && high == 255 && count >= int_lanes) {
        /* Both conversions saturate, from 0 on. */
        x = (float_vec)_mm512_max_ps((__m512)x, _mm512_setzero_ps());
        *(BYTE_vec *)to = (BYTE_vec)_mm512_cvtusepi32_epi8(_mm512_cvtps_epu32((__m512)x));
        return;
    }
#endif
    store_BYTE(to, saturate_f32(x, zero_point, low, high), count);
}
