// Checks of what moves bytes: blocks of a cache, their images, copies, fills.
#include "common.h"

static bool check_block(common_check *c, int32_t id, int32_t n_blocks) {
    return (id >= 0 && id < n_blocks) ||
           common_refuse(c, PGD_INVALID, "cache block %d of %d", (int)id, (int)n_blocks);
}

bool common_check_pairs(common_check *c, const pgd_pair *pairs, uint32_t n, int32_t n_blocks) {
    for (uint32_t i = 0; i < n; i++) {
        if (!check_block(c, pairs[i].from, n_blocks) || !check_block(c, pairs[i].to, n_blocks)) {
            return false;
        }
    }
    return true;
}

bool common_check_image(common_check *c, const pgd_kv_desc *kv, int32_t n_blocks,
                        uint64_t block_bytes, const pgd_kv_image *a, uint64_t *out_bytes) {
    bool fits = true;
    *out_bytes = 0;
    if (a->n_ids < 0 || (a->n_ids > 0 && a->ids == NULL)) {
        return common_refuse(c, PGD_INVALID, "a cache image of %d blocks", (int)a->n_ids);
    }
    for (int32_t i = 0; i < a->n_ids; i++) {
        if (!check_block(c, a->ids[i], n_blocks)) {
            return false;
        }
    }
    if (a->format == PGD_KV_NATIVE) {
        fits = !__builtin_mul_overflow((uint64_t)a->n_ids, block_bytes, out_bytes);
    } else if (a->format != PGD_KV_CANONICAL) {
        return common_refuse(c, PGD_UNSUPPORTED, "a cache image of format %d", (int)a->format);
    } else if (a->n_tokens < 0 || a->n_tokens > (int64_t)a->n_ids * kv->block_tokens ||
               (a->dtype != PGD_F32 && a->dtype != PGD_BF16 && a->dtype != PGD_F16)) {
        return common_refuse(c, PGD_INVALID, "a cache image of %d tokens of %s in %d blocks",
                             (int)a->n_tokens, pgd_dtype_name(a->dtype), (int)a->n_ids);
    } else {
        const uint64_t token = (uint64_t)kv->layers * (uint64_t)kv->heads *
                               (uint64_t)(kv->k_dim + kv->v_dim) * pgd_dtype_bytes(a->dtype);
        fits = !__builtin_mul_overflow((uint64_t)a->n_tokens, token, out_bytes);
    }
    return (fits && a->mem.bytes >= *out_bytes) ||
           common_refuse(c, PGD_INVALID, "a cache image of %llu bytes in %llu",
                         (unsigned long long)*out_bytes, (unsigned long long)a->mem.bytes);
}

static bool span(const pgd_copy *c, uint64_t pitch, uint64_t *out) {
    uint64_t rest = 0;
    *out = c->bytes;
    return c->rows <= 1 ||
           (pitch >= c->bytes && !__builtin_mul_overflow(c->rows - 1, pitch, &rest) &&
            !__builtin_add_overflow(rest, c->bytes, out));
}

bool common_check_copy(common_check *c, const pgd_copy *copy, uint64_t *out_dst,
                       uint64_t *out_src) {
    return (span(copy, copy->dst_pitch, out_dst) && span(copy, copy->src_pitch, out_src)) ||
           common_refuse(c, PGD_INVALID, "a copy of %llu rows of %llu bytes, pitches %llu, %llu",
                         (unsigned long long)copy->rows, (unsigned long long)copy->bytes,
                         (unsigned long long)copy->dst_pitch, (unsigned long long)copy->src_pitch);
}

bool common_check_fill(common_check *c, const pgd_range *range) {
    return (range->offset % 4 == 0 && range->bytes % 4 == 0) ||
           common_refuse(c, PGD_INVALID, "a fill of %llu bytes at %llu; both are multiples of 4",
                         (unsigned long long)range->bytes, (unsigned long long)range->offset);
}
