/* The tile instructions of AMX in plain C, so that what is emitted for them is tested on machines
 * without. In comes a C file, unchanged, compiled with this header included first (gcc -include
 * amx_emulation.h): that defines __AMX_BF16__ and __AMX_INT8__, by which a file chooses tiles, and
 * the intrinsics that it then uses. Out comes the same program for any x86-64 processor.
 *
 * As the instruction set reference has it ("Intel 64 and IA-32 Architectures Software Developer's
 * Manual", volume 2): palette 1 has 8 tiles of up to 16 rows of 64 bytes; TILELOADD fills the rows
 * that are configured and clears the rest; TDPBF16PS adds up even and odd numbers of the pairs apart
 * from each other, in the order of k, starting from 0, then both, then the sum that was there, each
 * rounded to the nearest float with subnormal operands and results taken as 0; TDPB?? add up in 32
 * bits, which wrap around.
 *
 * What ends a program on a processor ends it here, with a message: tiles that the system was not
 * asked for, or that are not configured, or do not fit together. The system refuses them if the
 * environment has AMX_EMULATION_REFUSED. Not modelled: time, TILELOADDT1, restarts at a row. */
#ifndef AMX_EMULATION_H
#define AMX_EMULATION_H
#if defined(__AMX_TILE__)
#error this processor has tiles: leave -march=native away
#endif
#include <errno.h>
#include <float.h>
#include <immintrin.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1

typedef struct {
    int rows, row_bytes; /* 0: not configured */
    uint8_t row[16][64];
} amx_tile;

/* Of the processor, whichever source asks: weak, as tiles may be objects of their own. */
__attribute__((weak)) _Thread_local amx_tile amx_tiles[8];
__attribute__((weak)) int amx_allowed;

__attribute__((noreturn, unused)) static void amx_fault(const char *why)
{
    fprintf(stderr, "amx_emulation: %s\n", why);
    abort();
}

__attribute__((unused)) static long amx_syscall(long number, ...)
{
    va_list given;
    va_start(given, number);
    const long code = va_arg(given, long), feature = va_arg(given, long);
    va_end(given);
    if (number != SYS_arch_prctl || code != 0x1023 || feature != 18)
        amx_fault("not the system call that asks for tiles");
    if (getenv("AMX_EMULATION_REFUSED")) {
        errno = EPERM;
        return -1;
    }
    __atomic_store_n(&amx_allowed, 1, __ATOMIC_RELAXED);
    return 0;
}

__attribute__((unused)) static void amx_release(void)
{
    memset(amx_tiles, 0, sizeof amx_tiles);
}

__attribute__((unused)) static void amx_configure(const void *config)
{
    const uint8_t *const bytes = config;
    if (!__atomic_load_n(&amx_allowed, __ATOMIC_RELAXED))
        amx_fault("the system was not asked for tiles");
    amx_release();
    for (int i = 2; i < 16; i++)
        if (bytes[i])
            amx_fault("reserved bytes of the configuration are not 0");
    if (bytes[0] != 1 || bytes[1] != 0)
        amx_fault("palette 1 from row 0 on is what there is");
    for (int t = 0; t < 16; t++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, bytes + 16 + 2 * t, 2);
        const int rows = bytes[48 + t];
        if (rows > 16 || row_bytes > 64 || !rows != !row_bytes || (t > 7 && rows))
            amx_fault("a tile has up to 16 rows of 64 bytes, and there are 8 tiles");
        if (t < 8) {
            amx_tiles[t].rows = rows;
            amx_tiles[t].row_bytes = row_bytes;
        }
    }
}

static inline amx_tile *amx_find(int tile)
{
    if (amx_tiles[tile].rows == 0)
        amx_fault("a tile is used that is not configured");
    return &amx_tiles[tile];
}

__attribute__((unused)) static void amx_zero(int tile)
{
    amx_tile *const t = amx_find(tile);
    memset(t->row, 0, sizeof t->row);
}

__attribute__((unused)) static void amx_load(int tile, const void *base, long stride)
{
    amx_tile *const t = amx_find(tile);
    memset(t->row, 0, sizeof t->row);
    for (int i = 0; i < t->rows; i++)
        memcpy(t->row[i], (const uint8_t *)base + i * stride, t->row_bytes);
}

