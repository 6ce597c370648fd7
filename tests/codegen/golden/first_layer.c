/* The weights, in the order in which they lie in memory. */
struct first_layer_weights {
    const float *weight_packed;
};

/* Pointers to the values of a call, which share the workspace. Kernels are numbered from 0.
 *
 *   values  type           bytes   kernels  begins at byte
 *   relu    f32[B,8,8,16]  4096*B  0 to 1   offset[0] */
struct first_layer_values {
    float *relu;
    unsigned char *scratch;
};

/* relu: f32[B,8,8,16] = conv2d -> relu
 * program.py:1
 * 3x3, 1 -> 16 channels, NHWC -> NHWC; tiles of TILE_ROWS pixels of a row x 32 output channels.
 * Pixels are read in runs of 3. */
static void k0_relu(const float *restrict x_nhwc, const float *restrict weight_packed,
                    float *restrict relu, int64_t B, void *restrict workspace, int n_threads)
{
    /* Where the runs of a kernel begin, counted from its first pixel. */
    const int64_t run[3] = {0, 10, 20};
    const int64_t most_images = fx_min(B, fx_max(n_threads*524288 / 400, 1));
    for (int64_t n_0 = 0; n_0 < B; n_0 += most_images) {
        const int64_t images = fx_min(B - n_0, most_images);
        const int64_t row_blocks = count_row_blocks(8, 40, images, n_threads);
        float *const padded = workspace;
        /* The images with zeros around them. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && B*9216 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t i = 0; i < 10; ++i) {
                pad_row_float(i >= 1 && i < 9 ? 8 : 0, 1, x_nhwc + (n_0 + n)*64 + i*8 - 8, 1, 10,
                    1, padded + n*100 + i*10);
            }
        }
        /* The convolution. */
        #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
                if (n_threads > 1 && B*9216 > PARALLEL_PRODUCTS)
        for (int64_t n = 0; n < images; ++n) {
            for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
                const float *const weights = weight_packed;
                const float *const image = padded + n*100;
                float tile[NARROW_ROWS*32];
                const int64_t image_n = n_0 + n;
                for (int64_t oh = row_block*8 / row_blocks;
                     oh < (row_block*8 + 8) / row_blocks; ++oh) {
                    const int64_t tiles = (narrow_rows_float(16) + 7) / narrow_rows_float(16);
                    for (int64_t tile_index = 0; tile_index < tiles; ++tile_index) {
                        const int64_t ow_0 = tile_index*8 / tiles;
                        const int pixels = (int)((tile_index*8 + 8) / tiles - ow_0);
                        sum_narrow_runs_float(pixels, 16, 3, run, 3, image + oh*10 + ow_0, 1,
                            weights, tile);
                        for (int64_t i = 0; i < pixels; ++i) {
                            const int64_t ow = ow_0 + i;
                            #pragma omp simd
                            for (int64_t j = 0; j < 16; ++j) {
                                relu[((image_n*8 + oh)*8 + ow)*16 + j] =
                                    fx_maximum_f32(tile[i*32 + j], 0.0f);
                            }
                        }
                    }
                }
            }
        }
    }
}

/* max_pool2d_nchw: f32[B,16,4,4] = max_pool2d -> permute
 * program.py:1 */
static void k1_max_pool2d(const float *restrict relu, float *restrict max_pool2d_nchw, int64_t B,
    int n_threads) {
    #pragma omp parallel for collapse(2) num_threads(n_threads) if (B*1280 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B*4; ++i) {
        for (int64_t j = 0; j < 4; ++j) {
            float total[16];
            for (int e = 0; e < 16; ++e) total[e] = -INFINITY;
            for (int64_t r = 0; r < 2; ++r) {
                for (int64_t s = 0; s < 2; ++s) {
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 16; ++lane) {
                        total[lane] = fx_maximum_f32(total[lane],
                            relu[(((r + i*2)*4 + j)*2 + s)*16 + lane]);
                    }
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                max_pool2d_nchw[(((i / 4)*16 + lane)*4 + (i % 4))*4 + j] = total[lane];
            }
        }
    }
}

int64_t first_layer_largest_bytes(int64_t B) {
    double fx_largest = 0;
    if (!fx_count(&fx_largest, true, 4, 4, (const double[]){(double)B, 8, 8, 16})) return -1;
    return (int64_t)fx_largest;
}

int first_layer_check(int64_t B) {
    if (!processor_fits()) return FX_WRONG_PROCESSOR;
    if (first_layer_largest_bytes(B) < 0) return FX_IMPOSSIBLE_SIZES;
    return 0;
}

/* Byte offsets of the parts of the workspace, which values share; the last one is its end. */
static void layout(int64_t B, int n_threads, int64_t offset[3]) {
    offset[0] = 0;
    offset[1] = offset[0] + B*4096;  // relu
    int64_t scratch = fx_min(B, fx_max(n_threads*524288 / 400, 1))*400;  // of k0_relu
    offset[2] = offset[1] + (scratch + 63) / 64 * 64;  // scratch of the kernels
}

int64_t first_layer_workspace_bytes(int64_t B, int n_threads) {
    if (first_layer_largest_bytes(B) < 0) return -1;
    int64_t offset[3];
    layout(B, n_threads, offset);
    return offset[2];
}

/* The values of a call in its workspace. */
static struct first_layer_values first_layer_values_at(void *workspace, int64_t B, int n_threads) {
    int64_t offset[3];
    layout(B, n_threads, offset);
    unsigned char *const arena = workspace;
    return (struct first_layer_values){
        .relu = (float *)(arena + offset[0]),
        .scratch = arena + offset[1],
    };
}

/* Where the weights lie in memory. */
static struct first_layer_weights first_layer_weights_at(const void *memory) {
    const char *const at = memory;
    struct first_layer_weights w;
    w.weight_packed = (const float *)(at + 0);
    return w;
}

int first_layer_run(const float *x, float *max_pool2d_nchw, int64_t B, const void *weights,
    void *workspace, int n_threads, fx_error *error) {
    error->code = first_layer_check(B);
    if (error->code) return error->code;
    const struct first_layer_weights w = first_layer_weights_at(weights);
    const struct first_layer_values s = first_layer_values_at(workspace, B, n_threads);
    k0_relu(x, w.weight_packed, s.relu, B, s.scratch, n_threads);  // relu: f32[B,8,8,16]
    k1_max_pool2d(s.relu, max_pool2d_nchw, B, n_threads);  // max_pool2d_nchw: f32[B,16,4,4]
    return 0;
}
