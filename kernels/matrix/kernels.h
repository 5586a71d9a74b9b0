// The matrix-unit kernels as their host sees them. They replace portable products where they win.
//
// A launch is that of a portable kernel: eight memories, one block of parameters, the step's batch
// block as memory 0.
//
//   kernel         memories                             groups
//   pack_x         batch, x, out                        ceil(k_pad / 512), rows
//   gemm_few_*     batch, w, x, y, bias, aux, parts     ceil(panels / few_panels), n_slices,
//                                                       ceil(rows / 16)
//   gemm_merge     batch, -, -, y, bias, aux, parts     ceil(panels / 64), rows
//   gemm_many_*    batch, w, x, y, bias, aux            ceil(panels / a wave's), ceil(rows / 128)
//
// **One order of summation.** A weight's k is cut into slices of km_gemm_slice, by its shape and
// the unit. A slice is one chain of products over k = 0, 16, 32 ...; slices are added to 0 from
// left to right. So gemm_few (with gemm_merge behind it, where there is more than one slice) and
// gemm_many give the same bits, and a host may choose by rows. The bits differ from those of the
// portable kernels, and from unit to unit: a device uses one kind.
//
// **When they may be taken:** the weight is bf16 or f16, packed (K_LAYOUT_PANELS or
// K_LAYOUT_GATED) at an address that is a multiple of 16, x is of its dtype or to be rounded to it.
// y, aux f32, bf16 or f16; any n, k, rows, activation; k >= 1.
#ifndef PGD_KERNELS_MATRIX_KERNELS_H
#define PGD_KERNELS_MATRIX_KERNELS_H

#ifndef PGD_PORTABLE_HOST
#define PGD_PORTABLE_HOST 1
#endif
#include "matrix/params.h"
#include "matrix/units.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "matrix/list.inc"

enum {
#define PGD_MATRIX_ENUM(name, items, params) PGD_MATRIX_##name,
    PGD_MATRIX_KERNELS(PGD_MATRIX_ENUM, 0, 0)
#undef PGD_MATRIX_ENUM
        PGD_MATRIX_COUNT
};

enum {
#define PGD_MATRIX_UNIT(unit, lanes, panels, few, many) PGD_UNIT_##unit,
    PGD_MATRIX_UNITS(PGD_MATRIX_UNIT)
#undef PGD_MATRIX_UNIT
        PGD_UNIT_COUNT
};

typedef struct pgd_matrix_unit {
    const char *name;
    int32_t lanes;      // of a wave
    int32_t panels;     // that a wave takes
    int32_t few_items;  // of a group of gemm_few
    int32_t many_items; // of gemm_many: the waves of a group take the same panels
    int32_t few_panels; // that a group of gemm_few takes
} pgd_matrix_unit;

// One row for each PGD_UNIT_ number.
extern const pgd_matrix_unit pgd_matrix_units[PGD_UNIT_COUNT];

// k of a slice of a weight [n, k]: a multiple of KM_STEP, at least 256, such that the waves of a
// step of few rows are about 1024 where the weight is large enough for that.
static inline int32_t km_gemm_slice(const pgd_matrix_unit *u, int32_t n, int32_t k) {
    const int32_t waves = n / (u->panels * K_COLUMNS) + 1;
    const int32_t slices = (1023 + waves) / waves;
    const int32_t steps = (k + KM_STEP - 1) / KM_STEP;
    const int32_t each = (steps + slices - 1) / slices;
    const int32_t least = 256 / KM_STEP;
    return (each < least ? least : each) * KM_STEP;
}

#ifdef __cplusplus
}
#endif
#endif
