// Queues: numbers over a ring of the driver's time points.
//
//   number v uses slot v % GPU_POINTS, after a wait for the number that used it before
//
// So a number older than the ring is always reached, and nothing is made or freed in a step.
#include <string.h>

#include "gpu.h"
#include "tuned.h"

static void destroy(const pgd_device *d, pgd_queue *q) {
    if (q != NULL) {
        const gpu_self *self = gpu_of(d);
        gpu_graph_table.destroy(d, q->recording);
        if (q->queue != NULL) {
            self->driver->queue_destroy(d->host, q->queue);
        }
        gpu_ring_destroy(d, q->ring);
        if (q->counters != NULL) {
            self->driver->destroy(d->host, self->device, q->counters);
        }
        d->host->free(d->host, q);
    }
}

static pgd_status create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    const gpu_self *self = gpu_of(d);
    pgd_queue_desc local;
    const pgd_queue_desc *a = PGD_ARGS(pgd_queue_desc, local, desc);
    pgd_queue *q = NULL;
    *out = NULL;
    GPU_TAIL(d, pgd_queue_desc, desc);
    q = d->host->alloc(d->host, sizeof(*q), 0);
    if (q == NULL) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a queue");
    }
    pgd_status code = self->driver->queue_create(d->host, self->device, a->role, &q->queue);
    if (code == PGD_OK && self->tuned != NULL) {
        code = self->driver->create(d->host, self->device, GPU_COUNTERS_BYTES, PGD_PLACE_DEVICE,
                                    &q->counters);
    }
    if (code != PGD_OK) {
        destroy(d, q);
        return code;
    }
    *out = q;
    return PGD_OK;
}

pgd_status gpu_not_recording(const pgd_device *d, const pgd_queue *q, const char *what) {
    if (q != NULL && q->recording != NULL) {
        return GPU_FAIL(d, PGD_PRECONDITION, "%s while a graph is recorded", what);
    }
    return PGD_OK;
}

// ---- copies ------------------------------------------------------------------------------------

static pgd_status check_side(const pgd_device *d, const char *name, const pgd_buffer *b,
                             uint64_t offset, uint64_t bytes) {
    if (b != NULL) {
        return gpu_range(d, name, b, offset, bytes);
    }
    return offset != 0 || bytes == 0 ? PGD_OK : GPU_FAIL(d, PGD_INVALID, "%s has no address", name);
}

// Host to host has no command of its own: it comes when the queue is empty.
static pgd_status copy_host(const pgd_device *d, pgd_queue *q, const gpu_copy *c) {
    PGD_TRY(gpu_drain(d, q));
    for (uint64_t i = 0; i < c->rows; i++) {
        memmove((void *)(uintptr_t)(c->dst_offset + i * c->dst_pitch),
                (const void *)(uintptr_t)(c->src_offset + i * c->src_pitch), c->bytes);
    }
    return PGD_OK;
}

static pgd_status copy_one(const pgd_device *d, pgd_queue *q, const pgd_copy *c) {
    uint64_t dst_bytes = 0;
    uint64_t src_bytes = 0;
    common_check check = {.code = PGD_OK};
    if (!common_check_copy(&check, c, &dst_bytes, &src_bytes)) {
        return GPU_FAIL(d, check.code, "%s", check.reason);
    }
    PGD_TRY(check_side(d, "the destination of a copy", c->dst, c->dst_offset, dst_bytes));
    PGD_TRY(check_side(d, "the source of a copy", c->src, c->src_offset, src_bytes));
    if (c->bytes == 0) {
        return PGD_OK;
    }
    const gpu_copy copy = {
        .dst = c->dst == NULL ? NULL : c->dst->memory,
        .dst_offset = c->dst_offset,
        .src = c->src == NULL ? NULL : c->src->memory,
        .src_offset = c->src_offset,
        .bytes = c->bytes,
        .rows = c->rows == 0 ? 1 : c->rows,
        .dst_pitch = c->rows <= 1 ? c->bytes : c->dst_pitch,
        .src_pitch = c->rows <= 1 ? c->bytes : c->src_pitch,
    };
    return copy.dst == NULL && copy.src == NULL ? copy_host(d, q, &copy)
                                                : gpu_of(d)->driver->copy(d->host, q->queue, &copy);
}

pgd_status gpu_copy_now(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(copy_one(d, q, &list[i]));
    }
    return PGD_OK;
}

