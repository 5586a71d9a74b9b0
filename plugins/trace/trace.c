// The trace layer: every operation and copy as an event with its time and bytes.
//
// With sync (the default) a point in time is set behind every operation and waited for, so an event
// lasts from the moment the device was free to the moment it was done. Without it an event lasts as
// long as the host took to enqueue it, and the device's work shows in the waits.
// Graphs are refused, so that the host runs operation by operation.
#include "trace.h"

typedef struct trace_weight {
    uint64_t bytes;
    int64_t n; // rows
} trace_weight;

static trace_self *trace_of(const pgd_device *d) {
    return d->self;
}

static uint64_t now(const trace_self *t) {
    return t->host->clock_ns(t->host);
}

// Ends an event: with sync when the queue has passed it.
static pgd_status finish(const pgd_device *d, pgd_queue *q, trace_event *e, pgd_status status) {
    trace_self *t = trace_of(d);
    if (status == PGD_OK && t->sync && q != NULL) {
        uint64_t point = 0;
        status = d->next->queue->signal(d->next, q, &point);
        if (status == PGD_OK) {
            status = d->next->queue->host_wait(d->next, q, point, PGD_WAIT_FOREVER);
        }
    }
    e->queue = q;
    e->status = status;
    e->end_ns = now(t);
    trace_add(t, e);
    return status;
}

// ---- bytes -------------------------------------------------------------------------------------

static uint64_t tensor_bytes(const layer_head *a, const pgd_tensor *t) {
    return (uint64_t)(layer_rows(a, t) * layer_row_elements(t)) * pgd_dtype_bytes(t->dtype);
}

static uint64_t weight_bytes(const trace_self *t, int32_t op, const pgd_weight *w, int64_t rows) {
    const trace_weight *known = layer_map_get(&t->weights, w);
    if (known == NULL) {
        return 0;
    }
    return op == PGD_OP_embed && known->n > 0 ? known->bytes / (uint64_t)known->n * (uint64_t)rows
                                              : known->bytes;
}

// Bytes of keys and values of one position in one layer, their scales included.
static uint64_t position_bytes(const pgd_kv_desc *kv) {
    const uint64_t scales = kv->scale_mode == PGD_KV_SCALE_TOKEN_HEAD ? 2 * sizeof(float) : 0;
    return (uint64_t)kv->heads * ((uint64_t)kv->k_dim * pgd_dtype_bytes(kv->k_dtype) +
                                  (uint64_t)kv->v_dim * pgd_dtype_bytes(kv->v_dtype) + scales);
}

// Positions that attention reads, each sequence once; or that the step writes.
static uint64_t positions(const pgd_batch *batch, const pgd_kv_desc *kv, int32_t op) {
    const pgd_batch_head *live = layer_live(batch);
    uint64_t n = 0;
    if (live == NULL || op == PGD_OP_attn_plan) {
        return 0;
    }
    if (op != PGD_OP_attn) {
        return (uint64_t)live->n_tokens;
    }
    const unsigned char *base = batch->mirror;
    const int32_t *len = (const int32_t *)(const void *)(base + batch->kv_len);
    for (int32_t i = 0; i < live->n_seqs; i++) {
        n += (uint64_t)(kv->window > 0 && len[i] > kv->window ? kv->window : len[i]);
    }
    return n;
}

static uint64_t op_bytes(const trace_self *t, int32_t op, const layer_head *a, int64_t *out_rows) {
    uint32_t n = 0;
    uint64_t sum = 0;
    pgd_weight *w = NULL;
    pgd_kv *kv = NULL;
    const layer_field *fields = layer_fields(&n);
    *out_rows = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (fields[i].op == op && fields[i].mode != LAYER_TMP) {
            const pgd_tensor *x = layer_tensor(&fields[i], a);
            const uint64_t bytes = tensor_bytes(a, x);
            sum += fields[i].mode == LAYER_IO ? 2 * bytes : bytes;
            *out_rows = *out_rows < 0 && x->rank > 1 ? layer_rows(a, x) : *out_rows;
        }
    }
    layer_handles(op, a, &w, &kv);
    const pgd_kv_desc *cache = layer_map_get(&t->caches, kv);
    sum += weight_bytes(t, op, w, *out_rows);
    return cache != NULL ? sum + positions(a->batch, cache, op) * position_bytes(cache) : sum;
}

