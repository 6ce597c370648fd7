/* The tiles of convolutions on AMX.
 *
 * Rows of a tile are output pixels, here *places* of a padded channels-last image, and the
 * numbers under a kernel lie in *runs* of adjacent ones. Places of an output row are equally
 * spaced, so a tile is loaded directly from the image: there is no im2col. A run is read in whole
 * tiles of 64 bytes; the numbers after its end are multiplied by rows of zeros, `ends`, which a
 * task copies once, so that packed weights are the same as for vectors.
 *
 * - sum_places_u8: 8-bit integers, unsigned.
 * - sum_places_bf16, sum_places_split: bf16, and sums of two bf16. Zero times a number after a
 *   run's end is NaN if that is infinite or NaN: then the tile is computed again by vectors,
 *   which read no further than the run.
 *
 * An image with few columns would leave rows of a tile empty: 7 of 16 filled. So if several
 * output rows fit in 16 places, including the places between them that are not outputs, a tile
 * has several: with 7 columns and a kernel of 3, 2 rows take 7 + 2 + 7 = 16 places. Two such
 * tiles share the weights.
 *
 * Measured on a Xeon with 2 MiB of L2: 3.6 TFLOP/s of bf16 without loads, 3.0 with those of both
 * operands, 2.2 for a kernel of 3 x 3 x 64 channels over rows of 56 pixels, 32 + 24 places. The
 * costs, as estimated before: a product of tiles takes 16 cycles for 16 * 16 * 64 multiplications
 * of bytes (half as many of bf16), a load 8 cycles from the first-level cache and about 20 from
 * the second. 64 bytes of 32 places and of 32 channels are 4 loads, one per product: 32 cycles
 * next to 64, or 16 + 40 if weights come from the second level; with one tile of places the ratio
 * would be 3 to 2, and the second level too slow. With split operands there are 8 loads for 12
 * products. Storing the sums of 32 x 32 and reading them again takes about 130 cycles, a tenth of
 * the products of 3 x 3 x 64 bytes. A first layer of 7 x 7 x 3 has 7 runs of 21 numbers: a third
 * of a tile of bytes, two thirds of one of bf16. Interleaving the rows of the kernel into one run
 * of 147 would need 3 tiles instead of 7, but also a copy 3.5 times as large as the image, in
 * pieces of 3 bytes, which takes longer than it saves. */

/* Words of a run from which tiles are faster; with fewer, vectors take as long. Estimated. */
#define FEWEST_WORDS 4

#if INSTANCE == 0
#define KIND bf16
#define PARTS 1
#define X_LOW
#else
#define KIND split
#define PARTS 2
#define X_LOW x_low,
#endif

/* ---- Tiles of convolutions on AMX --------------------------------------------------------------
 * For channels-last images. Output pixels of a row are x_step bytes of the image apart, output
 * rows row_step bytes. */

#ifdef HAS_TILES
/* How many output rows of `pixels` pixels fit in 16 places, including those between them. */
static inline int64_t rows_in_register(int64_t pixels, int64_t x_step, int64_t row_step)
{
    return pixels > 16 || row_step % x_step ? 1 : (16 - pixels) / (row_step / x_step) + 1;
}
#endif

/* How many output rows a tile of sums has, if it contains whole rows. */
static inline int64_t rows_at_once(int64_t pixels, int64_t x_step, int64_t row_step)
{
#ifdef HAS_TILES
    return pixels > 16 ? 1 : 2 * rows_in_register(pixels, x_step, row_step);
#else
    (void)pixels, (void)x_step, (void)row_step;
    return 1;
#endif
}

/* How many of the remaining `rest` output rows the next tile has. */
static inline int64_t rows_of_tile(int64_t rest, int64_t at_once)
{
#ifdef HAS_TILES
    return rest < at_once ? rest : at_once;
#else
    (void)rest, (void)at_once;
    return 1;
#endif
}

/* The place in a tile of sums at which its output row number `row` begins. */
static inline int64_t place_of_row(int64_t row, int pixels, int64_t x_step, int64_t row_step)
{
#ifdef HAS_TILES
    const int64_t held = rows_in_register(pixels, x_step, row_step);
    return row / held * 16 + row % held * (row_step / x_step);
#else
    (void)row, (void)pixels, (void)x_step, (void)row_step;
    return 0;
#endif
}

