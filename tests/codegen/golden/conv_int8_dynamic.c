/* relu: f32[N,H-2,W-2,32] = int_conv2d -> dequantize -> relu
 * and dynamic_scale: f32[N,1,1,1] = dynamic_scale
 * program.py:1
 * program.py:2
 * 3x3, 16 -> 32 channels; tiles of QUAD_ROWS pixels x 32 output channels.
 * The weight is packed, in panels of 32 columns of quads. */
static void k0_relu(const uint8_t *restrict x, const int32_t *restrict weight_packed,
                    const float *restrict scale, float *restrict relu, int64_t H, int64_t N,
                    int64_t W, float *restrict dynamic_scale, void *restrict workspace,
                    int n_threads)
{
    fx_clear(dynamic_scale, N * (int64_t)sizeof *dynamic_scale);
    const int64_t out_h = H - 2;
    const int64_t out_w = W - 2;
    const int64_t padded_h = out_h + 2;
    const int64_t padded_w = out_w + 2;
    /* The offset of each run of the kernel from its first pixel. */
    const int64_t run[3] = {0, padded_w*16, padded_w*32};
    const int64_t at_once = rows_at_once(out_w, 16, padded_w*16);
    const int64_t row_groups = (out_h + at_once - 1) / at_once;
    const int64_t most_images = fx_min(N, fx_max(n_threads*524288 / (padded_h*padded_w*16 + 1), 1));
    for (int64_t n_0 = 0; n_0 < N; n_0 += most_images) {
        const int64_t images = fx_min(N - n_0, most_images);
        const int64_t row_blocks = count_row_blocks(row_groups, at_once*padded_w*16, images,
            n_threads);
        uint8_t *const padded = workspace;
        /* The images, channels last, with their padding. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*1152 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t i = 0; i < padded_h; ++i) {
                pad_row_bytes(W, 16, x + ((n_0 + n)*H + i)*W*16, 16, 1, 0, padded_w, 7, 0,
                    padded + (n*padded_h + i)*padded_w*16);
            }
        }
        /* The convolution. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && out_h*out_w*N*1152 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
                const int32_t *const weights = weight_packed;
                const uint8_t *const image = padded + n*padded_h*padded_w*16;
                int32_t ends[1536];
                copy_ends(3, 12, weights + 32, ends);
                take_tiles();
                const int64_t image_n = n_0 + n;
                for (int64_t row_group = row_block*row_groups / row_blocks;
                     row_group < (row_block + 1)*row_groups / row_blocks; ++row_group) {
                    const int64_t oh_0 = at_once*row_group;
                    const int64_t rows = rows_of_tile(out_h - oh_0, at_once);
                    const int64_t tiles = (out_w + QUAD_ROWS - 1) / QUAD_ROWS;
                    for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                        const int64_t ow_0 = first_tile_row(tile_index, tiles, out_w, QUAD_ROWS);
                        const int pixels = (int)(first_tile_row(tile_index + 1, tiles, out_w,
                            QUAD_ROWS) - ow_0);
                        int32_t tile[QUAD_ROWS * 32] ALIGNED(64);
                        sum_places_u8(rows, pixels, 32, 3, 12, image + oh_0*padded_w*16 + ow_0*16,
                            16, padded_w*16, run, weights, ends, tile);
                        for (int64_t row = 0; row < rows; ++row) {
                            const int64_t oh = oh_0 + row;
                            const int32_t *const sums =
                                tile + place_of_row(row, pixels, 16, padded_w*16)*32;
                            for (int j = 0; j < 32; j += int_lanes) {
                                const int count = (int)(32 - j);
                                const float_vec scale_at_j = load_f32(&scale[j], count);
                                for (int64_t i = 0; i < pixels; ++i) {
                                    const int64_t ow = ow_0 + i;
                                    const int_vec sum = *(const int_vec *)&sums[i*32 + j];
                                    store_f32(&relu[((image_n*H + oh - image_n*2)*W + image_n*4
                                        + ow - image_n*H*2 - oh*2)*32 + j],
                                        maximum_float(product_f32(CONVERT(sum, float_vec),
                                            scale_at_j), (0.0f - (float_vec){0})),
                                        count);
                                }
                            }
                            raise_magnitude(pixels, 32,
                                relu + ((image_n*H + oh - image_n*2)*W + image_n*4 + ow_0
                                - image_n*H*2 - oh*2)*32, 32, dynamic_scale + n);
                        }
                    }
                }
                release_tiles();
            }
        }
    }
    finish_scales(N, 9.554418e-35f, 0.007874016f, dynamic_scale);
}
