// Devices for the tests of this room: the minimal plugin linked in, and variants of it with some
// slots filled. Included first: it chooses the static form of the plugin macros, and it uses a
// field of pgd_host, fail, whose name is a macro of cmocka.
//
//   ODD_MINIMAL   the fourteen mandatory functions
//   ODD_VISIBLE   and memory.map: the CPU sees its memory
//   ODD_HALF      and weight and kv tables whose ops are missing, but unpack, read_blocks and
//                 write_blocks are there; their layouts cannot be read by the reference
#ifndef PGD_DEV_ODD_TEST_H
#define PGD_DEV_ODD_TEST_H

#define PGD_STATIC_PLUGIN
#include "../../tests/abi/minimal_plugin.c"

#include "ref/ref.h"

enum { ODD_MINIMAL = 0, ODD_VISIBLE = 1, ODD_HALF = 2 };

static int32_t odd_variant;

static pgd_status odd_info(void *backend, uint32_t i, pgd_device_info *out) {
    PGD_TRY(device_info(backend, i, out));
    out->caps = odd_variant == ODD_VISIBLE ? PGD_CAP_HOST_VISIBLE : 0;
    return PGD_OK;
}

static pgd_status odd_map(const pgd_device *d, pgd_buffer *b, void **out_ptr) {
    (void)d;
    *out_ptr = b->mem;
    return PGD_OK;
}

// ---- a weight family without ops: rows are kept last row first, each number with the sign flipped

struct pgd_weight {
    int64_t n;
    int64_t k;
    float *rows;
};

static pgd_status odd_weight_plan(const pgd_device *d, const pgd_weight_desc *desc,
                                  pgd_weight_plan *out) {
    pgd_weight_plan local = {.size = sizeof(local), .bytes = 64, .align = 64};
    (void)d;
    (void)desc;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status odd_weight_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                     const pgd_range *dst, const pgd_range *scratch,
                                     pgd_weight **out) {
    int64_t n = desc->n;
    int64_t k = desc->k;
    float *joined = calloc((size_t)(n * k), sizeof(float));
    pgd_weight *w = calloc(1, sizeof(*w));
    (void)q;
    (void)dst;
    (void)scratch;
    if (joined == NULL || w == NULL || desc->dtype != PGD_F32) {
        return FAIL(d, PGD_INTERNAL, "odd weight");
    }
    PGD_TRY(pgd_ref_weight_join(desc, joined));
    *w = (pgd_weight){.n = n, .k = k, .rows = calloc((size_t)(n * k), sizeof(float))};
    for (int64_t row = 0; row < n; row++) {
        for (int64_t i = 0; i < k; i++) {
            w->rows[(n - 1 - row) * k + i] = -joined[row * k + i];
        }
    }
    free(joined);
    *out = w;
    return PGD_OK;
}

static pgd_status odd_weight_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                                   const pgd_range *dst, pgd_weight **out) {
    (void)desc;
    (void)dst;
    *out = NULL;
    return FAIL(d, PGD_UNSUPPORTED, "odd weights are not adopted");
}

static pgd_status odd_weight_unpack(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                                    const pgd_tensor *out) {
    float *to = (float *)(uintptr_t)out->offset;
    (void)d;
    (void)q;
    for (int64_t i = 0; i < w->k; i++) {
        to[i] = -w->rows[(w->n - 1 - row) * w->k + i];
    }
    return PGD_OK;
}

static void odd_weight_destroy(const pgd_device *d, pgd_weight *w) {
    (void)d;
    if (w != NULL) {
        free(w->rows);
        free(w);
    }
}

// ---- a kv family without ops: a reference cache behind a handle that is none -------------------

struct pgd_kv {
    uint64_t mark;
    pgd_ref_kv ref;
};

