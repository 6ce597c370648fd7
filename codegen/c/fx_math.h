/* fx_math.h: the scalar functions that emitted code calls, with the semantics of NumPy.

   In: nothing but the compiler. Out: small functions fx_FUNCTION_DTYPE (dtypes f32 f64 i8 i16 i32
   i64 u8 u16 u32 u64 bool), fx_cast_FROM_TO, fx_as_TO_FROM for the same bits, conversions of the
   16-bit storage types f16 and bf16, fx_copy and fx_clear for memory, fx_index, and fx_error, which
   says why a call failed. They are plain scalar code without branches, so that gcc turns a loop
   that calls them into SIMD code (-O3 -march=native -fno-math-errno -fno-trapping-math; never
   -ffast-math). Exceptions are gcd and powers of integers, which loop, and what calls the C
   library: mod, floordiv and fmod of f64; on a GPU more of them. The text is the common subset of
   C11, C++17 and CUDA C; under NVRTC include prelude.cuh first, for the integer types. */
#ifndef FX_MATH_H
#define FX_MATH_H

#if defined(__CUDACC__) || defined(FX_CUDA_SHIM)
#define FX_ON_CUDA 1
#endif

#if !defined(__CUDACC_RTC__)
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#ifndef FX_FN
#ifdef FX_ON_CUDA
#define FX_FN static __device__ inline
#else
#define FX_FN static inline
#endif
#endif

/* For functions that are so long that gcc would not inline them into two loops, so that the loops
   would not become SIMD code. */
#if defined(__GNUC__) && !defined(FX_ON_CUDA)
#define FX_INTO_LOOPS __attribute__((always_inline))
#else
#define FX_INTO_LOOPS
#endif

/* For functions with loops over the columns of arrays: gcc would fill wide vectors one number at a
   time, which takes longer than no vectors at all. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(FX_ON_CUDA)
#define FX_NARROW __attribute__((noinline, target("prefer-vector-width=128")))
#else
#define FX_NARROW
#endif

/* ---- Bits ------------------------------------------------------------------------------------ */

#ifdef FX_ON_CUDA
FX_FN uint32_t fx_bits_f32(float x) { return __float_as_uint(x); }
FX_FN float fx_float_from_bits(uint32_t bits) { return __uint_as_float(bits); }
FX_FN uint64_t fx_bits_f64(double x) { return (uint64_t)__double_as_longlong(x); }
FX_FN double fx_double_from_bits(uint64_t bits) { return __longlong_as_double((long long)bits); }
#else
FX_FN uint32_t fx_bits_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
FX_FN float fx_float_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
FX_FN uint64_t fx_bits_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
FX_FN double fx_double_from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* memcpy and memset for a number of bytes that may be 0, in which case the pointers may be null. */
FX_FN void fx_copy(void *to, const void *from, int64_t bytes) {
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
}
FX_FN void fx_clear(void *to, int64_t bytes) {
    if (bytes > 0) memset(to, 0, (size_t)bytes);
}
#endif

FX_FN int32_t fx_as_i32_f32(float x) { return (int32_t)fx_bits_f32(x); }
FX_FN float fx_as_f32_i32(int32_t x) { return fx_float_from_bits((uint32_t)x); }
FX_FN int64_t fx_as_i64_f64(double x) { return (int64_t)fx_bits_f64(x); }
FX_FN double fx_as_f64_i64(int64_t x) { return fx_double_from_bits((uint64_t)x); }

/* ---- Floats: exact functions ----------------------------------------------------------------- */

FX_FN float fx_neg_f32(float x) { return -x; }
FX_FN double fx_neg_f64(double x) { return -x; }
FX_FN float fx_abs_f32(float x) { return fabsf(x); }
FX_FN double fx_abs_f64(double x) { return fabs(x); }
FX_FN float fx_sqrt_f32(float x) { return sqrtf(x); }
FX_FN double fx_sqrt_f64(double x) { return sqrt(x); }
FX_FN float fx_rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
FX_FN double fx_rsqrt_f64(double x) { return 1.0 / sqrt(x); }
FX_FN float fx_reciprocal_f32(float x) { return 1.0f / x; }
FX_FN double fx_reciprocal_f64(double x) { return 1.0 / x; }
FX_FN float fx_floor_f32(float x) { return floorf(x); }
FX_FN double fx_floor_f64(double x) { return floor(x); }
FX_FN float fx_ceil_f32(float x) { return ceilf(x); }
FX_FN double fx_ceil_f64(double x) { return ceil(x); }
FX_FN float fx_trunc_f32(float x) { return truncf(x); }
FX_FN double fx_trunc_f64(double x) { return trunc(x); }
/* Half to even, as np.rint: the rounding mode is never changed. */
FX_FN float fx_round_f32(float x) { return rintf(x); }
FX_FN double fx_round_f64(double x) { return rint(x); }

FX_FN int fx_isnan_f32(float x) { return x != x; }
FX_FN int fx_isnan_f64(double x) { return x != x; }
FX_FN int fx_isinf_f32(float x) { return fabsf(x) > 3.40282347e+38f; }
FX_FN int fx_isinf_f64(double x) { return fabs(x) > 1.7976931348623157e+308; }

/* -1, 0 or 1; NaN stays NaN; -0 gives 0. */
FX_FN float fx_sign_f32(float x) {
    float sign = x > 0.0f ? 1.0f : 0.0f;
    sign = x < 0.0f ? -1.0f : sign;
    return x != x ? x : sign;
}
FX_FN double fx_sign_f64(double x) {
    double sign = x > 0.0 ? 1.0 : 0.0;
    sign = x < 0.0 ? -1.0 : sign;
    return x != x ? x : sign;
}

/* np.maximum, np.minimum: NaN if either is NaN (fmaxf would drop it), b if they are equal. If b
   is a constant, as in relu, this is a comparison and a selection. Otherwise it is the
   processor's own instruction, which gives b if either is NaN, and a selection of a if a is
   NaN. */
