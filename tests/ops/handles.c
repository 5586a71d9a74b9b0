// The weight and the cache of a case.
#include "ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

// ---- weight ------------------------------------------------------------------------------------

// Room for a stored matrix of p and its numbers, row by row; behind INT8 the scales.
static void fill_part(ops_fixture *f, int32_t i, uint64_t row_bytes) {
    pgd_weight_part *p = &f->parts[i];
    const int32_t scheme = p->scheme;
    const uint64_t rows = (uint64_t)p->rows;
    const uint64_t scales_at = (rows * row_bytes + 3) & ~UINT64_C(3);
    const double size = 1 / sqrt((double)f->weight_desc.k);
    float *row = malloc(((size_t)p->cols + 1) * sizeof(*row));
    unsigned char *to = malloc(scales_at + rows * sizeof(float) + 1);
    int64_t r, j;
    f->part_rows[i] = to;
    if (row == NULL || to == NULL) {
        f->broken = 1;
        free(row);
        return;
    }
    p->data = (pgd_source){.ptr = to, .bytes = rows * row_bytes};
    for (r = 0; r < p->rows; r++, to += row_bytes) {
        for (j = 0; j < p->cols; j++) {
            double v = size * ops_normal(&f->rng);
            row[j] = (float)v;
            if (scheme == PGD_SCHEME_PLAIN) {
                pgd_ref_store(p->dtype, to, j, v);
            }
        }
        if (scheme == PGD_SCHEME_INT8) {
            ((float *)((unsigned char *)f->part_rows[i] + scales_at))[r] =
                pgd_ref_quantize_int8(row, p->cols, (int8_t *)to);
        } else if (scheme != PGD_SCHEME_PLAIN) {
            pgd_ref_quantize(scheme, row, p->cols, to);
        }
    }
    if (scheme == PGD_SCHEME_INT8) {
        p->scales = (pgd_source){.ptr = (unsigned char *)f->part_rows[i] + scales_at,
                                 .bytes = rows * sizeof(float)};
    }
    free(row);
}

// One stored matrix, larger than its slice on every side.
static void make_part(ops_fixture *f, int32_t i, int64_t rows) {
    const int32_t mixed = f->weight_desc.scheme == PGD_SCHEME_PARTS;
    pgd_weight_part *p = &f->parts[i];
    int64_t unit;
    p->scheme = mixed ? ops_scheme(&f->rng) : f->weight_desc.scheme;
    p->dtype = mixed && p->scheme == PGD_SCHEME_PLAIN ? PGD_F32 : f->weight_desc.dtype;
    unit = pgd_scheme_elements(p->scheme) > 0 ? pgd_scheme_elements(p->scheme) : 1;
    p->row_start = ops_between(&f->rng, 0, 2);
    p->row_count = rows;
    p->rows = p->row_start + rows + ops_between(&f->rng, 0, 2);
    p->col_start = ops_between(&f->rng, 0, 1) * (unit > 1 ? unit : 3);
    p->col_count = f->weight_desc.k;
    p->cols = p->col_start + p->col_count + ops_between(&f->rng, 0, 1) * (unit > 1 ? unit : 5);
    fill_part(f, i, pgd_ref_row_bytes(p->scheme, p->dtype, p->cols));
    if (!mixed) { // the desc says it
        p->scheme = p->dtype = 0;
    }
}

static pgd_status join(ops_fixture *f) {
    uint64_t bytes;
    void *joined;
    pgd_status status;
    PGD_TRY(pgd_ref_weight_bytes(&f->weight_desc, &bytes));
    joined = malloc(bytes + 1);
    if (joined == NULL) {
        return PGD_OUT_OF_MEMORY;
    }
    f->joined = joined;
    status = pgd_ref_weight_join(&f->weight_desc, joined);
    return status != PGD_OK
               ? status
               : pgd_ref_weight_view(&f->weight_desc, joined, f->ref_parts, &f->ref_weight);
}

static void make_weight(ops_fixture *f, int32_t n_parts) {
    int64_t left = f->weight_desc.n;
    int32_t i;
    f->weight_desc.n_parts = (uint32_t)n_parts;
    f->weight_desc.part_stride = sizeof(pgd_weight_part);
    f->weight_desc.parts = f->parts;
    f->weight_desc.name = "test.weight";
    for (i = 0; i < n_parts && !f->broken; i++) {
        int64_t rows = i == n_parts - 1 ? left : f->weight_desc.n / n_parts;
        make_part(f, i, rows);
        left -= rows;
    }
    if (f->broken || join(f) != PGD_OK) {
        ops_fail(f, "the reference cannot join the weight");
        f->broken = 1;
        return;
    }
    f->weight[OPS_HOST] = (pgd_weight *)&f->ref_weight;
}

