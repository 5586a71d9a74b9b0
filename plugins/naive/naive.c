// A whole plugin, to read beside the template: every operation of a model but sampling,
// in plain loops on host memory that it calls its own. Right before fast: one thread, sums in
// double, each element in one order, so it is batch-invariant.
//
//   weights   one row-major matrix [n, k], as they come
//   cache     [block][layer][k: block_tokens, heads, k_dim | v: block_tokens, heads, v_dim]
//   queue     synchronous: everything has run when the call returns, signal counts
//
// What it leaves to the host: sampling (the host sees this memory, so it costs no copy), fused
// operations (composed of these), schemes of weights other than plain, graphs.
#include "naive.h"

#include <stdio.h>

// ---- device ------------------------------------------------------------------------------------
static pgd_status device_count(void *backend, uint32_t *out_n) {
    (void)backend;
    *out_n = 1;
    return PGD_OK;
}

static pgd_status device_info(void *backend, uint32_t i, pgd_device_info *out) {
    (void)backend;
    (void)i;
    pgd_device_info local = {
        .size = sizeof(local),
        .kind = PGD_DEVICE_OTHER,
        .name = "Naive device (plain loops on the host)",
        .bytes = MEMORY_BYTES,
        .units = 1,
        .numa = -1,
        .align = 64,
        .caps = PGD_CAP_HOST_VISIBLE | PGD_CAP_INVARIANT,
        .weight_dtypes = 1u << PGD_F32 | 1u << PGD_BF16 | 1u << PGD_F16,
        .act_dtypes = 1u << PGD_F32 | 1u << PGD_BF16,
        .kv_dtypes = 1u << PGD_F32 | 1u << PGD_BF16,
        .act_dtype = PGD_F32,
        .residual_dtype = PGD_F32,
        .kv_dtype = PGD_F32,
    };
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

static int32_t fits(const pgd_tensor *t) {
    return t->rank == 0 || t->dtype == PGD_F32 || t->dtype == PGD_BF16 || t->dtype == PGD_I32;
}

// Exact for what the functions below compute.
static pgd_status device_support(const pgd_device *d, const pgd_query *query, pgd_support *out) {
    pgd_support local = {.size = sizeof(local), .level = PGD_LEVEL_NATIVE, .kernel = "loops"};
    int32_t good = 1;
    (void)d;
#define CHECK(op_name, field, mode)                                               \
    if (query->op == PGD_OP_##op_name) {                                          \
        good = good && fits(&((const pgd_##op_name##_args *)query->args)->field); \
    }
    PGD_OP_IO(CHECK)
#undef CHECK
    if (!good) {
        snprintf(local.reason, sizeof(local.reason), "tensors are f32, bf16 or i32");
    } else if (query->kv != NULL && (query->kv->k_dim > MAX_DIM || query->kv->v_dim > MAX_DIM)) {
        snprintf(local.reason, sizeof(local.reason), "heads of more than %d dims", MAX_DIM);
        good = 0;
    }
    local.level = good ? PGD_LEVEL_NATIVE : PGD_LEVEL_NONE;
    local.flags = PGD_SUPPORT_INVARIANT;
    PGD_OUT(out, local);
    return PGD_OK;
}

// ---- memory ------------------------------------------------------------------------------------
static pgd_status memory_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                pgd_buffer **out) {
    *out = NULL;
    KNOWN(d, pgd_buffer_desc, desc);
    if (desc->bytes > MEMORY_BYTES) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "naive: a buffer of %llu bytes in a memory of %llu",
                    (unsigned long long)desc->bytes, (unsigned long long)MEMORY_BYTES);
    }
    pgd_buffer *b = d->host->alloc(d->host, sizeof(*b), 0);
    unsigned char *mem =
        b == NULL ? NULL
                  : d->host->alloc(d->host, desc->bytes + 1, desc->align < 64 ? 64 : desc->align);
    if (mem == NULL) {
        d->host->free(d->host, b);
        return FAIL(d, PGD_OUT_OF_MEMORY, "naive: no memory for a buffer of %llu bytes",
                    (unsigned long long)desc->bytes);
    }
    *b = (pgd_buffer){.mem = mem, .bytes = desc->bytes};
    *out = b;
    return PGD_OK;
}

static void memory_destroy(const pgd_device *d, pgd_buffer *b) {
    if (b != NULL) {
        d->host->free(d->host, b->mem);
        d->host->free(d->host, b);
    }
}

static pgd_status memory_map(const pgd_device *d, pgd_buffer *b, void **out_ptr) {
    (void)d;
    *out_ptr = b->mem;
    return PGD_OK;
}

// ---- queue -------------------------------------------------------------------------------------
static pgd_status queue_create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    *out = NULL;
    KNOWN(d, pgd_queue_desc, desc);
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    return *out != NULL ? PGD_OK : FAIL(d, PGD_OUT_OF_MEMORY, "naive: no memory for a queue");
}

