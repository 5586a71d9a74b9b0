// All kernels as plain C, and their table for the emulator.
#include "portable/emulated.h"

#include "portable/dialect.h"
#include "portable/params.h"

#include "portable/list.inc"

#define DECLARE(name, items, params) \
    void pgd_emulated_##name(k_u8 *const *m, const void *p); /* made by K_KERNEL */
PGD_PORTABLE_KERNELS(DECLARE)
#undef DECLARE

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-parameter"
#else
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

#include "portable/numbers.k"

#include "portable/block.k"

#include "portable/attn.k"
#include "portable/finish.k"
#include "portable/gemm.k"
#include "portable/move.k"
#include "portable/rows.k"
#include "portable/sample.k"

const pgd_emulator_kernel pgd_emulated_kernels[] = {
#define ROW(name, items, params) pgd_emulated_##name,
    PGD_PORTABLE_KERNELS(ROW)
#undef ROW
};
