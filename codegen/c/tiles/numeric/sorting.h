/* Sorting, where NaN is last and positions of equal elements keep their order, and searching in
 * sorted arrays. */

/* Numbers of type T have keys of type KEY, and PLACE counts them in lanes of the same width, or
 * of 32 bits. SIGN is the sign bit in the highest byte of a key. LARGEST is the largest key and
 * INFINITE that of infinity; both are used only for floats. WORD is a type as wide as T, of
 * matrices that TURN transposes. Unless a branch says otherwise: */
#define KEY T
#define WORD T
#define TURN copy_columns_T
#define PLACE int32_t
#define LARGEST 0
#define INFINITE 0
#define IS_FLOAT 0
#define SIGN 128
#define OR_LAST

#if INSTANCE == 0
#define T float
#define KEY int32_t
#define TURN copy_transposed_float
#define LARGEST INT32_MAX
#define INFINITE 0x7f800000
#define IS_FLOAT 1
#define OR_LAST | ((b != b) & (a == a))
#elif INSTANCE == 1
#define T double
#define KEY int64_t
#define TURN copy_transposed_double
#define PLACE int64_t
#define LARGEST INT64_MAX
#define INFINITE 0x7ff0000000000000
#define IS_FLOAT 1
#define OR_LAST | ((b != b) & (a == a))
#elif INSTANCE == 2
#define T int8_t
#elif INSTANCE == 3
#define T int16_t
#elif INSTANCE == 4
#define T int32_t
#define TURN copy_transposed_int32_t
#elif INSTANCE == 5
#define T int64_t
#define TURN copy_transposed_int64_t
#define PLACE int64_t
#elif INSTANCE == 6
#define T uint8_t
#define SIGN 0
#elif INSTANCE == 7
#define T uint16_t
#define SIGN 0
#elif INSTANCE == 8
#define T uint32_t
#define WORD int32_t
#define TURN copy_transposed_int32_t
#define SIGN 0
#else
#define T uint64_t
#define WORD int64_t
#define TURN copy_transposed_int64_t
#define PLACE int64_t
#define SIGN 0
#endif

/* ---- Sorting --------------------------------------------------------------------------------- */

/* Whether a number sorts before another one. */
static inline bool is_before_T(T a, T b) { return (a < b) OR_LAST; }

/* Whether two numbers are equal: NaN is not equal to itself. */
static inline bool is_equal_T(T a, T b) { return a == b; }

/* How many elements are sorted by insertion, before runs of them are merged. */
enum { SHORT_RUN = 16 };

/* An integer that has the same order among others as the number: for a negative float all bits
 * but the sign are inverted, and NaN is the largest. */
static inline KEY key_of_T(T x)
{
    KEY key;
    memcpy(&key, &x, sizeof key);
    if (IS_FLOAT) {
        const bool is_nan = (key & LARGEST) > INFINITE;
        key ^= (key >> (8 * sizeof(KEY) - 1)) & LARGEST;
        key = is_nan ? LARGEST : key;
    }
    return key;
}

/* The number with this key. */
static inline T number_of_T(KEY key)
{
    if (IS_FLOAT) key ^= (key >> (8 * sizeof(KEY) - 1)) & LARGEST;
    T x;
    memcpy(&x, &key, sizeof x);
    return x;
}

/* Sorts the n keys by digits of 8 bits, from the lowest one (radix sort). Equal keys keep their
 * order, and `places` are moved with the keys unless they are null. Both arrays have room for 2
 * n; returns whether the result is in their second halves. */
static inline bool sort_digits_T(int64_t n, KEY *keys, PLACE *places)
{
    int64_t counts[sizeof(KEY)][256] = {{0}};
    for (int64_t i = 0; i < n; i++) {
        for (int digit = 0; digit < (int)sizeof(KEY); digit++) {
            counts[digit][(uint64_t)keys[i] >> 8 * digit & 255]++;
        }
    }
    bool behind = false;
    for (int digit = 0; digit < (int)sizeof(KEY); digit++) {
        const KEY *const from = keys + behind * n;
        KEY *const to = keys + !behind * n;
        const int turned = digit + 1 == (int)sizeof(KEY) ? SIGN : 0;
        if (counts[digit][(uint64_t)from[0] >> 8 * digit & 255] == n) continue;
        int64_t begins[256], before = 0;
        for (int value = 0; value < 256; value++) {
            begins[value ^ turned] = before;
            before += counts[digit][value ^ turned];
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = begins[(uint64_t)from[i] >> 8 * digit & 255]++;
            to[at] = from[i];
            if (places) places[at + !behind * n] = places[i + behind * n];
        }
        behind = !behind;
    }
    return behind;
}

