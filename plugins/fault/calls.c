// Every call on its way down: counted, and what is due done to it.
#include "fault.h"

#define ENTER(d, call)                                            \
    do {                                                          \
        int32_t spoil_ = 0;                                       \
        PGD_TRY(fault_enter(fault_of(d), FAULT_##call, &spoil_)); \
    } while (0)

static int32_t is_hung(const pgd_device *d) {
    return atomic_load(&fault_of(d)->hung);
}

static pgd_status lost(const pgd_device *d) {
    return atomic_load(&fault_of(d)->lost)
               ? PGD_HOST_FAIL(d->host, PGD_DEVICE_LOST, "the device is lost (fault layer)")
               : PGD_OK;
}

// ---- operations --------------------------------------------------------------------------------

static pgd_status around_op(const pgd_exec *x, int32_t op, const void *args) {
    int32_t spoil = 0;
    PGD_TRY(fault_enter(fault_of(x->dev), op, &spoil));
    if (is_hung(x->dev)) {
        return PGD_OK; // enqueued, and never run
    }
    PGD_TRY(layer_next(x, op, args));
    return spoil != 0 ? fault_spoil(x, op, args, spoil) : PGD_OK;
}

LAYER_OPS;

// ---- device and memory -------------------------------------------------------------------------

static pgd_status device_memory(const pgd_device *d, uint64_t *out_free, uint64_t *out_total) {
    PGD_TRY(lost(d));
    return d->next->device->memory(d->next, out_free, out_total);
}

static pgd_status device_status(const pgd_device *d) {
    PGD_TRY(lost(d));
    return d->next->device->status(d->next);
}

static pgd_status memory_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                pgd_buffer **out) {
    fault_self *f = fault_of(d);
    *out = NULL;
    ENTER(d, create);
    if (atomic_fetch_add(&f->n_buffers, 1) + 1 == f->oom_nth) {
        return PGD_HOST_FAIL(f->host, PGD_OUT_OF_MEMORY,
                             "there is no memory for a buffer of %llu bytes (fault layer)",
                             (unsigned long long)desc->bytes);
    }
    return d->next->memory->create(d->next, desc, out);
}

static pgd_status memory_import(const pgd_device *d, const void *ptr, uint64_t bytes,
                                uint32_t flags, pgd_buffer **out) {
    ENTER(d, import);
    return d->next->memory->import(d->next, ptr, bytes, flags, out);
}

// ---- queue -------------------------------------------------------------------------------------

static pgd_status queue_create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    PGD_TRY(lost(d));
    return d->next->queue->create(d->next, desc, out);
}

static pgd_status queue_copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    ENTER(d, copy);
    return is_hung(d) ? PGD_OK : d->next->queue->copy(d->next, q, list, n);
}

static pgd_status queue_fill(const pgd_device *d, pgd_queue *q, const pgd_range *range,
                             uint32_t pattern) {
    ENTER(d, fill);
    return is_hung(d) ? PGD_OK : d->next->queue->fill(d->next, q, range, pattern);
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    ENTER(d, signal);
    return d->next->queue->signal(d->next, q, out_value);
}

static pgd_status queue_host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                                  uint64_t timeout_ns) {
    ENTER(d, host_wait);
    if (!is_hung(d)) {
        return d->next->queue->host_wait(d->next, q, value, timeout_ns);
    }
    do {
        fault_nap(timeout_ns == PGD_WAIT_FOREVER ? UINT64_C(1000000000) : timeout_ns);
    } while (timeout_ns == PGD_WAIT_FOREVER);
    return PGD_HOST_FAIL(d->host, PGD_TIMEOUT, "number %llu is not reached (fault layer: hangs)",
                         (unsigned long long)value);
}

static pgd_status queue_wait(const pgd_device *d, pgd_queue *q, pgd_queue *other, uint64_t value) {
    PGD_TRY(lost(d));
    return is_hung(d) ? PGD_OK : d->next->queue->wait(d->next, q, other, value);
}

static pgd_status queue_done(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    PGD_TRY(lost(d));
    *out_value = 0;
    return is_hung(d) ? PGD_OK : d->next->queue->done(d->next, q, out_value);
}

static pgd_status queue_status(const pgd_device *d, pgd_queue *q, pgd_fault *out) {
    if (atomic_load(&fault_of(d)->lost)) {
        *out = (pgd_fault){.code = PGD_DEVICE_LOST, .op = -1, .layer = -1};
        return PGD_OK;
    }
    return d->next->queue->status(d->next, q, out);
}

// ---- weights, caches, graphs -------------------------------------------------------------------

static pgd_status weight_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                 const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    ENTER(d, prepare);
    return d->next->weight->prepare(d->next, q, desc, dst, scratch, out);
}

static pgd_status weight_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                               const pgd_range *dst, pgd_weight **out) {
    ENTER(d, adopt);
    return d->next->weight->adopt(d->next, desc, dst, out);
}

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    ENTER(d, bind);
    return d->next->kv->bind(d->next, desc, plan, mem, n_blocks, out);
}

static pgd_status kv_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_pair *pairs, uint32_t n) {
    ENTER(d, blocks);
    return is_hung(d) ? PGD_OK : d->next->kv->copy_blocks(d->next, q, kv, pairs, n);
}

static pgd_status kv_read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_kv_image *image) {
    ENTER(d, blocks);
    return is_hung(d) ? PGD_OK : d->next->kv->read_blocks(d->next, q, kv, image);
}

static pgd_status kv_write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                  const pgd_kv_image *image) {
    ENTER(d, blocks);
    return is_hung(d) ? PGD_OK : d->next->kv->write_blocks(d->next, q, kv, image);
}

// Operations are counted one by one, so they are not recorded.
static pgd_status graph_begin(const pgd_device *d, pgd_queue *q, const pgd_graph_desc *desc) {
    PGD_TRY(lost(d));
    return fault_of(d)->sees_ops
               ? PGD_HOST_FAIL(d->host, PGD_UNSUPPORTED, "the fault layer counts each operation")
               : d->next->graph->begin(d->next, q, desc);
}

static pgd_status graph_launch(const pgd_device *d, pgd_queue *q, pgd_graph *graph) {
    ENTER(d, launch);
    return is_hung(d) ? PGD_OK : d->next->graph->launch(d->next, q, graph);
}

void fault_fill_tables(pgd_tables *out) {
    static const pgd_device_table device = {.size = sizeof(device),
                                            .open = layer_open_device,
                                            .memory = device_memory,
                                            .status = device_status};
    static const pgd_memory_table memory = {
        .size = sizeof(memory), .create = memory_create, .import = memory_import};
    static const pgd_queue_table queue = {.size = sizeof(queue),
                                          .create = queue_create,
                                          .copy = queue_copy,
                                          .signal = queue_signal,
                                          .host_wait = queue_host_wait,
                                          .fill = queue_fill,
                                          .wait = queue_wait,
                                          .done = queue_done,
                                          .status = queue_status};
    static const pgd_weight_table weight = {
        .size = sizeof(weight), .prepare = weight_prepare, .adopt = weight_adopt};
    static const pgd_kv_table kv = {.size = sizeof(kv),
                                    .bind = kv_bind,
                                    .copy_blocks = kv_copy_blocks,
                                    .read_blocks = kv_read_blocks,
                                    .write_blocks = kv_write_blocks};
    static const pgd_graph_table graph = {
        .size = sizeof(graph), .begin = graph_begin, .launch = graph_launch};
    out->device = &device;
    out->memory = &memory;
    out->queue = &queue;
    out->weight = &weight;
    out->kv = &kv;
    out->ops = &ops;
    out->graph = &graph;
}
