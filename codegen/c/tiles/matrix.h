/* The matrix tile, the one loop nest in which every product spends its time, and the functions
 * that bring operands that were not packed at compile time into the layout that it reads.
 *
 * It needs no header except <stdint.h>, no OpenMP, and no intrinsics. Compile with -std=gnu11 (or
 * later): under -std=c11 GCC does not fuse multiplications and additions.
 *
 * Why this tile: measured on a Zen 4 core (one 64-byte FMA per cycle, peak 117.5 GFLOP/s), 3 to
 * 11 rows by 2 vectors run at 116 to 118 GFLOP/s with A read in place (no packing of A). From 12
 * rows on GCC 12 spills row addresses and loses 7 %. B's panel rows are 128 bytes on every
 * target, so packed weights do not depend on the machine: a narrower target walks the panel in
 * several steps. */

#if INSTANCE == 0
#define T float
#define INDEX int32_t
#define PANEL 32
#define LANEMASK uint16_t
#define LOAD_LANES __builtin_ia32_loadups512_mask
#define STORE_LANES __builtin_ia32_storeups512_mask
#else
#define T double
#define INDEX int64_t
#define PANEL 16
#define LANEMASK uint8_t
#define LOAD_LANES __builtin_ia32_loadupd512_mask
#define STORE_LANES __builtin_ia32_storeupd512_mask
#endif

/* Elements of vectors, including types that are copied and not multiplied. */
#if INSTANCE == 0
#define E float
#define ORDER int32_t
#define BITS 32
#elif INSTANCE == 1
#define E double
#define ORDER int64_t
#define BITS 64
#elif INSTANCE == 2
#define E int32_t
#define ORDER int32_t
#define BITS 32
#else
#define E int64_t
#define ORDER int64_t
#define BITS 64
#endif

/* Vectors in which a tile is computed. */
#if INSTANCE == 0
#define V T_vec
#else
#define V T_half
#endif

/* ---- Matrix tiles: what every matrix product and convolution below is built from ---------- */

/* Bytes of a vector register. Vectors are an extension of GCC's, which Clang has, too; elsewhere,
 * and with -DVECTOR_BYTES=4, a vector has one lane: it is a number, and this is plain C99. */
#if defined(VECTOR_BYTES)
#elif !defined(__GNUC__) || defined(__TINYC__)
#define VECTOR_BYTES 4
#elif defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* Rows of a tile: two vectors of sums for each row, the operands and a few addresses fill the
 * registers (32 of them, or 16). */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { TILE_ROWS = 11 };
#else
enum { TILE_ROWS = 6 };
#endif

/* ALIGNED: for arrays that are read and written in whole cache lines, and for types that may lie at
 * any address. MAY_ALIAS: for types whose memory may be read as another type. */
#ifdef __GNUC__
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define MAY_ALIAS __attribute__((may_alias))
#else
#define ALIGNED(bytes)
#define MAY_ALIAS
#endif

/* Follows the name of a type to make it a vector of that type, whose elements may be read from
 * memory of any type. */
#if VECTOR_BYTES > 4
#define VECTOR(bytes, alignment) __attribute__((vector_size(bytes))) ALIGNED(alignment) MAY_ALIAS
#else
#define VECTOR(bytes, alignment) MAY_ALIAS
#endif

/* MASK: a comparison of vectors, with all bits of a lane set where it is true. LANE: one element of
 * a vector. CONVERT: the values of a vector as another type. */
#if VECTOR_BYTES > 4
#define MASK(comparison) (comparison)
#define LANE(vector, number) (vector)[number]
#define CONVERT(vector, type) __builtin_convertvector(vector, type)
#else
#define MASK(comparison) (-(comparison))
#define LANE(vector, number) (vector)
#define CONVERT(vector, type) ((type)(vector))
#endif

/* The number of multiply-adds from which a second thread pays. A core takes 7 us for them; starting
 * and awaiting threads takes 1 us if they are awake, and several if they are not. */
enum { PARALLEL_PRODUCTS = 400000 };

/* How many products are added one after the other in a register, and how many such blocks are added
 * to one sum (docs/numerics.md). Longer sums keep track of their rounding errors. */
enum { SUM_STEPS = 512, SUM_BLOCKS = 16 };

#ifdef _OPENMP
int omp_get_thread_num(void);
#endif

/* Hides from the compiler how a pointer was computed. The rows of a tile are addressed from two
 * pointers: from a single one, the distances of eleven rows take more registers than there are, and
 * GCC keeps them in vector registers (measured: 102 GFLOP/s instead of 115). */
