// Quantized weights as the products read them, and x rounded to int8 beside them.
//
// A panel is 32 rows of W. Its k are cut into parts of PGD_CPU_DEPTH, a part into supers of 256, a
// super into cells of 32 k:
//
//   part    | f32 [32] scales: INT8 only | super | super |
//   super   | f16 d[32], f16 m[32]: types with 256 elements a block | cell | ... 8 of them |
//   cell    | scales | codes |
//     scales  f16 d[32], f16 m[32]; or e8m0[32]; or a byte a row and group of 32 or 16 k (SUPER)
//     codes   unsigned. Element k of row r is code number (k / 4) * 128 + r * 4 + k % 4 of 1024:
//             4 k of a row side by side, as int8 dot instructions want them.
//             Codes lie in planes of 8, 4, 2 and 1 bits, low bits first; a plane of b bits has
//             128 b bytes, and the bits of code i are in byte i % (128 b), from bit
//             b * (i / (128 b)) on: unpacking is a shift and a mask for the whole plane.
//
// An element is d * (code - offset) + m. What a type does not have takes no room, so resident bytes
// are those of the file, or at most 1.04 times as many (q3_k: its scales of 6 bits become bytes).
#ifndef PGD_KERNELS_CPU_QUANT_H
#define PGD_KERNELS_CPU_QUANT_H

#include <stdint.h>

#include <pagoda/types.h>

#include "kernels.h"

enum {
    PGD_CPU_CELL = 32,    // k of a cell
    PGD_CPU_SUPER = 256,  // k of a super
    PGD_CPU_CODES = 1024, // of a cell
};

// Where the factor of a code comes from.
enum {
    PGD_CPU_SCALE_HALF = 0,  // an f16 a cell
    PGD_CPU_SCALE_E8M0 = 1,  // a power of two a cell, codes are twice the values
    PGD_CPU_SCALE_SUPER = 2, // f16 of the super times an integer of the cell
    PGD_CPU_SCALE_PART = 3,  // an f32 a row
};

enum { PGD_CPU_CODES_PLAIN = 0, PGD_CPU_CODES_IQ4_NL = 1, PGD_CPU_CODES_MXFP4 = 2 };

typedef struct pgd_cpu_form {
    int32_t bits;   // of the low plane: 8, 4 or 2
    int32_t high;   // of the high plane: 0, 1 or 2
    int32_t offset; // 0, 4, 8, 16, 32 or 128
    int32_t scale;  // PGD_CPU_SCALE_...
    int32_t groups; // of a cell that have a scale of their own: 1 or 2
    int32_t min;    // 1: there are minimums m; then offset is 0
    int32_t wide;   // 1: scales of SUPER are signed
    int32_t codes;  // PGD_CPU_CODES_...: what low codes stand for
} pgd_cpu_form;

// X(scheme, low bits, high bits, offset, scale, groups, min, signed, codes)
#define PGD_CPU_FORM_LIST(X)                    \
    X(Q8_0, 8, 0, 128, HALF, 1, 0, 0, PLAIN)    \
    X(Q4_0, 4, 0, 8, HALF, 1, 0, 0, PLAIN)      \
    X(Q4_1, 4, 0, 0, HALF, 1, 1, 0, PLAIN)      \
    X(Q5_0, 4, 1, 16, HALF, 1, 0, 0, PLAIN)     \
    X(Q5_1, 4, 1, 0, HALF, 1, 1, 0, PLAIN)      \
    X(Q2_K, 2, 0, 0, SUPER, 2, 1, 0, PLAIN)     \
    X(Q3_K, 2, 1, 4, SUPER, 2, 0, 1, PLAIN)     \
    X(Q4_K, 4, 0, 0, SUPER, 1, 1, 0, PLAIN)     \
    X(Q5_K, 4, 1, 0, SUPER, 1, 1, 0, PLAIN)     \
    X(Q6_K, 4, 2, 32, SUPER, 2, 0, 1, PLAIN)    \
    X(IQ4_NL, 4, 0, 128, HALF, 1, 0, 0, IQ4_NL) \
    X(MXFP4, 4, 0, 16, E8M0, 1, 0, 0, MXFP4)    \
    X(INT8, 8, 0, 128, PART, 1, 0, 0, PLAIN)

