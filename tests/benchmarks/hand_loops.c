/* NPBench's programs whose loops depend on what the iteration before left, as one writes them in C by
 * hand: the column "hand C" of numpy_programs.py, which compiles this file with the flags of emitted
 * code. Arrays are row-major float64 where nothing else is said. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A: [n, n], written. */
void seidel_2d(int64_t steps, int64_t n, double *restrict A) {
    for (int64_t t = 0; t < steps - 1; ++t) {
        for (int64_t i = 1; i < n - 1; ++i) {
            const double *above = A + (i - 1) * n, *below = A + (i + 1) * n;
            double *row = A + i * n;
            for (int64_t j = 1; j < n - 1; ++j)
                row[j] += above[j - 1] + above[j] + above[j + 1] + row[j + 1] + below[j - 1] + below[j] + below[j + 1];
            for (int64_t j = 1; j < n - 1; ++j)
                row[j] = (row[j] + row[j - 1]) / 9.0;
        }
    }
}

/* u: [n, n], written; v, p, q: scratch of that size. */
void adi(int64_t steps, int64_t n, double *restrict u, double *restrict v, double *restrict p, double *restrict q) {
    const double square = (double)n * (double)n, step = 1.0 / (double)steps;
    const double mul1 = 2.0 * step * square, mul2 = step * square;
    const double a = -mul1 / 2.0, b = 1.0 + mul2, c = a, d = -mul2 / 2.0, e = 1.0 + mul2, f = d;
    for (int64_t t = 1; t <= steps; ++t) {
        for (int64_t i = 1; i < n - 1; ++i) {
            v[i] = 1.0;
            p[i * n] = 0.0;
            q[i * n] = 1.0;
            for (int64_t j = 1; j < n - 1; ++j) {
                const double below = a * p[i * n + j - 1] + b;
                p[i * n + j] = -c / below;
                q[i * n + j] = (-d * u[j * n + i - 1] + (1.0 + 2.0 * d) * u[j * n + i] - f * u[j * n + i + 1] -
                                a * q[i * n + j - 1]) / below;
            }
        }
        for (int64_t i = 1; i < n - 1; ++i)
            v[(n - 1) * n + i] = 1.0;
        for (int64_t j = n - 2; j > 0; --j)
            for (int64_t i = 1; i < n - 1; ++i)
                v[j * n + i] = p[i * n + j] * v[(j + 1) * n + i] + q[i * n + j];
        for (int64_t i = 1; i < n - 1; ++i) {
            u[i * n] = 1.0;
            p[i * n] = 0.0;
            q[i * n] = 1.0;
            for (int64_t j = 1; j < n - 1; ++j) {
                const double below = d * p[i * n + j - 1] + e;
                p[i * n + j] = -f / below;
                q[i * n + j] = (-a * v[(i - 1) * n + j] + (1.0 + 2.0 * a) * v[i * n + j] - c * v[(i + 1) * n + j] -
                                d * q[i * n + j - 1]) / below;
            }
            u[i * n + n - 1] = 1.0;
            for (int64_t j = n - 2; j > 0; --j)
                u[i * n + j] = p[i * n + j] * u[i * n + j + 1] + q[i * n + j];
        }
    }
}

