/* Factors of matrices, by blocks of columns: what is right of a block is updated by a product. */

#if INSTANCE == 0
#define T float
#define SQRT sqrtf
#define ABS fabsf
#define LOG logf
#else
#define T double
#define SQRT sqrt
#define ABS fabs
#define LOG log
#endif

/* ---- Factors of matrices --------------------------------------------------------------------- */

/* Columns that are factored before the others are updated, and rows that a thread updates. */
enum { FACTOR_COLUMNS = 64, FACTOR_ROWS = 96 };

/* A matrix has no factors, or a system of equations no solution. The first one is reported. */
static void no_factors(int64_t column, int64_t size, int64_t where, fx_error *error)
{
#ifdef _OPENMP
#pragma omp critical(fx_error)
#endif
    if (error->code == 0) {
        error->code = FX_NO_FACTORS;
        error->value = column;
        error->limit = size;
        error->where = where;
    }
}

/* y -= a b for few rows. */
static void subtract_few_rows_T(
    int64_t rows, int64_t columns, int64_t depth, const T *a, int64_t a_pitch, const T *b,
    int64_t b_pitch, T *y, int64_t y_pitch)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t p = 0; p < depth; p++) {
            const T factor = a[i * a_pitch + p];
            #pragma omp simd
            for (int64_t j = 0; j < columns; j++)
                y[i * y_pitch + j] -= factor * b[p * b_pitch + j];
        }
    }
}

/* y -= a b, by tiles; a panel of b is packed, so many of its rows at a time. */
static void subtract_rows_T(
    int64_t rows, int64_t columns, int64_t depth, const T *a, int64_t a_pitch, const T *b,
    int64_t b_pitch, T *y, int64_t y_pitch)
{
    enum { FACTOR_DEPTH = 128 };
    T panel[FACTOR_DEPTH * T_panel], tile[TILE_ROWS * T_panel];
    if (rows < TILE_ROWS) {
        subtract_few_rows_T(rows, columns, depth, a, a_pitch, b, b_pitch, y, y_pitch);
        return;
    }
    for (int64_t p = 0; p < depth; p += FACTOR_DEPTH) {
        const int64_t steps = depth - p < FACTOR_DEPTH ? depth - p : FACTOR_DEPTH;
        for (int64_t j = 0; j < columns; j += T_panel) {
            const int width = columns - j < T_panel ? (int)(columns - j) : T_panel;
            pack_panel_T(steps, width, b + p * b_pitch + j, b_pitch, 1, panel);
            for (int64_t i = 0; i < rows; i += TILE_ROWS) {
                const int count = rows - i < TILE_ROWS ? (int)(rows - i) : TILE_ROWS;
                T *const target = y + i * y_pitch + j;
                multiply_tile_T(count, width, steps, a + i * a_pitch + p, a_pitch, panel, tile);
                for (int r = 0; r < count; r++) {
                    #pragma omp simd
                    for (int c = 0; c < width; c++)
                        target[r * y_pitch + c] -= tile[r * T_panel + c];
                }
            }
        }
    }
}

/* y -= a b, its rows shared by threads where there is enough to do. */
static void subtract_product_T(
    int n_threads, int64_t rows, int64_t columns, int64_t depth, const T *a, int64_t a_pitch,
    const T *b, int64_t b_pitch, T *y, int64_t y_pitch)
{
    const int shared = n_threads > 1 && rows * columns * depth > PARALLEL_OPERATIONS;
    (void)shared;
    #pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (shared)
    for (int64_t row = 0; row < rows; row += FACTOR_ROWS) {
        const int64_t count = rows - row < FACTOR_ROWS ? rows - row : FACTOR_ROWS;
        subtract_rows_T(
            count, columns, depth, a + row * a_pitch, a_pitch, b, b_pitch, y + row * y_pitch,
            y_pitch);
    }
}

static inline T dot_rows_T(int64_t n, const T *a, const T *b)
{
    T sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The lower factor of a block of `width` columns, in place. Gives -1, or the first column whose
 * pivot is not positive. */
static int64_t cholesky_block_T(int64_t width, T *y, int64_t pitch)
{
    for (int64_t i = 0; i < width; i++) {
        T *const row = y + i * pitch;
        for (int64_t c = 0; c <= i; c++) {
            const T *const other = y + c * pitch;
            const T rest = row[c] - dot_rows_T(c, row, other);
            if (c < i) {
                row[c] = rest / other[c];
            } else {
                if (!(rest > 0)) return i;
                row[c] = SQRT(rest);
            }
        }
    }
    return -1;
}

/* Rows below such a block: y with y factor^T = what is there. `turned` is where their transpose
 * goes, with rows `turned_pitch` apart. */
static void cholesky_rows_T(
    int64_t rows, int64_t width, const T *factor, T *y, int64_t pitch, T *turned,
    int64_t turned_pitch)
{
    copy_transposed_T(rows, width, y, pitch, turned, turned_pitch);
    for (int64_t c = 0; c < width; c++) {
        T *const column = turned + c * turned_pitch;
        subtract_few_rows_T(
            1, rows, c, factor + c * pitch, pitch, turned, turned_pitch, column, turned_pitch);
        for (int64_t i = 0; i < rows; i++) {
            column[i] /= factor[c * pitch + c];
            y[i * pitch + c] = column[i];
        }
    }
}

/* The lower triangle y of x = y y^T, matrices [n, n], of which that of x is read. Gives -1, or the
 * first column whose pivot is not positive. `memory` has room for FACTOR_COLUMNS n. */
static int64_t cholesky_T(int n_threads, int64_t n, const T *x, T *y, T *memory)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) y[i * n + j] = j <= i ? x[i * n + j] : 0;
    for (int64_t start = 0; start < n; start += FACTOR_COLUMNS) {
        const int64_t width = n - start < FACTOR_COLUMNS ? n - start : FACTOR_COLUMNS;
        const int64_t next = start + width, left = n - next;
        T *const block = y + start * n + start;
        const int64_t failed = cholesky_block_T(width, block, n);
        if (failed >= 0) return start + failed;
        const int shared = n_threads > 1 && left * left * width > 2 * PARALLEL_OPERATIONS;
        (void)shared;
        #pragma omp parallel num_threads(n_threads) if (shared)
        {
            #pragma omp for
            for (int64_t i = next; i < n; i += FACTOR_ROWS) {
                const int64_t rows = n - i < FACTOR_ROWS ? n - i : FACTOR_ROWS;
                cholesky_rows_T(rows, width, block, y + i * n + start, n, memory + i, n);
            }
            #pragma omp for schedule(dynamic)
            for (int64_t i = next; i < n; i += FACTOR_ROWS) {
                const int64_t end = n - i < FACTOR_ROWS ? n : i + FACTOR_ROWS;
                subtract_rows_T(
                    end - i, end - next, width, y + i * n + start, n, memory + next, n,
                    y + i * n + next, n);
            }
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) y[i * n + j] = 0;
    return -1;
}

