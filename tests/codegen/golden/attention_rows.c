/* scaled_dot_product_attention: f32[B,1,8] = scaled_dot_product_attention
 * program.py:1
 * 1 queries and S keys of 8, values of 8; blocks of 512 keys, each read once. */
static void k0_scaled_dot_product_attention(const float *restrict q, const float *restrict k,
        const float *restrict v, const unsigned char *restrict mask,
        float *restrict scaled_dot_product_attention, int64_t B, int64_t S,
        void *restrict workspace, int n_threads)
{
    const int64_t key_blocks = fx_max((S + 511) / 512, 1);
    const int64_t share = 512 + 16 + 16 + 16;
    float *const parts = workspace;
    #pragma omp parallel for collapse(2) schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*S*16 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        for (int64_t key_block = 0; key_block < key_blocks; ++key_block) {
            const int64_t key_0 = key_block*512;
            const int64_t keys = fx_min(S - key_0, 512);
            float *const part = parts + (batch*key_blocks + key_block)*share;
            float *const scores = part;
            float *const sums = scores + 512;
            float *const q_rows = sums + 16;
            float *const highest = q_rows + 16;
            #pragma omp simd
            for (int64_t feature = 0; feature < 8; ++feature) {
                q_rows[feature] = q[batch*8 + feature] * 0.35355338f;
            }
            multiply_by_rows_float(keys, 8, q_rows, k + batch*S*8 + key_0*8, 8, 1, scores);
            #pragma omp simd
            for (int64_t j = 0; j < keys; ++j) {
                const int64_t key = key_0 + j;
                scores[j] = mask[batch*S + key] ? scores[j] : -INFINITY;
            }
            highest[0] = -INFINITY;
            highest[1] = 0;
            soften_float(keys, scores, highest, highest + 1);
            sum_weighted_rows_float(keys, 8, scores, v + batch*S*8 + key_0*8, 8, 1, sums);
        }
    }
    #pragma omp parallel for schedule(static) num_threads(n_threads) \
            if (n_threads > 1 && B*S*16 > PARALLEL_PRODUCTS)
    for (int64_t batch = 0; batch < B; ++batch) {
        float *const part = parts + batch*key_blocks*share;
        float *const sums = part + 512;
        const float *const highest = sums + 16 + 16;
        float most = -INFINITY, total = 0;
        for (int64_t key_block = 0; key_block < key_blocks; ++key_block) {
            most = highest[key_block*share] > most ? highest[key_block*share] : most;
        }
        const float shift = most == -INFINITY ? 0 : most;
        for (int64_t key_block = 0; key_block < key_blocks; ++key_block) {
            const float rescale = fx_exp_weight_f32(highest[key_block*share] - shift);
            total += highest[key_block*share + 1] * rescale;
            #pragma omp simd
            for (int64_t column = 0; column < 8; ++column) {
                sums[column] = key_block == 0 ? sums[key_block*share + column] * rescale
                    : sums[column] + sums[key_block*share + column] * rescale;
            }
        }
        const float inverse = total == 0 ? 0 : 1 / total;
        #pragma omp simd
        for (int64_t column = 0; column < 8; ++column) {
            const float value = sums[column] * inverse;
            scaled_dot_product_attention[batch*8 + column] = value;
        }
    }
}
