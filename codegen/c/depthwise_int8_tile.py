"""C text of depthwise convolutions of 8-bit integers; `DEPTHWISE_INT8` follows `INT8_PREAMBLE` of
`int8_tile`, whose quads and sums it has, in a translation unit.

Four neighbouring rows of an image whose channels are last are *woven* column by column: a quad for
each channel. A woven column serves every column of the kernel that meets it and, with stride 1, two
output rows: those of a kernel of three rows have the weights (w0, w1, w2, 0) and (0, w0, w1, w2).
The image is read in place. A row outside of it is a pixel of the zero point with a step of 0.

Measured on a Zen 4 core, 3x3 of 14 x 14 x 384: 12 cycles for 16 results with their epilogue; 3 are
products, 1.5 shuffles.
"""

from __future__ import annotations

CHANNEL_BLOCK = 64
"""Channels of a tile: a vector of bytes, or several."""

MOST_PLACES = 8
"""Most output pixels of a row of a tile."""

_TEXT = """
/* ---- Depthwise convolutions of 8-bit integers --------------------------------------------------
 * Four neighbouring rows are woven: a quad for each column and channel. */

/* Where the `count` rows of an image from number `first` on begin, `dilation` rows apart, and how
 * far pixels of each are apart: rows outside of the image are one pixel, again and again. */
__attribute__((unused)) static void find_rows(
    int64_t first, int count, int64_t dilation, int64_t height, int64_t row_bytes, int64_t pixel,
    const uint8_t *image, const uint8_t *outside, const uint8_t **rows, int64_t *steps)
{
    for (int i = 0; i < count; i++, first += dilation) {
        const int is_inside = first >= 0 && first < height;
        rows[i] = is_inside ? image + first * row_bytes : outside;
        steps[i] = is_inside ? pixel : 0;
    }
}

/* woven[m] = quads of x[0][c], x[1][c], x[2][c], x[3][c] for channels c = m * int_lanes + (0, 1,
 * ...), for m < vectors, of which `bytes` are read. Numbers of i8 become unsigned: plus 128. */
#if defined(__AVX512BW__)
static inline __attribute__((always_inline)) void weave_rows(
    const uint8_t *const x[4], int64_t bytes, int vectors, const int is_signed,
    int_vec *restrict woven)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __mmask64 read = bytes < 64 ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
    __m512i p[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        p[i] = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(read, x[i]));
        if (is_signed)
            p[i] = _mm512_xor_si512(p[i], _mm512_set1_epi8(-128));
    }
    const __m512i low_a = _mm512_unpacklo_epi8(p[0], p[1]);
    const __m512i low_b = _mm512_unpacklo_epi8(p[2], p[3]);
    const __m512i high_a = _mm512_unpackhi_epi8(p[0], p[1]);
    const __m512i high_b = _mm512_unpackhi_epi8(p[2], p[3]);
    woven[0] = (int_vec)_mm512_unpacklo_epi16(low_a, low_b);
    if (vectors > 1)
        woven[1] = (int_vec)_mm512_unpackhi_epi16(low_a, low_b);
    if (vectors > 2)
        woven[2] = (int_vec)_mm512_unpacklo_epi16(high_a, high_b);
    if (vectors > 3)
        woven[3] = (int_vec)_mm512_unpackhi_epi16(high_a, high_b);
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
static inline __attribute__((always_inline)) void weave_rows(
    const uint8_t *const x[4], int64_t bytes, int vectors, const int is_signed,
    int_vec *restrict woven)
{
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    __m256i p[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint8_t end[32] = {0};
        const uint8_t *from = x[i];
        if (bytes < 32)
            from = __builtin_memcpy(end, from, bytes);
        p[i] = _mm256_loadu_si256((const __m256i *)from);
        p[i] = _mm256_permutevar8x32_epi32(p[i], order);
        if (is_signed)
            p[i] = _mm256_xor_si256(p[i], _mm256_set1_epi8(-128));
    }
    const __m256i low_a = _mm256_unpacklo_epi8(p[0], p[1]);
    const __m256i low_b = _mm256_unpacklo_epi8(p[2], p[3]);
    const __m256i high_a = _mm256_unpackhi_epi8(p[0], p[1]);
    const __m256i high_b = _mm256_unpackhi_epi8(p[2], p[3]);
    woven[0] = (int_vec)_mm256_unpacklo_epi16(low_a, low_b);
    if (vectors > 1)
        woven[1] = (int_vec)_mm256_unpackhi_epi16(low_a, low_b);
    if (vectors > 2)
        woven[2] = (int_vec)_mm256_unpacklo_epi16(high_a, high_b);
    if (vectors > 3)
        woven[3] = (int_vec)_mm256_unpackhi_epi16(high_a, high_b);
}
#else
static inline __attribute__((always_inline)) void weave_rows(
    const uint8_t *const x[4], int64_t bytes, int vectors, const int is_signed,
    int_vec *restrict woven)
{
    uint32_t quads[VECTOR_BYTES] = {0};
    for (int c = 0; c < vectors * int_lanes && c < bytes; c++) {
        const uint32_t low = x[0][c] | x[1][c] << 8, high = x[2][c] | x[3][c] << 8;
        quads[c] = (low | high << 16) ^ (is_signed ? 0x80808080 : 0);
    }
    __builtin_memcpy(woven, quads, vectors * sizeof *woven);
}
#endif

/* The sums of `vectors` vectors of channels for `places` output pixels of `outputs` (1 or 2) rows:
 * tile[output][place][channel]. A kernel has `s` columns, of `groups` quads each. */
static inline __attribute__((always_inline)) void sum_woven(
    const int outputs, const int s, const int is_signed, int vectors, int64_t bytes, int places,
    int64_t stride, int64_t groups, int64_t channel, int64_t column_0, int64_t width,
    const uint8_t *const *rows, const int64_t *steps, int32_t outside, const int32_t *b,
    int_vec *restrict woven, int32_t *restrict tile)
{
    const int64_t columns = (places - 1) * stride + s;
    const int32_t *const starts = b;
    b += CHANNEL_BLOCK;
    for (int64_t g = 0; g < groups; g++, b += s * outputs * CHANNEL_BLOCK) {
        const uint8_t *x[4];
        #pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            x[i] = rows[4 * g + i] + column_0 * steps[4 * g + i] + channel;
        for (int64_t q = 0; q < columns; q++) {
            if (column_0 + q >= 0 && column_0 + q < width) {
                weave_rows(x, bytes, vectors, is_signed, woven + 4 * q);
            } else {
                for (int m = 0; m < vectors; m++)
                    woven[4 * q + m] = outside - (int_vec){0};
            }
            #pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                x[i] = opaque_pointer(x[i] + steps[4 * g + i]);
        }
        for (int m = 0; m < vectors; m++) {
            const int32_t *const weights = b + m * int_lanes;
            int32_t *const sums = tile + m * int_lanes;
            int_vec kept[3][2];
            if (s == 3) {
                #pragma GCC unroll 6
                for (int i = 0; i < 3 * outputs; i++)
                    kept[i / outputs][i % outputs] =
                        *(const int_vec *)(weights + i * CHANNEL_BLOCK);
            }
            for (int64_t p = 0; p < places; p++) {
                int_vec sum[2];
                #pragma GCC unroll 2
                for (int o = 0; o < outputs; o++) {
                    int32_t *const from = sums + (o * MOST_PLACES + p) * CHANNEL_BLOCK;
                    sum[o] = *(const int_vec *)(g ? from : starts + m * int_lanes);
                }
                #pragma GCC unroll 3
                for (int k = 0; k < s; k++) {
                    const int_vec quads = woven[4 * (p * stride + k) + m];
                    #pragma GCC unroll 2
                    for (int o = 0; o < outputs; o++)
                        sum[o] = add_quads(sum[o], quads, s == 3 ? kept[k][o] : *(const int_vec *)(
                            weights + (k * outputs + o) * CHANNEL_BLOCK));
                }
                #pragma GCC unroll 2
                for (int o = 0; o < outputs; o++)
                    *(int_vec *)(sums + (o * MOST_PLACES + p) * CHANNEL_BLOCK) = sum[o];
            }
        }
    }
}
"""