/* Factors a matrix [n, columns] in place, by rows exchanged: below the diagonal of its first n
 * columns is the lower factor, the rest is the upper one, of the other columns too. Gives -1, or
 * the first column without a pivot, where it ends; *sign is that of the exchange. */
static int64_t factor_rows_T(int n_threads, int64_t n, int64_t columns, T *y, T *sign)
{
    *sign = 1;
    for (int64_t start = 0; start < n; start += FACTOR_COLUMNS) {
        const int64_t width = n - start < FACTOR_COLUMNS ? n - start : FACTOR_COLUMNS;
        const int64_t next = start + width;
        for (int64_t c = start; c < next; c++) {
            int64_t best = c;
            for (int64_t i = c + 1; i < n; i++)
                best = ABS(y[i * columns + c]) > ABS(y[best * columns + c]) ? i : best;
            T *const row = y + c * columns, *const other = y + best * columns;
            if (other[c] == 0) return c;
            if (best != c) {
                *sign = -*sign;
                for (int64_t j = 0; j < columns; j++) {
                    const T kept = row[j];
                    row[j] = other[j];
                    other[j] = kept;
                }
            }
            for (int64_t i = c + 1; i < n; i++) {
                T *const below = y + i * columns;
                const T factor = below[c] / row[c];
                below[c] = factor;
                #pragma omp simd
                for (int64_t j = c + 1; j < next; j++) below[j] -= factor * row[j];
            }
        }
        for (int64_t c = start; c < next; c++)
            subtract_rows_T(
                1, columns - next, c - start, y + c * columns + start, columns,
                y + start * columns + next, columns, y + c * columns + next, columns);
        subtract_product_T(
            n_threads, n - next, columns - next, width, y + next * columns + start, columns,
            y + start * columns + next, columns, y + next * columns + next, columns);
    }
    return -1;
}

/* The solution y [n, k] of x y = b. Gives -1, or the first column of x without a pivot. `memory`
 * has room for n (n + k). */
static int64_t solve_T(
    int n_threads, int64_t n, int64_t k, const T *x, const T *b, T *y, T *memory)
{
    const int64_t columns = n + k;
    T sign;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) memory[i * columns + j] = x[i * n + j];
        for (int64_t j = 0; j < k; j++) memory[i * columns + n + j] = b[i * k + j];
    }
    const int64_t failed = factor_rows_T(n_threads, n, columns, memory, &sign);
    if (failed >= 0) return failed;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) y[i * k + j] = memory[i * columns + n + j];
    for (int64_t start, end = n; end > 0; end = start) {
        start = (end - 1) / FACTOR_COLUMNS * FACTOR_COLUMNS;
        subtract_product_T(
            n_threads, end - start, k, n - end, memory + start * columns + end, columns,
            y + end * k, k, y + start * k, k);
        for (int64_t i = end - 1; i >= start; i--) {
            const T *const row = memory + i * columns;
            subtract_rows_T(
                1, k, end - i - 1, row + i + 1, columns, y + (i + 1) * k, k, y + i * k, k);
            for (int64_t j = 0; j < k; j++) y[i * k + j] /= row[i];
        }
    }
    return -1;
}

/* Sign and logarithm of the size of a determinant, of x [n, n]; 0 and -infinity of a singular one.
 * `memory` has room for n n. */
static void log_determinant_T(int n_threads, int64_t n, const T *x, T *y, T *memory)
{
    T sign, total = 0;
    for (int64_t i = 0; i < n * n; i++) memory[i] = x[i];
    const int64_t failed = factor_rows_T(n_threads, n, n, memory, &sign);
    for (int64_t i = 0; i < n && failed < 0; i++) {
        const T pivot = memory[i * n + i];
        sign = pivot < 0 ? -sign : sign;
        total += LOG(ABS(pivot));
    }
    y[0] = failed < 0 ? sign : 0;
    y[1] = failed < 0 ? total : -INFINITY;
}
