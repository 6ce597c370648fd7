"""C text that brings operands of products, where they are not packed when the model is compiled,
into the layout the tile of `gemm_pack` reads.

`COPY` is a part of `gemm_pack.PREAMBLE`, with T in the place of the element's type and PANEL in
that of a panel's columns; `weaves` gives the shuffles of its transposing copy.
"""

from __future__ import annotations


def weaves(ctype: str, item_bytes: int) -> str:
    """The two shuffles of copy_transposed, for each width of vector."""
    lines = [""]
    for directive, width in (
        ("#if defined(__AVX512F__)", 64),
        ("#elif defined(__AVX__)", 32),
        ("#else", 16),
    ):
        lanes = width // item_bytes
        lines.append(directive)
        for name, start in (("low", 0), ("high", lanes // 2)):
            weave = ", ".join(f"{start + j // 2 + j % 2 * lanes}" for j in range(lanes))
            lines.append(f"#define {ctype}_weave_{name}(a, b) \\")
            lines.append(f"    SHUFFLE({ctype}_index, a, b, {weave})")
    lines.append("#endif")
    return "\n".join(lines) + "\n"


COPY = """
/* target[j][i] = source[i][j] for `rows` x `columns` values: whole squares of one vector's lanes by
 * log2(lanes) rounds of interleaving row i with row i + lanes/2, the rest one by one. */
TILE_FUNCTION static void copy_transposed_T(
    int64_t rows, int64_t columns, const T *source, int64_t source_row,
    T *restrict target, int64_t target_row)
{
    const int64_t whole_rows = rows - rows % T_lanes, whole_columns = columns - columns % T_lanes;
    for (int64_t i = 0; i < whole_rows; i += T_lanes) {
        for (int64_t j = 0; j < whole_columns; j += T_lanes) {
            T_vec square[T_lanes], woven[T_lanes];
            #pragma GCC unroll 16
            for (int r = 0; r < T_lanes; r++)
                square[r] = *(const T_vec *)(source + (i + r) * source_row + j);
            #pragma GCC unroll 4
            for (int round = 1; round < T_lanes; round *= 2) {
                #pragma GCC unroll 8
                for (int r = 0; r < T_lanes / 2; r++) {
                    woven[2 * r] = T_weave_low(square[r], square[r + T_lanes / 2]);
                    woven[2 * r + 1] = T_weave_high(square[r], square[r + T_lanes / 2]);
                }
                #pragma GCC unroll 16
                for (int r = 0; r < T_lanes; r++)
                    square[r] = woven[r];
            }
            #pragma GCC unroll 16
            for (int r = 0; r < T_lanes; r++)
                *(T_vec *)(target + (j + r) * target_row + i) = square[r];
        }
        for (int64_t j = whole_columns; j < columns; j++)
            for (int r = 0; r < T_lanes; r++)
                target[j * target_row + i + r] = source[(i + r) * source_row + j];
    }
    for (int64_t i = whole_rows; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            target[j * target_row + i] = source[i * source_row + j];
}

/* One panel of B: panel[k][j] = b[k * row_stride + j * column_stride], and 0 for j >= columns. */
__attribute__((unused)) static void pack_panel_T(
    int64_t depth, int columns, const T *b, int64_t row_stride, int64_t column_stride,
    T *restrict panel)
{
    if (row_stride == 1 && column_stride != 1) {
        copy_transposed_T(columns, depth, b, column_stride, panel, PANEL);
    } else if (column_stride == 1 && columns == PANEL) {
        for (int64_t k = 0; k < depth; k++)
            for (int j = 0; j < PANEL; j++)
                panel[k * PANEL + j] = b[k * row_stride + j];
    } else {
        for (int64_t k = 0; k < depth; k++)
            for (int j = 0; j < columns; j++)
                panel[k * PANEL + j] = b[k * row_stride + j * column_stride];
    }
    for (int64_t k = 0; columns < PANEL && k < depth; k++)
        for (int j = columns; j < PANEL; j++)
            panel[k * PANEL + j] = 0;
}

/* Rows of A one after the other: target[i][k] = a[i * row_stride + k * column_stride]. */
__attribute__((unused)) static void pack_rows_T(
    int64_t rows, int64_t depth, const T *a, int64_t row_stride, int64_t column_stride,
    T *restrict target, int64_t target_row)
{
    if (row_stride == 1 && column_stride != 1) {
        copy_transposed_T(depth, rows, a, column_stride, target, target_row);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < depth; k++)
            target[i * target_row + k] = a[i * row_stride + k * column_stride];
}
"""
