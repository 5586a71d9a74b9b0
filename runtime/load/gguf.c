// Reader of one GGUF file in memory (see gguf.h for the picture and the rules).
//
// Order of the checks: magic and version, counts against the bytes that are left, each value, each
// tensor's info, then all tensors together: names and keys by sorting, ranges by sorting.
#include "load/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/mem.h"
#include "load/fields.h"
#include "load/gguf_inner.h"
#include "load/safetensors.h"

#define LEAST_VALUE  (8 + 4 + 1)         // bytes of the shortest value: key, type, u8
#define LEAST_TENSOR (8 + 4 + 8 + 4 + 8) // of the shortest tensor info
#define LEAST_ALIGN  8u
#define ALIGN        32u

// A tensor's bytes in the data, for the check of overlaps.
typedef struct extent {
    uint64_t begin;
    uint64_t end;
    uint32_t tensor;
} extent;

// Reads from the front of the file; `what` names the part for sentences.
typedef struct reader {
    const uint8_t *bytes;
    uint64_t n;
    uint64_t at;
    const char *file;
    const char *what;
} reader;

int32_t pgd_load_gguf_is(const char *path) {
    return pgd_str_ends(pgd_str_of(path), PGD_STR(".gguf"));
}

static pgd_status damaged(const char *file, const char *kind, pgd_str name, const char *why) {
    return pgd_fail(PGD_DATA_LOSS, "%s: damaged: %s \"%.*s\": %s", file, kind, PGD_LOAD_SHOW(name),
                    why);
}

static pgd_status cut_short(const reader *r) {
    return pgd_fail(PGD_DATA_LOSS, "%s: cut short or damaged: %s at byte %llu runs beyond the end",
                    r->file, r->what, (unsigned long long)r->at);
}

uint64_t pgd_load_gguf_little(const uint8_t *p, uint32_t n) {
    uint64_t v = 0;
    for (uint32_t i = 0; i < n; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

// An unsigned number of n bytes.
static pgd_status take(reader *r, uint32_t n, uint64_t *out) {
    *out = 0;
    if (r->n - r->at < n) {
        return cut_short(r);
    }
    *out = pgd_load_gguf_little(r->bytes + r->at, n);
    r->at += n;
    return PGD_OK;
}

static pgd_status take_name(reader *r, pgd_str *out) {
    uint64_t n = 0;
    PGD_TRY(take(r, 8, &n));
    if (n > PGD_LOAD_GGUF_MAX_NAME) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: damaged: %s at byte %llu has %llu bytes of name; at "
                        "most %u are allowed",
                        r->file, r->what, (unsigned long long)r->at, (unsigned long long)n,
                        PGD_LOAD_GGUF_MAX_NAME);
    }
    if (r->n - r->at < n) {
        return cut_short(r);
    }
    *out = (pgd_str){(const char *)r->bytes + r->at, (size_t)n};
    r->at += n;
    return PGD_OK;
}

// ---- values ------------------------------------------------------------------------------------

// Skips the elements of v, checking each.
static pgd_status skip_elements(reader *r, const pgd_load_gguf_value *v) {
    const uint32_t item = pgd_load_gguf_item(v->type);
    uint64_t bytes = 0;
    if (v->type != PGD_GGUF_STRING) {
        if (!pgd_size_mul(v->n, item, &bytes) || bytes > r->n - r->at) {
            return cut_short(r);
        }
        r->at += bytes;
        return PGD_OK;
    }
    if (v->n > (r->n - r->at) / 8) {
        return cut_short(r);
    }
    for (uint64_t i = 0; i < v->n; i++) {
        PGD_TRY(take(r, 8, &bytes));
        if (bytes > r->n - r->at) {
            return cut_short(r);
        }
        r->at += bytes;
    }
    return PGD_OK;
}

