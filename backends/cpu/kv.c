// The cache. K is kept turned, so that one vector holds one dim of neighbouring tokens; bf16 comes
// in pairs, two dims of K and two tokens of V, as dot products want them:
//
//   block: | layer 0 | layer 1 | ...
//   layer: | head 0: K, V | head 1: K, V | ...
//   K      bf16 [k_dim / 2][block_tokens][2]    f32, f16 [k_dim][block_tokens]
//   V      bf16 [block_tokens / 2][v_dim][2]    f32, f16 [block_tokens][v_dim]
//   I8     V [block_tokens][v_dim], K [block_tokens / 16][k_dim][16], or as V where 16 does not
//          divide block_tokens; behind each of them its scales, f32 [block_tokens]
//
// Halves are rounded up: an odd k_dim has a zero behind it. Block ids are the host's. attn's room
// belongs to the handle: tiles for each worker, and the results of tiles that several workers make
// for one row.
#include <math.h>
#include <string.h>

#include "cpu.h"

#define LAYOUT_VERSION UINT64_C(0x7067642d63707534) // raised with each change of the layout
#define CHUNK          256                          // elements turned at a time
#define INT8_PIECE     16                           // tokens of I8 whose K lie side by side

static uint64_t round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static pgd_status check_desc(const pgd_device *d, const pgd_kv_desc *a) {
    common_check c = {.rules = &cpu_rules};
    if (!common_check_kv(&c, a)) {
        return CPU_FAIL(d, c.code, "cache: %s", c.reason);
    }
    return PGD_OK;
}

// common_check_kv bounds each number, so that nothing here overflows.
static void layout(const pgd_kv_desc *a, pgd_kv *kv) {
    const uint64_t tokens = (uint64_t)(a->block_tokens == 0 ? 16 : a->block_tokens);
    const uint64_t heads = (uint64_t)a->heads;
    kv->desc = *a;
    kv->desc.size = sizeof(kv->desc);
    kv->desc.block_tokens = (int32_t)tokens;
    kv->k_pair = a->k_dtype == PGD_BF16;
    kv->v_pair = a->v_dtype == PGD_BF16;
    const uint64_t scales = a->scale_mode == PGD_KV_SCALE_NONE ? 0 : tokens * sizeof(float);
    kv->k_scales = round_up(tokens * (uint64_t)a->k_dim, sizeof(float));
    kv->v_scales = round_up(tokens * (uint64_t)a->v_dim, sizeof(float));
    kv->k_bytes = round_up(round_up((uint64_t)a->k_dim, 1 + (uint64_t)kv->k_pair) * tokens *
                                   pgd_dtype_bytes(a->k_dtype) +
                               (scales > 0 ? scales + sizeof(float) : 0),
                           CPU_ALIGN);
    kv->v_bytes = round_up(round_up(tokens, 1 + (uint64_t)kv->v_pair) * (uint64_t)a->v_dim *
                                   pgd_dtype_bytes(a->v_dtype) +
                               (scales > 0 ? scales + sizeof(float) : 0),
                           CPU_ALIGN);
    kv->layer_bytes = heads * (kv->k_bytes + kv->v_bytes);
    kv->block_bytes = (uint64_t)a->layers * kv->layer_bytes;
}

static pgd_status plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    pgd_kv_desc local;
    const pgd_kv_desc *a = PGD_ARGS(pgd_kv_desc, local, desc);
    pgd_kv_plan result = {
        .size = sizeof(result), .align = CPU_ALIGN, .fingerprint = LAYOUT_VERSION};
    pgd_kv kv;
    CPU_TAIL(d, pgd_kv_desc, desc);
    PGD_TRY(check_desc(d, a));
    layout(a, &kv);
    result.block_tokens = kv.desc.block_tokens;
    result.block_bytes = kv.block_bytes;
    PGD_OUT(out, result);
    return PGD_OK;
}

