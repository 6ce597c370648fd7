/* layer_norm: f32[B,64] = mean -> sub -> square -> mean -> add -> rsqrt -> mul -> mul -> add
 * program.py:1 */
static void k0_layer_norm(const float *restrict x, const float *restrict weight,
    const float *restrict bias, float *restrict layer_norm, int64_t B, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (B*567 >= PARALLEL_OPERATIONS)
    for (int64_t i = 0; i < B; ++i) {
        float lanes[16] = {0};
        for (int64_t block = 0; block < 64; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                lanes[lane] += x[i*64 + block + lane];
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
        const float layer_norm_mean = total / 64.0f;
        float lanes1[16] = {0};
        for (int64_t block = 0; block < 64; block += 16) {
            #pragma omp simd
            for (int64_t lane = 0; lane < 16; ++lane) {
                const float layer_norm_sub = x[i*64 + block + lane] - layer_norm_mean;
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
        const float layer_norm_mean_1 = total1 / 64.0f;
        const float layer_norm_add = layer_norm_mean_1 + 1e-05f;
        const float layer_norm_rsqrt = fx_rsqrt_f32(layer_norm_add);
        #pragma omp simd
        for (int64_t j = 0; j < 64; ++j) {
            layer_norm[i*64 + j] = (x[i*64 + j] - layer_norm_mean) * layer_norm_rsqrt * weight[j]
                + bias[j];
        }
    }
}
