/* The discrete Fourier transform by Stockham's method: T. G. Stockham, High-speed convolution and
 * correlation, AFIPS 1966; P. N. Swarztrauber, FFT algorithms for vector computers, Parallel
 * Computing 1, 1984. Each pass reads one buffer and writes the other, so that no bit reversal is
 * needed, and its innermost loop accesses memory in order. Real and imaginary parts are separate
 * during the computation; the inverse is the transform of numbers with their parts exchanged. */

#if INSTANCE
#define T float
#else
#define T double
#endif

/* ---- Fourier transforms ---------------------------------------------------------------------- */

/* A pass of radix R turns `count` transforms of `length` = R m points into R `count` of m points.
   Point p + m j of transform q is at q + count (p + m j); its result is at q + count (R p + k).
   Factors for k and p are at (k - 1) m + p, with imaginary parts after all real ones. `read` and
   `write` are 2 if parts alternate in memory, as they do before the first pass and after the last
   one. */
#define FOURIER_LOOP _Pragma("omp simd")

static inline void fourier_four_T(const T *restrict xr, const T *restrict xi, T *restrict yr,
                                  T *restrict yi, const T *restrict w, int64_t m, int64_t count,
                                  int64_t p, int64_t q, int read, int write)
{
    const T *const v = w + 3 * m;
    const int64_t at = read * (q + count * p), step = read * count * m;
    const int64_t to = write * (q + 4 * count * p), next = write * count;
    const T ar = xr[at], br = xr[at + step], cr = xr[at + 2 * step], dr = xr[at + 3 * step];
    const T ai = xi[at], bi = xi[at + step], ci = xi[at + 2 * step], di = xi[at + 3 * step];
    const T sr = ar + cr, si = ai + ci, tr = ar - cr, ti = ai - ci;
    const T ur = br + dr, ui = bi + di, er = bi - di, ei = dr - br; /* -i (b - d) */
    const T fr = tr + er, fi = ti + ei, gr = sr - ur, gi = si - ui, hr = tr - er, hi = ti - ei;
    yr[to] = sr + ur;
    yi[to] = si + ui;
    yr[to + next] = fr * w[p] - fi * v[p];
    yi[to + next] = fr * v[p] + fi * w[p];
    yr[to + 2 * next] = gr * w[m + p] - gi * v[m + p];
    yi[to + 2 * next] = gr * v[m + p] + gi * w[m + p];
    yr[to + 3 * next] = hr * w[2 * m + p] - hi * v[2 * m + p];
    yi[to + 3 * next] = hr * v[2 * m + p] + hi * w[2 * m + p];
}

TILE_FUNCTION static void fourier_pass_4_T(const T *restrict xr, const T *restrict xi,
                                           T *restrict yr, T *restrict yi, const T *restrict w,
                                           int64_t m, int64_t count, int write)
{
    if (write == 2) { /* the last pass, in which all factors are 1 */
        FOURIER_LOOP
        for (int64_t q = 0; q < count; q++)
            fourier_four_T(xr, xi, yr, yi, w, 1, count, 0, q, 1, 2);
    } else if (count == 1) { /* the first pass */
        FOURIER_LOOP
        for (int64_t p = 0; p < m; p++) fourier_four_T(xr, xi, yr, yi, w, m, 1, p, 0, 2, 1);
    } else if (count == 4) {
        for (int64_t p = 0; p < m; p++) {
            FOURIER_LOOP
            for (int64_t q = 0; q < 4; q++) fourier_four_T(xr, xi, yr, yi, w, m, 4, p, q, 1, 1);
        }
    } else {
        for (int64_t p = 0; p < m; p++) {
            FOURIER_LOOP
            for (int64_t q = 0; q < count; q++)
                fourier_four_T(xr, xi, yr, yi, w, m, count, p, q, 1, 1);
        }
    }
}

