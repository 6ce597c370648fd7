/* What any program may need besides its kernels: arithmetic of sizes, a check of the processor,
 * and the amount of work from which threads are worthwhile. */

/* Quotient and remainder as in Python, for b > 0: rounded down, not towards zero. */
static inline int64_t fx_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static inline int64_t fx_floor_mod(int64_t a, int64_t b) { return a - fx_floor_div(a, b) * b; }

static inline int64_t fx_min(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t fx_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Quotient and remainder of sizes, rounded down; for a divisor of 0 NaN, which no size equals. */
static inline double fx_size_div(double a, double b) { return b > 0 ? floor(a / b) : NAN; }

static inline double fx_size_mod(double a, double b) { return a - fx_size_div(a, b) * b; }

/* Raise *largest to the bytes of a value, if it has more. False if such a value is impossible: a
   size is negative, its bytes cannot be counted, or it is empty but has axes over which a loop
   would run for hours. */
static bool fx_count(double *largest, bool stored, double bytes, int rank, const double *shape) {
    double counted = bytes; /* with empty axes counted as one element */
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

/* Whether the processor has these instructions: bits that `cpuid` reports for leaf 1 in ecx, for
 * leaf 7 in ebx and ecx, and for its second part in eax. Registers of AVX (bit 28 of the first)
 * and of AVX-512 (bit 16 of the second) are usable if the system saves them for a program. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
static int processor_has(uint32_t ecx_1, uint32_t ebx_7, uint32_t ecx_7, uint32_t eax_7)
{
    uint32_t a = 0, b = 0, c = 0, d = 0, kept = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & ecx_1) != ecx_1)
        return 0;
    if (c >> 27 & 1)
        __asm__ volatile("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
    const uint32_t needed = (ecx_1 >> 28 & 1) * 0x06 | (ebx_7 >> 16 & 1) * 0xe0;
    if ((kept & needed) != needed)
        return 0;
    a = b = c = 0;
    if ((ebx_7 | ecx_7) && (!__get_cpuid_count(7, 0, &a, &b, &c, &d)
                            || (b & ebx_7) != ebx_7 || (c & ecx_7) != ecx_7))
        return 0;
    return !eax_7 || (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & eax_7) == eax_7);
}
#endif

/* Whether this processor has the instructions that this file was compiled for. */
static inline int processor_fits(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    static int answer; /* 0: not known yet */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    uint32_t ecx_1 = 0, ebx_7 = 0, ecx_7 = 0, eax_7 = 0;
    if (known)
        return known > 0;
#ifdef __AVX__
    ecx_1 |= 1u << 28;
#endif
#ifdef __FMA__
    ecx_1 |= 1u << 12;
#endif
#ifdef __AVX2__
    ebx_7 |= 1u << 5;
#endif
#ifdef __AVX512F__
    ebx_7 |= 1u << 16;
#endif
#ifdef __AVX512DQ__
    ebx_7 |= 1u << 17;
#endif
#ifdef __AVX512BW__
    ebx_7 |= 1u << 30;
#endif
#ifdef __AVX512VL__
    ebx_7 |= 1u << 31;
#endif
#ifdef __AVX512VNNI__
    ecx_7 |= 1u << 11;
#endif
#ifdef __AVX512BF16__
    eax_7 |= 1u << 5;
#endif
    known = processor_has(ecx_1, ebx_7, ecx_7, eax_7) ? 1 : -1;
    __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    return known > 0;
#else
    return 1;
#endif
}

/* Operations (an addition counts as one, an exp as eight) for which a second thread is
 * worthwhile. */
enum { PARALLEL_OPERATIONS = 65536 };
