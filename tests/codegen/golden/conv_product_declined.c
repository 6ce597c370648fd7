/* add: f32[N,40,7,7] = conv2d -> add
 * program.py:1
 * 1x1, 16 -> 40 channels; tiles of TILE_ROWS pixels of a row x 32 output channels.
 * Not as a product: its last panel of pixels would be mostly empty. */
static void k0_add(const float *restrict x, const float *restrict weight_packed,
                   const float *restrict y, float *restrict add, int64_t N, int n_threads)
{
    const int64_t tap[1] = {0};
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && N*31360 > PARALLEL_PRODUCTS)
    for (int64_t n = 0; n < N; ++n) {
        for (int64_t panel = 0; panel < 2; ++panel) {
            const int columns = (int)fx_min(40 - panel*32, 32);
            const float *const weights = weight_packed + panel*512;
            const float *const image = x + n*784;
            float tile[16 * 32] = {0}, turned[32 * 80];
            fetch_rows(columns, 49, add + n*1960 + panel*1568, 49);
            const int64_t tiles = (TILE_ROWS + 48) / TILE_ROWS;
            for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                const int64_t first = tile_index*49 / tiles;
                const int count = (int)((tile_index*49 + 49) / tiles - first);
                sum_tile_float(count, columns, 16, 1, image + first, 49, tap, 1, weights, tile);
                copy_transposed_float(16, 32, tile, 32, turned + first, 80);
            }
            for (int64_t j = 0; j < columns; ++j) {
                const int64_t k = panel*32 + j;
                int64_t oh = 0, ow_0 = 0;
                for (int64_t i_0 = 0, run; i_0 < 49; i_0 += run) {
                    run = fx_min(7 - ow_0, 49 - i_0);
                    #pragma omp simd
                    for (int64_t i = i_0; i < i_0 + run; ++i) {
                        const int64_t ow = ow_0 + i - i_0;
                        add[((n*40 + k)*7 + oh)*7 + ow] = turned[j*80 + i] + y[ow];
                    }
                    oh++, ow_0 = 0;
                }
            }
        }
    }
}