/* image, out: [w, h]; y1, y2: scratch of that size. */
void deriche(double alpha, int64_t w, int64_t h, const double *restrict image, double *restrict out,
             double *restrict y1, double *restrict y2) {
    const double small = exp(-alpha);
    const double k = (1.0 - small) * (1.0 - small) / (1.0 + alpha * small - exp(2.0 * alpha));
    const double a1 = k, a2 = k * small * (alpha - 1.0), a3 = k * small * (alpha + 1.0), a4 = -k * exp(-2.0 * alpha);
    const double b1 = pow(2.0, -alpha), b2 = -exp(-2.0 * alpha);
    for (int64_t i = 0; i < w; ++i) {
        const double *x = image + i * h;
        double *left = y1 + i * h, *right = y2 + i * h;
        left[0] = a1 * x[0];
        left[1] = a1 * x[1] + a2 * x[0] + b1 * left[0];
        for (int64_t j = 2; j < h; ++j)
            left[j] = a1 * x[j] + a2 * x[j - 1] + b1 * left[j - 1] + b2 * left[j - 2];
        right[h - 1] = 0.0;
        right[h - 2] = a3 * x[h - 1];
        for (int64_t j = h - 3; j >= 0; --j)
            right[j] = a3 * x[j + 1] + a4 * x[j + 2] + b1 * right[j + 1] + b2 * right[j + 2];
        for (int64_t j = 0; j < h; ++j)
            out[i * h + j] = left[j] + right[j];
    }
    for (int64_t j = 0; j < h; ++j) {
        y1[j] = a1 * out[j];
        y2[(w - 1) * h + j] = 0.0;
    }
    for (int64_t j = 0; j < h; ++j) {
        y1[h + j] = a1 * out[h + j] + a2 * out[j] + b1 * y1[j];
        y2[(w - 2) * h + j] = a3 * out[(w - 1) * h + j];
    }
    for (int64_t i = 2; i < w; ++i)
        for (int64_t j = 0; j < h; ++j)
            y1[i * h + j] = a1 * out[i * h + j] + a2 * out[(i - 1) * h + j] + b1 * y1[(i - 1) * h + j] +
                            b2 * y1[(i - 2) * h + j];
    for (int64_t i = w - 3; i >= 0; --i)
        for (int64_t j = 0; j < h; ++j)
            y2[i * h + j] = a3 * out[(i + 1) * h + j] + a4 * out[(i + 2) * h + j] + b1 * y2[(i + 1) * h + j] +
                            b2 * y2[(i + 2) * h + j];
    for (int64_t i = 0; i < w * h; ++i)
        out[i] = y1[i] + y2[i];
}

/* r, y: [n]; old: scratch of that size. */
void durbin(int64_t n, const double *restrict r, double *restrict y, double *restrict old) {
    double alpha = -r[0], beta = 1.0;
    y[0] = alpha;
    for (int64_t k = 1; k < n; ++k) {
        double sum = r[k];
        beta *= 1.0 - alpha * alpha;
        for (int64_t i = 0; i < k; ++i)
            sum += r[k - 1 - i] * y[i];
        alpha = -sum / beta;
        memcpy(old, y, (size_t)k * sizeof *y);
        for (int64_t i = 0; i < k; ++i)
            y[i] += alpha * old[k - 1 - i];
        y[k] = alpha;
    }
}

/* A: [n, n], written in and below the diagonal. */
void cholesky(int64_t n, double *restrict A) {
    A[0] = sqrt(A[0]);
    for (int64_t i = 1; i < n; ++i) {
        double *row = A + i * n;
        for (int64_t j = 0; j < i; ++j) {
            double sum = 0.0;
            for (int64_t k = 0; k < j; ++k)
                sum += row[k] * A[j * n + k];
            row[j] = (row[j] - sum) / A[j * n + j];
        }
        double sum = 0.0;
        for (int64_t k = 0; k < i; ++k)
            sum += row[k] * row[k];
        row[i] = sqrt(row[i] - sum);
    }
}

/* table: [n, n], zeros at first; seq: [n]. */
void nussinov(int64_t n, const int32_t *restrict seq, int32_t *restrict table) {
    for (int64_t i = n - 1; i >= 0; --i) {
        int32_t *row = table + i * n;
        for (int64_t j = i + 1; j < n; ++j) {
            int32_t best = row[j] > row[j - 1] ? row[j] : row[j - 1];
            if (i + 1 < n) {
                if (best < row[n + j])
                    best = row[n + j];
                const int32_t pair = row[n + j - 1] + (i < j - 1 && seq[i] + seq[j] == 3);
                if (best < pair)
                    best = pair;
            }
            for (int64_t k = i + 1; k < j; ++k) {
                const int32_t split = row[k] + table[(k + 1) * n + j];
                if (best < split)
                    best = split;
            }
            row[j] = best;
        }
    }
}

/* path: [n, n], written. */
void floyd_warshall(int64_t n, int32_t *restrict path) {
    for (int64_t k = 0; k < n; ++k) {
        for (int64_t i = 0; i < n; ++i) {
            const int32_t first = path[i * n + k];
            for (int64_t j = 0; j < n; ++j) {
                const int32_t sum = first + path[k * n + j];
                if (sum < path[i * n + j])
                    path[i * n + j] = sum;
            }
        }
    }
}
