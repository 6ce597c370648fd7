/* Factorizations of real and complex matrices. Columns are halved recursively, and the right half
 * is updated by a product with the left one: S. Toledo, Locality of reference in LU decomposition
 * with partial pivoting, SIAM Journal on Matrix Analysis and Applications 18(4), 1997. A product
 * of complex matrices is computed as one of real matrices: each row of the right one occurs
 * twice, as it is and times i. */

#if INSTANCE == 0
#define T float
#define R float
#define PARTS 1
#define REAL a
#define SIZE fabsf(a)
#define ABS fabsf(a)
#define CONJUGATE a
#define TIMES a * b
#define OVER a / b
#define SQRT sqrtf
#define LOG logf
#elif INSTANCE == 1
#define T double
#define R double
#define PARTS 1
#define REAL a
#define SIZE fabs(a)
#define ABS fabs(a)
#define CONJUGATE a
#define TIMES a * b
#define OVER a / b
#define SQRT sqrt
#define LOG log
#elif INSTANCE == 2
#define T fx_c64
#define R float
#define PARTS 2
#define REAL fx_real_c64(a)
#define SIZE fabsf(fx_real_c64(a)) + fabsf(fx_imag_c64(a))
#define ABS fx_abs_c64(a)
#define CONJUGATE fx_conj_c64(a)
#define TIMES fx_mul_c64(a, b)
#define OVER fx_div_c64(a, b)
#define SQRT sqrtf
#define LOG logf
#else
#define T fx_c128
#define R double
#define PARTS 2
#define REAL fx_real_c128(a)
#define SIZE fabs(fx_real_c128(a)) + fabs(fx_imag_c128(a))
#define ABS fx_abs_c128(a)
#define CONJUGATE fx_conj_c128(a)
#define TIMES fx_mul_c128(a, b)
#define OVER fx_div_c128(a, b)
#define SQRT sqrt
#define LOG log
#endif

/* ---- Factors of matrices --------------------------------------------------------------------- */

/* Columns that are factored one by one; columns of a Cholesky factor before the others are
 * updated; rows that a thread updates; products that are summed at a time. */
enum { FEW_COLUMNS = 8, FACTOR_COLUMNS = 64, FACTOR_ROWS = 96, FACTOR_DEPTH = 128 };

/* Records that a matrix has no factors, or a system no solution. The first such error is kept. */
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

static inline R real_T(T a) { return REAL; }

/* The number by which pivots are compared. */
static inline R size_T(T a) { return SIZE; }

static inline R abs_T(T a) { return ABS; }

static inline T conjugate_T(T a) { return CONJUGATE; }

static inline T times_T(T a, T b) { return TIMES; }

static inline T over_T(T a, T b) { return OVER; }

/* y -= factor x. */
static inline void subtract_multiple_T(int64_t count, T factor, const T *x, T *y)
{
    #pragma omp simd
    for (int64_t j = 0; j < count; j++) y[j] -= times_T(factor, x[j]);
}

/* y -= a b for few rows. */
static void subtract_few_rows_T(
    int64_t rows, int64_t columns, int64_t depth, const T *a, int64_t a_pitch, const T *b,
    int64_t b_pitch, T *y, int64_t y_pitch)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t p = 0; p < depth; p++)
            subtract_multiple_T(columns, a[i * a_pitch + p], b + p * b_pitch, y + i * y_pitch);
}

/* A panel of `columns` parts of b, with each row PARTS times: the second time multiplied by i. */
static inline void factor_panel_T(
    int64_t depth, int columns, const T *b, int64_t b_pitch, R *restrict panel)
{
    const R *from = (const R *)b;
    if (PARTS == 1) {
        pack_panel_R(depth, columns, from, b_pitch, 1, panel);
        return;
    }
    for (int64_t p = 0; p < depth; p++, from += 2 * b_pitch, panel += 2 * R_panel) {
        for (int j = 0; j < columns; j += 2) {
            panel[j] = panel[R_panel + j + 1] = from[j];
            panel[j + 1] = from[j + 1];
            panel[R_panel + j] = -from[j + 1];
        }
        for (int j = columns; j < R_panel; j++) panel[j] = panel[R_panel + j] = 0;
    }
}