#if defined(__GNUC__) && !defined(FX_ON_CUDA)
#define FX_IS_CONSTANT(x) __builtin_constant_p(x)
#else
#define FX_IS_CONSTANT(x) 1
#endif
#define FX_EXTREMUM(NAME, T, FIRST)                                                               \
    FX_FN T NAME(T a, T b) {                                                                      \
        if (FX_IS_CONSTANT(b)) return ((b FIRST##= a) | (b != b)) ? b : a;                        \
        T either = a FIRST b ? a : b;                                                             \
        return a != a ? a : either;                                                               \
    }
FX_EXTREMUM(fx_maximum_f32, float, >)
FX_EXTREMUM(fx_maximum_f64, double, >)
FX_EXTREMUM(fx_minimum_f32, float, <)
FX_EXTREMUM(fx_minimum_f64, double, <)
/* The maximum of |x| and `largest`, which is not negative, or -infinity: floats that are not
   negative have the order of their bits, and NaN comes last. This is one instruction; the maximum
   above is three. */
FX_FN float fx_larger_magnitude_f32(float largest, float x) {
    int32_t most = (int32_t)fx_bits_f32(largest), bits = (int32_t)(fx_bits_f32(x) & 0x7fffffff);
    return fx_float_from_bits((uint32_t)(most > bits ? most : bits));
}

FX_FN float fx_copysign_f32(float x, float y) { return copysignf(x, y); }
FX_FN double fx_copysign_f64(double x, double y) { return copysign(x, y); }

/* The next float toward y, by its bits; y if that is equal. */
FX_FN float fx_nextafter_f32(float x, float y) {
    uint32_t bits = fx_bits_f32(x), least = (fx_bits_f32(y) & 0x80000000u) | 1u;
    uint32_t moved = (x < y) == (x > 0.0f) ? bits + 1u : bits - 1u;
    float next = fx_float_from_bits(x == 0.0f ? least : moved);
    next = x == y ? y : next;
    return x != x || y != y ? x + y : next;
}
FX_FN double fx_nextafter_f64(double x, double y) {
    uint64_t bits = fx_bits_f64(x), least = (fx_bits_f64(y) & 0x8000000000000000u) | 1u;
    uint64_t moved = (x < y) == (x > 0.0) ? bits + 1u : bits - 1u;
    double next = fx_double_from_bits(x == 0.0 ? least : moved);
    next = x == y ? y : next;
    return x != x || y != y ? x + y : next;
}

/* condition ? a : b without a branch: compilers follow each case of nested conditions through all
 * that comes after, and end up with masks for every combination. */
FX_FN float fx_select_f32(int condition, float a, float b) {
    uint32_t mask = -(uint32_t)condition;
    return fx_float_from_bits((fx_bits_f32(a) & mask) | (fx_bits_f32(b) & ~mask));
}
FX_FN double fx_select_f64(int condition, double a, double b) {
    uint64_t mask = -(uint64_t)condition;
    return fx_double_from_bits((fx_bits_f64(a) & mask) | (fx_bits_f64(b) & ~mask));
}

/* The same with a mask of all bits or none; and such a mask, whether x < y, for numbers that are
   not negative, or NaN for x. From comparisons that it can combine, GCC makes code that it cannot
   vectorize. */
FX_FN float fx_chosen(uint32_t mask, float a, float b) {
    return fx_float_from_bits((fx_bits_f32(a) & mask) | (fx_bits_f32(b) & ~mask));
}
FX_FN uint32_t fx_below(float x, float y) {
    return (uint32_t)((int32_t)(fx_bits_f32(x) - fx_bits_f32(y)) >> 31);
}

/* x within [-bound, bound], NaN unchanged, by one comparison: for two with constants, GCC makes
   three cases, with a mask for each of them. */
FX_FN float fx_bounded_f32(float x, float bound) {
    float size = fabsf(x);
    return copysignf(size > bound ? bound : size, x);
}
FX_FN double fx_bounded_f64(double x, double bound) {
    double size = fabs(x);
    return copysign(size > bound ? bound : size, x);
}

/* x - q y with the quotient q rounded toward 0, exact. With a fused multiply-add q y is exact,
   too, if q has no more than 52 bits, and the quotient is off by 1 at most. For floats, computed
   in double, six such steps reduce values above 2^240 |y|, 2^192 |y| and so on to |y|. For
   doubles one step is enough for most values; the others are left to the C library. */
#if defined(FX_ON_CUDA) || !(defined(__FMA__) || defined(__FP_FAST_FMA))
FX_FN float fx_fmod_f32(float x, float y) { return fmodf(x, y); }
FX_FN double fx_fmod_f64(double x, double y) { return fmod(x, y); }
#else
FX_FN double fx_within_divisor(double rest, double divisor) {
    rest = rest < 0.0 ? rest + divisor : rest;
    return rest >= divisor ? rest - divisor : rest;
}
FX_FN double fx_fmod_f64(double x, double y) {
    double size = fabs(x), divisor = fabs(y);
    if (!(size < 0x1p52 * divisor && divisor <= 1.7976931348623157e+308)) return fmod(x, y);
    double rest = fma(-trunc(size / divisor), divisor, size);
    return copysign(fx_within_divisor(rest, divisor), x);
}
FX_FN double fx_less_multiples(double rest, double y, double inverse, double scale) {
    return fma(-trunc(rest * (inverse / scale)), y * scale, rest);
}
FX_FN float fx_fmod_f32(float x, float y) {
    double rest = fabs((double)x), divisor = fabs((double)y), inverse = 1.0 / divisor;
    rest = fx_less_multiples(rest, divisor, inverse, 0x1p240);
    rest = fx_less_multiples(rest, divisor, inverse, 0x1p192);
    rest = fx_less_multiples(rest, divisor, inverse, 0x1p144);
    rest = fx_less_multiples(rest, divisor, inverse, 0x1p96);
    rest = fx_less_multiples(rest, divisor, inverse, 0x1p48);
    rest = fx_less_multiples(rest, divisor, inverse, 1.0);
    float result = (float)fx_within_divisor(rest, divisor);
    return copysignf(divisor > 3.5e38 ? x + (x - x) : result, x); /* y infinite */
}
#endif

/* np.remainder: the sign of the divisor, also on zeros; NaN for a zero divisor. */
FX_FN float fx_mod_f32(float a, float b) {
    float rest = fx_fmod_f32(a, b);
    float moved = (b < 0.0f) != (rest < 0.0f) ? rest + b : rest;
    return rest == 0.0f ? copysignf(0.0f, b) : moved;
}
FX_FN double fx_mod_f64(double a, double b) {
    double rest = fx_fmod_f64(a, b);
    double moved = fx_select_f64((b < 0.0) != (rest < 0.0), rest + b, rest);
    return fx_select_f64(rest == 0.0, copysign(0.0, b), moved);
}

/* np.floor_divide, rounded where NumPy rounds, so that every special case agrees: a / 0 is the true
   quotient, a zero has the sign of the true quotient. */
FX_FN float fx_floordiv_f32(float a, float b) {
    float rest = fx_fmod_f32(a, b);
    float quotient = (a - rest) / b;
    quotient = rest != 0.0f && (b < 0.0f) != (rest < 0.0f) ? quotient - 1.0f : quotient;
    float whole = floorf(quotient);
    whole = quotient - whole > 0.5f ? whole + 1.0f : whole;
    whole = quotient == 0.0f ? copysignf(0.0f, a / b) : whole;
    return b == 0.0f ? a / b : whole;
}
FX_FN double fx_floordiv_f64(double a, double b) {
    double rest = fx_fmod_f64(a, b);
    double quotient = (a - rest) / b;
    int below = (rest != 0.0) & ((b < 0.0) != (rest < 0.0));
    quotient = fx_select_f64(below, quotient - 1.0, quotient);
    double whole = floor(quotient);
    whole = fx_select_f64(quotient - whole > 0.5, whole + 1.0, whole);
    whole = fx_select_f64(quotient == 0.0, copysign(0.0, a / b), whole);
    return fx_select_f64(b == 0.0, a / b, whole);
}

/* a * b + c, rounded once where the machine has the instruction and the compiler takes it. */
FX_FN float fx_fma_f32(float a, float b, float c) { return a * b + c; }
FX_FN double fx_fma_f64(double a, double b, double c) { return a * b + c; }

/* a * b rounded to float: what is added to it later does not become part of a fused multiply-add,
   which rounds once. Compilers contract a * b + c where they can; they do not take apart an fma,
   and a * b + -0.0 is a * b. Without such an instruction there is nothing to contract. */
FX_FN float fx_product_f32(float a, float b) {
#if defined(__CUDACC__)
    return __fmul_rn(a, b);
#elif defined(__FP_FAST_FMAF)
    return fmaf(a, b, -0.0f);
#else
    return a * b;
#endif
}

/* x within [low, high], all of them whole numbers, as an integer; NaN gives low. It is written
   without branches: from two selections GCC makes three cases, and masks for each of them
   (measured: twice the time of an epilogue). x - low is exact where it matters, and floats that
   are not negative have the order of their bits. */
FX_FN int32_t fx_saturate_f32(float x, float low, float high) {
    float above = x - low;
    int32_t bits = (int32_t)fx_bits_f32(above) & -(int32_t)(above > 0.0f);
    int32_t most = (int32_t)fx_bits_f32(high - low);
    bits = bits < most ? bits : most;
    return (int32_t)fx_float_from_bits((uint32_t)bits) + (int32_t)low;
}

/* ---- float: elementary functions ------------------------------------------------------------- */

/* Each reduces its argument to a small interval and evaluates a polynomial there. Every lane of a
   SIMD loop does the same work: special cases are chosen at the end, by selects. The polynomials
   have the smallest largest error, by Remez's algorithm: tests/codegen/remez.py computes them,
   and the name in brackets says which of its fits a function uses. A constant in two parts (Cody
   and Waite, 1980) has a first part of so few bits that its products are exact, fused with a sum
   or not.

   Errors are below 0.8 to 3.7 ulp. The records of fxlite's ops say for each function how large
   its error may be, and `python -m tests.codegen.test_fx_math` measures it on all 2^32 floats (or
   as many pairs) with fused multiply-adds, and on every 15th without. */

#define FX_INF fx_float_from_bits(0x7f800000u)
#define FX_NAN fx_float_from_bits(0x7fc00000u)

/* Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the lowest bits of the sum. */
#define FX_ROUNDER 12582912.0f
#define FX_ROUNDER_BITS 0x4b400000u

/* exp(x) = 2^n exp(r) with r = x - n ln 2, |r| <= ln(2) / 2. This is r. */
FX_FN float fx_exp_rest(float x, float n) { return x - n * 0.693145752f - n * 1.42860677e-6f; }

/* exp(r) = 1 + r + r^2 P(r) [exp] */
FX_FN float fx_exp_polynomial(float r) {
    float p = 0.00138146093f;
    p = p * r + 0.00836871564f;
    p = p * r + 0.041668389f;
    p = p * r + 0.166665211f;
    p = p * r + 0.49999994f;
    return 1.0f + (r + r * r * p);
}

/* 2^n for -126 <= n <= 127, of which the lowest 9 bits count, as rounders have them, too */
FX_FN float fx_power_of_two(uint32_t n) { return fx_float_from_bits((n + 127u) << 23); }

/* p 2^n for a power p 2^n of which x is the exponent, with 1/2 < p < 2; where x is beyond the bound,
   the power is 0 or infinite. An addition to the bits of p moves its exponent by n and 64 towards
   that of 1, so that it is in range, and a product by 64 back: it rounds once. The lowest 9 bits of
   n count. */
FX_FN float fx_exp_scaled(float p, uint32_t n, float x, float bound) {
    uint32_t moved = ((fx_bits_f32(x) & 0x80000000u) >> 1) - (64u << 23);
    float y = fx_float_from_bits(fx_bits_f32(p) + (n << 23) + moved);
    y *= fx_float_from_bits((127u << 23) - moved);
    y = x < -bound ? 0.0f : y;
    return x <= bound ? y : x * FX_INF; /* NaN for NaN */
}

/* exp(x) 2^shift */
FX_FN float fx_exp_shifted(float x, uint32_t shift) {
    float rounder = x * 1.44269504f + FX_ROUNDER;
    float p = fx_exp_polynomial(fx_exp_rest(x, rounder - FX_ROUNDER));
    return fx_exp_scaled(p, fx_bits_f32(rounder) + shift, x, 104.0f);
}

FX_FN float fx_exp_f32(float x) { return fx_exp_shifted(x, 0u); }

/* 2^x = 2^n exp((x - n) ln 2) */
FX_FN float fx_exp2_f32(float x) {
    float rounder = x + FX_ROUNDER;
    float p = fx_exp_polynomial((x - (rounder - FX_ROUNDER)) * 0.693147182f);
    return fx_exp_scaled(p, fx_bits_f32(rounder), x, 152.0f);
}

/* exp(x) for |x| <= 87, where no result is subnormal */
FX_FN float fx_exp_moderate(float x) {
    float rounder = x * 1.44269504f + FX_ROUNDER;
    float p = fx_exp_polynomial(fx_exp_rest(x, rounder - FX_ROUNDER));
    return p * fx_power_of_two(fx_bits_f32(rounder) - FX_ROUNDER_BITS);
}

/* exp(min(x, 0)), and 0 where that is nearly subnormal: processors multiply subnormal numbers
   many times more slowly */
FX_FN float fx_exp_weight_f32(float x) {
    float weight = fx_exp_moderate(fx_select_f32(x > 0.0f, 0.0f, x));
    return fx_select_f32(x < -87.0f, 0.0f, weight);
}

/* expm1(r) = r + r^2 P(r) [expm1]; with h = 2^n / 2 it is 2 (h expm1(r) + (h - 1/2)) */
FX_FN float fx_expm1_f32(float x) {
    float bounded = fx_select_f32(x > 88.8f, 88.8f, x);
    bounded = fx_select_f32(bounded < -25.0f, -25.0f, bounded);
    float rounder = bounded * 1.44269504f + FX_ROUNDER;
    float r = fx_exp_rest(bounded, rounder - FX_ROUNDER);
    float p = 0.000198458729f;
    p = p * r + 0.00139406254f;
    p = p * r + 0.00833338965f;
    p = p * r + 0.0416663624f;
    p = p * r + 0.166666657f;
    p = p * r + 0.5f;
    p = r + r * r * p;
    uint32_t n = fx_bits_f32(rounder) - FX_ROUNDER_BITS;
    float h = fx_power_of_two(n - 1u);
    float y = fx_select_f32(n == 0u, p, 2.0f * (h * p + (h - 0.5f)));
    return copysignf(y, x); /* for -0 */
}

/* log(2^n (1 + f)) for 1/sqrt(2) <= 1 + f <= sqrt(2); log(1 + f) = f - f^2/2 + f^3 P(f) [log] */
FX_FN float fx_log_polynomial(float f, float n) {
    float p = 0.0674659014f;
    p = p * f - 0.116756737f;
    p = p * f + 0.118881956f;
    p = p * f - 0.124055885f;
    p = p * f + 0.142195478f;
    p = p * f - 0.166679963f;
    p = p * f + 0.200021192f;
    p = p * f - 0.250000089f;
    p = p * f + 0.333333135f;
    float square = f * f;
    float y = p * f * square + n * 1.42860677e-6f;
    return (f + (y - 0.5f * square)) + n * 0.693145752f;
}

/* The n of x = 2^n m with 1/sqrt(2) <= m < sqrt(2), for a normal x > 0 given by its bits */
FX_FN uint32_t fx_exponent(uint32_t bits) {
    return (uint32_t)((int32_t)(bits - 0x3f3504f3u) >> 23);
}

/* The n of x = 2^n (1 + f), and f in *rest, for x > 0 */
FX_FN float fx_log_reduced(float x, float *rest) {
    int tiny = x < 1.17549435e-38f; /* subnormal: times 2^23 */
    uint32_t bits = fx_bits_f32(fx_select_f32(tiny, x * 8388608.0f, x));
    uint32_t n = fx_exponent(bits);
    *rest = fx_float_from_bits(bits - (n << 23)) - 1.0f;
    return (float)(int32_t)n + fx_select_f32(tiny, -23.0f, 0.0f);
}
/* The logarithm of numbers that are not positive and finite. */
FX_FN float fx_log_completed(float y, float x) {
    y = x < FX_INF ? y : x; /* infinity and NaN */
    y = x < 0.0f ? FX_NAN : y;
    return x == 0.0f ? -FX_INF : y;
}

FX_FN float fx_log_f32(float x) {
    float f, n = fx_log_reduced(x, &f);
    return fx_log_completed(fx_log_polynomial(f, n), x);
}

/* n and log(m) / ln 2 of x = 2^n m, so that powers of two are exact */
FX_FN float fx_log2_f32(float x) {
    float f, n = fx_log_reduced(x, &f);
    return fx_log_completed(fx_log_polynomial(f, 0.0f) * 1.44269504f + n, x);
}

/* n log10(2), of which a first part is exact, and log(m) / ln 10: powers of ten are exact, too. */
FX_FN float fx_log10_f32(float x) {
    float f, n = fx_log_reduced(x, &f);
    float y = fx_log_polynomial(f, 0.0f) * 0.434294492f + n * 4.60503907e-06f;
    return fx_log_completed(y + n * 0.301025391f, x);
}

/* With 2^n near 1 + x, log1p(x) = log(2^n (1 + f)), f = x / 2^n + (1 / 2^n - 1): rounding 1 + x
   does not matter, it only chooses n. The scale is 4 / 2^n, which is normal even for n = 128. */
FX_FN float fx_log1p_f32(float x) {
    uint32_t n = fx_exponent(fx_bits_f32(1.0f + x));
    float scale = fx_float_from_bits((129u - n) << 23);
    float f = x * scale * 0.25f + (scale * 0.25f - 1.0f);
    float y = copysignf(fx_log_polynomial(f, (float)(int32_t)n), x); /* for -0 */
    y = x < FX_INF ? y : x;
    y = x < -1.0f ? FX_NAN : y;
    return x == -1.0f ? -FX_INF : y;
}

/* tanh(x) = x + x^3 P(x^2) below 5/8 [tanh], 1 - 2 / (exp(2x) + 1) above */
FX_FN float fx_tanh_f32(float x) {
    float size = fabsf(x), square = x * x;
    float p = -0.00570498034f;
    p = p * square + 0.0206390824f;
    p = p * square - 0.0537397154f;
    p = p * square + 0.133314416f;
    p = p * square - 0.333332807f;
    float small = size + size * (square * p);
    float bounded = size > 10.0f ? 10.0f : size; /* 1 from 9.1 on */
    float large = 1.0f - 2.0f / (fx_exp_moderate(2.0f * bounded) + 1.0f);
    return copysignf(size < 0.625f ? small : large, x);
}

/* erf(x) = x + x P(x^2) below 1 [erf_small], 1 - Q(x - 2.4375) above [erf_large] */
FX_FN float fx_erf_f32(float x) {
    float size = fabsf(x), square = x * x;
    float p = 7.85385491e-05f;
    p = p * square - 0.000801019196f;
    p = p * square + 0.00518832728f;
    p = p * square - 0.026853811f;
    p = p * square + 0.112835854f;
    p = p * square - 0.37612626f;
    p = p * square + 0.128379166f;
    float small = x + x * p;
    float t = (size > 3.9375f ? 3.9375f : size) - 2.4375f; /* 1 from 3.92 on */
    float q = 3.58526762e-07f;
    q = q * t - 1.22090523e-06f;
    q = q * t - 2.59798094e-06f;
    q = q * t + 1.81857704e-05f;
    q = q * t - 2.03267227e-05f;
    q = q * t - 7.15070128e-05f;
    q = q * t + 0.000301257794f;
    q = q * t - 0.000415083166f;
    q = q * t - 0.000376937387f;
    q = q * t + 0.00300202915f;
    q = q * t - 0.00720641576f;
    q = q * t + 0.0107023027f;
    q = q * t - 0.0107587045f;
    q = q * t + 0.00722902967f;
    q = q * t - 0.00296574831f;
    q = q * t + 0.000566543196f;
    return size < 1.0f ? small : copysignf(1.0f - q, x);
}

/* 1 / (1 + exp(-x)) = 2^-64 / (2^-64 + exp(-x) 2^-64), of which exp(-x) 2^-64 is normal where it
   counts */
FX_FN float fx_sigmoid_f32(float x) {
    float bounded = fx_select_f32(x > 40.0f, 40.0f, x); /* 1 from 17.4 on, 0 up to -104 */
    bounded = fx_select_f32(bounded < -104.0f, -104.0f, bounded);
    float rounder = bounded * -1.44269504f + FX_ROUNDER;
    float p = fx_exp_polynomial(fx_exp_rest(-bounded, rounder - FX_ROUNDER));
    float z = p * fx_power_of_two(fx_bits_f32(rounder) - 64u);
    return 0x1p-64f / (0x1p-64f + z);
}

#ifdef FX_ON_CUDA
/* In double on a CPU, where that costs twice as much; on a GPU it may cost 64 times as much. */
FX_FN float fx_sin_f32(float x) { return sinf(x); }
FX_FN float fx_cos_f32(float x) { return cosf(x); }
FX_FN float fx_tan_f32(float x) { return tanf(x); }
FX_FN float fx_pow_f32(float x, float y) { return powf(x, y); }
#else
/* The same in double: 1.5 * 2^52 */
#define FX_ROUNDER_F64 6755399441055744.0
FX_FN uint32_t fx_low_bits_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint32_t)bits;
}