// All zero (bits 0) for a scheme that has no form.
static inline __attribute__((always_inline)) pgd_cpu_form pgd_cpu_form_of(int32_t scheme) {
    switch (scheme) {
#define PGD_CPU_FORM_CASE(name, b, h, o, s, g, m, w, c)   \
    case PGD_SCHEME_##name:                               \
        return (pgd_cpu_form){.bits = (b),                \
                              .high = (h),                \
                              .offset = (o),              \
                              .scale = PGD_CPU_SCALE_##s, \
                              .groups = (g),              \
                              .min = (m),                 \
                              .wide = (w),                \
                              .codes = PGD_CPU_CODES_##c};
        PGD_CPU_FORM_LIST(PGD_CPU_FORM_CASE)
#undef PGD_CPU_FORM_CASE
    default: return (pgd_cpu_form){0};
    }
}

static inline __attribute__((always_inline)) int64_t pgd_cpu_part_head(pgd_cpu_form f) {
    return f.scale == PGD_CPU_SCALE_PART ? 4 * PGD_CPU_PANEL : 0;
}

static inline __attribute__((always_inline)) int64_t pgd_cpu_super_head(pgd_cpu_form f) {
    return f.scale == PGD_CPU_SCALE_SUPER ? 2 * (1 + f.min) * PGD_CPU_PANEL : 0;
}

// Of the scales of a cell. q2_k has both of a group in the halves of one byte.
static inline __attribute__((always_inline)) int64_t pgd_cpu_cell_head(pgd_cpu_form f) {
    switch (f.scale) {
    case PGD_CPU_SCALE_HALF: return 2 * (1 + f.min) * PGD_CPU_PANEL;
    case PGD_CPU_SCALE_E8M0: return PGD_CPU_PANEL;
    case PGD_CPU_SCALE_SUPER: return 2 * PGD_CPU_PANEL;
    default: return 0;
    }
}

static inline __attribute__((always_inline)) int64_t pgd_cpu_cell_bytes(pgd_cpu_form f) {
    return pgd_cpu_cell_head(f) + (f.bits + f.high) * PGD_CPU_CODES / 8;
}

// Where cell c of a part begins.
static inline __attribute__((always_inline)) int64_t pgd_cpu_cell_at(pgd_cpu_form f, int64_t c) {
    const int64_t supers = c / (PGD_CPU_SUPER / PGD_CPU_CELL) + 1;
    return pgd_cpu_part_head(f) + supers * pgd_cpu_super_head(f) + c * pgd_cpu_cell_bytes(f);
}

// The head of the super that cell c lies in.
static inline __attribute__((always_inline)) int64_t pgd_cpu_super_at(pgd_cpu_form f, int64_t c) {
    const int64_t of_super = PGD_CPU_SUPER / PGD_CPU_CELL;
    return pgd_cpu_cell_at(f, c / of_super * of_super) - pgd_cpu_super_head(f);
}

// Bytes of the first k of a panel, a multiple of PGD_CPU_DEPTH or all of them. k of INT8 may be any
// number: behind them are codes that stand for zero.
int64_t pgd_cpu_quant_bytes(int32_t scheme, int64_t k);

// Packs k columns of up to 32 rows into a panel. A row is blocks of the scheme, or int8 with its
// scale in scales[r] (INT8); NULL = zeros. k is a multiple of the block's elements.
void pgd_cpu_quant_pack(int32_t scheme, const unsigned char *const rows[PGD_CPU_PANEL],
                        const float *scales, int64_t k, unsigned char *panel);

// Elements [k0, k0 + n) of a row of a packed panel as f32.
void pgd_cpu_quant_row(int32_t scheme, const unsigned char *panel, int64_t row, int64_t k0,
                       int64_t n, float *out);

// Twice the values of mxfp4 plus 16, and the values of iq4_nl plus 128, by code.
extern const uint8_t pgd_cpu_codes_mxfp4[16];
extern const uint8_t pgd_cpu_codes_iq4_nl[16];

#endif
