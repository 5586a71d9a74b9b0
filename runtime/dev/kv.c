// The cache in host memory, for devices whose kv family has a hole.
//
// Blocks are laid out as the reference kernels read them (kernels/ref/ref.h). Where the device's
// memory has host addresses the blocks lie in the range they are bound to, else in memory of the
// handle's own; the plan asks for the same bytes either way, so that the number of blocks stays
// within bounds. Everything here runs on the host at the time of the call, after the queue has
// drained.
#include "dev/inner.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

typedef struct host_kv {
    pgd_ref_kv ref; // first: what the kernels read
    unsigned char *own;
} host_kv;

static pgd_status host_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    (void)d;
    if (desc->kind != PGD_KV_ATTENTION || desc->block_tokens <= 0 || !pgd_ref_kv_is_known(desc)) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "a cache of kind %d, %s keys, %s values and scale mode %d cannot be kept "
                        "on the host",
                        desc->kind, pgd_dtype_name(desc->k_dtype), pgd_dtype_name(desc->v_dtype),
                        desc->scale_mode);
    }
    pgd_kv_plan local = {
        .size = sizeof(local),
        .block_tokens = desc->block_tokens,
        .block_bytes = pgd_ref_kv_block_bytes(desc),
        .align = 64,
        .fingerprint = UINT64_C(0x5047442d4b562d31), // blocks of the reference
    };
    PGD_OUT(out, local);
    return PGD_OK;
}

static void host_destroy(const pgd_device *d, pgd_kv *kv) {
    host_kv *own = (host_kv *)kv;
    (void)d;
    if (own != NULL) {
        pgd_mem_free(own->own);
        pgd_mem_free(own);
    }
}

static pgd_status host_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                            const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    uint64_t bytes = 0;
    *out = NULL;
    if (n_blocks <= 0 || !pgd_size_mul(plan->block_bytes, (uint64_t)n_blocks, &bytes) ||
        bytes > SIZE_MAX / 2) {
        return pgd_fail(PGD_INVALID, "a cache cannot have %d blocks", n_blocks);
    }
    host_kv *kv = pgd_mem_alloc(1, sizeof(*kv));
    if (kv == NULL) {
        return PGD_MEM_FAIL("a cache", sizeof(*kv));
    }
    kv->ref.desc = *desc;
    kv->ref.desc.block_tokens = plan->block_tokens;
    kv->ref.n_blocks = n_blocks;
    if ((pgd_dev_info((const pgd_dev *)d)->caps & PGD_CAP_HOST_VISIBLE) != 0) {
        kv->ref.mem = pgd_dev_address(d, mem->buffer, mem->offset);
    }
    if (kv->ref.mem == NULL) {
        kv->own = pgd_mem_alloc((size_t)bytes, 1);
        kv->ref.mem = kv->own;
    }
    if (kv->ref.mem == NULL) {
        host_destroy(d, (pgd_kv *)kv);
        return PGD_MEM_FAIL("a cache that stays on the host", bytes);
    }
    *out = (pgd_kv *)kv;
    return PGD_OK;
}

static pgd_status check_id(const pgd_ref_kv *kv, int32_t id) {
    if (id < 0 || id >= kv->n_blocks) {
        return pgd_fail(PGD_OUT_OF_RANGE, "block %d of a cache of %d blocks", id, kv->n_blocks);
    }
    return PGD_OK;
}

static pgd_status host_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                   const pgd_pair *pairs, uint32_t n) {
    const pgd_ref_kv *ref = &((const host_kv *)kv)->ref;
    uint64_t bytes = pgd_ref_kv_block_bytes(&ref->desc);
    PGD_TRY(pgd_dev_drain(d, q));
    for (uint32_t i = 0; i < n; i++) {
        PGD_TRY(check_id(ref, pairs[i].from));
        PGD_TRY(check_id(ref, pairs[i].to));
        memmove(ref->mem + (uint64_t)pairs[i].to * bytes,
                ref->mem + (uint64_t)pairs[i].from * bytes, (size_t)bytes);
    }
    return PGD_OK;
}