/* x = n pi/2 + r with |r| <= pi/4, for 0 <= x. This is n, of which the lowest two bits count, and r
   in *rest. From 2^50 on, x = y 2^27, y 2^54 or y 2^81 with an integer y below 2^50, so that of
   2^27 * 2/pi, say, only the remainder modulo 4 counts (after Payne and Hanek, 1983). Each factor
   has parts of 29, 29 and 53 bits: the products with the first two are exact. */
FX_FN uint32_t fx_quadrant(float x, float *rest) {
    int far = x >= 0x1p50f, farther = x >= 0x1p77f, farthest = x >= 0x1p104f;
    float scale = far ? 0x1p-27f : 1.0f;
    double first = far ? -0x1.1b1bbebp-1 : 0x1.45f306ep-1;
    double second = far ? 0x1.4fe13acp-32 : -0x1.b1bbeadp-32;
    double third = far ? -0x1.70565911f924fp-64 : -0x1.80f62a0b82b2dp-62;
    scale = farther ? 0x1p-54f : scale;
    first = farther ? 0x1.4a7f09dp+0 : first;
    second = farther ? 0x1.7d1f535p-30 : second;
    third = farther ? -0x1.11f924eb53362p-61 : third;
    scale = farthest ? 0x1p-81f : scale;
    first = farthest ? -0x1.505c159p+0 : first;
    second = farthest ? -0x1.911f925p-30 : second;
    third = farthest ? 0x1.4acc9e21c821p-62 : third;

    double y = (double)(x * scale), turns = y * first;
    double rounder = turns + FX_ROUNDER_F64;
    uint32_t n = fx_low_bits_f64(rounder);
    turns = turns - (rounder - FX_ROUNDER_F64) + y * second;
    rounder = turns + FX_ROUNDER_F64;
    turns = turns - (rounder - FX_ROUNDER_F64) + y * third;
    *rest = (float)(turns * 1.5707963267948966);
    return n + fx_low_bits_f64(rounder);
}

/* sin(r) = r + r^3 P(r^2) [sin] */
FX_FN float fx_sin_polynomial(float r) {
    float square = r * r;
    float p = -0.000195152737f;
    p = p * square + 0.0083321603f;
    p = p * square - 0.166666552f;
    return r + r * (square * p);
}

/* cos(r) = 1 - r^2/2 + r^4 P(r^2) [cos] */
FX_FN float fx_cos_polynomial(float r) {
    float square = r * r;
    float p = 2.44331459e-05f;
    p = p * square - 0.00138873165f;
    p = p * square + 0.0416666456f;
    return 1.0f - square * (0.5f - square * p);
}

FX_FN float fx_sin_f32(float x) {
    float r;
    uint32_t n = fx_quadrant(fabsf(x), &r);
    float y = (n & 1u) != 0u ? fx_cos_polynomial(r) : fx_sin_polynomial(r);
    return fx_float_from_bits(fx_bits_f32(y) ^ (n & 2u) << 30 ^ (fx_bits_f32(x) & 0x80000000u));
}

FX_FN float fx_cos_f32(float x) {
    float r;
    uint32_t n = fx_quadrant(fabsf(x), &r);
    float y = (n & 1u) != 0u ? fx_sin_polynomial(r) : fx_cos_polynomial(r);
    return fx_float_from_bits(fx_bits_f32(y) ^ ((n + 1u) & 2u) << 30);
}

FX_FN float fx_tan_f32(float x) {
    float r;
    uint32_t n = fx_quadrant(fabsf(x), &r);
    float s = fx_sin_polynomial(r), c = fx_cos_polynomial(r);
    float y = (n & 1u) != 0u ? -c / s : s / c;
    return fx_float_from_bits(fx_bits_f32(y) ^ (fx_bits_f32(x) & 0x80000000u));
}

/* The sine and cosine of a row of numbers, in place. Below 2^16, x - n pi/2 takes three products in
   float (W. J. Cody and W. Waite, 1980): those of n with the first two parts of pi/2 are exact. */
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
FX_FN uint32_t fx_near_quadrant(float x, float *rest) {
    float turns = x * 0.636619772f + 12582912.0f; /* rounded: 1.5 * 2^23 */
    float n = turns - 12582912.0f;
    float r = fmaf(n, -0x1.921fbp+0f, x);
    r = fmaf(n, -0x1.5110b4p-22f, r);
    *rest = fmaf(n, -0x1.846988p-48f, r);
    return fx_bits_f32(turns);
}
#else
FX_FN uint32_t fx_near_quadrant(float x, float *rest) {
    double turns = (double)x * 0x1.45f306ep-1, rounder = turns + FX_ROUNDER_F64;
    turns = turns - (rounder - FX_ROUNDER_F64) + (double)x * -0x1.b1bbead603d8bp-32;
    *rest = (float)(turns * 1.5707963267948966);
    return fx_low_bits_f64(rounder);
}
#endif

FX_FN int fx_all_near_f32(const float *row, int64_t count) {
    int far = 0;
    for (int64_t i = 0; i < count; ++i) far |= fabsf(row[i]) > 65536.0f;
    return !far;
}

FX_FN void fx_sin_row_f32(float *row, int64_t count) {
    if (!fx_all_near_f32(row, count)) {
        for (int64_t i = 0; i < count; ++i) row[i] = fx_sin_f32(row[i]);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        float r, x = row[i];
        uint32_t n = fx_near_quadrant(x, &r);
        float y = (n & 1u) != 0u ? fx_cos_polynomial(r) : fx_sin_polynomial(r);
        y = fx_float_from_bits(fx_bits_f32(y) ^ (n & 2u) << 30);
        row[i] = x == 0.0f ? x : y; /* -0 stays -0 */
    }
}

FX_FN void fx_cos_row_f32(float *row, int64_t count) {
    if (!fx_all_near_f32(row, count)) {
        for (int64_t i = 0; i < count; ++i) row[i] = fx_cos_f32(row[i]);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        float r;
        uint32_t n = fx_near_quadrant(row[i], &r);
        float y = (n & 1u) != 0u ? fx_sin_polynomial(r) : fx_cos_polynomial(r);
        row[i] = fx_float_from_bits(fx_bits_f32(y) ^ ((n + 1u) & 2u) << 30);
    }
}

/* x 2^n for -252 <= n <= 254; it rounds once if 1/2 < x < 2 */
FX_FN float fx_scale(float x, uint32_t n) {
    uint32_t half = (uint32_t)((int32_t)n >> 1);
    return x * fx_power_of_two(half) * fx_power_of_two(n - half);
}

/* x^y = 2^(y log2 |x|) in double, so that 3^2 is 9. With x = 2^n (1 + f) and s = f / (2 + f),
   log2(1 + f) = s P(s^2) [log2]; 2^r = 1 + r Q(r) [exp2]. The special cases are those of C and
   IEEE 754: the logarithms of 0, infinity and NaN are as if n were these. */
FX_FN float fx_pow_f32(float x, float y) {
    float size = fabsf(x), rest, n = fx_log_reduced(size, &rest);
    uint32_t is_finite = fx_below(size, FX_INF), is_zero = fx_below(size, 1.4e-45f);
    n = fx_chosen(is_finite, n, size);
    n = fx_chosen(is_zero, -FX_INF, n);
    float finite = fx_bounded_f32(y, 3.4e38f); /* so that powers of 1 are 1 */

    double f = (double)rest, s = f / (2.0 + f), square = s * s;
    double p = 0.34072855085544534;
    p = p * square + 0.41167279918951677;
    p = p * square + 0.5770835836988899;
    p = p * square + 0.96179667334802943;
    p = p * square + 2.8853900817900815;
    double power = fx_bounded_f64((double)finite * (s * p + (double)n), 160.0);
    double rounder = power + FX_ROUNDER_F64;
    double r = power - (rounder - FX_ROUNDER_F64);
    double q = 0.00015353341471632727;
    q = q * r + 0.0013398874042586998;
    q = q * r + 0.0096184374298370276;
    q = q * r + 0.055503324724520499;
    q = q * r + 0.24022647913114456;
    q = q * r + 0.6931472028542589;
    float result = fx_scale((float)(1.0 + r * q), fx_low_bits_f64(rounder));

    float half = 0.5f * y;
    int whole = rintf(y) == y, odd = whole & (rintf(half) != half);
    uint32_t negative = (uint32_t)((int32_t)fx_bits_f32(x) >> 31);
    uint32_t invalid = negative & is_finite & ~is_zero & ((uint32_t)whole - 1u);
    uint32_t sign = negative & (uint32_t)odd << 31;
    result = fx_float_from_bits(fx_bits_f32(result) | sign | invalid); /* all bits set are NaN */
    result = fx_select_f32(x == 1.0f, 1.0f, result);
    return fx_select_f32(y == 0.0f, 1.0f, result);
}
#endif

/* sinh(x) = x + x^3 P(x^2) below 1 [sinh], h - 1/(4h) with h = exp(|x|) / 2 above */
FX_FN float fx_sinh_f32(float x) {
    float size = fabsf(x), square = x * x;
    float p = 2.81695111e-06f;
    p = p * square + 0.000198361595f;
    p = p * square + 0.0083333496f;
    p = p * square + 0.166666672f;
    float small = x + x * (square * p);
    float h = fx_exp_shifted(size, 0xffffffffu);
    return size < 1.0f ? small : copysignf(h - 0.25f / h, x);
}

FX_FN float fx_cosh_f32(float x) {
    float h = fx_exp_shifted(fabsf(x), 0xffffffffu);
    return h + 0.25f / h;
}

/* asin(x) = x + x^3 P(x^2) for |x| <= 1/2 [asin] */
FX_FN float fx_asin_polynomial(float x, float square) {
    float p = 0.0421663933f;
    p = p * square + 0.0241794605f;
    p = p * square + 0.0454703867f;
    p = p * square + 0.0749529749f;
    p = p * square + 0.166667521f;
    return x + x * (square * p);
}

