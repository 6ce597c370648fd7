/* QR, eigenvalues and singular values, by orthogonal transforms: reflections make a matrix
 * triangular, tridiagonal or bidiagonal, and rotations make it diagonal. C and CUDA share the
 * text. Golub and Van Loan, Matrix Computations, 4th edition: 5.1.3 (reflections), 5.2.2 (QR),
 * 8.3.1 (tridiagonal), 8.3.5 (its eigenvalues), 5.4.8 (bidiagonal), 8.6.3 (its singular
 * values). */

#if INSTANCE == 0
#define T float
#define SQRT sqrtf
#define ABS fabsf
#define HYPOT hypotf
#define SIGNED copysignf
#define SPLIT frexpf
#define POWER ldexpf
#define LARGEST_POWER 126
#define EPSILON 0x1p-23f
#else
#define T double
#define SQRT sqrt
#define ABS fabs
#define HYPOT hypot
#define SIGNED copysign
#define SPLIT frexp
#define POWER ldexp
#define LARGEST_POWER 1022
#define EPSILON 0x1p-52
#endif

/* ---- Orthogonal transforms ------------------------------------------------------------------- */

/* Numbers that are worth dividing among threads; and steps for each eigenvalue, which takes 2. */
enum { SHARED_NUMBERS = 1 << 15, STEPS_EACH = 40 };

/* The exponent e for which the largest number times 2**e is between 1/2 and 1, so that no square
 * overflows or underflows. */
FX_FN int power_T(int64_t count, const T *x)
{
    T largest = 0;
    int e = 0;
    for (int64_t i = 0; i < count; i++) largest = ABS(x[i]) > largest ? ABS(x[i]) : largest;
    if (largest > 0 && largest < INFINITY) (void)SPLIT(largest, &e);
    return e > LARGEST_POWER ? -LARGEST_POWER : e < -LARGEST_POWER ? LARGEST_POWER : -e;
}

FX_FN T dot_T(int64_t n, const T *a, const T *b)
{
    T sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The v, with first element 1, and the factor of the reflection x - factor v (v x) that turns v
 * into a multiple of the first unit vector. Returns that multiple, with the sign that LAPACK
 * uses. */
FX_FN T reflection_T(int64_t n, T *v, T *factor)
{
    const T first = v[0], rest = dot_T(n - 1, v + 1, v + 1);
    T length = first;
    *factor = 0;
    if (rest != 0) {
        length = -SIGNED(SQRT(first * first + rest), first);
        *factor = (length - first) / length;
        for (int64_t i = 1; i < n; i++) v[i] /= first - length;
    }
    v[0] = 1;
    return length;
}

/* Reflects up to four rows of n numbers, which are `pitch` apart. */
FX_FN void reflect_some_T(
    int64_t rows, int64_t n, const T *v, T factor, T *y, int64_t pitch)
{
    if (rows < 4) {
        for (T *x = y; rows > 0; rows--, x += pitch) {
            const T along = factor * dot_T(n, v, x);
            #pragma omp simd
            for (int64_t i = 0; i < n; i++) x[i] -= along * v[i];
        }
        return;
    }
    T *const a = y, *const b = a + pitch, *const c = b + pitch, *const d = c + pitch;
    T along_a = 0, along_b = 0, along_c = 0, along_d = 0;
    #pragma omp simd reduction(+ : along_a, along_b, along_c, along_d)
    for (int64_t i = 0; i < n; i++) {
        along_a += a[i] * v[i];
        along_b += b[i] * v[i];
        along_c += c[i] * v[i];
        along_d += d[i] * v[i];
    }
    along_a *= factor, along_b *= factor, along_c *= factor, along_d *= factor;
    #pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        a[i] -= along_a * v[i];
        b[i] -= along_b * v[i];
        c[i] -= along_c * v[i];
        d[i] -= along_d * v[i];
    }
}

/* Reflects any number of rows. */
FX_FN void reflect_T(
    int n_threads, int64_t rows, int64_t n, const T *v, T factor, T *y, int64_t pitch)
{
    const int shared = n_threads > 1 && rows * n > SHARED_NUMBERS;
    (void)shared;
    if (factor == 0) return;
    #pragma omp parallel for num_threads(n_threads) if (shared)
    for (int64_t row = 0; row < rows; row += 4)
        reflect_some_T(rows - row < 4 ? rows - row : 4, n, v, factor, y + row * pitch, pitch);
}

/* The first `count` columns of a product of reflections, as rows of y: row j of v, from its
 * element j + shift on, belongs to reflection j. */
