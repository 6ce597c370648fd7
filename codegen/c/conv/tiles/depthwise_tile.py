"""C text of the tile of depthwise convolutions; goes after `gemm_pack.PREAMBLE`, once.

A tile is up to 8 output rows of one vector of pixels. Each input row under it is loaded once per
column of the kernel and used for all rows of the tile it belongs to, so a 3x3 kernel needs a load
for about three multiply-adds. The image is read in place: lanes left and right of it are masked,
rows above and below it are left out. Measured on a Zen 4 core, tiles of 7 and 8 rows of images of
7x7 to 112x112 pixels run at 70 to 78 % of the peak; with bias, relu6 and the stores, at 35 to 50 %.
"""

from __future__ import annotations

import re

from fxlite.codegen.c.product.gemm_pack import ITEM_BYTES

MOST_TILE_ROWS = 8
"""Most output rows of a tile: with a 3x3 kernel 8 sums, 9 weights and 3 masks stay in registers."""

LARGEST_KERNEL = 5
"""Most rows and columns of a kernel."""

_HEAD = """\
/* ---- Tiles of depthwise convolutions --------------------------------------------------------- */

enum { HALF_BYTES = VECTOR_BYTES > 16 ? VECTOR_BYTES / 2 : 16 }; /* for images of few columns */
"""

_TYPE = """
/* One image of which `before` and `after` elements around may be read: itself, or, where these are
 * not all within the `count` elements of all images, a copy of it. */
__attribute__((unused)) static const T *readable_image_T(
    const T *images, int64_t count, int64_t start, int64_t size, int64_t before, int64_t after,
    T *restrict copy)
{
    if (start >= before && start + size + after <= count)
        return images + start;
    for (int64_t i = 0; i < size; i++)
        copy[before + i] = images[start + i];
    return copy + before;
}
"""

_TILE = """
/* sums[p][lane] = sum over rows r and columns s of the kernel of
 *     weight[r][s] * x[top + p * down + r][left + lane * across + s]
 * for `places` rows of a vector of output pixels; x is 0 outside of its h rows and w columns.
 * `down` and `across` are the strides; across is 1 or 2. */
static inline __attribute__((always_inline)) void sum_depthwise_V(
    const int places, const int rows, const int columns, const int down, const int across,
    const T *x, int64_t h, int64_t w, int64_t top, int64_t left, const T *weight,
    T *restrict sums, int64_t sums_step)
{
    const V_lane position = *(const V_lane *)T_positions * across;
    V_lane inside[MOST_COLUMNS];
    V sum[MOST_PLACES];
    #pragma GCC unroll MOST_COLUMNS
    for (int s = 0; s < columns; s++) {
        const int64_t rest = w - left - s, end = rest < V_lanes * 2 ? rest : V_lanes * 2;
        inside[s] = (position >= (INTEGER)(-left - s)) & (position < (INTEGER)end);
    }
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        sum[p] = (V){0};
    #pragma GCC unroll MOST_ROWS
    for (int i = 0; i < (places - 1) * down + rows; i++) {
        if (top + i < 0 || top + i >= h)
            continue;
        const T *const row = x + (top + i) * w + left;
        V_lane pixels[MOST_COLUMNS + 1];
        #pragma GCC unroll MOST_COLUMNS
        for (int s = 0; s < columns; s += across) {
            pixels[s] = *(const V_lane *)(row + s);
            if (across == 2) { /* every second pixel of two vectors, from the first and the next */
                const V_lane first = pixels[s], second = *(const V_lane *)(row + s + V_lanes);
                pixels[s] = V_even(first, second);
                pixels[s + 1] = V_odd(first, second);
            }
        }
        #pragma GCC unroll MOST_COLUMNS
        for (int s = 0; s < columns; s++) {
            const V pixel = (V)(pixels[s] & inside[s]);
            #pragma GCC unroll MOST_PLACES
            for (int p = 0; p < places; p++) {
                const int r = i - p * down;
                if (r >= 0 && r < rows)
                    sum[p] += weight[r * columns + s] * pixel;
            }
        }
    }
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        *(V *)(sums + p * sums_step) = sum[p];
}
"""