/* Above 1/2, asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)); the root of a negative number is NaN. */
FX_FN float fx_asin_f32(float x) {
    float size = fabsf(x), rest = 0.5f * (1.0f - size);
    int small = size <= 0.5f;
    float y = fx_asin_polynomial(small ? size : sqrtf(rest), small ? size * size : rest);
    return copysignf(small ? y : 1.57079637f - (2.0f * y + 4.37113883e-8f), x);
}

FX_FN float fx_acos_f32(float x) {
    float size = fabsf(x), rest = 0.5f * (1.0f - size);
    int small = size <= 0.5f;
    float y = fx_asin_polynomial(small ? x : sqrtf(rest), small ? size * size : rest);
    float large = x < 0.0f ? 3.14159274f - (2.0f * y + 8.74227766e-8f) : 2.0f * y;
    return small ? 1.57079637f - (y + 4.37113883e-8f) : large;
}

/* atan(x) = x + x^3 P(x^2) for 0 <= x <= 1 [atan] */
FX_FN float fx_atan_polynomial(float x) {
    float square = x * x;
    float p = -0.00179362227f;
    p = p * square + 0.0109146088f;
    p = p * square - 0.0311778523f;
    p = p * square + 0.0579576008f;
    p = p * square - 0.08403451f;
    p = p * square + 0.109521858f;
    p = p * square - 0.142642424f;
    p = p * square + 0.199985489f;
    p = p * square - 0.333332986f;
    return x + x * (square * p);
}

/* Above 1, atan(x) = pi/2 - atan(1/x). */
FX_FN float fx_atan_f32(float x) {
    float size = fabsf(x);
    float y = fx_atan_polynomial(size > 1.0f ? 1.0f / size : size);
    return copysignf(size > 1.0f ? 1.57079637f - (y + 4.37113883e-8f) : y, x);
}

/* The angle of the point (x, y), by the arc tangent of the smaller over the larger coordinate. */
FX_FN float fx_atan2_f32(float y, float x) {
    float width = fabsf(x), height = fabsf(y);
    float larger = width > height ? width : height, smaller = width > height ? height : width;
    float ratio = larger == 0.0f ? 0.0f : smaller / larger;
    ratio = smaller == FX_INF ? 1.0f : ratio;
    float angle = fx_atan_polynomial(ratio);
    angle = height > width ? 1.57079637f - (angle + 4.37113883e-8f) : angle;
    angle = fx_bits_f32(x) >> 31 != 0u ? 3.14159274f - (angle + 8.74227766e-8f) : angle;
    angle = copysignf(angle, y);
    return x != x || y != y ? x + y : angle;
}

/* In double, where no square of a float overflows or vanishes. */
FX_FN float fx_hypot_f32(float x, float y) {
    float root = (float)sqrt((double)x * (double)x + (double)y * (double)y);
    return fabsf(x) == FX_INF || fabsf(y) == FX_INF ? FX_INF : root;
}

/* The larger one, and log(1 + exp(-distance)); of equal infinities there is no distance. */
FX_FN float fx_logaddexp_f32(float x, float y) {
    float sum = fx_maximum_f32(x, y) + fx_log1p_f32(fx_exp_f32(-fabsf(x - y)));
    return x == y ? x + 0.693147182f : sum;
}

/* By log1p, of sums in which nothing cancels. From 10^9 on, asinh(x) and acosh(x) are log(2 x). */
FX_FN float fx_asinh_f32(float x) {
    float size = fabsf(x), square = size * size;
    int large = size > 1e9f;
    float y = fx_log1p_f32(large ? size : size + square / (1.0f + sqrtf(1.0f + square)));
    return copysignf(large ? y + 0.693147182f : y, x);
}
FX_FN float fx_acosh_f32(float x) {
    float above = x - 1.0f;
    int large = x > 1e9f;
    float y = fx_log1p_f32(large ? x : above + sqrtf(above * (x + 1.0f)));
    return x < 1.0f ? FX_NAN : large ? y + 0.693147182f : y;
}
FX_FN float fx_atanh_f32(float x) {
    float size = fabsf(x), twice = 2.0f * size;
    float y = 0.5f * fx_log1p_f32(twice + twice * size / (1.0f - size));
    return size > 1.0f ? FX_NAN : copysignf(y, x);
}

/* cbrt(x) = 2^q cbrt(m 2^r) with x = 2^n m, n = 3 q + r and r from -1 to 1: by a polynomial in
   m - 1 [cbrt] and a step of E. Halley's (1694), which triples the bits that are right. */
FX_FN float fx_cbrt_f32(float x) {
    float f, n = fx_log_reduced(fabsf(x), &f);
    float rounder = n * 0.333333343f + FX_ROUNDER, r = n - 3.0f * (rounder - FX_ROUNDER);
    float p = -0.107476883f;
    p = p * f + 0.338708282f;
    p = p * f + 0.999890745f;
    float root = p * (r == 0.0f ? 1.0f : r > 0.0f ? 1.25992107f : 0.793700516f);
    float target = (1.0f + f) * (r == 0.0f ? 1.0f : r > 0.0f ? 2.0f : 0.5f);
    float cube = root * root * root;
    root = root - root * (cube - target) / (2.0f * cube + target);
    float y = copysignf(root * fx_power_of_two(fx_bits_f32(rounder) - FX_ROUNDER_BITS), x);
    return x == 0.0f || x - x != 0.0f ? x : y;
}

/* As frexp gives it, by the bits of |x|. */
FX_FN int32_t fx_exponent_f32(float x) {
    float size = fabsf(x);
    int tiny = size < 1.17549435e-38f; /* subnormal: times 2^23 */
    int32_t bits = (int32_t)fx_bits_f32(tiny ? size * 8388608.0f : size);
    int32_t exponent = (bits >> 23) - (tiny ? 149 : 126);
    return bits == 0 || bits >= 0x7f800000 ? 0 : exponent;
}

/* ---- double: elementary functions ------------------------------------------------------------ */

#ifdef FX_ON_CUDA
FX_FN double fx_exp_f64(double x) { return exp(x); }
FX_FN double fx_expm1_f64(double x) { return expm1(x); }
FX_FN double fx_log_f64(double x) { return log(x); }
FX_FN double fx_log1p_f64(double x) { return log1p(x); }
FX_FN double fx_log2_f64(double x) { return log2(x); }
FX_FN double fx_exp2_f64(double x) { return exp2(x); }
FX_FN double fx_tanh_f64(double x) { return tanh(x); }
FX_FN double fx_sinh_f64(double x) { return sinh(x); }
FX_FN double fx_cosh_f64(double x) { return cosh(x); }
FX_FN double fx_asin_f64(double x) { return asin(x); }
FX_FN double fx_acos_f64(double x) { return acos(x); }
FX_FN double fx_atan_f64(double x) { return atan(x); }
FX_FN double fx_atan2_f64(double y, double x) { return atan2(y, x); }
FX_FN double fx_log10_f64(double x) { return log10(x); }
FX_FN double fx_asinh_f64(double x) { return asinh(x); }
FX_FN double fx_acosh_f64(double x) { return acosh(x); }
FX_FN double fx_atanh_f64(double x) { return atanh(x); }
FX_FN double fx_cbrt_f64(double x) { return cbrt(x); }
FX_FN double fx_erf_f64(double x) { return erf(x); }
FX_FN double fx_hypot_f64(double x, double y) { return hypot(x, y); }
#else
/* y 2^n for the n of a rounder, n + FX_ROUNDER_F64, from -2000 to 2000: by two factors, so that a
   subnormal result is rounded once. Vectors of 64-bit integers are shifted without their signs. */
FX_FN double fx_scale_f64(double y, double rounder) {
    uint64_t shifted = fx_bits_f64(rounder) - 0x4338000000000000u + 2048u, half = shifted >> 1;
    double first = fx_double_from_bits((half - 1u) << 52);
    return y * first * fx_double_from_bits((shifted - half - 1u) << 52);
}

/* exp(r) - 1 = r + r^2 P(r) for |r| <= ln(2) / 2 [expm1_f64], and what of it follows r */
FX_FN double fx_expm1_rest(double r) {
    double p = 2.0875338879261377e-09;
    p = p * r + 2.5108977200284047e-08;
    p = p * r + 2.7557402600484404e-07;
    p = p * r + 2.7557244378148925e-06;
    p = p * r + 2.4801587172609358e-05;
    p = p * r + 0.00019841269885962991;
    p = p * r + 0.0013888888888962318;
    p = p * r + 0.0083333333333216915;
    p = p * r + 0.041666666666666512;
    p = p * r + 0.16666666666666677;
    p = p * r + 0.5;
    return r * r * p;
}
FX_FN double fx_expm1_polynomial(double r) { return r + fx_expm1_rest(r); }

/* The r of exp(x) = 2^n exp(r), and n + FX_ROUNDER_F64; n times the first part of ln 2 is exact
   (W. J. Cody and W. Waite, 1980). Beyond the bounds, exp(x) is 0 or infinite. */
FX_FN double fx_exp_rest_f64(double x, double *rounder) {
    double inside = x > 720.0 ? 720.0 : x;
    inside = inside < -760.0 ? -760.0 : inside;
    *rounder = inside * 1.4426950408889634 + FX_ROUNDER_F64;
    double n = *rounder - FX_ROUNDER_F64;
    return inside - n * 0x1.62e42fefa38p-1 - n * 0x1.ef35793c7673p-45;
}

/* exp(x) 2^shift, of an integer `shift` */
FX_FN double fx_exp_shifted_f64(double x, double shift) {
    double rounder, r = fx_exp_rest_f64(x, &rounder);
    return fx_scale_f64(1.0 + fx_expm1_polynomial(r), rounder + shift);
}
FX_FN double fx_exp_f64(double x) { return fx_exp_shifted_f64(x, 0.0); }

/* 2^x = 2^n exp((x - n) ln 2) */
FX_FN double fx_exp2_f64(double x) {
    double inside = fx_bounded_f64(x, 1100.0);
    double rounder = inside + FX_ROUNDER_F64;
    double r = (inside - (rounder - FX_ROUNDER_F64)) * 0.69314718055994531;
    return fx_scale_f64(1.0 + fx_expm1_polynomial(r), rounder);
}

/* exp(x) - 1 = 2 (2^(n - 1) (exp(r) - 1) + 2^(n - 1) - 1/2) */
FX_FN double fx_expm1_f64(double x) {
    double rounder, p = fx_expm1_polynomial(fx_exp_rest_f64(x, &rounder));
    double half = fx_scale_f64(0.5, rounder);
    double y = rounder == FX_ROUNDER_F64 ? p : 2.0 * (p * half + (half - 0.5));
    y = x > 709.8 ? (double)FX_INF : y;
    return x == 0.0 ? x : y;
}

/* log(m 2^n) = log(m) + n ln 2 with m from sqrt(1/2) to sqrt(2) and f = m - 1. Of s = f / (2 + f),
   log((1 + s) / (1 - s)) = 2 s + s^3 P(s^2) [log_f64], and 2 s = f - s f; `rest` is added to f. */
FX_FN double fx_log_polynomial_f64(double f, double n, double rest) {
    double s = f / (2.0 + f), square = s * s;
    double p = 0.14795992125815394;
    p = p * square + 0.15314046551387919;
    p = p * square + 0.18183564472512595;
    p = p * square + 0.22222198570578261;
    p = p * square + 0.28571428742410659;
    p = p * square + 0.39999999999414587;
    p = p * square + 0.6666666666666734;
    double half = 0.5 * f * f;
    double small = s * (half + square * p) + (n * 0x1.ef35793c7673p-45 + rest);
    return n * 0x1.62e42fefa38p-1 - (half - small - f);
}

/* The n of x = m 2^n, plus 1024, of a positive x that is not subnormal */
FX_FN uint64_t fx_exponent_bits_f64(double x) {
    return (fx_bits_f64(x) - 0x3fe6a09e667f3bcdu + 0x4000000000000000u) >> 52;
}
FX_FN double fx_double_of_exponent(uint64_t bits) {
    return fx_double_from_bits(bits | 0x4330000000000000u) - 4503599627371520.0; /* 2^52 + 1024 */
}
FX_FN double fx_without_exponent(double x, uint64_t bits) {
    return fx_double_from_bits(fx_bits_f64(x) - ((bits - 1024u) << 52));
}

