/* A digest of large data at the speed of memory: it tells one set of weights from another.
 *
 * NH of J. Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway, "UMAC: Fast and Secure Message
 * Authentication" (CRYPTO 1999): of two different blocks the digests are equal for one key in 2^32;
 * four digests with the key moved on by a row each (their Toeplitz construction) for one in 2^128.
 * The key is fixed and public: this finds every change that was not made to deceive it. */
#include <stdint.h>
#include <string.h>

enum { ROW = 16, ROWS = 16, LANES = 4, BLOCK = ROW * ROWS }; /* a block is 1 KiB of words */

typedef uint32_t words __attribute__((vector_size(4 * ROW), aligned(1), may_alias));
typedef uint64_t pairs __attribute__((vector_size(4 * ROW)));

/* digest[lane] = sum over i of (data[2i] + key[2i]) * (data[2i + 1] + key[2i + 1]), the sums modulo
 * 2^32 and the rest modulo 2^64, with the key that begins `lane` rows further on. */
static void digest_block(const char *data, const char *key, uint64_t *digest)
{
    pairs sum[LANES] = {{0}};
    for (int row = 0; row < ROWS; row++) {
        const words message = *(const words *)(data + row * sizeof(words));
        #pragma GCC unroll 4
        for (int lane = 0; lane < LANES; lane++) {
            const words *k = (const words *)(key + (row + lane) * sizeof(words));
            const pairs both = (pairs)(message + *k);
            sum[lane] += (both & UINT32_MAX) * (both >> 32);
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        digest[lane] = 0;
        for (int i = 0; i < ROW / 2; i++)
            digest[lane] += sum[lane][i];
    }
}

/* digests[ceil(size / 1024)][4]: of each KiB of `size` bytes, the last one filled up with zeros;
 * the key has 304 words of 32 bits. */
void fingerprint(const char *data, int64_t size, const char *key, uint64_t *digests)
{
    const int64_t bytes = BLOCK * sizeof(uint32_t), whole = size / bytes;
    for (int64_t block = 0; block < whole; block++)
        digest_block(data + block * bytes, key, digests + block * LANES);
    if (whole * bytes < size) {
        char last[BLOCK * sizeof(uint32_t)] = {0};
        memcpy(last, data + whole * bytes, (size_t)(size - whole * bytes));
        digest_block(last, key, digests + whole * LANES);
    }
}
