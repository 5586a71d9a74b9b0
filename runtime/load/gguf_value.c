// Typed reads of a GGUF file's values, and the tensor types of ggml (see gguf.h).
#include <string.h>

#include "base/fail.h"
#include "load/fields.h"
#include "load/gguf_inner.h"
#include "load/safetensors.h"

// X(name, number, elements of a block, bytes of a block, scheme, dtype)
#define TYPE_LIST(X)                                \
    X("F32", 0, 1, 4, PGD_SCHEME_PLAIN, PGD_F32)    \
    X("F16", 1, 1, 2, PGD_SCHEME_PLAIN, PGD_F16)    \
    X("Q4_0", 2, 32, 18, PGD_SCHEME_Q4_0, 0)        \
    X("Q4_1", 3, 32, 20, PGD_SCHEME_Q4_1, 0)        \
    X("Q5_0", 6, 32, 22, PGD_SCHEME_Q5_0, 0)        \
    X("Q5_1", 7, 32, 24, PGD_SCHEME_Q5_1, 0)        \
    X("Q8_0", 8, 32, 34, PGD_SCHEME_Q8_0, 0)        \
    X("Q8_1", 9, 32, 36, -1, 0)                     \
    X("Q2_K", 10, 256, 84, PGD_SCHEME_Q2_K, 0)      \
    X("Q3_K", 11, 256, 110, PGD_SCHEME_Q3_K, 0)     \
    X("Q4_K", 12, 256, 144, PGD_SCHEME_Q4_K, 0)     \
    X("Q5_K", 13, 256, 176, PGD_SCHEME_Q5_K, 0)     \
    X("Q6_K", 14, 256, 210, PGD_SCHEME_Q6_K, 0)     \
    X("Q8_K", 15, 256, 292, -1, 0)                  \
    X("IQ2_XXS", 16, 256, 66, -1, 0)                \
    X("IQ2_XS", 17, 256, 74, -1, 0)                 \
    X("IQ3_XXS", 18, 256, 98, -1, 0)                \
    X("IQ1_S", 19, 256, 50, -1, 0)                  \
    X("IQ4_NL", 20, 32, 18, PGD_SCHEME_IQ4_NL, 0)   \
    X("IQ3_S", 21, 256, 110, -1, 0)                 \
    X("IQ2_S", 22, 256, 82, -1, 0)                  \
    X("IQ4_XS", 23, 256, 136, -1, 0)                \
    X("I8", 24, 1, 1, -1, 0)                        \
    X("I16", 25, 1, 2, -1, 0)                       \
    X("I32", 26, 1, 4, -1, 0)                       \
    X("I64", 27, 1, 8, -1, 0)                       \
    X("F64", 28, 1, 8, -1, 0)                       \
    X("IQ1_M", 29, 256, 56, -1, 0)                  \
    X("BF16", 30, 1, 2, PGD_SCHEME_PLAIN, PGD_BF16) \
    X("TQ1_0", 34, 256, 54, -1, 0)                  \
    X("TQ2_0", 35, 256, 66, -1, 0)                  \
    X("MXFP4", 39, 32, 17, PGD_SCHEME_MXFP4, 0)     \
    X("NVFP4", 40, 64, 36, -1, 0)

static const pgd_load_gguf_type types[] = {
#define TYPE_ROW(name, number, elements, bytes, scheme, dtype) \
    {name, number, elements, bytes, scheme, dtype},
    TYPE_LIST(TYPE_ROW)
#undef TYPE_ROW
};

#define N_TYPES (sizeof(types) / sizeof(types[0]))

const pgd_load_gguf_type *pgd_load_gguf_type_of(uint32_t number) {
    for (size_t i = 0; i < N_TYPES; i++) {
        if (types[i].number == number) {
            return &types[i];
        }
    }
    return NULL;
}

const pgd_load_gguf_type *pgd_load_gguf_type_for(int32_t scheme, int32_t dtype) {
    for (size_t i = 0; i < N_TYPES; i++) {
        if (types[i].scheme == scheme && (scheme != PGD_SCHEME_PLAIN || types[i].dtype == dtype)) {
            return &types[i];
        }
    }
    return NULL;
}

uint32_t pgd_load_gguf_item(uint32_t type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof(bytes) ? bytes[type] : 0;
}

