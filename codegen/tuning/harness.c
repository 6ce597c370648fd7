/* What times the candidates of one kernel. */

/* How many there are. */
#define COUNT 1

#include <stdint.h>
#include <time.h>

/* Of one thread the time that it ran, which other programs cannot make longer. */
static int64_t nanoseconds(int n_threads) {
    struct timespec now;
    clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Reads memory, which then is in the caches, and what was there before is not. */
static void read_bytes(const volatile char *bytes, int64_t size, int n_threads) {
    #pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t i = 0; i < size; i += 64)
        (void)bytes[i];
}

typedef void Candidate(void *const *array, const void *const *weights, const int64_t *size,
                       void *scratch, int n_threads, fx_error *error);
static Candidate *const candidates[COUNT];

/* Runs a candidate `repeats` times and returns nanoseconds, or -1 after an error. Between runs, as
 * many bytes are read as the rest of a model has weights, and then what this kernel is given. */
int64_t run(int candidate, void *const *array, const int64_t *bytes, int arrays,
            const void *const *weights, const int64_t *size, void *scratch, int n_threads,
            const char *other, int64_t other_bytes, int64_t repeats) {
    fx_error error = {0};
    int64_t total = 0;
    for (int64_t r = 0; r < repeats; r++) {
        if (other_bytes > 0) {
            read_bytes(other, other_bytes, n_threads);
            for (int i = 0; i < arrays; i++)
                read_bytes(array[i], bytes[i], n_threads);
        }
        const int64_t start = nanoseconds(n_threads);
        candidates[candidate](array, weights, size, scratch, n_threads, &error);
        total += nanoseconds(n_threads) - start;
        if (error.code)
            return -1;
    }
    return total;
}
