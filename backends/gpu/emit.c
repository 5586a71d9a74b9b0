// From an op's arguments to launches: tensors become memories and views, counts become grids.
#include <string.h>

#include "gpu.h"
#include "tuned.h"

static void fail_op(gpu_op *op, pgd_status code) {
    if (op->code == PGD_OK) {
        op->code = code;
    }
}

pgd_status gpu_counts(const pgd_device *d, const pgd_batch *b) {
    const pgd_batch_head *head = b->mirror;
    if (head->n_tokens < 0 || head->n_tokens > b->cap_tokens || head->n_seqs < 0 ||
        head->n_seqs > b->cap_seqs || head->n_out < 0 || head->n_out > b->cap_out ||
        head->max_kv < 0 || (b->cap_kv > 0 && head->max_kv > b->cap_kv)) {
        return GPU_FAIL(d, PGD_INVALID,
                        "a step of %d rows, %d sequences, %d outputs and %d keys; the batch holds "
                        "%d, %d, %d and %d",
                        (int)head->n_tokens, (int)head->n_seqs, (int)head->n_out, (int)head->max_kv,
                        (int)b->cap_tokens, (int)b->cap_seqs, (int)b->cap_out, (int)b->cap_kv);
    }
    return PGD_OK;
}

static int32_t live_rows(const pgd_batch *b, int32_t mode, int32_t cap) {
    const pgd_batch_head *head = b->mirror;
    const int32_t rows = mode == PGD_ROWS_TOKENS    ? head->n_tokens
                         : mode == PGD_ROWS_OUTPUTS ? head->n_out
                                                    : cap;
    return rows < cap ? rows : cap;
}

static pgd_status open_batch(gpu_op *op, const pgd_batch *batch) {
    const pgd_device *d = op->d;
    if (batch == NULL) {
        return op->rows_mode == PGD_ROWS_SHAPE
                   ? PGD_OK
                   : GPU_FAIL(d, PGD_INVALID, "rows of a step without a batch");
    }
    op->local = *PGD_ARGS(pgd_batch, op->local, batch);
    op->local.size = sizeof(op->local);
    op->batch = &op->local;
    if (op->batch->mem == NULL || op->batch->mirror == NULL) {
        return GPU_FAIL(d, PGD_INVALID, "a batch that is not in memory of the device");
    }
    PGD_TRY(gpu_range(d, "the head of the batch", op->batch->mem, 0, sizeof(pgd_batch_head)));
    if (op->x->queue->recording != NULL || op->rows_mode == PGD_ROWS_SHAPE) {
        return PGD_OK;
    }
    PGD_TRY(gpu_counts(d, op->batch));
    if (live_rows(op->batch, op->rows_mode, INT32_MAX) > op->cap) {
        return GPU_FAIL(d, PGD_INVALID, "a step of more rows than a tensor of %d", (int)op->cap);
    }
    return PGD_OK;
}

void gpu_op_open(gpu_op *op, const pgd_exec *x, const pgd_batch *batch, int32_t rows_mode,
                 int64_t shape_rows) {
    *op = (gpu_op){.x = x, .d = x->dev, .rows_mode = rows_mode, .cap = (int32_t)shape_rows};
    if (rows_mode < PGD_ROWS_SHAPE || rows_mode > PGD_ROWS_OUTPUTS) {
        op->code = GPU_FAIL(op->d, PGD_INVALID, "rows mode %d", (int)rows_mode);
    } else {
        op->code = open_batch(op, batch);
    }
}

k_rows gpu_rows(const gpu_op *op) {
    return (k_rows){.mode = op->rows_mode, .n = op->cap};
}

gpu_work gpu_work_of(const gpu_op *op, int32_t kernel, int32_t rows_axis, int32_t rows_unit) {
    gpu_work w = {.launch = {.kernel = kernel, .groups = {1, 1, 1}},
                  .rows_mode = op->rows_mode,
                  .rows_cap = op->cap,
                  .rows_axis = rows_axis,
                  .rows_unit = rows_unit,
                  .keys_axis = -1};
    if (op->batch != NULL) {
        w.batch = op->local;
        w.launch.memories[0] = op->local.mem == NULL ? NULL : op->local.mem->memory;
    }
    return w;
}

