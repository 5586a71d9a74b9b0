// What the tests of launches share: a host, and a driver that only writes launches down, under the
// op layer with one product.
#ifndef PGD_BACKENDS_GPU_TEST_LAUNCHES_H
#define PGD_BACKENDS_GPU_TEST_LAUNCHES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_host.h"
#include "test_product.h"
#include "tuned.h"

static const char *option_tuned;
static const char *option_kernels;
static gpu_launch launches[32];
static int32_t n_launches;

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
    (void)device;
    (void)place;
    *out = host_alloc(h, bytes, 0);
    return PGD_OK;
}

static inline void destroy(const pgd_host *h, void *device, void *memory) {
    (void)device;
    host_free(h, memory);
}

static inline pgd_status write_down(const pgd_host *h, void *queue, const gpu_launch *l) {
    (void)h;
    (void)queue;
    assert_in_range(n_launches, 0, 31);
    launches[n_launches++] = *l;
    return PGD_OK;
}

static gpu_driver driver = {.kind = "test",
                            .create = create,
                            .destroy = destroy,
                            .queue_create = host_queue_create,
                            .queue_destroy = host_queue_destroy,
                            .launch = write_down};

typedef product_setup setup;

enum { CAP = 1024, N = 96, K = 1100 };

static inline gpu_device_facts chip(const char *arch) {
    gpu_device_facts f = {.has_f64 = 1};
    memcpy(f.arch, arch, strlen(arch) + 1); // names of tests, all short
    return f;
}

// A device of that kind with a weight [n, k], and a product with it of x in x_dtype.
static inline void open_sized(setup *s, const gpu_tuned *tuned, const gpu_device_facts *facts,
                              int32_t dtype, int32_t x_dtype, uint32_t uses, int64_t n, int64_t k) {
    const pgd_weight_desc desc = {
        .size = sizeof(desc), .uses = uses, .dtype = dtype, .n = n, .k = k, .max_rows = CAP};
    memset(s, 0, sizeof(*s));
    driver.tuned = tuned;
    s->self = (gpu_self){.host = &host, .driver = &driver, .facts = *facts};
    s->self.tuned = tuned->usable(&host, facts, s->self.plain_reason, sizeof(s->self.plain_reason))
                        ? tuned
                        : NULL;
    assert_int_equal(product_open(s, &desc, x_dtype, n), PGD_OK);
}

static inline pgd_status run(setup *s, int32_t rows) {
    s->head.n_tokens = rows;
    n_launches = 0;
    return gpu_op_gemm(&s->x, &s->args);
}

// Whether a product of 3 rows is launched as tuned kernels; the op layer says the same of it.
static inline int32_t is_tuned(const gpu_tuned *tuned, const gpu_device_facts *facts, int32_t dtype,
                               int32_t x_dtype, uint32_t uses) {
    setup s;
    uint64_t bytes = 0;
    open_sized(&s, tuned, facts, dtype, x_dtype, uses, N, K);
    assert_int_equal(run(&s, 3), PGD_OK);
    const int32_t last = launches[n_launches - 1].kernel >= PGD_PORTABLE_COUNT;
    assert_int_equal(gpu_tuned_product(&s.d, &s.w->desc, &s.args.x, &bytes) != NULL, last);
    product_close(&s);
    return last;
}

#endif
