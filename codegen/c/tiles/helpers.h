/* What any program may need beside its kernels: arithmetic of sizes, whether the processor fits,
 * from where on threads pay. */

/* Quotient and remainder as Python has them, for b > 0: rounded down, not towards zero. */
static inline int64_t fx_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static inline int64_t fx_floor_mod(int64_t a, int64_t b) { return a - fx_floor_div(a, b) * b; }

static inline int64_t fx_min(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t fx_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Quotient and remainder of sizes, rounded down; NaN, which fits nowhere, for a divisor of 0. */
static inline double fx_size_div(double a, double b) { return b > 0 ? floor(a / b) : NAN; }

static inline double fx_size_mod(double a, double b) { return a - fx_size_div(a, b) * b; }

/* Enter the bytes of a value in those of the largest. False if there cannot be one: a size is
   negative, its bytes cannot be counted, or it has no elements but axes to loop over for hours. */
static bool fx_count(double *largest, bool stored, double bytes, int rank, const double *shape) {
    double counted = bytes; /* with empty axes as one element */
    bool empty = false;
    for (int axis = 0; axis < rank; axis++) {
        if (!(shape[axis] >= 0)) return false;
        if (shape[axis] >= 1) counted *= shape[axis];
        else empty = true;
    }
    if (empty) return counted <= 0x1p32;
    if (counted > (stored ? 0x1p47 : 0x1p56)) return false;
    if (stored && counted > *largest) *largest = counted;
    return true;
}

/* Whether this processor has the instructions that this file was compiled for. */
static inline int processor_fits(void)
{
    int fits = 1;
#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __AVX__
    fits &= __builtin_cpu_supports("avx") != 0;
#endif
#ifdef __AVX2__
    fits &= __builtin_cpu_supports("avx2") != 0;
#endif
#ifdef __FMA__
    fits &= __builtin_cpu_supports("fma") != 0;
#endif
#ifdef __AVX512F__
    fits &= __builtin_cpu_supports("avx512f") != 0;
#endif
#ifdef __AVX512BW__
    fits &= __builtin_cpu_supports("avx512bw") != 0;
#endif
#ifdef __AVX512DQ__
    fits &= __builtin_cpu_supports("avx512dq") != 0;
#endif
#ifdef __AVX512VL__
    fits &= __builtin_cpu_supports("avx512vl") != 0;
#endif
#ifdef __AVX512BF16__
    fits &= __builtin_cpu_supports("avx512bf16") != 0;
#endif
#ifdef __AVX512VNNI__
    fits &= __builtin_cpu_supports("avx512vnni") != 0;
#endif
#endif
    return fits;
}

/* Operations (an addition is one, an exp eight) from which a loop is worth a second thread. */
enum { PARALLEL_OPERATIONS = 65536 };