void ops_weight(ops_fixture *f, uint32_t uses, int32_t dtype, int32_t act_dtype, int64_t n,
                int64_t k, int32_t n_parts, int64_t max_rows) {
    if (f->broken) {
        return;
    }
    f->weight_desc = (pgd_weight_desc){.size = sizeof(pgd_weight_desc),
                                       .uses = uses,
                                       .dtype = dtype,
                                       .act_dtype = act_dtype,
                                       .n = n,
                                       .k = k,
                                       .max_rows = max_rows > 0 ? max_rows : 1};
    make_weight(f, n_parts);
}

void ops_quantized(ops_fixture *f, uint32_t uses, int32_t scheme, int64_t n, int64_t k,
                   int32_t n_parts, int64_t max_rows) {
    if (f->broken) {
        return;
    }
    f->weight_desc = (pgd_weight_desc){.size = sizeof(pgd_weight_desc),
                                       .uses = uses,
                                       .scheme = scheme,
                                       .n = n,
                                       .k = k,
                                       .max_rows = max_rows > 0 ? max_rows : 1};
    make_weight(f, n_parts);
}

static pgd_status prepare_weight(ops_fixture *f) {
    pgd_weight_plan plan = {.size = sizeof(plan)};
    pgd_buffer_desc desc = {.size = sizeof(desc), .use = PGD_USE_WEIGHTS};
    pgd_range dst = {0}, scratch = {0};
    pgd_status code;
    PGD_TRY(f->d->weight->plan(f->d, &f->weight_desc, &plan));
    desc.bytes = plan.bytes > 0 ? plan.bytes : 1;
    desc.align = plan.align;
    PGD_TRY(f->d->memory->create(f->d, &desc, &f->weight_buffer));
    dst = (pgd_range){f->weight_buffer, 0, plan.bytes};
    if (plan.scratch > 0) {
        desc = (pgd_buffer_desc){.size = sizeof(desc), .bytes = plan.scratch};
        PGD_TRY(f->d->memory->create(f->d, &desc, &scratch.buffer));
        scratch.bytes = plan.scratch;
    }
    code =
        f->d->weight->prepare(f->d, f->queue, &f->weight_desc, &dst, &scratch, &f->weight[OPS_DEV]);
    ops_drain(f);
    f->d->memory->destroy(f->d, scratch.buffer);
    return code;
}

// ---- cache -------------------------------------------------------------------------------------

// Images of a cache of int8 are f32: its scales are no part of them.
static int32_t image_dtype(const ops_fixture *f) {
    return f->kv_desc.k_dtype == PGD_I8 ? PGD_F32 : f->kv_desc.k_dtype;
}

static uint64_t image_bytes(const ops_fixture *f) {
    const pgd_kv_desc *d = &f->kv_desc;
    return (uint64_t)d->layers * 2 * (uint64_t)f->n_blocks * (uint64_t)d->block_tokens *
           (uint64_t)d->heads * (uint64_t)d->k_dim * pgd_dtype_bytes(image_dtype(f));
}

int64_t ops_cache_slot(const ops_fixture *f, int32_t slot, int32_t j) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    const int32_t *table = ops_array(f, b->block_table[0]);
    int64_t block = table[slot * b->cap_blocks[0] + j / f->block_tokens];
    return block * f->block_tokens + j % f->block_tokens;
}

static void int8_row(ops_fixture *f, int32_t layer, int32_t which, int64_t slot, float *image,
                     int32_t to_image);

static void fill_int8(ops_fixture *f, int32_t layer, int32_t which, int64_t slot) {
    const int64_t n = (int64_t)f->kv_desc.heads * f->kv_desc.k_dim;
    float *row = malloc((size_t)n * sizeof(*row));
    for (int64_t i = 0; row != NULL && i < n; i++) {
        row[i] = (float)ops_normal(&f->rng);
    }
    if (row != NULL) {
        int8_row(f, layer, which, slot, row, 0);
    }
    free(row);
}

// Random keys and values of every sequence up to its kv_len.
static void fill_sequences(ops_fixture *f) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    const pgd_batch_head *head = ops_array(f, 0);
    const int32_t *len = ops_array(f, b->kv_len), *slot = ops_array(f, b->seq_slot);
    const int64_t n = (int64_t)f->kv_desc.heads * f->kv_desc.k_dim;
    int32_t s, layer, which, j;
    int64_t i;
    for (s = 0; s < head->n_seqs; s++) {
        for (j = 0; j < len[s]; j++) {
            const int64_t at = ops_cache_slot(f, slot[s], j);
            for (layer = 0; layer < f->kv_desc.layers; layer++) {
                for (which = 0; which < 2; which++) {
                    if (f->kv_desc.k_dtype == PGD_I8) {
                        fill_int8(f, layer, which, at);
                        continue;
                    }
                    unsigned char *row = pgd_ref_kv_row(&f->ref_kv, layer, which, at);
                    for (i = 0; i < n; i++) {
                        pgd_ref_store(f->kv_desc.k_dtype, row, i, ops_normal(&f->rng));
                    }
                }
            }
        }
    }
}