/* As for floats: the n of x = 2^n (1 + f), and f; then the logarithm of all other numbers. */
FX_FN double fx_log_reduced_f64(double x, double *rest) {
    int tiny = x < 2.2250738585072014e-308;
    double size = tiny ? x * 0x1p54 : x;
    uint64_t bits = fx_exponent_bits_f64(size);
    *rest = fx_without_exponent(size, bits) - 1.0;
    return fx_double_of_exponent(bits) - (tiny ? 54.0 : 0.0);
}
FX_FN double fx_log_completed_f64(double y, double x) {
    y = x == 0.0 ? -(double)FX_INF : y;
    y = x < 0.0 ? (double)FX_NAN : y;
    return x < (double)FX_INF ? y : x;
}
FX_FN double fx_log_f64(double x) {
    double f, n = fx_log_reduced_f64(x, &f);
    return fx_log_completed_f64(fx_log_polynomial_f64(f, n, 0.0), x);
}
/* The second parts of 1 / ln(2) and 1 / ln(10) matter where n is 0. */
FX_FN double fx_log2_f64(double x) {
    double f, n = fx_log_reduced_f64(x, &f), y = fx_log_polynomial_f64(f, 0.0, 0.0);
    return fx_log_completed_f64(y * 1.4426950408889634 + (y * 2.0355273740931033e-17 + n), x);
}
FX_FN double fx_log10_f64(double x) {
    double f, n = fx_log_reduced_f64(x, &f), y = fx_log_polynomial_f64(f, 0.0, 0.0);
    double rest = y * 1.0983196502167651e-17 - n * 0x1.80433b83b532ap-44;
    return fx_log_completed_f64(n * 0x1.34413509f8p-2 + (y * 0.43429448190325182 + rest), x);
}

/* Of u = 1 + x, and what rounding left out of it */
FX_FN double fx_log1p_f64(double x) {
    double u = 1.0 + x;
    uint64_t bits = fx_exponent_bits_f64(u);
    double n = fx_double_of_exponent(bits);
    double left = (x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0)) / u;
    int near = n == 0.0;
    double y = fx_log_polynomial_f64(near ? x : fx_without_exponent(u, bits) - 1.0, n, near ? 0.0 : left);
    y = fx_log_completed_f64(y, u);
    return x == 0.0 ? x : y;
}

/* tanh(x) = u / (u + 2) with u = exp(2 |x|) - 1 */
FX_FN double fx_tanh_f64(double x) {
    double size = fabs(x), u = fx_expm1_f64(size > 20.0 ? 40.0 : 2.0 * size);
    return copysign(u / (u + 2.0), x);
}

/* sinh(x) = h - 1/(4h) with h = exp(|x|) / 2 above 1, and (u + u / (u + 1)) / 2 with
   u = exp(|x|) - 1 below, where exp(|x|) is exp(r) or 2 exp(r) */
FX_FN double fx_sinh_f64(double x) {
    double size = fabs(x), rounder, p = fx_expm1_polynomial(fx_exp_rest_f64(size, &rounder));
    double u = rounder == FX_ROUNDER_F64 ? p : 2.0 * p + 1.0;
    double h = fx_scale_f64(1.0 + p, rounder - 1.0);
    return copysign(size > 1.0 ? h - 0.25 / h : 0.5 * (u + u / (u + 1.0)), x);
}
FX_FN double fx_cosh_f64(double x) {
    double h = fx_exp_shifted_f64(fabs(x), -1.0);
    return h + 0.25 / h;
}

/* asin(x) = x + x^3 P(x^2) for |x| <= 1/2 [asin_f64] */
FX_FN double fx_asin_polynomial_f64(double x, double square) {
    double p = 0.031912198029147118;
    p = p * square - 0.01622414998543404;
    p = p * square + 0.019528201146095461;
    p = p * square + 0.0065279980843869255;
    p = p * square + 0.012169206492058514;
    p = p * square + 0.013885236242427778;
    p = p * square + 0.017359704682640569;
    p = p * square + 0.022371758056233641;
    p = p * square + 0.030381959136688862;
    p = p * square + 0.044642856828336512;
    p = p * square + 0.075000000003370024;
    p = p * square + 0.16666666666665408;
    return x + x * (square * p);
}

/* As for floats; pi has a second part. */
FX_FN double fx_asin_f64(double x) {
    double size = fabs(x), rest = 0.5 * (1.0 - size);
    int small = size <= 0.5;
    double y = fx_asin_polynomial_f64(small ? size : sqrt(rest), small ? size * size : rest);
    return copysign(small ? y : 1.5707963267948966 - (2.0 * y - 6.123233995736766e-17), x);
}
FX_FN double fx_acos_f64(double x) {
    double size = fabs(x), rest = 0.5 * (1.0 - size);
    int small = size <= 0.5;
    double y = fx_asin_polynomial_f64(small ? x : sqrt(rest), small ? size * size : rest);
    double large = x < 0.0 ? 3.1415926535897931 - (2.0 * y - 1.2246467991473532e-16) : 2.0 * y;
    return small ? 1.5707963267948966 - (y - 6.123233995736766e-17) : large;
}

/* The arc tangent of smaller / larger, from 0 to pi/4. Above tan(pi/8) it is pi/4 plus that of
   (smaller - larger) / (smaller + larger); atan(x) = x + x^3 P(x^2) [atan_f64] */
FX_FN double fx_atan_of_ratio(double smaller, double larger) {
    int above = smaller > 0.41421356237309503 * larger;
    double x = (above ? smaller - larger : smaller) / (above ? smaller + larger : larger);
    double square = x * x;
    double p = 0.015194122606590456;
    p = p * square - 0.033472827969024906;
    p = p * square + 0.045034506865466881;
    p = p * square - 0.052183723557438687;
    p = p * square + 0.058770154973625657;
    p = p * square - 0.066662259644945029;
    p = p * square + 0.076922826937361979;
    p = p * square - 0.090909081411033654;
    p = p * square + 0.11111111088065675;
    p = p * square - 0.142857142853859;
    p = p * square + 0.1999999999999765;
    p = p * square - 0.33333333333333326;
    double angle = x + x * (square * p);
    return above ? 0.78539816339744828 + (angle + 3.061616997868383e-17) : angle;
}
FX_FN double fx_atan_f64(double x) {
    double size = fabs(x);
    int above = size > 1.0;
    double y = fx_atan_of_ratio(above ? 1.0 : size, above ? size : 1.0);
    return copysign(above ? 1.5707963267948966 - (y - 6.123233995736766e-17) : y, x);
}
FX_FN double fx_atan2_f64(double y, double x) {
    double width = fabs(x), height = fabs(y);
    double larger = width > height ? width : height, smaller = width > height ? height : width;
    int none = larger == 0.0, both = smaller == (double)FX_INF;
    /* halves or multiples, so that the sum of both neither overflows nor vanishes */
    double scale = larger > 1.0 ? 0.5 : 0x1p54;
    larger = larger > 1e300 || larger < 1e-280 ? larger * scale : larger;
    smaller = width > 1e300 || height > 1e300 || (width < 1e-280 && height < 1e-280) ? smaller * scale : smaller;
    double angle = fx_atan_of_ratio(both ? 1.0 : smaller, none || both ? 1.0 : larger);
    angle = height > width ? 1.5707963267948966 - (angle - 6.123233995736766e-17) : angle;
    angle = fx_bits_f64(x) >> 63 != 0u ? 3.1415926535897931 - (angle - 1.2246467991473532e-16) : angle;
    angle = copysign(angle, y);
    return x != x || y != y ? x + y : angle;
}

FX_FN double fx_asinh_f64(double x) {
    double size = fabs(x), square = size * size;
    int large = size > 1e18;
    double y = fx_log1p_f64(large ? size : size + square / (1.0 + sqrt(1.0 + square)));
    return copysign(large ? y + 0.69314718055994531 : y, x);
}
FX_FN double fx_acosh_f64(double x) {
    double above = x - 1.0;
    int large = x > 1e18;
    double y = fx_log1p_f64(large ? x : above + sqrt(above * (x + 1.0)));
    return x < 1.0 ? (double)FX_NAN : large ? y + 0.69314718055994531 : y;
}
FX_FN double fx_atanh_f64(double x) {
    double size = fabs(x), twice = 2.0 * size;
    double y = 0.5 * fx_log1p_f64(twice + twice * size / (1.0 - size));
    return size > 1.0 ? (double)FX_NAN : copysign(y, x);
}

/* As for floats [cbrt_f64] */
FX_FN double fx_cbrt_f64(double x) {
    double f, n = fx_log_reduced_f64(fabs(x), &f);
    double rounder = n * 0.33333333333333331 + FX_ROUNDER_F64;
    double r = n - 3.0 * (rounder - FX_ROUNDER_F64);
    double p = 0.026954915032169499;
    p = p * f - 0.044782372332191386;
    p = p * f + 0.062287691175394309;
    p = p * f - 0.11096408666620323;
    p = p * f + 0.33332031248926169;
    p = p * f + 0.99999901304441174;
    double root = p * (r == 0.0 ? 1.0 : r > 0.0 ? 1.2599210498948732 : 0.79370052598409979);
    double target = (1.0 + f) * (r == 0.0 ? 1.0 : r > 0.0 ? 2.0 : 0.5);
    double cube = root * root * root;
    root = root - root * (cube - target) / (2.0 * cube + target);
    uint64_t exponent = fx_bits_f64(rounder) - 0x4338000000000000u + 1023u;
    double y = copysign(root * fx_double_from_bits(exponent << 52), x);
    return x == 0.0 || x - x != 0.0 ? x : y;
}

/* erf(x) = x + x P(x^2) below 1 [erf_small_f64],
   1 - exp(-x^2) Q(|x| - 3.5) above [erf_large_f64] */
FX_FN double fx_erf_f64(double x) {
    double size = fabs(x), square = x * x;
    double p = 5.945266408349592e-11;
    p = p * square - 1.1365668807103508e-09;
    p = p * square + 1.4657880594200332e-08;
    p = p * square - 1.6350025335350864e-07;
    p = p * square + 1.6460972827565583e-06;
    p = p * square - 1.4925593507528321e-05;
    p = p * square + 0.00012055331036924735;
    p = p * square - 0.00085483269787428367;
    p = p * square + 0.0052239776247808766;
    p = p * square - 0.026866170645072896;
    p = p * square + 0.11283791670954857;
    p = p * square - 0.37612638903183748;
    p = p * square + 0.12837916709551259;
    double small = x + x * p;
    double bounded = size > 6.0 ? 6.0 : size; /* 1 from 5.93 on */
    double t = bounded - 3.5;
    double q = 1.1724534825965463e-12;
    q = q * t + 1.9359512793476432e-11;
    q = q * t + 1.4622759210307816e-10;
    q = q * t + 6.2332338794553738e-10;
    q = q * t + 1.5544114188860958e-09;
    q = q * t + 1.6672299904760584e-09;
    q = q * t - 1.7873005965531266e-09;
    q = q * t - 1.0847285324369892e-08;
    q = q * t - 1.1082222960743634e-08;
    q = q * t - 2.3340304516012961e-08;
    q = q * t + 1.0101563735528263e-07;
    q = q * t - 3.7799630979514135e-07;
    q = q * t + 1.8488068651181888e-06;
    q = q * t - 8.2431555293435685e-06;
    q = q * t + 3.6172530285466443e-05;
    q = q * t - 0.00015547267200851183;
    q = q * t + 0.0006526865791406485;
    q = q * t - 0.0026730738175948995;
    q = q * t + 0.010661133338760355;
    q = q * t - 0.04132357783182343;
    q = q * t + 0.15529365560722028;
    double rest = fx_exp_f64(-(bounded * bounded)) * q;
    return size < 1.0 ? small : copysign(1.0 - rest, x);
}

/* For numbers whose squares do not overflow, and lose nothing that counts when they underflow. */
FX_FN double fx_hypot_f64(double x, double y) {
    double width = fabs(x), height = fabs(y), larger = width > height ? width : height;
    double scale = larger > 0x1p510 ? 0x1p-600 : larger < 0x1p-500 ? 0x1p600 : 1.0;
    double back = larger > 0x1p510 ? 0x1p600 : larger < 0x1p-500 ? 0x1p-600 : 1.0;
    width = width * scale;
    height = height * scale;
    double root = sqrt(width * width + height * height) * back;
    return fabs(x) == (double)FX_INF || fabs(y) == (double)FX_INF ? (double)FX_INF : root;
}
#endif