static inline const void *opaque_pointer(const void *pointer)
{
#if VECTOR_BYTES > 4
    __asm__("" : "+r"(pointer));
#endif
    return pointer;
}

/* Prefetches a cache line: for writing if `writes` is 1, and into the first-level cache if `level`
 * is 3, or into a lower one. */
#ifdef __GNUC__
#define PREFETCH(address, writes, level) __builtin_prefetch(address, writes, level)
#else
#define PREFETCH(address, writes, level) ((void)(address))
#endif

/* Prefetches one of `parts` equal parts of memory into the second-level cache. */
static inline void prefetch_part(const void *from, int64_t bytes, int64_t part, int64_t parts)
{
    const char *const start = from;
    for (int64_t at = part * bytes / parts / 64 * 64; at < (part + 1) * bytes / parts; at += 64)
        PREFETCH(start + at, 0, 2);
}

/* For tiles: one copy of the code for all callers, which starts on a cache line, because the place
 * of the inner loop within a line was seen to make a difference of 4 % (20 % for depthwise). */
#if defined(__clang__)
#define TILE_FUNCTION __attribute__((noinline, unused, aligned(64)))
#elif defined(__GNUC__)
#define TILE_FUNCTION __attribute__((noinline, noclone, unused, aligned(64)))
#else
#define TILE_FUNCTION
#endif

/* For what a tile consists of: constants among its arguments are known where it is inlined. */
#ifdef __GNUC__
#define TILE_INLINE inline __attribute__((always_inline))
#else
#define TILE_INLINE inline
#endif

/* The vector of those elements of a (numbered from 0) and b (following a's) that are listed. */
#ifdef __clang__
#define SHUFFLE(index, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(index, a, b, ...) __builtin_shuffle(a, b, (index){__VA_ARGS__})
#endif

/* The cases of a switch over the number of rows of a tile, so that it is a constant where
 * `function` is inlined: function(rows, vectors, split, ...), where the sums of few rows are split
 * to hide the latency of the FMA; and the same without `split`. More than six rows need 32 vector
 * registers. */
#define ROW_CASE(function, ...) function(__VA_ARGS__); break;
#define CASES_7_TO_11(function, vectors, ...) \
    case 7: ROW_CASE(function, 7, vectors, __VA_ARGS__) \
    case 8: ROW_CASE(function, 8, vectors, __VA_ARGS__) \
    case 9: ROW_CASE(function, 9, vectors, __VA_ARGS__) \
    case 10: ROW_CASE(function, 10, vectors, __VA_ARGS__) \
    case 11: ROW_CASE(function, 11, vectors, __VA_ARGS__)
#if defined(__AVX512F__) || defined(__aarch64__)
#define MORE_ROW_CASES CASES_7_TO_11
#else
#define MORE_ROW_CASES(function, vectors, ...)
#endif
#define ROW_CASES(function, vectors, ...) \
    case 1: ROW_CASE(function, 1, vectors, 4, __VA_ARGS__) \
    case 2: ROW_CASE(function, 2, vectors, 2, __VA_ARGS__) \
    case 3: ROW_CASE(function, 3, vectors, 2, __VA_ARGS__) \
    case 4: ROW_CASE(function, 4, vectors, 1, __VA_ARGS__) \
    case 5: ROW_CASE(function, 5, vectors, 1, __VA_ARGS__) \
    case 6: ROW_CASE(function, 6, vectors, 1, __VA_ARGS__) \
    MORE_ROW_CASES(function, vectors, 1, __VA_ARGS__)
#define PIXEL_CASES(function, vectors, ...) \
    case 1: ROW_CASE(function, 1, vectors, __VA_ARGS__) \
    case 2: ROW_CASE(function, 2, vectors, __VA_ARGS__) \
    case 3: ROW_CASE(function, 3, vectors, __VA_ARGS__) \
    case 4: ROW_CASE(function, 4, vectors, __VA_ARGS__) \
    case 5: ROW_CASE(function, 5, vectors, __VA_ARGS__) \
    case 6: ROW_CASE(function, 6, vectors, __VA_ARGS__) \
    MORE_ROW_CASES(function, vectors, __VA_ARGS__)

/* Tiles of one vector have twice as many rows: as many sums are then added to in turn, and fewer
 * loads of B are added to those of A, of which each product needs one. */
enum { NARROW_ROWS = 2 * TILE_ROWS };

