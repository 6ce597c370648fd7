/* The weights, in the order in which they lie in memory. */
struct two_layers_weights {
    const float *w1_packed;
    const float *b1;
    const float *w2_packed;
    const float *b2;
};

/* Pointers to the values of a call, which share the workspace. Kernels are numbered from 0.
 *
 *   values  type       bytes  kernels  begins at byte
 *   relu    f32[B,32]  128*B  0 to 1   offset[0] */
struct two_layers_values {
    float *relu;
};

/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k0_relu_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                         const float *a_tile, int64_t a_row, const float *b_tile,
                         struct ahead ahead, const float *restrict x,
                         const float *restrict w1_packed, const float *restrict b1,
                         float *restrict relu, int64_t B)
{
    (void)x, (void)w1_packed, (void)B;
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2*float_lanes) {
        const int vectors = columns - first > float_lanes ? 2 : 1;
        float_vec sums[TILE_ROWS][2];
        sum_rows_float_vec(rows, vectors, 1, 32, a_tile, a_row, b_tile + first, 32, ahead, sums);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int count = columns - first - v*float_lanes;
            const int64_t column = column_0 + first + v*float_lanes;
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const int64_t row = row_0 + i;
                const float_vec sum = sums[i][v];
                store_float(&relu[row*32 + column],
                    maximum_float(sum + load_float(&b1[column], count),
                    all_float(0.0f)), count);
            }
        }
    }
}

TILE_FUNCTION
static void k0_relu_tile(int rows, int columns, int64_t row_0, int64_t column_0,
                         const float *a_tile, int64_t a_row, const float *b_tile,
                         struct ahead ahead, const float *restrict x,
                         const float *restrict w1_packed, const float *restrict b1,
                         float *restrict relu, int64_t B)
{
    if (rows == TILE_ROWS)
        k0_relu_sums(TILE_ROWS, 32, row_0, column_0, a_tile, a_row, b_tile, ahead, x, w1_packed,
            b1, relu, B);
    else {
        float tile[TILE_ROWS*32];
        multiply_tile_float(rows, columns, 32, a_tile, a_row, b_tile, tile);
        for (int64_t j = 0; j < columns; j += float_lanes) {
            const int count = (int)(columns - j);
            const int64_t column = column_0 + j;
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                const float_vec sum = *(const float_vec *)&tile[i*32 + j];
                store_float(&relu[row*32 + column],
                    maximum_float(sum + load_float(&b1[column], count),
                    all_float(0.0f)), count);
            }
        }
    }
}

/* relu: f32[B,32] = linear -> relu
 * program.py:1
 * m = B, n = 32, k = 32; tiles of TILE_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is short: the epilogue runs in the registers of a tile.
 * Also computes relu_1. */
static void k0_relu(const float *restrict x, const float *restrict w1_packed,
                    const float *restrict b1, float *restrict relu, int64_t B, int n_threads)
{
    const int64_t row_tiles = (B + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*128, 1, n_threads);
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*1024 + 2048 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        const float *const b_panel = w1_packed;
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = TILE_ROWS*tile_index;
            const int rows = (int)fx_min(TILE_ROWS, B - row_0);
            const struct ahead ahead = part_ahead(b_panel + 1024, 32, 128,
                tile_index - row_block*row_tiles / row_blocks,
                (row_tiles + row_blocks - 1) / row_blocks);
            k0_relu_tile(rows, 32, row_0, 0, x + row_0*32, 32, b_panel, ahead, x, w1_packed, b1,
                relu, B);
        }
    }
}

int64_t two_layers_largest_bytes(int64_t B) {
    double fx_largest = 0;
    if (!fx_count(&fx_largest, true, 4, 2, (const double[]){(double)B, 32})) return -1;
    return (int64_t)fx_largest;
}

int two_layers_check(int64_t B) {
    if (!processor_fits()) return FX_WRONG_PROCESSOR;
    if (two_layers_largest_bytes(B) < 0) return FX_IMPOSSIBLE_SIZES;
    return 0;
}

/* Byte offsets of the parts of the workspace, which values share; the last one is its end. */
static void layout(int64_t B, int64_t offset[2]) {
    offset[0] = 0;
    offset[1] = offset[0] + B*128;  // relu
}

int64_t two_layers_workspace_bytes(int64_t B, int n_threads) {
    (void)n_threads;  // not needed by this model
    if (two_layers_largest_bytes(B) < 0) return -1;
    int64_t offset[2];
    layout(B, offset);
    return offset[1];
}

/* The values of a call in its workspace. */
static struct two_layers_values two_layers_values_at(void *workspace, int64_t B) {
    int64_t offset[2];
    layout(B, offset);
    unsigned char *const arena = workspace;
    return (struct two_layers_values){
        .relu = (float *)(arena + offset[0]),
    };
}

/* Where the weights lie in memory. */
static struct two_layers_weights two_layers_weights_at(const void *memory) {
    const char *const at = memory;
    struct two_layers_weights w;
    w.w1_packed = (const float *)(at + 0);
    w.b1 = (const float *)(at + 4096);
    w.w2_packed = (const float *)(at + 4224);
    w.b2 = (const float *)(at + 8320);
    return w;
}

int two_layers_run(const float *x, float *relu_1, int64_t B, const void *weights, void *workspace,
    int n_threads, fx_error *error) {
    error->code = two_layers_check(B);
    if (error->code) return error->code;
    const struct two_layers_weights w = two_layers_weights_at(weights);
    const struct two_layers_values s = two_layers_values_at(workspace, B);
    k0_relu(x, w.w1_packed, w.b1, s.relu, B, n_threads);  // relu: f32[B,32]
    k0_relu(s.relu, w.w2_packed, w.b2, relu_1, B, n_threads);  // relu_1: f32[B,32]
    return 0;
}