const pgd_load_gguf_value *pgd_load_gguf_get(const pgd_load_gguf *g, const char *key) {
    pgd_str wanted = pgd_str_of(key);
    uint32_t low = 0;
    uint32_t high = g->n_values;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int32_t order = pgd_load_safetensors_compare(g->values[middle].key, wanted);
        if (order == 0) {
            return &g->values[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

// ---- elements ----------------------------------------------------------------------------------

// The next fixed-size element, NULL at the end.
static const uint8_t *next_item(pgd_load_gguf_walk *w) {
    const pgd_load_gguf_value *v = w->value;
    if (v == NULL || w->i >= v->n || v->type == PGD_GGUF_STRING) {
        return NULL;
    }
    const uint8_t *p = v->ptr + w->at;
    w->i++;
    w->at += pgd_load_gguf_item(v->type);
    return p;
}

static double to_double(const uint8_t *p, uint32_t type) {
    uint64_t bits = pgd_load_gguf_little(p, pgd_load_gguf_item(type));
    double wide = 0;
    float narrow = 0;
    if (type == PGD_GGUF_F64) {
        memcpy(&wide, &bits, sizeof(wide));
        return wide;
    }
    uint32_t low = (uint32_t)bits;
    memcpy(&narrow, &low, sizeof(narrow));
    return (double)narrow;
}

int32_t pgd_load_gguf_next_int(pgd_load_gguf_walk *w, int64_t *out) {
    if (w->value == NULL || w->value->type == PGD_GGUF_F32 || w->value->type == PGD_GGUF_F64 ||
        w->value->type == PGD_GGUF_BOOL) {
        return 0;
    }
    const uint32_t type = w->value->type;
    const uint8_t *p = next_item(w);
    if (p == NULL) {
        return 0;
    }
    uint64_t bits = pgd_load_gguf_little(p, pgd_load_gguf_item(type));
    switch (type) {
    case PGD_GGUF_I8: *out = (int8_t)(uint8_t)bits; break;
    case PGD_GGUF_I16: *out = (int16_t)(uint16_t)bits; break;
    case PGD_GGUF_I32: *out = (int32_t)(uint32_t)bits; break;
    case PGD_GGUF_U64: *out = bits > INT64_MAX ? INT64_MAX : (int64_t)bits; break;
    default: *out = (int64_t)bits; break;
    }
    return 1;
}

int32_t pgd_load_gguf_next_float(pgd_load_gguf_walk *w, double *out) {
    int64_t i = 0;
    if (w->value == NULL || (w->value->type != PGD_GGUF_F32 && w->value->type != PGD_GGUF_F64)) {
        int32_t found = pgd_load_gguf_next_int(w, &i);
        *out = found ? (double)i : *out;
        return found;
    }
    const uint8_t *p = next_item(w);
    *out = p != NULL ? to_double(p, w->value->type) : *out;
    return p != NULL;
}

int32_t pgd_load_gguf_next_str(pgd_load_gguf_walk *w, pgd_str *out) {
    const pgd_load_gguf_value *v = w->value;
    if (v == NULL || v->type != PGD_GGUF_STRING || w->i >= v->n) {
        return 0;
    }
    uint64_t n = pgd_load_gguf_little(v->ptr + w->at, 8);
    *out = (pgd_str){(const char *)v->ptr + w->at + 8, (size_t)n};
    w->i++;
    w->at += 8 + n;
    return 1;
}

// ---- single values -----------------------------------------------------------------------------

static pgd_status wrong(const pgd_load_gguf *g, const char *key, const char *needed) {
    return pgd_fail(PGD_INVALID, "%s: the value \"%s\" is no %s", g->file, key, needed);
}

// A walk over a value that is no array; value NULL when the key is missing.
static int32_t single(const pgd_load_gguf *g, const char *key, pgd_load_gguf_walk *w) {
    *w = (pgd_load_gguf_walk){.value = pgd_load_gguf_get(g, key)};
    return w->value != NULL;
}

pgd_status pgd_load_gguf_int(const pgd_load_gguf *g, const char *key, int64_t min, int64_t max,
                             int64_t *io) {
    pgd_load_gguf_walk w;
    int64_t v = 0;
    if (!single(g, key, &w)) {
        return PGD_OK;
    }
    if (w.value->is_array || !pgd_load_gguf_next_int(&w, &v)) {
        return wrong(g, key, "integer");
    }
    if (v < min || v > max) {
        return pgd_fail(PGD_INVALID, "%s: the value \"%s\" is %lld; %lld to %lld is allowed",
                        g->file, key, (long long)v, (long long)min, (long long)max);
    }
    *io = v;
    return PGD_OK;
}

pgd_status pgd_load_gguf_float(const pgd_load_gguf *g, const char *key, double *io) {
    pgd_load_gguf_walk w;
    if (!single(g, key, &w)) {
        return PGD_OK;
    }
    return !w.value->is_array && pgd_load_gguf_next_float(&w, io) ? PGD_OK
                                                                  : wrong(g, key, "number");
}

pgd_status pgd_load_gguf_bool(const pgd_load_gguf *g, const char *key, int32_t *io) {
    pgd_load_gguf_walk w;
    if (!single(g, key, &w)) {
        return PGD_OK;
    }
    if (w.value->is_array || w.value->type != PGD_GGUF_BOOL) {
        return wrong(g, key, "boolean");
    }
    *io = w.value->ptr[0] != 0;
    return PGD_OK;
}

pgd_status pgd_load_gguf_str(const pgd_load_gguf *g, const char *key, pgd_str *io) {
    pgd_load_gguf_walk w;
    if (!single(g, key, &w)) {
        return PGD_OK;
    }
    return !w.value->is_array && pgd_load_gguf_next_str(&w, io) ? PGD_OK : wrong(g, key, "string");
}