/* The cases of more than TILE_ROWS rows. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define NARROW_CASES(function, ...) \
    case 12: ROW_CASE(function, 12, 1, __VA_ARGS__) \
    case 13: ROW_CASE(function, 13, 1, __VA_ARGS__) \
    case 14: ROW_CASE(function, 14, 1, __VA_ARGS__) \
    case 15: ROW_CASE(function, 15, 1, __VA_ARGS__) \
    case 16: ROW_CASE(function, 16, 1, __VA_ARGS__) \
    case 17: ROW_CASE(function, 17, 1, __VA_ARGS__) \
    case 18: ROW_CASE(function, 18, 1, __VA_ARGS__) \
    case 19: ROW_CASE(function, 19, 1, __VA_ARGS__) \
    case 20: ROW_CASE(function, 20, 1, __VA_ARGS__) \
    case 21: ROW_CASE(function, 21, 1, __VA_ARGS__) \
    case 22: ROW_CASE(function, 22, 1, __VA_ARGS__)
#else
#define NARROW_CASES(function, ...) \
    CASES_7_TO_11(function, 1, __VA_ARGS__) \
    case 12: ROW_CASE(function, 12, 1, __VA_ARGS__)
#endif

/* The number of the calling thread in its team; 0 when compiled without OpenMP. */
static inline int64_t this_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Bytes of a core's second-level cache; fxlite gives its machine's with -DL2_BYTES. */
#ifndef L2_BYTES
#define L2_BYTES 1048576
#endif

/* The number of blocks of whole row tiles into which a product is divided. The rows of A in a block
 * must fit in half of the second-level cache, where they stay for all panels of B. The blocks times
 * `other_tasks` must give each thread at least four tasks, and the thread with the most tasks as
 * few tiles as possible. */
static inline int64_t count_row_blocks(int64_t row_tiles, int64_t tile_bytes,
                                       int64_t other_tasks, int n_threads)
{
    const int64_t for_cache = row_tiles * tile_bytes / (L2_BYTES / 2) + 1;
    const int64_t for_threads =
        n_threads > 1 && other_tasks > 0 ? (4 * n_threads - 1) / other_tasks + 1 : 1;
    const int64_t least = for_cache > for_threads ? for_cache : for_threads;
    if (least >= row_tiles || n_threads == 1)
        return least < row_tiles ? least : row_tiles;
    int64_t best = least, fewest = INT64_MAX;
    for (int64_t blocks = least; blocks <= row_tiles && blocks < least + 2 * n_threads; blocks++) {
        const int64_t tasks = (blocks * other_tasks + n_threads - 1) / n_threads;
        const int64_t tiles = tasks * ((row_tiles + blocks - 1) / blocks);
        if (tiles < fewest)
            best = blocks, fewest = tiles;
    }
    return best;
}

/* The number of blocks into which the panels are divided if K is divided (each block reads all
 * rows of A): one, if `tiles` tiles of rows are enough for the threads. */
static inline int64_t count_panel_blocks(int64_t panels, int64_t tiles,
                                                                 int n_threads)
{
    return tiles >= 4 * n_threads ? 1 : panels < n_threads ? panels : n_threads;
}

typedef E E_vec VECTOR(VECTOR_BYTES, sizeof(E));
typedef ORDER E_index VECTOR(VECTOR_BYTES, sizeof(E));
enum { E_lanes = sizeof(E_vec) / sizeof(E) };

enum { T_panel = PANEL };

/* sum += a * b, of vectors. With 16 registers GCC 12 puts the result into a register other than
 * that of the sum and copies it back, or spills sums; if other programs share the core, such
 * moves cost time (measured on Zen 3: 54 against 65 GFLOP/s, with `STEPS_AT_ONCE`). */
