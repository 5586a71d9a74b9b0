// Weights, row-major [n, k] as they come, and the cache:
//
//   [block][layer][k: block_tokens, heads, k_dim | v: block_tokens, heads, v_dim]
#include "naive.h"

#include <stdio.h>

// ---- weights -----------------------------------------------------------------------------------
static pgd_status weight_plan(const pgd_device *d, const pgd_weight_desc *desc,
                              pgd_weight_plan *out) {
    const int32_t known =
        desc->dtype == PGD_F32 || desc->dtype == PGD_BF16 || desc->dtype == PGD_F16;
    const int32_t act = desc->act_dtype;
    KNOWN(d, pgd_weight_desc, desc);
    if (desc->scheme != PGD_SCHEME_PLAIN || !known || desc->n_experts != 0 ||
        (act != 0 && act != PGD_F32 && act != PGD_BF16)) {
        return FAIL(d, PGD_UNSUPPORTED,
                    "naive: weight %s of scheme %d and dtype %s; plain f32, bf16 and f16 are there",
                    desc->name == NULL ? "?" : desc->name, desc->scheme,
                    pgd_dtype_name(desc->dtype));
    }
    pgd_weight_plan local = {
        .size = sizeof(local),
        .bytes = (uint64_t)desc->n * (uint64_t)desc->k * pgd_dtype_bytes(desc->dtype),
        .align = 64,
        .fingerprint = UINT64_C(0x6e61697665000001),
    };
    PGD_OUT(out, local);
    return PGD_OK;
}

// The resident bytes lie in dst already, or will.
static pgd_status weight_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                               const pgd_range *dst, pgd_weight **out) {
    *out = NULL;
    KNOWN(d, pgd_weight_desc, desc);
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    if (*out == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "naive: no memory for a weight");
    }
    **out = (pgd_weight){.dtype = desc->dtype,
                         .act_dtype = desc->act_dtype,
                         .n = desc->n,
                         .k = desc->k,
                         .rows = address(dst->buffer, dst->offset)};
    return PGD_OK;
}

static void weight_destroy(const pgd_device *d, pgd_weight *w) {
    d->host->free(d->host, w);
}

// `bytes` from byte `from` of a source.
static pgd_status read_source(const pgd_device *d, const pgd_source *s, uint64_t from,
                              unsigned char *to, uint64_t bytes) {
    if (from + bytes > s->bytes) {
        return FAIL(d, PGD_INVALID, "naive: a slice leaves its tensor");
    }
    if (s->ptr != NULL || s->buffer != NULL) {
        const unsigned char *base =
            s->ptr != NULL ? (const unsigned char *)s->ptr : address(s->buffer, s->offset);
        memcpy(to, base + from, (size_t)bytes);
        return PGD_OK;
    }
    FILE *f = fopen(s->file, "rb");
    int32_t good = f != NULL && fseek(f, (long)(s->offset + from), SEEK_SET) == 0 &&
                   fread(to, 1, (size_t)bytes, f) == bytes;
    if (f != NULL) {
        fclose(f);
    }
    return good ? PGD_OK : FAIL(d, PGD_DATA_LOSS, "naive: %s cannot be read", s->file);
}

static pgd_status weight_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                 const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    const uint64_t e = pgd_dtype_bytes(desc->dtype);
    unsigned char *to = address(dst->buffer, dst->offset);
    pgd_status status = PGD_OK;
    (void)q;
    (void)scratch;
    *out = NULL;
    KNOWN(d, pgd_weight_desc, desc);
    for (uint32_t i = 0; i < desc->n_parts; i++) {
        pgd_weight_part p = {0}; // rows lie part_stride apart: a host's may be longer or shorter
        const uint32_t stride = desc->part_stride;
        memcpy(&p, (const unsigned char *)desc->parts + (size_t)i * stride,
               stride < sizeof(p) ? stride : sizeof(p));
        for (int64_t r = 0; r < p.row_count && status == PGD_OK; r++) {
            const uint64_t from = (uint64_t)((p.row_start + r) * p.cols + p.col_start) * e;
            status = read_source(d, &p.data, from, to, (uint64_t)desc->k * e);
            to += (uint64_t)desc->k * e;
        }
    }
    return status == PGD_OK ? weight_adopt(d, desc, dst, out) : status;
}

const pgd_weight_table naive_weight_table = {
    .size = sizeof(naive_weight_table),
    .plan = weight_plan,
    .prepare = weight_prepare,
    .adopt = weight_adopt,
    .destroy = weight_destroy,
};

// ---- the cache ---------------------------------------------------------------------------------
static uint64_t part_bytes(const pgd_kv_desc *d, int32_t which) {
    return (uint64_t)d->block_tokens * (uint64_t)d->heads *
           (uint64_t)(which == 0 ? d->k_dim : d->v_dim) *
           pgd_dtype_bytes(which == 0 ? d->k_dtype : d->v_dtype);
}

uint64_t naive_block_bytes(const pgd_kv_desc *d) {
    return (uint64_t)d->layers * (part_bytes(d, 0) + part_bytes(d, 1));
}