/* y -= a b, by tiles. */
static void subtract_rows_T(
    int64_t rows, int64_t columns, int64_t depth, const T *a, int64_t a_pitch, const T *b,
    int64_t b_pitch, T *y, int64_t y_pitch)
{
    R panel[FACTOR_DEPTH * R_panel], tile[TILE_ROWS * R_panel];
    if (rows < TILE_ROWS) {
        subtract_few_rows_T(rows, columns, depth, a, a_pitch, b, b_pitch, y, y_pitch);
        return;
    }
    for (int64_t p = 0; p < depth; p += FACTOR_DEPTH / PARTS) {
        const int64_t steps = depth - p < FACTOR_DEPTH / PARTS ? depth - p : FACTOR_DEPTH / PARTS;
        for (int64_t j = 0; j < columns; j += R_panel / PARTS) {
            const int width = columns - j < R_panel / PARTS ? (int)(columns - j) * PARTS : R_panel;
            factor_panel_T(steps, width, b + p * b_pitch + j, b_pitch, panel);
            for (int64_t i = 0; i < rows; i += TILE_ROWS) {
                const int count = rows - i < TILE_ROWS ? (int)(rows - i) : TILE_ROWS;
                R *const target = (R *)(y + i * y_pitch + j);
                multiply_tile_R(
                    count, width, PARTS * steps, (const R *)(a + i * a_pitch + p),
                    PARTS * a_pitch, panel, tile);
                for (int r = 0; r < count; r++) {
                    #pragma omp simd
                    for (int c = 0; c < width; c++)
                        target[PARTS * r * y_pitch + c] -= tile[r * R_panel + c];
                }
            }
        }
    }
}

/* y -= a b, with rows divided among threads if there is enough work. */
static void subtract_product_T(
    int n_threads, int64_t rows, int64_t columns, int64_t depth, const T *a, int64_t a_pitch,
    const T *b, int64_t b_pitch, T *y, int64_t y_pitch)
{
    const int64_t products = PARTS * PARTS * rows * columns * depth; /* many in a cycle */
    const int shared = n_threads > 1 && products > 8 * PARALLEL_OPERATIONS;
    (void)shared;
    #pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (shared)
    for (int64_t row = 0; row < rows; row += FACTOR_ROWS) {
        const int64_t count = rows - row < FACTOR_ROWS ? rows - row : FACTOR_ROWS;
        subtract_rows_T(
            count, columns, depth, a + row * a_pitch, a_pitch, b, b_pitch, y + row * y_pitch,
            y_pitch);
    }
}

/* The sum of one row times the conjugate of the other. */
static inline T dot_rows_T(int64_t n, const T *a, const T *b)
{
    T sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += times_T(a[i], conjugate_T(b[i]));
    return sum;
}

/* The lower factor of a block of `width` columns, in place. Returns -1, or the first column whose
 * pivot is not positive. */
static int64_t cholesky_block_T(int64_t width, T *y, int64_t pitch)
{
    for (int64_t i = 0; i < width; i++) {
        T *const row = y + i * pitch;
        for (int64_t c = 0; c <= i; c++) {
            const T *const other = y + c * pitch;
            const T rest = row[c] - dot_rows_T(c, row, other);
            if (c < i) {
                row[c] = over_T(rest, other[c]);
            } else {
                if (!(real_T(rest) > 0)) return i;
                row[c] = SQRT(real_T(rest));
            }
        }
    }
    return -1;
}

/* Rows below such a block: solves y factor^H = y in place. Their conjugate transpose is stored to
 * `turned`, with rows `turned_pitch` apart. */