/* Sine, cosine, tangent and powers need products that are exact in two parts, for which there is
   an instruction, `fma`; without it they are the C library's functions. */
#if defined(FX_ON_CUDA) || !(defined(__FMA__) || defined(__FP_FAST_FMA))
FX_FN double fx_sin_f64(double x) { return sin(x); }
FX_FN double fx_cos_f64(double x) { return cos(x); }
FX_FN double fx_tan_f64(double x) { return tan(x); }
FX_FN double fx_pow_f64(double x, double y) { return pow(x, y); }
#else
/* 2^(16 j) 2/pi modulo 4, in four parts, as bits: loads of no other type than what a loop writes
   keep it SIMD code (after Payne and Hanek, 1983). */
static const uint64_t fx_turns_0[62] = {
    0x3fe45f306dc9c883u, 0x3ff836e4e44152a0u, 0xbffb1bbead603d8bu, 0x3fb529fc2757d1f5u,
    0x3fffc2757d1f534eu, 0xbfe505c1596447e5u, 0x3fff534ddc0db629u, 0x3febb81b6c52b328u,
    0x3feb6c52b3278872u, 0xbff6a66c3bc6fbe0u, 0x3ff3c439041fe516u, 0xbfdbef806ba71508u,
    0x3fffe5163abdebbcu, 0x3ff63abdebbc561bu, 0xbfc0a21d4f246dc9u, 0xbfcd4f246dc8e2dfu,
    0x3ffb7246e3a424ddu, 0x3fdb8e909374b802u, 0xbffbdb22d1ff9b6du, 0x3ffd2e006492eea1u,
    0x3f9924bba8274648u, 0x3ff2eea09d1921d0u, 0xbfff62e6de301e21u, 0x3ff921cfe1deb1cbu,
    0x3fefc3bd63962535u, 0x3ffeb1cb129a73efu, 0x3fe62534e7dd1047u, 0x3ffa73ee88235f53u,
    0xbff177dca0ad144cu, 0xbffca0ad144bb7b1u, 0x3ff2ebb4484e99c7u, 0xbfe76f62cc71fb29u,
    0x3fed338e04d68bf0u, 0x3fdc09ad17df904eu, 0xbff4ba081bec66e3u, 0xbfe037d8cdc538d0u,
    0x3ff3991d63983534u, 0x3ffd639835339f4au, 0x3ff835339f49c846u, 0xbfe8c16c6f740e88u,
    0x3fe3908bf177bf25u, 0x3fd7e2ef7e4a0ec8u, 0xbfd081b5f13801dau, 0x3ff283b1ff897ffeu,
    0xbfec00ed00043f4du, 0x3fe2fffbc0b301feu, 0xbfc0fd33f8086877u, 0x3ff980fef2f118b6u,
    0xbfb0d0ee74a5f593u, 0xbfedce94beb25c12u, 0xbfe4beb25c125930u, 0xbff92e092c98130eu,
    0xbfe25930261b069fu, 0xbff8130d834f648bu, 0xbfeb069ec9161738u, 0xbfeec9161738132cu,
    0xbfe61738132c3403u, 0xbffc09961a015d29u, 0xbff61a015d28ad84u, 0xbfb5d28ad8453814u,
    0x3ff7527bac7ebe5fu, 0xbfd14e050683a131u,
};
static const uint64_t fx_turns_1[62] = {
    0xbc86b01ec5417056u, 0xbc8ec54170565912u, 0x3c9f47d4d377036eu, 0x3c4a6ee06db14acdu,
    0xbc81f924eb53361eu, 0x3c8b14acc9e21c82u, 0x3c9664f10e4107f9u, 0xbc8de37df00d74e3u,
    0x3c507f9458eaf7afu, 0xbc7ae9c5421443aau, 0x3c8d5ef5de2b0db9u, 0xbc7443a9e48db91cu,
    0x3c9586dc91b8e909u, 0x3c9c91b8e909374cu, 0x3c4d2126e9700325u, 0x3c5374b801924bbbu,
    0x3c8700324977504fu, 0xbc7b6d115f62e6deu, 0xbc715f62e6de301eu, 0xbc98b9b78c078854u,
    0x3c3cfe1deb1cb12au, 0xbc7e214e34ed658cu, 0xbc938d3b5963045eu, 0x3c729a73ee88235fu,
    0xbc6822efb9415a29u, 0xbc9df7282b4512eeu, 0xbc80568a25dbd8b3u, 0xbc744bb7b16638feu,
    0x3c9213a671c09ad1u, 0xbc998e3f652e8207u, 0x3c435a2fbf209cc9u, 0xbc8d040df633714eu,
    0xbc7bec66e29c67cbu, 0x3c791d639835339fu, 0x3c98e60d4ce7d272u, 0x3c8a99cfa4e422fcu,
    0xbc982d8dee81d108u, 0xbc8bdd03a21036beu, 0xbc5d1081b5f13802u, 0xbc8036be27003b40u,
    0x3c4d8ffc4bffef03u, 0xbc1da00087e99fc0u, 0xbbc0fd33f8086877u, 0xbc7fa67f010d0ee7u,
    0x3c2fde5e2316b415u, 0xbc6a1dce94beb25cu, 0xbc5d297d64b824b2u, 0xbc97d64b824b2605u,
    0x3c3f6d367ecf27cbu, 0xbc864c0986c1a7b2u, 0xbc730d834f648b0cu, 0x3c9f2c26dd3d18feu,
    0x3c7b74f463f669e6u, 0xbc6738132c3402bau, 0xbc632c3402ba515bu, 0xbc7a015d28ad8454u,
    0x3c816ba93dd63f5fu, 0x3c949eeb1faf97c6u, 0xbc94e050683a130cu, 0xbc3a0e84c2f8c608u,
    0x3c77b3d0739f78a5u, 0x3c70739f78a5292fu,
};
static const uint64_t fx_turns_2[62] = {
    0xb926447e493ad4ceu, 0x38eb6c52b3278872u, 0xb93d6a66c3bc6fbeu, 0xb8e8778df7c035d4u,
    0x390c820ff28b1d5fu, 0x38ffe5163abdebbcu, 0x393163abdebbc562u, 0x3927bd778ac36e49u,
    0xb8cd4f246dc8e2dfu, 0x38fb7246e3a424ddu, 0x3911b8e909374b80u, 0xb916f6c8b47fe6dbu,
    0x392ba5c00c925dd4u, 0xb93ff9b6d115f62eu, 0xb8ea22bec5cdbc60u, 0xb8ff62e6de301e21u,
    0xb92cdbc603c429c7u, 0xb9080f10a71a76b3u, 0xb900a71a76b2c609u, 0x393cb129a73ee882u,
    0xb8d63045df7282b4u, 0xb8f177dca0ad144cu, 0x3901afa975da2427u, 0x3914baed1213a672u,
    0x390a24274ce38136u, 0x3913a671c09ad17eu, 0xb90c7eca5d040df6u, 0x391ad17df904e647u,
    0x393f7e413991d63au, 0x38f3991d63983534u, 0xb8c4e33e566305b2u, 0xb919f2b3182d8defu,
    0x3909cfa4e422fc5eu, 0x391272117e2ef7e5u, 0x39117e2ef7e4a0ecu, 0x39277bf250763ff1u,
    0xb91b5f13801da001u, 0xb913801da00087eau, 0x38e2fffbc0b301feu, 0xb8c0fd33f8086877u,
    0xb8d9fc04343b9d29u, 0xb8b0d0ee74a5f593u, 0xb85d297d64b824b2u, 0xb91297d64b824b26u,
    0xb8b2e092c98130d8u, 0xb8e25930261b069fu, 0xb8f8130d834f648bu, 0x392e4f96136e9e8cu,
    0x38a36e9e8c7ecd3du, 0xb92161738132c340u, 0x3918fd9a797fa8b6u, 0xb93961a015d28ad8u,
    0xb8b5d28ad8453814u, 0xb90456c229c0a0d0u, 0xb8d14e050683a131u, 0x391faf97c5ecf41du,
    0x3917c5ecf41ce7deu, 0xb9130be31821d6b6u, 0x391ce7de294a4baau, 0xb8dd6b5b45650128u,
    0x390497535fdafd89u, 0xb9165012813b81cbu,
};
static const uint64_t fx_turns_3[62] = {
    0x35ce21c820ff28b2u, 0x35507f9458eaf7afu, 0xb57ae9c5421443aau, 0x358d5ef5de2b0db9u,
    0xb57443a9e48db91cu, 0x359586dc91b8e909u, 0xb5d236e4716f6c8bu, 0xb5b1c5bdb22d1ffau,
    0x355374b801924bbbu, 0x358700324977504fu, 0x359924bba8274648u, 0xb5b115f62e6de302u,
    0x35a3a32439fc3bd6u, 0xb5db78c0788538d4u, 0xb57e214e34ed658cu, 0xb5938d3b5963045eu,
    0x35c894d39f74411bu, 0x359cfba208d7d4bbu, 0x35a1046bea5d7689u, 0x35cafa975da24275u,
    0xb5744bb7b16638feu, 0x359213a671c09ad1u, 0x35a338e04d68befdu, 0xb5afb29741037d8du,
    0xb5a741037d8cdc54u, 0xb57bec66e29c67cbu, 0xb599b8a719f2b318u, 0x35b639835339f49du,
    0xb5df2b3182d8dee8u, 0xb5982d8dee81d108u, 0x35608bf177bf2507u, 0x35bf8bbdf9283b20u,
    0xb58036be27003b40u, 0xb5b7c4e007680022u, 0x35bff897ffde0598u, 0x35b7ffde05980fefu,
    0x35be05980fef2f12u, 0x35b80fef2f118b5au, 0xb56a1dce94beb25cu, 0xb55d297d64b824b2u,
    0xb57f592e092c9813u, 0x353f6d367ecf27cbu, 0xb4f8130d834f648bu, 0xb5730d834f648b0cu,
    0xb54a7b24585ce04du, 0x357b74f463f669e6u, 0xb56738132c3402bau, 0x35cfb34f2ff516bbu,
    0xb5400ae9456c229cu, 0xb5b5d28ad8453814u, 0xb5a5b08a7028341du, 0xb5d14e050683a131u,
    0xb53a0e84c2f8c608u, 0xb5ad0985f18c10ebu, 0x3570739f78a5292fu, 0xb59821d6b5b45650u,
    0x35a4a525d4d7f6bfu, 0x35b2ea6bfb5fb120u, 0xb5b404a04ee072a3u, 0xb553b81ca8bdea7fu,
    0xb55ca8bdea7f33eeu, 0x35bd0856033046fcu,
};

/* x = n pi/2 + r with |r| <= pi/4, for 0 <= x. This is n, of which the lowest two bits count, and r
   in two parts. x = y 2^(16 j) with y below 2^69, which is an integer unless j is 0. */
FX_FN uint64_t fx_quadrant_f64(double x, double *rest, double *rest_of_rest) {
    uint64_t j = ((fx_bits_f64(x + 0x1p52) >> 52) - 1075u) >> 4;
    double y = x * fx_double_from_bits((1023u - 16u * j) << 52);
    double a = fx_double_from_bits(fx_turns_0[j]), b = fx_double_from_bits(fx_turns_1[j]);
    double c = fx_double_from_bits(fx_turns_2[j]), d = fx_double_from_bits(fx_turns_3[j]);
    double first = y * a, second = y * b, third = y * c;
    double first_error = fma(y, a, -first), second_error = fma(y, b, -second);
    double last = fma(y, c, -third) + y * d;

    /* the sum of the products without its whole numbers; the error of a sum is that of
       D. E. Knuth, "The Art of Computer Programming", vol. 2, 4.2.2 */
    double middle = first_error + second, part = middle - first_error;
    double middle_error = (first_error - (middle - part)) + (second - part);
    first = first - 4.0 * rint(0.25 * first);
    double n = first + FX_ROUNDER_F64, more = middle + FX_ROUNDER_F64;
    first = first - (n - FX_ROUNDER_F64);
    middle = middle - (more - FX_ROUNDER_F64);
    double sum = first + middle;
    part = sum - first;
    double sum_error = (first - (sum - part)) + (middle - part);
    double most = sum + FX_ROUNDER_F64;
    sum = sum - (most - FX_ROUNDER_F64);
    double small = ((second_error + third) + middle_error) + sum_error;
    double turns = sum + small, left = (sum - turns) + small + last;

    double r = turns * 1.5707963267948966;
    *rest = r;
    *rest_of_rest = fma(turns, 1.5707963267948966, -r) + (turns * 6.123233995736766e-17 + left * 1.5707963267948966);
    return fx_bits_f64(n) + fx_bits_f64(more) + fx_bits_f64(most);
}

