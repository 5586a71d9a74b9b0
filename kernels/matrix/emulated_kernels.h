// The matrix-unit kernels as the emulator runs them, one set for each unit.
#ifndef PGD_KERNELS_MATRIX_EMULATED_KERNELS_H
#define PGD_KERNELS_MATRIX_EMULATED_KERNELS_H

#include "portable/emulator.h"

typedef struct pgd_emulated_unit {
    const pgd_emulator_kernel *kernels; // by PGD_MATRIX_ number (kernels.h)
    int lanes;
    int elements[3]; // of a lane: 16-bit numbers of a and b, floats of d
    // Which element of a, b or d (matrix 0, 1, 2) element e of a lane is.
    void (*place)(int matrix, int lane, int e, int *out_row, int *out_column);
} pgd_emulated_unit;

extern const pgd_emulated_unit pgd_emulated_mfma;
extern const pgd_emulated_unit pgd_emulated_wmma;
extern const pgd_emulated_unit pgd_emulated_wmma12;
extern const pgd_emulated_unit pgd_emulated_dpas16;
extern const pgd_emulated_unit pgd_emulated_dpas8;

#endif