int32_t ops_cached(ops_fixture *f) {
    const int32_t dtype = ops_float(&f->rng);
    const int32_t int8 = ops_between(&f->rng, 0, 3) == 0;
    return int8 && (pgd_dev_info(f->dev)->kv_dtypes >> PGD_I8 & 1) != 0 ? PGD_I8 : dtype;
}

void ops_cache(ops_fixture *f, int32_t dtype, int32_t layers, int32_t heads, int32_t dim,
               int32_t window, int32_t loaded) {
    const pgd_batch *b = &f->batch[OPS_HOST];
    uint64_t i, n;
    if (f->broken) {
        return;
    }
    f->kv_desc = (pgd_kv_desc){.size = sizeof(pgd_kv_desc),
                               .layers = layers,
                               .heads = heads,
                               .k_dim = dim,
                               .v_dim = dim,
                               .k_dtype = dtype,
                               .v_dtype = dtype,
                               .scale_mode = dtype == PGD_I8 ? PGD_KV_SCALE_TOKEN_HEAD : 0,
                               .block_tokens = f->block_tokens,
                               .window = window};
    f->ref_kv = (pgd_ref_kv){.desc = f->kv_desc, .n_blocks = f->n_blocks};
    f->ref_kv.mem = calloc((size_t)f->n_blocks, pgd_ref_kv_block_bytes(&f->kv_desc));
    if (f->ref_kv.mem == NULL || b->mirror == NULL) {
        f->broken = 1;
        return;
    }
    f->kv[OPS_HOST] = (pgd_kv *)&f->ref_kv;
    f->kv_loaded = loaded;
    if (loaded) {
        n = dtype == PGD_I8 ? 0 : image_bytes(f) / pgd_dtype_bytes(dtype);
        for (i = 0; i < n; i++) {
            pgd_ref_store(dtype, f->ref_kv.mem, (int64_t)i, NAN);
        }
        fill_sequences(f);
    }
}

// A row of int8 as f32 and back.
static void int8_row(ops_fixture *f, int32_t layer, int32_t which, int64_t slot, float *image,
                     int32_t to_image) {
    const int64_t dim = f->kv_desc.k_dim;
    int8_t *at = (int8_t *)pgd_ref_kv_row(&f->ref_kv, layer, which, slot);
    unsigned char *scales = pgd_ref_kv_scales(&f->ref_kv, layer, which, slot);
    int64_t h, i;
    for (h = 0; h < f->kv_desc.heads; h++, at += dim, image += dim, scales += sizeof(float)) {
        float scale;
        if (!to_image) {
            scale = pgd_ref_quantize_int8(image, dim, at);
            memcpy(scales, &scale, sizeof(scale));
            continue;
        }
        memcpy(&scale, scales, sizeof(scale));
        for (i = 0; i < dim; i++) {
            image[i] = (float)at[i] * scale;
        }
    }
}

// Between the canonical image of all blocks and the reference's cache.
static void image_of(ops_fixture *f, unsigned char *image, int32_t to_image) {
    const pgd_kv_desc *d = &f->kv_desc;
    const uint64_t row = (uint64_t)d->heads * (uint64_t)d->k_dim * pgd_dtype_bytes(image_dtype(f));
    const int32_t tokens = f->n_blocks * d->block_tokens;
    int32_t layer, which, t;
    for (layer = 0; layer < d->layers; layer++) {
        for (which = 0; which < 2; which++) {
            for (t = 0; t < tokens; t++, image += row) {
                unsigned char *at = pgd_ref_kv_row(&f->ref_kv, layer, which, t);
                if (d->k_dtype == PGD_I8) {
                    int8_row(f, layer, which, t, (float *)(void *)image, to_image);
                } else {
                    memcpy(to_image ? image : at, to_image ? at : image, row);
                }
            }
        }
    }
}

