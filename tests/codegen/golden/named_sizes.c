/* tanh: f32[B,N] = tanh
 * program.py:1 */
static void k0_tanh(const float *restrict x, float *restrict tanh, int64_t B, int64_t N,
    int n_threads) {
    #pragma omp parallel for simd num_threads(n_threads) if (parallel: B*N*8 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B*N; ++i) {
        tanh[i] = fx_tanh_f32(x[i]);
    }
}

/* exp: f32[M,B*N] = reshape -> add -> exp
 * program.py:1 */
static void k1_exp(const float *restrict tanh, const float *restrict y, float *restrict exp,
    int64_t B, int64_t M, int64_t N, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*M*N*9 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < M; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < B*N; ++j) {
            exp[i*B*N + j] = fx_exp_f32(tanh[j] + y[i*B*N + j]);
        }
    }
}

/* max: f32[B*N] = max
 * program.py:2 */
static void k2_max(const float *restrict exp, float *restrict max, int64_t B, int64_t M, int64_t N,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*N >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B*N; ++i) {
        float total = -INFINITY;
        for (int64_t r = 0; r < M; ++r) {
            total = fx_maximum_f32(total, exp[r*B*N + i]);
        }
        max[i] = total;
    }
}

/* div: f32[M,B*N] = div
 * program.py:2 */
static void k3_div(const float *restrict exp, const float *restrict max, float *restrict div,
    int64_t B, int64_t M, int64_t N, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*M*N*8 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < M; ++i) {
        #pragma omp simd
        for (int64_t j = 0; j < B*N; ++j) {
            div[i*B*N + j] = exp[i*B*N + j] / max[j];
        }
    }
}

int64_t named_sizes_largest_bytes(int64_t B, int64_t N, int64_t M) {
    double fx_largest = 0;
    if (!fx_count(&fx_largest, true, 4, 2, (const double[]){(double)B, (double)N})) return -1;
    if (!fx_count(&fx_largest, true, 4, 2, (const double[]){(double)M,
        ((double)B * (double)N)})) return -1;
    if (!fx_count(&fx_largest, true, 4, 1, (const double[]){((double)B * (double)N)})) return -1;
    return (int64_t)fx_largest;
}

/* Byte offsets in the workspace, in whose parts values take turns; the last is its end. */
static void layout(int64_t B, int64_t N, int64_t M, int64_t offset[3]) {
    offset[0] = 0;
    offset[1] = offset[0] + ((B*N*4 + 63) / 64)*64;  // tanh, max
    offset[2] = offset[1] + ((B*M*N*4 + 63) / 64)*64;  // exp
}

int64_t named_sizes_workspace_bytes(int64_t B, int64_t N, int64_t M, int n_threads) {
    (void)n_threads;  // not needed by this model
    if (named_sizes_largest_bytes(B, N, M) < 0) return -1;
    int64_t offset[3];
    layout(B, N, M, offset);
    return offset[2];
}

int named_sizes_run(const float *x, const float *y, float *div, int64_t B, int64_t N, int64_t M,
    const void *weights, void *workspace, int n_threads, fx_error *error) {
    (void)weights;  // not needed by this model
    error->code = 0;
    if (!processor_fits()) return error->code = FX_WRONG_PROCESSOR;
    if (named_sizes_largest_bytes(B, N, M) < 0) return error->code = FX_IMPOSSIBLE_SIZES;
    int64_t offset[3];
    layout(B, N, M, offset);
    unsigned char *const arena = workspace;
    float *const tanh = (float *)(arena + offset[0]);
    float *const exp = (float *)(arena + offset[1]);
    float *const max = (float *)(arena + offset[0]);
    k0_tanh(x, tanh, B, N, n_threads);  // tanh: f32[B,N]
    k1_exp(tanh, y, exp, B, M, N, n_threads);  // exp: f32[M,B*N]
    k2_max(exp, max, B, M, N, n_threads);  // max: f32[B*N]
    k3_div(exp, max, div, B, M, N, n_threads);  // div: f32[M,B*N]
    return 0;
}
