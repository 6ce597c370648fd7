/* Scales of values that are quantized by their own range, found by the kernel that computes them:
 * a template reads each finished tile back from the first-level cache and raises the image's
 * largest magnitude to that of the tile. Threads may do so at the same time, because a maximum
 * does not depend on the order. */

/* ---- Scales of values that are quantized by their own range -------------------------------------
 * Non-negative floats have the same order as their bits, with NaN last. So a scale is stored as
 * the bits of a magnitude, which integer instructions compare, until all magnitudes are known. */
typedef int32_t magnitude_bits MAY_ALIAS;

/* The larger of two numbers that are not negative. */
static TILE_INLINE int_vec larger_bits(int_vec a, int_vec b)
{
#if VECTOR_BYTES == 64
    return (int_vec)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
    return (int_vec)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    return a + ((b - a) & ~((b - a) >> 31));
#endif
}

/* Raises `scale` to the largest magnitude of x[rows][columns], with rows x_row apart. Other
 * threads may do so at the same time. */
static inline void raise_magnitude(
    int64_t rows, int columns, const float *x, int64_t x_row, float *scale)
{
    const magnitude_bits *const from = (const magnitude_bits *)x;
    int32_t lanes[int_lanes], largest = 0;
    int_vec most = {0};
    for (int j = 0; j < columns && columns >= int_lanes; j += int_lanes) {
        const int first = j < columns - int_lanes ? j : columns - int_lanes;
        const magnitude_bits *row = from + first;
        for (int64_t i = 0; i < rows; i++, row += x_row)
            most = larger_bits(most, *(const int_vec *)row & 0x7fffffff);
    }
    for (int64_t i = 0; i < rows && columns < int_lanes; i++) {
        for (int j = 0; j < columns; j++) {
            const int32_t bits = from[i * x_row + j] & 0x7fffffff;
            largest = bits > largest ? bits : largest;
        }
    }
    memcpy(lanes, &most, sizeof lanes);
    #pragma omp simd reduction(max: largest)
    for (int j = 0; j < int_lanes; j++)
        largest = lanes[j] > largest ? lanes[j] : largest;
    magnitude_bits *const shared = (magnitude_bits *)scale;
#if defined(__GNUC__) && !defined(__TINYC__)
    int32_t known = __atomic_load_n(shared, __ATOMIC_RELAXED);
    while (largest > known && !__atomic_compare_exchange_n(
               shared, &known, largest, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
#else
    #pragma omp critical(fx_scale)
    *shared = largest > *shared ? largest : *shared;
#endif
}

/* The same for rows of several images from row_0 on; each image has `pixels` rows. */
static void raise_magnitudes(
    int64_t row_0, int64_t rows, int columns, const float *x, int64_t x_row, int64_t pixels,
    float *scales)
{
    for (int64_t i = 0, count; i < rows; i += count) {
        const int64_t image = (row_0 + i) / pixels, rest = (image + 1) * pixels - row_0 - i;
        count = rest < rows - i ? rest : rows - i;
        raise_magnitude(count, columns, x + i * x_row, x_row, scales + image);
    }
}

/* Turns the complete magnitudes into scales. */
static void finish_scales(
    int64_t count, float least, float factor, float *scales)
{
    for (int64_t n = 0; n < count; n++)
        scales[n] = fx_maximum_f32(scales[n], least) * factor;
}