_TILE = """
/* tile[outputs][MOST_PLACES][CHANNEL_BLOCK]: sums of `places` pixels of one or two output rows,
 * `stride` pixels apart, from column column_0 on of the rows that find_rows found, of up to
 * CHANNEL_BLOCK channels. `woven` has CHANNEL_BLOCK numbers for each column under the kernels. */
TILE_FUNCTION static void sum_depthwise_TYPE(
    int outputs, int places, int channels, int64_t stride, int s, int64_t groups, int64_t column_0,
    int64_t width, const uint8_t *const *rows, const int64_t *steps, int zero_point,
    const int32_t *b, int32_t *restrict woven, int32_t *restrict tile)
{
    const int32_t outside = (int32_t)(0x01010101u * (uint8_t)(zero_point + ADDED));
    for (int c = 0; c < channels; c += VECTOR_BYTES, b += VECTOR_BYTES, tile += VECTOR_BYTES) {
        const int64_t bytes = channels - c < VECTOR_BYTES ? channels - c : VECTOR_BYTES;
        const int vectors = (bytes + int_lanes - 1) / int_lanes;
        int_vec *const quads = (int_vec *)woven;
CASES
    }
}
"""


def _tile(name: str, is_signed: bool) -> str:
    lines: list[str] = []
    for outputs in (1, 2):
        for s, condition in (("3", " && s == 3"), ("s", "")):
            lines.append(
                f"        {'else ' if lines else ''}if (outputs == {outputs}{condition})\n"
                f"            sum_woven({outputs}, {s}, {int(is_signed)}, vectors, bytes, places, "
                f"stride, groups, c,\n                      column_0, width, rows, steps, outside, "
                f"b, quads, tile);"
            )
    text = _TILE.replace("TYPE", name).replace("ADDED", "128" if is_signed else "0")
    return text.replace("CASES", "\n".join(lines))


def _depthwise() -> str:
    text = _TEXT + _tile("u8", False) + _tile("i8", True)
    text = text.replace("CHANNEL_BLOCK", str(CHANNEL_BLOCK))
    return text.replace("MOST_PLACES", str(MOST_PLACES))


DEPTHWISE_INT8 = _depthwise()
"""C text that must precede the functions of `conv_int8_depthwise.py`."""
