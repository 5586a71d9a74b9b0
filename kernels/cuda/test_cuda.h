// What the tests of this room share: launches on the emulator, numbers, tensors in host memory.
#ifndef PGD_KERNELS_CUDA_TEST_CUDA_H
#define PGD_KERNELS_CUDA_TEST_CUDA_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/emulated_kernels.h"
#include "cuda/kernels.h"
#include "ref/ref.h"

static inline float test_number(uint64_t *rng) {
    *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(*rng >> 40) / (double)(1 << 23) - 1.0);
}

// n numbers of a dtype, in memory whose ends the address sanitizer watches.
static inline void *test_numbers(int32_t dtype, int64_t n, uint64_t seed, double scale) {
    uint64_t rng = seed;
    void *p = malloc((size_t)n * (dtype == PGD_F32 ? 4 : 2));
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        pgd_ref_store(dtype, p, i, (double)test_number(&rng) * scale);
    }
    return p;
}

// Memory of n bytes, all 0xee: not zero, and as a number tiny in every dtype.
static inline void *test_room(int64_t n) {
    void *p = malloc((size_t)n);
    assert_non_null(p);
    memset(p, 0xee, (size_t)n);
    return p;
}

static inline pgd_tensor test_tensor(int32_t dtype, void *p, int64_t rows, int64_t heads, int64_t n,
                                     int64_t stride) {
    pgd_tensor t = {.offset = (uint64_t)(uintptr_t)p, .dtype = dtype, .rank = heads > 0 ? 3 : 2};
    t.shape[0] = rows;
    t.stride[0] = stride;
    if (heads > 0) {
        t.shape[1] = heads;
        t.stride[1] = n;
    }
    t.shape[t.rank - 1] = n;
    t.stride[t.rank - 1] = 1;
    return t;
}

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
