// The matrix-unit kernels of one unit as plain C. Compiled once for each: KM_UNIT is its name as
// pgd_emulated_<unit>, and KM_UNIT_<UNIT> is defined.
#include "matrix/emulated_kernels.h"

#include "matrix/dialect.h"

#include "matrix/list.inc"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"

#include "portable/numbers.k"

#include "portable/finish.k"

#include "matrix/gemm.k"

static const pgd_emulator_kernel kernels[] = {
#define ROW(name, items, params) run_##name,
    PGD_MATRIX_KERNELS(ROW, 0, 0)
#undef ROW
};

static void place(int matrix, int lane, int e, int *out_row, int *out_column) {
    const km_place at = matrix == 0   ? km_place_a(lane, e)
                        : matrix == 1 ? km_place_b(lane, e)
                                      : km_place_d(lane, e);
    *out_row = at.row;
    *out_column = at.column;
}

const pgd_emulated_unit KM_UNIT = {
    .kernels = kernels,
    .lanes = KM_LANES,
    .elements = {KM_HALVES_A, KM_HALVES_B, KM_N},
    .place = place,
};