static pgd_status bind_memory(const pgd_device *d, const pgd_range *mem, int32_t n_blocks,
                              pgd_kv *kv) {
    void *base = NULL;
    uint64_t bytes = 0;
    if (n_blocks < 1 || __builtin_mul_overflow((uint64_t)n_blocks, kv->block_bytes, &bytes) ||
        bytes > mem->bytes) {
        return CPU_FAIL(d, PGD_INVALID, "%d cache blocks of %llu bytes in %llu bytes",
                        (int)n_blocks, (unsigned long long)kv->block_bytes,
                        (unsigned long long)mem->bytes);
    }
    PGD_TRY(cpu_range(d, "the cache", mem->buffer, mem->offset, bytes, true, &base));
    if ((uintptr_t)base % CPU_ALIGN != 0) {
        return CPU_FAIL(d, PGD_INVALID, "a cache at an address that is no multiple of %d",
                        CPU_ALIGN);
    }
    kv->base = base;
    kv->n_blocks = n_blocks;
    return PGD_OK;
}

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *p,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    pgd_kv_desc local;
    pgd_kv_desc a = *PGD_ARGS(pgd_kv_desc, local, desc);
    pgd_kv *kv = NULL;
    pgd_status code = PGD_OK;
    *out = NULL;
    CPU_TAIL(d, pgd_kv_desc, desc);
    if (p != NULL && p->block_tokens != 0) {
        a.block_tokens = p->block_tokens;
    }
    PGD_TRY(check_desc(d, &a));
    kv = d->host->alloc(d->host, sizeof(*kv), 0);
    if (kv == NULL) {
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a cache");
    }
    layout(&a, kv);
    code = bind_memory(d, mem, n_blocks, kv);
    if (code != PGD_OK) {
        d->host->free(d->host, kv);
        return code;
    }
    if (!cpu_attn_room_make(d->host, kv)) {
        d->host->free(d->host, kv);
        return CPU_FAIL(d, PGD_OUT_OF_MEMORY, "no memory for the tiles of attention");
    }
    *out = kv;
    return PGD_OK;
}

static void destroy(const pgd_device *d, pgd_kv *kv) {
    if (kv != NULL) {
        cpu_attn_room_free(d->host, kv);
        d->host->free(d->host, kv);
    }
}

// ---- addresses and rows ------------------------------------------------------------------------

unsigned char *cpu_kv_k(const pgd_kv *kv, int32_t layer, int64_t head, int64_t block) {
    return kv->base + (uint64_t)block * kv->block_bytes + (uint64_t)layer * kv->layer_bytes +
           (uint64_t)head * (kv->k_bytes + kv->v_bytes);
}

unsigned char *cpu_kv_v(const pgd_kv *kv, int32_t layer, int64_t head, int64_t block) {
    return cpu_kv_k(kv, layer, head, block) + kv->k_bytes;
}

// A row of I8: element d lies at q[d * step].
typedef struct int8_row {
    int8_t *q;
    int64_t step;
    unsigned char *scale;
} int8_row;

static int8_row int8_at(const pgd_kv *kv, int32_t layer, int32_t which, int64_t head,
                        int64_t slot) {
    const int64_t tokens = kv->desc.block_tokens;
    const int64_t token = slot % tokens;
    const int64_t dim = which == 0 ? kv->desc.k_dim : kv->desc.v_dim;
    unsigned char *p = which == 0 ? cpu_kv_k(kv, layer, head, slot / tokens)
                                  : cpu_kv_v(kv, layer, head, slot / tokens);
    int8_row r = {.q = (int8_t *)p + token * dim, .step = 1};
    if (which == 0 && tokens % INT8_PIECE == 0) {
        r.q = (int8_t *)p + token / INT8_PIECE * INT8_PIECE * dim + token % INT8_PIECE;
        r.step = INT8_PIECE;
    }
    r.scale = p + (which == 0 ? kv->k_scales : kv->v_scales) + (size_t)token * sizeof(float);
    return r;
}

const int8_t *cpu_kv_int8_rows(const pgd_kv *kv, int32_t layer, int32_t which, int64_t head,
                               int64_t slot, int64_t n, float *scales) {
    const int8_row r = int8_at(kv, layer, which, head, slot);
    memcpy(scales, r.scale, (size_t)n * sizeof(*scales));
    return r.q;
}

void cpu_kv_int8(const pgd_kv *kv, int32_t layer, int32_t which, int64_t head, int64_t slot,
                 int64_t d0, int64_t n, float *out) {
    const int8_row r = int8_at(kv, layer, which, head, slot);
    float scale = 0.0f;
    memcpy(&scale, r.scale, sizeof(scale));
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)r.q[(d0 + i) * r.step] * scale;
    }
}

// What is no number makes the whole row none: its scale says so.
static void store_int8(const pgd_kv *kv, int32_t layer, int32_t which, int64_t head, int64_t slot,
                       const float *row) {
    const int64_t dim = which == 0 ? kv->desc.k_dim : kv->desc.v_dim;
    const int8_row r = int8_at(kv, layer, which, head, slot);
    float most = 0.0f;
    float check = 0.0f;
    for (int64_t i = 0; i < dim; i++) {
        most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
        check += row[i] * 0.0f;
    }
    const float scale = check == 0.0f ? most / 127.0f : NAN;
    for (int64_t i = 0; i < dim; i++) {
        r.q[i * r.step] = scale > 0.0f ? (int8_t)rintf(row[i] / scale) : 0;
    }
    memcpy(r.scale, &scale, sizeof(scale));
}

