"""C text of products of 8-bit integers on the matrix tiles of AMX, part of
`int8_tile.INT8_PREAMBLE`: ``multiply_tile_u8`` and ``multiply_tile_i8``.

As in `amx_tile`, with 64 numbers along k in the place of 32. The numbers that sums start from, the
first row of a panel, are loaded as 16 rows at a distance of 0. Rows of u8 are read in place; those
of i8 are made unsigned, as their panels expect, in a copy of 64 numbers of each row at a time.
"""

from __future__ import annotations

_TEXT = """\

/* Rows of a tile of an integer product. */
#if defined(__AMX_INT8__) && defined(HAS_TILES)
enum { QUAD_ROWS = 32 };
#else
enum { QUAD_ROWS = TILE_ROWS };
#endif

#if defined(__AMX_INT8__) && defined(HAS_TILES)
/* 16 quads of rows at a, a_row bytes apart (the second tile from row `second` on), times those of
 * columns at b, a row of a panel each: added to the sums in tiles 0 to 3. */
static inline __attribute__((always_inline)) void add_quad_tiles(
    const int row_tiles, const int column_tiles, const uint8_t *a, int64_t a_row, int second,
    const int32_t *b)
{
    _tile_loadd(4, a, a_row);
    _tile_loadd(6, b, 128);
    _tile_dpbusd(0, 4, 6);
    if (column_tiles > 1) {
        _tile_loadd(7, b + 16, 128);
        _tile_dpbusd(1, 4, 7);
    }
    if (row_tiles > 1) {
        _tile_loadd(5, a + second * a_row, a_row);
        _tile_dpbusd(2, 5, 6);
    }
    if (row_tiles > 1 && column_tiles > 1)
        _tile_dpbusd(3, 5, 7);
}

/* block[32][64] = `rows` rows of `count` numbers, those of i8 plus 128, and zeros. */
static inline void copy_quad_rows(int rows, int64_t count, const int is_signed, const uint8_t *a,
                                  int64_t a_row, uint8_t *restrict block)
{
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 64; j++)
            block[i * 64 + j] =
                i < rows && j < count ? a[i * a_row + j] ^ (is_signed ? 128 : 0) : 0;
}

/* multiply_tile_u8 or multiply_tile_i8 on tiles. GCC does not know that a tile is loaded from
 * memory: what was stored before has to be there. */
static inline __attribute__((always_inline)) void multiply_quad_tiles(
    const int row_tiles, const int column_tiles, const int is_signed, int rows, int64_t depth,
    const uint8_t *a, int64_t a_row, const int32_t *b, int32_t *restrict tile)
{
    const int second = row_tiles > 1 ? rows - 16 : 0;
    int64_t k = 0;
    __asm__ volatile("" ::: "memory");
    _tile_loadd(0, b, 0);
    if (column_tiles > 1)
        _tile_loadd(1, b + 16, 0);
    if (row_tiles > 1)
        _tile_loadd(2, b, 0);
    if (row_tiles > 1 && column_tiles > 1)
        _tile_loadd(3, b + 16, 0);
    b += 32;
    if (!is_signed && (rows == 1 || rows >= 16)) { /* one row is read 16 times */
        for (; k + 64 <= depth; k += 64, b += 16 * 32)
            add_quad_tiles(row_tiles, column_tiles, a + k, rows == 1 ? 0 : a_row, second, b);
    }
    for (; k < depth; k += 64, b += 16 * 32) {
        const int64_t count = depth - k < 64 ? depth - k : 64, quads = (count + 3) / 4;
        uint8_t a_block[32 * 64];
        int32_t b_block[16 * 32];
        copy_quad_rows(rows, count, is_signed, a + k, a_row, a_block);
        for (int i = 0; quads < 16 && i < 16 * 32; i++)
            b_block[i] = i < quads * 32 ? b[i] : 0;
        __asm__ volatile("" ::: "memory");
        add_quad_tiles(row_tiles, column_tiles, a_block, 64, second, quads < 16 ? b_block : b);
    }
    _tile_stored(0, tile, 128);
    if (column_tiles > 1)
        _tile_stored(1, tile + 16, 128);
    if (row_tiles > 1)
        _tile_stored(2, tile + second * 32, 128);
    if (row_tiles > 1 && column_tiles > 1)
        _tile_stored(3, tile + second * 32 + 16, 128);
}
#endif
"""

_TILE = """\

#if defined(__AMX_INT8__) && defined(HAS_TILES)
TILE_FUNCTION static void multiply_tiles_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    int32_t *restrict tile)
{
    if (rows > 16 && columns > 16)
        multiply_quad_tiles(2, 2, SIGNED, rows, depth, a, a_row, b, tile);
    else if (rows > 16)
        multiply_quad_tiles(2, 1, SIGNED, rows, depth, a, a_row, b, tile);
    else if (columns > 16)
        multiply_quad_tiles(1, 2, SIGNED, rows, depth, a, a_row, b, tile);
    else
        multiply_quad_tiles(1, 1, SIGNED, rows, depth, a, a_row, b, tile);
}
#endif

/* tile[rows][32] = A (rows x depth numbers of TYPE, rows a_row apart) times one panel of weights,
 * 1 <= rows <= QUAD_ROWS; between take_tiles and release_tiles. The array `tile` has QUAD_ROWS
 * rows, and those that are not asked for may be written, too. */
__attribute__((unused)) static inline void multiply_tile_TYPE(
    int rows, int columns, int64_t depth, const void *a, int64_t a_row, const int32_t *b,
    int32_t *restrict tile)
{
#if defined(__AMX_INT8__) && defined(HAS_TILES)
    if (tiles_allowed()) {
        multiply_tiles_TYPE(rows, columns, depth, a, a_row, b, tile);
        return;
    }
#endif
    for (int row = 0; row < rows; row += TILE_ROWS) {
        const int count = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
        multiply_vectors_TYPE(count, columns, depth, (const uint8_t *)a + row * a_row, a_row, b,
                              tile + row * int_panel);
    }
}
"""


def _tile(name: str, is_signed: bool) -> str:
    return _TILE.replace("TYPE", name).replace("SIGNED", str(int(is_signed)))


AMX_INT8 = _TEXT + _tile("u8", False) + _tile("i8", True)