static pgd_status read_value(reader *r, pgd_load_gguf_value *v) {
    uint64_t n = 0;
    PGD_TRY(take_name(r, &v->key));
    PGD_TRY(take(r, 4, &n));
    v->n = 1;
    v->is_array = n == PGD_GGUF_ARRAY;
    if (v->is_array) {
        PGD_TRY(take(r, 4, &n));
        PGD_TRY(take(r, 8, &v->n));
    }
    v->type = (uint32_t)n;
    if (v->type != PGD_GGUF_STRING && pgd_load_gguf_item(v->type) == 0) {
        return pgd_fail(PGD_DATA_LOSS, "%s: damaged: value \"%.*s\" has the unknown type %u",
                        r->file, PGD_LOAD_SHOW(v->key), v->type);
    }
    v->ptr = r->bytes + r->at;
    uint64_t from = r->at;
    PGD_TRY(skip_elements(r, v));
    v->bytes = r->at - from;
    return PGD_OK;
}

static int key_order(const void *left, const void *right) {
    const pgd_load_gguf_value *a = left;
    const pgd_load_gguf_value *b = right;
    return pgd_load_safetensors_compare(a->key, b->key);
}

static pgd_status read_values(reader *r, pgd_load_gguf *g) {
    r->what = "a value";
    for (uint32_t i = 0; i < g->n_values; i++) {
        PGD_TRY(read_value(r, &g->values[i]));
    }
    if (g->n_values != 0) {
        qsort(g->values, g->n_values, sizeof(*g->values), key_order);
    }
    for (uint32_t i = 1; i < g->n_values; i++) {
        if (pgd_str_equal(g->values[i - 1].key, g->values[i].key)) {
            return damaged(g->file, "value", g->values[i].key, "the key appears twice");
        }
    }
    return PGD_OK;
}

// ---- tensors -----------------------------------------------------------------------------------

// Shape in this tree's order (outermost first); *out_count: elements, *row: of the innermost.
static pgd_status read_shape(reader *r, pgd_load_tensor *t, uint64_t *out_count, uint64_t *row) {
    uint64_t rank = 0, dim = 0, count = 1;
    PGD_TRY(take(r, 4, &rank));
    if (rank < 1 || rank > PGD_MAX_RANK) {
        return damaged(r->file, "tensor", t->name, "its rank is not 1 to 4");
    }
    t->rank = (uint32_t)rank;
    for (uint32_t i = 0; i < t->rank; i++) {
        PGD_TRY(take(r, 8, &dim));
        if (dim == 0 || dim > INT64_MAX || !pgd_size_mul(count, dim, &count)) {
            return damaged(r->file, "tensor", t->name,
                           "a dimension is 0 or the shape overflows 64 bits");
        }
        t->shape[t->rank - 1 - i] = (int64_t)dim;
        *row = i == 0 ? dim : *row;
    }
    *out_count = count;
    return PGD_OK;
}

// Type, size and place in the data; the data's end is checked later.
static pgd_status read_tensor(reader *r, pgd_load_gguf *g, pgd_load_tensor *t, extent *e) {
    uint64_t count = 0, row = 0, number = 0;
    pgd_str name;
    PGD_TRY(take_name(r, &name));
    t->name = pgd_arena_copy(g->names, name);
    if (t->name.ptr == NULL) {
        return PGD_MEM_FAIL("the name of a tensor", name.len);
    }
    PGD_TRY(read_shape(r, t, &count, &row));
    PGD_TRY(take(r, 4, &number));
    PGD_TRY(take(r, 8, &e->begin));
    const pgd_load_gguf_type *type = pgd_load_gguf_type_of((uint32_t)number);
    if (type == NULL) {
        return pgd_fail(PGD_UNSUPPORTED,
                        "%s: tensor \"%.*s\" has the unknown type %llu; " PGD_LOAD_GGUF_TYPES
                        " are computed with",
                        r->file, PGD_LOAD_SHOW(t->name), (unsigned long long)number);
    }
    if (row % type->elements != 0) {
        return pgd_fail(
            PGD_DATA_LOSS,
            "%s: damaged: tensor \"%.*s\": rows of %llu elements are no whole blocks of "
            "%s, which have %u",
            r->file, PGD_LOAD_SHOW(t->name), (unsigned long long)row, type->name, type->elements);
    }
    if (!pgd_size_mul(count / type->elements, type->bytes, &t->bytes) ||
        !pgd_size_add(e->begin, t->bytes, &e->end)) {
        return damaged(r->file, "tensor", t->name, "its size overflows 64 bits");
    }
    t->scheme = type->scheme;
    t->dtype = type->dtype;
    t->stored = type->name;
    t->file = r->file;
    return PGD_OK;
}

