// Blocks of the cache to images and back, when everything enqueued before has run.
//
//   native     [id][block bytes]
//   canonical  [layer][k, v][token][head][dim]
#include "good.h"

#include <string.h>

typedef struct work {
    const pgd_ref_kv *kv;
    const pgd_kv_image *image;
    unsigned char *mem;
    int32_t write;
    int32_t reserved0;
} work;

static void move_native(const work *w) {
    const uint64_t bytes = pgd_ref_kv_block_bytes(&w->kv->desc);
    for (int32_t i = 0; i < w->image->n_ids; i++) {
        unsigned char *block = w->kv->mem + (uint64_t)w->image->ids[i] * bytes;
        unsigned char *at = w->mem + (uint64_t)i * bytes;
        memcpy(w->write ? block : at, w->write ? at : block, bytes);
    }
}

// One token's heads; gives the element of the image behind it.
static int64_t move_token(const work *w, int64_t at, int32_t layer, int32_t which, int32_t token) {
    const pgd_kv_desc *d = &w->kv->desc;
    const int64_t width = (int64_t)d->heads * (which == 0 ? d->k_dim : d->v_dim);
    const int32_t dtype = which == 0 ? d->k_dtype : d->v_dtype;
    const int64_t block = w->image->ids[token / d->block_tokens];
    const int64_t slot = block * d->block_tokens + token % d->block_tokens;
    unsigned char *row = pgd_ref_kv_row(w->kv, layer, which, slot);
    for (int64_t i = 0; i < width; i++) {
        if (w->write) {
            pgd_ref_store(dtype, row, i, pgd_ref_load(w->image->dtype, w->mem, at + i));
        } else {
            pgd_ref_store(w->image->dtype, w->mem, at + i, pgd_ref_load(dtype, row, i));
        }
    }
    return at + width;
}

static pgd_status move(pgd_queue *q, pgd_kv *kv, const pgd_kv_image *image, int32_t write) {
    const work w = {.kv = &kv->ref,
                    .image = image,
                    .mem = good_at(image->mem.buffer, image->mem.offset),
                    .write = write};
    int64_t at = 0;
    good_drain(q);
    if (image->format == PGD_KV_NATIVE) {
        move_native(&w);
        return PGD_OK;
    }
    for (int32_t layer = 0; layer < kv->ref.desc.layers; layer++) {
        for (int32_t which = 0; which < 2; which++) {
            for (int32_t token = 0; token < image->n_tokens; token++) {
                at = move_token(&w, at, layer, which, token);
            }
        }
    }
    return PGD_OK;
}

pgd_status good_read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                            const pgd_kv_image *image) {
    (void)d;
    return move(q, kv, image, 0);
}

pgd_status good_write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                             const pgd_kv_image *image) {
    (void)d;
    return move(q, kv, image, 1);
}
