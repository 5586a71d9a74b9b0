// What the files of the good plugin share.
#ifndef PGD_TESTS_CONFORM_GOOD_H
#define PGD_TESTS_CONFORM_GOOD_H

#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include "ref/ref.h"

enum { GOOD_QUEUES = 16 };

typedef struct good_backend {
    const pgd_host *host;
    uint64_t state; // of the random delays
    pgd_queue *queues[GOOD_QUEUES];
} good_backend;

struct pgd_buffer {
    unsigned char *mem;
    uint64_t bytes;
    int32_t imported;
    int32_t reserved0;
};

struct pgd_weight {
    pgd_ref_weight ref; // first: the handle is the reference's too
};

struct pgd_kv {
    pgd_ref_kv ref; // first
    pgd_range range;
};

enum { GOOD_COPY, GOOD_FILL, GOOD_WAIT, GOOD_SIGNAL, GOOD_OP };

// The arguments of any op, as large as the largest.
typedef union good_args {
#define GOOD_ARGS(name, family) pgd_##name##_args name;
    PGD_OP_LIST(GOOD_ARGS)
#undef GOOD_ARGS
    struct {
        PGD_ARGS_HEAD;
    } head;
} good_args;

typedef struct good_entry {
    int32_t what; // GOOD_...
    int32_t op;
    pgd_copy copy;
    pgd_range range;
    uint32_t pattern;
    uint32_t reserved0;
    pgd_queue *other;
    uint64_t value; // of a signal, or to wait for
    pgd_batch batch;
    good_args args;
} good_entry;

enum { GOOD_ENTRIES = 256 };

struct pgd_queue {
    good_backend *backend;
    uint64_t given, reached;
    uint32_t first, n; // a ring
    pgd_fault fault;
    good_entry ring[GOOD_ENTRIES];
};

static inline unsigned char *good_at(const pgd_buffer *b, uint64_t offset) {
    return b == NULL ? (unsigned char *)(uintptr_t)offset : b->mem + offset;
}

// queue.c
const pgd_queue_table *good_queue_table(void);
// Room for one more entry at the end of the queue; older ones run when it is full.
good_entry *good_push(pgd_queue *q, int32_t what);
// Runs everything that was enqueued.
void good_drain(pgd_queue *q);

// ops.c
const pgd_ops *good_ops(void);
pgd_status good_run_op(good_entry *e);
int32_t good_takes(int32_t op, const void *args);

// image.c
pgd_status good_read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                            const pgd_kv_image *image);
pgd_status good_write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                             const pgd_kv_image *image);

#endif
