// Wrong numbers: behind an operation its outputs are overwritten by copies on the same queue.
//
// Which tensors are outputs says PGD_OP_IO. The state of penalties is left alone: its rows are
// sequences, not rows of the call. What argmax and the samplers leave in the batch is spoiled too.
#include "fault.h"

static const uint32_t words[FAULT_PATTERNS] = {
    [FAULT_NAN32] = 0x7fc00000u,
    [FAULT_NAN16] = 0x7fc07fc0u,
    [FAULT_MINUS] = 0xffffffffu,
    [FAULT_ONE_F32] = 0x3f800000u,
    [FAULT_ONE_BF16] = 0x3f803f80u,
    [FAULT_ONE_F16] = 0x3c003c00u,
    [FAULT_ZERO] = 0,
};

void fault_make_patterns(fault_self *f) {
    for (int32_t p = 0; p < FAULT_PATTERNS; p++) {
        for (size_t i = 0; i < FAULT_PATTERN_BYTES / 4; i++) {
            f->patterns[p][i] = words[p];
        }
    }
}

static const uint32_t *pattern_of(const fault_self *f, int32_t dtype, int32_t spoil) {
    const int32_t is_nan = (spoil & FAULT_SPOIL_NAN) != 0;
    switch (dtype) {
    case PGD_F32: return f->patterns[is_nan ? FAULT_NAN32 : FAULT_ONE_F32];
    case PGD_BF16: return f->patterns[is_nan ? FAULT_NAN16 : FAULT_ONE_BF16];
    case PGD_F16: return f->patterns[is_nan ? FAULT_NAN16 : FAULT_ONE_F16];
    default: return f->patterns[is_nan ? FAULT_MINUS : FAULT_ZERO];
    }
}

static pgd_status write(const pgd_exec *x, pgd_buffer *to, uint64_t offset, uint64_t bytes,
                        const uint32_t *pattern) {
    const pgd_device *next = x->dev->next;
    for (uint64_t at = 0; at < bytes; at += FAULT_PATTERN_BYTES) {
        const uint64_t left = bytes - at;
        const pgd_copy copy = {
            .dst = to,
            .dst_offset = offset + at,
            .src_offset = (uint64_t)(uintptr_t)pattern,
            .bytes = left < FAULT_PATTERN_BYTES ? left : FAULT_PATTERN_BYTES,
            .rows = 1,
        };
        PGD_TRY(next->queue->copy(next, x->queue, &copy, 1));
    }
    return PGD_OK;
}

// Rows [*first, *end) of n that are to be spoiled.
static void rows_of(const fault_self *f, int64_t n, int64_t *first, int64_t *end) {
    *first = f->row < 0 || n == 0 ? 0 : f->row % n;
    *end = f->row < 0 || n == 0 ? n : *first + 1;
}

static pgd_status spoil_tensor(const pgd_exec *x, const layer_head *a, const pgd_tensor *t,
                               int32_t spoil) {
    const fault_self *f = fault_of(x->dev);
    const uint64_t item = pgd_dtype_bytes(t->dtype);
    int64_t first = 0;
    int64_t end = 0;
    rows_of(f, layer_rows(a, t), &first, &end);
    for (int64_t row = first; row < end; row++) {
        PGD_TRY(write(x, t->buffer, t->offset + (uint64_t)(row * t->stride[0]) * item,
                      (uint64_t)layer_row_elements(t) * item, pattern_of(f, t->dtype, spoil)));
    }
    return PGD_OK;
}

// last and sampled of the batch.
static pgd_status spoil_batch(const pgd_exec *x, const pgd_batch *b, int32_t spoil) {
    const pgd_batch_head *live = layer_live(b);
    int64_t first = 0;
    int64_t end = 0;
    if (live == NULL || b->mem == NULL) {
        return PGD_OK;
    }
    const unsigned char *mirror = b->mirror;
    const int32_t *slots = (const int32_t *)(const void *)(mirror + b->out_slot);
    const uint32_t *pattern = pattern_of(fault_of(x->dev), PGD_I32, spoil);
    rows_of(fault_of(x->dev), live->n_out, &first, &end);
    for (int64_t row = first; row < end; row++) {
        PGD_TRY(write(x, b->mem, b->sampled + (uint64_t)row * 4, 4, pattern));
        if (slots[row] >= 0) {
            PGD_TRY(write(x, b->mem, b->last + (uint64_t)slots[row] * 4, 4, pattern));
        }
    }
    return PGD_OK;
}

pgd_status fault_spoil(const pgd_exec *x, int32_t op, const void *args, int32_t spoil) {
    const layer_head *a = args;
    uint32_t n = 0;
    const layer_field *fields = layer_fields(&n);
    for (uint32_t i = 0; i < n; i++) {
        const pgd_tensor *t = layer_tensor(&fields[i], args);
        if (fields[i].op == op && (fields[i].mode & LAYER_OUT) != 0 && t->rank > 0 &&
            strcmp(fields[i].name, "state") != 0) {
            PGD_TRY(spoil_tensor(x, a, t, spoil));
        }
    }
    if (op == PGD_OP_argmax || op == PGD_OP_sample || op == PGD_OP_head_sample) {
        return spoil_batch(x, a->batch, spoil);
    }
    return PGD_OK;
}
