/* add: f32[N,40,7,7] = conv2d -> add
 * program.py:1
 * 1x1, 16 -> 40 channels; tiles of TILE_ROWS pixels of a row x 32 output channels.
 * Not as a product: its last panel of pixels would be filled badly. */
static void k0_add(const float *restrict x, const float *restrict weight_packed,
                   const float *restrict y, float *restrict add, int64_t N, int n_threads)
{
    const int64_t tap[1] = {0};
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && N * 31360 > PARALLEL_PRODUCTS)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t panel = 0; panel < 2; panel++) {
            const int columns = 40 - panel * 32 < 32 ? 40 - panel * 32 : 32;
            const float *const weights = weight_packed + panel * 512;
            const float *const image = x + n * 784;
            float tile[16 * 32] = {0}, turned[32 * 80];
            for (int64_t pixel_0 = 0; pixel_0 < 49; pixel_0 += 64) {
                const int pixels = 49;
                fetch_rows(columns, pixels, add + (n * 40 + panel * 32) * 49 + pixel_0, 49);
                const int tiles = (pixels + TILE_ROWS - 1) / TILE_ROWS;
                for (int tile_index = 0; tile_index < tiles; tile_index++) {
                    const int first = tile_index * pixels / tiles;
                    const int count = (tile_index + 1) * pixels / tiles - first;
                    sum_tile_float(count, columns, 16, 1, image + (pixel_0 + first), 49, tap, 1,
                        weights, tile);
                    copy_transposed_float(16, 32, tile, 32, turned + first, 80);
                }
                const int64_t first_oh = pixel_0 / 7, first_ow = pixel_0 % 7;
                for (int64_t j = 0; j < columns; j++) {
                    const int64_t k = panel * 32 + j;
                    int64_t oh = first_oh, ow_0 = first_ow;
                    for (int64_t i_0 = 0, run; i_0 < pixels; i_0 += run) {
                        run = 7 - ow_0 < pixels - i_0 ? 7 - ow_0 : pixels - i_0;
                        #pragma omp simd
                        for (int64_t i = i_0; i < i_0 + run; i++) {
                            const int64_t ow = ow_0 + i - i_0;
                            add[((n*40 + k)*7 + oh)*7 + ow] = turned[j * 80 + i] + y[ow];
                        }
                        oh++, ow_0 = 0;
                    }
                }
            }
        }
    }
}
