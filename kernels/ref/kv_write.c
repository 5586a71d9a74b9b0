// kv_write: this step's keys and values into their cache slots (PagedAttention, SOSP 2023).
//
//   [block][layer][k: block_tokens, heads, k_dim | v: block_tokens, heads, v_dim]
//
// With PGD_KV_SCALE_TOKEN_HEAD the scales of k, [block_tokens, heads] f32, lie behind k, those of v
// behind v. A head's scale is its largest magnitude / 127 and its elements are x / scale to the
// nearest, ties to even, both in f32; a head of zeros has scale 0.
#include "ref/common.h"

#include <math.h>
#include <string.h>

// Bytes of the elements of one layer of one block, k (which 0) or v (which 1).
static uint64_t element_bytes(const pgd_kv_desc *d, int32_t which) {
    return (uint64_t)d->block_tokens * (uint64_t)d->heads *
           (uint64_t)(which == 0 ? d->k_dim : d->v_dim) *
           pgd_dtype_bytes(which == 0 ? d->k_dtype : d->v_dtype);
}

// The same with the scales.
static uint64_t part_bytes(const pgd_kv_desc *d, int32_t which) {
    return element_bytes(d, which) +
           (d->scale_mode == PGD_KV_SCALE_NONE
                ? 0
                : (uint64_t)d->block_tokens * (uint64_t)d->heads * sizeof(float));
}

int pgd_ref_kv_is_known(const pgd_kv_desc *d) {
    const uint32_t known = d->scale_mode == PGD_KV_SCALE_NONE         ? PGD_REF_FLOATS
                           : d->scale_mode == PGD_KV_SCALE_TOKEN_HEAD ? 1u << PGD_I8
                                                                      : 0;
    return d->k_dtype > 0 && d->k_dtype < 32 && d->v_dtype > 0 && d->v_dtype < 32 &&
           (known >> d->k_dtype & 1u) != 0 && (known >> d->v_dtype & 1u) != 0;
}

uint64_t pgd_ref_kv_block_bytes(const pgd_kv_desc *d) {
    const int32_t limit = 1 << 20; // of each number: the product then fits in 64 bits or is refused
    uint64_t layer;
    if (d->layers < 1 || d->heads < 1 || d->k_dim < 1 || d->v_dim < 1 || d->block_tokens < 1 ||
        d->layers > limit || d->heads > limit || d->k_dim > limit || d->v_dim > limit ||
        d->block_tokens > limit || (uint64_t)d->heads * (uint64_t)d->block_tokens > limit) {
        return 0;
    }
    layer = part_bytes(d, 0) + part_bytes(d, 1);
    return layer > UINT64_MAX / (uint64_t)d->layers ? 0 : layer * (uint64_t)d->layers;
}

// The k or v part of the block of a slot; *token: the slot's place in it.
static unsigned char *part_of(const pgd_ref_kv *kv, int32_t layer, int32_t which, int64_t slot,
                              uint64_t *token) {
    const pgd_kv_desc *d = &kv->desc;
    const uint64_t k_bytes = part_bytes(d, 0), v_bytes = part_bytes(d, 1);
    const uint64_t block = (uint64_t)slot / (uint64_t)d->block_tokens;
    *token = (uint64_t)slot % (uint64_t)d->block_tokens;
    return kv->mem + (block * (uint64_t)d->layers + (uint64_t)layer) * (k_bytes + v_bytes) +
           (which == 0 ? 0 : k_bytes);
}

unsigned char *pgd_ref_kv_row(const pgd_ref_kv *kv, int32_t layer, int32_t which, int64_t slot) {
    uint64_t token;
    unsigned char *part = part_of(kv, layer, which, slot, &token);
    return part + token * (element_bytes(&kv->desc, which) / (uint64_t)kv->desc.block_tokens);
}

unsigned char *pgd_ref_kv_scales(const pgd_ref_kv *kv, int32_t layer, int32_t which, int64_t slot) {
    uint64_t token;
    unsigned char *part = part_of(kv, layer, which, slot, &token);
    return part + element_bytes(&kv->desc, which) +
           token * (uint64_t)kv->desc.heads * sizeof(float);
}