#if VECTOR_BYTES == 32 && defined(__FMA__) && !defined(__clang__)
#define ADD_PRODUCT_float(sum, a, b) \
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#define ADD_PRODUCT_double(sum, a, b) \
    __asm__("vfmadd231pd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#else
#define ADD_PRODUCT_float(sum, a, b) ((sum) += (a) * (b))
#define ADD_PRODUCT_double(sum, a, b) ((sum) += (a) * (b))
#endif

/* Steps of K without a branch between them. */
enum { STEPS_AT_ONCE = VECTOR_BYTES == 32 ? 4 : 1 };

/* How many steps of K ahead a row of B is prefetched; 0 for not at all. 64-byte vectors are used
 * faster than the second-level cache delivers them (measured on a Xeon with AMX: 147 -> 198 GFLOP/s
 * at K = 784). */
enum { STEPS_AHEAD = VECTOR_BYTES == 64 ? 16 : 0 };

/* What to prefetch into the second-level cache while a tile is multiplied: `bytes` bytes in each
 * step of K, a few lines at a time. Many lines requested at once wait for each other, and the
 * tile waits for them; with a weight in memory, the first tile that reads it takes as long as
 * several (measured on a Xeon with AMX, 128 rows: 155 -> 175 GFLOP/s). Narrower vectors leave
 * time to request everything at once. */
struct ahead {
    const char *from;
    int64_t bytes;
};

static inline struct ahead nothing_ahead(void)
{
    return (struct ahead){0, 0};
}

/* One of `parts` parts of what is read next: `depth` rows of `bytes` bytes. With one or two
 * tiles, each waits for memory in any case, and prefetching is left to the processor (measured
 * for named sizes: 8 rows 16.5 ms without, 19.1 with). */
static inline struct ahead part_ahead(const void *block, int64_t depth, int64_t bytes, int64_t part,
                                      int64_t parts)
{
    const int64_t first = part * bytes / parts, last = (part + 1) * bytes / parts;
    if (!STEPS_AHEAD)
        prefetch_part(block, depth * bytes, part, parts);
    if (!STEPS_AHEAD || parts < 3)
        return nothing_ahead();
    return (struct ahead){(const char *)block + first * depth, last - first};
}

/* Steps to do before the next lines are requested: as many as four lines are worth, or 16,
 * because the end of a short loop takes time as well. */
static inline int64_t steps_between(struct ahead ahead, int64_t depth)
{
    if (!STEPS_AHEAD || ahead.bytes == 0)
        return depth;
    return ahead.bytes < 16 ? 256 / ahead.bytes : 16;
}

static inline void fetch_steps(struct ahead ahead, int64_t first, int64_t end)
{
    if (STEPS_AHEAD) {
        for (int64_t at = first * ahead.bytes; at < end * ahead.bytes; at += 64)
            PREFETCH(ahead.from + at, 0, 2);
    }
}

/* The bits of a vector, and the vector with given bits. */
static inline T_index bits_of_T(T_vec x)
{
#if VECTOR_BYTES > 4
    return (T_index)x;
#else
    T_index bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

static inline T_vec T_of_bits(T_index bits)
{
#if VECTOR_BYTES > 4
    return (T_vec)bits;
#else
    T_vec x;
    memcpy(&x, &bits, sizeof x);
    return x;
#endif
}

/* Whether the first `count` lanes are known to be a register: the lower half, or a half of that.
 * Other lanes are loaded and stored by a mask, which AVX-512 has (measured for rows of 5 floats:
 * 10.4 us by a copy on the stack, 6.1 by a mask; for rows of 8, 4.4 and 4.9). */
#define IS_HALVED(count) (__builtin_constant_p(count) && ((count) & ((count) - 1)) == 0)

/* For epilogues in registers: a vector that repeats one value, and loads and stores of `count`
 * elements (at most a whole vector). Minimum and maximum are those of fx_math.h: a NaN wins. */
static inline T_vec all_T(T x)
{
    return x - (T_vec){0}; /* which keeps -0 */
}

static inline T_vec load_T(const T *from, int count)
{
    T_vec x = {0};
    if (count >= T_lanes) /* without a call */
        return *(const T_vec *)from;
#if VECTOR_BYTES == 64
    if (!IS_HALVED(count))
        return LOAD_LANES((const void *)from, x, (LANEMASK)((1u << count) - 1));
#endif
    memcpy(&x, from, (size_t)count * sizeof(T));
    return x;
}

static inline void store_T(T *to, T_vec x, int count)
{
    if (count >= T_lanes) {
        *(T_vec *)to = x;
        return;
    }
#if VECTOR_BYTES == 64
    if (!IS_HALVED(count)) {
        STORE_LANES((void *)to, x, (LANEMASK)((1u << count) - 1));
        return;
    }
#endif
    memcpy(to, &x, (size_t)count * sizeof(T));
}

static inline T_vec maximum_T(T_vec a, T_vec b)
{
    const T_index second = MASK((a <= b) | (b != b));
    return T_of_bits((second & bits_of_T(b)) | (~second & bits_of_T(a)));
}

static inline T_vec minimum_T(T_vec a, T_vec b)
{
    const T_index second = MASK((a >= b) | (b != b));
    return T_of_bits((second & bits_of_T(b)) | (~second & bits_of_T(a)));
}

enum { HALF_BYTES = VECTOR_BYTES > 16 ? VECTOR_BYTES / 2 : 16 }; /* for few channels or columns */

typedef T T_half VECTOR(HALF_BYTES, sizeof(T));
enum { T_vec_lanes = T_lanes, T_half_lanes = sizeof(T_half) / sizeof(T) };

/* sum[i * split][v] becomes the sum of all `split` parts of row i. */
static TILE_INLINE void join_parts_V(
    const int rows, const int vectors, const int split, V sum[TILE_ROWS][2])
{
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            #pragma GCC unroll 4
            for (int s = 1; s < split; s++)
                sum[i * split][v] += sum[i * split + s][v];
        }
    }
}

