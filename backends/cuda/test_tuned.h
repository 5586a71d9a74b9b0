// What the tests of launches of this driver share beside ../gpu/test_launches.h.
#ifndef PGD_BACKENDS_CUDA_TEST_TUNED_H
#define PGD_BACKENDS_CUDA_TEST_TUNED_H

#include "../gpu/test_launches.h"
#include "choose.h"
#include "cuda.h"

static inline void open_chip(setup *s, const char *arch, int32_t dtype, int32_t x_dtype,
                             uint32_t uses, int64_t n, int64_t k) {
    const gpu_device_facts f = chip(arch);
    open_sized(s, &cuda_tuned, &f, dtype, x_dtype, uses, n, k);
}

static inline void open_setup(setup *s, const char *arch, int32_t dtype, int32_t x_dtype,
                              uint32_t uses) {
    open_chip(s, arch, dtype, x_dtype, uses, N, K);
}

#endif
