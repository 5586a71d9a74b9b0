// Weights and caches of the null device: handles without contents. A weight takes next to no
// memory; a cache takes what a real one would, so that pools have real sizes (the pages are never
// written).
#include "null.h"

static pgd_status weight_plan(const pgd_device *d, const pgd_weight_desc *desc,
                              pgd_weight_plan *out) {
    pgd_weight_plan local = {.size = sizeof(local), .bytes = 64, .align = 64, .fingerprint = 1};
    (void)d;
    (void)desc;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status weight_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                               const pgd_range *dst, pgd_weight **out) {
    (void)dst;
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    if (*out == NULL) {
        return NULL_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a weight");
    }
    (*out)->n = desc->n;
    (*out)->k = desc->k;
    return PGD_OK;
}

static pgd_status weight_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                 const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    (void)q;
    (void)scratch;
    return weight_adopt(d, desc, dst, out);
}

static void weight_destroy(const pgd_device *d, pgd_weight *w) {
    d->host->free(d->host, w);
}

const pgd_weight_table *null_weight(void) {
    static const pgd_weight_table table = {
        .size = sizeof(table),
        .plan = weight_plan,
        .prepare = weight_prepare,
        .adopt = weight_adopt,
        .destroy = weight_destroy,
    };
    return &table;
}

static pgd_status kv_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    uint64_t token = (uint64_t)desc->layers * (uint64_t)desc->heads *
                     ((uint64_t)desc->k_dim * pgd_dtype_bytes(desc->k_dtype) +
                      (uint64_t)desc->v_dim * pgd_dtype_bytes(desc->v_dtype));
    pgd_kv_plan local = {
        .size = sizeof(local),
        .block_tokens = desc->block_tokens,
        .block_bytes = token * (uint64_t)desc->block_tokens,
        .align = 64,
        .fingerprint = 1,
    };
    (void)d;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    (void)desc;
    (void)plan;
    (void)mem;
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    if (*out == NULL) {
        return NULL_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a cache");
    }
    (*out)->n_blocks = n_blocks;
    return PGD_OK;
}

static void kv_destroy(const pgd_device *d, pgd_kv *kv) {
    d->host->free(d->host, kv);
}

static pgd_status kv_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_pair *pairs, uint32_t n) {
    (void)q;
    for (uint32_t i = 0; i < n; i++) {
        if (pairs[i].from < 0 || pairs[i].from >= kv->n_blocks || pairs[i].to < 0 ||
            pairs[i].to >= kv->n_blocks) {
            return NULL_FAIL(d, PGD_OUT_OF_RANGE, "blocks %d and %d of a cache of %d",
                             pairs[i].from, pairs[i].to, kv->n_blocks);
        }
    }
    return PGD_OK;
}

static pgd_status kv_image(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                           const pgd_kv_image *image) {
    (void)d;
    (void)q;
    (void)kv;
    (void)image;
    return PGD_OK;
}

const pgd_kv_table *null_kv(void) {
    static const pgd_kv_table table = {
        .size = sizeof(table),
        .plan = kv_plan,
        .bind = kv_bind,
        .destroy = kv_destroy,
        .copy_blocks = kv_copy_blocks,
        .read_blocks = kv_image,
        .write_blocks = kv_image,
    };
    return &table;
}
