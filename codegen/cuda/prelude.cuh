// prelude.cuh: what every emitted CUDA kernel may use besides CUDA C itself.
//
// What comes in: nothing; the file includes no header under NVRTC. What goes out: fixed-width
// integers, limits, FX_DYN_SHARED, and small __device__ functions (names start with fx_): NumPy's
// arithmetic rules where C's differ, bit conversions of the 16-bit float types, and reductions over
// a warp and a block in a fixed order. The same text compiles with NVRTC, with nvcc, and with g++
// through shim.h.
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define UINT64_MAX 18446744073709551615ull
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#else
#include <float.h>
#include <math.h>
#include <stdint.h>
#endif

// FX_DYN_SHARED(float, row): `float *row` is the dynamic shared memory of the block. Used twice in
// one kernel it names the same memory twice; a kernel that needs two arrays adds an offset.
#if defined(FX_CUDA_SHIM)
#define FX_DYN_SHARED(T, name) T *name = (T *)fx_shim::now.worker->dynamic_shared
#else
#define FX_DYN_SHARED(T, name)                                        \
    extern __shared__ __align__(16) unsigned char fx_dynamic_shared[]; \
    T *name = (T *)fx_dynamic_shared
#endif

// ---- Positions ----------------------------------------------------------------------------------

// The grid-stride loop: for (int64_t i = fx_thread_index(); i < n; i += fx_thread_count()) ...
// It is right for every one-dimensional grid and block.
__device__ inline int64_t fx_thread_index() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline int64_t fx_thread_count() { return (int64_t)gridDim.x * blockDim.x; }

