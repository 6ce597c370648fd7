/* What all attention kernels share besides the matrix tile: packing whole operands, turning
 * scores into weights, and the dot products and weighted sums of single queries. */

/* Tiles of query rows in one block, for which keys and values are packed once: the packing then
 * costs 1 % of the products, and the sums of the block stay in the second-level cache. */
#define BLOCK_TILES 32

/* The most scores of a row that become weights one by one: a vector would wait until its parts, the
 * scores and their padding, are in memory. */
#define FEW_SCORES 12

#if INSTANCE == 0
#define T float
#define PANEL 32
#define EXP_WEIGHT fx_exp_weight_f32
#else
#define T double
#define PANEL 16
#define EXP_WEIGHT fx_exp_weight_f64
#endif

/* ---- Attention ------------------------------------------------------------------------------ */

/* The number of blocks, of at most BLOCK_TILES whole row tiles, into which the queries of each of
 * `items` batch items are divided, so that each thread gets at least four. */
static inline int64_t count_query_blocks(int64_t row_tiles, int64_t items, int n_threads)
{
    const int64_t for_cache = (row_tiles + BLOCK_TILES - 1) / BLOCK_TILES;
    const int64_t for_threads = items > 0 ? (4 * n_threads - 1) / items + 1 : 1;
    const int64_t blocks = for_cache > for_threads ? for_cache : for_threads;
    return blocks < row_tiles ? blocks : row_tiles;
}

/* Packs all panels of B (depth x columns), one after the other. */
static void pack_panels_T(
    int64_t depth, int64_t columns, const T *b, int64_t row_stride, int64_t column_stride,
    T *restrict panels)
{
    for (int64_t j = 0; j < columns; j += PANEL)
        pack_panel_T(depth, columns - j < PANEL ? (int)(columns - j) : PANEL, b + j * column_stride,
                     row_stride, column_stride, panels + j * depth);
}

/* Whether all rows x columns values are finite. */
static bool all_finite_T(
    int64_t rows, int64_t columns, const T *values, int64_t row_stride, int64_t column_stride)
{
    int wrong = 0;
    for (int64_t i = 0; i < rows; i++) {
        const T *const row = values + i * row_stride;
        if (column_stride == 1) {
            for (int64_t j = 0; j < columns; j++)
                wrong |= !(row[j] - row[j] == 0);
        } else {
            for (int64_t j = 0; j < columns; j++)
                wrong |= !(row[j * column_stride] - row[j * column_stride] == 0);
        }
    }
    return !wrong;
}

/* The sum of a vector's elements, added in pairs. */
static inline T add_lanes_T(T_vec sums)
{
    #pragma GCC unroll 4
    for (int half = T_lanes / 2; half > 0; half /= 2) {
        #pragma GCC unroll 8
        for (int l = 0; l < half; l++)
            LANE(sums, l) += LANE(sums, l + half);
    }
    return LANE(sums, 0);
}

/* Turns scores into weights exp(score - highest), where `highest` is the highest score of the row
 * so far, including these, and adds their sum to `total`. Returns the factor that rescales what
 * was summed with the former highest score. (The maximum ignores NaN, the weights do not.) There
 * must be room for one vector after the scores, because whole vectors are computed. */