// ---- images ------------------------------------------------------------------------------------

uint64_t pgd_dev_kv_image_bytes(const pgd_ref_kv *kv, const pgd_kv_image *image) {
    const pgd_kv_desc *desc = &kv->desc;
    if (image->format == PGD_KV_NATIVE) {
        return (uint64_t)image->n_ids * pgd_ref_kv_block_bytes(desc);
    }
    return (uint64_t)desc->layers * (uint64_t)image->n_tokens * (uint64_t)desc->heads *
           (uint64_t)(desc->k_dim + desc->v_dim) * pgd_dtype_bytes(image->dtype);
}

// A head of a cache of int8, whose images are f32. Into the cache its scale is made from its
// largest element, so one that was read and comes back may differ in the last place.
static void convert_head(int8_t *q, unsigned char *scale_at, float *image, int64_t dim,
                         int32_t out) {
    float scale = 0;
    if (out == 0) {
        scale = pgd_ref_quantize_int8(image, dim, q);
        memcpy(scale_at, &scale, sizeof(scale));
        return;
    }
    memcpy(&scale, scale_at, sizeof(scale));
    for (int64_t i = 0; i < dim; i++) {
        image[i] = (float)q[i] * scale;
    }
}

static void convert_row(const pgd_ref_kv *kv, const pgd_kv_image *image, int32_t layer,
                        int32_t which, int32_t token, unsigned char *bytes, int32_t out) {
    const pgd_kv_desc *desc = &kv->desc;
    int32_t id = image->ids[token / desc->block_tokens];
    int64_t slot = (int64_t)id * desc->block_tokens + token % desc->block_tokens;
    unsigned char *row = pgd_ref_kv_row(kv, layer, which, slot);
    int32_t row_dtype = which == 0 ? desc->k_dtype : desc->v_dtype;
    int64_t dim = which == 0 ? desc->k_dim : desc->v_dim;
    for (int64_t h = 0; desc->scale_mode != PGD_KV_SCALE_NONE && h < desc->heads; h++) {
        convert_head((int8_t *)row + h * dim,
                     pgd_ref_kv_scales(kv, layer, which, slot) + (uint64_t)h * sizeof(float),
                     (float *)(void *)bytes + h * dim, dim, out);
    }
    for (int64_t i = 0; desc->scale_mode == PGD_KV_SCALE_NONE && i < desc->heads * dim; i++) {
        if (out) {
            pgd_ref_store(image->dtype, bytes, i, pgd_ref_load(row_dtype, row, i));
        } else {
            pgd_ref_store(row_dtype, row, i, pgd_ref_load(image->dtype, bytes, i));
        }
    }
}

pgd_status pgd_dev_kv_convert(const pgd_ref_kv *kv, const pgd_kv_image *image, unsigned char *bytes,
                              int32_t out) {
    const pgd_kv_desc *desc = &kv->desc;
    uint64_t item = pgd_dtype_bytes(image->dtype);
    if ((desc->scale_mode != PGD_KV_SCALE_NONE && image->dtype != PGD_F32) ||
        image->dtype == PGD_I8) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "a cache of %s with scale mode %d as an image of %s; those of int8 caches "
                        "are f32",
                        pgd_dtype_name(desc->k_dtype), desc->scale_mode,
                        pgd_dtype_name(image->dtype));
    }
    if ((uintptr_t)bytes % sizeof(float) != 0 && desc->scale_mode != PGD_KV_SCALE_NONE) {
        return pgd_fail(PGD_INVALID, "an image of f32 at an address that is no multiple of 4");
    }
    if (item == 0 || image->n_tokens > image->n_ids * desc->block_tokens) {
        return pgd_fail(PGD_INVALID, "an image of %d tokens of %s does not fit %d blocks",
                        image->n_tokens, pgd_dtype_name(image->dtype), image->n_ids);
    }
    for (int32_t layer = 0; layer < desc->layers; layer++) {
        for (int32_t which = 0; which < 2; which++) {
            int32_t dim = which == 0 ? desc->k_dim : desc->v_dim;
            for (int32_t token = 0; token < image->n_tokens; token++) {
                convert_row(kv, image, layer, which, token, bytes, out);
                bytes += (uint64_t)desc->heads * (uint64_t)dim * item;
            }
        }
    }
    return PGD_OK;
}

