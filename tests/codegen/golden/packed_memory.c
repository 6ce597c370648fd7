/* Pointers to the values of a call, which share the workspace. Kernels are numbered from 0.
 *
 *   values    type      bytes  kernels  begins at byte
 *   matmul    f32[6,8]  192    0 to 1   192
 *   cumsum    f32[6,8]  192    1 to 3   0
 *   cumsum_1  f32[48]   192    2 to 4   192
 *   sum       f32       4      3 to 4   384 */
struct packed_memory_values {
    float *matmul;
    float *cumsum;
    float *cumsum_1;
    float *sum;
    unsigned char *arena;
};

/* matmul: f32[6,8] = matmul
 * program.py:1
 * m = 6, n = 8, k = 40; tiles of TILE_ROWS x 32.
 * Threads pack the right operand, a panel of 32 columns at a time. */
static void k0_matmul(const float *restrict x, const float *restrict y, float *restrict matmul,
                      void *restrict workspace)
{
    /* A panel of B for each thread, and its size including a gap. */
    float *const b_panels = workspace;
    float *const b_panel = b_panels;
    pack_panel_float(40, 8, y, 8, 1, b_panel);
    float tile[TILE_ROWS*32];
    multiply_tile_float(6, 8, 40, x, 40, b_panel, tile);
    for (int64_t i = 0; i < 6; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < 8; ++j) {
            matmul[i*8 + j] = tile[i*32 + j];
        }
    }
}

/* cumsum: f32[6,8] = cumsum
 * program.py:1 */
static void k1_cumsum(const float *restrict matmul, float *restrict cumsum) {
    float total[8] = {0};
    for (int64_t r = 0; r < 6; ++r) {
        #pragma omp simd
        for (int64_t lane = 0; lane < 8; ++lane) {
            total[lane] += matmul[r*8 + lane];
            cumsum[r*8 + lane] = total[lane];
        }
    }
}

/* cumsum_1: f32[48] = reshape -> cumsum
 * program.py:2 */
static void k2_cumsum_1(const float *restrict cumsum, float *restrict cumsum_1) {
    float total = 0.0f;
    for (int64_t r = 0; r < 48; ++r) {
        total += cumsum[r];
        cumsum_1[r] = total;
    }
}

/* sum: f32 = sum
 * program.py:2 */
static void k3_sum(const float *restrict cumsum, float *restrict sum) {
    float lanes[16] = {0};
    for (int64_t block = 0; block < 48; block += 16) {
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
            lanes[lane] += cumsum[block + lane];
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
    sum[0] = total;
}

/* div: f32[48] = div
 * program.py:2 */
static void k4_div(const float *restrict cumsum_1, const float *restrict sum, float *restrict div) {
    #pragma omp simd
    for (int64_t i = 0; i < 48; ++i) {
        div[i] = cumsum_1[i] / sum[0];
    }
}

int packed_memory_check(void) {
    if (!processor_fits()) return FX_WRONG_PROCESSOR;
    return 0;
}

int64_t packed_memory_workspace_bytes(int n_threads) {
    (void)n_threads;  // not needed by this model
    int64_t bytes = 448;  // of values, which share them
    bytes = fx_max(bytes, 384 + 5248);  // scratch of k0_matmul, behind values
    return (bytes + 63) / 64 * 64;
}

/* The values of a call in its workspace. */
static struct packed_memory_values packed_memory_values_at(void *workspace) {
    unsigned char *const arena = workspace;
    return (struct packed_memory_values){
        .matmul = (float *)(arena + 192),
        .cumsum = (float *)(arena + 0),
        .cumsum_1 = (float *)(arena + 192),
        .sum = (float *)(arena + 384),
        .arena = arena + 0,
    };
}

int packed_memory_run(const float *x, const float *y, float *div, const void *weights,
    void *workspace, int n_threads, fx_error *error) {
    (void)n_threads, (void)weights;  // not needed by this model
    error->code = packed_memory_check();
    if (error->code) return error->code;
    const struct packed_memory_values s = packed_memory_values_at(workspace);
    k0_matmul(x, y, s.matmul, s.arena + 384);  // matmul: f32[6,8]
    k1_cumsum(s.matmul, s.cumsum);  // cumsum: f32[6,8]
    k2_cumsum_1(s.cumsum, s.cumsum_1);  // cumsum_1: f32[48]
    k3_sum(s.cumsum, s.sum);  // sum: f32
    k4_div(s.cumsum_1, s.sum, div);  // div: f32[48]
    return 0;
}
