// Native handles that the reference kernels read too: the exception to "a family is whole or host".
//
// A plugin may leave embed or gemm empty if it can unpack rows of a weight, and kv_write or attn if
// it can read and write blocks in canonical form. Then the handles stay native, and the missing op
// reads a mirror in host memory:
//   weight   unpacked once, at its first use, as f32
//   cache    brought over as f32 before each op, and back after kv_write; a cache of int8 does not
//            go back: its other rows would get their scales anew, and not always the same
// The wrappers that remember what a handle is made of stand in the merged tables only when a mirror
// can be asked for. They also keep a plugin without gate_up from interleaving gate and up rows.
#include "dev/inner.h"

#include "base/fail.h"
#include "base/mem.h"

struct pgd_dev_mirror {
    pgd_dev_mirror *next;
    const void *handle;
    pgd_ref_weight weight; // rows NULL until the first use
    pgd_ref_kv kv;         // mem NULL until the first use
    int32_t scale_mode;    // of the native cache
    float *rows;           // owned
    float *image;          // owned, canonical
    int32_t *ids;          // owned, all blocks
};

static pgd_dev *self_of(const pgd_device *d) {
    return (pgd_dev *)(uintptr_t)d; // device is the first member
}

static void mirror_free(pgd_dev_mirror *m) {
    pgd_mem_free(m->rows);
    pgd_mem_free(m->kv.mem);
    pgd_mem_free(m->image);
    pgd_mem_free(m->ids);
    pgd_mem_free(m);
}

void pgd_dev_mirrors_destroy(pgd_dev *dev) {
    while (dev->mirrors != NULL) {
        pgd_dev_mirror *m = dev->mirrors;
        dev->mirrors = m->next;
        mirror_free(m);
    }
}

static void forget(pgd_dev *dev, const void *handle) {
    for (pgd_dev_mirror **at = &dev->mirrors; *at != NULL; at = &(*at)->next) {
        if ((*at)->handle == handle) {
            pgd_dev_mirror *m = *at;
            *at = m->next;
            mirror_free(m);
            return;
        }
    }
}

static pgd_status find(pgd_dev *dev, const void *handle, pgd_dev_mirror **out) {
    for (*out = dev->mirrors; *out != NULL; *out = (*out)->next) {
        if ((*out)->handle == handle) {
            return PGD_OK;
        }
    }
    return pgd_fail(PGD_INVALID, "device %s: a handle that was not made by it", dev->uri);
}

// ---- weights -----------------------------------------------------------------------------------

// The description as the plugin gets it: of this host's size, so a longer one has an end of zeros.
static pgd_status own_desc(const pgd_dev *dev, const pgd_weight_desc *desc, pgd_weight_desc *out) {
    if (!pgd_args_tail_is_zero(desc, desc->size, (uint32_t)sizeof(*desc))) {
        return pgd_fail(PGD_UNSUPPORTED, "a weight is described by %u bytes, known are %zu",
                        desc->size, sizeof(*desc));
    }
    *out = *desc;
    out->size = sizeof(*out);
    if ((out->uses & PGD_USE_GATE_UP) != 0 && dev->how[PGD_OP_gate_up] != PGD_DEV_NATIVE) {
        out->uses = (out->uses & ~(uint32_t)PGD_USE_GATE_UP) | PGD_USE_GEMM;
    }
    return PGD_OK;
}

static pgd_status own_plan(const pgd_device *d, const pgd_weight_desc *desc, pgd_weight_plan *out) {
    pgd_weight_desc local;
    PGD_TRY(own_desc(self_of(d), desc, &local));
    return self_of(d)->native.weight.plan(d, &local, out);
}

static pgd_status remember_weight(const pgd_weight_desc *desc, pgd_dev_mirror **out) {
    pgd_dev_mirror *m = pgd_mem_alloc(1, sizeof(*m));
    *out = m;
    if (m == NULL) {
        return PGD_MEM_FAIL("a mirror", sizeof(*m));
    }
    m->weight = (pgd_ref_weight){
        .dtype = PGD_F32,
        .act_dtype = desc->act_dtype,
        .n = desc->n,
        .k = desc->k,
    };
    return PGD_OK;
}

