// Addresses of tensors and of the batch, and how many rows are live.
#include "cpu.h"

// ---- tensors -----------------------------------------------------------------------------------

// Elements from the first to the last of a tensor's `rows` rows; false when a stride is wrong.
static bool extent(const pgd_tensor *t, int64_t rows, int64_t *out) {
    int64_t last = 0;
    *out = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        int64_t n = i == 0 ? rows : t->shape[i];
        int64_t part = 0;
        if (n == 0) {
            *out = 0;
            return true;
        }
        if (n > 1 && (t->stride[i] < 0 || (i == t->rank - 1 && t->stride[i] != 1) ||
                      __builtin_mul_overflow(n - 1, t->stride[i], &part) ||
                      __builtin_add_overflow(last, part, &last))) {
            return false;
        }
        *out = last + 1;
    }
    return last < INT64_MAX / 8;
}

pgd_status cpu_view_of(const pgd_exec *x, const char *name, const pgd_tensor *t, bool write,
                       cpu_view *out) {
    int64_t n = 0;
    void *p = NULL;
    *out = (cpu_view){0};
    if (t->rank == 0 || t->rank > PGD_MAX_RANK) {
        return CPU_FAIL(x->dev, PGD_INVALID, "%s has rank %u", name, (unsigned)t->rank);
    }
    if (!extent(t, t->shape[0], &n)) {
        return CPU_FAIL(x->dev, PGD_INVALID, "%s: strides %lld, %lld, %lld", name,
                        (long long)t->stride[0], (long long)t->stride[1], (long long)t->stride[2]);
    }
    PGD_TRY(cpu_range(x->dev, name, t->buffer, t->offset, (uint64_t)n * pgd_dtype_bytes(t->dtype),
                      write, &p));
    if ((uintptr_t)p % pgd_dtype_bytes(t->dtype) != 0) {
        return CPU_FAIL(x->dev, PGD_INVALID, "%s is not aligned to its elements", name);
    }
    out->p = p;
    out->s0 = t->rank > 1 ? t->stride[0] : 1;
    out->s1 = t->rank > 2 ? t->stride[1] : 0;
    return PGD_OK;
}

pgd_status cpu_op_view(cpu_op *op, const char *name, const pgd_tensor *t, bool write,
                       cpu_view *out) {
    PGD_TRY(cpu_view_of(op->x, name, t, write, out));
    op->cap_rows = cpu_min(op->cap_rows, t->shape[0]);
    return PGD_OK;
}

// ---- the batch ---------------------------------------------------------------------------------

// Array of n elements at an offset of the block; NULL when absent.
static bool array_at(const cpu_batch *b, uint64_t end, uint64_t offset, int64_t n, uint64_t element,
                     const int32_t **out) {
    uint64_t bytes = 0;
    *out = NULL;
    if (offset == 0) {
        return true;
    }
    if (n < 0 || __builtin_mul_overflow((uint64_t)n, element, &bytes) || offset > end ||
        bytes > end - offset || offset % 4 != 0) {
        return false;
    }
    *out = (const int32_t *)(const void *)(b->base + offset);
    return true;
}

// An array whose length is not told: what is uploaded of it, or all to the end of the block.
static bool open_list(const cpu_batch *b, uint64_t end, uint64_t offset, uint64_t element,
                      const void **out, uint64_t *out_n) {
    end = offset < b->caps.upload_bytes && b->caps.upload_bytes < end ? b->caps.upload_bytes : end;
    *out = NULL;
    *out_n = 0;
    if (offset == 0) {
        return true;
    }
    if (offset > end || offset % 4 != 0) {
        return false;
    }
    *out = b->base + offset;
    *out_n = (end - offset) / element;
    return true;
}

static bool open_arrays(cpu_batch *b, uint64_t end, int32_t group) {
    const pgd_batch *c = &b->caps;
    const int32_t *last = NULL;
    const int32_t *sampled = NULL;
    const int32_t *sampling = NULL;
    const void *mask = NULL;
    const void *bias = NULL;
    bool ok =
        array_at(b, end, c->token_ids, c->cap_tokens, 4, &b->token_ids) &&
        array_at(b, end, c->positions, (int64_t)c->n_axes * c->cap_tokens, 4, &b->positions) &&
        array_at(b, end, c->q_start, (int64_t)c->cap_seqs + 1, 4, &b->q_start) &&
        array_at(b, end, c->kv_len, c->cap_seqs, 4, &b->kv_len) &&
        array_at(b, end, c->out_rows, c->cap_out, 4, &b->out_rows) &&
        array_at(b, end, c->out_slot, c->cap_out, 4, &b->out_slot) &&
        array_at(b, end, c->seq_slot, c->cap_seqs, 4, &b->seq_slot) &&
        array_at(b, end, c->sampling, c->cap_out, c->sampling_stride, &sampling) &&
        array_at(b, end, c->last, c->cap_slots, 4, &last) &&
        array_at(b, end, c->sampled, c->cap_out, 4, &sampled) &&
        open_list(b, end, c->mask, sizeof(uint32_t), &mask, &b->mask_words) &&
        open_list(b, end, c->bias, sizeof(pgd_bias), &bias, &b->n_bias);
    b->mask = mask;
    b->bias = bias;
    b->last = (int32_t *)(uintptr_t)last;
    b->sampled = (int32_t *)(uintptr_t)sampled;
    b->sampling = (const unsigned char *)sampling;
    if (!ok || group < 0) {
        return ok;
    }
    return array_at(b, end, c->slots[group], c->cap_tokens, 4, &b->slots) &&
           array_at(b, end, c->block_table[group], (int64_t)c->cap_slots * c->cap_blocks[group], 4,
                    &b->table);
}

