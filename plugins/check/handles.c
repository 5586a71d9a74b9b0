// Handles: which of them live, how large they are, who used them last.
#include "check.h"

const char *check_kind_name(int32_t kind) {
    static const char *const names[CHECK_KINDS] = {"buffer", "queue", "weight", "cache"};
    return names[kind];
}

check_handle *check_find(check_self *c, const void *key, int32_t kind) {
    check_handle *h = layer_map_get(&c->handles, key);
    return h != NULL && h->kind == kind ? h : NULL;
}

pgd_status check_alive(check_self *c, const void *key, int32_t kind, const char *where) {
    return check_find(c, key, kind) != NULL
               ? PGD_OK
               : check_wrong(c, "%s: %p is no living %s", where, key, check_kind_name(kind));
}

pgd_status check_range(check_self *c, pgd_buffer *buffer, uint64_t offset, uint64_t bytes,
                       const char *where) {
    if (buffer == NULL) {
        return offset == 0 && bytes > 0 ? check_wrong(c, "%s: the address is NULL", where) : PGD_OK;
    }
    const check_handle *h = check_find(c, buffer, CHECK_BUFFER);
    if (h == NULL) {
        return check_alive(c, buffer, CHECK_BUFFER, where);
    }
    return offset <= h->bytes && bytes <= h->bytes - offset
               ? PGD_OK
               : check_wrong(c, "%s: bytes %llu to %llu of a buffer of %llu", where,
                             (unsigned long long)offset, (unsigned long long)(offset + bytes),
                             (unsigned long long)h->bytes);
}

// handle is the layer's from then on, also on a failure.
pgd_status check_add(check_self *c, const void *key, check_handle *handle) {
    if (handle != NULL && layer_map_put(&c->handles, key, handle)) {
        return PGD_OK;
    }
    c->host->free(c->host, handle);
    return PGD_HOST_FAIL(c->host, PGD_OUT_OF_MEMORY, "no memory for the check layer");
}

void check_end(check_self *c, const void *key, int32_t kind) {
    check_handle *h = check_find(c, key, kind);
    if (key == NULL) {
        return;
    }
    if (h == NULL) {
        (void)check_wrong(c, "destroy: %p is no living %s", key, check_kind_name(kind));
        return;
    }
    for (int32_t i = 0; i < CHECK_MAX_USES; i++) {
        const check_use *u = &h->uses[i];
        if (u->queue != NULL && u->work > u->queue->passed) {
            (void)check_wrong(c,
                              "destroy: the %s %p is in use: nobody has waited for a point behind "
                              "its last use (work %llu of the queue, passed is %llu)",
                              check_kind_name(kind), key, (unsigned long long)u->work,
                              (unsigned long long)u->queue->passed);
        }
    }
    (void)layer_map_take(&c->handles, key);
    if (kind != CHECK_QUEUE) {
        c->host->free(c->host, h);
    }
}

static check_handle *make_handle(check_self *c, int32_t kind) {
    check_handle *h = c->host->alloc(c->host, sizeof(*h), 0);
    if (h != NULL) {
        h->kind = kind;
    }
    return h;
}

// ---- memory ------------------------------------------------------------------------------------

static pgd_status add_buffer(check_self *c, pgd_buffer *buffer, uint64_t bytes) {
    check_lock(c);
    check_handle *h = make_handle(c, CHECK_BUFFER);
    if (h != NULL) {
        h->bytes = bytes;
    }
    const pgd_status status = check_add(c, buffer, h);
    check_unlock(c);
    return status;
}

static pgd_status memory_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                pgd_buffer **out) {
    check_self *c = check_of(d);
    *out = NULL;
    if (desc->bytes == 0 || (desc->align & (desc->align - 1)) != 0) {
        PGD_TRY(check_wrong(c, "memory.create: %llu bytes aligned to %llu",
                            (unsigned long long)desc->bytes, (unsigned long long)desc->align));
    }
    PGD_TRY(d->next->memory->create(d->next, desc, out));
    const pgd_status status = add_buffer(c, *out, desc->bytes);
    if (status != PGD_OK) {
        d->next->memory->destroy(d->next, *out);
        *out = NULL;
    }
    return status;
}