/* sum[i * split][v] = sum over k of a[i][k] * b[k][j], for `rows` rows of A and `vectors` vectors v
 * of B. The sums stay in registers. `rows`, `vectors`, `split` are constants where this is inlined;
 * with few rows the sum over k is split into `split` independent ones to hide the latency of the
 * FMA. B is read through volatile so that GCC loads a vector once for all rows: left alone it folds
 * the load into every FMA when rows <= 4, and is bound by loads (measured: 85 against 117
 * GFLOP/s). */
static TILE_INLINE void sum_rows_V(
    const int rows, const int vectors, const int split, int64_t depth,
    const T *a, int64_t a_row, const T *b, int64_t b_row, struct ahead ahead,
    V sum[TILE_ROWS][2])
{
    V b_k[2];
    #pragma GCC unroll 16
    for (int i = 0; i < rows * split; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (V){0};
    }
    for (; split > 1 && depth >= split; depth -= split, a += split, b += split * b_row) {
        #pragma GCC unroll 4
        for (int s = 0; s < split; s++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                b_k[v] = *(const volatile V *)(b + s * b_row + v * V_lanes);
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const V a_k = a[i * a_row + s] - (V){0};
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    ADD_PRODUCT_T(sum[i * split + s][v], a_k, b_k[v]);
            }
        }
    }
    const T *const a_6 = opaque_pointer(a + 6 * a_row);
    const int64_t most = steps_between(ahead, depth);
    for (int64_t first = 0; first < depth; first += most) {
        const int64_t end = depth - first > most ? first + most : depth;
        fetch_steps(ahead, first, end);
        #pragma GCC unroll STEPS_AT_ONCE
        for (int64_t k = first; k < end; k++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                if (STEPS_AHEAD)
                    PREFETCH(b + (k + STEPS_AHEAD) * b_row + v * V_lanes, 0, 3);
                b_k[v] = *(const volatile V *)(b + k * b_row + v * V_lanes);
            }
            #pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const V a_k = (i < 6 ? a + i * a_row : a_6 + (i - 6) * a_row)[k] - (V){0};
                #pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    ADD_PRODUCT_T(sum[i * split][v], a_k, b_k[v]);
            }
        }
    }
    join_parts_V(rows, vectors, split, sum);
}

/* The same, stored to memory: tile[i][j], or added to it. */
static TILE_INLINE void multiply_rows_V(
    const int rows, const int vectors, const int split, int64_t depth,
    const T *a, int64_t a_row, const T *b, int64_t b_row, struct ahead ahead, int adds,
    T *restrict tile)
{
    V sum[TILE_ROWS][2];
    sum_rows_V(rows, vectors, split, depth, a, a_row, b, b_row, ahead, sum);
    if (adds) {
        #pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[i * split][v] += *(V *)(tile + i * T_panel + v * V_lanes);
        }
    }
    #pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(V *)(tile + i * T_panel + v * V_lanes) = sum[i * split][v];
    }
}

/* The same for two vectors of a panel, or one, and 1 <= rows <= TILE_ROWS. They are separate
 * functions, so that fewer variables are alive around the inner loops. */
TILE_FUNCTION static void multiply_pair_T(
    int rows, int64_t depth, const T *a, int64_t a_row, const T *b, struct ahead ahead, int adds,
    T *restrict tile)
{
    switch (rows) {
    ROW_CASES(multiply_rows_T_vec, 2, depth, a, a_row, b, PANEL, ahead, adds, tile)
    }
}

TILE_FUNCTION static void multiply_single_V(
    int rows, int64_t depth, const T *a, int64_t a_row, const T *b, struct ahead ahead, int adds,
    T *restrict tile)
{
    switch (rows) {
    ROW_CASES(multiply_rows_V, 1, depth, a, a_row, b, PANEL, ahead, adds, tile)
    }
}

/* tile[rows][PANEL] = A (rows x depth, rows a_row apart) times one panel of B (depth x columns,
 * rows PANEL apart), 1 <= rows <= TILE_ROWS, or this added to the tile. Computes whole or half
 * vectors: columns from `columns` on hold the products with the rest of the panel. */
