// A complete naive plugin, level 3: every operation by kernels/ref, behind a queue that is truly
// asynchronous. It is what the conformance tool is tested with: mutants.py spoils it in one line
// each.
//
// Nothing runs when it is enqueued. Each call to a queue moves all queues of the device a random
// few entries on, so that work is late by a different amount each time, and a wait runs what it
// waits for, also in another queue. There are no threads: the order is the same in every run.
//
//   copy, fill, wait, signal, op -> entries of the queue -> run_one, some at each call
//
// Device memory is host memory that the host is not told the address of.
#include <pagoda/plugin.h>

#include <stdlib.h>
#include <string.h>

#include "good.h"

#define BYTES (UINT64_C(1) << 32)

#define FAIL(d, code, ...) PGD_HOST_FAIL((d)->host, (code), "good: " __VA_ARGS__)

// UNSUPPORTED when a newer host sets a field that this version does not know.
#define TAIL(d, T, args)                                                               \
    do {                                                                               \
        if (!pgd_args_tail_is_zero((args), (args)->size, (uint32_t)sizeof(T))) {       \
            return FAIL((d), PGD_UNSUPPORTED, #T " has a field of a newer interface"); \
        }                                                                              \
    } while (0)

// ---- device ------------------------------------------------------------------------------------

static pgd_status device_count(void *backend, uint32_t *out_n) {
    (void)backend;
    *out_n = 1;
    return PGD_OK;
}

static pgd_status device_info(void *backend, uint32_t i, pgd_device_info *out) {
    const uint32_t floats = 1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16;
    pgd_device_info local = {
        .size = sizeof(local),
        .kind = PGD_DEVICE_OTHER,
        .name = "Good device (the reference, late)",
        .bytes = BYTES,
        .units = 1,
        .numa = -1,
        .align = 64,
        .caps = PGD_CAP_INVARIANT,
        .weight_dtypes = floats,
        .act_dtypes = floats,
        .kv_dtypes = floats,
        .act_dtype = PGD_F32,
        .residual_dtype = PGD_F32,
        .kv_dtype = PGD_F32,
    };
    (void)backend;
    (void)i;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status device_open(void *backend, uint32_t i, const pgd_device *next, void **out_self) {
    (void)i;
    (void)next;
    *out_self = backend;
    return PGD_OK;
}

static void device_close(const pgd_device *d) {
    (void)d;
}

static pgd_status device_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_support local = {.size = sizeof(local),
                         .level = PGD_LEVEL_NATIVE,
                         .flags = PGD_SUPPORT_INVARIANT,
                         .kernel = "reference"};
    (void)d;
    if (!good_takes(query->op, query->args)) {
        local.level = PGD_LEVEL_NONE;
        memcpy(local.reason, "a field of a newer interface is set", 36);
    }
    PGD_OUT(out, local);
    return PGD_OK;
}

// ---- memory ------------------------------------------------------------------------------------

static pgd_status memory_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                pgd_buffer **out) {
    *out = NULL;
    TAIL(d, pgd_buffer_desc, desc);
    if (desc->bytes > BYTES) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "a buffer of %llu bytes in a memory of %llu",
                    (unsigned long long)desc->bytes, (unsigned long long)BYTES);
    }
    pgd_buffer *b = d->host->alloc(d->host, sizeof(*b), 0);
    if (b == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer");
    }
    b->bytes = desc->bytes;
    b->mem = d->host->alloc(d->host, desc->bytes + 1, 256);
    if (b->mem == NULL) {
        d->host->free(d->host, b);
        return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for %llu bytes",
                    (unsigned long long)desc->bytes);
    }
    *out = b;
    return PGD_OK;
}

static void memory_destroy(const pgd_device *d, pgd_buffer *b) {
    if (b != NULL) {
        if (!b->imported) {
            d->host->free(d->host, b->mem);
        }
        d->host->free(d->host, b);
    }
}

