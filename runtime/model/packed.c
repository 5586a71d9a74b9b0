// Packed weights: what prepare has made is kept in the store, and adopted from there at the next
// start.
//
//   key    numbers (files or seed) + for each weight its desc and the device's fingerprint
//   found  file mapped -> import -> adopt in place; where the device has no import: copy -> adopt
//   kept   resident bytes, through map or a copy, one entry a weight
//
// Equal desc and fingerprint mean equal resident bytes (pgd_weight_plan), so the file serves every
// device that answers the same. See docs/decisions/0007-packed-weights-on-disk.md.
#include "model/inner.h"

#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/mem.h"

#define PIECE_BYTES (UINT64_C(16) << 20) // copied at a time from a device without map

// Says why packed weights were not used.
static void say(const char *what) {
    pgd_log(PGD_LEVEL_INFO, "%s: %s", what, pgd_fail_last());
}

// Sizes and the text that the key is the hash of.
static pgd_status describe(const pgd_model *m, uint64_t *sizes, pgd_text *t) {
    const pgd_load_plan *plan = m->desc.plan;
    PGD_TRY(pgd_load_plan_identity(plan, t));
    for (uint32_t i = 0; i < plan->n_matrices; i++) {
        const pgd_load_matrix *x = &plan->matrices[i];
        const pgd_weight_desc d = pgd_model_weight_desc(m, x);
        pgd_weight_plan w = {.size = sizeof(w)};
        PGD_TRY(m->d->weight->plan(m->d, &d, &w));
        if ((w.flags & (PGD_WEIGHT_IN_PLACE | PGD_WEIGHT_KEEPS_SOURCE)) != 0 || w.bytes == 0 ||
            w.align > PGD_DEV_STORE_ALIGN) {
            return pgd_fail(PGD_UNSUPPORTED, "%s has no form of its own on this device", x->name);
        }
        sizes[i] = w.bytes;
        PGD_TRY(pgd_text_format(t, "%s %u %d %d %d %d %d %d %u %u %lld %lld %llu %016llx\n",
                                x->name, d.uses, d.scheme, d.dtype, d.scale_dtype, d.act_dtype,
                                d.group_n, d.group_k, d.n_experts, d.flags, (long long)d.n,
                                (long long)d.k, (unsigned long long)w.bytes,
                                (unsigned long long)w.fingerprint));
        for (uint32_t k = 0; d.scheme == PGD_SCHEME_PARTS && k < x->n_parts; k++) {
            PGD_TRY(pgd_text_format(t, "part %d %d\n", x->parts[k].scheme, x->parts[k].dtype));
        }
    }
    return PGD_OK;
}

static pgd_status make_key(const pgd_model *m, uint64_t *sizes, pgd_hash *out) {
    pgd_text t = {0};
    pgd_status status = describe(m, sizes, &t);
    *out = pgd_hash_of(t.ptr, t.len);
    pgd_text_free(&t);
    return status;
}

void pgd_model_packed_open(pgd_model *m, pgd_model_packed *p) {
    *p = (pgd_model_packed){0};
    if (m->desc.store == NULL) {
        return;
    }
    p->sizes = pgd_mem_alloc((size_t)m->n_weights, sizeof(*p->sizes));
    if (p->sizes == NULL || make_key(m, p->sizes, &p->key) != PGD_OK) {
        say("packed weights are not kept");
        return;
    }
    p->store = m->desc.store;
}

void pgd_model_packed_close(pgd_model_packed *p) {
    pgd_mem_free(p->sizes);
    *p = (pgd_model_packed){0};
}

// ---- finding -----------------------------------------------------------------------------------

// A buffer of the weight's own with the entry's bytes in it.
static pgd_status copy_entry(const pgd_model *m, pgd_queue *q, const pgd_range *entry,
                             pgd_model_weight *out) {
    PGD_TRY(pgd_model_buffer(m, PGD_USE_WEIGHTS, entry->bytes, PGD_DEV_STORE_ALIGN, &out->buffer));
    const pgd_copy copy = {.dst = out->buffer,
                           .src_offset = (uint64_t)(uintptr_t)m->packed.map.ptr + entry->offset,
                           .bytes = entry->bytes,
                           .rows = 1};
    PGD_TRY(m->d->queue->copy(m->d, q, &copy, 1));
    return pgd_model_wait(m, q);
}

