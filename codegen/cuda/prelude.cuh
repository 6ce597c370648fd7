// prelude.cuh: what every emitted CUDA kernel may use besides CUDA C itself and fx_math.h.
//
// What comes in: nothing; the file includes no header under NVRTC. What goes out: fixed-width
// integers, limits, FX_DYN_SHARED, and small __device__ functions (names start with fx_): positions
// in the grid, division of indices, and reductions over a warp and a block in a fixed order. NumPy's
// scalar functions are in fx_math.h, which C and CUDA share. The same text compiles with NVRTC, with
// nvcc, and with g++ through shim.h.
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
#define FX_DYN_SHARED(T, name) T *name = (T *)fx_shim::now.dynamic_shared
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

// ---- Four numbers at once -----------------------------------------------------------------------

// The four bytes from an address that is divisible by 4 on, the first in the lowest bits.
#if defined(FX_CUDA_SHIM)
typedef int __attribute__((may_alias)) fx_quad_in_memory;
#else
typedef int fx_quad_in_memory;
#endif
__device__ inline int fx_quad(const void *bytes) { return *(const fx_quad_in_memory *)bytes; }

// The four floats from an address that is divisible by 16 on.
#if defined(FX_CUDA_SHIM)
__device__ inline float4 fx_four(const float *x) { return make_float4(x[0], x[1], x[2], x[3]); }
#else
__device__ inline float4 fx_four(const float *x) { return *(const float4 *)x; }
#endif

// ---- Larger and smaller -------------------------------------------------------------------------

// The type of `true ? a : b`: bool, integers and floats of any width mix as in C.
template <typename A, typename B> using fx_common = decltype(true ? A() : B());

// np.maximum, np.minimum: NaN if either is NaN (fmaxf and fminf would drop it).
template <typename A, typename B>
__host__ __device__ inline fx_common<A, B> fx_max(A a, B b) {
    return a >= b || a != a ? a : b;
}
template <typename A, typename B>
__host__ __device__ inline fx_common<A, B> fx_min(A a, B b) {
    return a <= b || a != a ? a : b;
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

// The value of another lane; complex numbers, which no instruction moves, have their own.
template <typename T> __device__ inline T fx_shuffle(unsigned mask, T value, int lane) {
    return __shfl_sync(mask, value, lane);
}

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
        T other = fx_shuffle(mask, value, inside ? lane + distance : lane);
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