/* Sorts the n keys in `from` by merging; returns the array that holds the result. `to` has room
 * for n. */
static inline KEY *merge_keys_T(int64_t n, KEY *from, KEY *to)
{
    for (int64_t start = 0; start < n; start += SHORT_RUN) {
        const int64_t end = start + SHORT_RUN < n ? start + SHORT_RUN : n;
        for (int64_t i = start + 1; i < end; i++) {
            const KEY key = from[i];
            int64_t j = i;
            for (; j > start && key < from[j - 1]; j--) from[j] = from[j - 1];
            from[j] = key;
        }
    }
    for (int64_t width = SHORT_RUN; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            const int64_t middle = start + width < n ? start + width : n;
            const int64_t end = middle + width < n ? middle + width : n;
            int64_t left = start, right = middle;
            for (int64_t i = start; i < end; i++) {
                const bool second = left == middle || (right < end && from[right] < from[left]);
                to[i] = second ? from[right] : from[left];
                right += second;
                left += !second;
            }
        }
        KEY *const sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* Elements of a row, times the bytes of one, from which a row is sorted by digits, when counting
 * the digits is worthwhile. */
enum { LONG_ROW = 160 };

/* Sorts the n elements that are `stride` apart in x into y. `memory` has room for 2 n. */
static void sort_row_T(int64_t n, int64_t stride, const T *x, T *y, T *memory)
{
    KEY *const keys = (KEY *)(void *)memory;
    for (int64_t i = 0; i < n; i++) keys[i] = key_of_T(x[i * stride]);
    const KEY *sorted = keys;
    if (n < LONG_ROW * (int64_t)sizeof(KEY)) sorted = merge_keys_T(n, keys, keys + n);
    else if (sort_digits_T(n, keys, (PLACE *)0)) sorted = keys + n;
    for (int64_t i = 0; i < n; i++) y[i * stride] = number_of_T(sorted[i]);
}

/* Bytes of a row of `block`: the keys at one place in several rows. */
enum { LANE_BYTES = 64 };

/* Rows of at most this many elements are sorted side by side. */
enum { MOST_IN_LANES = 1024 };

/* The rows of a block in which columns are sorted at once: so many keys of a column are in
 * registers. */
enum { BLOCK_ROWS = 16 };

/* Puts two of a column's keys in order. No function, to which a compiler would give the array by
 * its address, and keep it in memory. */
#define ORDER_KEY(keys, i, j)                                                                      \
    do {                                                                                           \
        const KEY one = (keys)[i], other = (keys)[j];                                              \
        (keys)[i] = other < one ? other : one;                                                     \
        (keys)[j] = other < one ? one : other;                                                     \
    } while (0)

/* Puts the keys of each of two rows in order, or those of four rows that are `apart`: first two
 * rows apart, then one. */
static TILE_INLINE void order_rows_T(KEY *one, KEY *other)
{
    #pragma omp simd
    for (int lane = 0; lane < LANE_BYTES / (int)sizeof(KEY); lane++) {
        KEY keys[2] = {one[lane], other[lane]};
        ORDER_KEY(keys, 0, 1);
        one[lane] = keys[0];
        other[lane] = keys[1];
    }
}

static TILE_INLINE void order_four_rows_T(KEY *rows, int64_t apart)
{
    #pragma omp simd
    for (int lane = 0; lane < LANE_BYTES / (int)sizeof(KEY); lane++) {
        KEY keys[4] = {rows[lane], rows[lane + apart], rows[lane + 2 * apart],
                       rows[lane + 3 * apart]};
        ORDER_KEY(keys, 0, 2);
        ORDER_KEY(keys, 1, 3);
        ORDER_KEY(keys, 0, 1);
        ORDER_KEY(keys, 2, 3);
        rows[lane] = keys[0];
        rows[lane + apart] = keys[1];
        rows[lane + 2 * apart] = keys[2];
        rows[lane + 3 * apart] = keys[3];
    }
}

/* Sorts the columns of a block of 16 rows. That takes fewer steps if they are `bitonic`: the keys
 * of each column first ascend and then descend, or first descend and then ascend. */
static TILE_INLINE void sort_block_T(const int bitonic, KEY *block)
{
    enum { LANES = LANE_BYTES / sizeof(KEY) };
    #pragma omp simd
    for (int lane = 0; lane < LANES; lane++) {
        KEY keys[BLOCK_ROWS];
        #pragma GCC unroll 16
        for (int i = 0; i < BLOCK_ROWS; i++) keys[i] = block[i * LANES + lane];
        if (bitonic) {
            #pragma GCC unroll 8
            for (int i = 0; i < 8; i++) ORDER_KEY(keys, i, i + 8);
            #pragma GCC unroll 8
            for (int i = 0; i < 8; i++) ORDER_KEY(keys, i / 4 * 8 + i % 4, i / 4 * 8 + i % 4 + 4);
            #pragma GCC unroll 8
            for (int i = 0; i < 8; i++) ORDER_KEY(keys, i / 2 * 4 + i % 2, i / 2 * 4 + i % 2 + 2);
            #pragma GCC unroll 8
            for (int i = 0; i < 8; i++) ORDER_KEY(keys, 2 * i, 2 * i + 1);
        } else {
            #pragma GCC unroll 8
            for (int i = 0; i < 16; i += 2) ORDER_KEY(keys, i, i + 1);
            #pragma GCC unroll 4
            for (int i = 0; i < 16; i += 4) {
                ORDER_KEY(keys, i, i + 2);
                ORDER_KEY(keys, i + 1, i + 3);
                ORDER_KEY(keys, i + 1, i + 2);
            }
            #pragma GCC unroll 2
            for (int i = 0; i < 16; i += 8) {
                #pragma GCC unroll 4
                for (int j = i; j < i + 4; j++) ORDER_KEY(keys, j, j + 4);
                ORDER_KEY(keys, i + 2, i + 4);
                ORDER_KEY(keys, i + 3, i + 5);
                #pragma GCC unroll 3
                for (int j = i + 1; j < i + 7; j += 2) ORDER_KEY(keys, j, j + 1);
            }
            #pragma GCC unroll 8
            for (int i = 0; i < 8; i++) ORDER_KEY(keys, i, i + 8);
            #pragma GCC unroll 4
            for (int i = 4; i < 8; i++) ORDER_KEY(keys, i, i + 4);
            #pragma GCC unroll 3
            for (int i = 2; i < 14; i += 4) {
                ORDER_KEY(keys, i, i + 2);
                ORDER_KEY(keys, i + 1, i + 3);
            }
            #pragma GCC unroll 7
            for (int i = 1; i < 15; i += 2) ORDER_KEY(keys, i, i + 1);
        }
        #pragma GCC unroll 16
        for (int i = 0; i < BLOCK_ROWS; i++) block[i * LANES + lane] = keys[i];
    }
}

/* Sorts each column of n rows, a multiple of BLOCK_ROWS. Blocks are sorted by Batcher's odd-even
 * merge sort, and runs of rows are merged by his bitonic sorter, in which the second run is read
 * backwards, so that rows beyond the last one would stay where they are (K. E. Batcher, "Sorting
 * networks and their applications", 1968). */
TILE_FUNCTION static void sort_columns_T(int64_t n, KEY *rows)
{
    enum { LANES = LANE_BYTES / sizeof(KEY) };
    for (int64_t i = 0; i < n; i += BLOCK_ROWS) sort_block_T(0, rows + i * LANES);
    for (int64_t run = BLOCK_ROWS; run < n; run *= 2) {
        for (int64_t start = 0; start + run < n; start += 2 * run) {
            const int64_t end = n - start < 2 * run ? n - start : 2 * run;
            for (int64_t i = 2 * run - end; i < run; i++)
                order_rows_T(rows + (start + i) * LANES, rows + (start + 2 * run - 1 - i) * LANES);
        }
        int64_t apart = run / 2;
        for (; apart > BLOCK_ROWS; apart /= 4) {
            for (int64_t i = 0; i < n; i++) {
                KEY *const at = rows + i * LANES;
                if (i + apart + apart / 2 < n) {
                    order_four_rows_T(at, apart / 2 * LANES);
                } else {
                    if (i + apart < n) order_rows_T(at, at + apart * LANES);
                    if (i + apart / 2 < n) order_rows_T(at, at + apart / 2 * LANES);
                }
                if ((i + 1) % (apart / 2) == 0) i += apart + apart / 2;
            }
        }
        for (int64_t i = 0; apart == BLOCK_ROWS && i + apart < n; i++) {
            order_rows_T(rows + i * LANES, rows + (i + apart) * LANES);
            if ((i + 1) % apart == 0) i += apart;
        }
        for (int64_t i = 0; i < n; i += BLOCK_ROWS) sort_block_T(1, rows + i * LANES);
    }
}

/* Sorts each column of a block of n rows, and moves the places with the keys. The pairs that are
 * put in order do not depend on the keys (merge exchange; D. E. Knuth, "The Art of Computer
 * Programming", vol. 3, 5.2.2, algorithm M). Of equal keys the one with the smaller place comes
 * first. */
static inline void sort_places_T(int64_t n, KEY *block, PLACE *places)
{
    enum { LANES = LANE_BYTES / sizeof(KEY) };
    int64_t top = 1;
    while (top * 2 < n) top *= 2;
    for (int64_t p = top; p > 0; p /= 2) {
        int64_t r = 0, distance = p;
        for (int64_t q = top;; q /= 2) {
            for (int64_t i = 0; i + distance < n; i++) {
                if ((i & p) != r) continue;
                KEY *const a = block + i * LANES, *const b = a + distance * LANES;
                PLACE *const c = places + i * LANES, *const d = c + distance * LANES;
                #pragma omp simd
                for (int lane = 0; lane < LANES; lane++) {
                    const KEY one = a[lane], other = b[lane];
                    const PLACE first = c[lane], second = d[lane];
                    const bool turns = (other < one) | ((other == one) & (second < first));
                    a[lane] = turns ? other : one;
                    b[lane] = turns ? one : other;
                    c[lane] = turns ? second : first;
                    d[lane] = turns ? first : second;
                }
            }
            if (q == p) break;
            distance = q - p;
            r = p;
        }
    }
}

/* Finds where the rows from `lanes` times `part` on begin, up to `lanes` of all `rows`, which
 * have n elements `stride` apart; returns how many there are. The others get the start of the
 * first one. */
static inline int64_t begins_of_rows(int64_t part, int64_t lanes, int64_t rows, int64_t n,
                                     int64_t stride, int most, int64_t *begins)
{
    const int64_t first = part * lanes;
    const int64_t count = rows - first < lanes ? rows - first : lanes;
    for (int lane = 0; lane < most; lane++) {
        const int64_t row = lane < count ? first + lane : first;
        begins[lane] = row / stride * stride * n + row % stride;
    }
    return count;
}

/* target[j][i] = source[i][j] for `rows` x `columns` values. */
static inline void copy_columns_T(int64_t rows, int64_t columns, const T *source,
                                  int64_t source_row, T *restrict target, int64_t target_row)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            target[j * target_row + i] = source[i * source_row + j];
}

