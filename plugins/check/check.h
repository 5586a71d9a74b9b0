// What the files of the check layer share.
//
// Time is counted in work: every call that enqueues something is one more. A point in time stands
// for all work before it; work is passed once the host has seen such a point reached, not when the
// device happens to have done it. So a mistake shows on every device, a synchronous one too.
//
//   work    1   2   3   4   5   6            destroy(b), last used by work 4:
//   point           7           8            fine behind host_wait(8), wrong behind host_wait(7)
#ifndef PGD_PLUGINS_CHECK_H
#define PGD_PLUGINS_CHECK_H

#include "../layer/layer.h"

enum {
    CHECK_BUFFER = 0,
    CHECK_QUEUE = 1,
    CHECK_WEIGHT = 2,
    CHECK_KV = 3,
    CHECK_KINDS = 4,
};

#define CHECK_MAX_USES 4 // queues that a handle is remembered to be used on

typedef struct check_queue check_queue;

typedef struct check_use {
    check_queue *queue; // NULL: free
    uint64_t work;
} check_use;

// A living handle.
typedef struct check_handle {
    int32_t kind;
    int32_t reserved0;
    uint64_t bytes; // of a buffer
    check_use uses[CHECK_MAX_USES];
    pgd_weight_desc weight; // parts and name are not kept
    pgd_kv_desc kv;
    pgd_buffer *memory; // of a weight or a cache
} check_handle;

// A number that signal gave, or a wait for another queue.
typedef struct check_point {
    uint64_t value;
    uint64_t work;      // done when value is reached
    check_queue *other; // not NULL: `value` is that queue's, reached when `work` of this is passed
} check_point;

// Host memory that a copy reads or writes and that is not the host's until the copy is passed.
typedef struct check_copy {
    struct check_copy *next;
    uint64_t work;
    unsigned char *stage; // what the copy wrote; NULL: the copy reads host memory
    unsigned char *host;
    uint64_t bytes; // of a row
    uint64_t rows;
    uint64_t pitch; // of the host's rows
    uint64_t hash;  // of what a copy reads
} check_copy;

struct check_queue {
    check_handle handle; // first
    pgd_queue *queue;
    uint64_t work;
    uint64_t passed;
    uint64_t given; // highest number
    check_point *points;
    uint32_t n_points;
    uint32_t cap_points;
    check_copy *copies; // latest first
};

typedef struct check_self {
    const pgd_host *host;
    atomic_flag lock; // guards everything below; never held over a call to the level below
    int32_t stop;
    uint64_t n_wrong;
    layer_map handles; // -> check_handle
} check_self;

static inline check_self *check_of(const pgd_device *d) {
    return d->self;
}

static inline void check_lock(check_self *c) {
    while (atomic_flag_test_and_set_explicit(&c->lock, memory_order_acquire)) {
    }
}

static inline void check_unlock(check_self *c) {
    atomic_flag_clear_explicit(&c->lock, memory_order_release);
}

// check.c: tells of a mistake. INVALID with the sentence, or PGD_OK when the layer only tells.
pgd_status check_wrong(check_self *c, const char *fmt, ...) PGD_PRINTF(2, 3);

// handles.c. Those with a status tell of what is wrong themselves.
const char *check_kind_name(int32_t kind);
check_handle *check_find(check_self *c, const void *key, int32_t kind);
pgd_status check_alive(check_self *c, const void *key, int32_t kind, const char *where);
pgd_status check_range(check_self *c, pgd_buffer *buffer, uint64_t offset, uint64_t bytes,
                       const char *where);
pgd_status check_add(check_self *c, const void *key, check_handle *handle);
// Takes it out and frees it; tells if it is unknown or still in use.
void check_end(check_self *c, const void *key, int32_t kind);
const pgd_memory_table *check_memory(void);
const pgd_weight_table *check_weight(void);
const pgd_kv_table *check_kv(void);

// queue.c: one more piece of work; the handle (may be NULL) is used by it.
void check_work(check_queue *q);
void check_used(check_self *c, const void *key, int32_t kind, check_queue *q);
check_queue *check_queue_of(check_self *c, pgd_queue *q);
void check_free_queue(check_self *c, check_queue *q);
const pgd_queue_table *check_queues(void);

// copies.c: a copy list on its way down, with host memory replaced; and what has passed.
pgd_status check_copy_down(const pgd_device *d, check_queue *q, const pgd_copy *list, uint32_t n);
// Ends what is passed (all != 0: everything): delivers what was copied, compares what was read.
void check_copies_passed(check_self *c, check_queue *q, int32_t all);
// Waits for the copies below and delivers them, because work that follows reads host memory.
pgd_status check_deliver(const pgd_device *d, check_queue *q);

// ops.c, shapes.c
const pgd_ops *check_ops(void);
pgd_status check_shapes(check_self *c, int32_t op, const void *args);

#endif