static pgd_status memory_import(const pgd_device *d, const void *ptr, uint64_t bytes,
                                uint32_t flags, pgd_buffer **out) {
    *out = NULL;
    if (flags != 0) {
        return FAIL(d, PGD_UNSUPPORTED, "import with flags %u", (unsigned)flags);
    }
    pgd_buffer *b = d->host->alloc(d->host, sizeof(*b), 0);
    if (b == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer");
    }
    b->mem = (unsigned char *)(uintptr_t)ptr;
    b->bytes = bytes;
    b->imported = 1;
    *out = b;
    return PGD_OK;
}

// ---- weights: one row-major matrix in host order -----------------------------------------------

static pgd_status weight_plan(const pgd_device *d, const pgd_weight_desc *desc,
                              pgd_weight_plan *out) {
    TAIL(d, pgd_weight_desc, desc);
    if (desc->scheme != PGD_SCHEME_PLAIN || desc->n_experts != 0 || desc->dtype < PGD_F32 ||
        desc->dtype > PGD_F16) {
        return FAIL(d, PGD_UNSUPPORTED, "weight %s: scheme %d, dtype %d, %u experts", desc->name,
                    (int)desc->scheme, (int)desc->dtype, (unsigned)desc->n_experts);
    }
    pgd_weight_plan local = {.size = sizeof(local),
                             .bytes = (uint64_t)(desc->n * desc->k) * pgd_dtype_bytes(desc->dtype),
                             .align = 64,
                             .fingerprint = 1};
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status weight_adopt(const pgd_device *d, const pgd_weight_desc *desc,
                               const pgd_range *dst, pgd_weight **out) {
    *out = NULL;
    TAIL(d, pgd_weight_desc, desc);
    pgd_weight *w = d->host->alloc(d->host, sizeof(*w), 0);
    if (w == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a weight");
    }
    w->ref = (pgd_ref_weight){.dtype = desc->dtype,
                              .act_dtype = desc->act_dtype,
                              .n = desc->n,
                              .k = desc->k,
                              .rows = good_at(dst->buffer, dst->offset)};
    *out = w;
    return PGD_OK;
}

static pgd_status weight_prepare(const pgd_device *d, pgd_queue *q, const pgd_weight_desc *desc,
                                 const pgd_range *dst, const pgd_range *scratch, pgd_weight **out) {
    pgd_weight_part part = {0};
    unsigned char *to = good_at(dst->buffer, dst->offset);
    (void)scratch;
    *out = NULL;
    good_drain(q); // dst may still be in use by what was enqueued before
    for (uint32_t i = 0; i < desc->n_parts; i++) {
        const char *at = (const char *)desc->parts + (size_t)i * desc->part_stride;
        memcpy(&part, at, desc->part_stride < sizeof(part) ? desc->part_stride : sizeof(part));
        if (part.data.ptr == NULL) {
            return FAIL(d, PGD_UNSUPPORTED, "weight %s comes from a file or a buffer", desc->name);
        }
    }
    if (pgd_ref_weight_join(desc, to) != PGD_OK) {
        return FAIL(d, PGD_INVALID, "weight %s: its parts do not fit", desc->name);
    }
    return weight_adopt(d, desc, dst, out);
}

static void weight_destroy(const pgd_device *d, pgd_weight *w) {
    d->host->free(d->host, w);
}

// ---- the cache ---------------------------------------------------------------------------------

static pgd_status kv_plan(const pgd_device *d, const pgd_kv_desc *desc, pgd_kv_plan *out) {
    TAIL(d, pgd_kv_desc, desc);
    if (desc->kind != PGD_KV_ATTENTION || desc->scale_mode != 0 || desc->k_dtype < PGD_F32 ||
        desc->k_dtype > PGD_F16 || desc->v_dtype < PGD_F32 || desc->v_dtype > PGD_F16 ||
        pgd_ref_kv_block_bytes(desc) == 0) {
        return FAIL(d, PGD_UNSUPPORTED, "a cache of kind %d, dtypes %d and %d", (int)desc->kind,
                    (int)desc->k_dtype, (int)desc->v_dtype);
    }
    pgd_kv_plan local = {.size = sizeof(local),
                         .block_tokens = desc->block_tokens,
                         .block_bytes = pgd_ref_kv_block_bytes(desc),
                         .align = 64,
                         .fingerprint = 1};
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status kv_bind(const pgd_device *d, const pgd_kv_desc *desc, const pgd_kv_plan *plan,
                          const pgd_range *mem, int32_t n_blocks, pgd_kv **out) {
    (void)plan;
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    if (*out == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a cache");
    }
    (*out)->ref =
        (pgd_ref_kv){.desc = *desc, .n_blocks = n_blocks, .mem = good_at(mem->buffer, mem->offset)};
    (*out)->range = *mem;
    return PGD_OK;
}

static void kv_destroy(const pgd_device *d, pgd_kv *kv) {
    d->host->free(d->host, kv);
}

static pgd_status kv_copy_blocks(const pgd_device *d, pgd_queue *q, pgd_kv *kv,
                                 const pgd_pair *pairs, uint32_t n) {
    const uint64_t bytes = pgd_ref_kv_block_bytes(&kv->ref.desc);
    for (uint32_t i = 0; i < n; i++) {
        const pgd_copy c = {
            .dst = kv->range.buffer,
            .dst_offset = kv->range.offset + (uint64_t)pairs[i].to * bytes,
            .src = kv->range.buffer,
            .src_offset = kv->range.offset + (uint64_t)pairs[i].from * bytes,
            .bytes = bytes,
        };
        PGD_TRY(d->queue->copy(d, q, &c, 1));
    }
    return PGD_OK;
}

// ---- entry -------------------------------------------------------------------------------------

static pgd_status plugin_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .n_devices = 1};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static const pgd_device_table device = {.size = sizeof(device),
                                            .count = device_count,
                                            .info = device_info,
                                            .open = device_open,
                                            .close = device_close,
                                            .support = device_support};
    static const pgd_memory_table memory = {.size = sizeof(memory),
                                            .create = memory_create,
                                            .destroy = memory_destroy,
                                            .import = memory_import};
    static const pgd_weight_table weight = {.size = sizeof(weight),
                                            .plan = weight_plan,
                                            .prepare = weight_prepare,
                                            .adopt = weight_adopt,
                                            .destroy = weight_destroy};
    static const pgd_kv_table kv = {.size = sizeof(kv),
                                    .plan = kv_plan,
                                    .bind = kv_bind,
                                    .destroy = kv_destroy,
                                    .copy_blocks = kv_copy_blocks,
                                    .read_blocks = good_read_blocks,
                                    .write_blocks = good_write_blocks};
    pgd_tables local = {.size = sizeof(local),
                        .device = &device,
                        .memory = &memory,
                        .queue = good_queue_table(),
                        .weight = &weight,
                        .kv = &kv,
                        .ops = good_ops()};
    good_backend *self = host->alloc(host, sizeof(*self), 0);
    *out_backend = self;
    if (self == NULL) {
        return PGD_HOST_FAIL(host, PGD_OUT_OF_MEMORY, "good: no memory for the backend");
    }
    self->host = host;
    self->state = 12345;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    good_backend *self = backend;
    self->host->free(self->host, self);
}

PGD_PLUGIN_DEFINE(good) {
    static const pgd_plugin plugin = {
        .size = sizeof(plugin),
        .abi_minor = PGD_ABI_MINOR,
        .min_host_minor = 1,
        .role = PGD_ROLE_BACKEND,
        .abi_hash = PGD_ABI_HASH,
        .name = "good",
        .vendor = "pagoda",
        .version = "0.1.0",
        .build = "",
        .probe = plugin_probe,
        .open = plugin_open,
        .close = plugin_close,
    };
    (void)host_minor;
    return &plugin;
}
