/* matmul: f32[B,M,20] = permute -> matmul
 * program.py:1
 * m = M, n = 20, k = K; tiles of TILE_ROWS x 32.
 * The right operand is packed first, in panels of 32 columns.
 * Rows of the left operand are copied first: their elements are not adjacent.
 * K is cut into blocks of 512, with sums for each thread. */
static void k0_matmul(const float *restrict x, const float *restrict y, float *restrict matmul,
                      int64_t B, int64_t K, int64_t M, void *restrict workspace, int n_threads)
{
    const int64_t row_tiles = (M + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t tile_size = TILE_ROWS*32;
    const int64_t blocks = fx_max((K + 511) / 512, 1);
    const int64_t row_blocks = count_row_blocks(row_tiles,
        fx_max(L2_BYTES / 2 / 16, TILE_ROWS*2048), B, n_threads);
    /* The rows of A, and how far they are apart. */
    const int64_t a_pitch = K + 16;
    float *const a_rows = workspace;
    const int64_t panel_size = K*32;
    float *const b_panels = a_rows + a_pitch*B*M;
    /* For each thread a block of a panel of B and sums, and their size including a gap. */
    const int64_t block_size = 512*32;
    const int64_t share = block_size + fx_min(K / 8193, 1)*5632 + 5632 + 32;
    float *const thread_panels = b_panels + K*32;
    /* The rows of A, side by side. */
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (M + 2)*B*K*20 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        for (int64_t block = 0; block < (M + 31) / 32; ++block) {
            const int64_t row_0 = block*32;
            const int rows = (int)fx_min(32, M - row_0);
            pack_rows_float(rows, K, x + batch*K*M + row_0, 1, M,
                a_rows + (batch*M + row_0)*a_pitch, a_pitch);
        }
    }
    /* The product. */
    if (row_blocks*B > 1) {
        pack_panel_float(K, 20, y, 20, 1, b_panels);
    }
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && (M + 2)*B*K*20 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
            for (int64_t block = 0; block < blocks; ++block) {
                const int64_t k_0 = block*512;
                const int64_t depth = fx_min(K - k_0, 512);
                float *const b_panel = row_blocks*B > 1 ? b_panels + k_0*32 : thread_panels
                    + share*this_thread();
                if (row_blocks*B == 1) {
                    pack_panel_float(depth, 20, y + k_0*20, 20, 1, b_panel);
                }
                float *const sums = thread_panels + share*this_thread() + block_size;
                for (int64_t tile_index = row_block*row_tiles / row_blocks;
                     tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
                    const int64_t row_0 = tile_index*M / row_tiles;
                    const int rows = (int)((tile_index + 1)*M / row_tiles - row_0);
                    const int64_t number = tile_index - row_block*row_tiles / row_blocks;
                    float *const total = sums + number*tile_size;
                    if (row_blocks*B > 1) prefetch_part(b_panel + panel_size, depth*128,
                        tile_index - row_block*row_tiles / row_blocks,
                        (row_tiles + row_blocks - 1) / row_blocks);
                    multiply_part_float(rows, 20, depth,
                        a_rows + a_pitch*batch*M + a_pitch*row_0 + k_0, a_pitch, b_panel, block,
                        blocks, 512, total, total + 5632);
                    if (block == blocks - 1) {
                        for (int64_t i = 0; i < rows; ++i) {
                            const int64_t row = row_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < 20; ++j) {
                                matmul[(batch*M + row)*20 + j] = total[i*32 + j];
                            }
                        }
                    }
                }
            }
        }
    }
}