static pgd_status check(const pgd_exec *x, const pgd_kv_write_args *a, int64_t *out_rows) {
    const pgd_ref_kv *kv = (const pgd_ref_kv *)a->kv;
    pgd_ref_want want = {"kv_write k", PGD_REF_FLOATS, 3, 0, {0}};
    const int32_t *slots;
    int64_t t;
    PGD_TRY(pgd_ref_check_kv(x, kv, a->batch, a->layer, a->group));
    PGD_TRY(pgd_ref_live(x, a->batch, a->rows, a->k.shape[0], out_rows));
    want.rows = *out_rows;
    want.dims[1] = kv->desc.heads;
    want.dims[2] = kv->desc.k_dim;
    PGD_TRY(pgd_ref_check_tensor(x, &a->k, &want));
    want.name = "kv_write v";
    want.dims[2] = kv->desc.v_dim;
    PGD_TRY(pgd_ref_check_tensor(x, &a->v, &want));
    slots = pgd_ref_array(a->batch, a->batch->slots[a->group]);
    if (slots == NULL || *out_rows > a->batch->cap_tokens) {
        return PGD_REF_FAIL(x, PGD_INVALID, "kv_write: %lld rows, the batch holds %d slots",
                            (long long)*out_rows, (int)a->batch->cap_tokens);
    }
    for (t = 0; t < *out_rows; t++) {
        if (slots[t] < 0 || slots[t] / kv->desc.block_tokens >= kv->n_blocks) {
            return PGD_REF_FAIL(x, PGD_INVALID, "kv_write: slot %d of %d blocks", (int)slots[t],
                                (int)kv->n_blocks);
        }
    }
    return PGD_OK;
}

pgd_status pgd_ref_check_kv_write(const pgd_exec *x, const pgd_kv_write_args *args) {
    pgd_kv_write_args local;
    int64_t rows;
    PGD_REF_TAIL(x, pgd_kv_write_args, args);
    return check(x, PGD_ARGS(pgd_kv_write_args, local, args), &rows);
}

// One head as int8; gives its scale.
static float quantize_head(int32_t dtype, const void *row, int64_t dim, unsigned char *to) {
    double most = 0, v;
    float scale;
    int64_t i;
    for (i = 0; i < dim; i++) {
        v = fabs(pgd_ref_load(dtype, row, i));
        most = v > most ? v : most;
    }
    scale = (float)most / 127;
    for (i = 0; i < dim; i++) {
        float q = scale == 0 ? 0 : rintf((float)pgd_ref_load(dtype, row, i) / scale);
        to[i] = (unsigned char)(int8_t)(q >= 127 ? 127 : !(q > -127) ? -127 : q);
    }
    return scale;
}

static void write_row(const pgd_kv_write_args *a, int32_t which, int64_t t, int64_t slot) {
    const pgd_ref_kv *kv = (const pgd_ref_kv *)a->kv;
    const pgd_tensor *from = which == 0 ? &a->k : &a->v;
    const int32_t dtype = which == 0 ? kv->desc.k_dtype : kv->desc.v_dtype;
    unsigned char *to = pgd_ref_kv_row(kv, a->layer, which, slot);
    const int64_t dim = from->shape[2];
    int64_t head, i;
    for (head = 0; head < from->shape[1]; head++) {
        const void *row = pgd_ref_at(from, t, head, 0);
        if (dtype == PGD_I8) {
            float scale = quantize_head(from->dtype, row, dim, to + head * dim);
            memcpy(pgd_ref_kv_scales(kv, a->layer, which, slot) + head * (int64_t)sizeof(scale),
                   &scale, sizeof(scale));
            continue;
        }
        for (i = 0; i < dim; i++) {
            pgd_ref_store(dtype, to, head * dim + i, pgd_ref_load(from->dtype, row, i));
        }
    }
}

pgd_status pgd_ref_kv_write(const pgd_exec *x, const pgd_kv_write_args *args) {
    pgd_kv_write_args local;
    const pgd_kv_write_args *a = PGD_ARGS(pgd_kv_write_args, local, args);
    const int32_t *slots;
    int64_t rows, t;
    PGD_REF_TAIL(x, pgd_kv_write_args, args);
    PGD_TRY(check(x, a, &rows));
    slots = pgd_ref_array(a->batch, a->batch->slots[a->group]);
    for (t = 0; t < rows; t++) {
        write_row(a, 0, t, slots[t]);
        write_row(a, 1, t, slots[t]);
    }
    return PGD_OK;
}