static int extent_order(const void *left, const void *right) {
    const extent *a = left;
    const extent *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

// Places the tensors in the data, which begins at the next multiple of the alignment.
static pgd_status place(const reader *r, pgd_load_gguf *g, extent *extents) {
    int64_t align = ALIGN;
    PGD_TRY(
        pgd_load_gguf_int(g, "general.alignment", LEAST_ALIGN, PGD_LOAD_GGUF_MAX_ALIGN, &align));
    if ((align & (align - 1)) != 0) {
        return pgd_fail(PGD_DATA_LOSS, "%s: damaged: general.alignment is %lld, no power of two",
                        r->file, (long long)align);
    }
    uint64_t mask = (uint64_t)align - 1;
    uint64_t begin = (r->at + mask) & ~mask;
    begin = begin > r->n && g->n == 0 ? r->n : begin;
    if (begin > r->n) {
        return pgd_fail(PGD_DATA_LOSS, "%s: cut short: no byte of data behind the header", r->file);
    }
    g->header_bytes = begin;
    for (uint32_t i = 0; i < g->n; i++) {
        pgd_load_tensor *t = &g->tensors[i];
        if ((extents[i].begin & mask) != 0) {
            return damaged(r->file, "tensor", t->name,
                           "its offset is no multiple of the alignment");
        }
        if (extents[i].end > r->n - begin) {
            return pgd_fail(PGD_DATA_LOSS,
                            "%s: damaged or cut short: tensor \"%.*s\" lies at bytes %llu to %llu "
                            "of %llu bytes of data",
                            r->file, PGD_LOAD_SHOW(t->name), (unsigned long long)extents[i].begin,
                            (unsigned long long)extents[i].end, (unsigned long long)(r->n - begin));
        }
        t->ptr = r->bytes + begin + extents[i].begin;
    }
    if (g->n != 0) {
        qsort(extents, g->n, sizeof(*extents), extent_order);
    }
    for (uint32_t i = 1; i < g->n; i++) {
        if (extents[i].begin < extents[i - 1].end) {
            return damaged(r->file, "tensor", g->tensors[extents[i].tensor].name,
                           "its bytes overlap those of another tensor");
        }
    }
    return PGD_OK;
}

static int name_order(const void *left, const void *right) {
    const pgd_load_tensor *const *a = left;
    const pgd_load_tensor *const *b = right;
    return pgd_load_safetensors_compare((*a)->name, (*b)->name);
}

static pgd_status sort_names(pgd_load_gguf *g) {
    for (uint32_t i = 0; i < g->n; i++) {
        g->by_name[i] = &g->tensors[i];
    }
    if (g->n != 0) {
        qsort(g->by_name, g->n, sizeof(g->by_name[0]), name_order);
    }
    for (uint32_t i = 1; i < g->n; i++) {
        if (pgd_str_equal(g->by_name[i - 1]->name, g->by_name[i]->name)) {
            return damaged(g->file, "tensor", g->by_name[i]->name, "the name appears twice");
        }
    }
    return PGD_OK;
}

static pgd_status read_tensors(reader *r, pgd_load_gguf *g) {
    extent *extents = pgd_mem_alloc(g->n, sizeof(*extents));
    pgd_status status = extents == NULL ? PGD_MEM_FAIL("the tensors' places", g->n) : PGD_OK;
    r->what = "a tensor";
    for (uint32_t i = 0; status == PGD_OK && i < g->n; i++) {
        extents[i].tensor = i;
        status = read_tensor(r, g, &g->tensors[i], &extents[i]);
    }
    if (status == PGD_OK) {
        status = place(r, g, extents);
    }
    pgd_mem_free(extents);
    return status == PGD_OK ? sort_names(g) : status;
}

// ---- the file ----------------------------------------------------------------------------------

static pgd_status read_front(reader *r, uint64_t *n_tensors, uint64_t *n_values) {
    uint64_t magic = 0, version = 0;
    r->what = "the front";
    PGD_TRY(take(r, 4, &magic));
    PGD_TRY(take(r, 4, &version));
    if (magic != 0x46554747u) {
        return pgd_fail(PGD_DATA_LOSS, "%s: no GGUF file: it does not begin with \"GGUF\"",
                        r->file);
    }
    if (version == 0x03000000u || version == 0x02000000u) {
        return pgd_fail(PGD_UNSUPPORTED, "%s: a big-endian GGUF file; only little-endian is read",
                        r->file);
    }
    if (version != 2 && version != 3) {
        return pgd_fail(PGD_UNSUPPORTED, "%s: GGUF version %llu; 2 and 3 are read", r->file,
                        (unsigned long long)version);
    }
    PGD_TRY(take(r, 8, n_tensors));
    PGD_TRY(take(r, 8, n_values));
    if (*n_tensors > PGD_LOAD_GGUF_MAX_TENSORS || *n_values > PGD_LOAD_GGUF_MAX_VALUES ||
        *n_tensors * LEAST_TENSOR + *n_values * LEAST_VALUE > r->n - r->at) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: damaged or cut short: %llu tensors and %llu values in a file of %llu "
                        "bytes; at most %u and %u are allowed",
                        r->file, (unsigned long long)*n_tensors, (unsigned long long)*n_values,
                        (unsigned long long)r->n, PGD_LOAD_GGUF_MAX_TENSORS,
                        PGD_LOAD_GGUF_MAX_VALUES);
    }
    return PGD_OK;
}