/* sin(r + s) = r + r^3 P(r^2) + s (1 - r^2/2) [sin_f64] */
FX_FN double fx_sin_polynomial_f64(double r, double s) {
    double square = r * r;
    double p = 1.5896224821370231e-10;
    p = p * square - 2.5050747672934976e-08;
    p = p * square + 2.7557313620825965e-06;
    p = p * square - 0.00019841269829587975;
    p = p * square + 0.0083333333333221165;
    p = p * square - 0.1666666666666663;
    return r + (r * square * p + s * (1.0 - 0.5 * square));
}

/* cos(r + s) = 1 - r^2/2 + r^4 P(r^2) - r s [cos_f64] */
FX_FN double fx_cos_polynomial_f64(double r, double s) {
    double square = r * r;
    double p = -1.1358533431768503e-11;
    p = p * square + 2.0875700784174922e-09;
    p = p * square - 2.7557314178886046e-07;
    p = p * square + 2.4801587288850335e-05;
    p = p * square - 0.0013888888888873054;
    p = p * square + 0.041666666666666595;
    double half = 0.5 * square, y = 1.0 - half;
    return y + (((1.0 - y) - half) + (square * square * p - r * s));
}

FX_FN double fx_sin_f64(double x) {
    double r, s;
    uint64_t n = fx_quadrant_f64(fabs(x), &r, &s);
    double y = (n & 1u) != 0u ? fx_cos_polynomial_f64(r, s) : fx_sin_polynomial_f64(r, s);
    y = fx_double_from_bits(fx_bits_f64(y) ^ (n & 2u) << 62 ^ (fx_bits_f64(x) & 0x8000000000000000u));
    return fabs(x) < 1e-9 ? x : y;
}

FX_FN double fx_cos_f64(double x) {
    double r, s;
    uint64_t n = fx_quadrant_f64(fabs(x), &r, &s);
    double y = (n & 1u) != 0u ? fx_sin_polynomial_f64(r, s) : fx_cos_polynomial_f64(r, s);
    return fx_double_from_bits(fx_bits_f64(y) ^ ((n + 1u) & 2u) << 62);
}

FX_FN double fx_tan_f64(double x) {
    double r, s;
    uint64_t n = fx_quadrant_f64(fabs(x), &r, &s);
    double sine = fx_sin_polynomial_f64(r, s), cosine = fx_cos_polynomial_f64(r, s);
    double y = (n & 1u) != 0u ? -cosine / sine : sine / cosine;
    y = fx_double_from_bits(fx_bits_f64(y) ^ (fx_bits_f64(x) & 0x8000000000000000u));
    return fabs(x) < 1e-9 ? x : y;
}

/* log2(x) of a finite x > 0, in two parts: log(m) = 2 s + 2/3 s^3 + s^5 P(s^2) [pow_f64] with
   s = (m - 1) / (m + 1), for which x = m 2^n and m is from sqrt(1/2) to sqrt(2). */
FX_FN FX_INTO_LOOPS double fx_log2_in_parts(double x, double *rest) {
    double f, n = fx_log_reduced_f64(x, &f);
    double divisor = 2.0 + f, inverse = 1.0 / divisor, s = f * inverse;
    double s_rest = (fma(-s, divisor, f) - s * (f - (divisor - 2.0))) * inverse;
    double square = s * s, square_rest = fma(s, s, -square) + 2.0 * s * s_rest;
    double p = 0.11013327548276731;
    p = p * square + 0.10422901775926439;
    p = p * square + 0.11768673941044963;
    p = p * square + 0.13333240430964305;
    p = p * square + 0.15384616753311478;
    p = p * square + 0.18181818169251762;
    p = p * square + 0.22222222222290586;
    p = p * square + 0.28571428571428376;
    p = p * square + 0.40000000000000002;
    /* square (2/3 + square p), times s */
    double more = square * p, factor = 0.66666666666666663 + more;
    double factor_rest = (more - (factor - 0.66666666666666663)) + 3.7007434154171886e-17;
    double product = square * factor;
    double product_rest = fma(square, factor, -product) + (square * factor_rest + square_rest * factor);
    double cube = s * product;
    double cube_rest = fma(s, product, -cube) + (s * product_rest + s_rest * product);
    double log = 2.0 * s + cube, log_rest = (cube - (log - 2.0 * s)) + (2.0 * s_rest + cube_rest);
    /* divided by ln(2) */
    double y = log * 1.4426950408889634;
    double y_rest = fma(log, 1.4426950408889634, -y) + (log * 2.0355273740931033e-17 + log_rest * 1.4426950408889634);
    double sum = n + y;
    *rest = (y - (sum - n)) + y_rest;
    return sum;
}

/* x^y = 2^(y log2 |x|); the special cases are those of C and IEEE 754. */
FX_FN FX_INTO_LOOPS double fx_pow_f64(double x, double y) {
    double size = fabs(x), log_rest;
    double log = fx_log2_in_parts(size, &log_rest);
    log = size < (double)FX_INF ? log : size; /* infinity and NaN */
    log = size == 0.0 ? -(double)FX_INF : log;
    double power = y * log;
    double power_rest = fma(y, log, -power) + y * log_rest;
    power_rest = fabs(power) < 1100.0 ? power_rest : 0.0;
    power = fx_bounded_f64(power, 1100.0);
    double rounder = power + FX_ROUNDER_F64;
    double r = power - (rounder - FX_ROUNDER_F64);
    double t = r * 0.69314718055994531;
    double t_rest = fma(r, 0.69314718055994531, -t) + power_rest * 0.69314718055994531;
    double one = 1.0 + t, rest = fx_expm1_rest(t);
    rest = (t - (one - 1.0)) + (rest + t_rest * (one + rest));
    double result = fx_scale_f64(one + rest, rounder);

    /* of a negative x, exponents must be whole, and odd ones keep the sign */
    double half = 0.5 * y, sign = rint(half) != half ? x : 1.0;
    result = copysign(result, rint(y) == y ? sign : 1.0);
    double smaller = rint(y) == y || size == (double)FX_INF ? 0.0 : x;
    result = smaller < 0.0 ? (double)FX_NAN : result;
    result = x == -1.0 && y - y != 0.0 && y == y ? 1.0 : result;
    return x == 1.0 || y == 0.0 ? 1.0 : result;
}
#endif

FX_FN double fx_exp_weight_f64(double x) {
    double weight = fx_exp_f64(fx_select_f64(x > 0.0, 0.0, x));
    return fx_select_f64(x < -708.0, 0.0, weight);
}
FX_FN double fx_sigmoid_f64(double x) {
    double z = fx_exp_f64(-fabs(x));
    return (x < 0.0 ? z : 1.0) / (1.0 + z);
}
FX_FN double fx_logaddexp_f64(double x, double y) {
    double sum = fx_maximum_f64(x, y) + fx_log1p_f64(fx_exp_f64(-fabs(x - y)));
    return x == y ? x + 0.69314718055994531 : sum;
}

/* As for floats. */
FX_FN int32_t fx_exponent_f64(double x) {
    double size = fabs(x);
    int tiny = size < 2.2250738585072014e-308; /* subnormal: times 2^54 */
    uint64_t bits = fx_bits_f64(tiny ? size * 0x1p54 : size);
    int32_t exponent = (int32_t)(bits >> 52) - (tiny ? 1076 : 1022);
    return size == 0.0 || size - size != 0.0 ? 0 : exponent;
}

/* ---- Integers -------------------------------------------------------------------------------- */

/* NumPy's rules: results wrap; the quotient is rounded down and the remainder has the sign of the
   divisor; x / 0 and x % 0 are 0, and the lowest integer divided by -1 is itself. Shifting by the
   width or more (or by a negative count) leaves nothing but the sign. A negative exponent, which
   NumPy refuses, gives the truncated reciprocal: 1, -1 or 0. What may overflow is done on unsigned
   integers of at least int's width, which is defined without -fwrapv. (Emitted code that adds with
   a plain + relies on that flag.) */
#define FX_INTEGER_FUNCTIONS(NAME, T, UNSIGNED, BITS)                                             \
    FX_FN T fx_add_##NAME(T a, T b) { return (T)((UNSIGNED)a + (UNSIGNED)b); }                    \
    FX_FN T fx_sub_##NAME(T a, T b) { return (T)((UNSIGNED)a - (UNSIGNED)b); }                    \
    FX_FN T fx_mul_##NAME(T a, T b) { return (T)((UNSIGNED)a * (UNSIGNED)b); }                    \
    FX_FN T fx_fma_##NAME(T a, T b, T c) {                                                        \
        return (T)((UNSIGNED)a * (UNSIGNED)b + (UNSIGNED)c);                                      \
    }                                                                                             \
    FX_FN T fx_neg_##NAME(T a) { return (T)(0u - (UNSIGNED)a); }                                  \
    FX_FN T fx_maximum_##NAME(T a, T b) { return a > b ? a : b; }                                 \
    FX_FN T fx_minimum_##NAME(T a, T b) { return a < b ? a : b; }                                 \
    FX_FN T fx_shl_##NAME(T a, T count) {                                                         \
        UNSIGNED shift = (UNSIGNED)count;                                                         \
        return (T)(shift < BITS ? (UNSIGNED)a << (shift & (BITS - 1)) : 0u);                      \
    }                                                                                             \
    FX_FN T fx_power_by_squaring_##NAME(T base, UNSIGNED exponent) {                              \
        UNSIGNED result = 1u, factor = (UNSIGNED)base;                                            \
        for (; exponent != 0u; exponent >>= 1) {                                                  \
            result = (exponent & 1u) != 0u ? result * factor : result;                            \
            factor *= factor;                                                                     \
        }                                                                                         \
        return (T)result;                                                                         \
    }

#define FX_SIGNED_FUNCTIONS(NAME, T, UNSIGNED, BITS)                                              \
    FX_INTEGER_FUNCTIONS(NAME, T, UNSIGNED, BITS)                                                 \
    FX_FN T fx_abs_##NAME(T a) { return a < 0 ? fx_neg_##NAME(a) : a; }                           \
    FX_FN T fx_sign_##NAME(T a) { return (T)((a > 0) - (a < 0)); }                                \
    FX_FN T fx_shr_##NAME(T a, T count) {                                                         \
        return (T)(a >> (count >= 0 && count < BITS ? count : (T)(BITS - 1)));                    \
    }                                                                                             \
    FX_FN T fx_pow_##NAME(T base, T exponent) {                                                   \
        int whole = exponent >= 0 || base == 1 || base == -1;                                     \
        return whole ? fx_power_by_squaring_##NAME(base, (UNSIGNED)exponent) : (T)0;              \
    }

FX_SIGNED_FUNCTIONS(i8, int8_t, uint32_t, 8)
FX_SIGNED_FUNCTIONS(i16, int16_t, uint32_t, 16)
FX_SIGNED_FUNCTIONS(i32, int32_t, uint32_t, 32)
FX_SIGNED_FUNCTIONS(i64, int64_t, uint64_t, 64)

#define FX_UNSIGNED_FUNCTIONS(NAME, T, UNSIGNED, BITS)                                            \
    FX_INTEGER_FUNCTIONS(NAME, T, UNSIGNED, BITS)                                                 \
    FX_FN T fx_abs_##NAME(T a) { return a; }                                                      \
    FX_FN T fx_sign_##NAME(T a) { return a != 0u ? 1u : 0u; }                                     \
    FX_FN T fx_shr_##NAME(T a, T count) {                                                         \
        return (T)(count < BITS ? (UNSIGNED)a >> (count & (BITS - 1)) : 0u);                      \
    }                                                                                             \
    FX_FN T fx_pow_##NAME(T base, T exponent) {                                                   \
        return fx_power_by_squaring_##NAME(base, exponent);                                       \
    }

FX_UNSIGNED_FUNCTIONS(u8, uint8_t, uint32_t, 8)
FX_UNSIGNED_FUNCTIONS(u16, uint16_t, uint32_t, 16)
FX_UNSIGNED_FUNCTIONS(u32, uint32_t, uint32_t, 32)
FX_UNSIGNED_FUNCTIONS(u64, uint64_t, uint64_t, 64)

