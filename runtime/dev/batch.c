// Layout and upload of the batch block. See batch.h and pgd_batch in <pagoda/types.h>.
#include "dev/batch.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "dev/staging.h"

enum { MOST_STAGING = 2 };

struct pgd_dev_batch {
    const pgd_device *d;
    pgd_batch view;
    unsigned char *mirror; // the whole block's size, so that tables have a host copy too
    uint64_t bytes;
    uint64_t fixed_bytes; // of the part that travels each step
    uint64_t mask_bytes;  // of a row
    pgd_copy *copies;     // [2 + (1 + n_groups) * cap_slots]
    uint32_t n_copies;
    // Where uploads are read from while the mirror is filled again; used in turn, 0: the mirror.
    pgd_dev_staging staging[MOST_STAGING];
    int32_t n_staging;
    int32_t turn;
};

static uint64_t place(uint64_t *end, uint64_t n, uint64_t item_bytes) {
    uint64_t at = (*end + 63) & ~(uint64_t)63;
    *end = at + n * item_bytes;
    return at;
}

static uint64_t mask_bytes(const pgd_dev_batch_desc *desc) {
    return ((uint64_t)desc->vocab + 31) / 32 * sizeof(uint32_t);
}

// Fills the view's offsets; returns the bytes of the block. Caps are i32, so no product overflows.
static uint64_t lay_out(const pgd_dev_batch_desc *desc, pgd_batch *v, uint64_t *out_fixed) {
    uint64_t tokens = (uint64_t)desc->cap_tokens;
    uint64_t seqs = (uint64_t)desc->cap_seqs;
    uint64_t out = (uint64_t)(desc->cap_out > 0 ? desc->cap_out : desc->cap_seqs);
    uint64_t end = sizeof(pgd_batch_head);
    *v = (pgd_batch){
        .size = sizeof(*v),
        .cap_tokens = desc->cap_tokens,
        .cap_seqs = desc->cap_seqs,
        .cap_out = desc->cap_out > 0 ? desc->cap_out : desc->cap_seqs,
        .cap_slots = desc->cap_seqs,
        .cap_q = desc->cap_tokens,
        .cap_kv = desc->cap_kv,
        .n_groups = desc->n_groups > 0 ? desc->n_groups : 1,
        .n_axes = 1,
        .sampling_stride = sizeof(pgd_sampling),
    };
    v->token_ids = place(&end, tokens, sizeof(int32_t));
    v->positions = place(&end, tokens, sizeof(int32_t));
    v->q_start = place(&end, seqs + 1, sizeof(int32_t));
    v->kv_len = place(&end, seqs, sizeof(int32_t));
    v->out_rows = place(&end, out, sizeof(int32_t));
    v->out_slot = place(&end, out, sizeof(int32_t));
    v->seq_slot = place(&end, seqs, sizeof(int32_t));
    for (int32_t g = 0; g < v->n_groups; g++) {
        v->slots[g] = place(&end, tokens, sizeof(int32_t));
        v->cap_blocks[g] = desc->cap_blocks;
    }
    v->sampling = place(&end, out, sizeof(pgd_sampling));
    *out_fixed = end;
    if (desc->cap_bias > 0) {
        v->bias = place(&end, (uint64_t)desc->cap_bias, sizeof(pgd_bias));
    }
    if (desc->vocab > 0) {
        v->mask = place(&end, seqs, mask_bytes(desc));
    }
    v->upload_bytes = (end + 63) & ~(uint64_t)63;
    end = v->upload_bytes;
    for (int32_t g = 0; g < v->n_groups; g++) {
        v->block_table[g] = place(&end, seqs * (uint64_t)desc->cap_blocks, sizeof(int32_t));
    }
    v->last = place(&end, seqs, sizeof(int32_t));
    v->sampled = place(&end, out, sizeof(int32_t));
    return (end + 63) & ~(uint64_t)63;
}

uint64_t pgd_dev_batch_bytes(const pgd_dev_batch_desc *desc) {
    pgd_batch view;
    uint64_t fixed = 0;
    return lay_out(desc, &view, &fixed);
}