static pgd_status memory_import(const pgd_device *d, const void *ptr, uint64_t bytes,
                                uint32_t flags, pgd_buffer **out) {
    PGD_TRY(d->next->memory->import(d->next, ptr, bytes, flags, out));
    const pgd_status status = add_buffer(check_of(d), *out, bytes);
    if (status != PGD_OK) {
        d->next->memory->destroy(d->next, *out);
        *out = NULL;
    }
    return status;
}

static void memory_destroy(const pgd_device *d, pgd_buffer *buffer) {
    check_self *c = check_of(d);
    check_lock(c);
    const int32_t known = buffer == NULL || check_find(c, buffer, CHECK_BUFFER) != NULL;
    for (uint32_t i = 0; buffer != NULL && i < c->handles.cap; i++) {
        const check_handle *h = c->handles.values[i];
        if (h != NULL && h->memory == buffer) {
            (void)check_wrong(c, "memory.destroy: a living %s lies in the buffer %p",
                              check_kind_name(h->kind), (const void *)buffer);
        }
    }
    check_end(c, buffer, CHECK_BUFFER);
    check_unlock(c);
    if (known || !c->stop) {
        d->next->memory->destroy(d->next, buffer);
    }
}

static pgd_status memory_map(const pgd_device *d, pgd_buffer *buffer, void **out_ptr) {
    check_self *c = check_of(d);
    check_lock(c);
    const pgd_status status = check_alive(c, buffer, CHECK_BUFFER, "memory.map");
    check_unlock(c);
    PGD_TRY(status);
    return d->next->memory->map(d->next, buffer, out_ptr);
}

const pgd_memory_table *check_memory(void) {
    static const pgd_memory_table table = {.size = sizeof(table),
                                           .create = memory_create,
                                           .destroy = memory_destroy,
                                           .import = memory_import,
                                           .map = memory_map};
    return &table;
}

// ---- weights -----------------------------------------------------------------------------------

// The resident bytes of dst must hold what the plan says.
static pgd_status check_weight_place(const pgd_device *d, const pgd_weight_desc *desc,
                                     const pgd_range *dst, const char *where) {
    check_self *c = check_of(d);
    pgd_weight_plan plan = {.size = sizeof(plan)};
    PGD_TRY(d->next->weight->plan(d->next, desc, &plan));
    check_lock(c);
    pgd_status status = check_range(c, dst->buffer, dst->offset, dst->bytes, where);
    if (status == PGD_OK && dst->bytes < plan.bytes) {
        status = check_wrong(c, "%s: dst has %llu bytes, the plan says %llu", where,
                             (unsigned long long)dst->bytes, (unsigned long long)plan.bytes);
    }
    if (status == PGD_OK && plan.align > 1 && dst->offset % plan.align != 0) {
        status = check_wrong(c, "%s: dst is at %llu, the plan aligns to %llu", where,
                             (unsigned long long)dst->offset, (unsigned long long)plan.align);
    }
    check_unlock(c);
    return status;
}

static pgd_status add_weight(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                             pgd_queue *q, pgd_weight **w) {
    check_self *c = check_of(d);
    pgd_weight_desc local;
    check_lock(c);
    check_handle *h = make_handle(c, CHECK_WEIGHT);
    if (h != NULL) {
        h->weight = *PGD_ARGS(pgd_weight_desc, local, desc);
        h->memory = dst->buffer;
    }
    const pgd_status status = check_add(c, *w, h);
    check_queue *on = q != NULL && status == PGD_OK ? check_queue_of(c, q) : NULL;
    if (on != NULL) {
        check_work(on);
        check_used(c, *w, CHECK_WEIGHT, on);
        check_used(c, dst->buffer, CHECK_BUFFER, on);
    }
    check_unlock(c);
    if (status != PGD_OK) {
        d->next->weight->destroy(d->next, *w);
        *w = NULL;
    }
    return status;
}

static pgd_status weight_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                 const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    *out = NULL;
    PGD_TRY(check_weight_place(d, desc, dst, "weight.prepare"));
    PGD_TRY(d->next->weight->prepare(d->next, q, desc, dst, scratch, out));
    return add_weight(d, desc, dst, q, out);
}

