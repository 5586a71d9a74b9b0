// Queues: synchronous. Work is done when its call returns, so every number given out is reached.
#include <string.h>

#include "cpu.h"

static pgd_status create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    pgd_queue_desc local;
    const pgd_queue_desc *a = PGD_ARGS(pgd_queue_desc, local, desc);
    pgd_queue *q = NULL;
    *out = NULL;
    CPU_TAIL(d, pgd_queue_desc, desc);
    q = d->host->alloc(d->host, sizeof(*q), 0);
    if (q == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a queue");
    }
    q->role = a->role;
    *out = q;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_queue *q) {
    if (q != NULL) {
        cpu_graph_table.destroy(d, q->recording);
        d->host->free(d->host, q);
    }
}

pgd_status cpu_not_recording(const pgd_device *d, const pgd_queue *q, const char *what) {
    if (q != NULL && q->recording != NULL) {
        return CPU_FAIL(d, PGD_PRECONDITION, "%s while a graph is recorded", what);
    }
    return PGD_OK;
}

// A large copy in pieces for the team: item i is piece i % pieces of row i / pieces.
typedef struct copy_work {
    unsigned char *dst;
    const unsigned char *src;
    uint64_t bytes; // of a row
    uint64_t dst_pitch, src_pitch;
    uint64_t pieces; // of a row
} copy_work;

enum {
    COPY_LARGE = 1 << 20, // bytes of a copy that is worth a run of the team
    COPY_PIECE = 1 << 18,
};

static void copy_pieces(void *ctx, int64_t i0, int64_t i1, uint32_t worker) {
    const copy_work *w = ctx;
    (void)worker;
    for (uint64_t i = (uint64_t)i0; i < (uint64_t)i1; i++) {
        const uint64_t row = i / w->pieces;
        const uint64_t at = i % w->pieces * COPY_PIECE;
        const uint64_t left = w->bytes - at;
        memcpy(w->dst + row * w->dst_pitch + at, w->src + row * w->src_pitch + at,
               left < COPY_PIECE ? left : COPY_PIECE);
    }
}

// False: the copy is small, or its two sides overlap.
static bool copy_by_team(const pgd_device *d, const pgd_copy *c, unsigned char *dst,
                         uint64_t dst_bytes, const unsigned char *src, uint64_t src_bytes) {
    const uint64_t rows = c->rows > 1 ? c->rows : 1;
    copy_work w = {dst,          src,          c->bytes,
                   c->dst_pitch, c->src_pitch, (c->bytes + COPY_PIECE - 1) / COPY_PIECE};
    cpu_phase work = {.fn = copy_pieces, .ctx = &w};
    cpu_phase *const phases[1] = {&work};
    if (rows * c->bytes < COPY_LARGE || ((uintptr_t)dst < (uintptr_t)src + src_bytes &&
                                         (uintptr_t)src < (uintptr_t)dst + dst_bytes)) {
        return false;
    }
    cpu_phase_set(&work, (int64_t)(rows * w.pieces), (int64_t)(c->bytes / w.pieces / 4), 0);
    cpu_phases_run(d->host, phases, 1);
    return true;
}

static pgd_status copy_one(const pgd_device *d, const pgd_copy *c) {
    uint64_t dst_bytes = 0;
    uint64_t src_bytes = 0;
    void *dst = NULL;
    void *src = NULL;
    common_check check = {.code = PGD_OK};
    if (!common_check_copy(&check, c, &dst_bytes, &src_bytes)) {
        return CPU_FAIL(d, check.code, "%s", check.reason);
    }
    PGD_TRY(
        cpu_range(d, "the destination of a copy", c->dst, c->dst_offset, dst_bytes, true, &dst));
    PGD_TRY(cpu_range(d, "the source of a copy", c->src, c->src_offset, src_bytes, false, &src));
    if (c->bytes == 0 || copy_by_team(d, c, dst, dst_bytes, src, src_bytes)) {
        return PGD_OK;
    }
    memmove(dst, src, c->bytes);
    for (uint64_t i = 1; i < c->rows; i++) {
        memmove((unsigned char *)dst + i * c->dst_pitch,
                (const unsigned char *)src + i * c->src_pitch, c->bytes);
    }
    return PGD_OK;
}

pgd_status cpu_copy_now(const pgd_device *d, const pgd_copy *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(copy_one(d, &list[i]));
    }
    return PGD_OK;
}

pgd_status cpu_fill_now(const pgd_device *d, const pgd_range *range, uint32_t pattern) {
    void *p = NULL;
    common_check check = {.code = PGD_OK};
    if (!common_check_fill(&check, range)) {
        return CPU_FAIL(d, check.code, "%s", check.reason);
    }
    PGD_TRY(cpu_range(d, "a fill", range->buffer, range->offset, range->bytes, true, &p));
    for (uint64_t i = 0; i < range->bytes / 4; i++) {
        ((uint32_t *)p)[i] = pattern;
    }
    return PGD_OK;
}

static pgd_status copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    if (q->recording != NULL) {
        return cpu_graph_add_copy(d, q->recording, list, n);
    }
    return cpu_copy_now(d, list, n);
}

static pgd_status fill(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                       uint32_t pattern) {
    if (q->recording != NULL) {
        return cpu_graph_add_fill(d, q->recording, range, pattern);
    }
    return cpu_fill_now(d, range, pattern);
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    *out_value = 0;
    PGD_TRY(cpu_not_recording(d, q, "signal"));
    *out_value = atomic_fetch_add(&q->value, 1) + 1;
    return PGD_OK;
}

// A number that was never given out is waited for by nobody: it could not come while the caller
// sleeps on a queue that only its own calls drive.
static pgd_status host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                            uint64_t timeout_ns) {
    uint64_t reached = atomic_load(&q->value);
    if (value <= reached) {
        return PGD_OK;
    }
    if (timeout_ns == PGD_WAIT_FOREVER) {
        return CPU_FAIL(d, PGD_INVALID, "waiting for number %llu of a queue that gave out %llu",
                        (unsigned long long)value, (unsigned long long)reached);
    }
    return PGD_TIMEOUT;
}

static pgd_status queue_wait(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value) {
    PGD_TRY(cpu_not_recording(d, q, "wait"));
    return host_wait(d, other, value, PGD_WAIT_FOREVER);
}

static pgd_status done(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    (void)d;
    *out_value = atomic_load(&q->value);
    return PGD_OK;
}

static pgd_status flush(const pgd_device *d, pgd_queue *q) {
    (void)d;
    (void)q;
    return PGD_OK;
}

// Faults come back from the calls themselves, so the queue never holds one.
static pgd_status status(const pgd_device *d, pgd_queue *q, pgd_fault *out) {
    (void)d;
    (void)q;
    *out = (pgd_fault){.code = PGD_OK, .op = -1, .layer = -1};
    return PGD_OK;
}

static pgd_status notify(const pgd_device *d, pgd_queue *q, uint64_t value, pgd_notify_fn fn,
                         void *arg) {
    PGD_TRY(cpu_not_recording(d, q, "notify"));
    PGD_TRY(host_wait(d, q, value, PGD_WAIT_FOREVER));
    fn(arg, PGD_OK);
    return PGD_OK;
}

const pgd_queue_table cpu_queue_table = {
    .size = sizeof(pgd_queue_table),
    .create = create,
    .destroy = destroy,
    .copy = copy,
    .signal = queue_signal,
    .host_wait = host_wait,
    .fill = fill,
    .wait = queue_wait,
    .done = done,
    .flush = flush,
    .status = status,
    .notify = notify,
};
