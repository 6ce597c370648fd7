/* What recurrences need besides the loop over time. */

/* The number of tiles of at most `most` rows into which a batch is divided; from three on it is a
 * multiple of four, which threads share evenly. */
static inline int64_t count_row_tiles(int64_t rows, int64_t most)
{
    const int64_t tiles = (rows + most - 1) / most;
    return tiles > 2 ? (tiles + 3) / 4 * 4 : tiles;
}

/* ---- States of recurrent layers as 8-bit integers -------------------------------------------- */

/* The scale of a row of a recurrent state: its largest magnitude over 127. Non-negative floats
 * have the same order as their bits, with NaN above all others. */
static float scale_of_state(int64_t size, const float *row)
{
    int32_t bits = 0;
    #pragma omp simd reduction(max : bits)
    for (int64_t k = 0; k < size; k++) {
        const int32_t magnitude = (int32_t)(fx_bits_f32(row[k]) & 0x7fffffffu);
        bits = magnitude > bits ? magnitude : bits;
    }
    return fx_maximum_f32(fx_float_from_bits((uint32_t)bits), 9.554418e-35f) * 0.007874016f;
}

/* A row of a recurrent state as integers, with `offset` added to each. */
static void round_state(
    int64_t size, const float *restrict row, float scale, float zero_point, float low, float high,
    int32_t offset, uint8_t *restrict rounded)
{
    const float reciprocal = 1.0f / scale;
    #pragma omp simd
    for (int64_t k = 0; k < size; k++) {
        const float nearest = fx_round_f32(row[k] * reciprocal) + zero_point;
        rounded[k] = (uint8_t)(fx_saturate_f32(nearest, low, high) + offset);
    }
}