/* Up to 32 bits, quotients are computed in floating point, because SIMD units can divide there.
   Rounding down is exact: a quotient that is not whole differs from the next whole number by more
   than one part in 2^16 (2^31 for 32 bits), and float (double) rounds by less. */
#define FX_SMALL_DIVISION(NAME, T, REAL, FLOOR)                                               \
    FX_FN T fx_floordiv_##NAME(T a, T b) {                                                    \
        REAL quotient = FLOOR((REAL)a / (REAL)(b == 0 ? (T)1 : b));                           \
        return (T)(b == 0 ? 0 : (int32_t)quotient);                                           \
    }                                                                                         \
    FX_FN T fx_mod_##NAME(T a, T b) {                                                         \
        return b == 0 ? (T)0 : fx_sub_##NAME(a, fx_mul_##NAME(fx_floordiv_##NAME(a, b), b));  \
    }

FX_SMALL_DIVISION(i8, int8_t, float, floorf)
FX_SMALL_DIVISION(u8, uint8_t, float, floorf)
FX_SMALL_DIVISION(i16, int16_t, float, floorf)
FX_SMALL_DIVISION(u16, uint16_t, float, floorf)

/* A compiler multiplies instead of dividing by a constant: for a positive one, rounding down is the
   quotient of natural numbers, as ~((~a) / b) is for a negative a. */
FX_FN int32_t fx_floordiv_i32(int32_t a, int32_t b) {
    if (FX_IS_CONSTANT(b) && b > 0) {
        uint32_t sign = (uint32_t)(a >> 31);
        return (int32_t)((((uint32_t)a ^ sign) / (uint32_t)b) ^ sign);
    }
    double quotient = floor((double)a / (double)(b == 0 ? 1 : b));
    quotient = quotient > 2147483647.0 ? -2147483648.0 : quotient; /* -2^31 / -1 wraps */
    return b == 0 ? 0 : (int32_t)quotient;
}
FX_FN int32_t fx_mod_i32(int32_t a, int32_t b) {
    return b == 0 ? 0 : fx_sub_i32(a, fx_mul_i32(fx_floordiv_i32(a, b), b));
}

/* Dividing by -1 is negation: the processor traps on the lowest integer. */
FX_FN int64_t fx_floordiv_i64(int64_t a, int64_t b) {
    if (FX_IS_CONSTANT(b) && b > 0) { /* as above */
        uint64_t sign = (uint64_t)(a >> 63);
        return (int64_t)((((uint64_t)a ^ sign) / (uint64_t)b) ^ sign);
    }
    int64_t divisor = b == 0 || b == -1 ? 1 : b;
    int64_t quotient = a / divisor - (a % divisor != 0 && (a < 0) != (divisor < 0));
    return b == 0 ? 0 : b == -1 ? fx_neg_i64(a) : quotient;
}
FX_FN int64_t fx_mod_i64(int64_t a, int64_t b) {
    if (FX_IS_CONSTANT(b) && b > 0) return a - fx_floordiv_i64(a, b) * b;
    int64_t divisor = b == 0 || b == -1 ? 1 : b;
    int64_t rest = a % divisor;
    return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
}
FX_FN uint32_t fx_floordiv_u32(uint32_t a, uint32_t b) { return b == 0u ? 0u : a / b; }
FX_FN uint32_t fx_mod_u32(uint32_t a, uint32_t b) { return b == 0u ? 0u : a % b; }
FX_FN uint64_t fx_floordiv_u64(uint64_t a, uint64_t b) { return b == 0u ? 0u : a / b; }
FX_FN uint64_t fx_mod_u64(uint64_t a, uint64_t b) { return b == 0u ? 0u : a % b; }

/* Greatest common divisors by Euclid's algorithm; that of two zeros is 0. */
FX_FN uint64_t fx_gcd_u64(uint64_t a, uint64_t b) {
    while (b != 0u) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
FX_FN int64_t fx_gcd_i64(int64_t a, int64_t b) {
    return (int64_t)fx_gcd_u64((uint64_t)fx_abs_i64(a), (uint64_t)fx_abs_i64(b));
}

FX_FN unsigned char fx_maximum_bool(unsigned char a, unsigned char b) { return a | b; }
FX_FN unsigned char fx_minimum_bool(unsigned char a, unsigned char b) { return a & b; }
FX_FN unsigned char fx_abs_bool(unsigned char a) { return a; }

/* ---- Casts ----------------------------------------------------------------------------------- */

/* Float to integer where the value may not fit: the result is that of x86-64, and so of NumPy
   there, namely the lowest integer. 8 and 16 bits go through 32, unsigned 32 bits through 64, and
   wrap; the upper half of unsigned 64 bits goes through 64 less 2^63. */
FX_FN int32_t fx_cast_f32_i32(float x) {
    return (int32_t)(x >= -2147483648.0f && x < 2147483648.0f ? x : -2147483648.0f);
}
FX_FN int32_t fx_cast_f64_i32(double x) {
    return (int32_t)(x > -2147483649.0 && x < 2147483648.0 ? x : -2147483648.0);
}
FX_FN int64_t fx_cast_f32_i64(float x) {
    return (int64_t)(x >= -9223372036854775808.0f && x < 9223372036854775808.0f
                         ? x : -9223372036854775808.0f);
}
FX_FN int64_t fx_cast_f64_i64(double x) {
    return (int64_t)(x >= -9223372036854775808.0 && x < 9223372036854775808.0
                         ? x : -9223372036854775808.0);
}
FX_FN int16_t fx_cast_f32_i16(float x) { return (int16_t)fx_cast_f32_i32(x); }
FX_FN int16_t fx_cast_f64_i16(double x) { return (int16_t)fx_cast_f64_i32(x); }
FX_FN int8_t fx_cast_f32_i8(float x) { return (int8_t)fx_cast_f32_i32(x); }
FX_FN int8_t fx_cast_f64_i8(double x) { return (int8_t)fx_cast_f64_i32(x); }
FX_FN uint16_t fx_cast_f32_u16(float x) { return (uint16_t)fx_cast_f32_i32(x); }
FX_FN uint16_t fx_cast_f64_u16(double x) { return (uint16_t)fx_cast_f64_i32(x); }
FX_FN uint32_t fx_cast_f32_u32(float x) { return (uint32_t)fx_cast_f32_i64(x); }
FX_FN uint32_t fx_cast_f64_u32(double x) { return (uint32_t)fx_cast_f64_i64(x); }
FX_FN uint64_t fx_cast_f32_u64(float x) {
    int upper = x >= 9223372036854775808.0f;
    uint64_t low = (uint64_t)fx_cast_f32_i64(upper ? x - 9223372036854775808.0f : x);
    return low ^ (uint64_t)upper << 63;
}
FX_FN uint64_t fx_cast_f64_u64(double x) {
    int upper = x >= 9223372036854775808.0;
    uint64_t low = (uint64_t)fx_cast_f64_i64(upper ? x - 9223372036854775808.0 : x);
    return low ^ (uint64_t)upper << 63;
}
FX_FN uint8_t fx_cast_f32_u8(float x) { return (uint8_t)fx_cast_f32_i32(x); }
FX_FN uint8_t fx_cast_f64_u8(double x) { return (uint8_t)fx_cast_f64_i32(x); }

/* ---- 16-bit floats: storage types ------------------------------------------------------------ */

FX_FN float fx_f32_from_bf16(uint16_t half) { return fx_float_from_bits((uint32_t)half << 16); }

/* Round to nearest, ties to even; a NaN stays one, quiet. */
FX_FN uint16_t fx_bf16_from_f32(float x) {
    uint32_t bits = fx_bits_f32(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(x != x ? bits >> 16 | 0x40u : rounded);
}

FX_FN float fx_f32_from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    /* Exponent and fraction in place, then times 2^112, the difference of the biases: exact, and
       right for subnormals too. Infinity and NaN keep an exponent of all ones. */
    uint32_t finite = fx_bits_f32(fx_float_from_bits(magnitude << 13) * 5.192296858534828e+33f);
    uint32_t special = 0x7f800000u | magnitude << 13;
    return fx_float_from_bits(sign | (magnitude >= 0x7c00u ? special : finite));
}

FX_FN uint16_t fx_f16_from_f32(float x) {
    uint32_t bits = fx_bits_f32(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    /* Subnormal: adding 0.5 makes the adder round at the right bit. */
    uint32_t subnormal = fx_bits_f32(fx_float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude >= 0x38800000u ? normal : subnormal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;
    half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half;
    return (uint16_t)(sign | half);
}

/* From double, first to float "to odd": the last bit says whether anything was lost, so that the
   second rounding cannot mistake a value next to a tie for the tie. */
FX_FN uint16_t fx_f16_from_f64(double x) {
    float nearest = (float)x;
    double back = (double)nearest;
    uint32_t bits = fx_bits_f32(nearest);
    uint32_t odd = (fabs(back) > fabs(x) ? bits - 1u : bits) | 1u;
    return fx_f16_from_f32(back == x || x != x ? nearest : fx_float_from_bits(odd));
}
/* As ml_dtypes does, rounding twice. */
FX_FN uint16_t fx_bf16_from_f64(double x) { return fx_bf16_from_f32((float)x); }

/* fx_nextafter_f32 among the numbers of a half type; if two numbers are equal, which are zeros of
   two signs if they differ, NumPy gives the first and ml_dtypes the second. */
#define FX_NEXTAFTER(HALF, EQUAL)                                                                 \
    FX_FN float fx_nextafter_##HALF(float x, float y) {                                           \
        uint32_t bits = fx_##HALF##_from_f32(x), least = (fx_bits_f32(y) >> 16 & 0x8000u) | 1u;   \
        uint32_t moved = (x < y) == (x > 0.0f) ? bits + 1u : bits - 1u;                           \
        float next = fx_f32_from_##HALF((uint16_t)(x == 0.0f ? least : moved));                   \
        next = x == y ? EQUAL : next;                                                             \
        return x != x || y != y ? x + y : next;                                                   \
    }
FX_NEXTAFTER(f16, x)
FX_NEXTAFTER(bf16, y)
#undef FX_NEXTAFTER

/* ---- Checked indices ------------------------------------------------------------------------- */

#ifndef FX_ERROR_DEFINED
#define FX_ERROR_DEFINED
/** The codes of errors; 0 means that a call succeeded. */
enum {
    FX_INDEX_OUT_OF_RANGE = 1, /**< an index is out of range for its axis */
    FX_OUT_OF_MEMORY,          /**< there is not enough memory */
    FX_WRONG_PROCESSOR,        /**< the processor lacks instructions that the code was made for */
    FX_IMPOSSIBLE_SIZES,       /**< no call with these sizes is possible */
    FX_WRONG_WEIGHTS,          /**< the weights are not those that the code was made for */
    FX_NO_FACTORS              /**< a matrix is singular, or not positive definite */
};
/** Why a call failed. */
typedef struct {
    int code;      /**< 0 if it did not fail */
    int64_t value; /**< the index */
    int64_t limit; /**< how many elements the axis has */
    int64_t where; /**< the number of the place in the program; the header lists the places */
} fx_error;
#endif

#ifdef FX_ON_CUDA
FX_FN void fx_index_failed(int64_t i, int64_t extent, int64_t where, fx_error *error) {
    if (atomicCAS(&error->code, 0, FX_INDEX_OUT_OF_RANGE) == 0) {
        error->value = i;
        error->limit = extent;
        error->where = where;
    }
}
#else
#ifdef __GNUC__
#define FX_RARELY __attribute__((noinline, cold, unused)) static
#else
#define FX_RARELY static inline
#endif
/* Several threads may fail at once: the first one is reported. */
FX_RARELY void fx_index_failed(
    int64_t i, int64_t extent, int64_t where, fx_error *error) {
#ifdef _OPENMP
#pragma omp critical(fx_error)
#endif
    if (error->code == 0) {
        error->code = FX_INDEX_OUT_OF_RANGE;
        error->value = i;
        error->limit = extent;
        error->where = where;
    }
}
#endif

/* An index into an axis of `extent` elements; a negative one counts from the end. One out of range
   is recorded in *error, and -1 is returned. */
FX_FN int64_t fx_index(int64_t i, int64_t extent, int64_t where, fx_error *error) {
    if (i >= -extent && i < extent) return i < 0 ? i + extent : i;
    fx_index_failed(i, extent, where, error);
    return -1;
}

#endif
