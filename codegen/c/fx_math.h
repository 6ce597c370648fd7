/* fx_math.h: the scalar functions that emitted code calls, in NumPy's meaning.

   In: nothing but the compiler. Out: small functions fx_FUNCTION_DTYPE (dtypes f32 f64 i8 i16 i32 i64
   u8 bool), fx_cast_FROM_TO, conversions of the two 16-bit float storage types, and fx_index. They are
   plain scalar code without branches, so that gcc turns a loop that calls them into SIMD code
   (-O3 -march=native -fno-math-errno -fno-trapping-math -fwrapv; never -ffast-math). The text is the
   common subset of C11, C++17 and CUDA C; under NVRTC include prelude.cuh first, for the integer types. */
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

/* ---- Bits ---------------------------------------------------------------------------------------- */

#ifdef FX_ON_CUDA
FX_FN uint32_t fx_bits_f32(float x) { return __float_as_uint(x); }
FX_FN float fx_float_from_bits(uint32_t bits) { return __uint_as_float(bits); }
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
#endif

/* ---- Floats: exact functions --------------------------------------------------------------------- */

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

/* np.maximum, np.minimum: NaN if either is NaN (fmaxf would drop it). `a > b ? a : b` is b when b is
   NaN, so only a has to be looked at. */
FX_FN float fx_maximum_f32(float a, float b) {
    float larger = a > b ? a : b;
    return a != a ? a : larger;
}
FX_FN double fx_maximum_f64(double a, double b) {
    double larger = a > b ? a : b;
    return a != a ? a : larger;
}
FX_FN float fx_minimum_f32(float a, float b) {
    float smaller = a < b ? a : b;
    return a != a ? a : smaller;
}
FX_FN double fx_minimum_f64(double a, double b) {
    double smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

/* np.remainder: the sign of the divisor, also on zeros; NaN for a zero divisor. */
FX_FN float fx_mod_f32(float a, float b) {
    float rest = fmodf(a, b);
    float moved = (b < 0.0f) != (rest < 0.0f) ? rest + b : rest;
    float nonzero = rest == 0.0f ? copysignf(0.0f, b) : moved;
    return b == 0.0f ? rest : nonzero;
}
FX_FN double fx_mod_f64(double a, double b) {
    double rest = fmod(a, b);
    double moved = (b < 0.0) != (rest < 0.0) ? rest + b : rest;
    double nonzero = rest == 0.0 ? copysign(0.0, b) : moved;
    return b == 0.0 ? rest : nonzero;
}

/* np.floor_divide, by the steps of NumPy's npy_divmod so that every special case agrees: a / 0 is the
   true quotient, a zero has the sign of the true quotient. */
FX_FN float fx_floordiv_f32(float a, float b) {
    float rest = fmodf(a, b);
    float quotient = (a - rest) / b;
    quotient = rest != 0.0f && (b < 0.0f) != (rest < 0.0f) ? quotient - 1.0f : quotient;
    float whole = floorf(quotient);
    whole = quotient - whole > 0.5f ? whole + 1.0f : whole;
    whole = quotient == 0.0f ? copysignf(0.0f, a / b) : whole;
    return b == 0.0f ? a / b : whole;
}
FX_FN double fx_floordiv_f64(double a, double b) {
    double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    quotient = rest != 0.0 && (b < 0.0) != (rest < 0.0) ? quotient - 1.0 : quotient;
    double whole = floor(quotient);
    whole = quotient - whole > 0.5 ? whole + 1.0 : whole;
    whole = quotient == 0.0 ? copysign(0.0, a / b) : whole;
    return b == 0.0 ? a / b : whole;
}

/* ---- Floats: elementary functions ---------------------------------------------------------------- */

FX_FN float fx_exp_f32(float x) { return expf(x); }
FX_FN float fx_expm1_f32(float x) { return expm1f(x); }
FX_FN float fx_log_f32(float x) { return logf(x); }
FX_FN float fx_log1p_f32(float x) { return log1pf(x); }
FX_FN float fx_tanh_f32(float x) { return tanhf(x); }
FX_FN float fx_erf_f32(float x) { return erff(x); }
FX_FN float fx_sigmoid_f32(float x) { return 1.0f / (1.0f + expf(-x)); }
FX_FN float fx_sin_f32(float x) { return sinf(x); }
FX_FN float fx_cos_f32(float x) { return cosf(x); }
FX_FN float fx_pow_f32(float x, float y) { return powf(x, y); }
FX_FN float fx_tan_f32(float x) { return tanf(x); }
FX_FN float fx_sinh_f32(float x) { return sinhf(x); }
FX_FN float fx_cosh_f32(float x) { return coshf(x); }
FX_FN float fx_asin_f32(float x) { return asinf(x); }
FX_FN float fx_acos_f32(float x) { return acosf(x); }
FX_FN float fx_atan_f32(float x) { return atanf(x); }
FX_FN float fx_atan2_f32(float y, float x) { return atan2f(y, x); }

FX_FN double fx_exp_f64(double x) { return exp(x); }
FX_FN double fx_expm1_f64(double x) { return expm1(x); }
FX_FN double fx_log_f64(double x) { return log(x); }
FX_FN double fx_log1p_f64(double x) { return log1p(x); }
FX_FN double fx_tanh_f64(double x) { return tanh(x); }
FX_FN double fx_erf_f64(double x) { return erf(x); }
FX_FN double fx_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
FX_FN double fx_sin_f64(double x) { return sin(x); }
FX_FN double fx_cos_f64(double x) { return cos(x); }
FX_FN double fx_tan_f64(double x) { return tan(x); }
FX_FN double fx_sinh_f64(double x) { return sinh(x); }
FX_FN double fx_cosh_f64(double x) { return cosh(x); }
FX_FN double fx_asin_f64(double x) { return asin(x); }
FX_FN double fx_acos_f64(double x) { return acos(x); }
FX_FN double fx_atan_f64(double x) { return atan(x); }
FX_FN double fx_atan2_f64(double y, double x) { return atan2(y, x); }
FX_FN double fx_pow_f64(double x, double y) { return pow(x, y); }

/* ---- Integers ------------------------------------------------------------------------------------ */

/* NumPy's rules: results wrap; the quotient is rounded down and the remainder has the sign of the
   divisor; x / 0 and x % 0 are 0, and the lowest integer divided by -1 is itself. Shifting by the
   width or more (or by a negative count) leaves nothing but the sign. A negative exponent, which
   NumPy refuses, gives the truncated reciprocal: 1, -1 or 0. All arithmetic that may overflow is done
   on unsigned integers of at least int's width, which is defined without -fwrapv. */
#define FX_INTEGER_FUNCTIONS(NAME, T, WIDE, BITS)                                            \
    FX_FN T fx_add_##NAME(T a, T b) { return (T)((WIDE)a + (WIDE)b); }                       \
    FX_FN T fx_sub_##NAME(T a, T b) { return (T)((WIDE)a - (WIDE)b); }                       \
    FX_FN T fx_mul_##NAME(T a, T b) { return (T)((WIDE)a * (WIDE)b); }                       \
    FX_FN T fx_neg_##NAME(T a) { return (T)(0 - (WIDE)a); }                                  \
    FX_FN T fx_abs_##NAME(T a) { return a < 0 ? (T)(0 - (WIDE)a) : a; }                      \
    FX_FN T fx_sign_##NAME(T a) { return (T)((a > 0) - (a < 0)); }                           \
    FX_FN T fx_maximum_##NAME(T a, T b) { return a > b ? a : b; }                            \
    FX_FN T fx_minimum_##NAME(T a, T b) { return a < b ? a : b; }                            \
    FX_FN T fx_shl_##NAME(T a, T count) {                                                    \
        T kept = count >= 0 && count < BITS ? count : (T)0;                                  \
        return kept == count ? (T)((WIDE)a << kept) : (T)0;                                  \
    }                                                                                        \
    FX_FN T fx_shr_##NAME(T a, T count) {                                                    \
        T kept = count >= 0 && count < BITS ? count : (T)(BITS - 1);                         \
        return (T)((T)(-1) > 0 && kept != count ? 0 : a >> kept);                            \
    }                                                                                        \
    FX_FN T fx_floordiv_##NAME(T a, T b) {                                                   \
        if (b == 0) return 0;                                                                \
        if (b == (T)(-1) && (T)(-1) < 0) return (T)(0 - (WIDE)a);                            \
        return (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));                              \
    }                                                                                        \
    FX_FN T fx_mod_##NAME(T a, T b) {                                                        \
        if (b == 0 || (b == (T)(-1) && (T)(-1) < 0)) return 0;                               \
        T rest = (T)(a % b);                                                                 \
        return (T)(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);                    \
    }                                                                                        \
    FX_FN T fx_pow_##NAME(T base, T exponent) {                                              \
        if (exponent < 0)                                                                    \
            return base == 1 ? (T)1 : base == (T)(-1) ? (T)(exponent & 1 ? -1 : 1) : (T)0;   \
        WIDE result = 1, factor = (WIDE)base;                                                \
        for (WIDE rest = (WIDE)exponent; rest != 0; rest >>= 1) {                            \
            result *= rest & 1 ? factor : 1;                                                 \
            factor *= factor;                                                                \
        }                                                                                    \
        return (T)result;                                                                    \
    }

