/* The matrix tiles of AMX, for files compiled for a processor that has them (__AMX_BF16__ and
 * __AMX_INT8__); elsewhere the same functions use vectors.
 *
 * The functions treat bf16 and 8-bit integers alike: a *word* of 32 bits is a pair or a quad of
 * numbers that are adjacent along k. Panels of pairs and of quads have the layout that the
 * instructions need for B: 16 rows of 64 bytes are 16 columns of 32 (64) steps along k. So packed
 * weights do not depend on the machine, and A is read in place. All tiles have 16 rows, so that a
 * thread configures them once for many products (200 cycles). Incomplete tiles are completed: of
 * 17 to 31 rows the second tile holds the last 16, and computes some again; if there are fewer
 * than 16 rows, they are copied with zeros, and so is the rest of k. Integer sums start from the
 * first row of a panel, loaded as 16 rows at a distance of 0. Rows of i8 are made unsigned, as
 * their panels require, in a copy of 64 numbers of each row at a time.
 *
 * Measured on a core of a Xeon with 2 MiB of L2, where float32 reaches 205 GFLOP/s: 3.6 TFLOP/s
 * of bf16 without loads, 3.0 with both operands in the first-level cache, 2.9 with weights in the
 * second. */

/* ---- The matrix tiles of AMX -------------------------------------------------------------------
 * Registers of 16 rows of 64 bytes. A thread takes them before its products and releases them
 * afterwards: as long as it has them, the system saves 8 KiB more at each context switch. */
#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#define HAS_TILES
long syscall(long number, ...);
#endif

/* Rows of a tile of sums of pairs of bf16, and of quads of integers. */
#ifdef HAS_TILES
enum { PAIR_ROWS = 32, QUAD_ROWS = 32 };
#else
enum { PAIR_ROWS = TILE_ROWS, QUAD_ROWS = TILE_ROWS };
#endif

/* Whether this process may use tiles. Linux permits it on request (ARCH_REQ_XCOMP_PERM,
 * XTILEDATA), unless the processor has none, or a sandbox forbids it: then products use
 * vectors. */
static inline int tiles_allowed(void)
{
#ifdef HAS_TILES
    static int answer; /* 0: not asked yet */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == 0) {
        known = syscall(SYS_arch_prctl, 0x1023L, 18L) == 0 ? 1 : -1;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == 1;
#else
    return 0;
#endif
}

/* The first row of tile number `tile` of `tiles` tiles of sums, which have up to `most` rows
 * each: rows are divided evenly, with AMX into multiples of whole registers. */
static inline int64_t first_tile_row(int64_t tile, int64_t tiles, int64_t rows, int most)
{
    const int64_t unit = most == 32 ? 16 : 1, units = (rows + unit - 1) / unit;
    const int64_t row = tile * units / tiles * unit;
    return row < rows ? row : rows;
}

/* To be called by a thread before its products: eight tiles, of 16 rows of 64 bytes each. */
static inline void take_tiles(void)
{
#ifdef HAS_TILES
    static const struct {
        uint8_t palette, first_row, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape ALIGNED(64) = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    if (tiles_allowed())
        _tile_loadconfig(&shape);
#endif
}

/* To be called after them. */
static inline void release_tiles(void)
{
#ifdef HAS_TILES
    if (tiles_allowed())
        _tile_release();
#endif
}

#ifdef HAS_TILES
/* Tiles 0 to 3, the sums of up to 32 rows and 32 columns, start as 0, or each row as `start`. GCC
 * does not know that a tile is loaded from memory, so earlier stores must be completed first. */
static TILE_INLINE void start_sums(
    const int row_tiles, const int column_tiles, const void *start)
{
    __asm__ volatile("" ::: "memory");
    if (!start) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, start, 0);
    if (column_tiles > 1)
        _tile_loadd(1, (const uint8_t *)start + 64, 0);
    if (row_tiles > 1)
        _tile_loadd(2, start, 0);
    if (row_tiles > 1 && column_tiles > 1)
        _tile_loadd(3, (const uint8_t *)start + 64, 0);
}

/* Store the first tile's sums into tile[0..15][32], and the second one's from row `second` on. */
static TILE_INLINE void store_sums(
    const int row_tiles, const int column_tiles, int second, void *tile)
{
    uint8_t *const first = tile, *const last = first + second * 128;
    _tile_stored(0, first, 128);
    if (column_tiles > 1)
        _tile_stored(1, first + 64, 128);
    if (row_tiles > 1)
        _tile_stored(2, last, 128);
    if (row_tiles > 1 && column_tiles > 1)
        _tile_stored(3, last + 64, 128);
}

/* Load 64 bytes of each of 16 rows at a, a_row bytes apart, into tile 4, and of those `second`
 * bytes further on into tile 5. */
static TILE_INLINE void load_rows(
    const int row_tiles, const uint8_t *a, int64_t a_row, int64_t second)
{
    _tile_loadd(4, a, a_row);
    if (row_tiles > 1)
        _tile_loadd(5, a + second, a_row);
}

/* Load 16 words of up to 32 columns, which are rows of a panel, into tiles 6 and 7. */
static TILE_INLINE void load_columns(
    const int column_tiles, const uint32_t *b)
{
    _tile_loadd(6, b, 128);
    if (column_tiles > 1)
        _tile_loadd(7, b + 16, 128);
}