static pgd_status move_image(const pgd_ref_kv *kv, const pgd_kv_image *image, unsigned char *bytes,
                             int32_t out) {
    uint64_t block = pgd_ref_kv_block_bytes(&kv->desc);
    if (image->format == PGD_KV_CANONICAL) {
        return pgd_dev_kv_convert(kv, image, bytes, out);
    }
    for (int32_t i = 0; i < image->n_ids; i++) {
        unsigned char *at = kv->mem + (uint64_t)image->ids[i] * block;
        memcpy(out ? bytes + (uint64_t)i * block : at, out ? at : bytes + (uint64_t)i * block,
               (size_t)block);
    }
    return PGD_OK;
}

static pgd_status check_image(const pgd_ref_kv *kv, const pgd_kv_image *image) {
    for (int32_t i = 0; i < image->n_ids; i++) {
        PGD_TRY(check_id(kv, image->ids[i]));
    }
    if (image->mem.bytes < pgd_dev_kv_image_bytes(kv, image)) {
        return pgd_fail(PGD_INVALID, "an image of %d blocks needs %llu bytes, the range has %llu",
                        image->n_ids, (unsigned long long)pgd_dev_kv_image_bytes(kv, image),
                        (unsigned long long)image->mem.bytes);
    }
    return PGD_OK;
}

// Image memory is used in place where it has a host address, else through a copy.
static pgd_status host_image(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                             const pgd_kv_image *image, int32_t out) {
    const pgd_ref_kv *ref = &((const host_kv *)kv)->ref;
    PGD_TRY(check_image(ref, image));
    uint64_t bytes = pgd_dev_kv_image_bytes(ref, image);
    PGD_TRY(pgd_dev_drain(d, q));
    unsigned char *at = pgd_dev_address(d, image->mem.buffer, image->mem.offset);
    if (at != NULL) {
        return move_image(ref, image, at, out);
    }
    unsigned char *stage = pgd_mem_alloc((size_t)bytes, 1);
    if (stage == NULL) {
        return PGD_MEM_FAIL("an image of a cache", bytes);
    }
    pgd_copy copy = {.bytes = bytes};
    copy.dst = out ? image->mem.buffer : NULL;
    copy.dst_offset = out ? image->mem.offset : (uint64_t)(uintptr_t)stage;
    copy.src = out ? NULL : image->mem.buffer;
    copy.src_offset = out ? (uint64_t)(uintptr_t)stage : image->mem.offset;
    pgd_status code = out ? move_image(ref, image, stage, 1) : d->queue->copy(d, q, &copy, 1);
    if (code == PGD_OK) {
        code = out ? d->queue->copy(d, q, &copy, 1) : pgd_dev_drain(d, q);
    }
    if (code == PGD_OK) {
        code = out ? pgd_dev_drain(d, q) : move_image(ref, image, stage, 0);
    }
    pgd_mem_free(stage);
    return code;
}

static pgd_status host_read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                   const pgd_kv_image *image) {
    return host_image(d, q, kv, image, 1);
}

static pgd_status host_write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                    const pgd_kv_image *image) {
    return host_image(d, q, kv, image, 0);
}

void pgd_dev_host_kv(pgd_kv_table *out) {
    *out = (pgd_kv_table){
        .size = sizeof(*out),
        .plan = host_plan,
        .bind = host_bind,
        .destroy = host_destroy,
        .copy_blocks = host_copy_blocks,
        .read_blocks = host_read_blocks,
        .write_blocks = host_write_blocks,
    };
}
