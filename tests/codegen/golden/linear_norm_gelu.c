/* The weights, in the order in which they lie in memory. */
struct linear_norm_gelu_weights {
    const float *weight_packed;
    const float *gain;
    const float *bias;
};

/* Pointers to the values of a call, which share the workspace. Kernels are numbered from 0.
 *
 *   values  type       bytes  kernels  begins at byte
 *   linear  f32[B,32]  128*B  0 to 1   offset[0] */
struct linear_norm_gelu_values {
    float *linear;
};

/* A tile of the function below: sums are finished in registers, and stored. */
TILE_INLINE
static void k0_linear_sums(const int rows, const int columns, int64_t row_0, int64_t column_0,
                           const float *a_tile, int64_t a_row, const float *b_tile,
                           struct ahead ahead, const float *restrict x,
                           const float *restrict weight_packed, float *restrict linear, int64_t B)
{
    (void)x, (void)weight_packed, (void)B;
    #pragma GCC unroll 4
    for (int first = 0; first < columns; first += 2*float_lanes) {
        const int vectors = columns - first > float_lanes ? 2 : 1;
        float_vec sums[TILE_ROWS][2];
        sum_rows_float_vec(rows, vectors, 1, 16, a_tile, a_row, b_tile + first, 32, ahead, sums);
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int count = columns - first - v*float_lanes;
            const int64_t column = column_0 + first + v*float_lanes;
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const int64_t row = row_0 + i;
                const float_vec sum = sums[i][v];
                store_float(&linear[row*32 + column], sum, count);
            }
        }
    }
}

TILE_FUNCTION
static void k0_linear_tile(int rows, int columns, int64_t row_0, int64_t column_0,
                           const float *a_tile, int64_t a_row, const float *b_tile,
                           struct ahead ahead, const float *restrict x,
                           const float *restrict weight_packed, float *restrict linear, int64_t B)
{
    if (rows == TILE_ROWS)
        k0_linear_sums(TILE_ROWS, 32, row_0, column_0, a_tile, a_row, b_tile, ahead, x,
            weight_packed, linear, B);
    else {
        float tile[TILE_ROWS*32];
        multiply_tile_float(rows, columns, 16, a_tile, a_row, b_tile, tile);
        for (int64_t j = 0; j < columns; j += float_lanes) {
            const int count = (int)(columns - j);
            const int64_t column = column_0 + j;
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = row_0 + i;
                const float_vec sum = *(const float_vec *)&tile[i*32 + j];
                store_float(&linear[row*32 + column], sum, count);
            }
        }
    }
}

/* linear: f32[B,32] = linear
 * program.py:1
 * m = B, n = 32, k = 16; tiles of TILE_ROWS x 32.
 * The weight is packed, in panels of 32 columns.
 * K is short: the epilogue runs in the registers of a tile. */
static void k0_linear(const float *restrict x, const float *restrict weight_packed,
                      float *restrict linear, int64_t B, int n_threads)
{
    const int64_t row_tiles = (B + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t row_blocks = count_row_blocks(row_tiles, TILE_ROWS*64, 1, n_threads);
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*512 + 1024 > PARALLEL_PRODUCTS)
    for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
        const float *const b_panel = weight_packed;
        for (int64_t tile_index = row_block*row_tiles / row_blocks;
             tile_index < (row_block + 1)*row_tiles / row_blocks; ++tile_index) {
            const int64_t row_0 = TILE_ROWS*tile_index;
            const int rows = (int)fx_min(TILE_ROWS, B - row_0);
            const struct ahead ahead = part_ahead(b_panel + 512, 16, 128,
                tile_index - row_block*row_tiles / row_blocks,
                (row_tiles + row_blocks - 1) / row_blocks);
            k0_linear_tile(rows, 32, row_0, 0, x + row_0*16, 16, b_panel, ahead, x, weight_packed,
                linear, B);
        }
    }
}

/* gelu: f32[B,32] = mean -> sub -> square -> mean -> add -> rsqrt -> mul -> mul -> add -> mul ->
 *   mul -> erf -> add -> mul
 * program.py:1 */
