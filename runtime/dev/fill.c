// Simple fillers: what the host does where a plugin left a hole in device, memory, queue or graph.
#include "dev/inner.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

// What is waited for in place of the plugin ends with TIMEOUT, so that one that hangs is seen.
#define DRAIN_NS UINT64_C(600000000000)

#define FILL_CHUNK_BYTES (UINT64_C(1) << 20)

static pgd_dev *self_of(const pgd_device *d) {
    return (pgd_dev *)(uintptr_t)d; // device is the first member
}

// ---- device ------------------------------------------------------------------------------------

static pgd_status fill_memory(const pgd_device *d, uint64_t *out_free, uint64_t *out_total) {
    *out_free = self_of(d)->info.bytes;
    *out_total = self_of(d)->info.bytes;
    return PGD_OK;
}

static pgd_status fill_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_support local = {.size = sizeof(local), .level = PGD_LEVEL_NATIVE};
    (void)d;
    (void)query;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status fill_device_status(const pgd_device *d) {
    (void)d;
    return PGD_OK;
}

// ---- memory ------------------------------------------------------------------------------------

static pgd_status fill_import(const pgd_device *d, const void *ptr, uint64_t bytes, uint32_t flags,
                              pgd_buffer **out) {
    (void)ptr;
    (void)bytes;
    (void)flags;
    *out = NULL;
    return pgd_fail(PGD_UNSUPPORTED, "device %s cannot use host memory in place", self_of(d)->uri);
}

static pgd_status fill_map(const pgd_device *d, pgd_buffer *buffer, void **out_ptr) {
    (void)buffer;
    *out_ptr = NULL;
    return pgd_fail(PGD_UNSUPPORTED, "memory of device %s has no host address", self_of(d)->uri);
}

// ---- queue -------------------------------------------------------------------------------------

pgd_status pgd_dev_drain(const pgd_device *d, pgd_queue *q) {
    uint64_t value = 0;
    PGD_TRY(d->queue->signal(d, q, &value));
    return d->queue->host_wait(d, q, value, DRAIN_NS);
}

static pgd_status fill_fill(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                            uint32_t pattern) {
    if (range->offset % 4 != 0 || range->bytes % 4 != 0) {
        return pgd_fail(PGD_INVALID, "fill: offset %llu and bytes %llu must be multiples of 4",
                        (unsigned long long)range->offset, (unsigned long long)range->bytes);
    }
    if (range->buffer == NULL) {
        PGD_TRY(pgd_dev_drain(d, q));
        uint32_t *at = (uint32_t *)(uintptr_t)range->offset;
        for (uint64_t i = 0; i < range->bytes / 4; i++) {
            at[i] = pattern;
        }
        return PGD_OK;
    }
    uint64_t chunk = range->bytes < FILL_CHUNK_BYTES ? range->bytes : FILL_CHUNK_BYTES;
    uint32_t *words = pgd_mem_alloc((size_t)chunk, 1);
    if (words == NULL) {
        return PGD_MEM_FAIL("a fill", chunk);
    }
    for (uint64_t i = 0; i < chunk / 4; i++) {
        words[i] = pattern;
    }
    pgd_status code = PGD_OK;
    for (uint64_t at = 0; at < range->bytes && code == PGD_OK; at += chunk) {
        uint64_t left = range->bytes - at;
        pgd_copy copy = {
            .dst = range->buffer,
            .dst_offset = range->offset + at,
            .src_offset = (uint64_t)(uintptr_t)words,
            .bytes = left < chunk ? left : chunk,
        };
        code = d->queue->copy(d, q, &copy, 1);
    }
    pgd_status waited = pgd_dev_drain(d, q); // the words must live until the copies have run
    pgd_mem_free(words);
    return code != PGD_OK ? code : waited;
}

static pgd_status fill_wait(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value) {
    (void)q;
    return d->queue->host_wait(d, other, value, DRAIN_NS);
}