static pgd_status read_all(reader *r, pgd_load_gguf *g) {
    uint64_t n_tensors = 0, n_values = 0;
    PGD_TRY(read_front(r, &n_tensors, &n_values));
    PGD_TRY(pgd_arena_create(0, &g->names));
    g->n_values = (uint32_t)n_values;
    g->n = (uint32_t)n_tensors;
    g->values = pgd_mem_alloc(n_values, sizeof(*g->values));
    g->tensors = pgd_mem_alloc(n_tensors, sizeof(*g->tensors));
    g->by_name = pgd_mem_alloc(n_tensors, sizeof(g->by_name[0]));
    if (g->values == NULL || g->tensors == NULL || g->by_name == NULL) {
        return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for the list of tensors of %s", r->file);
    }
    PGD_TRY(read_values(r, g));
    return read_tensors(r, g);
}

pgd_status pgd_load_gguf_parse(const void *bytes, uint64_t n_bytes, const char *file,
                               pgd_load_gguf *out) {
    reader r = {.bytes = bytes, .n = n_bytes, .file = file};
    *out = (pgd_load_gguf){.file = file};
    pgd_status status = read_all(&r, out);
    if (status != PGD_OK) {
        pgd_load_gguf_free(out);
    }
    return status;
}

void pgd_load_gguf_free(pgd_load_gguf *g) {
    pgd_mem_free(g->values);
    pgd_mem_free(g->tensors);
    pgd_mem_free(g->by_name);
    pgd_arena_destroy(g->names);
    *g = (pgd_load_gguf){0};
}

const pgd_load_tensor *pgd_load_gguf_find(const pgd_load_gguf *g, pgd_str name) {
    return pgd_load_weights_search(g->by_name, g->n, name);
}
