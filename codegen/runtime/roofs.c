/* The most that this machine can do: one rate per run.

   usage: roofs WHAT THREADS SECONDS BYTES

   WHAT is fma_f32, fma_f64, pairs_int8, dot_int8, tile_int8, tile_bf16, read or write; BYTES is the
   size of the array of the last two. Prints the best rate of a few milliseconds out of SECONDS: operations per
   second, a multiply-add counting as two, or bytes per second; 0 for what this CPU cannot do. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__AMX_INT8__) || defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 64 };
#elif defined(__AVX__)
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif
typedef float f32s __attribute__((vector_size(WIDTH)));
typedef double f64s __attribute__((vector_size(WIDTH)));
typedef int64_t i64s __attribute__((vector_size(WIDTH), may_alias));

/* Chains that do not wait for one another: more than latency times units of today's CPUs, and few
   enough for the 16 registers of AVX2. */
enum { CHAINS = 12, ROUNDS = 20000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The value must be in a register here, and may have changed: nothing before or after is merged. */
#define KEEP(value) __asm__ volatile("" : "+x"(value))
#if !defined(__x86_64__)
#undef KEEP
#define KEEP(value) __asm__ volatile("" : "+w"(value))
#endif

/* Each returns the operations that it did. */
static double fma_f32(void) {
    f32s sum[CHAINS], factor = {0}, term = {0};
    for (int c = 0; c < CHAINS; c++) sum[c] = term;
    KEEP(factor);
    KEEP(term);
    for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * factor + term;
    for (int c = 0; c < CHAINS; c++) KEEP(sum[c]);
    return 2.0 * (WIDTH / 4) * CHAINS * ROUNDS;
}

static double fma_f64(void) {
    f64s sum[CHAINS], factor = {0}, term = {0};
    for (int c = 0; c < CHAINS; c++) sum[c] = term;
    KEEP(factor);
    KEEP(term);
    for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * factor + term;
    for (int c = 0; c < CHAINS; c++) KEEP(sum[c]);
    return 2.0 * (WIDTH / 8) * CHAINS * ROUNDS;
}

/* Without VNNI: products of u8 and s8 that are widened to 16 bits, two of which are added to an i32
   at once. The numbers of one operand are widened for each two sums, as the kernels do for each row
   of a tile; those of the other one are kept wide. */
#if defined(__AVX512BW__)
#define ADD_PAIRS _mm512_madd_epi16
typedef __m512i pairs;
#elif defined(__AVX2__) && !defined(__AVX512F__)
#define ADD_PAIRS _mm256_madd_epi16
typedef __m256i pairs;
#elif defined(__SSE2__) && !defined(__AVX__)
#define ADD_PAIRS _mm_madd_epi16
typedef __m128i pairs;
#endif

static double pairs_int8(void) {
#if defined(ADD_PAIRS)
    typedef int32_t i32s __attribute__((vector_size(sizeof(pairs))));
    i32s sum[CHAINS], a = {0}, even_b = {0}, odd_b = {0};
    for (int c = 0; c < CHAINS; c++) sum[c] = a;
    for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c += 2) {
            KEEP(a);
            const pairs even = (pairs)(a & 0x00ff00ff), odd = (pairs)(a >> 8 & 0x00ff00ff);
#pragma GCC unroll 2
            for (int v = 0; v < 2; v++) {
                KEEP(even_b);
                KEEP(odd_b);
                sum[c + v] += (i32s)ADD_PAIRS(even, (pairs)even_b);
                sum[c + v] += (i32s)ADD_PAIRS(odd, (pairs)odd_b);
            }
        }
    for (int c = 0; c < CHAINS; c++) KEEP(sum[c]);
    return 2.0 * sizeof(pairs) * CHAINS * ROUNDS;
#else
    return 0;
#endif
}

/* VNNI: products of u8 and s8, four of which are added to an i32. */
static double dot_int8(void) {
#if defined(__AVX512VNNI__)
    __m512i sum[CHAINS], a = _mm512_setzero_si512(), b = a;
    for (int c = 0; c < CHAINS; c++) sum[c] = a;
    KEEP(a);
    KEEP(b);
    for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sum[c] = _mm512_dpbusd_epi32(sum[c], a, b);
    for (int c = 0; c < CHAINS; c++) KEEP(sum[c]);
    return 2.0 * 64 * CHAINS * ROUNDS;
#elif defined(__AVXVNNI__)
    __m256i sum[CHAINS], a = _mm256_setzero_si256(), b = a;
    for (int c = 0; c < CHAINS; c++) sum[c] = a;
    KEEP(a);
    KEEP(b);
    for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sum[c] = _mm256_dpbusd_avx_epi32(sum[c], a, b);
    for (int c = 0; c < CHAINS; c++) KEEP(sum[c]);
    return 2.0 * 32 * CHAINS * ROUNDS;
#else
    return 0;
#endif
}

/* AMX: four sums of 16 x 16, from two tiles of rows and two of columns, 64 bytes of each row. */
#if defined(__AMX_INT8__) || defined(__AMX_BF16__)
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} TileConfig;

