"""C text of what convolutions of channels-last images need besides the tiles of `conv_tile`; goes
after `gemm_bf16.BF16_PREAMBLE`, once.

- ``pad_row_T``: a row of pixels between zeros.
- ``sum_depthwise_last_T``: the tile of depthwise convolutions. Vectors hold channels, so that every
  load is contiguous, no lane is wasted on an image's width, and kernels and strides of any size
  cost no shuffles. A tile is one output row's next few pixels: a pixel of the input is loaded once
  for all of them, a vector of weights once for the tile.
"""

from __future__ import annotations

import re

MOST_PLACES = 8
"""Most output pixels of a depthwise tile: 8 sums, the weights of a row of the kernel and a pixel
stay in 16 registers."""

LARGEST_KERNEL = 5
"""Most rows and columns of a depthwise kernel."""

CHANNEL_BLOCK = 64
"""Channels of a depthwise tile; the last tile of a pixel takes up to 15 more, so that none has
fewer than a vector."""

TILE_PITCH = CHANNEL_BLOCK + 16
"""Distance of the pixels in the array of a tile's sums."""

FEWEST_CHANNELS = {"float": 16, "double": 8}
"""Lanes of the widest vector: a depthwise convolution of fewer channels takes them one by one."""

_HEAD = """\
/* ---- Channels-last images ------------------------------------------------------------------- */
"""

_ROW = """
/* One row of an image with zeros around it: target[j] = row[j - left], or 0 left and right of it,
 * for `columns` pixels. `row` has w pixels of `channels`, 0 of them above and below the image;
 * pixels of `target` are `pitch` apart. */
__attribute__((unused)) static void pad_row_T(
    int64_t w, int64_t channels, const T *row, int64_t left, int64_t columns, int64_t pitch,
    T *restrict target)
{
    for (int64_t j = 0; j < columns; j++, target += pitch) {
        const int inside = j >= left && j < left + w;
        for (int64_t c = 0; inside && c < channels; c++)
            target[c] = row[(j - left) * channels + c];
        for (int64_t c = 0; !inside && c < channels; c++)
            target[c] = 0;
    }
}
"""

_TILE = """
/* sums[p][lane] = sum over rows r and columns s of the kernel of
 *     weight[r][s][lane] * x[top + r][left + p * across + s][lane]
 * for `places` pixels of an output row; x is 0 outside of its h rows and w columns. Pixels of x and
 * weights are `channels` apart. `inside` promises that no column is outside. */
static inline __attribute__((always_inline)) void sum_last_V(
    const int places, const int rows, const int columns, const int across, const int inside,
    const T *x, int64_t h, int64_t w, int64_t channels, int64_t top, int64_t left, const T *weight,
    T *restrict sums)
{
    V sum[MOST_PLACES], weights[LARGEST_KERNEL];
    for (int j = 0; j < places * across; j++)
        __builtin_prefetch(x + ((top + rows) * w + left + j) * channels);
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        sum[p] = (V){0};
    for (int r = 0; r < rows; r++) {
        if (top + r < 0 || top + r >= h)
            continue;
        const T *const row = x + ((top + r) * w + left) * channels;
        #pragma GCC unroll LARGEST_KERNEL
        for (int s = 0; s < columns; s++)
            weights[s] = *(const volatile V *)(weight + (r * columns + s) * channels);
        #pragma GCC unroll MOST_COLUMNS
        for (int j = 0; j < (places - 1) * across + columns; j++) {
            if (!inside && (left + j < 0 || left + j >= w))
                continue;
            const V pixel = *(const V *)(row + j * channels);
            #pragma GCC unroll MOST_PLACES
            for (int p = 0; p < places; p++) {
                if (j >= p * across && j < p * across + columns)
                    sum[p] += weights[j - p * across] * pixel;
            }
        }
    }
    #pragma GCC unroll MOST_PLACES
    for (int p = 0; p < places; p++)
        *(V *)(sums + p * PITCH) = sum[p];
}
"""

_BLOCK = """
/* sums[places][PITCH], the same for `count` channels, at least a vector of them: the last
 * vectors overlap. */
static inline __attribute__((always_inline)) void sum_depthwise_last_T(
    const int places, const int rows, const int columns, const int across,
    const T *x, int64_t h, int64_t w, int64_t channels, int64_t top, int64_t left,
    const T *weight, int64_t count, T *restrict sums)
{
    const int inside = left >= 0 && left + (places - 1) * across + columns <= w;
    for (int64_t i = 0; inside && i < count; i += T_lanes) {
        const int64_t c = i + T_lanes <= count ? i : count - T_lanes;
        sum_last_T_vec(places, rows, columns, across, 1, x + c, h, w, channels, top, left,
                       weight + c, sums + c);
    }
    for (int64_t i = 0; !inside && i < count; i += T_lanes) {
        const int64_t c = i + T_lanes <= count ? i : count - T_lanes;
        sum_last_T_vec(places, rows, columns, across, 0, x + c, h, w, channels, top, left,
                       weight + c, sums + c);
    }
}

/* The same for fewer channels than a vector has. */
static inline __attribute__((always_inline)) void sum_depthwise_few_T(
    const int places, const int rows, const int columns, const int across,
    const T *x, int64_t h, int64_t w, int64_t channels, int64_t top, int64_t left,
    const T *weight, int64_t count, T *restrict sums)
{
    for (int64_t c = 0; c < count; c++)
        sum_last_T(places, rows, columns, across, 0, x + c, h, w, channels, top, left, weight + c,
                   sums + c);
}
"""


_FEW = "\n/* The same for fewer channels"

_BF16 = (
    ("const T *x", "const uint16_t *x"),
    ("const T *const row", "const uint16_t *const row"),
    ("*(const V *)(row + j * channels)", "load_bf16(row + j * channels, float_lanes)"),
    ("sum_last_V", "sum_last_bf16"),
    ("sum_last_T_vec", "sum_last_bf16"),
    ("sum_depthwise_last_T", "sum_depthwise_last_bf16"),
)
"""What is different where the image is bf16, which vectors of floats are made of."""


def _bf16(text: str) -> str:
    for old, new in _BF16:
        text = text.replace(old, new)
    return text


def _preamble(ctype: str) -> str:
    text = _ROW
    for vector in (f"{ctype}_vec", ctype):
        text += re.sub(r"\bV\b|(?<=_)V\b", vector, _TILE)
    text += _BLOCK
    if ctype == "float":
        text += re.sub(r"\bV\b", "float_vec", _bf16(_TILE)) + _bf16(_BLOCK[: _BLOCK.index(_FEW)])
    for name, value in (
        ("MOST_PLACES", MOST_PLACES),
        ("LARGEST_KERNEL", LARGEST_KERNEL),
        ("MOST_COLUMNS", 2 * (MOST_PLACES - 1) + LARGEST_KERNEL),
        ("PITCH", TILE_PITCH),
    ):
        text = text.replace(name, str(value))
    return re.sub(r"\bT\b|(?<=_)T(?=_|\b)|\bT(?=_)", ctype, text)


NHWC_PREAMBLE = _HEAD + _preamble("float") + _preamble("double")
"""C text that must precede the functions of `conv_nhwc.py`, after `gemm_pack.PREAMBLE` and
`gemm_bf16.BF16_PREAMBLE`."""