// ---- operations --------------------------------------------------------------------------------

static pgd_status around_op(const pgd_exec *x, int32_t op, const void *args) {
    const pgd_device *d = x->dev;
    const trace_self *t = trace_of(d);
    trace_event e = {.name = layer_op_name(op), .kind = "op"};
    e.bytes = op_bytes(t, op, args, &e.rows);
    e.begin_ns = now(t);
    return finish(d, x->queue, &e, layer_next(x, op, args));
}

LAYER_OPS;

// ---- queue -------------------------------------------------------------------------------------

static pgd_status trace_copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    trace_event e = {.name = "copy", .kind = "queue", .rows = n};
    for (uint32_t i = 0; i < n; i++) {
        e.bytes += list[i].bytes * (list[i].rows > 1 ? list[i].rows : 1);
    }
    e.begin_ns = now(trace_of(d));
    return finish(d, q, &e, d->next->queue->copy(d->next, q, list, n));
}

static pgd_status trace_fill(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                             uint32_t pattern) {
    trace_event e = {.name = "fill", .kind = "queue", .bytes = range->bytes, .rows = -1};
    e.begin_ns = now(trace_of(d));
    return finish(d, q, &e, d->next->queue->fill(d->next, q, range, pattern));
}

static pgd_status trace_host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                                  uint64_t timeout_ns) {
    trace_self *t = trace_of(d);
    trace_event e = {.name = "host_wait", .kind = "queue", .queue = q, .rows = -1};
    e.begin_ns = now(t);
    e.status = d->next->queue->host_wait(d->next, q, value, timeout_ns);
    e.end_ns = now(t);
    trace_add(t, &e);
    return e.status;
}

// ---- memory, weights, caches -------------------------------------------------------------------

static pgd_status trace_create(const pgd_device *d, const pgd_buffer_desc *desc, pgd_buffer **out) {
    trace_event e = {.name = "create", .kind = "memory", .bytes = desc->bytes, .rows = -1};
    e.begin_ns = now(trace_of(d));
    return finish(d, NULL, &e, d->next->memory->create(d->next, desc, out));
}

// A weight that is not remembered for want of memory counts no bytes.
static void remember_weight(trace_self *t, const pgd_weight *w, const pgd_weight_desc *desc,
                            uint64_t bytes) {
    trace_weight *known = t->host->alloc(t->host, sizeof(*known), 0);
    if (known != NULL) {
        *known = (trace_weight){.bytes = bytes, .n = desc->n};
        if (!layer_map_put(&t->weights, w, known)) {
            t->host->free(t->host, known);
        }
    }
}

static pgd_status trace_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    trace_event e = {.name = "prepare", .kind = "weight", .bytes = dst->bytes, .rows = desc->n};
    e.begin_ns = now(trace_of(d));
    pgd_status status = d->next->weight->prepare(d->next, q, desc, dst, scratch, out);
    if (status == PGD_OK) {
        remember_weight(trace_of(d), *out, desc, dst->bytes);
    }
    return finish(d, q, &e, status);
}

static pgd_status trace_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                              const pgd_range *dst, pgd_weight **out) {
    trace_event e = {.name = "adopt", .kind = "weight", .bytes = dst->bytes, .rows = desc->n};
    e.begin_ns = now(trace_of(d));
    pgd_status status = d->next->weight->adopt(d->next, desc, dst, out);
    if (status == PGD_OK) {
        remember_weight(trace_of(d), *out, desc, dst->bytes);
    }
    return finish(d, NULL, &e, status);
}

static void trace_weight_destroy(const pgd_device *d, pgd_weight *w) {
    trace_self *t = trace_of(d);
    t->host->free(t->host, layer_map_take(&t->weights, w));
    d->next->weight->destroy(d->next, w);
}

