// What the tests of this room share beside test_product.h: launches on the emulator.
#ifndef PGD_KERNELS_CUDA_TEST_CUDA_H
#define PGD_KERNELS_CUDA_TEST_CUDA_H

#include "cuda/emulated_kernels.h"
#include "cuda/kernels.h"
#include "portable/test_product.h"

// Runs a kernel; shared memory is exactly as large as the list says, and full of NaN.
static inline void test_launch(int32_t kernel, uint32_t x, uint32_t y, uint32_t z,
                               void *const memories[8], const void *params) {
    const pgd_cuda_kernel *k = &pgd_cuda_kernels[kernel];
    const k_u32 groups[3] = {x, y, z};
    k_u8 *m[8];
    void *shared = NULL;
    for (int i = 0; i < 8; i++) {
        m[i] = (k_u8 *)memories[i];
    }
    if (k->shared > 0) {
        assert_int_equal(posix_memalign(&shared, 128, k->shared), 0);
        memset(shared, 0xff, k->shared);
    }
    pgd_emulator_shared = (k_u8 *)shared;
    const int code =
        pgd_emulator_run(pgd_emulated_cuda_kernels[kernel], groups, k->n_items, m, params);
    free(shared);
    if (code != 0) {
        fail_msg("%s: items wait at different barriers (%d)", k->name, code);
    }
}

#endif
