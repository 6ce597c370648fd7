/* Sorting by merging, in which equal elements keep their order and NaN is the last, and searching
 * in what is sorted. */

#if INSTANCE == 0
#define T float
#define OR_LAST | ((b != b) & (a == a))
#elif INSTANCE == 1
#define T double
#define OR_LAST | ((b != b) & (a == a))
#elif INSTANCE == 2
#define T int8_t
#define OR_LAST
#elif INSTANCE == 3
#define T int16_t
#define OR_LAST
#elif INSTANCE == 4
#define T int32_t
#define OR_LAST
#elif INSTANCE == 5
#define T int64_t
#define OR_LAST
#elif INSTANCE == 6
#define T uint8_t
#define OR_LAST
#elif INSTANCE == 7
#define T uint16_t
#define OR_LAST
#elif INSTANCE == 8
#define T uint32_t
#define OR_LAST
#else
#define T uint64_t
#define OR_LAST
#endif

/* ---- Sorting --------------------------------------------------------------------------------- */

/* Whether a number stands before another one, and is not equal to it. */
static inline bool is_before_T(T a, T b) { return (a < b) OR_LAST; }

/* Elements that are sorted by insertion, before runs of them are merged. */
enum { SHORT_RUN = 16 };

/* The n elements that are `stride` apart in x, sorted, to y. `memory` has room for 2 n. */
static void sort_row_T(int64_t n, int64_t stride, const T *x, T *y, T *memory)
{
    T *from = memory, *to = memory + n;
    for (int64_t i = 0; i < n; i++) from[i] = x[i * stride];
    for (int64_t start = 0; start < n; start += SHORT_RUN) {
        const int64_t end = start + SHORT_RUN < n ? start + SHORT_RUN : n;
        for (int64_t i = start + 1; i < end; i++) {
            const T value = from[i];
            int64_t j = i;
            for (; j > start && is_before_T(value, from[j - 1]); j--) from[j] = from[j - 1];
            from[j] = value;
        }
    }
    for (int64_t width = SHORT_RUN; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            const int64_t middle = start + width < n ? start + width : n;
            const int64_t end = middle + width < n ? middle + width : n;
            int64_t left = start, right = middle;
            for (int64_t i = start; i < end; i++) {
                const bool second =
                    left == middle || (right < end && is_before_T(from[right], from[left]));
                to[i] = second ? from[right] : from[left];
                right += second;
                left += !second;
            }
        }
        T *const sorted = to;
        to = from;
        from = sorted;
    }
    for (int64_t i = 0; i < n; i++) y[i * stride] = from[i];
}

/* The positions that sort the n elements that are `stride` apart in x, to y. `memory` has room for
 * 2 n positions and n elements. */
static void sort_positions_T(int64_t n, int64_t stride, const T *x, int64_t *y, int64_t *memory)
{
    int64_t *from = memory, *to = memory + n;
    T *const keys = (T *)(void *)(memory + 2 * n);
    for (int64_t i = 0; i < n; i++) {
        keys[i] = x[i * stride];
        from[i] = i;
    }
    for (int64_t start = 0; start < n; start += SHORT_RUN) {
        const int64_t end = start + SHORT_RUN < n ? start + SHORT_RUN : n;
        for (int64_t i = start + 1; i < end; i++) {
            const T value = keys[i];
            int64_t j = i;
            for (; j > start && is_before_T(value, keys[from[j - 1]]); j--) from[j] = from[j - 1];
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
                    (right < end && is_before_T(keys[from[right]], keys[from[left]]));
                to[i] = second ? from[right] : from[left];
                right += second;
                left += !second;
            }
        }
        int64_t *const sorted = to;
        to = from;
        from = sorted;
    }
    for (int64_t i = 0; i < n; i++) y[i * stride] = from[i];
}

/* How many of n ascending elements stand before the value, or with `behind` at most equal to it. */
static int64_t search_sorted_T(int64_t n, const T *x, T value, int behind)
{
    int64_t low = 0;
    for (int64_t left = n; left > 0;) {  // without a jump that depends on the value
        const int64_t half = (left + 1) / 2;
        const T middle = x[low + half - 1];
        low += half & -(int64_t)(behind ? !is_before_T(value, middle) : is_before_T(middle, value));
        left -= half;
    }
    return low;
}
