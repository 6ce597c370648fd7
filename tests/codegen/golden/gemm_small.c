/* matmul: f32[1,48] = matmul
 * program.py:1
 * m = 1, n = 48, k = 64; tiles of TILE_ROWS x 32.
 * The right operand is read in place, once or twice. */
static void k0_matmul(const float *restrict x, const float *restrict y, float *restrict matmul)
{
    for (int64_t panel = 0; panel < 2; ++panel) {
        const int64_t column_0 = panel*32;
        const int columns = (int)fx_min(48 - column_0, 32);
        const float *const b_panel = y + column_0;
        float tile[TILE_ROWS*32];
        multiply_low_tile_float(1, columns, 64, x, 64, b_panel, 48, tile);
        #pragma omp simd
        for (int64_t j = 0; j < columns; ++j) {
            const int64_t column = column_0 + j;
            matmul[column] = tile[j];
        }
    }
}