// One head's row in the cache: dim d lies d / (pair + 1) steps and d % (pair + 1) elements
// behind p.
typedef struct kv_row {
    unsigned char *p;
    int64_t step;    // elements
    int64_t pair;    // 1: dims come in twos
    int64_t element; // bytes
    int32_t dtype;
} kv_row;

static kv_row row_at(const pgd_kv *kv, int32_t layer, int32_t which, int64_t head, int64_t slot) {
    const pgd_kv_desc *d = &kv->desc;
    const int64_t tokens = d->block_tokens;
    const int64_t block = slot / tokens;
    const int64_t token = slot % tokens;
    kv_row r = {.dtype = which == 0 ? d->k_dtype : d->v_dtype};
    r.element = pgd_dtype_bytes(r.dtype);
    if (which == 0) {
        r.pair = kv->k_pair;
        r.step = tokens * (1 + r.pair);
        r.p = cpu_kv_k(kv, layer, head, block) + token * (1 + r.pair) * r.element;
    } else if (kv->v_pair != 0) {
        r.step = 2;
        r.p = cpu_kv_v(kv, layer, head, block) + (token / 2 * d->v_dim * 2 + token % 2) * r.element;
    } else {
        r.step = 1;
        r.p = cpu_kv_v(kv, layer, head, block) + token * d->v_dim * r.element;
    }
    return r;
}

static unsigned char *dim_at(const kv_row *r, int64_t d) {
    return r->p + (r->pair != 0 ? d / 2 * r->step + d % 2 : d * r->step) * r->element;
}

static void store_range(const pgd_cpu_kernels *k, const kv_row *r, int64_t d0, int64_t n,
                        const float *from) {
    uint16_t half[CHUNK + 1];
    if (r->dtype == PGD_F32) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(dim_at(r, d0 + i), from + i, 4);
        }
        return;
    }
    (r->dtype == PGD_BF16 ? k->bf16_narrow : k->f16_narrow)(from, half, n);
    half[n] = 0; // the other one of an odd dim's pair
    for (int64_t i = 0; i < n + (r->pair & n); i++) {
        memcpy(dim_at(r, d0 + i), half + i, 2);
    }
}

void cpu_kv_store(const pgd_cpu_kernels *k, const pgd_kv *kv, int32_t layer, int32_t which,
                  int64_t head, int64_t slot, const float *row) {
    const int64_t dim = which == 0 ? kv->desc.k_dim : kv->desc.v_dim;
    const kv_row r = row_at(kv, layer, which, head, slot);
    if (r.dtype == PGD_I8) {
        store_int8(kv, layer, which, head, slot, row);
        return;
    }
    for (int64_t d0 = 0; d0 < dim; d0 += CHUNK) {
        store_range(k, &r, d0, cpu_min(CHUNK, dim - d0), row + d0);
    }
}

static void load_range(const pgd_cpu_kernels *k, const kv_row *r, int64_t d0, int64_t n,
                       float *out) {
    uint16_t half[CHUNK];
    if (r->dtype == PGD_F32) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(out + i, dim_at(r, d0 + i), 4);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(half + i, dim_at(r, d0 + i), 2);
    }
    (r->dtype == PGD_BF16 ? k->bf16_widen : k->f16_widen)(half, out, n);
}

// ---- blocks as a whole -------------------------------------------------------------------------

static pgd_status copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv, const pgd_pair *pairs,
                              uint32_t n) {
    PGD_TRY(cpu_not_recording(d, q, "copy_blocks"));
    common_check c = {.code = PGD_OK};
    if (!common_check_pairs(&c, pairs, n, kv->n_blocks)) {
        return CPU_FAIL(d, c.code, "%s", c.reason);
    }
    for (uint32_t i = 0; i < n; i++) {
        memmove(kv->base + (uint64_t)pairs[i].to * kv->block_bytes,
                kv->base + (uint64_t)pairs[i].from * kv->block_bytes, kv->block_bytes);
    }
    return PGD_OK;
}

