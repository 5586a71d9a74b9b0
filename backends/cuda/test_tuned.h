// What the tests of launches share: a driver that only writes down, a device with one product.
#ifndef PGD_BACKENDS_CUDA_TEST_TUNED_H
#define PGD_BACKENDS_CUDA_TEST_TUNED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../gpu/test_host.h"
#include "../gpu/test_product.h"
#include "../gpu/tuned.h"
#include "choose.h"
#include "cuda.h"

static const char *option_tuned;
static const char *option_kernels;
static gpu_launch launches[32];
static int32_t n_launches;

// ---- a host and a driver that write down -------------------------------------------------------

static inline const char *option(const pgd_host *h, const char *key) {
    (void)h;
    return strcmp(key, "tuned") == 0     ? option_tuned
           : strcmp(key, "kernels") == 0 ? option_kernels
                                         : NULL;
}

static const pgd_host host = {.size = sizeof(host),
                              .fail = host_fail,
                              .alloc = host_alloc,
                              .free = host_free,
                              .option = option};

static inline pgd_status create(const pgd_host *h, void *device, uint64_t bytes, int32_t place,
                                void **out) {
    (void)h;
    (void)device;
    (void)place;
    *out = calloc(1, (size_t)bytes);
    return PGD_OK;
}

static inline void destroy(const pgd_host *h, void *device, void *memory) {
    (void)h;
    (void)device;
    free(memory);
}

static inline pgd_status launch(const pgd_host *h, void *queue, const gpu_launch *l) {
    (void)h;
    (void)queue;
    assert_in_range(n_launches, 0, 31);
    launches[n_launches++] = *l;
    return PGD_OK;
}

static const gpu_driver driver = {.kind = "cuda",
                                  .tuned = &cuda_tuned,
                                  .create = create,
                                  .destroy = destroy,
                                  .queue_create = host_queue_create,
                                  .queue_destroy = host_queue_destroy,
                                  .launch = launch};

// ---- a device with one product -----------------------------------------------------------------

enum { CAP = 1024, N = 96, K = 1100 };

typedef product_setup setup;

// A device with a weight [n, k], and a product with it of x in x_dtype.
static inline void open_sized(setup *s, const char *arch, int32_t dtype, int32_t x_dtype,
                              uint32_t uses, int64_t n, int64_t k) {
    const pgd_weight_desc desc = {
        .size = sizeof(desc), .uses = uses, .dtype = dtype, .n = n, .k = k, .max_rows = CAP};
    char reason[96] = "";
    memset(s, 0, sizeof(*s));
    s->self = (gpu_self){.host = &host, .driver = &driver};
    memcpy(s->self.facts.arch, arch, strlen(arch) + 1); // names of this file, all short
    s->self.tuned =
        cuda_tuned.usable(&host, &s->self.facts, reason, sizeof(reason)) ? &cuda_tuned : NULL;
    assert_int_equal(product_open(s, &desc, x_dtype, n), PGD_OK);
}

static inline void open_setup(setup *s, const char *arch, int32_t dtype, int32_t x_dtype,
                              uint32_t uses) {
    open_sized(s, arch, dtype, x_dtype, uses, N, K);
}

#endif