_ROWS = """
/* sums[places][out_w], the same for whole rows. What follows the last sum is overwritten, up to a
 * vector. The last vectors of a row overlap. */
static inline __attribute__((always_inline)) void sum_depthwise_rows_T(
    const int places, const int rows, const int columns, const int down, const int across,
    const T *x, int64_t h, int64_t w, int64_t top, int64_t left, const T *weight,
    int64_t out_w, T *restrict sums)
{
    if (out_w <= T_half_lanes) {
        sum_depthwise_T_half(places, rows, columns, down, across, x, h, w, top, left, weight, sums,
                             out_w);
        return;
    }
    for (int64_t i = 0; i < out_w; i += T_lanes) {
        const int64_t ow = i + T_lanes <= out_w || out_w < T_lanes ? i : out_w - T_lanes;
        sum_depthwise_T_vec(places, rows, columns, down, across, x, h, w, top,
                            left + ow * across, weight, sums + ow, out_w);
    }
}
"""


def _vector(ctype: str, vector: str, size: str, integer: str) -> str:
    """The types of a vector and of its lanes' numbers; the shuffles."""
    lines = [
        "",
        f"typedef {integer} {vector}_lane",
        f"    __attribute__((vector_size({size}), aligned(sizeof({ctype})), may_alias));",
    ]
    for directive, width in (
        ("#if defined(__AVX512F__)", 64),
        ("#elif defined(__AVX__)", 32),
        ("#else", 16),
    ):
        lanes = (width if size == "VECTOR_BYTES" else max(width // 2, 16)) // ITEM_BYTES[ctype]
        lines.append(directive)
        for name, first in (("even", 0), ("odd", 1)):
            chosen = ", ".join(str(first + 2 * lane) for lane in range(lanes))
            lines.append(f"#define {vector}_{name}(a, b) \\")
            lines.append(f"    SHUFFLE({vector}_lane, a, b, {chosen})")
    lines.append("#endif")
    return "\n".join(lines) + "\n"


def _preamble(ctype: str, integer: str) -> str:
    half = f"{ctype}_half"
    numbers = ", ".join(map(str, range(64 // ITEM_BYTES[ctype])))
    parts = [
        f"\ntypedef {ctype} {half}",
        f"    __attribute__((vector_size(HALF_BYTES), aligned(sizeof({ctype})), may_alias));",
        f"enum {{ {ctype}_vec_lanes = {ctype}_lanes,",
        f"       {half}_lanes = HALF_BYTES / sizeof({ctype}) }};",
        f"static const {integer} {ctype}_positions[] __attribute__((unused)) = {{{numbers}}};\n",
    ]
    text = "\n".join(parts) + _TYPE
    for vector, size in ((f"{ctype}_vec", "VECTOR_BYTES"), (half, "HALF_BYTES")):
        text += _vector(ctype, vector, size, integer)
        text += re.sub(r"\bV\b|(?<=_)V\b|\bV(?=_)", vector, _TILE)
    for name, most in (("COLUMNS", LARGEST_KERNEL), ("PLACES", MOST_TILE_ROWS)):
        text = text.replace(f"MOST_{name}", str(most))
    text = (text + _ROWS).replace("MOST_ROWS", str(2 * (MOST_TILE_ROWS - 1) + LARGEST_KERNEL))
    return re.sub(r"\bT\b|(?<=_)T(?=_|\b)|\bT(?=_)", ctype, text).replace("INTEGER", integer)


DEPTHWISE_PREAMBLE = _HEAD + _preamble("float", "int32_t") + _preamble("double", "int64_t")
"""C text that must precede the functions of `conv_depthwise.py`, after `gemm_pack.PREAMBLE`."""
