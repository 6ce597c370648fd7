/* Pointers to the values of a call, which share the workspace. Kernels are numbered from 0.
 *
 *   values  type        bytes    kernels  begins at byte
 *   tanh    f32[B,N]    4*B*N    0 to 1   offset[0]
 *   exp     f32[M,B*N]  4*B*M*N  1 to 3   offset[1]
 *   max     f32[B*N]    4*B*N    2 to 3   offset[0] */
struct named_sizes_values {
    float *tanh;
    float *exp;
    float *max;
};

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
    const int64_t parts = fx_max(fx_max(fx_min(B*N / 1024, 8), (B*N + 4095) / 4096), 1);
    const int64_t width = fx_max(fx_floor_div(B*N - 1, parts) + 1, 1);
    #pragma omp parallel for num_threads(n_threads) if (B*M*N >= PARALLEL_OPERATIONS)
    for (int64_t part = 0; part < fx_floor_div(B*N - 1, width) + 1; ++part) {
        const int64_t count = fx_min(width, B*N - width*part);
        const int64_t together = B*N <= 64 ? 8 : 1;
        float total[4096];
        for (int64_t e = 0; e < count*together; ++e) total[e] = -INFINITY;
        const int64_t joined = B*N <= 64 ? (M / 8) : 0;
        for (int64_t r = 0; r < joined; ++r) {
            #pragma omp simd
            for (int64_t lane = 0; lane < count*8; ++lane) {
                total[lane] = fx_maximum_f32(total[lane], exp[r*B*N*8 + lane]);
            }
        }
        const int64_t whole = count <= 1024 ? 0 : (M / 8)*8 - joined*8;
        for (int64_t r = 0; r < whole; r += 8) {
            #pragma omp simd
            for (int64_t lane = 0; lane < count; ++lane) {
                total[lane] = fx_maximum_f32(total[lane],
                    exp[(joined*8 + r)*B*N + width*part + lane]);
                total[lane] = fx_maximum_f32(total[lane],
                    exp[joined*B*N*8 + r*B*N + B*N + width*part + lane]);
                total[lane] = fx_maximum_f32(total[lane],
                    exp[joined*B*N*8 + r*B*N + B*N*2 + width*part + lane]);
                total[lane] = fx_maximum_f32(total[lane],
                    exp[joined*B*N*8 + r*B*N + B*N*3 + width*part + lane]);
                total[lane] = fx_maximum_f32(total[lane],
                    exp[joined*B*N*8 + r*B*N + B*N*4 + width*part + lane]);
                total[lane] = fx_maximum_f32(total[lane],
                    exp[joined*B*N*8 + r*B*N + B*N*5 + width*part + lane]);
                total[lane] = fx_maximum_f32(total[lane],
                    exp[joined*B*N*8 + r*B*N + B*N*6 + width*part + lane]);
                total[lane] = fx_maximum_f32(total[lane],
                    exp[joined*B*N*8 + r*B*N + B*N*7 + width*part + lane]);
            }
        }
        for (int64_t r = 0; r < M - joined*8 - whole; ++r) {
            #pragma omp simd
            for (int64_t lane = 0; lane < count; ++lane) {
                total[lane] = fx_maximum_f32(total[lane],
                    exp[(joined*8 + whole + r)*B*N + width*part + lane]);
            }
        }
        for (int64_t r = 0; r < together - 1; ++r) {
            #pragma omp simd
            for (int64_t lane = 0; lane < count; ++lane) {
                total[lane] = fx_maximum_f32(total[lane], total[count*r + count + lane]);
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) {
            max[width*part + lane] = total[lane];
        }
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

int named_sizes_check(int64_t B, int64_t N, int64_t M) {
    if (!processor_fits()) return FX_WRONG_PROCESSOR;
    if (named_sizes_largest_bytes(B, N, M) < 0) return FX_IMPOSSIBLE_SIZES;
    // M >= 1 is required by program.py:2: z.max(0)
    if (!((double)M >= 1)) return FX_IMPOSSIBLE_SIZES;
    return 0;
}

/* Byte offsets of the parts of the workspace, which values share; the last one is its end. */
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

/* The values of a call in its workspace. */
static struct named_sizes_values named_sizes_values_at(void *workspace, int64_t B, int64_t N,
    int64_t M) {
    int64_t offset[3];
    layout(B, N, M, offset);
    unsigned char *const arena = workspace;
    return (struct named_sizes_values){
        .tanh = (float *)(arena + offset[0]),
        .exp = (float *)(arena + offset[1]),
        .max = (float *)(arena + offset[0]),
    };
}

int named_sizes_run(const float *x, const float *y, float *div, int64_t B, int64_t N, int64_t M,
    const void *weights, void *workspace, int n_threads, fx_error *error) {
    (void)weights;  // not needed by this model
    error->code = named_sizes_check(B, N, M);
    if (error->code) return error->code;
    const struct named_sizes_values s = named_sizes_values_at(workspace, B, N, M);
    k0_tanh(x, s.tanh, B, N, n_threads);  // tanh: f32[B,N]
    k1_exp(s.tanh, y, s.exp, B, M, N, n_threads);  // exp: f32[M,B*N]
    k2_max(s.exp, s.max, B, M, N, n_threads);  // max: f32[B*N]
    k3_div(s.exp, s.max, div, B, M, N, n_threads);  // div: f32[M,B*N]
    return 0;
}
