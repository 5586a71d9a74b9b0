// The tile instructions of AMX in plain C (Intel SDM volume 2), for tests of the bodies that use
// them: few machines have them. Dot products are those of bf16, or with TILES_INT8 of bytes.
#ifndef PGD_KERNELS_CPU_TILES_TEST_H
#define PGD_KERNELS_CPU_TILES_TEST_H

#include "isa_test.h"

typedef struct tile {
    unsigned char bytes[16][64];
} tile;

static tile tiles[8];
static struct {
    int64_t rows;
    int64_t bytes;
} shapes[8];
static int n_configured;
static int n_released;

// The 64 bytes that LDTILECFG reads: palette, start row, 14 reserved, bytes a row, rows.
static void tile_config(const void *c) {
    const unsigned char *from = c;
    assert_int_equal(from[0], 1);
    memset(tiles, 0, sizeof(tiles));
    for (int t = 0; t < 8; t++) {
        uint16_t bytes = 0;
        memcpy(&bytes, from + 16 + 2 * t, sizeof(bytes));
        shapes[t].bytes = bytes;
        shapes[t].rows = from[48 + t];
        // Both or none; no larger than the palette has it. All else is #GP.
        assert_true((shapes[t].rows == 0) == (bytes == 0));
        assert_true(shapes[t].rows <= 16 && bytes <= 64);
    }
    n_configured++;
}

static void tile_release(void) {
    memset(tiles, 0, sizeof(tiles));
    memset(shapes, 0, sizeof(shapes));
    n_released++;
}

// #UD without a shape.
static void need_shape(int t) {
    assert_true(shapes[t].rows > 0);
}

// Of a dot product: c rows of a by columns of b, as deep as both.
static void need_shapes(int c, int a, int b) {
    need_shape(c);
    need_shape(a);
    need_shape(b);
    assert_true(shapes[c].rows == shapes[a].rows && shapes[c].bytes == shapes[b].bytes);
    assert_true(shapes[a].bytes / 4 == shapes[b].rows);
}

static void tile_zero(int t) {
    need_shape(t);
    memset(&tiles[t], 0, sizeof(tiles[t]));
}

static void tile_load(int t, const void *from, int64_t stride) {
    need_shape(t);
    memset(&tiles[t], 0, sizeof(tiles[t]));
    for (int64_t r = 0; r < shapes[t].rows; r++) {
        memcpy(tiles[t].bytes[r], (const char *)from + r * stride, (size_t)shapes[t].bytes);
    }
}

static void tile_store(int t, void *to, int64_t stride) {
    need_shape(t);
    for (int64_t r = 0; r < shapes[t].rows; r++) {
        memcpy((char *)to + r * stride, tiles[t].bytes[r], (size_t)shapes[t].bytes);
    }
}

#if defined(TILES_INT8)
// TDPBSUD: sums of 4 products of signed by unsigned bytes, added to 32 bits.
static void tile_dot_int8(int c, int a, int b) {
    need_shapes(c, a, b);
    for (int64_t m = 0; m < shapes[c].rows; m++) {
        for (int64_t n = 0; n < shapes[c].bytes / 4; n++) {
            int32_t sum = 0;
            memcpy(&sum, tiles[c].bytes[m] + 4 * n, sizeof(sum));
            for (int64_t k = 0; k < 4 * shapes[b].rows; k++) {
                sum += (int8_t)tiles[a].bytes[m][k] * tiles[b].bytes[k / 4][4 * n + k % 4];
            }
            memcpy(tiles[c].bytes[m] + 4 * n, &sum, sizeof(sum));
        }
    }
}
#else
static float flush(float v) {
    return fabsf(v) < 0x1p-126f ? copysignf(0.0f, v) : v;
}

static float bf16_at(const unsigned char *row, int64_t i) {
    uint16_t half = 0;
    memcpy(&half, row + 2 * i, sizeof(half));
    const uint32_t bits = (uint32_t)half << 16;
    float v = 0.0f;
    memcpy(&v, &bits, sizeof(v));
    return flush(v);
}

// TDPBF16PS: per element, even and odd products in chains of their own, then both to the sum.
static void tile_dot(int c, int a, int b) {
    need_shapes(c, a, b);
    for (int64_t m = 0; m < shapes[c].rows; m++) {
        for (int64_t n = 0; n < shapes[c].bytes / 4; n++) {
            float side[2] = {0.0f, 0.0f};
            float sum = 0.0f;
            for (int64_t k = 0; k < shapes[b].rows; k++) {
                for (int64_t odd = 0; odd < 2; odd++) {
                    side[odd] = flush(fmaf(bf16_at(tiles[a].bytes[m], 2 * k + odd),
                                           bf16_at(tiles[b].bytes[k], 2 * n + odd), side[odd]));
                }
            }
            memcpy(&sum, tiles[c].bytes[m] + 4 * n, sizeof(sum));
            sum = flush(flush(sum) + flush(side[0] + side[1]));
            memcpy(tiles[c].bytes[m] + 4 * n, &sum, sizeof(sum));
        }
    }
}
#endif

#endif