// 1 reached, 0 not yet, else *code says why.
static int32_t reached(const pgd_device *d, pgd_queue *q, uint64_t value, pgd_status *code) {
    *code = d->queue->host_wait(d, q, value, 0);
    if (*code == PGD_OK) {
        return 1;
    }
    if (*code == PGD_TIMEOUT || *code == PGD_INVALID || *code == PGD_OUT_OF_RANGE) {
        *code = PGD_OK; // a number that was never given is not reached either
    }
    return 0;
}

// Doubles until a number is not reached, then halves the gap: about 2 log2(value) polls.
static pgd_status fill_done(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    pgd_status code = PGD_OK;
    uint64_t low = 0;
    uint64_t high = 1;
    while (high < UINT64_MAX / 2 && reached(d, q, high, &code)) {
        low = high;
        high *= 2;
    }
    while (code == PGD_OK && high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (reached(d, q, middle, &code)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *out_value = low;
    return code;
}

static pgd_status fill_flush(const pgd_device *d, pgd_queue *q) {
    (void)d;
    (void)q;
    return PGD_OK;
}

static pgd_status fill_queue_status(const pgd_device *d, pgd_queue *q, pgd_fault *out) {
    (void)q;
    *out = (pgd_fault){.code = d->device->status(d), .op = -1, .layer = -1};
    return PGD_OK;
}

static pgd_status fill_notify(const pgd_device *d, pgd_queue *q, uint64_t value, pgd_notify_fn fn,
                              void *arg) {
    fn(arg, d->queue->host_wait(d, q, value, PGD_WAIT_FOREVER));
    return PGD_OK;
}

// ---- graph -------------------------------------------------------------------------------------

static pgd_status fill_begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    (void)q;
    (void)desc;
    return pgd_fail(PGD_UNSUPPORTED, "device %s records no graphs for this model", self_of(d)->uri);
}

static pgd_status fill_end(const pgd_device *d, pgd_queue *q, pgd_graph **out) {
    (void)q;
    *out = NULL;
    return pgd_fail(PGD_PRECONDITION, "device %s is not recording", self_of(d)->uri);
}

static pgd_status fill_launch(const pgd_device *d, pgd_queue *q, pgd_graph *graph) {
    (void)q;
    (void)graph;
    return pgd_fail(PGD_PRECONDITION, "device %s has no graphs", self_of(d)->uri);
}

static void fill_graph_destroy(const pgd_device *d, pgd_graph *graph) {
    (void)d;
    (void)graph;
}

void pgd_dev_fill_graph(pgd_dev *dev) {
    dev->merged.graph = (pgd_graph_table){
        .size = sizeof(pgd_graph_table),
        .begin = fill_begin,
        .end = fill_end,
        .launch = fill_launch,
        .destroy = fill_graph_destroy,
    };
}

#define FILL(slot, with)      \
    do {                      \
        if ((slot) == NULL) { \
            (slot) = (with);  \
        }                     \
    } while (0)

void pgd_dev_fill(pgd_dev *dev) {
    pgd_dev_tables *t = &dev->merged;
    *t = dev->native;
    FILL(t->device.memory, fill_memory);
    FILL(t->device.support, fill_support);
    FILL(t->device.status, fill_device_status);
    FILL(t->memory.import, fill_import);
    FILL(t->memory.map, fill_map);
    FILL(t->queue.fill, fill_fill);
    FILL(t->queue.wait, fill_wait);
    FILL(t->queue.done, fill_done);
    FILL(t->queue.flush, fill_flush);
    FILL(t->queue.status, fill_queue_status);
    FILL(t->queue.notify, fill_notify);
    const pgd_graph_table *g = &dev->native.graph;
    if (g->begin == NULL || g->end == NULL || g->launch == NULL || g->destroy == NULL) {
        pgd_dev_fill_graph(dev);
    }
}