static pgd_status adopt_each(pgd_model *m, const pgd_model_packed *p, pgd_queue *q) {
    for (int32_t i = 0; i < m->n_weights; i++) {
        const pgd_weight_desc desc = pgd_model_weight_desc(m, &m->desc.plan->matrices[i]);
        pgd_range entry = pgd_dev_blob_entry(&m->packed, (uint32_t)i);
        if (entry.bytes != p->sizes[i]) {
            return pgd_fail(PGD_DATA_LOSS, "%s has %llu bytes there, not %llu", desc.name,
                            (unsigned long long)entry.bytes, (unsigned long long)p->sizes[i]);
        }
        if (m->packed_buffer != NULL) {
            entry.buffer = m->packed_buffer;
        } else {
            PGD_TRY(copy_entry(m, q, &entry, &m->weights[i]));
            entry = (pgd_range){.buffer = m->weights[i].buffer, .bytes = entry.bytes};
        }
        PGD_TRY(m->d->weight->adopt(m->d, &desc, &entry, &m->weights[i].handle));
    }
    return PGD_OK;
}

static void drop_all(pgd_model *m) {
    for (int32_t i = 0; i < m->n_weights; i++) {
        if (m->weights[i].handle != NULL) {
            m->d->weight->destroy(m->d, m->weights[i].handle);
        }
        m->d->memory->destroy(m->d, m->weights[i].buffer);
        m->weights[i] = (pgd_model_weight){0};
    }
    m->d->memory->destroy(m->d, m->packed_buffer);
    m->packed_buffer = NULL;
    pgd_dev_blob_close(&m->packed);
}

int32_t pgd_model_packed_find(pgd_model *m, const pgd_model_packed *p, pgd_queue *q) {
    if (p->store == NULL || pgd_dev_store_find(p->store, p->key, &m->packed) != PGD_OK) {
        return 0;
    }
    if (m->packed.n != (uint32_t)m->n_weights) {
        pgd_dev_blob_close(&m->packed);
        return 0;
    }
    if (m->d->memory->import(m->d, m->packed.map.ptr, m->packed.map.bytes, 0, &m->packed_buffer) !=
        PGD_OK) {
        m->packed_buffer = NULL;
    }
    if (adopt_each(m, p, q) != PGD_OK) {
        say("packed weights are made anew");
        drop_all(m);
        return 0;
    }
    if (m->packed_buffer == NULL) {
        pgd_dev_blob_close(&m->packed);
    }
    if (m->desc.progress != NULL) {
        m->desc.progress(m->desc.progress_arg, "loading weights", m->desc.plan->weight_bytes,
                         m->desc.plan->weight_bytes);
    }
    return 1;
}

// ---- keeping -----------------------------------------------------------------------------------

static pgd_status write_by_copy(const pgd_model *m, pgd_queue *q, pgd_buffer *buffer,
                                uint64_t bytes, pgd_dev_store_writer *w) {
    void *piece = pgd_mem_alloc(1, PIECE_BYTES);
    pgd_status status = piece == NULL ? PGD_MEM_FAIL("a piece of a weight", PIECE_BYTES) : PGD_OK;
    for (uint64_t at = 0; status == PGD_OK && at < bytes; at += PIECE_BYTES) {
        const uint64_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        const pgd_copy copy = {.dst_offset = (uint64_t)(uintptr_t)piece,
                               .src = buffer,
                               .src_offset = at,
                               .bytes = n,
                               .rows = 1};
        status = m->d->queue->copy(m->d, q, &copy, 1);
        if (status == PGD_OK) {
            status = pgd_model_wait(m, q);
        }
        if (status == PGD_OK) {
            status = pgd_dev_store_add(w, piece, n);
        }
    }
    pgd_mem_free(piece);
    return status;
}

static pgd_status write_each(const pgd_model *m, const pgd_model_packed *p, pgd_queue *q,
                             pgd_dev_store_writer *w) {
    for (int32_t i = 0; i < m->n_weights; i++) {
        void *ptr = NULL;
        if (m->d->memory->map(m->d, m->weights[i].buffer, &ptr) == PGD_OK) {
            PGD_TRY(pgd_dev_store_add(w, ptr, p->sizes[i]));
        } else {
            PGD_TRY(write_by_copy(m, q, m->weights[i].buffer, p->sizes[i], w));
        }
    }
    return PGD_OK;
}

static pgd_status keep(pgd_model *m, const pgd_model_packed *p, pgd_queue *q) {
    pgd_dev_store_writer *w = NULL;
    pgd_hash key;
    PGD_TRY(pgd_dev_store_begin(p->store, p->key, p->sizes, (uint32_t)m->n_weights, &w));
    pgd_status status = write_each(m, p, q, w);
    // The files may have been written to while they were read.
    if (status == PGD_OK) {
        status = make_key(m, p->sizes, &key);
    }
    if (status == PGD_OK && !pgd_hash_equal(key, p->key)) {
        status = pgd_fail(PGD_PRECONDITION, "the model changed while it was loaded");
    }
    if (status != PGD_OK) {
        pgd_dev_store_drop(w);
        return status;
    }
    return pgd_dev_store_finish(w);
}

void pgd_model_packed_keep(pgd_model *m, const pgd_model_packed *p, pgd_queue *q) {
    if (p->store != NULL && keep(m, p, q) != PGD_OK) {
        say("packed weights are not kept");
    }
}
