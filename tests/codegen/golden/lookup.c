/* The weights, in the order in which they lie in memory. */
struct lookup_weights {
    const float *table;
    const float *places;
};

/* add: f32[B,T,16] = take -> slice -> add
 * program.py:1 */
static void k0_add(const int64_t *restrict tokens, const float *restrict table,
    const float *restrict places, float *restrict add, int64_t B, int64_t T, fx_error *error,
    int n_threads) {
    if (0 < B && 0 < T && fx_index(T - 1, 512, 0, error) >= 0) {
        #pragma omp parallel for collapse(2) num_threads(n_threads) \
                if (B*T*32 >= PARALLEL_OPERATIONS)
        for (int64_t i = 0; i < B; ++i) {
            for (int64_t j = 0; j < T; ++j) {
                const int64_t t0 = fx_index(tokens[i*T + j], 100, 1, error);
                #pragma omp simd
                for (int64_t k = 0; k < 16; ++k) {
                    add[(i*T + j)*16 + k] = (t0 >= 0 ? table[t0*16 + k] : 0) + places[j*16 + k];
                }
            }
        }
    }
}

/* mean: f32[B,16] = mean
 * program.py:2 */
static void k1_mean(const float *restrict add, float *restrict mean, int64_t B, int64_t T,
    int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*T*16 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        double wide[16] = {0};
        for (int64_t block = 0; block < T; block += 96) {
            float lanes[16] = {0};
            for (int64_t r = 0; r < fx_min(96, T - block); ++r) {
                #pragma omp simd
                for (int64_t lane = 0; lane < 16; ++lane) {
                    lanes[lane] += add[(i*T + block + r)*16 + lane];
                }
            }
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                wide[lane] += (double)lanes[lane];
            }
        }
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
            mean[i*16 + lane] = (float)wide[lane] / (float)T;
        }
    }
}

int64_t lookup_largest_bytes(int64_t B, int64_t T) {
    double fx_largest = 0;
    if (!fx_count(&fx_largest, true, 4, 3, (const double[]){(double)B, (double)T, 16})) return -1;
    if (!fx_count(&fx_largest, true, 4, 2, (const double[]){(double)B, 16})) return -1;
    return (int64_t)fx_largest;
}

int lookup_check(int64_t B, int64_t T) {
    if (!processor_fits()) return FX_WRONG_PROCESSOR;
    if (lookup_largest_bytes(B, T) < 0) return FX_IMPOSSIBLE_SIZES;
    return 0;
}

int64_t lookup_workspace_bytes(int64_t B, int64_t T, int n_threads) {
    (void)n_threads;  // not needed by this model
    if (lookup_largest_bytes(B, T) < 0) return -1;
    return 0;
}

/* Where the weights lie in memory. */
static struct lookup_weights lookup_weights_at(const void *memory) {
    const char *const at = memory;
    struct lookup_weights w;
    w.table = (const float *)(at + 0);
    w.places = (const float *)(at + 6400);
    return w;
}

int lookup_run(const int64_t *tokens, float *add, float *mean, int64_t B, int64_t T,
    const void *weights, void *workspace, int n_threads, fx_error *error) {
    (void)workspace;  // not needed by this model
    error->code = lookup_check(B, T);
    if (error->code) return error->code;
    const struct lookup_weights w = lookup_weights_at(weights);
    k0_add(tokens, w.table, w.places, add, B, T, error, n_threads);  // add: f32[B,T,16]
    if (error->code) return error->code;
    k1_mean(add, mean, B, T, n_threads);  // mean: f32[B,16]
    return 0;
}