static pgd_status keep(pgd_dev *dev, pgd_dev_mirror *m, pgd_status code, const void *handle) {
    if (code != PGD_OK) {
        mirror_free(m);
        return code;
    }
    m->handle = handle;
    m->next = dev->mirrors;
    dev->mirrors = m;
    return PGD_OK;
}

static pgd_status own_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                              const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    pgd_weight_desc local;
    pgd_dev_mirror *m = NULL;
    *out = NULL;
    PGD_TRY(own_desc(self_of(d), desc, &local));
    PGD_TRY(remember_weight(desc, &m));
    pgd_status code = self_of(d)->native.weight.prepare(d, q, &local, dst, scratch, out);
    return keep(self_of(d), m, code, *out);
}

static pgd_status own_adopt(const pgd_device *d, const pgd_weight_desc *desc, const pgd_range *dst,
                            pgd_weight **out) {
    pgd_weight_desc local;
    pgd_dev_mirror *m = NULL;
    *out = NULL;
    PGD_TRY(own_desc(self_of(d), desc, &local));
    PGD_TRY(remember_weight(desc, &m));
    pgd_status code = self_of(d)->native.weight.adopt(d, &local, dst, out);
    return keep(self_of(d), m, code, *out);
}

static void own_weight_destroy(const pgd_device *d, pgd_weight *w) {
    if (w != NULL) {
        forget(self_of(d), w);
        self_of(d)->native.weight.destroy(d, w);
    }
}

static pgd_status no_unpack(const pgd_device *d, pgd_queue *q, pgd_weight *w, int64_t row,
                            const pgd_tensor *out) {
    (void)q;
    (void)w;
    (void)row;
    (void)out;
    return pgd_fail(PGD_UNSUPPORTED, "device %s cannot unpack rows of a weight", self_of(d)->uri);
}

void pgd_dev_mirror_weight_table(pgd_dev *dev) {
    pgd_weight_table *t = &dev->merged.weight;
    if (t->unpack == NULL) {
        t->unpack = no_unpack;
    }
    if (dev->how[PGD_OP_embed] != PGD_DEV_NATIVE || dev->how[PGD_OP_gemm] != PGD_DEV_NATIVE ||
        dev->how[PGD_OP_gate_up] != PGD_DEV_NATIVE) {
        t->plan = own_plan;
        t->prepare = own_prepare;
        t->adopt = own_adopt;
        t->destroy = own_weight_destroy;
    }
}

pgd_status pgd_dev_mirror_weight(pgd_dev *dev, pgd_queue *q, pgd_weight *w,
                                 const pgd_ref_weight **out) {
    pgd_dev_mirror *m = NULL;
    PGD_TRY(find(dev, w, &m));
    *out = &m->weight;
    if (m->weight.rows != NULL) {
        return PGD_OK;
    }
    int64_t n = m->weight.n;
    int64_t k = m->weight.k;
    if (m->rows == NULL) {
        m->rows = pgd_mem_alloc((size_t)n, (size_t)k * sizeof(float));
    }
    if (m->rows == NULL) {
        return PGD_MEM_FAIL("a weight unpacked on the host", (size_t)n * (size_t)k * sizeof(float));
    }
    for (int64_t row = 0; row < n; row++) {
        pgd_tensor line = {
            .offset = (uint64_t)(uintptr_t)(m->rows + row * k),
            .dtype = PGD_F32,
            .rank = 1,
            .shape = {k},
            .stride = {1},
        };
        PGD_TRY(dev->native.weight.unpack(&dev->device, q, w, row, &line));
    }
    PGD_TRY(pgd_dev_drain(&dev->device, q));
    m->weight.rows = m->rows;
    return PGD_OK;
}

// ---- caches ------------------------------------------------------------------------------------

static pgd_status own_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                           const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    pgd_dev_mirror *m = pgd_mem_alloc(1, sizeof(*m));
    *out = NULL;
    if (m == NULL) {
        return PGD_MEM_FAIL("a mirror", sizeof(*m));
    }
    m->kv.desc = *desc;
    m->kv.desc.block_tokens = plan->block_tokens;
    m->kv.desc.k_dtype = PGD_F32;
    m->kv.desc.v_dtype = PGD_F32;
    m->kv.desc.scale_mode = PGD_KV_SCALE_NONE;
    m->scale_mode = desc->scale_mode;
    m->kv.n_blocks = n_blocks;
    pgd_status code = self_of(d)->native.kv.bind(d, desc, plan, mem, n_blocks, out);
    return keep(self_of(d), m, code, *out);
}

