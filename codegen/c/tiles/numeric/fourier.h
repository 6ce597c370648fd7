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

/* The odd primes whose passes are written out. */
#if INSTANCE == 0
#define RADIX 3
#elif INSTANCE == 1
#define RADIX 5
#elif INSTANCE == 2
#define RADIX 7
#elif INSTANCE == 3
#define RADIX 11
#else
#define RADIX 13
#endif

/* ---- Fourier transforms ---------------------------------------------------------------------- */

#define FOURIER_LOOP _Pragma("omp simd")

/* The largest prime whose pass is written out, and the points that a pass of another computes
   together. */
enum { MOST_UNROLLED = 13, FOURIER_BLOCK = 16 };

/* A pass of radix R turns `count` transforms of `length` = R m points into R `count` of m points.
   Point p + m j of transform q is at q + count (p + m j); its result is at q + count (R p + k).
   Factors for k and p are at (k - 1) m + p, with imaginary parts after all real ones. `read` and
   `write` are 2 if parts alternate in memory, as they do before the first pass and after the last
   one. */
typedef void fourier_pass_of_T(T *restrict xr, T *restrict xi, T *restrict yr, T *restrict yi,
                               const T *restrict w, int64_t radix, int64_t m, int64_t count,
                               int read, int write);

/* The parameters that not every pass uses. */
#define FOURIER_ANY_PASS (void)radix, (void)read, (void)write

/* How many factors a pass has. */
#define FOURIER_FACTORS(radix, m) (2 * ((radix) - 1) * (m) + ((radix) % 2 ? 2 * (radix) : 0))

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