// All blocks through read_blocks or write_blocks of the device.
static pgd_status move_blocks(ops_fixture *f, unsigned char *image, int32_t write) {
    const uint64_t bytes = image_bytes(f);
    int32_t ids[4096], i;
    pgd_kv_image desc = {.size = sizeof(desc),
                         .format = PGD_KV_CANONICAL,
                         .dtype = image_dtype(f),
                         .n_ids = f->n_blocks,
                         .n_tokens = f->n_blocks * f->kv_desc.block_tokens,
                         .ids = ids};
    pgd_buffer_desc room = {.size = sizeof(room), .bytes = bytes};
    pgd_status code;
    for (i = 0; i < f->n_blocks; i++) {
        ids[i] = i;
    }
    desc.mem.bytes = bytes;
    PGD_TRY(f->d->memory->create(f->d, &room, &desc.mem.buffer));
    if (write) {
        ops_upload(f, desc.mem.buffer, 0, image, bytes);
        code = f->d->kv->write_blocks(f->d, f->queue, f->kv[OPS_DEV], &desc);
        ops_drain(f);
    } else {
        code = f->d->kv->read_blocks(f->d, f->queue, f->kv[OPS_DEV], &desc);
        ops_download(f, image, desc.mem.buffer, 0, bytes);
    }
    f->d->memory->destroy(f->d, desc.mem.buffer);
    return code;
}

// An image of the reference's cache (or zeros) into the device's, or the device's into the
// reference's.
enum { LOAD = 0, CLEAR = 1, ADOPT = 2 };

static void move_cache(ops_fixture *f, int32_t what) {
    unsigned char *image;
    pgd_status code;
    if (f->broken) {
        return;
    }
    image = calloc(1, image_bytes(f));
    if (image == NULL) {
        f->broken = 1;
        return;
    }
    if (what == LOAD) {
        image_of(f, image, 1);
    }
    code = move_blocks(f, image, what != ADOPT);
    if (what == ADOPT) {
        image_of(f, image, 0);
    }
    free(image);
    if (code != PGD_OK) {
        ops_fail(f, "the cache cannot be moved: %s", pgd_fail_last());
        f->broken = 1;
    }
}

void ops_cache_load(ops_fixture *f) {
    move_cache(f, LOAD);
}

void ops_cache_clear(ops_fixture *f) {
    move_cache(f, CLEAR);
}

void ops_cache_adopt(ops_fixture *f) {
    move_cache(f, ADOPT);
}

void ops_compare_cache(ops_fixture *f, int32_t tolerance, int32_t narrowest) {
    const int64_t width = (int64_t)f->kv_desc.heads * f->kv_desc.k_dim;
    const size_t e = pgd_dtype_bytes(image_dtype(f));
    unsigned char *want, *got;
    if (f->broken) {
        return;
    }
    want = malloc(image_bytes(f));
    got = calloc(1, image_bytes(f));
    if (want != NULL && got != NULL) {
        image_of(f, want, 1);
        if (move_blocks(f, got, 0) != PGD_OK) {
            ops_fail(f, "read_blocks: %s", pgd_fail_last());
        } else {
            ops_compare_values(f, "cache", image_dtype(f), want, got, (int64_t)(image_bytes(f) / e),
                               width, tolerance, narrowest);
        }
    }
    free(want);
    free(got);
}

static pgd_status bind_cache(ops_fixture *f) {
    pgd_kv_plan plan = {.size = sizeof(plan)};
    pgd_buffer_desc desc = {.size = sizeof(desc), .use = PGD_USE_KV};
    pgd_range mem = {0};
    PGD_TRY(f->d->kv->plan(f->d, &f->kv_desc, &plan));
    desc.bytes = plan.fixed_bytes + plan.block_bytes * (uint64_t)f->n_blocks;
    desc.align = plan.align;
    PGD_TRY(f->d->memory->create(f->d, &desc, &f->kv_buffer));
    mem = (pgd_range){f->kv_buffer, 0, desc.bytes};
    return f->d->kv->bind(f->d, &f->kv_desc, &plan, &mem, f->n_blocks, &f->kv[OPS_DEV]);
}

void ops_handles_ready(ops_fixture *f) {
    if (!f->broken && f->weight[OPS_HOST] != NULL && prepare_weight(f) != PGD_OK) {
        ops_fail(f, "the weight cannot be prepared: %s", pgd_fail_last());
        f->broken = 1;
    }
    if (!f->broken && f->kv[OPS_HOST] != NULL && bind_cache(f) != PGD_OK) {
        ops_fail(f, "the cache cannot be bound: %s", pgd_fail_last());
        f->broken = 1;
    }
    if (!f->broken && f->kv_loaded) {
        ops_cache_load(f);
    }
}

void ops_handles_close(ops_fixture *f) {
    int32_t i;
    f->d->weight->destroy(f->d, f->weight[OPS_DEV]);
    f->d->kv->destroy(f->d, f->kv[OPS_DEV]);
    f->d->memory->destroy(f->d, f->weight_buffer);
    f->d->memory->destroy(f->d, f->kv_buffer);
    for (i = 0; i < 3; i++) {
        free(f->part_rows[i]);
    }
    free(f->joined);
    free(f->ref_kv.mem);
}