TILE_FUNCTION static void fourier_pass_2_T(const T *restrict xr, const T *restrict xi,
                                           T *restrict yr, T *restrict yi, const T *restrict w,
                                           int64_t m, int64_t count, int write)
{
    if (write == 2) { /* the last pass, in which all factors are 1 */
        FOURIER_LOOP
        for (int64_t q = 0; q < count; q++) {
            const T ar = xr[q], br = xr[count + q], ai = xi[q], bi = xi[count + q];
            yr[2 * q] = ar + br;
            yi[2 * q] = ai + bi;
            yr[2 * (count + q)] = ar - br;
            yi[2 * (count + q)] = ai - bi;
        }
        return;
    }
    for (int64_t p = 0; p < m; p++) {
        const T wr = w[p], wi = w[m + p];
        const int64_t from = count * p, step = count * m, to = 2 * count * p;
        FOURIER_LOOP
        for (int64_t q = 0; q < count; q++) {
            const T ar = xr[from + q], br = xr[from + step + q];
            const T ai = xi[from + q], bi = xi[from + step + q];
            yr[to + q] = ar + br;
            yi[to + q] = ai + bi;
            yr[to + count + q] = (ar - br) * wr - (ai - bi) * wi;
            yi[to + count + q] = (ar - br) * wi + (ai - bi) * wr;
        }
    }
}

TILE_FUNCTION static void fourier_pass_3_T(const T *restrict xr, const T *restrict xi,
                                           T *restrict yr, T *restrict yi, const T *restrict w,
                                           int64_t m, int64_t count)
{
    const T high = (T)0.86602540378443865; /* sin of a third of a turn */
    const T *const v = w + 2 * m;
    for (int64_t p = 0; p < m; p++) {
        const int64_t from = count * p, step = count * m, to = 3 * count * p;
        FOURIER_LOOP
        for (int64_t q = 0; q < count; q++) {
            const T ar = xr[from + q], br = xr[from + step + q], cr = xr[from + 2 * step + q];
            const T ai = xi[from + q], bi = xi[from + step + q], ci = xi[from + 2 * step + q];
            const T sr = br + cr, si = bi + ci, tr = ar - (T)0.5 * sr, ti = ai - (T)0.5 * si;
            const T ur = high * (bi - ci), ui = high * (cr - br);
            const T fr = tr + ur, fi = ti + ui, gr = tr - ur, gi = ti - ui;
            yr[to + q] = ar + sr;
            yi[to + q] = ai + si;
            yr[to + count + q] = fr * w[p] - fi * v[p];
            yi[to + count + q] = fr * v[p] + fi * w[p];
            yr[to + 2 * count + q] = gr * w[m + p] - gi * v[m + p];
            yi[to + 2 * count + q] = gr * v[m + p] + gi * w[m + p];
        }
    }
}

TILE_FUNCTION static void fourier_pass_5_T(const T *restrict xr, const T *restrict xi,
                                           T *restrict yr, T *restrict yi, const T *restrict w,
                                           int64_t m, int64_t count)
{
    /* cos and sin of one and two fifths of a turn */
    const T c1 = (T)0.30901699437494742, c2 = (T)-0.80901699437494742;
    const T s1 = (T)0.95105651629515357, s2 = (T)0.58778525229247313;
    const T *const v = w + 4 * m;
    for (int64_t p = 0; p < m; p++) {
        const int64_t from = count * p, step = count * m, to = 5 * count * p;
        FOURIER_LOOP
        for (int64_t q = 0; q < count; q++) {
            const T *const r = xr + from + q, *const i = xi + from + q;
            const T br = r[step] + r[4 * step], bi = i[step] + i[4 * step];
            const T dr = r[step] - r[4 * step], di = i[step] - i[4 * step];
            const T cr = r[2 * step] + r[3 * step], ci = i[2 * step] + i[3 * step];
            const T er = r[2 * step] - r[3 * step], ei = i[2 * step] - i[3 * step];
            const T tr = r[0] + c1 * br + c2 * cr, ti = i[0] + c1 * bi + c2 * ci;
            const T ur = r[0] + c2 * br + c1 * cr, ui = i[0] + c2 * bi + c1 * ci;
            const T fr = s1 * di + s2 * ei, fi = -(s1 * dr + s2 * er);
            const T gr = s2 * di - s1 * ei, gi = -(s2 * dr - s1 * er);
            const T ar = tr + fr, ai = ti + fi, hr = ur + gr, hi = ui + gi;
            const T kr = ur - gr, ki = ui - gi, lr = tr - fr, li = ti - fi;
            yr[to + q] = r[0] + br + cr;
            yi[to + q] = i[0] + bi + ci;
            yr[to + count + q] = ar * w[p] - ai * v[p];
            yi[to + count + q] = ar * v[p] + ai * w[p];
            yr[to + 2 * count + q] = hr * w[m + p] - hi * v[m + p];
            yi[to + 2 * count + q] = hr * v[m + p] + hi * w[m + p];
            yr[to + 3 * count + q] = kr * w[2 * m + p] - ki * v[2 * m + p];
            yi[to + 3 * count + q] = kr * v[2 * m + p] + ki * w[2 * m + p];
            yr[to + 4 * count + q] = lr * w[3 * m + p] - li * v[3 * m + p];
            yi[to + 4 * count + q] = lr * v[3 * m + p] + li * w[3 * m + p];
        }
    }
}

