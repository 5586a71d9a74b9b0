// What the tests of drivers with matrix units share: an op layer over a driver that only writes
// launches down, with one product.
#ifndef PGD_BACKENDS_GPU_TEST_MATRIX_H
#define PGD_BACKENDS_GPU_TEST_MATRIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "matrix.h"
#include "test_host.h"

static const char *option_tuned;
static const char *option_kernels;
static gpu_launch launches[32];
static int32_t n_launches;

static const char *option(const pgd_host *h, const char *key) {
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

static pgd_status create(const pgd_host *h, void *device, uint64_t bytes, int32_t place,
                         void **out) {
    (void)device;
    (void)place;
    *out = host_alloc(h, bytes, 0);
    return PGD_OK;
}

static void destroy(const pgd_host *h, void *device, void *memory) {
    (void)device;
    host_free(h, memory);
}

static pgd_status write_down(const pgd_host *h, void *queue, const gpu_launch *l) {
    (void)h;
    (void)queue;
    assert_in_range(n_launches, 0, 31);
    launches[n_launches++] = *l;
    return PGD_OK;
}

enum { CAP = 1024, N = 96, K = 1100 };

typedef struct setup {
    gpu_driver driver;
    gpu_self self;
    pgd_device d;
    pgd_queue *q;
    pgd_buffer *memory; // of everything, 128 MiB
    pgd_weight *w;
    pgd_batch_head head;
    pgd_batch batch;
    pgd_exec x;
    pgd_gemm_args args;
    char reason[96]; // why there are no tuned kernels
} setup;

static pgd_tensor tensor(pgd_buffer *b, uint64_t offset, int32_t dtype, int64_t rows, int64_t n) {
    return (pgd_tensor){.buffer = b,
                        .offset = offset,
                        .dtype = dtype,
                        .rank = 2,
                        .shape = {rows, n},
                        .stride = {n, 1}};
}

static void open_setup(setup *s, const gpu_tuned *tuned, const gpu_device_facts *facts,
                       int32_t dtype, int32_t x_dtype) {
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    const pgd_buffer_desc buffer = {.size = sizeof(buffer), .bytes = UINT64_C(128) << 20};
    memset(s, 0, sizeof(*s));
    s->driver = (gpu_driver){.kind = "test",
                             .tuned = tuned,
                             .create = create,
                             .destroy = destroy,
                             .queue_create = host_queue_create,
                             .queue_destroy = host_queue_destroy,
                             .launch = write_down};
    s->self = (gpu_self){.host = &host, .driver = &s->driver, .facts = *facts};
    s->self.tuned = tuned->usable(&host, facts, s->reason, sizeof(s->reason)) ? tuned : NULL;
    s->d = (pgd_device){.size = sizeof(s->d), .self = &s->self, .host = &host};
    assert_int_equal(gpu_queue_table.create(&s->d, &queue, &s->q), PGD_OK);
    assert_int_equal(gpu_memory_table.create(&s->d, &buffer, &s->memory), PGD_OK);
    const pgd_weight_desc desc = {.size = sizeof(desc),
                                  .uses = PGD_USE_GEMM,
                                  .dtype = dtype,
                                  .n = N,
                                  .k = K,
                                  .max_rows = CAP};
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
    s->args = (pgd_gemm_args){.size = sizeof(s->args),
                              .rows = PGD_ROWS_TOKENS,
                              .batch = &s->batch,
                              .w = s->w,
                              .x = tensor(s->memory, 1 << 20, x_dtype, CAP, K),
                              .y = tensor(s->memory, 24 << 20, PGD_F32, CAP, N)};
}

static void close_setup(setup *s) {
    gpu_weight_table.destroy(&s->d, s->w);
    gpu_memory_table.destroy(&s->d, s->memory);
    gpu_queue_table.destroy(&s->d, s->q);
}

static pgd_status run(setup *s, int32_t rows) {
    s->head.n_tokens = rows;
    n_launches = 0;
    return gpu_op_gemm(&s->x, &s->args);
}

// Whether a product of 3 rows is launched as tuned kernels; the op layer says the same of it.
static int32_t is_tuned(const gpu_tuned *tuned, const gpu_device_facts *facts, int32_t dtype,
                        int32_t x_dtype) {
    setup s;
    uint64_t bytes = 0;
    open_setup(&s, tuned, facts, dtype, x_dtype);
    assert_int_equal(run(&s, 3), PGD_OK);
    const int32_t last = launches[n_launches - 1].kernel >= PGD_PORTABLE_COUNT;
    assert_int_equal(gpu_tuned_product(&s.d, &s.w->desc, &s.args.x, &bytes) != NULL, last);
    close_setup(&s);
    return last;
}

static void assert_groups(const gpu_launch *l, int32_t kernel, uint32_t x, uint32_t y, uint32_t z) {
    const uint32_t groups[3] = {x, y, z};
    assert_int_equal(l->kernel, PGD_PORTABLE_COUNT + kernel);
    assert_memory_equal(l->groups, groups, sizeof(groups));
}

// For every number of rows: what is launched, how often, and on what.
static void check_launches(const gpu_tuned *tuned, const gpu_device_facts *facts,
                           const pgd_matrix_unit *u) {
    static const int32_t rows[] = {1, 16, 17, 64, 65, 128, 129, 1024};
    gpu_matrix_plan want;
    setup s;
    open_setup(&s, tuned, facts, PGD_BF16, PGD_BF16);
    gpu_matrix_choose(u, N, K, false, CAP, &want);
    assert_int_equal(want.panels, N / 8);
    assert_true(want.n_slices > 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint32_t n = (uint32_t)rows[i];
        const bool is_few = n <= GPU_MATRIX_FEW;
        assert_int_equal(run(&s, rows[i]), PGD_OK);
        assert_int_equal(n_launches, is_few ? 3 : 2);
        assert_groups(&launches[0], PGD_MATRIX_pack_x, gpu_ceil(want.k_pad, 512), n, 1);
        if (is_few) {
            assert_groups(&launches[1], PGD_MATRIX_gemm_few_bf16,
                          gpu_ceil(want.panels, u->few_panels), (uint32_t)want.n_slices,
                          gpu_ceil(n, 16));
            assert_groups(&launches[2], PGD_MATRIX_gemm_merge, 1, n, 1);
        } else {
            assert_groups(&launches[1], PGD_MATRIX_gemm_many_bf16, gpu_ceil(want.panels, u->panels),
                          gpu_ceil(n, 128), 1);
        }
        const km_gemm_params *p = (const km_gemm_params *)(const void *)launches[1].params;
        assert_int_equal(p->n_slices, want.n_slices);
        assert_int_equal(p->slice, want.slice);
        assert_int_equal(p->g.x.s0, want.k_pad);
        assert_int_equal(p->g.x.at, (int64_t)s.x.scratch.offset);
        assert_int_equal(p->g.rows.n, is_few ? GPU_MATRIX_FEW : CAP);
        assert_int_equal(p->parts_at - p->g.x.at, (int64_t)want.parts_at);
        assert_ptr_equal(launches[1].memories[6], s.x.scratch.buffer->memory);
        assert_ptr_equal(launches[1].memories[2], launches[0].memories[2]);
    }
    close_setup(&s);
}

// The scratch that support promises is what a step takes: one byte less is refused.
static void check_scratch(const gpu_tuned *tuned, const gpu_device_facts *facts) {
    setup s;
    open_setup(&s, tuned, facts, PGD_F16, PGD_F16);
    s.x.scratch.bytes = gpu_product_scratch(&s.d, &s.w->desc, &s.args.x);
    assert_int_equal(run(&s, 7), PGD_OK);
    assert_int_equal(n_launches, 3);
    assert_int_equal(launches[1].kernel, PGD_PORTABLE_COUNT + PGD_MATRIX_gemm_few_f16);
    s.x.scratch.bytes--;
    assert_int_equal(run(&s, 7), PGD_INVALID);
    assert_int_equal(n_launches, 0);
    close_setup(&s);
}

#endif