TILE_FUNCTION static void fourier_pass_4_T(T *restrict xr, T *restrict xi, T *restrict yr,
                                           T *restrict yi, const T *restrict w, int64_t radix,
                                           int64_t m, int64_t count, int read, int write)
{
    FOURIER_ANY_PASS;
    if (write == 2) { /* the last pass, in which all factors are 1 */
        FOURIER_LOOP
        for (int64_t q = 0; q < count; q++)
            fourier_four_T(xr, xi, yr, yi, w, 1, count, 0, q, 1, 2);
    } else if (read == 2) { /* the first pass */
        FOURIER_LOOP
        for (int64_t p = 0; p < m; p++) fourier_four_T(xr, xi, yr, yi, w, m, 1, p, 0, 2, 1);
    } else if (count == 1) {
        FOURIER_LOOP
        for (int64_t p = 0; p < m; p++) fourier_four_T(xr, xi, yr, yi, w, m, 1, p, 0, 1, 1);
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

TILE_FUNCTION static void fourier_pass_2_T(T *restrict xr, T *restrict xi, T *restrict yr,
                                           T *restrict yi, const T *restrict w, int64_t radix,
                                           int64_t m, int64_t count, int read, int write)
{
    FOURIER_ANY_PASS;
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

/* An odd radix R known when this is compiled. Points j and R - j occur as their sum and difference:
   result k is t + i u, and result R - k is t - i u, where t is of sums and u of differences. The
   cosines and sines of R points are stored after the factors. */
static TILE_INLINE void fourier_odd_T(const int radix, const T *restrict xr, const T *restrict xi,
                                      T *restrict yr, T *restrict yi, const T *restrict w,
                                      int64_t m, int64_t at, int64_t step, int64_t to, int64_t next,
                                      int64_t p)
{
    const int half = radix / 2;
    const T *const v = w + (radix - 1) * m, *const cosines = v + (radix - 1) * m;
    const T *const sines = cosines + radix;
    const T ar = xr[at], ai = xi[at];
    T sr = ar, si = ai, er[MOST_UNROLLED / 2], ei[MOST_UNROLLED / 2];
    T dr[MOST_UNROLLED / 2], di[MOST_UNROLLED / 2];
    #pragma GCC unroll 6
    for (int j = 1; j <= half; j++) {
        const T br = xr[at + j * step], cr = xr[at + (radix - j) * step];
        const T bi = xi[at + j * step], ci = xi[at + (radix - j) * step];
        er[j - 1] = br + cr;
        ei[j - 1] = bi + ci;
        dr[j - 1] = br - cr;
        di[j - 1] = bi - ci;
        sr += er[j - 1];
        si += ei[j - 1];
    }
    yr[to] = sr;
    yi[to] = si;
    #pragma GCC unroll 6
    for (int k = 1; k <= half; k++) {
        T tr = ar, ti = ai, ur = sines[k] * dr[0], ui = sines[k] * di[0];
        #pragma GCC unroll 6
        for (int j = 1; j <= half; j++) {
            const int turn = j * k % radix, near = turn <= half ? turn : radix - turn;
            tr += cosines[near] * er[j - 1];
            ti += cosines[near] * ei[j - 1];
            if (j == 1) continue;
            const T s = turn <= half ? sines[near] : -sines[near];
            ur += s * dr[j - 1];
            ui += s * di[j - 1];
        }
        const T fr = tr - ui, fi = ti + ur, gr = tr + ui, gi = ti - ur;
        const int64_t f = (k - 1) * m + p, g = (radix - k - 1) * m + p;
        yr[to + k * next] = fr * w[f] - fi * v[f];
        yi[to + k * next] = fr * v[f] + fi * w[f];
        yr[to + (radix - k) * next] = gr * w[g] - gi * v[g];
        yi[to + (radix - k) * next] = gr * v[g] + gi * w[g];
    }
}

static TILE_INLINE void fourier_odd_pass_T(const int radix, const T *restrict xr,
                                           const T *restrict xi, T *restrict yr, T *restrict yi,
                                           const T *restrict w, int64_t m, int64_t count)
{
    if (count == 1) {
        FOURIER_LOOP
        for (int64_t p = 0; p < m; p++)
            fourier_odd_T(radix, xr, xi, yr, yi, w, m, p, m, radix * p, 1, p);
        return;
    }
    for (int64_t p = 0; p < m; p++) {
        FOURIER_LOOP
        for (int64_t q = 0; q < count; q++)
            fourier_odd_T(radix, xr, xi, yr, yi, w, m, q + count * p, count * m,
                          q + radix * count * p, count, p);
    }
}

TILE_FUNCTION static void fourier_pass_RADIX_T(T *restrict xr, T *restrict xi, T *restrict yr,
                                               T *restrict yi, const T *restrict w, int64_t radix,
                                               int64_t m, int64_t count, int read, int write)
{
    FOURIER_ANY_PASS;
    fourier_odd_pass_T(RADIX, xr, xi, yr, yi, w, m, count);
}

/* Results of `n` neighbouring points from `start` on, of sums and differences as below. */
static TILE_INLINE void fourier_block_T(const int64_t n, const T *restrict xr, const T *restrict xi,
                                        T *restrict yr, T *restrict yi, const T *restrict w,
                                        int64_t radix, int64_t m, int64_t count, int64_t start)
{
    const int64_t half = radix / 2, step = count * m;
    const T *const v = w + (radix - 1) * m, *const cosines = v + (radix - 1) * m;
    const T *const sines = cosines + radix;
    int64_t from[FOURIER_BLOCK], to[FOURIER_BLOCK];
    for (int64_t l = 0; l < n; l++) {
        from[l] = (start + l) / count;
        to[l] = start + l + count * (radix - 1) * from[l];
    }
    const int together = from[0] == from[n - 1];
    for (int64_t k = 0; k <= half; k++) {
        T tr[FOURIER_BLOCK], ti[FOURIER_BLOCK], ur[FOURIER_BLOCK], ui[FOURIER_BLOCK];
        FOURIER_LOOP
        for (int64_t l = 0; l < n; l++) {
            tr[l] = xr[start + l];
            ti[l] = xi[start + l];
            ur[l] = ui[l] = 0;
        }
        for (int64_t j = 1, turn = k; j <= half; j++) {
            const T c = cosines[turn], s = sines[turn];
            const T *const a = xr + start + step * j, *const b = xi + start + step * j;
            const T *const d = xr + start + step * (radix - j);
            const T *const e = xi + start + step * (radix - j);
            FOURIER_LOOP
            for (int64_t l = 0; l < n; l++) {
                tr[l] += c * a[l];
                ti[l] += c * b[l];
                ur[l] += s * d[l];
                ui[l] += s * e[l];
            }
            turn = turn + k < radix ? turn + k : turn + k - radix;
        }
        for (int64_t side = 0; side < (k == 0 ? 1 : 2); side++) {
            const int64_t own = side ? radix - k : k;
            T fr[FOURIER_BLOCK], fi[FOURIER_BLOCK];
            FOURIER_LOOP
            for (int64_t l = 0; l < n; l++) {
                fr[l] = side ? tr[l] + ui[l] : tr[l] - ui[l];
                fi[l] = side ? ti[l] - ur[l] : ti[l] + ur[l];
            }
            if (together) {
                const T wr = k ? w[(own - 1) * m + from[0]] : 1;
                const T wi = k ? v[(own - 1) * m + from[0]] : 0;
                T *const restrict r = yr + to[0] + count * own;
                T *const restrict i = yi + to[0] + count * own;
                FOURIER_LOOP
                for (int64_t l = 0; l < n; l++) {
                    r[l] = fr[l] * wr - fi[l] * wi;
                    i[l] = fr[l] * wi + fi[l] * wr;
                }
            } else {
                for (int64_t l = 0; l < n; l++) {
                    const T wr = k ? w[(own - 1) * m + from[l]] : 1;
                    const T wi = k ? v[(own - 1) * m + from[l]] : 0;
                    yr[to[l] + count * own] = fr[l] * wr - fi[l] * wi;
                    yi[to[l] + count * own] = fr[l] * wi + fi[l] * wr;
                }
            }
        }
    }
}

/* Any odd radix; what is read becomes sums and differences. */
TILE_FUNCTION static void fourier_pass_T(T *restrict xr, T *restrict xi, T *restrict yr,
                                         T *restrict yi, const T *restrict w, int64_t radix,
                                         int64_t m, int64_t count, int read, int write)
{
    FOURIER_ANY_PASS;
    const int64_t step = count * m;
    for (int64_t j = 1; j <= radix / 2; j++) {
        T *const a = xr + step * j, *const b = xi + step * j;
        T *const c = xr + step * (radix - j), *const d = xi + step * (radix - j);
        FOURIER_LOOP
        for (int64_t t = 0; t < step; t++) {
            const T real = a[t], imag = b[t];
            a[t] = real + c[t];
            b[t] = imag + d[t];
            c[t] = real - c[t];
            d[t] = imag - d[t];
        }
    }
    if (step < FOURIER_BLOCK) {
        fourier_block_T(step, xr, xi, yr, yi, w, radix, m, count, 0);
        return;
    }
    /* The last block may overlap the one before. */
    for (int64_t t = 0; t < step; t += FOURIER_BLOCK)
        fourier_block_T(FOURIER_BLOCK, xr, xi, yr, yi, w, radix, m, count,
                        t < step - FOURIER_BLOCK ? t : step - FOURIER_BLOCK);
}

/* All passes of `lanes` transforms side by side, from one buffer to the other and back; the result
   is in the one that it returns. Point k of transform q is at q + lanes k. */
static T *fourier_passes_T(T *restrict from, T *restrict to, const T *restrict w, int64_t size,
                           int64_t lanes, const int *radices, fourier_pass_of_T *const *passes)
{
    const int64_t all = lanes * size;
    for (int64_t count = lanes, m = size; *radices != 0; count *= *radices++) {
        m /= *radices;
        (*passes++)(from, from + all, to, to + all, w, *radices, m, count, 1, 1);
        w += FOURIER_FACTORS(*radices, m);
        T *const read = from;
        from = to;
        to = read;
    }
    return from;
}

/* One transform of points that lie one after another. A first and a last pass of radix 4, and a
   last pass of radix 2, read and write them where they are. */
static void fourier_row_T(const T *restrict x, const T *restrict w, T *restrict y, int64_t size,
                          const int *radices, fourier_pass_of_T *const *passes, int inverse,
                          T *restrict workspace)
{
    T *from = workspace, *to = workspace + 2 * size;
    const T *const a = x + inverse, *const b = x + 1 - inverse;
    T *const c = y + inverse, *const d = y + 1 - inverse;
    if (*radices != 4) {
        FOURIER_LOOP
        for (int64_t k = 0; k < size; k++) {
            from[k] = a[2 * k];
            from[size + k] = b[2 * k];
        }
    }
    for (int64_t count = 1, m = size; *radices != 0; count *= *radices++) {
        m /= *radices;
        const int loaded = count == 1 && *radices == 4; /* which only reads them */
        const int stored = m == 1 && count > 1 && (*radices == 4 || *radices == 2);
        (*passes++)(loaded ? (T *)a : from, loaded ? (T *)b : from + size, stored ? c : to,
                    stored ? d : to + size, w, *radices, m, count, loaded ? 2 : 1, stored ? 2 : 1);
        if (stored) return;
        w += FOURIER_FACTORS(*radices, m);
        T *const read = from;
        from = to;
        to = read;
    }
    FOURIER_LOOP
    for (int64_t k = 0; k < size; k++) {
        c[2 * k] = from[k];
        d[2 * k] = from[size + k];
    }
}

/* Reads `lanes` rows from the row `first` on, side by side. Points of a row are `stride` apart, as
   many as the rows that lie beside one another. `spare` has room for all numbers. */
static void fourier_read_T(const T *restrict x, T *restrict real, T *restrict imag,
                           T *restrict spare, int64_t first, int64_t lanes, int64_t size,
                           int64_t stride)
{
    if (stride == 1 && lanes > 1) {
        const size_t bytes = (size_t)lanes * sizeof(T);
        copy_transposed_T(lanes, 2 * size, x + 2 * size * first, 2 * size, spare, lanes);
        for (int64_t k = 0; k < size; k++) {
            memcpy(real + k * lanes, spare + 2 * k * lanes, bytes);
            memcpy(imag + k * lanes, spare + (2 * k + 1) * lanes, bytes);
        }
        return;
    }
    for (int64_t lane = 0, n; lane < lanes; lane += n) {
        const int64_t column = (first + lane) % stride, row = first + lane - column;
        n = lanes - lane < stride - column ? lanes - lane : stride - column;
        const T *const a = x + 2 * (row * size + column);
        if (lanes == 1) {
            FOURIER_LOOP
            for (int64_t k = 0; k < size; k++) {
                real[k] = a[2 * stride * k];
                imag[k] = a[2 * stride * k + 1];
            }
        }
        for (int64_t k = 0; lanes > 1 && k < size; k++) {
            FOURIER_LOOP
            for (int64_t l = 0; l < n; l++) {
                real[k * lanes + lane + l] = a[2 * (stride * k + l)];
                imag[k * lanes + lane + l] = a[2 * (stride * k + l) + 1];
            }
        }
    }
}

/* Writes them. */
static void fourier_write_T(T *restrict y, const T *restrict real, const T *restrict imag,
                            T *restrict spare, int64_t first, int64_t lanes, int64_t size,
                            int64_t stride)
{
    if (stride == 1 && lanes > 1) {
        const size_t bytes = (size_t)lanes * sizeof(T);
        for (int64_t k = 0; k < size; k++) {
            memcpy(spare + 2 * k * lanes, real + k * lanes, bytes);
            memcpy(spare + (2 * k + 1) * lanes, imag + k * lanes, bytes);
        }
        copy_transposed_T(2 * size, lanes, spare, lanes, y + 2 * size * first, 2 * size);
        return;
    }
    for (int64_t lane = 0, n; lane < lanes; lane += n) {
        const int64_t column = (first + lane) % stride, row = first + lane - column;
        n = lanes - lane < stride - column ? lanes - lane : stride - column;
        T *const a = y + 2 * (row * size + column);
        if (lanes == 1) {
            FOURIER_LOOP
            for (int64_t k = 0; k < size; k++) {
                a[2 * stride * k] = real[k];
                a[2 * stride * k + 1] = imag[k];
            }
        }
        for (int64_t k = 0; lanes > 1 && k < size; k++) {
            FOURIER_LOOP
            for (int64_t l = 0; l < n; l++) {
                a[2 * (stride * k + l)] = real[k * lanes + lane + l];
                a[2 * (stride * k + l) + 1] = imag[k * lanes + lane + l];
            }
        }
    }
}

/* Transforms of `lanes` rows, side by side. */
static void fourier_some_T(const T *restrict x, const T *restrict factors, T *restrict y,
                           int64_t first, int64_t lanes, int64_t size, int64_t stride,
                           const int *radices, fourier_pass_of_T *const *passes, int inverse,
                           T *restrict workspace)
{
    if (lanes < 4 && stride == 1) {
        for (int64_t row = first; row < first + lanes; row++)
            fourier_row_T(x + 2 * size * row, factors, y + 2 * size * row, size, radices, passes,
                          inverse, workspace);
        return;
    }
    const int64_t all = lanes * size;
    T *const from = workspace, *const to = workspace + 2 * all;
    fourier_read_T(x, from + inverse * all, from + !inverse * all, to, first, lanes, size, stride);
    T *const found = fourier_passes_T(from, to, factors, size, lanes, radices, passes);
    fourier_write_T(y, found + inverse * all, found + !inverse * all, found == from ? to : from,
                    first, lanes, size, stride);
}

/* Each point times a factor of its own, in all lanes. */
static void fourier_scale_T(T *restrict real, T *restrict imag, const T *restrict cosines,
                            const T *restrict sines, int64_t size, int64_t lanes)
{
    if (lanes == 1) {
        FOURIER_LOOP
        for (int64_t k = 0; k < size; k++) {
            const T r = real[k];
            real[k] = r * cosines[k] - imag[k] * sines[k];
            imag[k] = r * sines[k] + imag[k] * cosines[k];
        }
    }
    for (int64_t k = 0; lanes > 1 && k < size; k++) {
        FOURIER_LOOP
        for (int64_t e = lanes * k; e < lanes * (k + 1); e++) {
            const T r = real[e];
            real[e] = r * cosines[k] - imag[e] * sines[k];
            imag[e] = r * sines[k] + imag[e] * cosines[k];
        }
    }
}

/* Transforms by a convolution with a chirp, for sizes with large prime factors: L. Bluestein, A
   linear filtering approach to the computation of discrete Fourier transform, IEEE Transactions
   on Audio and Electroacoustics 18, 1970. The convolution is computed by transforms of `length`
   >= 2 size - 1 points. Their factors are followed by the chirp, and by the transform of its
   conjugate over `length`, real parts first. */
static void fourier_chirp_T(const T *restrict x, const T *restrict factors, const T *restrict chirp,
                            T *restrict y, int64_t first, int64_t lanes, int64_t size,
                            int64_t stride, int64_t length, const int *radices,
                            fourier_pass_of_T *const *passes, int inverse, T *restrict workspace)
{
    const int64_t all = lanes * length;
    T *const from = workspace, *const to = workspace + 2 * all;
    fourier_read_T(x, from + inverse * all, from + !inverse * all, to, first, lanes, size, stride);
    fourier_scale_T(from, from + all, chirp, chirp + size, size, lanes);
    memset(from + lanes * size, 0, (size_t)(lanes * (length - size)) * sizeof(T));
    memset(from + all + lanes * size, 0, (size_t)(lanes * (length - size)) * sizeof(T));
    T *const a = fourier_passes_T(from, to, factors, length, lanes, radices, passes);
    /* the inverse transform exchanges the parts twice: those of what follows are exchanged */
    fourier_scale_T(a, a + all, chirp + 2 * size, chirp + 2 * size + length, length, lanes);
    T *const other = a == from ? to : from;
    memcpy(other, a + all, (size_t)all * sizeof(T));
    memcpy(other + all, a, (size_t)all * sizeof(T));
    T *const b = fourier_passes_T(other, a, factors, length, lanes, radices, passes);
    fourier_scale_T(b + all, b, chirp, chirp + size, size, lanes);
    fourier_write_T(y, b + !inverse * all, b + inverse * all, b == from ? to : from, first, lanes,
                    size, stride);
}

/* Points from which a second thread is worth its fork and join. */
enum { FOURIER_PARALLEL = 16384 };

/* Transforms `rows` rows of `size` complex numbers that are `stride` apart, by passes of these
   radices, which end with 0; up to `lanes` rows side by side. Threads divide the blocks of rows;
   the workspace has room for 4 `size` numbers for each row of a block of each thread. */
static void fourier_rows_T(const T *restrict x, const T *restrict factors, T *restrict y,
                           int64_t rows, int64_t size, int64_t stride, int64_t lanes,
                           const int *radices, fourier_pass_of_T *const *passes, int inverse,
                           T *restrict workspace, int n_threads)
{
    const int64_t blocks = (rows + lanes - 1) / lanes;
    const int64_t teams = blocks < n_threads ? blocks : n_threads;
#pragma omp parallel for num_threads(n_threads) if (teams > 1 && rows * size >= FOURIER_PARALLEL)
    for (int64_t team = 0; team < teams; team++) {
        const int64_t end = blocks * (team + 1) / teams;
        for (int64_t block = blocks * team / teams; block < end; block++) {
            const int64_t first = lanes * block, rest = rows - first;
            fourier_some_T(x, factors, y, first, rest < lanes ? rest : lanes, size, stride,
                           radices, passes, inverse, workspace + 4 * size * lanes * team);
        }
    }
}

/* The same with fourier_chirp_T, and with room for 4 `length` numbers for each row. */
static void fourier_chirp_rows_T(const T *restrict x, const T *restrict factors,
                                 const T *restrict chirp, T *restrict y, int64_t rows, int64_t size,
                                 int64_t stride, int64_t lanes, int64_t length, const int *radices,
                                 fourier_pass_of_T *const *passes, int inverse,
                                 T *restrict workspace, int n_threads)
{
    const int64_t blocks = (rows + lanes - 1) / lanes;
    const int64_t teams = blocks < n_threads ? blocks : n_threads;
#pragma omp parallel for num_threads(n_threads) if (teams > 1 && rows * length >= FOURIER_PARALLEL)
    for (int64_t team = 0; team < teams; team++) {
        const int64_t end = blocks * (team + 1) / teams;
        for (int64_t block = blocks * team / teams; block < end; block++) {
            const int64_t first = lanes * block, rest = rows - first;
            T *const own = workspace + 4 * length * lanes * team;
            fourier_chirp_T(x, factors, chirp, y, first, rest < lanes ? rest : lanes, size, stride,
                            length, radices, passes, inverse, own);
        }
    }
}