// Elements from the first to one behind the last of a tensor; -1 if that overflows.
static int64_t extent(const pgd_tensor *t) {
    int64_t last = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        int64_t step = 0;
        if (t->shape[i] == 0) {
            return 0;
        }
        if (t->stride[i] < 0 || __builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &step) ||
            __builtin_add_overflow(last, step, &last)) {
            return -1;
        }
    }
    return last >= INT64_MAX / 8 ? -1 : last + 1;
}

k_view gpu_bind(gpu_op *op, gpu_work *w, int i, const char *name, const pgd_tensor *t) {
    k_view v = {.dtype = t->dtype == 0 ? K_F32 : t->dtype};
    const int64_t n = extent(t);
    const uint64_t item = pgd_dtype_bytes(t->dtype);
    if (t->rank == 0 || op->code != PGD_OK) {
        return v;
    }
    if (n < 0 || t->stride[t->rank - 1] != 1 || t->offset % item != 0) {
        fail_op(op, GPU_FAIL(op->d, PGD_INVALID,
                             "%s: its elements do not lie one beside the other, or it begins at "
                             "byte %llu",
                             name, (unsigned long long)t->offset));
        return v;
    }
    fail_op(op, gpu_range(op->d, name, t->buffer, t->offset, (uint64_t)n * item));
    if (op->code != PGD_OK) {
        return v;
    }
    w->launch.memories[i] = t->buffer->memory;
    v.at = (int64_t)t->offset;
    v.s0 = t->rank > 1 ? t->stride[0] : 0;
    v.s1 = t->rank > 2 ? t->stride[1] : 0;
    v.dtype = t->dtype == PGD_I32 ? K_F32 : t->dtype;
    return v;
}

k_weight gpu_bind_weight(gpu_op *op, gpu_work *w, int i, const pgd_weight *weight) {
    (void)op;
    w->launch.memories[i] = weight->buffer->memory;
    return weight->matrices[0].w;
}

k_cache gpu_bind_cache(gpu_op *op, gpu_work *w, int i, const pgd_kv *kv, int32_t layer) {
    k_cache c = kv->cache;
    (void)op;
    w->launch.memories[i] = kv->buffer->memory;
    c.layer_at = (int64_t)((uint64_t)layer * kv->layer_bytes);
    return c;
}

k_view gpu_bind_scratch(gpu_op *op, gpu_work *w, int i, uint64_t bytes) {
    const pgd_range *s = &op->x->scratch;
    if (op->code != PGD_OK || bytes == 0) {
        return (k_view){.dtype = K_F32};
    }
    if (s->buffer == NULL || s->bytes < bytes) {
        fail_op(op, GPU_FAIL(op->d, PGD_INVALID, "%llu bytes of scratch, %llu are needed",
                             (unsigned long long)s->bytes, (unsigned long long)bytes));
        return (k_view){.dtype = K_F32};
    }
    w->launch.memories[i] = s->buffer->memory;
    return (k_view){.at = (int64_t)s->offset, .dtype = K_F32};
}

int64_t gpu_array(gpu_op *op, const char *name, uint64_t offset, uint64_t bytes) {
    if (op->code != PGD_OK) {
        return 0;
    }
    if (op->batch == NULL || offset == 0) {
        fail_op(op, GPU_FAIL(op->d, PGD_INVALID, "the batch has no %s", name));
        return 0;
    }
    fail_op(op, gpu_range(op->d, name, op->batch->mem, offset, bytes));
    return (int64_t)offset;
}

static int32_t rows_of(const gpu_work *w, const gpu_sizes *sizes) {
    if (w->batch.size == 0 || w->rows_mode == PGD_ROWS_SHAPE) {
        return w->rows_cap;
    }
    if (sizes != NULL) {
        return sizes->rows < w->rows_cap ? sizes->rows : w->rows_cap;
    }
    return live_rows(&w->batch, w->rows_mode, w->rows_cap);
}