/* The n numbers of `count` rows that begin at `begins`, side by side: a block of n rows. Other
 * lanes hold those of the first one. */
static inline void read_rows_T(int64_t n, int64_t stride, int64_t count, const int64_t *begins,
                               const T *x, T *restrict block)
{
    enum { LANES = LANE_BYTES / sizeof(T) };
    if (count == LANES && stride == 1) {
        TURN(LANES, n, (const WORD *)x + begins[0], n, (WORD *)block, LANES);
    } else if (begins[LANES - 1] == begins[0] + LANES - 1) {
        for (int64_t i = 0; i < n; i++)
            memcpy(block + i * LANES, x + begins[0] + i * stride, LANE_BYTES);
    } else {
        for (int64_t i = 0; i < n; i++)
            for (int lane = 0; lane < LANES; lane++)
                block[i * LANES + lane] = x[begins[lane] + i * stride];
    }
}

/* Sorts the rows from `lanes` times `part` on, up to `lanes` of all `rows`, of n elements that
 * are `stride` apart. `memory` has room for 2 n, and for the block of short rows. */
static void sort_rows_T(int64_t part, int64_t lanes, int64_t rows, int64_t n, int64_t stride,
                        const T *x, T *y, T *memory)
{
    enum { LANES = LANE_BYTES / sizeof(KEY) };
    int64_t begins[LANES];
    const int64_t count = begins_of_rows(part, lanes, rows, n, stride, LANES, begins);
    if (count < 3) {
        for (int64_t lane = 0; lane < count; lane++) {
            sort_row_T(n, stride, x + begins[lane], y + begins[lane], memory);
        }
        return;
    }
    const int64_t all = (n + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
    const uint64_t last = UINT64_MAX >> (64 - 8 * (int)sizeof(KEY) + (SIGN != 0));
    read_rows_T(n, stride, count, begins, x, memory);
    KEY *const block = (KEY *)(void *)memory;
    if (IS_FLOAT) {
        #pragma omp simd
        for (int64_t e = 0; e < n * LANES; e++) block[e] = key_of_T(memory[e]);
    }
    for (int64_t e = n * LANES; e < all * LANES; e++) block[e] = (KEY)last;
    sort_columns_T(all, block);
    if (IS_FLOAT) {
        #pragma omp simd
        for (int64_t e = 0; e < n * LANES; e++) memory[e] = number_of_T(block[e]);
    }
    if (count == LANES && stride == 1) {
        TURN(n, LANES, (const WORD *)memory, LANES, (WORD *)y + begins[0], n);
    } else if (count == LANES && begins[LANES - 1] == begins[0] + LANES - 1) {
        for (int64_t i = 0; i < n; i++)
            memcpy(y + begins[0] + i * stride, memory + i * LANES, LANE_BYTES);
    } else {
        for (int64_t lane = 0; lane < count; lane++)
            for (int64_t i = 0; i < n; i++)
                y[begins[lane] + i * stride] = memory[i * LANES + lane];
    }
}

/* Whether `a` comes strictly before `b`: the larger one does if `largest`, else the smaller
 * one. */
static inline bool comes_first_T(int largest, T a, T b)
{
    return largest ? is_before_T(b, a) : is_before_T(a, b);
}

/* The numbers 0 to n - 1 in the order of their keys; equal keys keep their order. The result is
 * in one of the two arrays, which is returned; both have room for n. */
static inline int64_t *order_keys_T(int64_t n, int largest, const T *keys, int64_t *from,
                                    int64_t *to)
{
    for (int64_t i = 0; i < n; i++) from[i] = i;
    for (int64_t start = 0; start < n; start += SHORT_RUN) {
        const int64_t end = start + SHORT_RUN < n ? start + SHORT_RUN : n;
        for (int64_t i = start + 1; i < end; i++) {
            const T value = keys[i];
            int64_t j = i;
            for (; j > start && comes_first_T(largest, value, keys[from[j - 1]]); j--) {
                from[j] = from[j - 1];
            }
            from[j] = i;
        }
    }
    for (int64_t width = SHORT_RUN; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            const int64_t middle = start + width < n ? start + width : n;
            const int64_t end = middle + width < n ? middle + width : n;
            int64_t left = start, right = middle;
            for (int64_t i = start; i < end; i++) {
                const bool second =
                    left == middle ||
                    (right < end && comes_first_T(largest, keys[from[right]], keys[from[left]]));
                to[i] = second ? from[right] : from[left];
                right += second;
                left += !second;
            }
        }
        int64_t *const sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* The key of an element whose position is wanted: zeros of both signs are equal. */
static inline KEY key_of_element_T(T x) { return key_of_T(x == 0 ? (T)0 : x); }

/* The positions that sort the n elements that are `stride` apart in x, into y. `memory` has room
 * for 2 n positions and 2 n elements. */
static void sort_positions_T(int64_t n, int64_t stride, const T *x, int64_t *y, int64_t *memory)
{
    KEY *const keys = (KEY *)(void *)(memory + 2 * n);
    if (n < LONG_ROW * (int64_t)sizeof(KEY) || n > INT32_MAX) {
        T *const elements = (T *)(void *)(memory + 2 * n);
        for (int64_t i = 0; i < n; i++) elements[i] = x[i * stride];
        const int64_t *const order = order_keys_T(n, 0, elements, memory, memory + n);
        for (int64_t i = 0; i < n; i++) y[i * stride] = order[i];
        return;
    }
    PLACE *places = (PLACE *)(void *)memory;
    for (int64_t i = 0; i < n; i++) {
        keys[i] = key_of_element_T(x[i * stride]);
        places[i] = (PLACE)i;
    }
    if (sort_digits_T(n, keys, places)) places += n;
    for (int64_t i = 0; i < n; i++) y[i * stride] = places[i];
}

/* The same for the rows from `lanes` times `part` on, up to `lanes` of all `rows`. `memory` also
 * has room for the blocks of short rows. */
static void sort_positions_of_rows_T(int64_t part, int64_t lanes, int64_t rows, int64_t n,
                                     int64_t stride, const T *x, int64_t *y, int64_t *memory)
{
    enum { LANES = LANE_BYTES / sizeof(KEY) };
    int64_t begins[LANES];
    const int64_t count = begins_of_rows(part, lanes, rows, n, stride, LANES, begins);
    if (count < 3) {
        for (int64_t lane = 0; lane < count; lane++) {
            sort_positions_T(n, stride, x + begins[lane], y + begins[lane], memory);
        }
        return;
    }
    T *const numbers = (T *)(void *)memory;
    KEY *const block = (KEY *)(void *)memory;
    PLACE *const places = (PLACE *)(void *)(block + n * LANES);
    read_rows_T(n, stride, count, begins, x, numbers);
    #pragma omp simd
    for (int64_t e = 0; e < n * LANES; e++) block[e] = key_of_element_T(numbers[e]);
    for (int64_t i = 0; i < n; i++)
        for (int lane = 0; lane < LANES; lane++) places[i * LANES + lane] = (PLACE)i;
    sort_places_T(n, block, places);
    for (int64_t lane = 0; lane < count; lane++) {
        for (int64_t i = 0; i < n; i++) {
            y[begins[lane] + i * stride] = places[i * LANES + lane];
        }
    }
}

/* The positions of the first `size` of the n elements of x that are not 0, in order, followed by
 * zeros, into y. If a mask selects few, it is mostly zeros, so whole words of zeros are
 * skipped. */
static void true_positions_T(int64_t n, int64_t size, const T *x, int64_t *y)
{
    int64_t count = 0, i = 0;
    while (i < n && count < size) {
        uint64_t word = 1;
        if ((size_t)(n - i) * sizeof(T) >= sizeof word) memcpy(&word, x + i, sizeof word);
        const int64_t end = fx_min(n, i + (int64_t)(sizeof word / sizeof(T)));
        for (; word && i < end && count < size; i++) {
            y[count] = i;
            count += x[i] != 0;
        }
        i = word ? i : end;
    }
    for (i = count; i < size; i++) y[i] = 0;
}

/* The key that would be at `place` if the n keys were sorted. The keys are moved: those before a
 * pivot to the front, then those equal to it (quickselect). */
static inline T select_key_T(int64_t n, int64_t place, int largest, T *keys)
{
    int64_t low = 0, high = n;
    uint64_t drawn = 1;
    while (high - low > 1) {
        T pivot[3];
        for (int i = 0; i < 3; i++) {
            drawn = drawn * 6364136223846793005 + 1442695040888963407;
            pivot[i] = keys[low + (int64_t)((drawn >> 33) % (uint64_t)(high - low))];
        }
        const bool is_second = comes_first_T(largest, pivot[0], pivot[1]);
        const T first = pivot[!is_second], second = pivot[is_second];
        const T middle = comes_first_T(largest, pivot[2], first)    ? first
                         : comes_first_T(largest, second, pivot[2]) ? second
                                                                    : pivot[2];
        int64_t end = low;
        for (int64_t i = low; i < high; i++) {
            const T key = keys[i];
            keys[i] = keys[end];
            keys[end] = key;
            end += comes_first_T(largest, key, middle);
        }
        if (place < end) {
            high = end;
            continue;
        }
        for (int64_t i = end; i < high; i++) {
            const T key = keys[i];
            keys[i] = keys[end];
            keys[end] = key;
            end += !comes_first_T(largest, middle, key);
        }
        if (place < end) return middle;
        low = end;
    }
    return keys[low];
}

/* The number of elements compared with the worst candidate at once; and the most candidates that
 * are kept sorted. */
enum { TOP_BLOCK = 64, FEW = 16 };

/* Keeps the k best of `count` candidates, in their order, and returns the worst of them. */
static inline T keep_best_T(int64_t count, int64_t k, int largest, T *keys, int64_t *at, T *memory)
{
    memcpy(memory, keys, (size_t)count * sizeof(T));
    const T worst = select_key_T(count, k - 1, largest, memory);
    int64_t equal = k, kept = 0;
    for (int64_t i = 0; i < count; i++) equal -= comes_first_T(largest, keys[i], worst);
    for (int64_t i = 0; i < count; i++) {
        const T key = keys[i];
        const bool is_better = comes_first_T(largest, key, worst);
        const bool is_equal = !is_better & !comes_first_T(largest, worst, key);
        const bool stays = is_better | (is_equal & (equal > 0));
        equal -= is_equal;
        keys[kept] = key;
        at[kept] = at[i];
        kept += stays;
    }
    return worst;
}

/* top_positions for a `largest` that is known at compile time. */
static inline __attribute__((always_inline)) void
top_in_order_T(int64_t n, int64_t k, int64_t stride, int largest, const T *x, int64_t *y,
               int64_t *memory)
{
    const int64_t most = 2 * k + TOP_BLOCK, room = most + TOP_BLOCK;
    int64_t *const at = memory, *const spare = memory + room, *const other = memory + 2 * room;
    T *const keys = (T *)(void *)(memory + 3 * room);
    int64_t count = 0;
    bool is_full = false;
    T worst = 0;
    for (int64_t start = 0; start < n; start += TOP_BLOCK) {
        const int64_t end = start + TOP_BLOCK < n ? start + TOP_BLOCK : n;
        if (is_full && stride == 1) {
            int better = 0;
            for (int64_t i = start; i < end; i++) better |= comes_first_T(largest, x[i], worst);
            if (!better) continue;
        }
        if (k <= FEW) {  // sorted immediately
            for (int64_t i = start; i < end; i++) {
                const T key = x[i * stride];
                if (is_full && !comes_first_T(largest, key, keys[k - 1])) continue;
                int64_t j = is_full ? k - 1 : count++;
                for (; j > 0 && comes_first_T(largest, key, keys[j - 1]); j--) {
                    keys[j] = keys[j - 1];
                    at[j] = at[j - 1];
                }
                keys[j] = key;
                at[j] = i;
                is_full = count == k;
            }
            worst = keys[count - 1];
            continue;
        }
        for (int64_t i = start; i < end; i++) {
            const T key = x[i * stride];
            keys[count] = key;
            at[count] = i;
            count += !is_full | comes_first_T(largest, key, worst);
        }
        if (count > most) {
            worst = keep_best_T(count, k, largest, keys, at, (T *)(void *)spare);
            count = k;
            is_full = true;
        }
    }
    if (k <= FEW) {
        for (int64_t i = 0; i < k; i++) y[i * stride] = at[i];
        return;
    }
    if (count > k) keep_best_T(count, k, largest, keys, at, (T *)(void *)spare);
    const int64_t *const order = order_keys_T(k, largest, keys, spare, other);
    for (int64_t i = 0; i < k; i++) y[i * stride] = at[order[i]];
}

/* The positions of the k largest (or smallest) of the n elements that are `stride` apart in x,
 * best first, into y. Candidates are elements that come before the worst of the k best so far;
 * whenever there are more than twice as many as needed, only the k best are kept. `memory` has
 * room for 8 k and 512 numbers. */
static void top_positions_T(int64_t n, int64_t k, int64_t stride, int largest, const T *x,
                            int64_t *y, int64_t *memory)
{
    if (k == 0) return;
    if (largest) {
        top_in_order_T(n, k, stride, 1, x, y, memory);
    } else {
        top_in_order_T(n, k, stride, 0, x, y, memory);
    }
}

/* How many of n ascending elements are less than the value or, with `behind`, equal to it at
 * most. NaN comes last. A step is one comparison, of which compilers make no branch: of two they
 * do, and it is mispredicted for every second value. */
static int64_t search_sorted_T(int64_t n, const T *x, T value, int behind)
{
    const bool is_last = !is_equal_T(value, value);
    if (is_last && behind) return n;
    int64_t low = 0;
    for (int64_t left = n; left > 0;) {
        const int64_t half = (left + 1) / 2;
        const T middle = x[low + half - 1];
        const bool is_before = behind ? middle <= value : middle < value;
        low += half & -(int64_t)(is_last ? is_equal_T(middle, middle) : is_before);
        left -= half;
    }
    return low;
}