static void own_kv_destroy(const pgd_device *d, pgd_kv *kv) {
    if (kv != NULL) {
        forget(self_of(d), kv);
        self_of(d)->native.kv.destroy(d, kv);
    }
}

static pgd_status no_image(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                           const pgd_kv_image *image) {
    (void)q;
    (void)kv;
    (void)image;
    return pgd_fail(PGD_UNSUPPORTED, "device %s cannot read or write single blocks of its cache",
                    self_of(d)->uri);
}

void pgd_dev_mirror_kv_table(pgd_dev *dev) {
    pgd_kv_table *t = &dev->merged.kv;
    if (t->read_blocks == NULL) {
        t->read_blocks = no_image;
    }
    if (t->write_blocks == NULL) {
        t->write_blocks = no_image;
    }
    if (dev->how[PGD_OP_kv_write] != PGD_DEV_NATIVE || dev->how[PGD_OP_attn] != PGD_DEV_NATIVE) {
        t->bind = own_bind;
        t->destroy = own_kv_destroy;
    }
}

static pgd_kv_image image_of(const pgd_dev_mirror *m) {
    pgd_kv_image image = {
        .size = sizeof(image),
        .format = PGD_KV_CANONICAL,
        .dtype = PGD_F32,
        .n_ids = m->kv.n_blocks,
        .n_tokens = m->kv.n_blocks * m->kv.desc.block_tokens,
        .ids = m->ids,
        .mem = {.offset = (uint64_t)(uintptr_t)m->image},
    };
    image.mem.bytes = pgd_dev_kv_image_bytes(&m->kv, &image);
    return image;
}

static pgd_status kv_room(pgd_dev_mirror *m) {
    if (m->kv.mem != NULL) {
        return PGD_OK;
    }
    size_t n = (size_t)m->kv.n_blocks;
    uint64_t block = pgd_ref_kv_block_bytes(&m->kv.desc);
    pgd_mem_free(m->image); // what an earlier try got before it ran out
    pgd_mem_free(m->ids);
    m->image = pgd_mem_alloc(n, (size_t)block);
    m->ids = pgd_mem_alloc(n, sizeof(*m->ids));
    unsigned char *mem = pgd_mem_alloc(n, (size_t)block);
    if (m->image == NULL || m->ids == NULL || mem == NULL) {
        pgd_mem_free(mem);
        return PGD_MEM_FAIL("a cache mirrored on the host", 2 * n * block);
    }
    for (int32_t i = 0; i < m->kv.n_blocks; i++) {
        m->ids[i] = i;
    }
    m->kv.mem = mem;
    return PGD_OK;
}

pgd_status pgd_dev_mirror_kv(pgd_dev *dev, pgd_queue *q, pgd_kv *kv, const pgd_ref_kv **out) {
    pgd_dev_mirror *m = NULL;
    PGD_TRY(find(dev, kv, &m));
    PGD_TRY(kv_room(m));
    pgd_kv_image image = image_of(m);
    PGD_TRY(dev->native.kv.read_blocks(&dev->device, q, kv, &image));
    PGD_TRY(pgd_dev_drain(&dev->device, q));
    *out = &m->kv;
    return pgd_dev_kv_convert(&m->kv, &image, (unsigned char *)m->image, 0);
}

pgd_status pgd_dev_mirror_kv_store(pgd_dev *dev, pgd_queue *q, pgd_kv *kv) {
    pgd_dev_mirror *m = NULL;
    PGD_TRY(find(dev, kv, &m));
    if (m->scale_mode != PGD_KV_SCALE_NONE) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "kv_write by the reference into a cache with scales of device %s",
                        dev->uri);
    }
    pgd_kv_image image = image_of(m);
    PGD_TRY(pgd_dev_kv_convert(&m->kv, &image, (unsigned char *)m->image, 1));
    PGD_TRY(dev->native.kv.write_blocks(&dev->device, q, kv, &image));
    return pgd_dev_drain(&dev->device, q);
}