/* Any radix; the roots of unity for that number of points are stored after the factors. */
TILE_FUNCTION static void fourier_pass_T(const T *restrict xr, const T *restrict xi,
                                         T *restrict yr, T *restrict yi, const T *restrict w,
                                         int64_t radix, int64_t m, int64_t count)
{
    const T *const v = w + (radix - 1) * m, *const cosines = v + (radix - 1) * m;
    const T *const sines = cosines + radix;
    for (int64_t p = 0; p < m; p++) {
        for (int64_t k = 0; k < radix; k++) {
            T *const restrict r = yr + count * (radix * p + k);
            T *const restrict i = yi + count * (radix * p + k);
            for (int64_t q = 0; q < count; q++) r[q] = i[q] = 0;
            for (int64_t j = 0; j < radix; j++) {
                const T c = cosines[j * k % radix], s = sines[j * k % radix];
                const T *const a = xr + count * (p + m * j), *const b = xi + count * (p + m * j);
                FOURIER_LOOP
                for (int64_t q = 0; q < count; q++) {
                    r[q] += a[q] * c - b[q] * s;
                    i[q] += a[q] * s + b[q] * c;
                }
            }
            if (k == 0) continue;
            const T wr = w[(k - 1) * m + p], wi = v[(k - 1) * m + p];
            FOURIER_LOOP
            for (int64_t q = 0; q < count; q++) {
                const T real = r[q] * wr - i[q] * wi;
                i[q] = r[q] * wi + i[q] * wr;
                r[q] = real;
            }
        }
    }
}

static void fourier_some_T(const T *restrict x, const T *restrict factors, T *restrict y,
                           int64_t rows, int64_t size, const int *radices, int inverse,
                           T *restrict workspace)
{
    for (int64_t row = 0; row < rows; row++, x += 2 * size, y += 2 * size) {
        T *restrict from = workspace, *restrict to = workspace + 2 * size;
        const T *const a = x + inverse, *const b = x + 1 - inverse;
        T *const c = y + inverse, *const d = y + 1 - inverse;
        if (*radices != 4) {
            FOURIER_LOOP
            for (int64_t k = 0; k < size; k++) {
                from[k] = a[2 * k];
                from[size + k] = b[2 * k];
            }
        }
        const T *w = factors;
        int64_t count = 1, length = size;
        int stored = 0;
        for (const int *radix = radices; *radix != 0; radix++) {
            const int64_t m = length / *radix;
            stored = m == 1 && count > 1 && (*radix == 4 || *radix == 2);
            T *const real = stored ? c : to, *const imag = stored ? d : to + size;
            const int write = stored ? 2 : 1;
            if (*radix == 4 && count == 1) fourier_pass_4_T(a, b, real, imag, w, m, 1, 1);
            else if (*radix == 4)
                fourier_pass_4_T(from, from + size, real, imag, w, m, count, write);
            else if (*radix == 2)
                fourier_pass_2_T(from, from + size, real, imag, w, m, count, write);
            else if (*radix == 3) fourier_pass_3_T(from, from + size, to, to + size, w, m, count);
            else if (*radix == 5) fourier_pass_5_T(from, from + size, to, to + size, w, m, count);
            else fourier_pass_T(from, from + size, to, to + size, w, *radix, m, count);
            w += 2 * (*radix - 1) * m + (*radix > 5 ? 2 * *radix : 0);
            count *= *radix;
            length = m;
            T *const read = from;
            from = to;
            to = read;
        }
        if (stored) continue;
        FOURIER_LOOP
        for (int64_t k = 0; k < size; k++) {
            c[2 * k] = from[k];
            d[2 * k] = from[size + k];
        }
    }
}

