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

typedef struct setup {
    gpu_self self;
    pgd_device d;
    pgd_queue *q;
    pgd_buffer *memory; // of everything, 128 MiB
    pgd_weight *w;
    pgd_batch_head head;
    pgd_batch batch;
    pgd_exec x;
    pgd_gemm_args args;
} setup;

static inline pgd_tensor tensor(pgd_buffer *b, uint64_t offset, int32_t dtype, int64_t rows,
                                int64_t n) {
    return (pgd_tensor){.buffer = b,
                        .offset = offset,
                        .dtype = dtype,
                        .rank = 2,
                        .shape = {rows, n},
                        .stride = {n, 1}};
}

// A device with a weight [n, k].
static inline void open_sized(setup *s, const char *arch, int32_t dtype, uint32_t uses, int64_t n,
                              int64_t k) {
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    const pgd_buffer_desc buffer = {.size = sizeof(buffer), .bytes = UINT64_C(128) << 20};
    char reason[96] = "";
    memset(s, 0, sizeof(*s));
    s->self = (gpu_self){.host = &host, .driver = &driver};
    memcpy(s->self.facts.arch, arch, strlen(arch) + 1); // names of this file, all short
    s->self.tuned =
        cuda_tuned.usable(&host, &s->self.facts, reason, sizeof(reason)) ? &cuda_tuned : NULL;
    s->d = (pgd_device){.size = sizeof(s->d), .self = &s->self, .host = &host};
    assert_int_equal(gpu_queue_table.create(&s->d, &queue, &s->q), PGD_OK);
    assert_int_equal(gpu_memory_table.create(&s->d, &buffer, &s->memory), PGD_OK);
    const pgd_weight_desc desc = {
        .size = sizeof(desc), .uses = uses, .dtype = dtype, .n = n, .k = k, .max_rows = CAP};
    const pgd_range dst = {s->memory, UINT64_C(8) << 20, UINT64_C(8) << 20};
    assert_int_equal(gpu_weight_table.adopt(&s->d, &desc, &dst, &s->w), PGD_OK);
    s->batch = (pgd_batch){.size = sizeof(s->batch),
                           .cap_tokens = CAP,
                           .cap_seqs = CAP,
                           .cap_out = CAP,
                           .mem = s->memory,
                           .mirror = &s->head};
    s->x = (pgd_exec){.size = sizeof(s->x),
                      .dev = &s->d,
                      .queue = s->q,
                      .scratch = {s->memory, UINT64_C(32) << 20, UINT64_C(96) << 20}};
}

static inline void open_setup(setup *s, const char *arch, int32_t dtype, int32_t x_dtype,
                              uint32_t uses) {
    open_sized(s, arch, dtype, uses, N, K);
    s->args = (pgd_gemm_args){.size = sizeof(s->args),
                              .rows = PGD_ROWS_TOKENS,
                              .batch = &s->batch,
                              .w = s->w,
                              .x = tensor(s->memory, 1 << 20, x_dtype, CAP, K),
                              .y = tensor(s->memory, 24 << 20, PGD_F32, CAP, N)};
}

static inline void close_setup(setup *s) {
    gpu_weight_table.destroy(&s->d, s->w);
    gpu_memory_table.destroy(&s->d, s->memory);
    gpu_queue_table.destroy(&s->d, s->q);
}

#endif
