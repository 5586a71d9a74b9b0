// The shapes of AMX's tile registers: what LDTILECFG reads, palette 1 (Intel SDM volume 2).
#ifndef PGD_KERNELS_CPU_TILE_SHAPES_H
#define PGD_KERNELS_CPU_TILE_SHAPES_H

#include <stdint.h>

enum { TILE_ROWS = 16, TILE_WIDTH = 16, TILE_BYTES = 64 };

typedef struct tile_shapes {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved0[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

// Two tiles of x (4, 5), two of weights (6, 7), four of sums: for m rows (1 to 32) of x, `deep`
// groups of 4 bytes (1 to 16) of each.
//
//            weights 6    weights 7
//   x 4      sums 0       sums 1        rows 0 .. 15
//   x 5      sums 2       sums 3        rows 16 .. 31
static inline tile_shapes tile_shapes_of(int64_t m, int64_t deep) {
    const uint8_t upper = (uint8_t)(m < TILE_ROWS ? m : TILE_ROWS);
    const uint8_t lower = (uint8_t)(m - upper);
    tile_shapes s = {.palette = 1};
    for (int t = 0; t < 4; t++) {
        s.rows[t] = t < 2 ? upper : lower;
        s.bytes[t] = s.rows[t] > 0 ? TILE_BYTES : 0;
    }
    s.rows[4] = upper;
    s.rows[5] = lower;
    s.bytes[4] = (uint16_t)(4 * deep);
    s.bytes[5] = (uint16_t)(lower > 0 ? 4 * deep : 0);
    s.rows[6] = s.rows[7] = (uint8_t)deep;
    s.bytes[6] = s.bytes[7] = TILE_BYTES;
    return s;
}

#endif
