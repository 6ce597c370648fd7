/* Products of two matrices whose rows both lie along k, one of which has few rows: dot products
 * of rows, which are read in place. Packing a panel of the other matrix would take as long as
 * multiplying about five rows by it. */

#if INSTANCE == 0
#define T float
#define INDEX int32_t
#define BITS 32
#else
#define T double
#define INDEX int64_t
#define BITS 64
#endif

/* The sums of the lanes of four vectors. After interleaving, a vector holds sums of all four. */
static TILE_INLINE void sum_lanes_T(const T_vec x[4], T sums[4])
{
#if VECTOR_BYTES >= 32
    T lanes[T_lanes];
    T_vec half[2];
    #pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        half[i] = weave_low_BITS(T_index, x[2 * i], x[2 * i + 1])
                + weave_high_BITS(T_index, x[2 * i], x[2 * i + 1]);
    *(T_vec *)lanes = weave_low_BITS(T_index, half[0], half[1])
                    + weave_high_BITS(T_index, half[0], half[1]);
    #pragma GCC unroll 4
    for (int width = T_lanes / 2; width >= 4; width /= 2) {
        #pragma GCC unroll 8
        for (int e = 0; e < width; e++)
            lanes[e] += lanes[e + width];
    }
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sums[i] = lanes[i % 2 * 2 + i / 2];
#else
    for (int i = 0; i < 4; i++) {
        sums[i] = 0;
        for (int e = 0; e < T_lanes; e++)
            sums[i] += LANE(x[i], e);
    }
#endif
}

/* The elements of a vector selected by the bits of `kept`: all except those multiplied before. It
 * is read through volatile so that GCC loads it once, and not in every FMA. */
static inline T_vec load_kept_T(const T *from, T_index kept)
{
    return T_of_bits(bits_of_T(*(const volatile T_vec *)from) & kept);
}

/* Adds a vector's steps of the dot products of `rows` rows of A with `columns` rows of B. */
static TILE_INLINE void step_dots_T(
    const int rows, const int columns, T_index kept, const T *a, int64_t a_row,
    const T *b, int64_t b_row, T_vec sum[8])
{
    T_vec b_k[4];
    #pragma GCC unroll 4
    for (int j = 0; j < columns; j++)
        b_k[j] = load_kept_T(b + j * b_row, kept);
    #pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        const T_vec a_k = load_kept_T(a + i * a_row, kept);
        #pragma GCC unroll 4
        for (int j = 0; j < columns; j++)
            ADD_PRODUCT_T(sum[i * columns + j], a_k, b_k[j]);
    }
}

/* Four or eight dot products over one to SUM_STEPS vectors, the last of which is moved back to end
 * with the row. */
static TILE_INLINE void add_dots_T(
    const int rows, const int columns, int64_t depth, const T *a, int64_t a_row,
    const T *b, int64_t b_row, T sums[8])
{
    T_vec sum[8] = {0};
    int64_t k = 0;
    for (; k + T_lanes <= depth; k += T_lanes)
        step_dots_T(rows, columns, ~(T_index){0}, a + k, a_row, b + k, b_row, sum);
    if (k < depth) {
        T_index number = {0};
        for (int e = 0; e < T_lanes; e++)
            LANE(number, e) = e;
        const T_index is_new = MASK(number >= (INDEX)(T_lanes - (depth - k)));
        k = depth - T_lanes;
        step_dots_T(rows, columns, is_new, a + k, a_row, b + k, b_row, sum);
    }
    #pragma GCC unroll 2
    for (int e = 0; e < rows * columns; e += 4)
        sum_lanes_T(sum + e, sums + e);
}

/* Dot products of any depth from a vector on. The sums of blocks of long ones are added with their
 * rounding errors (Knuth's TwoSum), which are NaN next to an infinity. */
static TILE_INLINE void dots_T(
    const int rows, const int columns, int64_t depth, const T *a, int64_t a_row,
    const T *b, int64_t b_row, T *restrict tile)
{
    const int64_t most = (int64_t)SUM_STEPS * T_lanes, blocks = (depth + most - 1) / most;
    T sums[8], more[8], left[8] = {0};
    add_dots_T(rows, columns, depth / blocks, a, a_row, b, b_row, sums);
    for (int64_t block = 1; block < blocks; block++) {
        const int64_t k = block * depth / blocks, steps = (block + 1) * depth / blocks - k;
        add_dots_T(rows, columns, steps, a + k, a_row, b + k, b_row, more);
        for (int e = 0; e < rows * columns; e++) {
            const T sum = sums[e] + more[e], kept = sum - sums[e];
            left[e] += (sums[e] - (sum - kept)) + (more[e] - kept);
            sums[e] = sum;
        }
    }
    #pragma GCC unroll 8
    for (int e = 0; e < rows * columns; e++) {
        const T total = left[e] == left[e] ? sums[e] + left[e] : sums[e];
        tile[e / columns * T_panel + e % columns] = total;
    }
}

/* How many rows of A and of B are multiplied together. */
TILE_FUNCTION static void dots_1x4_T(
    int64_t depth, const T *a, const T *b, int64_t b_row, T *restrict tile)
{
    dots_T(1, 4, depth, a, 0, b, b_row, tile);
}

TILE_FUNCTION static void dots_2x4_T(
    int64_t depth, const T *a, int64_t a_row, const T *b, int64_t b_row, T *restrict tile)
{
    dots_T(2, 4, depth, a, a_row, b, b_row, tile);
}

TILE_FUNCTION static void dots_4x2_T(
    int64_t depth, const T *a, int64_t a_row, const T *b, int64_t b_row, T *restrict tile)
{
    dots_T(4, 2, depth, a, a_row, b, b_row, tile);
}