FX_FN void reflected_T(
    int n_threads, int64_t count, int64_t n, int64_t steps, int64_t shift, const T *v,
    const T *factor, T *y, int64_t pitch)
{
    const int shared = n_threads > 1 && count * n > SHARED_NUMBERS;
    (void)shared;
    #pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (shared)
    for (int64_t row = 0; row < count; row += 4) {
        const int64_t rows = count - row < 4 ? count - row : 4, last = row + rows - 1 - shift;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < n; i++) y[(row + r) * pitch + i] = i == row + r;
        for (int64_t j = last < steps ? last : steps - 1; j >= 0; j--) {
            const int64_t first = j + shift;
            if (factor[j] != 0)
                reflect_some_T(
                    rows, n - first, v + j * n + first, factor[j], y + row * pitch + first, pitch);
        }
    }
}

/* Rotates two rows by the angle with this cosine and sine. */
FX_FN void rotate_T(int64_t n, T cosine, T sine, T *a, T *b)
{
    #pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const T x = a[i], z = b[i];
        a[i] = cosine * x + sine * z;
        b[i] = cosine * z - sine * x;
    }
}

/* The length of (x, z), and the cosine and sine that rotate it to (length, 0). */
FX_FN T angle_T(T x, T z, T *cosine, T *sine)
{
    const T length = HYPOT(x, z);
    *cosine = length == 0 ? 1 : x / length;
    *sine = length == 0 ? 0 : z / length;
    return length;
}

/* The lower end of the block of rows up to `end` that off-diagonal numbers connect. */
FX_FN int64_t block_T(int64_t end, const T *d, T *e)
{
    int64_t start = end;
    while (start > 0) {
        const T size = ABS(d[start - 1]) + ABS(d[start]);
        if (!(ABS(e[start - 1]) > EPSILON * (size + EPSILON))) {
            e[start - 1] = 0;
            break;
        }
        start--;
    }
    return start;
}

/* The eigenvalue of {{a, b}, {b, d}} that is closer to d (Wilkinson's shift). */
FX_FN T nearer_eigenvalue_T(T a, T b, T d)
{
    const T half = (a - d) / 2;
    return d - b * b / (half + SIGNED(HYPOT(half, b), half));
}

/* Sorts rows of `width` numbers by their first one, which is given separately, and fixes the sign
 * of each row: the first number from `from` on that is not small compared to the others becomes
 * positive. */
FX_FN void order_T(
    int64_t n, int descending, T power, T *d, int64_t width, int64_t from, int64_t pitch, T *y)
{
    for (int64_t row = 0; row < n; row++) {
        int64_t best = row;
        for (int64_t i = row + 1; i < n; i++)
            best = (descending ? d[i] > d[best] : d[i] < d[best]) ? i : best;
        T *const a = y + row * pitch, *const b = y + best * pitch;
        const T value = d[best];
        d[best] = d[row];
        d[row] = value;
        a[0] = value * power;
        T largest = 0;
        for (int64_t i = 1; i <= width; i++) {
            const T kept = a[i];
            a[i] = b[i];
            b[i] = kept;
        }
        for (int64_t i = from; i <= width; i++) largest = ABS(a[i]) > largest ? ABS(a[i]) : largest;
        int64_t first = from;
        while (first < width && !(ABS(a[first]) > largest * (T)0.37)) first++;
        if (width && a[first] < 0)
            for (int64_t i = 1; i <= width; i++) a[i] = -a[i];
    }
}

/* QR decomposition of x [m, n] into y [k, pitch], each row of which is a column of Q and a row of
 * R. `memory` has room for n (m + 1). */
FX_FN void qr_T(
    int n_threads, int64_t m, int64_t n, int64_t k, int64_t pitch, const T *x, T *y, T *memory)
{
    const int64_t steps = m < n ? m : n;
    T *const columns = memory, *const factor = memory + n * m;
    const int e = power_T(m * n, x);
    const T power = POWER((T)1, e), back = POWER((T)1, -e);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) columns[j * m + i] = x[i * n + j] * power;
    for (int64_t j = 0; j < k; j++)
        for (int64_t c = 0; c < n; c++) y[j * pitch + m + c] = 0;
    for (int64_t j = 0; j < steps; j++) {
        T *const v = columns + j * m + j, *const row = y + j * pitch + m;
        row[j] = reflection_T(m - j, v, factor + j) * back;
        reflect_T(n_threads, n - j - 1, m - j, v, factor[j], v + m, m);
        for (int64_t c = j + 1; c < n; c++) row[c] = columns[c * m + j] * back;
    }
    reflected_T(n_threads, k, m, steps, 0, columns, factor, y, pitch);
}

/* The eigenvalues d of a tridiagonal matrix with the diagonal d and e next to it. Rows of v, of
 * `width` numbers, are rotated like the matrix. */