/* ends[runs][16][32] = the last words of each run in a panel of weights, those that do not fill a
 * tile, followed by zeros. */
static void copy_ends(
    int64_t runs, int64_t words, const void *b, void *ends)
{
#ifdef HAS_TILES
    for (int64_t r = 0; r < runs && tiles_allowed(); r++)
        copy_columns(words % 16, (const uint32_t *)b + (r * words + words / 16 * 16) * 32,
                     (uint32_t *)ends + r * 16 * 32);
#else
    (void)runs, (void)words, (void)b, (void)ends;
#endif
}

/* Whether runs of this many words are multiplied in tiles. `ends` is null if there are none. */
static inline int worth_tiles(int64_t words, const void *ends)
{
    return tiles_allowed() && words >= FEWEST_WORDS && (words % 16 == 0 || ends);
}

#ifdef HAS_TILES
/* tile[32][32] = `start`, or 0, plus runs of `words` words of 16 places at x, and of 16 more
 * `second` bytes further on if there are two tiles, times a panel of weights at b. The sums of
 * the latter begin at row `second_row`. */
static TILE_INLINE void sum_in_tiles(
    const int row_tiles, const int column_tiles, const int is_bf16, const int parts, int64_t runs,
    int64_t words, const uint8_t *x, int64_t x_low, int64_t x_step, int64_t second, int second_row,
    const int64_t *run, const void *start, const uint32_t *b, const uint32_t *ends, void *tile)
{
    const int64_t b_low = runs * words * 32, ends_low = runs * 16 * 32;
    start_sums(row_tiles, column_tiles, start);
    for (int64_t r = 0; r < runs; r++) {
        const uint8_t *a = x + run[r];
        int64_t rest = words;
        for (; rest >= 16; rest -= 16, a += 64, b += 16 * 32)
            add_words(row_tiles, column_tiles, is_bf16, parts, a, x_low, x_step, second, b, b_low);
        if (rest) {
            add_words(row_tiles, column_tiles, is_bf16, parts, a, x_low, x_step, second,
                      ends + r * 16 * 32, ends_low);
            b += rest * 32;
        }
    }
    store_sums(row_tiles, column_tiles, second_row, tile);
}

/* The same for 1 to 32 pixels of an output row, or the 1 to 16 pixels of several. */
static TILE_INLINE void sum_places(
    const int is_bf16, const int parts, int64_t rows, int pixels, int columns, int64_t runs,
    int64_t words, const uint8_t *x, int64_t x_low, int64_t x_step, int64_t row_step,
    const int64_t *run, const void *start, const void *b, const void *ends, void *tile)
{
    const int64_t held = rows_in_register(pixels, x_step, row_step);
    const int is_wide = pixels > 16, second_row = is_wide ? pixels - 16 : 16;
    const int64_t second = is_wide ? (pixels - 16) * x_step : held * row_step;
    if ((is_wide || rows > held) && columns > 16)
        sum_in_tiles(2, 2, is_bf16, parts, runs, words, x, x_low, x_step, second, second_row, run,
                     start, b, ends, tile);
    else if (is_wide || rows > held)
        sum_in_tiles(2, 1, is_bf16, parts, runs, words, x, x_low, x_step, second, second_row, run,
                     start, b, ends, tile);
    else if (columns > 16)
        sum_in_tiles(1, 2, is_bf16, parts, runs, words, x, x_low, x_step, second, second_row, run,
                     start, b, ends, tile);
    else
        sum_in_tiles(1, 1, is_bf16, parts, runs, words, x, x_low, x_step, second, second_row, run,
                     start, b, ends, tile);
}
#endif

#ifdef HAS_TILES
TILE_FUNCTION static void sum_in_tiles_u8(
    int64_t rows, int pixels, int columns, int64_t runs, int64_t quads, const uint8_t *x,
    int64_t x_step, int64_t row_step, const int64_t *run, const int32_t *b, const int32_t *ends,
    int32_t *restrict tile)
{
    sum_places(0, 1, rows, pixels, columns, runs, quads, x, 0, x_step, row_step, run, b, b + 32,
               ends, tile);
}
#endif