static T soften_T(int64_t count, T *restrict scores, T *highest, T *total)
{
    if (count <= FEW_SCORES) {
        const T before = *highest;
        T now = before, sum = 0;
        for (int64_t j = 0; j < count; j++)
            now = scores[j] > now ? scores[j] : now;
        const T shift = now == -INFINITY ? 0 : now;
        for (int64_t j = 0; j < count; j++)
            sum += scores[j] = EXP_WEIGHT(scores[j] - shift);
        const T factor = before == -INFINITY ? 0 : EXP_WEIGHT(before - shift);
        *total = *total * factor + sum;
        *highest = now;
        return factor;
    }
    for (; count % T_lanes != 0; count++)
        scores[count] = -INFINITY;
    /* Several maxima and sums: each vector of one waits for the one before. */
    const int64_t part = count / (4 * T_lanes) * T_lanes;
    const T *const second = scores + part, *const third = second + part, *const last = third + part;
    T now = *highest, most = now, most_2 = now, most_3 = now;
    #pragma omp simd reduction(max: now, most, most_2, most_3)
    for (int64_t j = 0; j < part; j++) {
        now = scores[j] > now ? scores[j] : now;
        most = second[j] > most ? second[j] : most;
        most_2 = third[j] > most_2 ? third[j] : most_2;
        most_3 = last[j] > most_3 ? last[j] : most_3;
    }
    now = most > now ? most : now;
    most_2 = most_3 > most_2 ? most_3 : most_2;
    now = most_2 > now ? most_2 : now;
    #pragma omp simd reduction(max: now)
    for (int64_t j = 4 * part; j < count; j++)
        now = scores[j] > now ? scores[j] : now;
    const T shift = now == -INFINITY ? 0 : now; /* if nothing is kept so far, all weights are 0 */
    #pragma omp simd
    for (int64_t j = 0; j < count; j++)
        scores[j] = EXP_WEIGHT(scores[j] - shift);
    T_vec sums[4] = {0};
    int64_t done = 0;
    for (; done + 4 * T_lanes <= count; done += 4 * T_lanes)
        #pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            sums[v] += *(const T_vec *)(scores + done + v * T_lanes);
    for (; done < count; done += T_lanes)
        sums[0] += *(const T_vec *)(scores + done);
    const T factor = *highest == -INFINITY ? 0 : EXP_WEIGHT(*highest - shift);
    *total = *total * factor + add_lanes_T((sums[0] + sums[1]) + (sums[2] + sums[3]));
    *highest = now;
    return factor;
}

/* products[i] = sum over j of row[j] * matrix[i][j]; the matrix is read once. */
static void multiply_by_rows_T(
    int64_t rows, int64_t columns, const T *restrict row, const T *restrict matrix,
    int64_t row_stride, int64_t column_stride, T *restrict products)
{
    if (row_stride == 1 && column_stride != 1) {
        for (int64_t i = 0; i < rows; i++)
            products[i] = 0;
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = 0; i < rows; i++)
                products[i] += row[j] * matrix[i + j * column_stride];
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        T sum = 0;
        if (column_stride == 1) {
            #pragma omp simd reduction(+: sum)
            for (int64_t j = 0; j < columns; j++)
                sum += row[j] * matrix[i * row_stride + j];
        } else {
            for (int64_t j = 0; j < columns; j++)
                sum += row[j] * matrix[i * row_stride + j * column_stride];
        }
        products[i] = sum;
    }
}

/* sums[j] = sum over i of weights[i] * matrix[i][j]; the matrix is read once. */
static void sum_weighted_rows_T(
    int64_t rows, int64_t columns, const T *restrict weights, const T *restrict matrix,
    int64_t row_stride, int64_t column_stride, T *restrict sums)
{
    int64_t first = 0;
    for (; column_stride == 1 && first + 4 * T_lanes <= columns; first += 4 * T_lanes) {
        T_vec sum[4] = {0};
        for (int64_t i = 0; i < rows; i++) {
            const T *const place = matrix + i * row_stride + first;
            #pragma GCC unroll 4
            for (int v = 0; v < 4; v++)
                sum[v] += weights[i] * *(const T_vec *)(place + v * T_lanes);
        }
        #pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            *(T_vec *)(sums + first + v * T_lanes) = sum[v];
    }
    for (; column_stride == 1 && first + T_lanes <= columns; first += T_lanes) {
        T_vec sum = {0};
        for (int64_t i = 0; i < rows; i++)
            sum += weights[i] * *(const T_vec *)(matrix + i * row_stride + first);
        *(T_vec *)(sums + first) = sum;
    }
    for (int64_t j = first; j < columns; j++) {
        T sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += weights[i] * matrix[i * row_stride + j * column_stride];
        sums[j] = sum;
    }
}
