// What tests of the op layer share: a host whose memory is calloc's and whose failures are codes
// alone, and the calls of a driver that have nothing to do.
#ifndef PGD_BACKENDS_GPU_TEST_HOST_H
#define PGD_BACKENDS_GPU_TEST_HOST_H

#include <stdlib.h>

#include "driver.h"

static inline pgd_status host_fail(const pgd_host *h, pgd_status code, const char *file,
                                   int32_t line, const char *fmt, ...) {
    (void)h;
    (void)file;
    (void)line;
    (void)fmt;
    return code;
}

static inline void *host_alloc(const pgd_host *h, uint64_t bytes, uint64_t align) {
    (void)h;
    (void)align;
    return calloc(1, (size_t)bytes);
}

static inline void host_free(const pgd_host *h, void *ptr) {
    (void)h;
    free(ptr);
}

static inline pgd_status host_queue_create(const pgd_host *h, void *device, int32_t role,
                                           void **out) {
    (void)h;
    (void)role;
    *out = device;
    return PGD_OK;
}

static inline void host_queue_destroy(const pgd_host *h, void *queue) {
    (void)h;
    (void)queue;
}

// Eight memories and the parameters of a launch are those of the emulated kernels.
#define TEST_EMULATED(l, memories)                                   \
    pgd_emulator_run(pgd_emulated_kernels[(l)->kernel], (l)->groups, \
                     pgd_portable_kernels[(l)->kernel].n_items, (memories), (l)->params)

#endif