static pgd_status copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    return q->recording != NULL ? gpu_record_copies(d, q->recording, list, n)
                                : gpu_copy_now(d, q, list, n);
}

pgd_status gpu_fill_now(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                        uint32_t pattern) {
    common_check check = {.code = PGD_OK};
    if (!common_check_fill(&check, range)) {
        return GPU_FAIL(d, check.code, "%s", check.reason);
    }
    PGD_TRY(gpu_range(d, "a fill", range->buffer, range->offset, range->bytes));
    return range->bytes == 0 ? PGD_OK
                             : gpu_of(d)->driver->fill(d->host, q->queue, range->buffer->memory,
                                                       range->offset, range->bytes, pattern);
}

static pgd_status fill(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                       uint32_t pattern) {
    return q->recording != NULL ? gpu_record_fill(d, q->recording, range, pattern)
                                : gpu_fill_now(d, q, range, pattern);
}

// ---- numbers -----------------------------------------------------------------------------------

void gpu_fault(pgd_queue *q, pgd_status code) {
    int32_t none = PGD_OK;
    atomic_compare_exchange_strong(&q->fault, &none, code);
}

static void raise_reached(pgd_queue *q, uint64_t value) {
    uint64_t seen = atomic_load(&q->reached);
    while (seen < value && !atomic_compare_exchange_weak(&q->reached, &seen, value)) {
    }
}

static pgd_status wait_for(const pgd_device *d, pgd_queue *q, uint64_t value, uint64_t timeout_ns) {
    if (value <= atomic_load(&q->reached)) {
        return PGD_OK;
    }
    pgd_status code = gpu_of(d)->driver->point_wait(d->host, q->queue,
                                                    (uint32_t)(value % GPU_POINTS), timeout_ns);
    if (code == PGD_OK) {
        raise_reached(q, value);
    } else if (code != PGD_TIMEOUT) {
        gpu_fault(q, code);
    }
    return code;
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    const uint64_t value = atomic_load(&q->given) + 1;
    *out_value = 0;
    PGD_TRY(gpu_not_recording(d, q, "signal"));
    if (value > GPU_POINTS) {
        PGD_TRY(wait_for(d, q, value - GPU_POINTS, PGD_WAIT_FOREVER));
    }
    PGD_TRY(gpu_of(d)->driver->point(d->host, q->queue, (uint32_t)(value % GPU_POINTS)));
    atomic_store(&q->given, value);
    *out_value = value;
    return PGD_OK;
}

// A number that was never given out is waited for by nobody.
static pgd_status host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                            uint64_t timeout_ns) {
    const uint64_t given = atomic_load(&q->given);
    if (value <= given) {
        return wait_for(d, q, value, timeout_ns);
    }
    if (timeout_ns == PGD_WAIT_FOREVER) {
        return GPU_FAIL(d, PGD_INVALID, "waiting for number %llu of a queue that gave out %llu",
                        (unsigned long long)value, (unsigned long long)given);
    }
    return PGD_TIMEOUT;
}

pgd_status gpu_drain(const pgd_device *d, pgd_queue *q) {
    uint64_t value = 0;
    PGD_TRY(queue_signal(d, q, &value));
    return host_wait(d, q, value, PGD_WAIT_FOREVER);
}

static pgd_status queue_wait(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value) {
    const gpu_self *self = gpu_of(d);
    PGD_TRY(gpu_not_recording(d, q, "wait"));
    if (self->driver->queue_wait == NULL || value > atomic_load(&other->given)) {
        return host_wait(d, other, value, PGD_WAIT_FOREVER);
    }
    return value <= atomic_load(&other->reached)
               ? PGD_OK
               : self->driver->queue_wait(d->host, q->queue, other->queue,
                                          (uint32_t)(value % GPU_POINTS));
}

static pgd_status done(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    const uint64_t given = atomic_load(&q->given);
    uint64_t value = atomic_load(&q->reached);
    while (value < given && wait_for(d, q, value + 1, 0) == PGD_OK) {
        value++;
    }
    *out_value = atomic_load(&q->reached);
    return PGD_OK;
}

static pgd_status flush(const pgd_device *d, pgd_queue *q) {
    return gpu_of(d)->driver->flush(d->host, q->queue);
}

static pgd_status status(const pgd_device *d, pgd_queue *q, pgd_fault *out) {
    (void)d;
    *out = (pgd_fault){.code = atomic_load(&q->fault), .op = -1, .layer = -1};
    return PGD_OK;
}

const pgd_queue_table gpu_queue_table = {
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
};