static pgd_status odd_kv_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    pgd_kv_plan local = {
        .size = sizeof(local),
        .block_tokens = desc->block_tokens,
        .block_bytes = pgd_ref_kv_block_bytes(desc),
        .align = 64,
    };
    (void)d;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status odd_kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                              const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    (void)d;
    (void)plan;
    *out = calloc(1, sizeof(**out));
    (*out)->mark = UINT64_C(0xfeedfeedfeedfeed);
    (*out)->ref = (pgd_ref_kv){.desc = *desc, .n_blocks = n_blocks};
    (*out)->ref.mem = mem->buffer->mem + mem->offset;
    return PGD_OK;
}

static void odd_kv_destroy(const pgd_device *d, pgd_kv *kv) {
    (void)d;
    free(kv);
}

static pgd_status odd_kv_copy(const pgd_device *d, pgd_queue *q, pgd_kv *kv, const pgd_pair *pairs,
                              uint32_t n) {
    uint64_t bytes = pgd_ref_kv_block_bytes(&kv->ref.desc);
    (void)d;
    (void)q;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(kv->ref.mem + (uint64_t)pairs[i].to * bytes,
               kv->ref.mem + (uint64_t)pairs[i].from * bytes, bytes);
    }
    return PGD_OK;
}

// Canonical f32 images in host memory only: what the mirror asks for.
static pgd_status odd_kv_image(pgd_kv *kv, const pgd_kv_image *image, int32_t out) {
    const pgd_kv_desc *desc = &kv->ref.desc;
    float *at = (float *)(uintptr_t)image->mem.offset;
    for (int32_t layer = 0; layer < desc->layers; layer++) {
        for (int32_t which = 0; which < 2; which++) {
            int32_t n = desc->heads * (which == 0 ? desc->k_dim : desc->v_dim);
            int32_t dtype = which == 0 ? desc->k_dtype : desc->v_dtype;
            for (int32_t t = 0; t < image->n_tokens; t++, at += n) {
                int64_t slot = (int64_t)image->ids[t / desc->block_tokens] * desc->block_tokens +
                               t % desc->block_tokens;
                unsigned char *row = pgd_ref_kv_row(&kv->ref, layer, which, slot);
                for (int32_t i = 0; i < n; i++) {
                    if (out) {
                        at[i] = (float)pgd_ref_load(dtype, row, i);
                    } else {
                        pgd_ref_store(dtype, row, i, at[i]);
                    }
                }
            }
        }
    }
    return PGD_OK;
}

static pgd_status odd_kv_read(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                              const pgd_kv_image *image) {
    (void)d;
    (void)q;
    return odd_kv_image(kv, image, 1);
}

static pgd_status odd_kv_write(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                               const pgd_kv_image *image) {
    (void)d;
    (void)q;
    return odd_kv_image(kv, image, 0);
}

// ---- entry -------------------------------------------------------------------------------------

static pgd_status odd_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static pgd_device_table device;
    static pgd_memory_table memory;
    static const pgd_weight_table weight = {
        .size = sizeof(weight),
        .plan = odd_weight_plan,
        .prepare = odd_weight_prepare,
        .adopt = odd_weight_adopt,
        .unpack = odd_weight_unpack,
        .destroy = odd_weight_destroy,
    };
    static const pgd_kv_table kv = {
        .size = sizeof(kv),
        .plan = odd_kv_plan,
        .bind = odd_kv_bind,
        .destroy = odd_kv_destroy,
        .copy_blocks = odd_kv_copy,
        .read_blocks = odd_kv_read,
        .write_blocks = odd_kv_write,
    };
    PGD_TRY(plugin_open(host, out_backend, out));
    device = *out->device;
    device.info = odd_info;
    out->device = &device;
    memory = *out->memory;
    memory.map = odd_variant == ODD_VISIBLE ? odd_map : NULL;
    out->memory = &memory;
    out->weight = odd_variant == ODD_HALF ? &weight : NULL;
    out->kv = odd_variant == ODD_HALF ? &kv : NULL;
    return PGD_OK;
}

static const pgd_plugin *odd_plugin(int32_t variant) {
    static pgd_plugin plugin;
    plugin = *pgd_plugin_v0_minimal(PGD_ABI_MINOR);
    plugin.open = odd_open;
    odd_variant = variant;
    return &plugin;
}

#endif