static void cholesky_rows_T(
    int64_t rows, int64_t width, const T *factor, T *y, int64_t pitch, T *turned,
    int64_t turned_pitch)
{
    if (PARTS == 1)
        copy_transposed_R(rows, width, (const R *)y, pitch, (R *)turned, turned_pitch);
    for (int64_t i = 0; PARTS == 2 && i < rows; i++)
        for (int64_t c = 0; c < width; c++)
            turned[c * turned_pitch + i] = conjugate_T(y[i * pitch + c]);
    for (int64_t c = 0; c < width; c++) {
        T *const column = turned + c * turned_pitch;
        subtract_few_rows_T(
            1, rows, c, factor + c * pitch, pitch, turned, turned_pitch, column, turned_pitch);
        for (int64_t i = 0; i < rows; i++) {
            column[i] /= real_T(factor[c * pitch + c]);
            y[i * pitch + c] = conjugate_T(column[i]);
        }
    }
}

/* The lower triangle y of x = y y^H, for matrices [n, n]; only the lower triangle of x is read.
 * Returns -1, or the first column whose pivot is not positive. `memory` has room for
 * FACTOR_COLUMNS n. */
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

/* Factors columns start .. end of a matrix in place, see factor_rows_T. */
static int64_t factor_few_T(
    int64_t n, int64_t columns, int64_t start, int64_t end, T *y, int64_t *exchanges)
{
    for (int64_t c = start; c < end; c++) {
        int64_t best = c;
        R largest = size_T(y[c * columns + c]);
        for (int64_t i = c + 1; i < n; i++) {
            const R size = size_T(y[i * columns + c]);
            best = size > largest ? i : best;
            largest = size > largest ? size : largest;
        }
        if (largest == 0) return c;
        T *const row = y + c * columns, *const other = y + best * columns;
        *exchanges += best != c;
        for (int64_t j = 0; j < columns && best != c; j++) {
            const T kept = row[j];
            row[j] = other[j];
            other[j] = kept;
        }
        const T pivot = row[c], inverse = over_T(1, pivot);
        for (int64_t i = c + 1; i < n; i++) {
            T *const below = y + i * columns;
            below[c] = PARTS == 1 ? over_T(below[c], pivot) : times_T(below[c], inverse);
            subtract_multiple_T(end - c - 1, below[c], row + c + 1, below + c + 1);
        }
    }
    return -1;
}

/* The place at which columns start .. end are halved. */
static inline int64_t half_of(int64_t start, int64_t end)
{
    return start + (end - start + 2 * FEW_COLUMNS - 1) / (2 * FEW_COLUMNS) * FEW_COLUMNS;
}

/* Solves for columns first .. last of rows start .. end, in place, with the lower factor in
 * columns start .. end, whose diagonal is 1. */
static void solve_lower_T(
    int n_threads, int64_t columns, int64_t start, int64_t end, int64_t first, int64_t last, T *y)
{
    if (end - start <= FEW_COLUMNS) {
        for (int64_t i = start + 1; i < end; i++)
            subtract_few_rows_T(
                1, last - first, i - start, y + i * columns + start, columns,
                y + start * columns + first, columns, y + i * columns + first, columns);
        return;
    }
    const int64_t half = half_of(start, end);
    solve_lower_T(n_threads, columns, start, half, first, last, y);
    subtract_product_T(
        n_threads, end - half, last - first, half - start, y + half * columns + start, columns,
        y + start * columns + first, columns, y + half * columns + first, columns);
    solve_lower_T(n_threads, columns, half, end, first, last, y);
}