/* Linux gives a process the tile registers when it asks (ARCH_REQ_XCOMP_PERM, XTILEDATA). */
static int take_tiles(void) {
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return 0;
    /* A constant: GCC takes _tile_loadconfig to read 8 bytes, and drops stores to the others. */
    static const TileConfig config = {
        .palette = 1,
        .bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    return 1;
}
#endif

static double tile_int8(void) {
#if defined(__AMX_INT8__)
    if (!take_tiles()) return 0;
    for (int round = 0; round < ROUNDS; round++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return 2.0 * 4 * 16 * 16 * 64 * ROUNDS;
#else
    return 0;
#endif
}

static double tile_bf16(void) {
#if defined(__AMX_BF16__)
    if (!take_tiles()) return 0;
    for (int round = 0; round < ROUNDS; round++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 2.0 * 4 * 16 * 16 * 32 * ROUNDS;
#else
    return 0;
#endif
}

/* Vectors that are read or written at a time: a few microseconds of work, a multiple of 8. */
enum { CHUNK = 1 << 14 };

static double read_chunk(const i64s *chunk) {
    i64s sum[8] = {{0}};
    for (int i = 0; i < CHUNK; i += 8)
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) sum[c] ^= chunk[i + c];
    for (int c = 0; c < 8; c++) KEEP(sum[c]);
    return (double)CHUNK * WIDTH;
}

static double write_chunk(i64s *chunk) {
    i64s value = {0};
    KEEP(value);
    for (int i = 0; i < CHUNK; i++) {
        chunk[i] = value;
        __asm__ volatile("" : : : "memory");
    }
    return (double)CHUNK * WIDTH;
}

typedef enum { FMA_F32, FMA_F64, PAIRS_INT8, DOT_INT8, TILE_INT8, TILE_BF16, READ, WRITE, KINDS } Kind;
static const char *const names[KINDS] = {
    "fma_f32", "fma_f64", "pairs_int8", "dot_int8", "tile_int8", "tile_bf16", "read", "write"
};

static double work(Kind what, i64s *chunk) {
    switch (what) {
    case FMA_F32: return fma_f32();
    case FMA_F64: return fma_f64();
    case PAIRS_INT8: return pairs_int8();
    case DOT_INT8: return dot_int8();
    case TILE_INT8: return tile_int8();
    case TILE_BF16: return tile_bf16();
    case READ: return read_chunk(chunk);
    default: return write_chunk(chunk);
    }
}

/* What one thread has done so far, in a cache line of its own. */
typedef struct { _Alignas(64) double done; } Progress;

/* Threads work on without waiting for one another, and the first one looks at all of them every
   WINDOW seconds: if other programs want the processors, too, some windows are undisturbed. */
static const double WINDOW = 5e-3;

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int what = 0;
    while (what < KINDS && strcmp(argv[1], names[what])) what++;
    int threads = atoi(argv[2]);
    double seconds = atof(argv[3]);
    if (what == KINDS || threads < 1 || threads > 4096) return 2;
    int64_t bytes = what < READ ? 0 : atoll(argv[4]);
    int64_t chunks = (bytes / threads + CHUNK * WIDTH - 1) / (CHUNK * WIDTH);  // of each thread
    i64s *array = NULL;
    size_t size = (size_t)(chunks * threads) * CHUNK * WIDTH;
    if (size && posix_memalign((void **)&array, 4096, size)) return 1;

    Progress *progress = aligned_alloc(64, (size_t)threads * sizeof *progress);
    if (!progress) return 1;
    for (int t = 0; t < threads; t++) progress[t].done = 0;
    double best = 0;
    int started = 0, going = 1;
#pragma omp parallel num_threads(threads)
    {
        int thread;
#pragma omp atomic capture
        thread = started++;
        i64s *part = array + thread * chunks * CHUNK;
        if (chunks) memset(part, 1, (size_t)chunks * CHUNK * WIDTH);  // its pages lie near it
        int64_t chunk = 0;
        double done = 0, before = 0, stop = 0, window = 0;
        work((Kind)what, part);  // warm up
#pragma omp barrier
        if (thread == 0) {
            window = now();
            stop = window + seconds;
        }
        for (int more = 1; more;) {
            done += work((Kind)what, part + chunk * CHUNK);
            if (++chunk >= chunks) chunk = 0;
#pragma omp atomic write
            progress[thread].done = done;
            double time = thread == 0 ? now() : 0;
            if (thread == 0 && time >= window + WINDOW) {
                double total = 0;
                for (int t = 0; t < threads; t++) {
                    double each;
#pragma omp atomic read
                    each = progress[t].done;
                    total += each;
                }
                double rate = (total - before) / (time - window);
                if (rate > best) best = rate;
                before = total;
                window = time;
                if (time >= stop) {
#pragma omp atomic write
                    going = 0;
                }
            }
#pragma omp atomic read
            more = going;
        }
    }
    printf("%.6e\n", best);
    free(progress);
    free(array);
    return 0;
}
