/* Random bits: Philox 4x32-10, of J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011. Several blocks of a counter are encrypted side by side,
 * so that vectors hold the same word of each. */

/* ---- Random bits ----------------------------------------------------------------------------- */

/* Blocks that are computed side by side; words that one call of random_words writes. */
enum { RANDOM_BLOCKS = 16, RANDOM_WORDS = 4096 };

/* The blocks from a counter on, four words each, one after the other. */
static inline void random_blocks(
    const uint32_t *key, uint64_t counter, uint32_t stream, uint32_t *y)
{
    uint32_t a[RANDOM_BLOCKS], b[RANDOM_BLOCKS], c[RANDOM_BLOCKS], d[RANDOM_BLOCKS];
    uint32_t k = key[0], l = key[1];
    for (int j = 0; j < RANDOM_BLOCKS; j++) {
        a[j] = (uint32_t)(counter + (uint64_t)j);
        b[j] = (uint32_t)((counter + (uint64_t)j) >> 32);
        c[j] = stream;
        d[j] = 0;
    }
    for (int round = 0; round < 10; round++) {
        #pragma omp simd
        for (int j = 0; j < RANDOM_BLOCKS; j++) {
            const uint64_t p = (uint64_t)a[j] * 0xD2511F53u, q = (uint64_t)c[j] * 0xCD9E8D57u;
            a[j] = (uint32_t)(q >> 32) ^ b[j] ^ k;
            b[j] = (uint32_t)q;
            c[j] = (uint32_t)(p >> 32) ^ d[j] ^ l;
            d[j] = (uint32_t)p;
        }
        k += 0x9E3779B9u;
        l += 0xBB67AE85u;
    }
    for (int j = 0; j < RANDOM_BLOCKS; j++) {
        y[4 * j] = a[j];
        y[4 * j + 1] = b[j];
        y[4 * j + 2] = c[j];
        y[4 * j + 3] = d[j];
    }
}

/* Part `number` of `count` words, of which word i is word i % 4 of block start + i / 4. */
static void random_words(
    int64_t number, int64_t count, const uint32_t *key, int64_t start, uint32_t stream, uint32_t *y)
{
    const int64_t first = number * RANDOM_WORDS;
    const int64_t end = count - first < RANDOM_WORDS ? count : first + RANDOM_WORDS;
    for (int64_t i = first; i < end; i += 4 * RANDOM_BLOCKS) {
        const uint64_t counter = (uint64_t)start + (uint64_t)(i / 4);
        uint32_t words[4 * RANDOM_BLOCKS];
        if (end - i >= 4 * RANDOM_BLOCKS) {
            random_blocks(key, counter, stream, y + i);
            continue;
        }
        random_blocks(key, counter, stream, words);
        for (int64_t j = i; j < end; j++) y[j] = words[j - i];
    }
}
