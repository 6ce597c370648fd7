"""C text of what convolutions of 8-bit integers need besides the tile of `int8_tile`, whose quads,
panels and sums they have; `CONV_INT8_PREAMBLE` follows `INT8_PREAMBLE` in a translation unit.

- ``pad_row_bytes``: a row of pixels, channels last, between pixels of the zero point.
- ``sum_runs_u8``, ``sum_runs_i8``: the tile of an image whose channels are last. What a kernel
  reads lies in *runs* of numbers that follow each other: a row of the kernel times all channels
  where columns are not dilated, else the channels of one pixel. A run is read in whole quads; the
  weights of what follows it are zero.
- ``sum_depthwise_u8``, ``sum_depthwise_i8``: the tile of depthwise convolutions. Four neighbouring
  pixels of a row are woven into quads, one for each channel. With stride 1 these serve two output
  pixels, of a kernel of three columns with the weights (w0, w1, w2, 0) and (0, w0, w1, w2).
"""

from __future__ import annotations

CHANNEL_BLOCK = 64
"""Channels of a depthwise tile: a vector of bytes, or several."""

MOST_PLACES = 8
"""Most output pixels of a depthwise tile, an even number."""

_TEXT = """\
/* ---- Convolutions of 8-bit integers ----------------------------------------------------------
 * Of images whose channels are last, with pixels of the zero point around them. */

/* One row of a padded image: `left` pixels of `zero`, the w pixels of `row` (0 of them above and
 * below the image), and `zero` up to `columns` pixels. Neighbouring pixels of `row` are `pixel`
 * apart, channels `channel`. */
__attribute__((unused)) static void pad_row_bytes(
    int64_t w, int64_t channels, const void *row, int64_t pixel, int64_t channel, int64_t left,
    int64_t columns, int zero, uint8_t *restrict target)
{
    const uint8_t *const x = row;
    const int64_t inside = w > 0 ? w : 0, first = w > 0 ? left : columns;
    __builtin_memset(target, zero, first * channels);
    target += first * channels;
    if (channel == 1 && pixel == channels) {
        __builtin_memcpy(target, x, inside * channels);
    } else {
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t j = 0; j < inside; j++)
                target[j * channels + c] = x[j * pixel + c * channel];
        }
    }
    if (inside)
        __builtin_memset(target + w * channels, zero, (columns - left - w) * channels);
}

/* tile[i][j] = b[0][j] + the sum over runs r and numbers k of 4 * quads of
 *     x[i * x_step + run[r] + k] * b[1 + r * quads + k / 4][j][k % 4] */
static inline __attribute__((always_inline)) void sum_pixels_int8(
    const int rows, const int vectors, const int is_signed, int64_t runs, int64_t quads,
    const uint8_t *x, int64_t x_step, const int64_t *run, const int32_t *b, int32_t *restrict tile)
{
    int_vec sum[TILE_ROWS][2], b_k[2];
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = *(const int_vec *)(b + v * int_lanes);
    }
    b += int_panel;
    for (int64_t r = 0; r < runs; r++) {
        const uint8_t *const a = x + run[r], *const a_6 = opaque_pointer(a + 6 * x_step);
        for (int64_t k = 0; k < 4 * quads; k += 4, b += int_panel) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                b_k[v] = *(const volatile int_vec *)(b + v * int_lanes);
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const uint8_t *const row = i < 6 ? a + i * x_step : a_6 + (i - 6) * x_step;
                const int_vec a_i = load_quad(row + k, is_signed);
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    sum[i][v] = add_quads(sum[i][v], a_i, b_k[v]);
            }
        }
    }
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(int_vec *)(tile + i * int_panel + v * int_lanes) = sum[i][v];
    }
}
"""