/* Add the products to tiles 0 to 3. */
static TILE_INLINE void add_products(
    const int row_tiles, const int column_tiles, const int is_bf16)
{
    if (is_bf16) {
        _tile_dpbf16ps(0, 4, 6);
        if (column_tiles > 1)
            _tile_dpbf16ps(1, 4, 7);
        if (row_tiles > 1)
            _tile_dpbf16ps(2, 5, 6);
        if (row_tiles > 1 && column_tiles > 1)
            _tile_dpbf16ps(3, 5, 7);
        return;
    }
    _tile_dpbusd(0, 4, 6);
    if (column_tiles > 1)
        _tile_dpbusd(1, 4, 7);
    if (row_tiles > 1)
        _tile_dpbusd(2, 5, 6);
    if (row_tiles > 1 && column_tiles > 1)
        _tile_dpbusd(3, 5, 7);
}

/* Add 16 words of rows at a times those of columns at b to the sums. If operands have two parts,
 * the lower ones are a_low bytes and b_low words further on, and their products with the upper
 * ones are added as well. */
static TILE_INLINE void add_words(
    const int row_tiles, const int column_tiles, const int is_bf16, const int parts,
    const uint8_t *a, int64_t a_low, int64_t a_row, int64_t second, const uint32_t *b,
    int64_t b_low)
{
    load_columns(column_tiles, b);
    if (parts > 1) {
        load_rows(row_tiles, a + a_low, a_row, second);
        add_products(row_tiles, column_tiles, is_bf16);
    }
    load_rows(row_tiles, a, a_row, second);
    add_products(row_tiles, column_tiles, is_bf16);
    if (parts > 1) {
        load_columns(column_tiles, b + b_low);
        add_products(row_tiles, column_tiles, is_bf16);
    }
}

/* block[32][64] = `count` bytes of `rows` rows with the bits of `flip` inverted, then zeros. */
static inline void copy_rows(int rows, int64_t count, const int flip, const uint8_t *a,
                             int64_t a_row, uint8_t *restrict block)
{
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 64; j++)
            block[i * 64 + j] = (uint8_t)(i < rows && j < count ? a[i * a_row + j] ^ flip : 0);
}

/* block[16][32] = `words` rows of a panel, then zeros. */
static inline void copy_columns(int64_t words, const uint32_t *b, uint32_t *restrict block)
{
    for (int i = 0; i < 16 * 32; i++)
        block[i] = i < words * 32 ? b[i] : 0;
}

/* tile[rows][32] = `start`, or 0, plus A, rows of `depth` bytes, times a panel at b; with one or
 * two tiles of rows and of columns. */
static TILE_INLINE void multiply_in_tiles(
    const int row_tiles, const int column_tiles, const int is_bf16, const int parts,
    const int flip, int rows, int64_t depth, const uint8_t *a, int64_t a_low, int64_t a_row,
    const void *start, const uint32_t *b, int64_t b_low, void *tile)
{
    const int second = row_tiles > 1 ? rows - 16 : 0;
    int64_t k = 0;
    start_sums(row_tiles, column_tiles, start);
    if (!flip && (rows == 1 || rows >= 16)) { /* a single row is read 16 times */
        const int64_t step = rows == 1 ? 0 : a_row;
        for (; k + 64 <= depth; k += 64)
            add_words(row_tiles, column_tiles, is_bf16, parts, a + k, a_low, step, second * step,
                      b + k * 8, b_low);
    }
    for (; k < depth; k += 64) {
        const int64_t count = depth - k < 64 ? depth - k : 64;
        const int is_whole = count == 64;
        uint8_t a_block[2][32 * 64];
        uint32_t b_block[2][16 * 32];
        for (int part = 0; part < parts; part++) {
            copy_rows(rows, count, flip, a + part * a_low + k, a_row, a_block[part]);
            if (!is_whole)
                copy_columns((count + 3) / 4, b + part * b_low + k * 8, b_block[part]);
        }
        __asm__ volatile("" ::: "memory");
        add_words(row_tiles, column_tiles, is_bf16, parts, a_block[0], 32 * 64, 64, second * 64,
                  is_whole ? b + k * 8 : b_block[0], is_whole ? b_low : 16 * 32);
    }
    store_sums(row_tiles, column_tiles, second, tile);
}

/* The same for 1 to 32 rows and columns. */
static TILE_INLINE void multiply_tiles(
    const int is_bf16, const int parts, const int flip, int rows, int columns, int64_t depth,
    const void *a, int64_t a_low, int64_t a_row, const void *start, const void *b, int64_t b_low,
    void *tile)
{
    if (rows > 16 && columns > 16)
        multiply_in_tiles(2, 2, is_bf16, parts, flip, rows, depth, a, a_low, a_row, start, b,
                          b_low, tile);
    else if (rows > 16)
        multiply_in_tiles(2, 1, is_bf16, parts, flip, rows, depth, a, a_low, a_row, start, b,
                          b_low, tile);
    else if (columns > 16)
        multiply_in_tiles(1, 2, is_bf16, parts, flip, rows, depth, a, a_low, a_row, start, b,
                          b_low, tile);
    else
        multiply_in_tiles(1, 1, is_bf16, parts, flip, rows, depth, a, a_low, a_row, start, b,
                          b_low, tile);
}
#endif