static void k1_gelu(const float *restrict linear, const float *restrict gain,
    const float *restrict bias, float *restrict gelu, int64_t B, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*695 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float lanes[16] = {0};
        for (int64_t block = 0; block < 32; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] += linear[i*32 + block + lane];
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 8; ++lane) {
            lanes[lane] += lanes[lane + 8];
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 4; ++lane) {
            lanes[lane] += lanes[lane + 4];
        }
        const float total = lanes[0] + lanes[1] + (lanes[2] + lanes[3]);
        const float layer_norm_mean = total / 32.0f;
        float lanes1[16] = {0};
        for (int64_t block = 0; block < 32; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                const float layer_norm_sub = linear[i*32 + block + lane] - layer_norm_mean;
                lanes1[lane] += layer_norm_sub * layer_norm_sub;
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 8; ++lane) {
            lanes1[lane] += lanes1[lane + 8];
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 4; ++lane) {
            lanes1[lane] += lanes1[lane + 4];
        }
        const float total1 = lanes1[0] + lanes1[1] + (lanes1[2] + lanes1[3]);
        const float layer_norm_mean_1 = total1 / 32.0f;
        const float layer_norm_add = layer_norm_mean_1 + 1e-05f;
        const float layer_norm_rsqrt = fx_rsqrt_f32(layer_norm_add);
        #pragma omp simd
        for (int64_t j = 0; j < 32; ++j) {
            const float layer_norm = (linear[i*32 + j] - layer_norm_mean) * layer_norm_rsqrt
                * gain[j] + bias[j];
            gelu[i*32 + j] = layer_norm * 0.5f * (fx_erf_f32(layer_norm * 0.70710677f) + 1.0f);
        }
    }
}

int64_t linear_norm_gelu_largest_bytes(int64_t B) {
    double fx_largest = 0;
    if (!fx_count(&fx_largest, true, 4, 2, (const double[]){(double)B, 32})) return -1;
    return (int64_t)fx_largest;
}

int linear_norm_gelu_check(int64_t B) {
    if (!processor_fits()) return FX_WRONG_PROCESSOR;
    if (linear_norm_gelu_largest_bytes(B) < 0) return FX_IMPOSSIBLE_SIZES;
    return 0;
}

/* Byte offsets of the parts of the workspace, which values share; the last one is its end. */
static void layout(int64_t B, int64_t offset[2]) {
    offset[0] = 0;
    offset[1] = offset[0] + B*128;  // linear
}

int64_t linear_norm_gelu_workspace_bytes(int64_t B, int n_threads) {
    (void)n_threads;  // not needed by this model
    if (linear_norm_gelu_largest_bytes(B) < 0) return -1;
    int64_t offset[2];
    layout(B, offset);
    return offset[1];
}

/* The values of a call in its workspace. */
static struct linear_norm_gelu_values linear_norm_gelu_values_at(void *workspace, int64_t B) {
    int64_t offset[2];
    layout(B, offset);
    unsigned char *const arena = workspace;
    return (struct linear_norm_gelu_values){
        .linear = (float *)(arena + offset[0]),
    };
}

/* Where the weights lie in memory. */
static struct linear_norm_gelu_weights linear_norm_gelu_weights_at(const void *memory) {
    const char *const at = memory;
    struct linear_norm_gelu_weights w;
    w.weight_packed = (const float *)(at + 0);
    w.gain = (const float *)(at + 2048);
    w.bias = (const float *)(at + 2176);
    return w;
}

int linear_norm_gelu_run(const float *x, float *gelu, int64_t B, const void *weights,
    void *workspace, int n_threads, fx_error *error) {
    error->code = linear_norm_gelu_check(B);
    if (error->code) return error->code;
    const struct linear_norm_gelu_weights w = linear_norm_gelu_weights_at(weights);
    const struct linear_norm_gelu_values s = linear_norm_gelu_values_at(workspace, B);
    k0_linear(x, w.weight_packed, s.linear, B, n_threads);  // linear: f32[B,32]
    k1_gelu(s.linear, w.gain, w.bias, gelu, B, n_threads);  // gelu: f32[B,32]
    return 0;
}
