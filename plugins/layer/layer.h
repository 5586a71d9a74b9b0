// What the layers share: the level below, operations by number, their tensors, a map of handles.
//
// A layer is given every call of the device under it. Below the hole filler a slot of the level
// under a layer may be NULL; the host then never calls the layer's slot of that name.
// Needs nothing but the SDK headers and libc. Functions are static, so that each layer is a library
// of its own.
#ifndef PGD_PLUGINS_LAYER_H
#define PGD_PLUGINS_LAYER_H

#include <pagoda/backend.h>
#include <pagoda/ops.h>
#include <pagoda/plugin.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- operations by number ----------------------------------------------------------------------

static inline const char *layer_op_name(int32_t op) {
    static const char *const names[] = {
#define NAME(name, family) #name,
        PGD_OP_LIST(NAME)
#undef NAME
    };
    return op >= 0 && op < PGD_OP_COUNT ? names[op] : "?";
}

// The same operation at the level below.
static inline pgd_status layer_next(const pgd_exec *x, int32_t op, const void *args) {
    switch (op) {
#define CASE(name, family) \
    case PGD_OP_##name: return x->next->dev->ops->name(x->next, args);
        PGD_OP_LIST(CASE)
#undef CASE
    default: return PGD_UNSUPPORTED;
    }
}

// A table `ops` whose slots all lead to around_op(exec, op, args).
#define LAYER_OPS                  \
    PGD_OP_LIST(LAYER_OP_FUNCTION) \
    static const pgd_ops ops = {.size = sizeof(pgd_ops), PGD_OP_LIST(LAYER_OP_SLOT)}
#define LAYER_OP_FUNCTION(name, family)                                          \
    static pgd_status op_##name(const pgd_exec *x, const pgd_##name##_args *a) { \
        return around_op(x, PGD_OP_##name, a);                                   \
    }
#define LAYER_OP_SLOT(name, family) .name = op_##name,

// What every args struct begins with.
typedef struct layer_head {
    PGD_ARGS_HEAD;
} layer_head;

// Its weight and its cache, NULL where it has none.
static inline void layer_handles(int32_t op, const void *args, pgd_weight **out_w,
                                 pgd_kv **out_kv) {
    *out_w = NULL;
    *out_kv = NULL;
#define TAKE_NONE(name)
#define TAKE_WEIGHT(name) *out_w = ((const pgd_##name##_args *)args)->w;
#define TAKE_KV(name)     *out_kv = ((const pgd_##name##_args *)args)->kv;
#define TAKE_WEIGHT_KV(name) \
    TAKE_WEIGHT(name)        \
    TAKE_KV(name)
    switch (op) {
#define CASE(name, family)  \
    case PGD_OP_##name: {   \
        TAKE_##family(name) \
    } break;
        PGD_OP_LIST(CASE)
#undef CASE
    default: break;
    }
#undef TAKE_NONE
#undef TAKE_WEIGHT
#undef TAKE_KV
#undef TAKE_WEIGHT_KV
}

// ---- tensors of an operation -------------------------------------------------------------------

enum { LAYER_IN = 1, LAYER_OUT = 2, LAYER_IO = 3, LAYER_TMP = 4 };

typedef struct layer_field {
    int32_t op;
    int32_t mode; // LAYER_...
    size_t offset;
    const char *name;
} layer_field;