_TILE = """\

/* tile[pixels][32] = sums of `pixels` places, x_step apart, of an image of TYPE by one panel of
 * weights, 1 <= pixels <= TILE_ROWS. Computes whole vectors, as multiply_tile_float does. */
TILE_FUNCTION static void sum_runs_TYPE(
    int pixels, int columns, int64_t runs, int64_t quads, const void *x, int64_t x_step,
    const int64_t *run, const int32_t *b, int32_t *restrict tile)
{
    const int step = 2 * int_lanes;
    for (int j = 0; j < columns; j += step, b += step, tile += step) {
        if (columns - j > int_lanes) {
            switch (pixels) {
CASES_2
            }
        } else {
            switch (pixels) {
CASES_1
            }
        }
    }
}
"""

_WEAVE = """
/* woven[m] = quads of the pixels x[0], x[pixel], x[2 * pixel], x[3 * pixel] for the channels
 * m * int_lanes + (0, 1, ...). Numbers of i8 are made unsigned by adding 128. */
#if defined(__AVX512BW__)
static inline __attribute__((always_inline)) void weave_pixels(
    const uint8_t *x, int64_t pixel, const int is_signed, int_vec woven[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i p[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        p[i] = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(x + i * pixel));
        if (is_signed)
            p[i] = _mm512_xor_si512(p[i], _mm512_set1_epi8(-128));
    }
    const __m512i low_a = _mm512_unpacklo_epi8(p[0], p[1]);
    const __m512i low_b = _mm512_unpacklo_epi8(p[2], p[3]);
    const __m512i high_a = _mm512_unpackhi_epi8(p[0], p[1]);
    const __m512i high_b = _mm512_unpackhi_epi8(p[2], p[3]);
    woven[0] = (int_vec)_mm512_unpacklo_epi16(low_a, low_b);
    woven[1] = (int_vec)_mm512_unpackhi_epi16(low_a, low_b);
    woven[2] = (int_vec)_mm512_unpacklo_epi16(high_a, high_b);
    woven[3] = (int_vec)_mm512_unpackhi_epi16(high_a, high_b);
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
static inline __attribute__((always_inline)) void weave_pixels(
    const uint8_t *x, int64_t pixel, const int is_signed, int_vec woven[4])
{
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    __m256i p[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        p[i] = _mm256_loadu_si256((const __m256i *)(x + i * pixel));
        p[i] = _mm256_permutevar8x32_epi32(p[i], order);
        if (is_signed)
            p[i] = _mm256_xor_si256(p[i], _mm256_set1_epi8(-128));
    }
    const __m256i low_a = _mm256_unpacklo_epi8(p[0], p[1]);
    const __m256i low_b = _mm256_unpacklo_epi8(p[2], p[3]);
    const __m256i high_a = _mm256_unpackhi_epi8(p[0], p[1]);
    const __m256i high_b = _mm256_unpackhi_epi8(p[2], p[3]);
    woven[0] = (int_vec)_mm256_unpacklo_epi16(low_a, low_b);
    woven[1] = (int_vec)_mm256_unpackhi_epi16(low_a, low_b);
    woven[2] = (int_vec)_mm256_unpacklo_epi16(high_a, high_b);
    woven[3] = (int_vec)_mm256_unpackhi_epi16(high_a, high_b);
}
#else
static inline __attribute__((always_inline)) void weave_pixels(
    const uint8_t *x, int64_t pixel, const int is_signed, int_vec woven[4])
{
    uint32_t quads[VECTOR_BYTES];
    for (int c = 0; c < VECTOR_BYTES; c++, x++) {
        const uint32_t low = x[0] | x[pixel] << 8, high = x[2 * pixel] | x[3 * pixel] << 8;
        quads[c] = (low | high << 16) ^ (is_signed ? 0x80808080 : 0);
    }
    #pragma GCC unroll 4
    for (int m = 0; m < 4; m++)
        __builtin_memcpy(&woven[m], quads + m * int_lanes, sizeof woven[m]);
}
#endif

/* tile[p][channel] for `outputs` (1 or 2) neighbouring outputs p of a vector of bytes of channels:
 *     b[0][channel] + the sum over rows r, groups g, numbers i of a quad of
 *         x[r * row + (4 * g + i) * pixel + channel]
 *             * b[1 + (r * groups + g) * outputs + p][channel][i] */
static inline __attribute__((always_inline)) void sum_woven(
    const int outputs, const int is_signed, int64_t rows, int64_t groups, const uint8_t *x,
    int64_t row, int64_t pixel, const int32_t *b, int32_t *restrict tile)
{
    int_vec sum[2][4], woven[4];
    #pragma GCC unroll 2
    for (int p = 0; p < outputs; p++) {
        #pragma GCC unroll 4
        for (int m = 0; m < 4; m++)
            sum[p][m] = *(const int_vec *)(b + m * int_lanes);
    }
    b += CHANNEL_BLOCK;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t g = 0; g < groups; g++) {
            weave_pixels(x + r * row + 4 * g * pixel, pixel, is_signed, woven);
            #pragma GCC unroll 2
            for (int p = 0; p < outputs; p++, b += CHANNEL_BLOCK) {
                #pragma GCC unroll 4
                for (int m = 0; m < 4; m++)
                    sum[p][m] = add_quads(
                        sum[p][m], woven[m], *(const int_vec *)(b + m * int_lanes));
            }
        }
    }
    #pragma GCC unroll 2
    for (int p = 0; p < outputs; p++) {
        #pragma GCC unroll 4
        for (int m = 0; m < 4; m++)
            *(int_vec *)(tile + p * CHANNEL_BLOCK + m * int_lanes) = sum[p][m];
    }
}
"""