static inline void multiply_block_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b,
    struct ahead ahead, int adds, T *restrict tile)
{
    for (int j = 0; j < columns; j += 2 * T_lanes) {
        if (columns - j > T_lanes)
            multiply_pair_T(rows, depth, a, a_row, b + j, ahead, adds, tile + j);
        else if (columns - j > T_half_lanes)
            multiply_single_T_vec(rows, depth, a, a_row, b + j, ahead, adds, tile + j);
        else /* half a vector takes half the time on processors that split whole vectors */
            multiply_single_T_half(rows, depth, a, a_row, b + j, ahead, adds, tile + j);
    }
}

/* tile += part: a sum in blocks. */
static inline void add_block_T(
    int rows, int columns, const T *restrict part, T *restrict tile)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++)
            tile[i * T_panel + j] += part[i * T_panel + j];
    }
}

/* totals += tile; `left` collects the rounding errors of the totals (Knuth's TwoSum). With
 * `is_last`, the tile becomes their sum. Beside an infinity the error is NaN, and is ignored. */
static void add_tile_T(
    int rows, int columns, int is_last, T *restrict tile, T *restrict totals, T *restrict left)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            const int e = i * T_panel + j;
            const T sum = totals[e] + tile[e], kept = sum - totals[e];
            left[e] += (totals[e] - (sum - kept)) + (tile[e] - kept);
            totals[e] = sum;
            if (is_last)
                tile[e] = left[e] == left[e] ? sum + left[e] : sum;
        }
    }
}

/* multiply_block_T in blocks of at most `most` steps. Up to SUM_BLOCKS of them are added one after
 * the other; sums of so many blocks are added with their rounding errors. */
TILE_FUNCTION static void multiply_blocks_T(
    int rows, int columns, int64_t depth, int64_t most, const T *a, int64_t a_row,
    const T *b, struct ahead ahead, T *restrict tile)
{
    T totals[TILE_ROWS * PANEL], left[TILE_ROWS * PANEL];
    const int64_t blocks = (depth + most - 1) / most;
    const int is_long = blocks > SUM_BLOCKS;
    for (int e = 0; is_long && e < TILE_ROWS * PANEL; e++)
        totals[e] = left[e] = 0;
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t k = block * depth / blocks, steps = (block + 1) * depth / blocks - k;
        const struct ahead next = {ahead.from + k * ahead.bytes, ahead.bytes};
        multiply_block_T(rows, columns, steps, a + k, a_row, b + k * PANEL, next,
                         block % SUM_BLOCKS > 0, tile);
        if (is_long && (block + 1 == blocks || block % SUM_BLOCKS == SUM_BLOCKS - 1))
            add_tile_T(rows, columns, block + 1 == blocks, tile, totals, left);
    }
}

/* The number of blocks of K into which a packed weight is divided; several tiles are multiplied by
 * a block before the next one is read. A block has at most `steps` steps, so that it stays in the
 * first-level cache. Vectors of 64 bytes are different: rows are prefetched from the second-level
 * cache, and keeping the sums of all tiles costs more than reading from there (measured with 2 MiB,
 * K = 784: 160 -> 180 GFLOP/s for 32 rows). There are then only as many blocks as let A's rows, of
 * `step_bytes` in each step, fill half of that cache, and at most 64. */
static inline int64_t count_weight_blocks(int64_t depth, int64_t steps, int64_t step_bytes)
{
    if (VECTOR_BYTES == 64) {
        const int64_t for_few = depth / 64 + 1;
        const int64_t for_cache = step_bytes > 0 ? L2_BYTES / 2 / step_bytes : depth; /* no rows */
        steps = for_cache > for_few ? for_cache : for_few;
    }
    return (depth + steps - 1) / steps;
}

/* The product of a tile: multiply_block_T for any depth. Few rows are added in several
 * registers each, which share a longer block. */
static inline void multiply_tile_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b, T *restrict tile)
{
    const int64_t most = rows == 1 ? 4 * SUM_STEPS : rows <= 3 ? 2 * SUM_STEPS : SUM_STEPS;
    if (depth <= most)
        multiply_block_T(rows, columns, depth, a, a_row, b, nothing_ahead(), 0, tile);
    else
        multiply_blocks_T(rows, columns, depth, most, a, a_row, b, nothing_ahead(), tile);
}