// Checks an image and gives its address.
static pgd_status open_image(const pgd_device *d, const pgd_kv *kv, const pgd_kv_image *a,
                             bool write, unsigned char **out) {
    common_check c = {.code = PGD_OK};
    uint64_t bytes = 0;
    void *p = NULL;
    if (!common_check_image(&c, &kv->desc, kv->n_blocks, kv->block_bytes, a, &bytes)) {
        return CPU_FAIL(d, c.code, "%s", c.reason);
    }
    PGD_TRY(cpu_range(d, "a cache image", a->mem.buffer, a->mem.offset, bytes, write, &p));
    *out = p;
    return PGD_OK;
}

static void image_part(const pgd_cpu_kernels *k, int32_t dtype, bool read, unsigned char *image,
                       int64_t n, float *values) {
    if (dtype == PGD_F32) {
        memcpy(read ? (void *)image : (void *)values, read ? (void *)values : (void *)image,
               (size_t)n * sizeof(float));
    } else if (read) {
        (dtype == PGD_BF16 ? k->bf16_narrow : k->f16_narrow)(values, image, n);
    } else {
        (dtype == PGD_BF16 ? k->bf16_widen : k->f16_widen)(image, values, n);
    }
}

// One head's row between the cache and the image; read: cache to image.
static unsigned char *move_row(const pgd_cpu_kernels *k, const pgd_kv *kv, const pgd_kv_image *a,
                               bool read, int32_t layer, int32_t which, int64_t head, int64_t slot,
                               unsigned char *image) {
    const int64_t dim = which == 0 ? kv->desc.k_dim : kv->desc.v_dim;
    const kv_row r = row_at(kv, layer, which, head, slot);
    float values[CPU_HEAD_MOST];
    if (r.dtype == PGD_I8) { // a scale is that of a whole row
        if (read) {
            cpu_kv_int8(kv, layer, which, head, slot, 0, dim, values);
        }
        image_part(k, a->dtype, read, image, dim, values);
        if (!read) {
            store_int8(kv, layer, which, head, slot, values);
        }
        return image + dim * pgd_dtype_bytes(a->dtype);
    }
    for (int64_t d0 = 0; d0 < dim; d0 += CHUNK) {
        const int64_t n = cpu_min(CHUNK, dim - d0);
        if (read) {
            load_range(k, &r, d0, n, values);
        }
        image_part(k, a->dtype, read, image, n, values);
        if (!read) {
            store_range(k, &r, d0, n, values);
        }
        image += n * pgd_dtype_bytes(a->dtype);
    }
    return image;
}

static void move_canonical(const pgd_cpu_kernels *k, const pgd_kv *kv, const pgd_kv_image *a,
                           bool read, unsigned char *image) {
    const int64_t tokens = kv->desc.block_tokens;
    for (int32_t layer = 0; layer < kv->desc.layers; layer++) {
        for (int32_t which = 0; which < 2; which++) {
            for (int64_t t = 0; t < a->n_tokens; t++) {
                const int64_t slot = a->ids[t / tokens] * tokens + t % tokens;
                for (int64_t head = 0; head < kv->desc.heads; head++) {
                    image = move_row(k, kv, a, read, layer, which, head, slot, image);
                }
            }
        }
    }
}

static pgd_status move_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                              const pgd_kv_image *image, bool read) {
    pgd_kv_image local;
    const pgd_kv_image *a = PGD_ARGS(pgd_kv_image, local, image);
    unsigned char *p = NULL;
    CPU_TAIL(d, pgd_kv_image, image);
    PGD_TRY(cpu_not_recording(d, q, "read_blocks or write_blocks"));
    PGD_TRY(open_image(d, kv, a, read, &p));
    if (a->format == PGD_KV_CANONICAL) {
        move_canonical(cpu_self(d)->kernels, kv, a, read, p);
        return PGD_OK;
    }
    for (int32_t i = 0; i < a->n_ids; i++) {
        unsigned char *block = kv->base + (uint64_t)a->ids[i] * kv->block_bytes;
        unsigned char *at = p + (uint64_t)i * kv->block_bytes;
        memcpy(read ? at : block, read ? block : at, kv->block_bytes);
    }
    return PGD_OK;
}

static pgd_status read_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                              const pgd_kv_image *image) {
    return move_blocks(d, q, kv, image, true);
}

static pgd_status write_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                               const pgd_kv_image *image) {
    return move_blocks(d, q, kv, image, false);
}

const pgd_kv_table cpu_kv_table = {
    .size = sizeof(pgd_kv_table),
    .plan = plan,
    .bind = kv_bind,
    .destroy = destroy,
    .copy_blocks = copy_blocks,
    .read_blocks = read_blocks,
    .write_blocks = write_blocks,
};
