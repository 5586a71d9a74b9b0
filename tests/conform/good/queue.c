// The queue that is late.
#include "good.h"

#include <string.h>

#define FAIL(d, code, ...) PGD_HOST_FAIL((d)->host, (code), "good: " __VA_ARGS__)

static void run_copy(const pgd_copy *c) {
    const uint64_t rows = c->rows > 1 ? c->rows : 1;
    for (uint64_t i = 0; i < rows && c->bytes > 0; i++) {
        memmove(good_at(c->dst, c->dst_offset) + i * c->dst_pitch,
                good_at(c->src, c->src_offset) + i * c->src_pitch, (size_t)c->bytes);
    }
}

static void run_fill(const good_entry *e) {
    for (uint64_t i = 0; i < e->range.bytes; i += sizeof(e->pattern)) {
        memcpy(good_at(e->range.buffer, e->range.offset) + i, &e->pattern, sizeof(e->pattern));
    }
}

static void run_until(pgd_queue *q, uint64_t value);

// The oldest entry.
static void run_one(pgd_queue *q) {
    good_entry *e = &q->ring[q->first];
    pgd_status code = PGD_OK;
    if (e->what == GOOD_WAIT) {
        run_until(e->other, e->value);
    }
    q->first = (q->first + 1) % GOOD_ENTRIES;
    q->n--;
    switch (e->what) {
    case GOOD_COPY: run_copy(&e->copy); break;
    case GOOD_FILL: run_fill(e); break;
    case GOOD_SIGNAL: q->reached = e->value; break;
    case GOOD_OP: code = good_run_op(e); break;
    default: break;
    }
    if (code != PGD_OK && q->fault.code == PGD_OK) {
        q->fault = (pgd_fault){.code = code, .op = e->op, .layer = -1};
    }
}

static void run_until(pgd_queue *q, uint64_t value) {
    while (q->n > 0 && q->reached < value) {
        run_one(q);
    }
}

void good_drain(pgd_queue *q) {
    while (q->n > 0) {
        run_one(q);
    }
}

// Time goes by: some entries of some queues run.
static void pass_time(good_backend *b) {
    for (int32_t i = 0; i < GOOD_QUEUES; i++) {
        b->state = b->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t n = (uint32_t)(b->state >> 40) % 8;
        n = n > 4 ? 0 : n;
        while (b->queues[i] != NULL && n-- > 0 && b->queues[i]->n > 0) {
            run_one(b->queues[i]);
        }
    }
}

good_entry *good_push(pgd_queue *q, int32_t what) {
    pass_time(q->backend);
    if (q->n == GOOD_ENTRIES) {
        run_one(q);
    }
    good_entry *e = &q->ring[(q->first + q->n++) % GOOD_ENTRIES];
    e->what = what;
    return e;
}

// ---- the table ---------------------------------------------------------------------------------

static pgd_status create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    good_backend *b = d->self;
    int32_t i = 0;
    *out = NULL;
    if (!pgd_args_tail_is_zero(desc, desc->size, (uint32_t)sizeof(*desc))) {
        return FAIL(d, PGD_UNSUPPORTED, "a queue with a field of a newer interface");
    }
    while (i < GOOD_QUEUES && b->queues[i] != NULL) {
        i++;
    }
    pgd_queue *q = i < GOOD_QUEUES ? d->host->alloc(d->host, sizeof(*q), 0) : NULL;
    if (q == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a queue");
    }
    q->backend = b;
    q->fault.op = q->fault.layer = -1;
    b->queues[i] = q;
    *out = q;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_queue *q) {
    if (q == NULL) {
        return;
    }
    good_drain(q);
    for (int32_t i = 0; i < GOOD_QUEUES; i++) {
        if (q->backend->queues[i] == q) {
            q->backend->queues[i] = NULL;
        }
    }
    d->host->free(d->host, q);
}

// The bytes from the first to behind the last that one side of a copy touches.
static pgd_status check_side(const pgd_device *d, const pgd_buffer *b, uint64_t offset,
                             uint64_t pitch, const pgd_copy *c) {
    uint64_t bytes = c->bytes, rest;
    if (c->rows > 1 && (__builtin_mul_overflow(c->rows - 1, pitch, &rest) ||
                        __builtin_add_overflow(bytes, rest, &bytes))) {
        return FAIL(d, PGD_OUT_OF_RANGE, "a copy of %llu rows", (unsigned long long)c->rows);
    }
    if (b != NULL && (offset > b->bytes || bytes > b->bytes - offset)) {
        return FAIL(d, PGD_OUT_OF_RANGE, "a copy of %llu bytes at %llu of a buffer of %llu",
                    (unsigned long long)bytes, (unsigned long long)offset,
                    (unsigned long long)b->bytes);
    }
    return PGD_OK;
}

static pgd_status copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(check_side(d, list[i].dst, list[i].dst_offset, list[i].dst_pitch, &list[i]));
        PGD_TRY(check_side(d, list[i].src, list[i].src_offset, list[i].src_pitch, &list[i]));
    }
    for (uint32_t i = 0; i < n; i++) {
        good_push(q, GOOD_COPY)->copy = list[i];
    }
    return PGD_OK;
}

static pgd_status fill(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                       uint32_t pattern) {
    (void)d;
    good_entry *e = good_push(q, GOOD_FILL);
    e->range = *range;
    e->pattern = pattern;
    return PGD_OK;
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    (void)d;
    good_entry *e = good_push(q, GOOD_SIGNAL);
    e->value = ++q->given;
    *out_value = e->value;
    return PGD_OK;
}

static pgd_status queue_wait(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value) {
    (void)d;
    good_entry *e = good_push(q, GOOD_WAIT);
    e->other = other;
    e->value = value;
    return PGD_OK;
}

static pgd_status host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                            uint64_t timeout_ns) {
    pass_time(q->backend);
    if (value <= q->given && timeout_ns > 0) {
        run_until(q, value);
    }
    if (q->reached < value) {
        return FAIL(d, PGD_TIMEOUT, "number %llu is not reached", (unsigned long long)value);
    }
    if (q->fault.code != PGD_OK) {
        return FAIL(d, q->fault.code, "operation %d failed", (int)q->fault.op);
    }
    return PGD_OK;
}

static pgd_status done(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    (void)d;
    pass_time(q->backend);
    *out_value = q->reached;
    return PGD_OK;
}

static pgd_status status(const pgd_device *d, pgd_queue *q, pgd_fault *out) {
    (void)d;
    *out = q->fault;
    return PGD_OK;
}

const pgd_queue_table *good_queue_table(void) {
    static const pgd_queue_table table = {
        .size = sizeof(table),
        .create = create,
        .destroy = destroy,
        .copy = copy,
        .signal = queue_signal,
        .host_wait = host_wait,
        .fill = fill,
        .wait = queue_wait,
        .done = done,
        .status = status,
    };
    return &table;
}