static pgd_status trace_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                             const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    trace_self *t = trace_of(d);
    pgd_status status = d->next->kv->bind(d->next, desc, plan, mem, n_blocks, out);
    pgd_kv_desc *known = status == PGD_OK ? t->host->alloc(t->host, sizeof(*known), 0) : NULL;
    if (known != NULL) {
        pgd_kv_desc local;
        *known = *PGD_ARGS(pgd_kv_desc, local, desc);
        if (!layer_map_put(&t->caches, *out, known)) {
            t->host->free(t->host, known);
        }
    }
    return status;
}

static void trace_kv_destroy(const pgd_device *d, pgd_kv *kv) {
    trace_self *t = trace_of(d);
    t->host->free(t->host, layer_map_take(&t->caches, kv));
    d->next->kv->destroy(d->next, kv);
}

static pgd_status trace_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                    const pgd_pair *pairs, uint32_t n) {
    trace_event e = {.name = "copy_blocks", .kind = "kv", .rows = n};
    e.begin_ns = now(trace_of(d));
    return finish(d, q, &e, d->next->kv->copy_blocks(d->next, q, kv, pairs, n));
}

static pgd_status trace_begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    (void)q;
    (void)desc;
    return PGD_HOST_FAIL(d->host, PGD_UNSUPPORTED, "the trace layer sees each operation");
}

// ---- life --------------------------------------------------------------------------------------

static const pgd_option options[] = {
    {"file", "str", "trace.json", "where the events are written (Chrome and Perfetto read it)"},
    {"sync", "bool", "on",
     "on: wait behind every operation and time it; off: only what the host does"},
};

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static const pgd_device_table device = {.size = sizeof(device), .open = layer_open_device};
    static const pgd_memory_table memory = {.size = sizeof(memory), .create = trace_create};
    static const pgd_queue_table queue = {.size = sizeof(queue),
                                          .copy = trace_copy,
                                          .host_wait = trace_host_wait,
                                          .fill = trace_fill};
    static const pgd_weight_table weight = {.size = sizeof(weight),
                                            .prepare = trace_prepare,
                                            .adopt = trace_adopt,
                                            .destroy = trace_weight_destroy};
    static const pgd_kv_table kv = {.size = sizeof(kv),
                                    .bind = trace_bind,
                                    .destroy = trace_kv_destroy,
                                    .copy_blocks = trace_copy_blocks};
    static const pgd_graph_table graph = {.size = sizeof(graph), .begin = trace_begin};
    const pgd_tables local = {.size = sizeof(local),
                              .device = &device,
                              .memory = &memory,
                              .queue = &queue,
                              .weight = &weight,
                              .kv = &kv,
                              .ops = &ops,
                              .graph = &graph};
    const char *path = host->option(host, "file");
    path = path != NULL && path[0] != '\0' ? path : "trace.json";
    *out_backend = NULL;
    trace_self *t = host->alloc(host, sizeof(*t), 0);
    if (t == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "no memory for the trace layer");
    }
    t->host = host;
    t->weights.host = host;
    t->caches.host = host;
    t->sync = layer_is_on(host, "sync", 1);
    t->begin_ns = now(t);
    atomic_flag_clear(&t->lock);
    if (!trace_open(t, path)) {
        (void)trace_close(t);
        host->free(host, t);
        return PGD_HOST_FAIL(host, PGD_DENIED, "layer trace: the file '%s' cannot be written",
                             path);
    }
    *out_backend = t;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    trace_self *t = backend;
    const pgd_host *host = t->host;
    if (!trace_close(t)) {
        host->log(host, PGD_LOG_ERROR, "the trace is incomplete: its file could not be written");
    }
    for (uint32_t i = 0; i < t->weights.cap; i++) {
        host->free(host, t->weights.values[i]);
    }
    for (uint32_t i = 0; i < t->caches.cap; i++) {
        host->free(host, t->caches.values[i]);
    }
    layer_map_free(&t->weights);
    layer_map_free(&t->caches);
    host->free(host, t);
}

PGD_PLUGIN_DEFINE(trace) {
    static const pgd_plugin plugin = LAYER_PLUGIN("trace", plugin_open, plugin_close);
    (void)host_minor;
    return &plugin;
}