static pgd_status weight_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                               const pgd_range *dst, pgd_weight **out) {
    *out = NULL;
    PGD_TRY(check_weight_place(d, desc, dst, "weight.adopt"));
    PGD_TRY(d->next->weight->adopt(d->next, desc, dst, out));
    return add_weight(d, desc, dst, NULL, out);
}

static void weight_destroy(const pgd_device *d, pgd_weight *w) {
    check_self *c = check_of(d);
    check_lock(c);
    const int32_t known = w == NULL || check_find(c, w, CHECK_WEIGHT) != NULL;
    check_end(c, w, CHECK_WEIGHT);
    check_unlock(c);
    if (known || !c->stop) {
        d->next->weight->destroy(d->next, w);
    }
}

const pgd_weight_table *check_weight(void) {
    static const pgd_weight_table table = {.size = sizeof(table),
                                           .prepare = weight_prepare,
                                           .adopt = weight_adopt,
                                           .destroy = weight_destroy};
    return &table;
}

// ---- caches ------------------------------------------------------------------------------------

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    check_self *c = check_of(d);
    pgd_kv_desc local;
    *out = NULL;
    const uint64_t need = plan->fixed_bytes + (uint64_t)n_blocks * plan->block_bytes;
    check_lock(c);
    pgd_status status = check_range(c, mem->buffer, mem->offset, mem->bytes, "kv.bind");
    if (status == PGD_OK && (n_blocks < 1 || mem->bytes < need)) {
        status = check_wrong(c, "kv.bind: %llu bytes for %d blocks, the plan says %llu",
                             (unsigned long long)mem->bytes, n_blocks, (unsigned long long)need);
    }
    check_unlock(c);
    PGD_TRY(status);
    PGD_TRY(d->next->kv->bind(d->next, desc, plan, mem, n_blocks, out));
    check_lock(c);
    check_handle *h = make_handle(c, CHECK_KV);
    if (h != NULL) {
        h->kv = *PGD_ARGS(pgd_kv_desc, local, desc);
        h->bytes = (uint64_t)n_blocks;
        h->memory = mem->buffer;
    }
    status = check_add(c, *out, h);
    check_unlock(c);
    if (status != PGD_OK) {
        d->next->kv->destroy(d->next, *out);
        *out = NULL;
    }
    return status;
}

static void kv_destroy(const pgd_device *d, pgd_kv *kv) {
    check_self *c = check_of(d);
    check_lock(c);
    const int32_t known = kv == NULL || check_find(c, kv, CHECK_KV) != NULL;
    check_end(c, kv, CHECK_KV);
    check_unlock(c);
    if (known || !c->stop) {
        d->next->kv->destroy(d->next, kv);
    }
}

static pgd_status kv_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_pair *pairs, uint32_t n) {
    check_self *c = check_of(d);
    check_lock(c);
    pgd_status status = check_alive(c, kv, CHECK_KV, "kv.copy_blocks");
    const check_handle *h = check_find(c, kv, CHECK_KV);
    for (uint32_t i = 0; i < n && h != NULL && status == PGD_OK; i++) {
        const int64_t blocks = (int64_t)h->bytes;
        if (pairs[i].from < 0 || pairs[i].from >= blocks || pairs[i].to < 0 ||
            pairs[i].to >= blocks) {
            status = check_wrong(c, "kv.copy_blocks: %d to %d of %lld blocks", pairs[i].from,
                                 pairs[i].to, (long long)blocks);
        }
    }
    check_queue *on = status == PGD_OK ? check_queue_of(c, q) : NULL;
    if (on != NULL) {
        check_work(on);
        check_used(c, kv, CHECK_KV, on);
    }
    check_unlock(c);
    PGD_TRY(status);
    return d->next->kv->copy_blocks(d->next, q, kv, pairs, n);
}

const pgd_kv_table *check_kv(void) {
    static const pgd_kv_table table = {.size = sizeof(table),
                                       .bind = kv_bind,
                                       .destroy = kv_destroy,
                                       .copy_blocks = kv_copy_blocks};
    return &table;
}