/* Sums of `rows` output rows (see rows_at_once) of `pixels` pixels with a panel of weights of
 * 8-bit integers; between take_tiles and release_tiles. The sums of row r and pixel i are
 * tile[place_of_row(r, ...) + i][32]; the tile has QUAD_ROWS rows, and others may be overwritten.
 * Tiles read 64 bytes at each of 16 places, which includes some bytes after the image. */
static inline void sum_places_u8(
    int64_t rows, int pixels, int columns, int64_t runs, int64_t quads, const uint8_t *x,
    int64_t x_step, int64_t row_step, const int64_t *run, const int32_t *b, const int32_t *ends,
    int32_t *restrict tile)
{
#ifdef HAS_TILES
    if (worth_tiles(quads, ends)) {
        sum_in_tiles_u8(rows, pixels, columns, runs, quads, x, x_step, row_step, run, b, ends,
                        tile);
        return;
    }
    for (int64_t row = 0; row < rows; row++) {
        int32_t *const sums = tile + place_of_row(row, pixels, x_step, row_step) * int_panel;
        for (int i = 0; i < pixels; i += TILE_ROWS) {
            const int count = pixels - i < TILE_ROWS ? pixels - i : TILE_ROWS;
            sum_runs_u8(count, columns, runs, quads, x + row * row_step + i * x_step, x_step, run,
                        b, sums + i * int_panel);
        }
    }
#else
    (void)rows, (void)row_step, (void)ends;
    sum_runs_u8(pixels, columns, runs, quads, x, x_step, run, b, tile);
#endif
}

/* Rounds `count` floats to bf16, into every `step`-th number of `upper`; unless `lower` is null,
 * it gets the remainders (see split_pairs). */
static inline void round_numbers(int64_t count, const float *x, int64_t step,
                                 uint16_t *restrict upper, uint16_t *restrict lower)
{
    int64_t k = 0;
    for (; step == 1 && !lower && k + 32 <= count; k += 32) {
        uint32_t pairs[16];
        round_pairs(x + k, pairs);
        memcpy(upper + k, pairs, 64);
    }
    for (; k < count; k += 32) {
        const int64_t here = count - k < 32 ? count - k : 32;
        const float *source = x + k;
        float part[32] = {0};
        uint32_t pairs[2][16];
        uint16_t numbers[2][32];
        if (here < 32) {
            memcpy(part, source, (size_t)here * 4);
            source = part;
        }
        if (lower)
            split_pairs(source, pairs[0], pairs[1]);
        else
            round_pairs(source, pairs[0]);
        memcpy(numbers, pairs, lower ? 128 : 64);
        for (int half = 0; half < (lower ? 2 : 1); half++) {
            uint16_t *const target = (half ? lower : upper) + k * step;
            if (step == 1)
                memcpy(target, numbers[half], (size_t)here * 2);
            else
                for (int64_t j = 0; j < here; j++)
                    target[j * step] = numbers[half][j];
        }
    }
}

/* pad_row_bytes for floats, which are rounded to bf16; `lower` is as in round_numbers. */
static void pad_row_rounded(
    int64_t w, int64_t channels, const float *row, int64_t pixel, int64_t channel, int64_t left,
    int64_t columns, uint16_t *restrict upper, uint16_t *restrict lower)
{
    const int64_t inside = w > 0 ? w : 0, first = w > 0 ? left * channels : columns * channels;
    const int64_t last = inside ? (columns - left - w) * channels : 0;
    for (int part = 0; part < (lower ? 2 : 1); part++) {
        uint16_t *const target = part ? lower : upper;
        memset(target, 0, (size_t)first * 2);
        memset(target + columns * channels - last, 0, (size_t)last * 2);
    }
    if (channel == 1 && pixel == channels) {
        round_numbers(inside * channels, row, 1, upper + first, lower ? lower + first : 0);
        return;
    }
    for (int64_t c = 0; inside && c < channels; c++) {
        uint16_t *const low = lower ? lower + first + c : 0;
        round_numbers(w, row + c * channel, channels, upper + first + c, low);
    }
}