FX_INTEGER_FUNCTIONS(i8, int8_t, uint32_t, 8)
FX_INTEGER_FUNCTIONS(i16, int16_t, uint32_t, 16)
FX_INTEGER_FUNCTIONS(i32, int32_t, uint32_t, 32)
FX_INTEGER_FUNCTIONS(i64, int64_t, uint64_t, 64)
FX_INTEGER_FUNCTIONS(u8, uint8_t, uint32_t, 8)

FX_FN unsigned char fx_maximum_bool(unsigned char a, unsigned char b) { return a | b; }
FX_FN unsigned char fx_minimum_bool(unsigned char a, unsigned char b) { return a & b; }
FX_FN unsigned char fx_abs_bool(unsigned char a) { return a; }

/* ---- Casts --------------------------------------------------------------------------------------- */

/* Float to integer where the value may not fit: what x86-64 and so NumPy there gives, the lowest
   integer. 8 and 16 bits go through 32 and wrap. */
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
FX_FN uint8_t fx_cast_f32_u8(float x) { return (uint8_t)fx_cast_f32_i32(x); }
FX_FN uint8_t fx_cast_f64_u8(double x) { return (uint8_t)fx_cast_f64_i32(x); }

/* ---- 16-bit floats: storage types ---------------------------------------------------------------- */

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