/* A block of the product of a tile: the first one, or one added to those before it. */
static inline void multiply_next_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b,
    struct ahead ahead, int adds, T *restrict total)
{
    T part[TILE_ROWS * PANEL];
    if (depth > SUM_STEPS) {
        multiply_blocks_T(rows, columns, depth, SUM_STEPS - 64, a, a_row, b, ahead,
                          adds ? part : total);
        if (adds)
            add_block_T(rows, columns, part, total);
    } else {
        multiply_block_T(rows, columns, depth, a, a_row, b, ahead, adds, total);
    }
}

/* The product of a tile in `blocks` blocks of at most `most` steps, of which this is one. It is
 * added to the sums of the previous blocks in `total`; if there are so many that a term would be
 * rounded more often than in SUM_BLOCKS blocks of SUM_STEPS, `left` holds their rounding errors. */
static void multiply_part_T(
    int rows, int columns, int64_t depth, const T *a, int64_t a_row, const T *b,
    int64_t block, int64_t blocks, int64_t most, T *restrict total, T *restrict left)
{
    if (blocks <= SUM_STEPS + SUM_BLOCKS - most) {
        multiply_next_T(rows, columns, depth, a, a_row, b, nothing_ahead(), block > 0, total);
        return;
    }
    T tile[TILE_ROWS * PANEL];
    for (int e = 0; block == 0 && e < rows * PANEL; e++)
        total[e] = left[e] = 0;
    multiply_block_T(rows, columns, depth, a, a_row, b, nothing_ahead(), 0, tile);
    add_tile_T(rows, columns, block + 1 == blocks, tile, total, left);
    for (int e = 0; block + 1 == blocks && e < rows * PANEL; e++)
        total[e] = tile[e];
}