unsigned char *naive_cache_row(const pgd_kv *kv, int32_t layer, int32_t which, int64_t slot) {
    const pgd_kv_desc *d = &kv->desc;
    const uint64_t tokens = (uint64_t)d->block_tokens;
    const uint64_t block = (uint64_t)slot / tokens * naive_block_bytes(d);
    const uint64_t in_layer = which == 0 ? 0 : part_bytes(d, 0);
    return kv->mem + block + (uint64_t)layer * (part_bytes(d, 0) + part_bytes(d, 1)) + in_layer +
           (uint64_t)slot % tokens * (part_bytes(d, which) / tokens);
}

static int32_t cache_fits(int32_t dtype) {
    return dtype == PGD_F32 || dtype == PGD_BF16;
}

static pgd_status kv_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    KNOWN(d, pgd_kv_desc, desc);
    if (desc->kind != PGD_KV_ATTENTION || desc->scale_mode != 0 || !cache_fits(desc->k_dtype) ||
        !cache_fits(desc->v_dtype)) {
        return FAIL(d, PGD_UNSUPPORTED, "naive: a cache of %s and %s; f32 and bf16 are there",
                    pgd_dtype_name(desc->k_dtype), pgd_dtype_name(desc->v_dtype));
    }
    pgd_kv_plan local = {
        .size = sizeof(local),
        .block_tokens = desc->block_tokens,
        .block_bytes = naive_block_bytes(desc),
        .align = 64,
        .fingerprint = UINT64_C(0x6e61697665000002),
    };
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    (void)n_blocks;
    *out = NULL;
    KNOWN(d, pgd_kv_desc, desc);
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    if (*out == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "naive: no memory for a cache");
    }
    **out = (pgd_kv){.desc = *desc, .mem = address(mem->buffer, mem->offset)};
    (*out)->desc.block_tokens = plan->block_tokens;
    return PGD_OK;
}

static void kv_destroy(const pgd_device *d, pgd_kv *kv) {
    d->host->free(d->host, kv);
}

static pgd_status kv_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_pair *pairs, uint32_t n) {
    const uint64_t bytes = naive_block_bytes(&kv->desc);
    (void)d;
    (void)q;
    for (uint32_t i = 0; i < n; i++) {
        memmove(kv->mem + (uint64_t)pairs[i].to * bytes, kv->mem + (uint64_t)pairs[i].from * bytes,
                (size_t)bytes);
    }
    return PGD_OK;
}

// ---- images of blocks --------------------------------------------------------------------------

// One element row of an image: all heads of a token, between the cache and canonical bytes.
static void move_row(const pgd_kv *kv, const pgd_kv_image *image, unsigned char *cached,
                     unsigned char *bytes, int32_t which, int32_t out) {
    const int32_t dtype = which == 0 ? kv->desc.k_dtype : kv->desc.v_dtype;
    const int64_t n = (int64_t)kv->desc.heads * (which == 0 ? kv->desc.k_dim : kv->desc.v_dim);
    for (int64_t i = 0; i < n; i++) {
        if (out) {
            store(image->dtype, bytes, i, load(dtype, cached, i));
        } else {
            store(dtype, cached, i, load(image->dtype, bytes, i));
        }
    }
}

// [layer][k, v][token][head][dim], so that caches of other block sizes can take it.
static void move_canonical(const pgd_kv *kv, const pgd_kv_image *image, int32_t out) {
    const pgd_kv_desc *d = &kv->desc;
    unsigned char *bytes = address(image->mem.buffer, image->mem.offset);
    for (int32_t layer = 0; layer < d->layers; layer++) {
        for (int32_t which = 0; which < 2; which++) {
            const int64_t dim = which == 0 ? d->k_dim : d->v_dim;
            for (int32_t t = 0; t < image->n_tokens; t++) {
                const int64_t block = image->ids[t / d->block_tokens];
                const int64_t slot = block * d->block_tokens + t % d->block_tokens;
                move_row(kv, image, naive_cache_row(kv, layer, which, slot), bytes, which, out);
                bytes += d->heads * dim * (int64_t)pgd_dtype_bytes(image->dtype);
            }
        }
    }
}

static pgd_status move_blocks(const pgd_device *d, const pgd_kv *kv, const pgd_kv_image *image,
                              int32_t out) {
    const uint64_t bytes = naive_block_bytes(&kv->desc);
    KNOWN(d, pgd_kv_image, image);
    unsigned char *all = address(image->mem.buffer, image->mem.offset);
    if (image->format == PGD_KV_CANONICAL) {
        if (!cache_fits(image->dtype)) {
            return FAIL(d, PGD_UNSUPPORTED, "naive: an image of %s", pgd_dtype_name(image->dtype));
        }
        move_canonical(kv, image, out);
        return PGD_OK;
    }
    for (int32_t i = 0; i < image->n_ids; i++) {
        unsigned char *block = kv->mem + (uint64_t)image->ids[i] * bytes;
        unsigned char *place = all + (uint64_t)i * bytes;
        memcpy(out ? place : block, out ? block : place, (size_t)bytes);
    }
    return PGD_OK;
}

static pgd_status kv_read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_kv_image *image) {
    (void)q;
    return move_blocks(d, kv, image, 1);
}

static pgd_status kv_write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                  const pgd_kv_image *image) {
    (void)q;
    return move_blocks(d, kv, image, 0);
}

const pgd_kv_table naive_kv_table = {
    .size = sizeof(naive_kv_table),
    .plan = kv_plan,
    .bind = kv_bind,
    .destroy = kv_destroy,
    .copy_blocks = kv_copy_blocks,
    .read_blocks = kv_read_blocks,
    .write_blocks = kv_write_blocks,
};