// The thread's position in its block, and the block's size, over all three dimensions.
__device__ inline int fx_thread_in_block() {
    return (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
}
__device__ inline int fx_block_threads() { return (int)(blockDim.x * blockDim.y * blockDim.z); }

// Division of indices that may be negative: rounded down, with a remainder >= 0; b > 0.
__device__ inline int64_t fx_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
__device__ inline int64_t fx_floor_mod(int64_t a, int64_t b) { return a - fx_floor_div(a, b) * b; }

// ---- NumPy's scalar arithmetic ------------------------------------------------------------------

// The type of `true ? a : b`: bool, integers and floats of any width mix as in C.
template <typename A, typename B> using fx_common = decltype(true ? A() : B());

// np.maximum, np.minimum: NaN if either is NaN (fmaxf and fminf would drop it).
template <typename A, typename B> __device__ inline fx_common<A, B> fx_max(A a, B b) {
    return a >= b || a != a ? a : b;
}
template <typename A, typename B> __device__ inline fx_common<A, B> fx_min(A a, B b) {
    return a <= b || a != a ? a : b;
}

// np.sign: -1, 0 or 1; NaN stays NaN.
template <typename T> __device__ inline T fx_sign(T a) {
    return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == T(0) ? T(0) : a;
}

// np.floor_divide and np.remainder of integers: the quotient is rounded down, the remainder has
// the sign of the divisor, x / 0 and x % 0 are 0, and the lowest integer divided by -1 is itself.
template <typename A, typename B> __device__ inline fx_common<A, B> fx_floor_divide(A a, B b) {
    typedef fx_common<A, B> T;
    T x = a, y = b;
    if (y == T(0)) return T(0);
    if (T(-1) < T(0) && y == T(-1)) return (T)(0 - (uint64_t)x);
    T quotient = x / y;
    return x % y != T(0) && (x < T(0)) != (y < T(0)) ? quotient - T(1) : quotient;
}
template <typename A, typename B> __device__ inline fx_common<A, B> fx_remainder(A a, B b) {
    typedef fx_common<A, B> T;
    T x = a, y = b;
    if (y == T(0) || (T(-1) < T(0) && y == T(-1))) return T(0);
    T rest = x % y;
    return rest != T(0) && (rest < T(0)) != (y < T(0)) ? rest + y : rest;
}

// np.fmod of integers: the remainder has the sign of the dividend; x % 0 is 0.
template <typename A, typename B> __device__ inline fx_common<A, B> fx_fmod(A a, B b) {
    typedef fx_common<A, B> T;
    T x = a, y = b;
    return y == T(0) || (T(-1) < T(0) && y == T(-1)) ? T(0) : T(x % y);
}

// The same for floats, by the steps of NumPy's npy_divmod, so that every special case agrees.
template <typename T> __device__ inline T fx_float_remainder(T a, T b) {
    T rest = fmod(a, b);
    if (b == T(0)) return rest;
    if (rest == T(0)) return copysign(T(0), b);
    return (b < T(0)) != (rest < T(0)) ? rest + b : rest;
}
template <typename T> __device__ inline T fx_float_floor_divide(T a, T b) {
    if (b == T(0)) return a / b;
    T rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != T(0) && (b < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return copysign(T(0), a / b);
    T whole = floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
}
__device__ inline float fx_floor_divide(float a, float b) { return fx_float_floor_divide(a, b); }
__device__ inline double fx_floor_divide(double a, double b) { return fx_float_floor_divide(a, b); }
__device__ inline float fx_remainder(float a, float b) { return fx_float_remainder(a, b); }
__device__ inline double fx_remainder(double a, double b) { return fx_float_remainder(a, b); }
__device__ inline float fx_fmod(float a, float b) { return fmodf(a, b); }
__device__ inline double fx_fmod(double a, double b) { return fmod(a, b); }

// np.power of integers, wrapping on overflow; the exponent is not negative (NumPy refuses that).
template <typename T> __device__ inline T fx_integer_power(T base, T exponent) {
    uint64_t result = 1, factor = (uint64_t)base;
    for (uint64_t rest = (uint64_t)exponent; rest; rest >>= 1) {
        if (rest & 1) result *= factor;
        factor *= factor;
    }
    return (T)result;
}

// np.left_shift, np.right_shift: shifting by the width or more leaves no bit but the sign.
template <typename T> __device__ inline T fx_left_shift(T a, T count) {
    return (uint64_t)count < 8 * sizeof(T) ? (T)((uint64_t)a << count) : T(0);
}
template <typename T> __device__ inline T fx_right_shift(T a, T count) {
    return (uint64_t)count < 8 * sizeof(T) ? (T)(a >> count) : a < T(0) ? T(-1) : T(0);
}

// An index into an axis of `size` elements, where a negative one counts from the end as in NumPy.
// A bad index sets *error to at least `code` (> 0) and becomes 0. From an axis without elements
// nothing may be loaded: the caller checks `size > 0` before the launch.
__device__ inline int64_t fx_index(int64_t index, int64_t size, int *error, int code) {
    int64_t position = index < 0 ? index + size : index;
    if (position >= 0 && position < size) return position;
    atomicMax(error, code);
    return 0;
}

// ---- 16-bit floats: storage types ---------------------------------------------------------------

struct fx_float16 { uint16_t bits; };
struct fx_bfloat16 { uint16_t bits; };

__device__ inline float fx_to_float(fx_bfloat16 a) { return __uint_as_float((uint32_t)a.bits << 16); }

__device__ inline float fx_to_float(fx_float16 a) {
    uint32_t sign = (uint32_t)(a.bits & 0x8000u) << 16, magnitude = a.bits & 0x7fffu;
    if (magnitude >= 0x7c00u)  // infinity and NaN
        return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // Move exponent and fraction into place, then scale by 2^112 = the difference of the biases.
    float scaled = __uint_as_float(magnitude << 13) * __uint_as_float(0x77800000u);
    return __uint_as_float(sign | __float_as_uint(scaled));
}

// Round to nearest, ties to even; NaN stays NaN.
__device__ inline fx_bfloat16 fx_to_bfloat16(float a) {
    uint32_t bits = __float_as_uint(a);
    fx_bfloat16 result;
    if (a != a) result.bits = (uint16_t)(bits >> 16 | 0x40u);
    else result.bits = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    return result;
}

__device__ inline fx_float16 fx_to_float16(float a) {
    uint32_t bits = __float_as_uint(a), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) half = 0x7e00u | (magnitude >> 13 & 0x3ffu);   // NaN
    else if (magnitude >= 0x477ff000u) half = 0x7c00u;                          // too large
    else if (magnitude >= 0x38800000u)                                          // normal
        half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    else  // Subnormal: adding 0.5 makes the float adder round at the right bit.
        half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    fx_float16 result;
    result.bits = (uint16_t)(sign | half);
    return result;
}

// From double: first to float "to odd" (the last bit says whether anything was lost), so that the
// second rounding cannot turn a near-tie the wrong way.
__device__ inline float fx_round_to_odd(double a) {
    float nearest = (float)a;
    double back = (double)nearest;
    uint32_t bits = __float_as_uint(nearest);
    if (a != a || back == a) return nearest;
    if (fabs(back) > fabs(a)) bits -= 1u;
    return __uint_as_float(bits | 1u);
}
__device__ inline fx_float16 fx_to_float16(double a) { return fx_to_float16(fx_round_to_odd(a)); }
__device__ inline fx_bfloat16 fx_to_bfloat16(double a) {
    return fx_to_bfloat16(fx_round_to_odd(a));
}

// ---- Reductions ---------------------------------------------------------------------------------

struct fx_add_op { template <typename T> __device__ T operator()(T a, T b) const { return a + b; } };
struct fx_mul_op { template <typename T> __device__ T operator()(T a, T b) const { return a * b; } };
struct fx_max_op {
    template <typename T> __device__ T operator()(T a, T b) const { return fx_max(a, b); }
};
struct fx_min_op {
    template <typename T> __device__ T operator()(T a, T b) const { return fx_min(a, b); }
};

// One value per lane, combined over the 32 lanes of the calling warp; every lane gets the result.
// All 32 lanes must exist and call.
template <typename T, typename Combine>
__device__ inline T fx_warp_reduce(T value, Combine combine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

// One value per thread, combined over the block; every thread gets the result. All threads of the
// block must call, in uniform control flow; any block size and shape will do. The order depends on
// the block size only: the lanes of each warp as a tree, then the warps one after the other.
template <typename T, typename Combine>
__device__ inline T fx_block_reduce(T value, Combine combine) {
    __shared__ T partial[32];
    int thread = fx_thread_in_block(), threads = fx_block_threads();
    int lane = thread % 32, warps = (threads + 31) / 32;
    int lanes = threads - (thread - lane);  // in this warp: fewer than 32 in the last one
    unsigned mask = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1u;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        bool inside = lane + distance < lanes && lane < distance;
        T other = __shfl_sync(mask, value, inside ? lane + distance : lane);
        if (inside) value = combine(value, other);
    }
    __syncthreads();  // the readers of an earlier reduction are done with `partial`
    if (lane == 0) partial[thread / 32] = value;
    __syncthreads();
    T total = partial[0];
    for (int warp = 1; warp < warps; ++warp) total = combine(total, partial[warp]);
    return total;
}

template <typename T> __device__ inline T fx_warp_sum(T value) {
    return fx_warp_reduce(value, fx_add_op());
}
template <typename T> __device__ inline T fx_warp_max(T value) {  // NaN if any is NaN
    return fx_warp_reduce(value, fx_max_op());
}
template <typename T> __device__ inline T fx_warp_min(T value) {
    return fx_warp_reduce(value, fx_min_op());
}
template <typename T> __device__ inline T fx_block_sum(T value) {
    return fx_block_reduce(value, fx_add_op());
}
template <typename T> __device__ inline T fx_block_product(T value) {
    return fx_block_reduce(value, fx_mul_op());
}
template <typename T> __device__ inline T fx_block_max(T value) {  // NaN if any is NaN
    return fx_block_reduce(value, fx_max_op());
}
template <typename T> __device__ inline T fx_block_min(T value) {
    return fx_block_reduce(value, fx_min_op());
}

// Atomic maximum and minimum of floats, which CUDA lacks; NaN wins as in fx_max and fx_min.
// Returns the old value.
template <typename Combine>
__device__ inline float fx_atomic_combine(float *address, float value, Combine combine) {
    int seen = *(volatile int *)address, before;
    do {
        before = seen;
        int after = __float_as_int(combine(__int_as_float(before), value));
        seen = atomicCAS((int *)address, before, after);
    } while (seen != before);
    return __int_as_float(before);
}
__device__ inline float fx_atomic_max(float *address, float value) {
    return fx_atomic_combine(address, value, fx_max_op());
}
__device__ inline float fx_atomic_min(float *address, float value) {
    return fx_atomic_combine(address, value, fx_min_op());
}