/* Transforms by a convolution with a chirp, for sizes with large prime factors: L. Bluestein, A
   linear filtering approach to the computation of discrete Fourier transform, IEEE Transactions
   on Audio and Electroacoustics 18, 1970. The convolution is computed by transforms of `length`
   >= 2 size - 1 points. Their factors are followed by the chirp, and by the transform of its
   conjugate over `length`, real parts first. The workspace has room for 8 `length` numbers. */
static void fourier_chirp_T(const T *restrict x, const T *restrict factors, const T *restrict chirp,
                            T *restrict y, int64_t rows, int64_t size, int64_t length,
                            const int *radices, int inverse, T *restrict workspace)
{
    const T *const cosines = chirp, *const sines = chirp + size;
    const T *const fr = sines + size, *const fi = fr + length;
    T *const a = workspace + 4 * length, *const b = a + 2 * length;
    for (int64_t row = 0; row < rows; row++, x += 2 * size, y += 2 * size) {
        FOURIER_LOOP
        for (int64_t k = 0; k < size; k++) {
            const T real = x[2 * k + inverse], imag = x[2 * k + 1 - inverse];
            a[2 * k] = real * cosines[k] - imag * sines[k];
            a[2 * k + 1] = real * sines[k] + imag * cosines[k];
        }
        for (int64_t k = 2 * size; k < 2 * length; k++) a[k] = 0;
        fourier_some_T(a, factors, b, 1, length, radices, 0, workspace);
        FOURIER_LOOP
        for (int64_t k = 0; k < length; k++) {
            const T real = b[2 * k], imag = b[2 * k + 1];
            b[2 * k] = real * fr[k] - imag * fi[k];
            b[2 * k + 1] = real * fi[k] + imag * fr[k];
        }
        fourier_some_T(b, factors, a, 1, length, radices, 1, workspace);
        FOURIER_LOOP
        for (int64_t k = 0; k < size; k++) {
            const T real = a[2 * k], imag = a[2 * k + 1];
            y[2 * k + inverse] = real * cosines[k] - imag * sines[k];
            y[2 * k + 1 - inverse] = real * sines[k] + imag * cosines[k];
        }
    }
}

/* Points from which a second thread is worth its fork and join. */
enum { FOURIER_PARALLEL = 16384 };

/* Transforms `rows` rows of `size` complex numbers, by passes of these radices, which end with 0.
   Threads divide the rows; the workspace has room for 4 `size` numbers for each thread. */
static void fourier_rows_T(const T *restrict x, const T *restrict factors, T *restrict y,
                           int64_t rows, int64_t size, const int *radices, int inverse,
                           T *restrict workspace, int n_threads)
{
    const int64_t teams = rows < n_threads ? rows : n_threads;
#pragma omp parallel for num_threads(n_threads) if (teams > 1 && rows * size >= FOURIER_PARALLEL)
    for (int64_t team = 0; team < teams; team++) {
        const int64_t first = rows * team / teams, end = rows * (team + 1) / teams;
        fourier_some_T(x + 2 * size * first, factors, y + 2 * size * first, end - first, size,
                       radices, inverse, workspace + 4 * size * team);
    }
}

/* The same with fourier_chirp_T, and with room for 8 `length` numbers for each thread. */
static void fourier_chirp_rows_T(const T *restrict x, const T *restrict factors,
                                 const T *restrict chirp, T *restrict y, int64_t rows, int64_t size,
                                 int64_t length, const int *radices, int inverse,
                                 T *restrict workspace, int n_threads)
{
    const int64_t teams = rows < n_threads ? rows : n_threads;
#pragma omp parallel for num_threads(n_threads) if (teams > 1 && rows * length >= FOURIER_PARALLEL)
    for (int64_t team = 0; team < teams; team++) {
        const int64_t first = rows * team / teams, end = rows * (team + 1) / teams;
        fourier_chirp_T(x + 2 * size * first, factors, chirp, y + 2 * size * first, end - first,
                        size, length, radices, inverse, workspace + 8 * length * team);
    }
}