TILE_FUNCTION static void dots_4x1_T(
    int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    dots_T(4, 1, depth, a, a_row, b, 0, tile);
}

/* sums[j] = or += the dot product of `steps` steps of a row of A and of row j of B. */
static TILE_INLINE void add_short_dots_T(
    const int steps, const int is_first, int columns, const T *a, const T *b, int64_t b_row,
    T *restrict sums)
{
    for (int j = 0; j < columns; j++) {
        T sum = is_first ? 0 : sums[j];
        #pragma GCC unroll 4
        for (int k = 0; k < steps; k++)
            sum += a[k] * b[j * b_row + k];
        sums[j] = sum;
    }
}

/* The products of rows of A of `depth` steps, a power of two, with whole vectors of columns of B,
 * which lie one after the other: elements at even places are parted from those at odd ones until
 * there is a vector for each step. */
static TILE_INLINE void part_short_dots_T(
    const int depth, int rows, int columns, const T *a, int64_t a_row, const T *b,
    T *restrict tile)
{
    for (int j = 0; j < columns; j += T_lanes, b += depth * T_lanes) {
        T_vec step[8], parted[8];
        #pragma GCC unroll 8
        for (int v = 0; v < depth; v++)
            step[v] = *(const T_vec *)(b + v * T_lanes);
        #pragma GCC unroll 3
        for (int round = 1; round < depth; round *= 2) {
            #pragma GCC unroll 4
            for (int v = 0; v < depth / 2; v++) {
                parted[v] = T_vec_even(step[2 * v], step[2 * v + 1]);
                parted[v + depth / 2] = T_vec_odd(step[2 * v], step[2 * v + 1]);
            }
            #pragma GCC unroll 8
            for (int v = 0; v < depth; v++)
                step[v] = parted[v];
        }
        for (int i = 0; i < rows; i++) {
            T_vec sum = {0};
            #pragma GCC unroll 8
            for (int k = 0; k < depth; k++)
                ADD_PRODUCT_T(sum, all_T(a[i * a_row + k]), step[k]);
            *(T_vec *)(tile + i * T_panel + j) = sum;
        }
    }
}

/* The product of a tile of rows that are shorter than a vector: of all columns first 4 steps or
 * fewer, then 4 at a time. Vectors of 64 bytes are filled faster by parting whole ones, where that
 * is possible (measured for 2 x 8 by 8 x 20003 floats: 55 and 26 us; with 32 bytes 64 and 108). */
TILE_FUNCTION static void multiply_short_dots_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, int64_t b_row,
    T *restrict tile)
{
    if (VECTOR_BYTES == 64 && b_row == depth && columns % T_lanes == 0) {
        switch (depth) {
        case 2: part_short_dots_T(2, rows, columns, a, a_row, b, tile); return;
        case 4: part_short_dots_T(4, rows, columns, a, a_row, b, tile); return;
        case 8: part_short_dots_T(8, rows, columns, a, a_row, b, tile); return;
        }
    }
    for (int i = 0; i < rows; i++, a += a_row, tile += T_panel) {
        int64_t k = depth > 0 ? (depth - 1) % 4 + 1 : 0;
        switch (k) {
        case 0: add_short_dots_T(0, 1, columns, a, b, b_row, tile); break;
        case 1: add_short_dots_T(1, 1, columns, a, b, b_row, tile); break;
        case 2: add_short_dots_T(2, 1, columns, a, b, b_row, tile); break;
        case 3: add_short_dots_T(3, 1, columns, a, b, b_row, tile); break;
        default: add_short_dots_T(4, 1, columns, a, b, b_row, tile);
        }
        for (; k < depth; k += 4)
            add_short_dots_T(4, 0, columns, a + k, b + k, b_row, tile);
    }
}

/* The product of a tile: tile[i][j] = sum over k of a[i][k] * b[j][k]. The last rows or columns
 * that are multiplied together may repeat some of the earlier ones or, if there are few rows, one
 * row. */
static inline void multiply_dots_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, int64_t b_row,
    T *restrict tile)
{
    if (depth < T_lanes) {
        multiply_short_dots_T(rows, columns, depth, a, a_row, b, b_row, tile);
        return;
    }
    int j = 0;
    for (; j + 4 <= columns || (j < columns && columns >= 4 && rows < 4); j += 4) {
        const int first = j + 4 <= columns ? j : columns - 4;
        const T *const b_j = b + first * b_row;
        for (int i = 0; rows > 1 && i < rows; i += 2) {
            const int row = i + 2 <= rows ? i : rows - 2;
            dots_2x4_T(depth, a + row * a_row, a_row, b_j, b_row, tile + row * T_panel + first);
        }
        if (rows == 1)
            dots_1x4_T(depth, a, b_j, b_row, tile + first);
    }
    while (j < columns) {
        const T *const b_j = b + j * b_row;
        const int width = rows >= 4 && j + 2 <= columns ? 2 : 1;
        for (int i = 0; rows >= 4 && i < rows; i += 4) {
            const int row = i + 4 <= rows ? i : rows - 4;
            T *const target = tile + row * T_panel + j;
            if (width == 2)
                dots_4x2_T(depth, a + row * a_row, a_row, b_j, b_row, target);
            else
                dots_4x1_T(depth, a + row * a_row, a_row, b_j, target);
        }
        for (int i = 0; rows < 4 && i < rows; i++) {
            T same[4 * T_panel];
            dots_4x1_T(depth, a + i * a_row, 0, b_j, same);
            tile[i * T_panel + j] = same[0];
        }
        j += width;
    }
}