/* ---- Checked indices ----------------------------------------------------------------------------- */

#ifndef FX_ERROR_DEFINED
#define FX_ERROR_DEFINED
/* Why a call failed; code 0 means that it did not, 1 an index out of range (`value`, for an axis of
   `limit` elements, at the place number `where`), 2 out of memory. */
typedef struct { int code; int64_t value; int64_t limit; int64_t where; } fx_error;
#endif

#ifdef FX_ON_CUDA
FX_FN void fx_index_failed(int64_t i, int64_t extent, int64_t where, fx_error *error) {
    if (atomicCAS(&error->code, 0, 1) == 0) {
        error->value = i;
        error->limit = extent;
        error->where = where;
    }
}
#else
/* Several threads may fail at once: the first one is reported. */
__attribute__((noinline, cold, unused)) static void fx_index_failed(
    int64_t i, int64_t extent, int64_t where, fx_error *error) {
#ifdef _OPENMP
#pragma omp critical(fx_error)
#endif
    if (error->code == 0) {
        error->code = 1;
        error->value = i;
        error->limit = extent;
        error->where = where;
    }
}
#endif

/* An index into an axis of `extent` elements; a negative one counts from the end. One out of range is
   recorded in *error, and -1 is returned. */
FX_FN int64_t fx_index(int64_t i, int64_t extent, int64_t where, fx_error *error) {
    if (i >= -extent && i < extent) return i < 0 ? i + extent : i;
    fx_index_failed(i, extent, where, error);
    return -1;
}

#endif