_DEPTHWISE = """
/* tile[places][CHANNEL_BLOCK]: sums of `places` outputs of a row, `stride` pixels apart, of whole
 * vectors of bytes of up to CHANNEL_BLOCK channels. Reads beyond the last pixel and channel. */
TILE_FUNCTION static void sum_depthwise_TYPE(
    int places, int channels, int64_t stride, int64_t rows, int64_t groups, const void *x,
    int64_t row, int64_t pixel, const int32_t *b, int32_t *restrict tile)
{
    for (int c = 0; c < channels; c += VECTOR_BYTES) {
        const uint8_t *const from = (const uint8_t *)x + c;
        for (int p = 0; stride == 1 && p < places; p += 2)
            sum_woven(2, SIGNED, rows, groups, from + p * pixel, row, pixel, b + c,
                      tile + p * CHANNEL_BLOCK + c);
        for (int p = 0; stride != 1 && p < places; p++)
            sum_woven(1, SIGNED, rows, groups, from + p * stride * pixel, row, pixel, b + c,
                      tile + p * CHANNEL_BLOCK + c);
    }
}
"""


def _cases(vectors: int, is_signed: bool) -> str:
    """The switch over the number of pixels, as in `gemm_pack`."""
    lines = []
    for rows in range(1, 12):
        if rows == 7:
            lines.append("#if defined(__AVX512F__) || defined(__aarch64__)")
        arguments = f"{rows}, {vectors}, {int(is_signed)}, runs, quads, x, x_step, run, b, tile"
        lines.append(f"            case {rows}: sum_pixels_int8({arguments}); break;")
    lines.append("#endif")
    return "\n".join(lines)


def _tile(name: str, is_signed: bool) -> str:
    text = _TILE.replace("TYPE", name)
    return text.replace("CASES_1", _cases(1, is_signed)).replace("CASES_2", _cases(2, is_signed))


def _depthwise() -> str:
    text = _WEAVE
    for name, is_signed in (("u8", "0"), ("i8", "1")):
        text += _DEPTHWISE.replace("TYPE", name).replace("SIGNED", is_signed)
    return text.replace("CHANNEL_BLOCK", str(CHANNEL_BLOCK))


CONV_INT8_PREAMBLE = "\n" + _TEXT + _tile("u8", False) + _tile("i8", True) + _depthwise()
"""C text that must precede the functions of `conv_int8.py`."""