// Every line of PGD_OP_IO; those of one op follow each other.
static inline const layer_field *layer_fields(uint32_t *out_n) {
    static const layer_field fields[] = {
#define FIELD(op, field, mode) \
    {PGD_OP_##op, LAYER_##mode, offsetof(pgd_##op##_args, field), #field},
        PGD_OP_IO(FIELD)
#undef FIELD
    };
    *out_n = sizeof(fields) / sizeof(fields[0]);
    return fields;
}

static inline const pgd_tensor *layer_tensor(const layer_field *f, const void *args) {
    return (const pgd_tensor *)(const void *)((const unsigned char *)args + f->offset);
}

// The live counts of the step, NULL where there are none (a batch without a mirror).
static inline const pgd_batch_head *layer_live(const pgd_batch *batch) {
    return batch != NULL ? batch->mirror : NULL;
}

// Rows of a tensor's leading dimension that are live.
static inline int64_t layer_rows(const layer_head *a, const pgd_tensor *t) {
    const pgd_batch_head *live = layer_live(a->batch);
    int64_t rows = t->rank > 0 ? t->shape[0] : 0;
    int64_t n = live == NULL                  ? rows
                : a->rows == PGD_ROWS_TOKENS  ? live->n_tokens
                : a->rows == PGD_ROWS_OUTPUTS ? live->n_out
                                              : rows;
    return n < rows ? n : rows;
}

// Elements behind one index of the leading dimension.
static inline int64_t layer_row_elements(const pgd_tensor *t) {
    int64_t n = 1;
    for (uint32_t i = 1; i < t->rank && i < PGD_MAX_RANK; i++) {
        n *= t->shape[i];
    }
    return n;
}

// ---- a map from handles to what a layer knows of them ------------------------------------------
//
// Open addressing, grown by halves; one thread at a time.

typedef struct layer_map {
    const pgd_host *host;
    const void **keys; // NULL: free
    void **values;
    uint32_t cap; // a power of two
    uint32_t n;
} layer_map;

static inline uint32_t layer_map_at(const layer_map *m, const void *key) {
    uint64_t h = ((uint64_t)(uintptr_t)key >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t at = (uint32_t)(h >> 32) & (m->cap - 1);
    while (m->keys[at] != NULL && m->keys[at] != key) {
        at = (at + 1) & (m->cap - 1);
    }
    return at;
}

static inline void *layer_map_get(const layer_map *m, const void *key) {
    return m->cap == 0 || key == NULL ? NULL : m->values[layer_map_at(m, key)];
}

static inline int32_t layer_map_grow(layer_map *m) {
    layer_map to = {.host = m->host, .cap = m->cap == 0 ? 64 : 2 * m->cap, .n = m->n};
    to.keys = m->host->alloc(m->host, to.cap * sizeof(*to.keys), 0);
    to.values = m->host->alloc(m->host, to.cap * sizeof(*to.values), 0);
    if (to.keys == NULL || to.values == NULL) {
        m->host->free(m->host, to.keys);
        m->host->free(m->host, to.values);
        return 0;
    }
    for (uint32_t i = 0; i < m->cap; i++) {
        if (m->keys[i] != NULL) {
            uint32_t at = layer_map_at(&to, m->keys[i]);
            to.keys[at] = m->keys[i];
            to.values[at] = m->values[i];
        }
    }
    m->host->free(m->host, m->keys);
    m->host->free(m->host, m->values);
    *m = to;
    return 1;
}

// 0 when there is no memory; nothing was changed then.
static inline int32_t layer_map_put(layer_map *m, const void *key, void *value) {
    if (2 * (m->n + 1) > m->cap && !layer_map_grow(m)) {
        return 0;
    }
    uint32_t at = layer_map_at(m, key);
    m->n += m->keys[at] == NULL;
    m->keys[at] = key;
    m->values[at] = value;
    return 1;
}

// Takes a key out and gives its value, NULL if it was not there. Those behind it move up.
static inline void *layer_map_take(layer_map *m, const void *key) {
    if (m->cap == 0 || key == NULL) {
        return NULL;
    }
    uint32_t at = layer_map_at(m, key);
    void *value = m->values[at];
    if (m->keys[at] == NULL) {
        return NULL;
    }
    m->keys[at] = NULL;
    m->values[at] = NULL;
    m->n--;
    for (uint32_t i = (at + 1) & (m->cap - 1); m->keys[i] != NULL; i = (i + 1) & (m->cap - 1)) {
        const void *k = m->keys[i];
        void *v = m->values[i];
        m->keys[i] = NULL;
        m->values[i] = NULL;
        uint32_t to = layer_map_at(m, k);
        m->keys[to] = k;
        m->values[to] = v;
    }
    return value;
}

static inline void layer_map_free(layer_map *m) {
    m->host->free(m->host, m->keys);
    m->host->free(m->host, m->values);
    *m = (layer_map){.host = m->host};
}

// ---- options and the entry ---------------------------------------------------------------------

// The host has checked the type of each value.
static inline int32_t layer_is_on(const pgd_host *host, const char *key, int32_t standard) {
    const char *v = host->option(host, key);
    return v == NULL ? standard
                     : strcmp(v, "on") == 0 || strcmp(v, "true") == 0 || strcmp(v, "1") == 0;
}

static inline int64_t layer_number(const pgd_host *host, const char *key, int64_t standard) {
    const char *v = host->option(host, key);
    return v == NULL ? standard : strtoll(v, NULL, 10);
}

// A layer drives no device of its own.
static inline pgd_status layer_probe(const pgd_host *host, pgd_probe *out) {
    pgd_probe local = {.size = sizeof(local), .reason = "a layer drives no device of its own"};
    (void)host;
    PGD_OUT(out, local);
    return PGD_OK;
}

// A layer's backend is its device: one for each open.
static inline pgd_status layer_open_device(void *backend, uint32_t i, const pgd_device *next,
                                           void **out_self) {
    (void)i;
    (void)next;
    *out_self = backend;
    return PGD_OK;
}

// The description of a layer with an array `options`.
#define LAYER_PLUGIN(kind, open_fn, close_fn)                                          \
    {                                                                                  \
        .size = sizeof(pgd_plugin), .abi_minor = PGD_ABI_MINOR, .min_host_minor = 1,   \
        .role = PGD_ROLE_LAYER, .n_options = sizeof(options) / sizeof(options[0]),     \
        .option_stride = sizeof(options[0]), .abi_hash = PGD_ABI_HASH, .name = (kind), \
        .vendor = "pagoda", .version = "0.1.0", .build = "", .options = options,       \
        .probe = layer_probe, .open = (open_fn), .close = (close_fn),                  \
    }

#endif