/* sum_places_bf16 by vectors, for one row; reads no further than the runs. */
static inline void sum_runs_bf16(
    int pixels, int columns, int64_t runs, int64_t numbers, const uint8_t *x, int64_t x_step,
    const int64_t *run, const uint32_t *b, float *restrict tile)
{
    uint32_t pairs[TILE_ROWS * 32];
    float part[TILE_ROWS * float_panel];
    for (int i = 0; i < pixels * float_panel; i++)
        tile[i] = 0;
    for (int64_t r = 0; r < runs; r++) {
        for (int64_t k = 0; k < numbers; k += 64) {
            const int64_t count = numbers - k < 64 ? numbers - k : 64, depth = (count + 1) / 2;
            for (int i = 0; i < pixels; i++) {
                pairs[i * 32 + depth - 1] = 0;
                memcpy(pairs + i * 32, x + run[r] + i * x_step + 2 * k, (size_t)(2 * count));
            }
            multiply_vectors_bf16(pixels, columns, depth, pairs, 32, b, part);
            for (int i = 0; i < pixels; i++)
                for (int j = 0; j < columns; j++)
                    tile[i * float_panel + j] += part[i * float_panel + j];
            b += depth * float_panel;
        }
    }
}

/* The same for two parts, with the lower ones of x x_low bytes further on. If that gives NaN, the
 * upper ones alone decide: see multiply_tile_split. */
static inline void sum_runs_split(
    int pixels, int columns, int64_t runs, int64_t numbers, const uint8_t *x, int64_t x_low,
    int64_t x_step, const int64_t *run, const uint32_t *b, float *restrict tile)
{
    float other[TILE_ROWS * float_panel];
    const uint32_t *const b_low = b + runs * ((numbers + 1) / 2) * float_panel;
    sum_runs_bf16(pixels, columns, runs, numbers, x + x_low, x_step, run, b, tile);
    for (int term = 1; term < 3; term++) {
        sum_runs_bf16(pixels, columns, runs, numbers, x, x_step, run, term == 1 ? b_low : b, other);
        for (int i = 0; i < pixels; i++)
            for (int j = 0; j < columns; j++)
                tile[i * float_panel + j] += other[i * float_panel + j];
    }
    replace_nan(pixels, columns, tile, other);
}

#ifdef HAS_TILES
TILE_FUNCTION static void sum_in_tiles_KIND(
    int64_t rows, int pixels, int columns, int64_t runs, int64_t pairs, const uint8_t *x,
    int64_t x_low, int64_t x_step, int64_t row_step, const int64_t *run, const uint32_t *b,
    const uint32_t *ends, float *restrict tile)
{
    sum_places(1, PARTS, rows, pixels, columns, runs, pairs, x, x_low, x_step, row_step, run, 0, b,
               ends, tile);
}
#endif

/* sum_places_u8 for runs of bf16, or of sums of two, with the lower ones x_low bytes further
 * on. */
static inline void sum_places_KIND(
    int64_t rows, int pixels, int columns, int64_t runs, int64_t numbers, const uint8_t *x,
    int64_t x_low, int64_t x_step, int64_t row_step, const int64_t *run, const uint32_t *b,
    const uint32_t *ends, float *restrict tile)
{
    (void)x_low, (void)ends;
    int in_tiles = 0;
    /* Runs that fill whole tiles have no numbers after their ends; products of parts may be
     * NaN. */
    const int is_exact = PARTS == 1 && numbers % 32 == 0;
#ifdef HAS_TILES
    in_tiles = worth_tiles((numbers + 1) / 2, ends);
    if (in_tiles)
        sum_in_tiles_KIND(rows, pixels, columns, runs, (numbers + 1) / 2, x, x_low, x_step,
                          row_step, run, b, ends, tile);
#endif
    for (int64_t row = 0; row < rows; row++) {
        float *const sums = tile + place_of_row(row, pixels, x_step, row_step) * float_panel;
        if (in_tiles && (is_exact || !has_nan(pixels, columns, sums)))
            continue;
        for (int i = 0; i < pixels; i += TILE_ROWS) {
            const int count = pixels - i < TILE_ROWS ? pixels - i : TILE_ROWS;
            const uint8_t *const from = x + row * row_step + i * x_step;
            float exact[TILE_ROWS * float_panel], *const to = sums + i * float_panel;
            sum_runs_KIND(count, columns, runs, numbers, from, X_LOW x_step, run, b,
                          in_tiles ? exact : to);
            if (in_tiles)
                replace_nan(count, columns, to, exact);
        }
    }
}