/* The same for the upper factor. */
static void solve_upper_T(
    int n_threads, int64_t columns, int64_t start, int64_t end, int64_t first, int64_t last, T *y)
{
    if (end - start <= FEW_COLUMNS) {
        for (int64_t i = end - 1; i >= start; i--) {
            T *const row = y + i * columns;
            subtract_few_rows_T(
                1, last - first, end - i - 1, row + i + 1, columns, row + columns + first, columns,
                row + first, columns);
            const T pivot = row[i], inverse = over_T(1, pivot);
            for (int64_t j = first; j < last; j++)
                row[j] = PARTS == 1 ? over_T(row[j], pivot) : times_T(row[j], inverse);
        }
        return;
    }
    const int64_t half = half_of(start, end);
    solve_upper_T(n_threads, columns, half, end, first, last, y);
    subtract_product_T(
        n_threads, half - start, last - first, end - half, y + start * columns + half, columns,
        y + half * columns + first, columns, y + start * columns + first, columns);
    solve_upper_T(n_threads, columns, start, half, first, last, y);
}

/* Factors columns start .. end of a matrix [n, columns] in place, exchanging rows: the lower
 * factor is below the diagonal, the upper one is the rest. Returns -1, or the first column
 * without a pivot, where it stops. Counts exchanges. */
static int64_t factor_rows_T(
    int n_threads, int64_t n, int64_t columns, int64_t start, int64_t end, T *y,
    int64_t *exchanges)
{
    if (end - start <= FEW_COLUMNS) return factor_few_T(n, columns, start, end, y, exchanges);
    const int64_t half = half_of(start, end);
    const int64_t failed = factor_rows_T(n_threads, n, columns, start, half, y, exchanges);
    if (failed >= 0) return failed;
    solve_lower_T(n_threads, columns, start, half, half, end, y);
    subtract_product_T(
        n_threads, n - half, end - half, half - start, y + half * columns + start, columns,
        y + start * columns + half, columns, y + half * columns + half, columns);
    return factor_rows_T(n_threads, n, columns, half, end, y, exchanges);
}

/* The solution y [n, k] of x y = b. Returns -1, or the first column of x without a pivot.
 * `memory` has room for n (n + k). */
static int64_t solve_T(
    int n_threads, int64_t n, int64_t k, const T *x, const T *b, T *y, T *memory)
{
    const int64_t columns = n + k;
    int64_t exchanges = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) memory[i * columns + j] = x[i * n + j];
        for (int64_t j = 0; j < k; j++) memory[i * columns + n + j] = b[i * k + j];
    }
    const int64_t failed = factor_rows_T(n_threads, n, columns, 0, n, memory, &exchanges);
    if (failed >= 0) return failed;
    const int shared = n_threads > 1 && n * n * k > PARALLEL_OPERATIONS;
    const int64_t panel = R_panel / PARTS, panels = (k + panel - 1) / panel;
    const int64_t width = (panels + n_threads - 1) / n_threads * panel;
    (void)shared;
    #pragma omp parallel for num_threads(n_threads) if (shared)
    for (int64_t first = n; first < columns; first += width) {
        const int64_t last = columns - first < width ? columns : first + width;
        solve_lower_T(1, columns, 0, n, first, last, memory);
        solve_upper_T(1, columns, 0, n, first, last, memory);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = first; j < last; j++) y[i * k + j - n] = memory[i * columns + j];
    }
    return -1;
}

/* Sign, and logarithm of the absolute value, of the determinant of x [n, n]; 0 and -infinity if x
 * is singular. `memory` has room for n n. */
static void log_determinant_T(int n_threads, int64_t n, const T *x, T *y, T *memory)
{
    int64_t exchanges = 0;
    R total = 0;
    for (int64_t i = 0; i < n * n; i++) memory[i] = x[i];
    const int64_t failed = factor_rows_T(n_threads, n, n, 0, n, memory, &exchanges);
    T sign = exchanges % 2 ? -1 : 1;
    for (int64_t i = 0; i < n && failed < 0; i++) {
        const T pivot = memory[i * n + i];
        sign = times_T(sign, pivot / abs_T(pivot));
        total += LOG(abs_T(pivot));
    }
    y[0] = failed < 0 ? sign : 0;
    y[1] = failed < 0 ? total : -INFINITY;
}