__attribute__((unused)) static void amx_store(int tile, void *base, long stride)
{
    const amx_tile *const t = amx_find(tile);
    for (int i = 0; i < t->rows; i++)
        memcpy((uint8_t *)base + i * stride, t->row[i], t->row_bytes);
}

/* The sums, rows of a and rows of b of a product; they must fit together. */
static inline void amx_operands(int sum, int a, int b, amx_tile *found[3])
{
    found[0] = amx_find(sum), found[1] = amx_find(a), found[2] = amx_find(b);
    if (sum == a || sum == b || a == b)
        amx_fault("the tiles of a product are not different ones");
    if (found[0]->rows != found[1]->rows || found[0]->row_bytes != found[2]->row_bytes
        || found[1]->row_bytes != 4 * found[2]->rows)
        amx_fault("the tiles of a product do not fit together");
}

static inline float amx_normal(float x)
{
    return __builtin_fabsf(x) < FLT_MIN ? __builtin_copysignf(0, x) : x;
}

/* One half of a pair of bf16. */
static inline float amx_half(const uint8_t *pair, int half)
{
    uint32_t bits;
    float x;
    memcpy(&bits, pair, 4);
    bits = half ? bits & 0xffff0000 : bits << 16;
    memcpy(&x, &bits, 4);
    return amx_normal(x);
}

__attribute__((unused)) static void amx_dpbf16ps(int sum, int a, int b)
{
    amx_tile *t[3];
    amx_operands(sum, a, b, t);
    for (int i = 0; i < t[0]->rows; i++) {
        float part[2][16] = {{0}};
        for (int k = 0; k < t[2]->rows; k++)
            for (int half = 0; half < 2; half++) {
                const float x = amx_half(&t[1]->row[i][4 * k], half);
                for (int j = 0; j < t[0]->row_bytes / 4; j++)
                    part[half][j] = amx_normal(__builtin_fmaf(
                        x, amx_half(&t[2]->row[k][4 * j], half), part[half][j]));
            }
        for (int j = 0; j < t[0]->row_bytes / 4; j++) {
            float total;
            memcpy(&total, &t[0]->row[i][4 * j], 4);
            total = amx_normal(amx_normal(total) + amx_normal(part[0][j] + part[1][j]));
            memcpy(&t[0]->row[i][4 * j], &total, 4);
        }
    }
}

__attribute__((unused)) static void amx_dot_bytes(int sum, int a, int b, int a_signed, int b_signed)
{
    amx_tile *t[3];
    amx_operands(sum, a, b, t);
    for (int i = 0; i < t[0]->rows; i++)
        for (int j = 0; j < t[0]->row_bytes / 4; j++) {
            uint32_t total;
            memcpy(&total, &t[0]->row[i][4 * j], 4);
            for (int k = 0; k < t[1]->row_bytes; k++) {
                const uint8_t x = t[1]->row[i][k], y = t[2]->row[k / 4][4 * j + k % 4];
                const int left = a_signed ? (int8_t)x : x, right = b_signed ? (int8_t)y : y;
                total += (uint32_t)(left * right);
            }
            memcpy(&t[0]->row[i][4 * j], &total, 4);
        }
}

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#define syscall amx_syscall
#define _tile_loadconfig(config) amx_configure(config)
#define _tile_release() amx_release()
#define _tile_loadd(tile, base, stride) amx_load(tile, base, stride)
#define _tile_stored(tile, base, stride) amx_store(tile, base, stride)
#define _tile_zero(tile) amx_zero(tile)
#define _tile_dpbf16ps(sum, a, b) amx_dpbf16ps(sum, a, b)
#define _tile_dpbssd(sum, a, b) amx_dot_bytes(sum, a, b, 1, 1)
#define _tile_dpbsud(sum, a, b) amx_dot_bytes(sum, a, b, 1, 0)
#define _tile_dpbusd(sum, a, b) amx_dot_bytes(sum, a, b, 0, 1)
#define _tile_dpbuud(sum, a, b) amx_dot_bytes(sum, a, b, 0, 0)
#endif
