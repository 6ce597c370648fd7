/* quantize: i8[B,300] = dynamic_scale -> quantize
 * and dynamic_scale: f32[B,1] = dynamic_scale
 * program.py:1
 * program.py:2 */
static void k0_quantize(const float *restrict x, int8_t *restrict quantize,
    float *restrict dynamic_scale, int64_t B, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*1270 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float lanes[64];
        for (int e = 0; e < 64; ++e) lanes[e] = -INFINITY;
        for (int64_t block = 0; block < 256; block += 64) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 64; ++lane) {
                lanes[lane] = fx_larger_magnitude_f32(lanes[lane], x[i*300 + block + lane]);
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 32; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 32]);
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 16]);
        }
        for (int64_t block = 0; block < 32; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] = fx_larger_magnitude_f32(lanes[lane], x[i*300 + block + lane + 256]);
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
            lanes[lane] = fx_larger_magnitude_f32(lanes[lane], x[i*300 + lane + 284]);
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 8; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 8]);
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 4; ++lane) {
            lanes[lane] = fx_maximum_f32(lanes[lane], lanes[lane + 4]);
        }
        const float total = fx_maximum_f32(fx_maximum_f32(lanes[0], lanes[1]),
            fx_maximum_f32(lanes[2], lanes[3]));
        const float t0 = fx_maximum_f32(total, 9.554418e-35f);
        const float t1 = t0 * 0.007874016f;
        const float t2 = fx_reciprocal_f32(t1);
        dynamic_scale[i] = t1;
        #pragma omp simd
        for (int64_t j = 0; j < 300; ++j) {
            quantize[i*300 + j] = (int8_t)fx_saturate_f32(fx_round_f32(x[i*300 + j] * t2), -127.0f,
                127.0f);
        }
    }
}

/* sigmoid: f32[B,32] = int_linear -> mul -> dequantize -> sigmoid
 * program.py:2
 * program.py:3
 * m = B, n = 32, k = 300; tiles of QUAD_ROWS x 32.
 * The weight is packed, in panels of 32 columns of quads. */
static void k1_sigmoid(const int8_t *restrict quantize, const int32_t *restrict weight_packed,
                       const float *restrict dynamic_scale, const float *restrict scale,
                       float *restrict sigmoid, int64_t B, int n_threads)
{
    const int64_t row_tiles = (B + QUAD_ROWS - 1) / QUAD_ROWS;
    /* 4 tiles of rows at a time pass over the small weight. */
    const int64_t row_blocks = (row_tiles + 3) / 4;
    const int64_t panel_size = (75 + 1)*32;
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*2400 + 4800 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        take_tiles();
        const int32_t *const b_panel = weight_packed;
        const int32_t *const quads = b_panel + 32;
        /* Tiles of rows fetch the next panel meanwhile. */
        const int32_t *const next = quads + (row_tiles > 1 ? panel_size : 0);
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = first_tile_row(tile_index, row_tiles, B, QUAD_ROWS);
            const int rows = (int)(first_tile_row(tile_index + 1, row_tiles, B, QUAD_ROWS) - row_0);
            int32_t tile[QUAD_ROWS*32];
            add_block_i8(rows, 32, 300, quantize + row_0*300, 300, quads, b_panel,
                next + (tile_index % 2)*1200, tile);
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                #pragma omp simd
                for (int64_t j = 0; j < 32; ++j) {
                    sigmoid[row*32 + j] = fx_sigmoid_f32(fx_product_f32((float)tile[i*32 + j],
                        dynamic_scale[row] * scale[j]));
                }
            }
        }
        release_tiles();
    }
}