static void queue_destroy(const pgd_device *d, pgd_queue *q) {
    d->host->free(d->host, q);
}

// One side of a copy, without sums that could wrap.
static int32_t lies_in(const pgd_buffer *b, uint64_t offset, uint64_t pitch, const pgd_copy *c) {
    const uint64_t more = c->rows > 1 ? c->rows - 1 : 0;
    if (b == NULL) {
        return 1;
    }
    if (offset > b->bytes || c->bytes > b->bytes - offset) {
        return 0;
    }
    return more == 0 || pitch <= (b->bytes - offset - c->bytes) / more;
}

static pgd_status queue_copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    (void)q;
    for (uint32_t i = 0; i < n; i++) {
        const pgd_copy *c = &list[i];
        if (!lies_in(c->dst, c->dst_offset, c->dst_pitch, c) ||
            !lies_in(c->src, c->src_offset, c->src_pitch, c)) {
            return FAIL(d, PGD_OUT_OF_RANGE, "naive: copy %u leaves its buffer", i);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const pgd_copy *c = &list[i];
        for (uint64_t r = 0; r < (c->rows > 1 ? c->rows : 1) && c->bytes > 0; r++) {
            memmove(address(c->dst, c->dst_offset) + r * c->dst_pitch,
                    address(c->src, c->src_offset) + r * c->src_pitch, (size_t)c->bytes);
        }
    }
    return PGD_OK;
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    (void)d;
    *out_value = ++q->given;
    return PGD_OK;
}

static pgd_status queue_host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                                  uint64_t timeout_ns) {
    (void)timeout_ns;
    return value <= q->given ? PGD_OK
                             : FAIL(d, PGD_TIMEOUT, "naive: number %llu was not given yet",
                                    (unsigned long long)value);
}

// ---- entry -------------------------------------------------------------------------------------
static pgd_status plugin_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .n_devices = 1};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static const pgd_device_table device_table = {
    .size = sizeof(device_table),
    .count = device_count,
    .info = device_info,
    .open = device_open,
    .close = device_close,
    .support = device_support,
};

static const pgd_memory_table memory_table = {
    .size = sizeof(memory_table),
    .create = memory_create,
    .destroy = memory_destroy,
    .map = memory_map,
};

static const pgd_queue_table queue_table = {
    .size = sizeof(queue_table),
    .create = queue_create,
    .destroy = queue_destroy,
    .copy = queue_copy,
    .signal = queue_signal,
    .host_wait = queue_host_wait,
};

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    pgd_tables local = {
        .size = sizeof(local),
        .device = &device_table,
        .memory = &memory_table,
        .queue = &queue_table,
        .weight = &naive_weight_table,
        .kv = &naive_kv_table,
        .ops = &naive_ops,
    };
    *out_backend = (void *)(uintptr_t)host; // nothing to keep
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    (void)backend;
}

PGD_PLUGIN_DEFINE(naive) {
    static const pgd_plugin plugin = {
        .size = sizeof(plugin),
        .abi_minor = PGD_ABI_MINOR,
        .min_host_minor = 1,
        .role = PGD_ROLE_BACKEND,
        .abi_hash = PGD_ABI_HASH,
        .name = "naive",
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
