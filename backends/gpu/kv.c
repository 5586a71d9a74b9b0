// The cache. Neighbouring tokens lie beside each other for K, neighbouring dims for V:
//
//   block: | layer 0 | layer 1 | ...
//   layer: | K of head 0: [ceil(k_dim / 8)][tokens][8] | ... | V of head 0: [tokens][v_dim] | ... |
//
// so that the items of a group read whole lines: in scores an item is a token and takes 8 dims at a
// time, in sums an item is a dim.
#include <string.h>

#include "gpu.h"

#define LAYOUT_VERSION UINT64_C(0x7067642d67707532) // raised with each change of the layout

static uint64_t round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static pgd_status check_desc(const pgd_device *d, const pgd_kv_desc *a) {
    common_check c = {.rules = &gpu_rules};
    if (!common_check_kv(&c, a)) {
        return GPU_FAIL(d, c.code, "cache: %s", c.reason);
    }
    return PGD_OK;
}

// common_check_kv bounds each number, so that nothing here overflows.
static void layout(const pgd_kv_desc *a, pgd_kv *kv) {
    const uint64_t tokens = (uint64_t)(a->block_tokens == 0 ? 16 : a->block_tokens);
    const uint64_t units = ((uint64_t)a->k_dim + 7) / 8;
    const uint64_t heads = (uint64_t)a->heads;
    const uint64_t k_bytes = heads * units * 8 * tokens * pgd_dtype_bytes(a->k_dtype);
    const uint64_t v_bytes = heads * (uint64_t)a->v_dim * tokens * pgd_dtype_bytes(a->v_dtype);
    kv->desc = *a;
    kv->desc.size = sizeof(kv->desc);
    kv->desc.block_tokens = (int32_t)tokens;
    kv->layer_bytes = round_up(k_bytes, GPU_ALIGN) + round_up(v_bytes, GPU_ALIGN);
    kv->cache = (k_cache){.block_bytes = (int64_t)((uint64_t)a->layers * kv->layer_bytes),
                          .v_at = (int64_t)round_up(k_bytes, GPU_ALIGN),
                          .tokens = (int32_t)tokens,
                          .heads = a->heads,
                          .k_dim = a->k_dim,
                          .v_dim = a->v_dim,
                          .k_units = (int32_t)units,
                          .k_dtype = a->k_dtype,
                          .v_dtype = a->v_dtype};
}

static pgd_status plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    pgd_kv_desc local;
    const pgd_kv_desc *a = PGD_ARGS(pgd_kv_desc, local, desc);
    pgd_kv_plan result = {
        .size = sizeof(result), .align = GPU_ALIGN, .fingerprint = LAYOUT_VERSION};
    pgd_kv kv = {0};
    GPU_TAIL(d, pgd_kv_desc, desc);
    PGD_TRY(check_desc(d, a));
    layout(a, &kv);
    result.block_tokens = kv.desc.block_tokens;
    result.block_bytes = (uint64_t)kv.cache.block_bytes;
    PGD_OUT(out, result);
    return PGD_OK;
}

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *p,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    pgd_kv_desc local;
    pgd_kv_desc a = *PGD_ARGS(pgd_kv_desc, local, desc);
    pgd_kv *kv = NULL;
    uint64_t bytes = 0;
    *out = NULL;
    GPU_TAIL(d, pgd_kv_desc, desc);
    if (p != NULL && p->block_tokens != 0) {
        a.block_tokens = p->block_tokens;
    }
    PGD_TRY(check_desc(d, &a));
    kv = d->host->alloc(d->host, sizeof(*kv), 0);
    if (kv == NULL) {
        return GPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a cache");
    }
    layout(&a, kv);
    kv->buffer = mem->buffer;
    kv->cache.at = (int64_t)mem->offset;
    kv->cache.n_blocks = n_blocks;
    pgd_status code = PGD_OK;
    if (n_blocks < 1 || mem->offset % GPU_ALIGN != 0 ||
        __builtin_mul_overflow((uint64_t)n_blocks, (uint64_t)kv->cache.block_bytes, &bytes) ||
        bytes > mem->bytes) {
        code = GPU_FAIL(d, PGD_INVALID, "%d cache blocks of %llu bytes in %llu at %llu",
                        (int)n_blocks, (unsigned long long)kv->cache.block_bytes,
                        (unsigned long long)mem->bytes, (unsigned long long)mem->offset);
    } else {
        code = gpu_range(d, "the cache", mem->buffer, mem->offset, bytes);
    }
    if (code != PGD_OK) {
        d->host->free(d->host, kv);
        return code;
    }
    *out = kv;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_kv *kv) {
    d->host->free(d->host, kv);
}

// ---- blocks as a whole -------------------------------------------------------------------------

static uint64_t block_at(const pgd_kv *kv, int32_t id) {
    return (uint64_t)kv->cache.at + (uint64_t)id * (uint64_t)kv->cache.block_bytes;
}

static pgd_status copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv, const pgd_pair *pairs,
                              uint32_t n) {
    PGD_TRY(gpu_not_recording(d, q, "copy_blocks"));
    common_check c = {.code = PGD_OK};
    if (!common_check_pairs(&c, pairs, n, kv->cache.n_blocks)) {
        return GPU_FAIL(d, c.code, "%s", c.reason);
    }
    for (uint32_t i = 0; i < n; i++) {
        const pgd_copy copy = {.dst = kv->buffer,
                               .dst_offset = block_at(kv, pairs[i].to),
                               .src = kv->buffer,
                               .src_offset = block_at(kv, pairs[i].from),
                               .bytes = (uint64_t)kv->cache.block_bytes};
        if (pairs[i].from != pairs[i].to) {
            PGD_TRY(gpu_copy_now(d, q, &copy, 1));
        }
    }
    return PGD_OK;
}