#if VECTOR_BYTES == 64
#define weave_low_32(index, a, b) \
    SHUFFLE(index, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define weave_high_32(index, a, b) \
    SHUFFLE(index, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VECTOR_BYTES == 32
#define weave_low_32(index, a, b) \
    SHUFFLE(index, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define weave_high_32(index, a, b) \
    SHUFFLE(index, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif VECTOR_BYTES == 16
#define weave_low_32(index, a, b) \
    SHUFFLE(index, a, b, 0, 4, 1, 5)
#define weave_high_32(index, a, b) \
    SHUFFLE(index, a, b, 2, 6, 3, 7)
#else
#define weave_low_32(index, a, b) (a)
#define weave_high_32(index, a, b) (b)
#endif

#if VECTOR_BYTES == 64
#define weave_low_64(index, a, b) \
    SHUFFLE(index, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define weave_high_64(index, a, b) \
    SHUFFLE(index, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif VECTOR_BYTES == 32
#define weave_low_64(index, a, b) \
    SHUFFLE(index, a, b, 0, 4, 1, 5)
#define weave_high_64(index, a, b) \
    SHUFFLE(index, a, b, 2, 6, 3, 7)
#elif VECTOR_BYTES == 16
#define weave_low_64(index, a, b) \
    SHUFFLE(index, a, b, 0, 2)
#define weave_high_64(index, a, b) \
    SHUFFLE(index, a, b, 1, 3)
#else
#define weave_low_64(index, a, b) (a)
#define weave_high_64(index, a, b) (b)
#endif

/* Every second element of two vectors of so many lanes, beginning with the first or the second. */
#define even_16(index, a, b) \
    SHUFFLE(index, a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define odd_16(index, a, b) \
    SHUFFLE(index, a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define even_8(index, a, b) \
    SHUFFLE(index, a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define odd_8(index, a, b) \
    SHUFFLE(index, a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define even_4(index, a, b) \
    SHUFFLE(index, a, b, 0, 2, 4, 6)
#define odd_4(index, a, b) \
    SHUFFLE(index, a, b, 1, 3, 5, 7)
#define even_2(index, a, b) \
    SHUFFLE(index, a, b, 0, 2)
#define odd_2(index, a, b) \
    SHUFFLE(index, a, b, 1, 3)

/* The same of whole vectors. */
#if VECTOR_BYTES == 64
#define float_vec_even(a, b) even_16(float_index, a, b)
#define float_vec_odd(a, b) odd_16(float_index, a, b)
#elif VECTOR_BYTES == 32
#define float_vec_even(a, b) even_8(float_index, a, b)
#define float_vec_odd(a, b) odd_8(float_index, a, b)
#elif VECTOR_BYTES == 16
#define float_vec_even(a, b) even_4(float_index, a, b)
#define float_vec_odd(a, b) odd_4(float_index, a, b)
#else
#define float_vec_even(a, b) (a)
#define float_vec_odd(a, b) (b)
#endif

#if VECTOR_BYTES == 64
#define double_vec_even(a, b) even_8(double_index, a, b)
#define double_vec_odd(a, b) odd_8(double_index, a, b)
#elif VECTOR_BYTES == 32
#define double_vec_even(a, b) even_4(double_index, a, b)
#define double_vec_odd(a, b) odd_4(double_index, a, b)
#elif VECTOR_BYTES == 16
#define double_vec_even(a, b) even_2(double_index, a, b)
#define double_vec_odd(a, b) odd_2(double_index, a, b)
#else
#define double_vec_even(a, b) (a)
#define double_vec_odd(a, b) (b)
#endif

/* target[j][i] = source[i][j] for `rows` x `columns` values: whole squares of one vector's lanes by
 * log2(lanes) rounds of interleaving row i with row i + lanes/2, the rest one by one. */
TILE_FUNCTION static void copy_transposed_E(
    int64_t rows, int64_t columns, const E *source, int64_t source_row,
    E *restrict target, int64_t target_row)
{
    const int64_t whole_rows = rows - rows % E_lanes, whole_columns = columns - columns % E_lanes;
    for (int64_t i = 0; i < whole_rows; i += E_lanes) {
        for (int64_t j = 0; j < whole_columns; j += E_lanes) {
            E_vec square[E_lanes], woven[E_lanes];
            #pragma GCC unroll 16
            for (int r = 0; r < E_lanes; r++)
                square[r] = *(const E_vec *)(source + (i + r) * source_row + j);
            #pragma GCC unroll 4
            for (int round = 1; round < E_lanes; round *= 2) {
                #pragma GCC unroll 8
                for (int r = 0; r < E_lanes / 2; r++) {
                    woven[2 * r] = weave_low_BITS(E_index, square[r], square[r + E_lanes / 2]);
                    woven[2 * r + 1] = weave_high_BITS(E_index, square[r], square[r + E_lanes / 2]);
                }
                #pragma GCC unroll 16
                for (int r = 0; r < E_lanes; r++)
                    square[r] = woven[r];
            }
            #pragma GCC unroll 16
            for (int r = 0; r < E_lanes; r++)
                *(E_vec *)(target + (j + r) * target_row + i) = square[r];
        }
        for (int64_t j = whole_columns; j < columns; j++)
            for (int r = 0; r < E_lanes; r++)
                target[j * target_row + i + r] = source[(i + r) * source_row + j];
    }
    for (int64_t j = 0; whole_rows < rows && j < columns; j++)
        for (int64_t i = whole_rows; i < rows; i++)
            target[j * target_row + i] = source[i * source_row + j];
}

/* One panel of B: panel[k][j] = b[k * row_stride + j * column_stride], and 0 for j >= columns. */
static void pack_panel_T(
    int64_t depth, int columns, const T *b, int64_t row_stride, int64_t column_stride,
    T *restrict panel)
{
    if (row_stride == 1 && column_stride != 1) {
        copy_transposed_T(columns, depth, b, column_stride, panel, PANEL);
    } else if (column_stride == 1 && columns == PANEL) {
        for (int64_t k = 0; k < depth; k++) {
            PREFETCH(b + (k + 24) * row_stride, 0, 3);
            PREFETCH(b + (k + 24) * row_stride + PANEL / 2, 0, 3);
            for (int j = 0; j < PANEL; j++)
                panel[k * PANEL + j] = b[k * row_stride + j];
        }
    } else if (column_stride == 1 && VECTOR_BYTES >= 32) { /* loads with masks */
        for (int64_t k = 0; k < depth; k++)
            for (int j = 0; j < PANEL; j++)
                panel[k * PANEL + j] = j < columns ? b[k * row_stride + j] : 0;
        return;
    } else {
        for (int64_t k = 0; k < depth; k++)
            for (int j = 0; j < columns; j++)
                panel[k * PANEL + j] = b[k * row_stride + j * column_stride];
    }
    for (int64_t k = 0; columns < PANEL && k < depth; k++)
        for (int j = columns; j < PANEL; j++)
            panel[k * PANEL + j] = 0;
}

/* Packs rows of A one after the other: target[i][k] = a[i * row_stride + k * column_stride]. */
static void pack_rows_T(
    int64_t rows, int64_t depth, const T *a, int64_t row_stride, int64_t column_stride,
    T *restrict target, int64_t target_row)
{
    if (row_stride == 1 && column_stride != 1) {
        copy_transposed_T(depth, rows, a, column_stride, target, target_row);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < depth; k++)
            target[i * target_row + k] = a[i * row_stride + k * column_stride];
}
