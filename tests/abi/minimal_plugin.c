// A device with the fourteen mandatory functions and nothing else: the host must run whole models
// on it with its reference kernels and copies.
//
// Its memory has no host address. Its queue is as late as the contract allows: a copy runs when the
// host waits for a number behind it, so host memory that is reused too early is seen at once.
//
//   copy -> pending list;  signal -> number of the list's end;  host_wait(v) -> runs up to v
#include <pagoda/plugin.h>

#include <stdlib.h>
#include <string.h>

#ifndef MINIMAL_KIND
#define MINIMAL_KIND "minimal"
#endif
#ifndef MINIMAL_BYTES
#define MINIMAL_BYTES (UINT64_C(1) << 31)
#endif

struct pgd_buffer {
    unsigned char *mem;
    uint64_t bytes;
};

typedef struct entry {
    pgd_copy copy;
    uint64_t value; // not 0: a signal
} entry;

struct pgd_queue {
    entry *entries;
    uint32_t n;
    uint32_t cap;
    uint64_t given;   // last number given
    uint64_t reached; // last number reached
};

#define FAIL(d, code, ...) PGD_HOST_FAIL((d)->host, (code), __VA_ARGS__)

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
        .name = "Minimal device",
        .bytes = MINIMAL_BYTES,
        .units = 1,
        .numa = -1,
        .align = 64,
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

// ---- memory ------------------------------------------------------------------------------------

static pgd_status memory_create(const pgd_device *d, const pgd_buffer_desc *desc,
                                pgd_buffer **out) {
    *out = NULL;
    if (desc->bytes > MINIMAL_BYTES) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "a buffer of %llu bytes in a memory of %llu",
                    (unsigned long long)desc->bytes, (unsigned long long)MINIMAL_BYTES);
    }
    pgd_buffer *b = d->host->alloc(d->host, sizeof(*b), 0);
    if (b == NULL) {
        return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a buffer");
    }
    b->bytes = desc->bytes;
    b->mem = calloc(1, (size_t)desc->bytes + 1);
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
        free(b->mem);
        d->host->free(d->host, b);
    }
}

// ---- queue -------------------------------------------------------------------------------------

static pgd_status queue_create(const pgd_device *d, const pgd_queue_desc *desc, pgd_queue **out) {
    (void)desc;
    *out = d->host->alloc(d->host, sizeof(**out), 0);
    return *out != NULL ? PGD_OK : FAIL(d, PGD_OUT_OF_MEMORY, "no memory for a queue");
}

static pgd_status push(const pgd_device *d, pgd_queue *q, const entry *e) {
    if (q->n == q->cap) {
        uint32_t cap = q->cap == 0 ? 64 : 2 * q->cap;
        entry *grown = realloc(q->entries, cap * sizeof(*grown));
        if (grown == NULL) {
            return FAIL(d, PGD_OUT_OF_MEMORY, "no memory for %u copies", cap);
        }
        q->entries = grown;
        q->cap = cap;
    }
    q->entries[q->n++] = *e;
    return PGD_OK;
}

static pgd_status check_side(const pgd_device *d, const pgd_buffer *b, uint64_t offset,
                             uint64_t pitch, const pgd_copy *c) {
    uint64_t rows = c->rows > 1 ? c->rows : 1;
    uint64_t end = offset + (rows - 1) * pitch + c->bytes;
    if (b != NULL && end > b->bytes) {
        return FAIL(d, PGD_OUT_OF_RANGE, "a copy reaches byte %llu of a buffer of %llu",
                    (unsigned long long)end, (unsigned long long)b->bytes);
    }
    return PGD_OK;
}

static pgd_status queue_copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        entry e = {.copy = list[i]};
        PGD_TRY(check_side(d, e.copy.dst, e.copy.dst_offset, e.copy.dst_pitch, &e.copy));
        PGD_TRY(check_side(d, e.copy.src, e.copy.src_offset, e.copy.src_pitch, &e.copy));
        PGD_TRY(push(d, q, &e));
    }
    return PGD_OK;
}

static pgd_status queue_signal(const pgd_device *d, pgd_queue *q, uint64_t *out_value) {
    entry e = {.value = q->given + 1};
    PGD_TRY(push(d, q, &e));
    *out_value = ++q->given;
    return PGD_OK;
}

static unsigned char *address(pgd_buffer *b, uint64_t offset) {
    return b == NULL ? (unsigned char *)(uintptr_t)offset : b->mem + offset;
}

static void run_copy(const pgd_copy *c) {
    uint64_t rows = c->rows > 1 ? c->rows : 1;
    for (uint64_t i = 0; i < rows && c->bytes > 0; i++) {
        memmove(address(c->dst, c->dst_offset) + i * c->dst_pitch,
                address(c->src, c->src_offset) + i * c->src_pitch, (size_t)c->bytes);
    }
}

#define EVERYTHING UINT64_MAX // what stands behind the last number too

static void run_until(pgd_queue *q, uint64_t value) {
    uint32_t i = 0;
    while (i < q->n && (q->reached < value || value == EVERYTHING)) {
        if (q->entries[i].value != 0) {
            q->reached = q->entries[i].value;
        } else {
            run_copy(&q->entries[i].copy);
        }
        i++;
    }
    if (i > 0) {
        memmove(q->entries, q->entries + i, (q->n - i) * sizeof(*q->entries));
        q->n -= i;
    }
}

static pgd_status queue_host_wait(const pgd_device *d, pgd_queue *q, uint64_t value,
                                  uint64_t timeout_ns) {
    if (value <= q->reached) {
        return PGD_OK;
    }
    if (value > q->given || timeout_ns == 0) {
        return FAIL(d, PGD_TIMEOUT, "number %llu is not reached", (unsigned long long)value);
    }
    run_until(q, value);
    return PGD_OK;
}

static void queue_destroy(const pgd_device *d, pgd_queue *q) {
    if (q != NULL) {
        run_until(q, EVERYTHING);
        free(q->entries);
        d->host->free(d->host, q);
    }
}

// ---- entry -------------------------------------------------------------------------------------

static pgd_status plugin_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .n_devices = 1};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static pgd_status plugin_open(const pgd_host *host, void **out_backend, pgd_tables *out) {
    static const pgd_device_table device = {
        .size = sizeof(device),
        .count = device_count,
        .info = device_info,
        .open = device_open,
        .close = device_close,
    };
    static const pgd_memory_table memory = {
        .size = sizeof(memory),
        .create = memory_create,
        .destroy = memory_destroy,
    };
    static const pgd_queue_table queue = {
        .size = sizeof(queue),
        .create = queue_create,
        .destroy = queue_destroy,
        .copy = queue_copy,
        .signal = queue_signal,
        .host_wait = queue_host_wait,
    };
    pgd_tables local = {
        .size = sizeof(local),
        .device = &device,
        .memory = &memory,
        .queue = &queue,
    };
    *out_backend = (void *)(uintptr_t)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

static void plugin_close(void *backend) {
    (void)backend;
}

PGD_PLUGIN_DEFINE(minimal) {
    static const pgd_plugin plugin = {
        .size = sizeof(plugin),
        .abi_minor = PGD_ABI_MINOR,
        .min_host_minor = 1,
        .role = PGD_ROLE_BACKEND,
        .abi_hash = PGD_ABI_HASH,
        .name = MINIMAL_KIND,
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