static pgd_status move_native(const pgd_device *d, pgd_queue *q, const pgd_kv *kv,
                              const pgd_kv_image *a, bool read) {
    for (int32_t i = 0; i < a->n_ids; i++) {
        const uint64_t at = a->mem.offset + (uint64_t)i * (uint64_t)kv->cache.block_bytes;
        const pgd_copy c = {.dst = read ? a->mem.buffer : kv->buffer,
                            .dst_offset = read ? at : block_at(kv, a->ids[i]),
                            .src = read ? kv->buffer : a->mem.buffer,
                            .src_offset = read ? block_at(kv, a->ids[i]) : at,
                            .bytes = (uint64_t)kv->cache.block_bytes};
        PGD_TRY(gpu_copy_now(d, q, &c, 1));
    }
    return PGD_OK;
}

// Block by block between the cache and an image in memory of the device.
static pgd_status move_canonical(const pgd_device *d, pgd_queue *q, const pgd_kv *kv,
                                 const pgd_kv_image *a, const pgd_range *image, bool read) {
    const int32_t tokens = kv->cache.tokens;
    for (int32_t i = 0; i < a->n_ids && i * tokens < a->n_tokens; i++) {
        const int32_t left = a->n_tokens - i * tokens;
        const k_image_params p = {.cache = kv->cache,
                                  .image_at = (int64_t)image->offset,
                                  .n_tokens = a->n_tokens,
                                  .first = (int64_t)i * tokens,
                                  .layer_bytes = (int64_t)kv->layer_bytes,
                                  .block = a->ids[i],
                                  .n = left < tokens ? left : tokens,
                                  .dtype = a->dtype,
                                  .read = read};
        gpu_launch l = {
            .kernel = PGD_PORTABLE_image,
            .groups = {(uint32_t)p.n, (uint32_t)kv->cache.heads, (uint32_t)kv->desc.layers}};
        l.memories[1] = kv->buffer->memory;
        l.memories[2] = image->buffer->memory;
        memcpy(l.params, &p, sizeof(p));
        PGD_TRY(gpu_of(d)->driver->launch(d->host, q->queue, &l));
    }
    return PGD_OK;
}

// An image in host memory goes through a buffer that lives for this call.
static pgd_status move_staged(const pgd_device *d, pgd_queue *q, const pgd_kv *kv,
                              const pgd_kv_image *a, uint64_t bytes, bool read) {
    const pgd_buffer_desc desc = {.size = sizeof(desc), .bytes = bytes};
    pgd_range image = {.bytes = bytes};
    PGD_TRY(gpu_memory_table.create(d, &desc, &image.buffer));
    const pgd_copy c = {.dst = read ? NULL : image.buffer,
                        .dst_offset = read ? a->mem.offset : 0,
                        .src = read ? image.buffer : NULL,
                        .src_offset = read ? 0 : a->mem.offset,
                        .bytes = bytes};
    pgd_status code = read ? PGD_OK : gpu_copy_now(d, q, &c, 1);
    code = code == PGD_OK ? move_canonical(d, q, kv, a, &image, read) : code;
    code = code == PGD_OK && read ? gpu_copy_now(d, q, &c, 1) : code;
    pgd_status drained = gpu_drain(d, q);
    gpu_memory_table.destroy(d, image.buffer);
    return code == PGD_OK ? drained : code;
}

static pgd_status move_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                              const pgd_kv_image *image, bool read) {
    pgd_kv_image local;
    const pgd_kv_image *a = PGD_ARGS(pgd_kv_image, local, image);
    uint64_t bytes = 0;
    GPU_TAIL(d, pgd_kv_image, image);
    PGD_TRY(gpu_not_recording(d, q, "read_blocks or write_blocks"));
    common_check c = {.code = PGD_OK};
    if (!common_check_image(&c, &kv->desc, kv->cache.n_blocks, (uint64_t)kv->cache.block_bytes, a,
                            &bytes)) {
        return GPU_FAIL(d, c.code, "%s", c.reason);
    }
    if (a->format == PGD_KV_NATIVE) {
        return move_native(d, q, kv, a, read);
    }
    if (bytes == 0) {
        return PGD_OK;
    }
    if (a->mem.buffer == NULL) {
        return move_staged(d, q, kv, a, bytes, read);
    }
    PGD_TRY(gpu_range(d, "a cache image", a->mem.buffer, a->mem.offset, bytes));
    return move_canonical(d, q, kv, a, &a->mem, read);
}

static pgd_status read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                              const pgd_kv_image *image) {
    return move_blocks(d, q, kv, image, true);
}

static pgd_status write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                               const pgd_kv_image *image) {
    return move_blocks(d, q, kv, image, false);
}

const pgd_kv_table gpu_kv_table = {
    .size = sizeof(pgd_kv_table),
    .plan = plan,
    .bind = kv_bind,
    .destroy = destroy,
    .copy_blocks = copy_blocks,
    .read_blocks = read_blocks,
    .write_blocks = write_blocks,
};