static pgd_status make_memory(pgd_dev_batch *b, const pgd_dev_batch_desc *desc) {
    const pgd_buffer_desc buffer = {
        .size = sizeof(buffer), .use = PGD_USE_BATCH, .bytes = b->bytes, .align = 64};
    b->mirror = pgd_mem_alloc_aligned(b->bytes, 64);
    b->copies = pgd_mem_alloc(2 + (1 + (size_t)b->view.n_groups) * (size_t)desc->cap_seqs,
                              sizeof(*b->copies));
    if (b->mirror == NULL || b->copies == NULL) {
        return PGD_MEM_FAIL("the batch", b->bytes);
    }
    b->view.mirror = b->mirror;
    const pgd_status status = b->d->memory->create(b->d, &buffer, &b->view.mem);
    PGD_TRY(pgd_fail_note(status, "making the batch block of %llu bytes",
                          (unsigned long long)buffer.bytes));
    for (int32_t i = 0; desc->n_ahead > 0 && i < MOST_STAGING; i++) {
        PGD_TRY(pgd_dev_staging_create(b->d, b->bytes, &b->staging[i]));
        b->n_staging++;
    }
    return PGD_OK;
}

pgd_status pgd_dev_batch_create(const pgd_device *d, const pgd_dev_batch_desc *desc,
                                pgd_dev_batch **out) {
    *out = NULL;
    pgd_dev_batch *b = pgd_mem_alloc(1, sizeof(*b));
    if (b == NULL) {
        return PGD_MEM_FAIL("the batch", sizeof(*b));
    }
    b->d = d;
    b->bytes = lay_out(desc, &b->view, &b->fixed_bytes);
    b->mask_bytes = mask_bytes(desc);
    const pgd_status status = make_memory(b, desc);
    if (status != PGD_OK) {
        pgd_dev_batch_destroy(b);
        return status;
    }
    *out = b;
    return PGD_OK;
}

void pgd_dev_batch_destroy(pgd_dev_batch *b) {
    if (b == NULL) {
        return;
    }
    if (b->view.mem != NULL) {
        b->d->memory->destroy(b->d, b->view.mem);
    }
    for (int32_t i = 0; i < b->n_staging; i++) {
        pgd_dev_staging_destroy(b->d, &b->staging[i]);
    }
    pgd_mem_free(b->mirror);
    pgd_mem_free(b->copies);
    pgd_mem_free(b);
}

const pgd_batch *pgd_dev_batch_view(const pgd_dev_batch *b) {
    return &b->view;
}

pgd_batch_head *pgd_dev_batch_begin(pgd_dev_batch *b) {
    memset(b->mirror, 0, (size_t)b->fixed_bytes);
    b->n_copies = 0;
    return (pgd_batch_head *)(void *)b->mirror;
}

void *pgd_dev_batch_array(pgd_dev_batch *b, uint64_t offset) {
    return b->mirror + offset;
}

static void add_copy(pgd_dev_batch *b, uint64_t offset, uint64_t bytes) {
    b->copies[b->n_copies++] = (pgd_copy){
        .dst = b->view.mem,
        .dst_offset = offset,
        .src_offset = (uint64_t)(uintptr_t)(b->mirror + offset),
        .bytes = bytes,
    };
}

void pgd_dev_batch_blocks(pgd_dev_batch *b, int32_t group, int32_t slot, int32_t first,
                          const int32_t *ids, int32_t n) {
    uint64_t entry = (uint64_t)slot * (uint64_t)b->view.cap_blocks[group] + (uint64_t)first;
    uint64_t at = b->view.block_table[group] + entry * sizeof(int32_t);
    memcpy(b->mirror + at, ids, (size_t)n * sizeof(int32_t));
    add_copy(b, at, (uint64_t)n * sizeof(int32_t));
}

void pgd_dev_batch_bias(pgd_dev_batch *b, int32_t n) {
    if (n > 0) {
        add_copy(b, b->view.bias, (uint64_t)n * sizeof(pgd_bias));
    }
}

void pgd_dev_batch_mask(pgd_dev_batch *b, int32_t slot, const uint32_t *words) {
    uint64_t at = b->view.mask + (uint64_t)slot * b->mask_bytes;
    memcpy(b->mirror + at, words, (size_t)b->mask_bytes);
    add_copy(b, at, b->mask_bytes);
}

// The mirror is free for the next step, while the device reads this one from here.
static void stage(pgd_dev_batch *b) {
    unsigned char *to = b->staging[b->turn].host;
    for (uint32_t i = 0; i < b->n_copies; i++) {
        pgd_copy *c = &b->copies[i];
        memcpy(to + c->dst_offset, b->mirror + c->dst_offset, (size_t)c->bytes);
        c->src_offset = (uint64_t)(uintptr_t)(to + c->dst_offset);
    }
    b->turn = (b->turn + 1) % b->n_staging;
}

pgd_status pgd_dev_upload_batch(pgd_dev_batch *b, pgd_queue *q) {
    add_copy(b, 0, b->fixed_bytes);
    if (b->n_staging > 0) {
        stage(b);
    }
    return b->d->queue->copy(b->d, q, b->copies, b->n_copies);
}