FX_FN void tridiagonal_T(int64_t n, T *d, T *e, int64_t width, T *v, int64_t pitch)
{
    int64_t end = n - 1;
    for (int64_t step = 0; end > 0 && step < STEPS_EACH * n; step++) {
        const int64_t start = block_T(end, d, e);
        if (start == end) {
            end--;
            continue;
        }
        T x = d[start] - nearer_eigenvalue_T(d[end - 1], e[end - 1], d[end]), z = e[start];
        for (int64_t k = start; k < end; k++) {
            T c, s;
            const T length = angle_T(x, z, &c, &s), a = d[k], b = e[k], next = d[k + 1];
            if (k > start) e[k - 1] = length;
            d[k] = c * c * a + 2 * c * s * b + s * s * next;
            d[k + 1] = s * s * a - 2 * c * s * b + c * c * next;
            e[k] = x = c * s * (next - a) + (c * c - s * s) * b;
            if (k + 1 < end) {
                z = s * e[k + 1];
                e[k + 1] *= c;
            }
            rotate_T(width, c, s, v + k * pitch, v + (k + 1) * pitch);
        }
    }
}

/* The eigenvalues of a symmetric x [m, n], of which the lower triangle is read, in ascending
 * order, into y [k, pitch], each row of which is an eigenvalue and, if it is longer, its
 * eigenvector. `memory` has room for n (n + 4). */
FX_FN void eigh_T(
    int n_threads, int64_t m, int64_t n, int64_t k, int64_t pitch, const T *x, T *y, T *memory)
{
    const int64_t width = pitch - 1;
    (void)m, (void)k;
    T *const a = memory, *const d = a + n * n, *const e = d + n, *const factor = e + n;
    T *const p = factor + n;
    const int power = power_T(n * n, x);
    const T scale = POWER((T)1, power);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) a[i * n + j] = a[j * n + i] = x[i * n + j] * scale;
    for (int64_t j = 0; j + 1 < n; j++) {
        const int64_t size = n - j - 1;
        T *const v = a + j * n + j + 1, *const rest = v + n;
        const int shared = n_threads > 1 && size * size > SHARED_NUMBERS;
        (void)shared;
        d[j] = a[j * n + j];
        e[j] = reflection_T(size, v, factor + j);
        if (factor[j] == 0) continue;
        #pragma omp parallel for num_threads(n_threads) if (shared)
        for (int64_t i = 0; i < size; i++) p[i] = factor[j] * dot_T(size, rest + i * n, v);
        const T half = factor[j] / 2 * dot_T(size, p, v);
        for (int64_t i = 0; i < size; i++) p[i] -= half * v[i];
        #pragma omp parallel for num_threads(n_threads) if (shared)
        for (int64_t i = 0; i < size; i++) {
            #pragma omp simd
            for (int64_t c = 0; c < size; c++) rest[i * n + c] -= v[i] * p[c] + p[i] * v[c];
        }
    }
    if (n) d[n - 1] = a[n * n - 1];
    if (width) reflected_T(n_threads, n, n, n - 1, 1, a, factor, y + 1, pitch);
    tridiagonal_T(n, d, e, width, y + 1, pitch);
    order_T(n, 0, POWER((T)1, -power), d, width, 1, pitch, y);
}

/* Eliminates e[row] from a bidiagonal block where d[row] is 0, or e[end - 1] if row == end. */
FX_FN void deflate_T(
    int64_t row, int64_t start, int64_t end, T *d, T *e, int64_t width, T *v, int64_t pitch)
{
    const int64_t step = row < end ? 1 : -1;
    int64_t k = row + step, beside = row < end ? row : end - 1;
    T moved = e[beside], c, s;
    e[beside] = 0;
    for (; k >= start && k <= end; k += step) {
        d[k] = angle_T(d[k], moved, &c, &s);
        beside += step;
        if (k != (row < end ? end : start)) {
            moved = -s * e[beside];
            e[beside] *= c;
        }
        rotate_T(width, c, s, v + k * pitch, v + row * pitch);
    }
}

/* The singular values d, of any sign, of a bidiagonal matrix with the diagonal d and e above it.
 * Rows of u and v, of so many numbers, are rotated like its rows and columns. */
