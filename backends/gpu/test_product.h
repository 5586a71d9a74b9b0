// What tests of products share: a device over a driver that the test gives, with one weight in one
// memory, and the arguments of a product with it.
//
//   memory   batch head | x 1 MiB | y 4 MiB | bias 6 MiB | weight 8 MiB | scratch 32 MiB to the end
#ifndef PGD_BACKENDS_GPU_TEST_PRODUCT_H
#define PGD_BACKENDS_GPU_TEST_PRODUCT_H

#include <string.h>

#include "gpu.h"

enum {
    PRODUCT_X = 1 << 20,
    PRODUCT_Y = 4 << 20,
    PRODUCT_BIAS = 6 << 20,
    PRODUCT_WEIGHT = 8 << 20,
    PRODUCT_SCRATCH = 32 << 20,
    PRODUCT_MEMORY = 128 << 20,
};

typedef struct product_setup {
    gpu_self self; // what the test sets before the opening
    pgd_device d;
    pgd_queue *q;
    pgd_buffer *memory;
    pgd_weight *w;
    pgd_batch_head head;
    pgd_batch batch;
    pgd_exec x;
    pgd_gemm_args args;
} product_setup;

static inline pgd_tensor product_tensor(pgd_buffer *b, uint64_t offset, int32_t dtype, int64_t rows,
                                        int64_t n) {
    return (pgd_tensor){.buffer = b,
                        .offset = offset,
                        .dtype = dtype,
                        .rank = 2,
                        .shape = {rows, n},
                        .stride = {n, 1}};
}

// desc->max_rows are the rows of x, of x_dtype, and of y [max_rows, y_n] f32. PGD_OK, or why not.
static inline pgd_status product_open(product_setup *s, const pgd_weight_desc *desc,
                                      int32_t x_dtype, int64_t y_n) {
    const pgd_queue_desc queue = {.size = sizeof(queue)};
    const pgd_buffer_desc buffer = {.size = sizeof(buffer), .bytes = PRODUCT_MEMORY};
    const int32_t rows = (int32_t)desc->max_rows;
    s->d = (pgd_device){.size = sizeof(s->d), .self = &s->self, .host = s->self.host};
    PGD_TRY(gpu_queue_table.create(&s->d, &queue, &s->q));
    PGD_TRY(gpu_memory_table.create(&s->d, &buffer, &s->memory));
    const pgd_range dst = {s->memory, PRODUCT_WEIGHT, PRODUCT_SCRATCH - PRODUCT_WEIGHT};
    PGD_TRY(gpu_weight_table.adopt(&s->d, desc, &dst, &s->w));
    s->batch = (pgd_batch){.size = sizeof(s->batch),
                           .cap_tokens = rows,
                           .cap_seqs = rows,
                           .cap_out = rows,
                           .mem = s->memory,
                           .mirror = &s->head};
    s->x = (pgd_exec){.size = sizeof(s->x),
                      .dev = &s->d,
                      .queue = s->q,
                      .scratch = {s->memory, PRODUCT_SCRATCH, PRODUCT_MEMORY - PRODUCT_SCRATCH}};
    s->args = (pgd_gemm_args){.size = sizeof(s->args),
                              .rows = PGD_ROWS_TOKENS,
                              .batch = &s->batch,
                              .w = s->w,
                              .x = product_tensor(s->memory, PRODUCT_X, x_dtype, rows, desc->k),
                              .y = product_tensor(s->memory, PRODUCT_Y, PGD_F32, rows, y_n)};
    return PGD_OK;
}

static inline void product_close(product_setup *s) {
    gpu_weight_table.destroy(&s->d, s->w);
    gpu_memory_table.destroy(&s->d, s->memory);
    gpu_queue_table.destroy(&s->d, s->q);
}

#endif
