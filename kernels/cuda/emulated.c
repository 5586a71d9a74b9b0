// The tensor-core kernels as plain C, and their table for the emulator.
#include "cuda/emulated_kernels.h"

#include "cuda/dialect.h"

#include "cuda/list.inc"

#define DECLARE(name, items, params, shared, rows, columns, sm) \
    void pgd_emulated_cuda_##name(k_u8 *const *m, const void *p); /* made by KC_KERNEL */
PGD_CUDA_KERNELS(DECLARE)
#undef DECLARE

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

#include "cuda/all.k"

const pgd_emulator_kernel pgd_emulated_cuda_kernels[] = {
#define ROW(name, items, params, shared, rows, columns, sm) pgd_emulated_cuda_##name,
    PGD_CUDA_KERNELS(ROW)
#undef ROW
};
