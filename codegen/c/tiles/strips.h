/* Few rows times a large matrix that is read in place, row by row, a strip of columns at a time,
 * so that memory is read consecutively while the sums of the strip stay in the cache. Reading a
 * panel of it would touch a few lines of each row, each in another page of memory. */

#if INSTANCE == 0
#define T float
#else
#define T double
#endif

/* Columns of a strip, at most `most`: chosen so that each thread gets equally many strips. */
static inline int64_t strip_columns(int64_t columns, int64_t most, int n_threads)
{
    const int64_t strips = n_threads * ((columns - 1) / (most * n_threads) + 1);
    const int64_t width = ((columns - 1) / strips / 32 + 1) * 32;
    return width < most ? width : most;
}

/* sums[i][j] = or += the sum over `steps` steps of a[i][k] * b[k][j], for a vector of columns of
 * which the first `count` exist. */
static TILE_INLINE void add_vector_T(
    const int rows, const int steps, const int is_first, const int count, const T *a, int64_t a_row,
    int64_t a_step, const T *b, int64_t b_row, T *restrict sums, int64_t sums_row)
{
    T_vec b_k[8];
    #pragma GCC unroll 8
    for (int k = 0; k < steps; k++)
        b_k[k] = load_T(b + k * b_row, count);
    #pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        T_vec sum = {0};
        if (!is_first)
            sum = *(const T_vec *)(sums + i * sums_row);
        #pragma GCC unroll 8
        for (int k = 0; k < steps; k++)
            sum += a[i * a_row + k * a_step] * b_k[k];
        *(T_vec *)(sums + i * sums_row) = sum;
    }
}

/* The same for all columns of a strip and `times` times `rows` rows. The elements of a row of A are
 * a_step apart, and the sums of its rows sums_row apart, which is a vector more than the strip. */
static TILE_INLINE void add_steps_T(
    const int rows, const int steps, const int is_first, int64_t times, int64_t columns, const T *a,
    int64_t a_row, int64_t a_step, const T *b, int64_t b_row, T *restrict sums, int64_t sums_row)
{
    const int rest = (int)(columns % T_lanes);
    for (; times > 0; times--, a += rows * a_row, sums += rows * sums_row) {
        int64_t j = 0;
        for (; j + T_lanes <= columns; j += T_lanes)
            add_vector_T(rows, steps, is_first, T_lanes, a, a_row, a_step, b + j, b_row, sums + j,
                         sums_row);
        if (rest > 0)
            add_vector_T(rows, steps, is_first, rest, a, a_row, a_step, b + j, b_row, sums + j,
                         sums_row);
    }
}

/* The sums of a strip over at most SUM_STEPS steps: first 7 or fewer, then 8 at a time. */
static TILE_INLINE void sum_steps_T(
    const int rows, int64_t times, int64_t columns, int64_t depth, const T *a, int64_t a_row,
    int64_t a_step, const T *b, int64_t b_row, T *restrict sums, int64_t sums_row)
{
    int64_t k = depth & 4;
    if (k == 4)
        add_steps_T(rows, 4, 1, times, columns, a, a_row, a_step, b, b_row, sums, sums_row);
    for (; k < (depth & 7); k++) {
        const T *const a_k = a + k * a_step, *const b_k = b + k * b_row;
        if (k == 0)
            add_steps_T(rows, 1, 1, times, columns, a, a_row, a_step, b, b_row, sums, sums_row);
        else
            add_steps_T(rows, 1, 0, times, columns, a_k, a_row, a_step, b_k, b_row, sums, sums_row);
    }
    if (k == 0 && depth > 0)
        add_steps_T(rows, 8, 1, times, columns, a, a_row, a_step, b, b_row, sums, sums_row), k = 8;
    for (; k < depth; k += 8) {
        const T *const a_k = a + k * a_step, *const b_k = b + k * b_row;
        add_steps_T(rows, 8, 0, times, columns, a_k, a_row, a_step, b_k, b_row, sums, sums_row);
    }
}

/* The product of a strip of columns by `times` times a number of rows that is known at compile
 * time. Sums of SUM_STEPS steps are added, many of them with their rounding errors (Knuth's
 * TwoSum); both are stored after the totals. */
static TILE_INLINE void multiply_strip_T(
    const int rows, int64_t times, int64_t columns, int64_t depth, const T *a, int64_t a_row,
    int64_t a_step, const T *b, int64_t b_row, T *restrict totals, int64_t totals_row)
{
    const int64_t blocks = (depth + SUM_STEPS - 1) / SUM_STEPS, size = times * rows * totals_row;
    T *const sums = totals + size, *const left = sums + size;
    for (int64_t e = 0; depth == 0 && e < size; e++)
        totals[e] = 0;
    for (int64_t e = 0; blocks > SUM_BLOCKS && e < size; e++)
        left[e] = 0;
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t k = block * depth / blocks, steps = (block + 1) * depth / blocks - k;
        const T *const a_k = a + k * a_step, *const b_k = b + k * b_row;
        T *const target = block == 0 ? totals : sums;
        sum_steps_T(rows, times, columns, steps, a_k, a_row, a_step, b_k, b_row, target,
                    totals_row);
        for (int64_t e = 0; block > 0 && blocks > SUM_BLOCKS && e < size; e++) {
            const T sum = totals[e] + sums[e], kept = sum - totals[e];
            left[e] += (totals[e] - (sum - kept)) + (sums[e] - kept);
            totals[e] = sum;
        }
        for (int64_t e = 0; block > 0 && blocks <= SUM_BLOCKS && e < size; e++)
            totals[e] += sums[e];
    }
    for (int64_t e = 0; blocks > SUM_BLOCKS && e < size; e++)
        totals[e] = left[e] == left[e] ? totals[e] + left[e] : totals[e];
}

/* The same for a number of rows that is known when it is called. */
TILE_FUNCTION static void multiply_strip_of_rows_T(
    int64_t rows, int64_t columns, int64_t depth, const T *a, int64_t a_row, int64_t a_step,
    const T *b, int64_t b_row, T *restrict totals, int64_t totals_row)
{
    multiply_strip_T(1, rows, columns, depth, a, a_row, a_step, b, b_row, totals, totals_row);
}