pgd_status cpu_batch_open(const pgd_exec *x, const pgd_batch *batch, int32_t group,
                          cpu_batch *out) {
    pgd_batch local;
    uint64_t end = UINT64_MAX / 2;
    out->caps = *PGD_ARGS(pgd_batch, local, batch);
    if (out->caps.mem != NULL) {
        out->base = out->caps.mem->ptr;
        end = out->caps.mem->bytes;
    } else {
        out->base = (unsigned char *)(uintptr_t)out->caps.mirror;
    }
    if (out->base == NULL || end < sizeof(pgd_batch_head)) {
        return CPU_FAIL(x->dev, PGD_INVALID, "the batch has no memory");
    }
    out->head = (const pgd_batch_head *)(const void *)out->base;
    if (group >= 0 && (group >= out->caps.n_groups || group >= PGD_MAX_GROUPS)) {
        return CPU_FAIL(x->dev, PGD_INVALID, "cache group %d of %d", (int)group,
                        (int)out->caps.n_groups);
    }
    if (!open_arrays(out, end, group)) {
        return CPU_FAIL(x->dev, PGD_INVALID, "an array of the batch lies outside of its block");
    }
    return PGD_OK;
}

pgd_status cpu_op_open(cpu_op *op, const pgd_batch *batch, int32_t rows_mode, int32_t group,
                       int64_t shape_rows) {
    if (batch != NULL) {
        PGD_TRY(cpu_batch_open(op->x, batch, group, &op->batch));
    }
    if (rows_mode < PGD_ROWS_SHAPE || rows_mode > PGD_ROWS_OUTPUTS ||
        (rows_mode != PGD_ROWS_SHAPE && batch == NULL)) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "rows %d without a batch", (int)rows_mode);
    }
    op->rows_mode = rows_mode;
    op->shape_rows = shape_rows;
    op->cap_rows = shape_rows;
    return PGD_OK;
}

pgd_status cpu_op_live(cpu_op *op) {
    int64_t n = op->shape_rows;
    if (op->rows_mode == PGD_ROWS_TOKENS) {
        n = op->batch.head->n_tokens;
    } else if (op->rows_mode == PGD_ROWS_OUTPUTS) {
        n = op->batch.head->n_out;
    }
    if (n < 0 || n > op->cap_rows) {
        return CPU_FAIL(op->x->dev, PGD_INVALID, "%lld live rows in tensors of %lld", (long long)n,
                        (long long)op->cap_rows);
    }
    op->rows = n;
    return op->live == NULL ? PGD_OK : op->live(op);
}

pgd_status cpu_check_tokens(const pgd_exec *x, const cpu_batch *b, int64_t n) {
    if (b->head == NULL) {
        return PGD_OK;
    }
    n = cpu_min(n, b->head->n_out);
    if (n > b->caps.cap_out) {
        return CPU_FAIL(x->dev, PGD_INVALID, "%lld outputs, the batch holds %d", (long long)n,
                        (int)b->caps.cap_out);
    }
    if (b->out_slot == NULL || b->last == NULL) {
        return PGD_OK;
    }
    for (int64_t r = 0; r < n; r++) {
        if (b->out_slot[r] < -1 || b->out_slot[r] >= b->caps.cap_slots) {
            return CPU_FAIL(x->dev, PGD_INVALID, "output %lld goes to slot %d of %d", (long long)r,
                            (int)b->out_slot[r], (int)b->caps.cap_slots);
        }
    }
    return PGD_OK;
}

// Rows behind the live outputs write nothing.
void cpu_put_token(const cpu_batch *b, int64_t r, int32_t id) {
    if (b->head == NULL || r >= b->head->n_out) {
        return;
    }
    if (b->sampled != NULL) {
        b->sampled[r] = id;
    }
    if (b->last != NULL && b->out_slot != NULL && b->out_slot[r] >= 0) {
        b->last[b->out_slot[r]] = id;
    }
}