// Of each pair of conditions one holds; for sizes that which is right for all steps up to them.
static bool is_wanted(const gpu_work *w, const gpu_sizes *sizes) {
    const pgd_batch_head *head = w->batch.mirror;
    bool is_special = false;
    if (w->when == GPU_IF_SPLIT || w->when == GPU_IF_WHOLE) {
        const int32_t rows = sizes != NULL ? sizes->rows : head->n_tokens;
        const int32_t keys = sizes != NULL ? sizes->keys : head->max_kv;
        is_special = rows <= w->split_rows && keys > GPU_SPLIT_KEYS;
        return is_special == (w->when == GPU_IF_SPLIT);
    }
    if (w->when == GPU_IF_BETWEEN) {
        const int32_t rows = rows_of(w, sizes);
        return rows >= w->rows_least && rows <= w->rows_most;
    }
    is_special = rows_of(w, sizes) == 1;
    return w->when == GPU_ALWAYS || is_special == (w->when == GPU_IF_ONE_ROW);
}

// What a driver's graph records is for any count up to a size, so it is not the library's.
static pgd_status run_library(const pgd_device *d, pgd_queue *q, const gpu_work *w,
                              const gpu_sizes *sizes) {
    q->by_library = false;
    pgd_status code = sizes != NULL ? PGD_OK : gpu_library_run(d, q, w, rows_of(w, NULL));
    if (code != PGD_OK) {
        gpu_fault(q, code);
    }
    return code;
}

pgd_status gpu_run(const pgd_device *d, pgd_queue *q, const gpu_work *w, const gpu_sizes *sizes) {
    const gpu_driver *driver = gpu_of(d)->driver;
    gpu_launch l = w->launch;
    if (l.kernel == GPU_BY_LIBRARY) {
        return run_library(d, q, w, sizes);
    }
    if (!is_wanted(w, sizes) || (w->is_own && q->by_library)) {
        return PGD_OK;
    }
    if (w->rows_axis >= 0) {
        const int32_t rows = rows_of(w, sizes) - w->rows_from;
        const uint32_t n = rows > 0 ? gpu_ceil(rows, w->rows_unit) : 0;
        uint32_t *groups = &l.groups[w->rows_axis];
        *groups = *groups == 1 || n < *groups ? n : *groups;
    }
    if (w->keys_axis >= 0) {
        const pgd_batch_head *head = w->batch.mirror;
        l.groups[w->keys_axis] = gpu_ceil(sizes != NULL ? sizes->keys : head->max_kv,
                                          w->keys_unit > 0 ? w->keys_unit : K_TILE);
    }
    if (l.groups[0] == 0 || l.groups[1] == 0 || l.groups[2] == 0) {
        return PGD_OK;
    }
    pgd_status code = driver->launch(d->host, q->queue, &l);
    if (code != PGD_OK) {
        gpu_fault(q, code);
    }
    return code;
}

void gpu_add_work(gpu_op *op, gpu_work *w) {
    pgd_queue *q = op->x->queue;
    if (op->code == PGD_OK) {
        fail_op(op, q->recording != NULL ? gpu_record_work(op->d, q->recording, w)
                                         : gpu_run(op->d, q, w, NULL));
    }
}

void gpu_emit(gpu_op *op, gpu_work *w, const void *params) {
    const int32_t own = w->launch.kernel - PGD_PORTABLE_COUNT;
    const uint32_t bytes = own >= 0 ? gpu_of(op->d)->tuned->kernels[own].params_bytes
                                    : pgd_portable_kernels[w->launch.kernel].params_bytes;
    if (op->code != PGD_OK) {
        return;
    }
    if (bytes > GPU_PARAMS_BYTES) {
        fail_op(op, GPU_FAIL(op->d, PGD_INTERNAL, "%u bytes of parameters", (unsigned)bytes));
        return;
    }
    memcpy(w->launch.params, params, bytes);
    w->is_own = op->is_own;
    gpu_add_work(op, w);
}