FX_FN void bidiagonal_T(
    int64_t n, T *d, T *e, int64_t u_width, T *u, int64_t v_width, T *v, int64_t pitch)
{
    int64_t end = n - 1;
    T largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const T size = ABS(d[i]) + (i ? ABS(e[i - 1]) : 0);
        largest = size > largest ? size : largest;
    }
    for (int64_t step = 0; end > 0 && step < STEPS_EACH * n; step++) {
        const int64_t start = block_T(end, d, e);
        if (start == end) {
            end--;
            continue;
        }
        int64_t zero = start;
        while (zero <= end && !(ABS(d[zero]) <= EPSILON * largest)) zero++;
        if (zero <= end) {
            d[zero] = 0;
            if (zero < end) deflate_T(zero, start, end, d, e, u_width, u, pitch);
            else deflate_T(zero, start, end, d, e, v_width, v, pitch);
            continue;
        }
        const T above = end - 1 > start ? e[end - 2] : 0, last = e[end - 1], before = d[end - 1];
        const T shift = nearer_eigenvalue_T(
            before * before + above * above, before * last, d[end] * d[end] + last * last);
        T x = d[start] * d[start] - shift, z = d[start] * e[start];
        for (int64_t k = start; k < end; k++) {
            T c, s;
            T length = angle_T(x, z, &c, &s);
            if (k > start) e[k - 1] = length;
            x = c * d[k] + s * e[k];
            e[k] = c * e[k] - s * d[k];
            z = s * d[k + 1];
            d[k + 1] *= c;
            rotate_T(v_width, c, s, v + k * pitch, v + (k + 1) * pitch);
            d[k] = angle_T(x, z, &c, &s);
            x = c * e[k] + s * d[k + 1];
            d[k + 1] = c * d[k + 1] - s * e[k];
            e[k] = x;
            if (k + 1 < end) {
                z = s * e[k + 1];
                e[k + 1] *= c;
            }
            rotate_T(u_width, c, s, u + k * pitch, u + (k + 1) * pitch);
        }
    }
}

/* The singular values of x [m, n] in descending order, into y [size, pitch], each row of which is
 * one and, if it is longer, its left and its right singular vector. `memory` has room for
 * (m + n + 4) size + m + n. */
FX_FN void svd_T(
    int n_threads, int64_t m, int64_t n, int64_t size, int64_t pitch, const T *x, T *y, T *memory)
{
    const int64_t rows = m < n ? n : m, width = pitch - 1;
    T *const a = memory, *const right = a + size * rows, *const d = right + size * size;
    T *const e = d + size, *const left_factor = e + size, *const right_factor = left_factor + size;
    T *const sums = right_factor + size;
    const int power = power_T(m * n, x);
    const T scale = POWER((T)1, power);
    T undefined = 0;  /* as in NumPy if a number is infinite */
    for (int64_t i = 0; i < m * n; i++)
        undefined += x[i] - x[i];
    for (int64_t i = 0; undefined != 0 && i < size * pitch; i++)
        y[i] = undefined;
    if (undefined != 0) return;
    for (int64_t c = 0; c < size; c++)  /* the columns of x, or of its transpose, as rows */
        for (int64_t i = 0; i < rows; i++)
            a[c * rows + i] = (m < n ? x[c * n + i] : x[i * n + c]) * scale;
    for (int64_t j = 0; j < size; j++) {
        T *const v = a + j * rows + j, *const w = right + j * size + j + 1, *const rest = v + rows;
        const int64_t count = size - j - 1, below = rows - j - 1;
        d[j] = reflection_T(rows - j, v, left_factor + j);
        reflect_T(n_threads, count, rows - j, v, left_factor[j], rest, rows);
        if (!count) break;
        for (int64_t c = 0; c < count; c++) w[c] = rest[c * rows];
        e[j] = reflection_T(count, w, right_factor + j);
        if (right_factor[j] == 0) continue;
        for (int64_t i = 0; i < below; i++) sums[i] = 0;
        for (int64_t c = 0; c < count; c++) {
            #pragma omp simd
            for (int64_t i = 0; i < below; i++) sums[i] += w[c] * rest[c * rows + 1 + i];
        }
        for (int64_t c = 0; c < count; c++) {
            const T part = right_factor[j] * w[c];
            #pragma omp simd
            for (int64_t i = 0; i < below; i++) rest[c * rows + 1 + i] -= part * sums[i];
        }
    }
    T *const u = y + (m < n ? 1 + m : 1), *const v = y + (m < n ? 1 : 1 + m);
    if (width) {
        reflected_T(n_threads, size, rows, size, 0, a, left_factor, u, pitch);
        reflected_T(n_threads, size, size, size - 1, 1, right, right_factor, v, pitch);
    }
    bidiagonal_T(size, d, e, width ? rows : 0, u, width ? size : 0, v, pitch);
    for (int64_t j = 0; j < size; j++) {
        if (d[j] < 0)
            for (int64_t i = 0; i < (width ? size : 0); i++) v[j * pitch + i] = -v[j * pitch + i];
        d[j] = ABS(d[j]);
    }
    order_T(size, 1, POWER((T)1, -power), d, width, width ? 1 + m : 1, pitch, y);
}
