// Reader of one safetensors file in memory (see safetensors.h for the picture and the rules).
//
// Order of the checks: header length against the file and the cap, JSON, each entry (dtype, shape,
// range, size), then all entries together: names by sorting, ranges by sorting.
#include "load/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/fields.h"

// X(name in files, bits per element, pagoda's dtype)
#define DTYPE_LIST(X)                   \
    X("BOOL", 8, PGD_DTYPE_NONE)        \
    X("F4", 4, PGD_DTYPE_NONE)          \
    X("F6_E2M3", 6, PGD_DTYPE_NONE)     \
    X("F6_E3M2", 6, PGD_DTYPE_NONE)     \
    X("U8", 8, PGD_DTYPE_NONE)          \
    X("I8", 8, PGD_DTYPE_NONE)          \
    X("F8_E5M2", 8, PGD_DTYPE_NONE)     \
    X("F8_E4M3", 8, PGD_DTYPE_NONE)     \
    X("F8_E8M0", 8, PGD_DTYPE_NONE)     \
    X("F8_E4M3FNUZ", 8, PGD_DTYPE_NONE) \
    X("F8_E5M2FNUZ", 8, PGD_DTYPE_NONE) \
    X("I16", 16, PGD_DTYPE_NONE)        \
    X("U16", 16, PGD_DTYPE_NONE)        \
    X("F16", 16, PGD_F16)               \
    X("BF16", 16, PGD_BF16)             \
    X("I32", 32, PGD_I32)               \
    X("U32", 32, PGD_DTYPE_NONE)        \
    X("F32", 32, PGD_F32)               \
    X("C64", 64, PGD_DTYPE_NONE)        \
    X("F64", 64, PGD_DTYPE_NONE)        \
    X("I64", 64, PGD_DTYPE_NONE)        \
    X("U64", 64, PGD_DTYPE_NONE)

// A tensor's bytes in the data, for the check of holes and overlaps.
typedef struct extent {
    uint64_t begin;
    uint64_t end;
    uint32_t tensor;
} extent;

int32_t pgd_load_safetensors_dtype(pgd_str stored, const char **out_name, uint32_t *out_bits,
                                   int32_t *out_dtype) {
    static const struct {
        const char *name;
        uint32_t bits;
        int32_t dtype;
    } list[] = {
#define DTYPE_ROW(name, bits, dtype) {name, bits, dtype},
        DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
    };
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        if (pgd_str_is(stored, list[i].name)) {
            *out_name = list[i].name;
            *out_bits = list[i].bits;
            *out_dtype = list[i].dtype;
            return 1;
        }
    }
    return 0;
}

static pgd_status damaged(const char *file, pgd_str tensor, const char *why) {
    return pgd_fail(PGD_DATA_LOSS, "%s: damaged: tensor \"%.*s\": %s", file, PGD_LOAD_SHOW(tensor),
                    why);
}

static pgd_status no_memory(const char *file) {
    return pgd_fail(PGD_OUT_OF_MEMORY, "no memory for the list of tensors of %s", file);
}

// Finds dtype, shape and data_offsets of an entry, each exactly once; other keys are let be.
static pgd_status entry_values(const char *file, pgd_str name, const pgd_json *entry,
                               const pgd_json *out[3]) {
    static const char *const keys[3] = {"dtype", "shape", "data_offsets"};
    static const int32_t kinds[3] = {PGD_JSON_STRING, PGD_JSON_ARRAY, PGD_JSON_ARRAY};
    if (!pgd_json_is(entry, PGD_JSON_OBJECT)) {
        return damaged(file, name, "its header entry is no object");
    }
    for (uint32_t k = 0; k < 3; k++) {
        out[k] = NULL;
        for (uint32_t i = 0; i < entry->n; i++) {
            if (!pgd_str_is(entry->keys[i], keys[k])) {
                continue;
            }
            if (out[k] != NULL) {
                return damaged(file, name, "a key of its header entry appears twice");
            }
            out[k] = &entry->items[i];
        }
        if (!pgd_json_is(out[k], kinds[k])) {
            return damaged(file, name,
                           "its header entry lacks dtype (string), shape (array) or data_offsets "
                           "(array)");
        }
    }
    return PGD_OK;
}

static int32_t to_u64(const pgd_json *v, uint64_t *out) {
    int64_t i = 0;
    if (pgd_json_is(v, PGD_JSON_UINT)) {
        *out = v->u;
        return 1;
    }
    if (!pgd_json_is(v, PGD_JSON_INT)) {
        return 0;
    }
    i = v->i;
    *out = (uint64_t)i;
    return i >= 0;
}

// Reads the shape into t and the number of elements into *out_count.
static pgd_status read_shape(const char *file, const pgd_json *shape, pgd_load_tensor *t,
                             uint64_t *out_count) {
    uint64_t count = 1;
    if (shape->n > PGD_LOAD_SAFETENSORS_MAX_RANK) {
        return damaged(file, t->name, "it has more than 16 dimensions");
    }
    t->rank = shape->n;
    for (uint32_t i = 0; i < shape->n; i++) {
        uint64_t dim = 0;
        if (!to_u64(&shape->items[i], &dim) || dim > INT64_MAX) {
            return damaged(file, t->name, "a dimension is no integer of at least 0");
        }
        if (!pgd_size_mul(count, dim, &count)) {
            return damaged(file, t->name, "its shape overflows 64 bits");
        }
        if (i < PGD_MAX_RANK) {
            t->shape[i] = (int64_t)dim;
        }
    }
    *out_count = count;
    return PGD_OK;
}

// Checks one entry; data is the buffer behind the header.
static pgd_status read_entry(const char *file, const pgd_json *entry, const uint8_t *data,
                             uint64_t data_bytes, pgd_load_tensor *t, extent *e) {
    const pgd_json *values[3];
    uint32_t bits = 0;
    uint64_t count = 0;
    uint64_t need_bits = 0;
    PGD_TRY(entry_values(file, t->name, entry, values));
    if (!pgd_load_safetensors_dtype(values[0]->str, &t->stored, &bits, &t->dtype)) {
        return pgd_fail(PGD_DATA_LOSS, "%s: damaged: tensor \"%.*s\": dtype \"%.*s\" is not known",
                        file, PGD_LOAD_SHOW(t->name), PGD_LOAD_SHOW(values[0]->str));
    }
    PGD_TRY(read_shape(file, values[1], t, &count));
    if (values[2]->n != 2 || !to_u64(&values[2]->items[0], &e->begin) ||
        !to_u64(&values[2]->items[1], &e->end)) {
        return damaged(file, t->name, "data_offsets are not two integers of at least 0");
    }
    if (e->begin > e->end || e->end > data_bytes) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: damaged or cut short: tensor \"%.*s\" lies at bytes %llu to %llu of "
                        "%llu bytes of data",
                        file, PGD_LOAD_SHOW(t->name), (unsigned long long)e->begin,
                        (unsigned long long)e->end, (unsigned long long)data_bytes);
    }
    if (!pgd_size_mul(count, bits, &need_bits)) {
        return damaged(file, t->name, "its size overflows 64 bits");
    }
    if (need_bits % 8 != 0 || need_bits / 8 != e->end - e->begin) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: damaged: tensor \"%.*s\": %llu elements of %s do not fill its %llu "
                        "bytes",
                        file, PGD_LOAD_SHOW(t->name), (unsigned long long)count, t->stored,
                        (unsigned long long)(e->end - e->begin));
    }
    t->bytes = e->end - e->begin;
    t->ptr = t->bytes != 0 ? data + e->begin : NULL;
    t->file = file;
    return PGD_OK;
}

static pgd_status check_metadata(const char *file, const pgd_json *v) {
    int32_t good = pgd_json_is(v, PGD_JSON_OBJECT);
    for (uint32_t i = 0; good && i < v->n; i++) {
        good = pgd_json_is(&v->items[i], PGD_JSON_STRING);
    }
    if (!good) {
        return pgd_fail(PGD_DATA_LOSS, "%s: damaged: __metadata__ is no object of strings", file);
    }
    return PGD_OK;
}

static int extent_order(const void *left, const void *right) {
    const extent *a = left;
    const extent *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end < b->end ? -1 : 1;
    }
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

// The ranges, sorted, must tile the data.
static pgd_status check_tiling(const char *file, const pgd_load_safetensors *s, extent *extents) {
    uint64_t at = 0;
    if (s->n != 0) {
        qsort(extents, s->n, sizeof(*extents), extent_order);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        pgd_str name = s->tensors[extents[i].tensor].name;
        if (extents[i].begin < at) {
            return damaged(file, name, "its bytes overlap those of another tensor");
        }
        if (extents[i].begin > at) {
            return damaged(file, name, "there is a hole in the data before it");
        }
        at = extents[i].end;
    }
    if (at != s->data_bytes) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: damaged: the tensors end at byte %llu of %llu bytes of data", file,
                        (unsigned long long)at, (unsigned long long)s->data_bytes);
    }
    return PGD_OK;
}

int32_t pgd_load_safetensors_compare(pgd_str a, pgd_str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n != 0 ? memcmp(a.ptr, b.ptr, n) : 0;
    if (order != 0) {
        return order < 0 ? -1 : 1;
    }
    return a.len < b.len ? -1 : a.len > b.len;
}

static int name_order(const void *left, const void *right) {
    const pgd_load_tensor *const *a = left;
    const pgd_load_tensor *const *b = right;
    return pgd_load_safetensors_compare((*a)->name, (*b)->name);
}

static pgd_status check_names(const char *file, pgd_load_safetensors *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        s->by_name[i] = &s->tensors[i];
    }
    if (s->n != 0) {
        qsort(s->by_name, s->n, sizeof(s->by_name[0]), name_order);
    }
    for (uint32_t i = 1; i < s->n; i++) {
        if (pgd_str_equal(s->by_name[i - 1]->name, s->by_name[i]->name)) {
            return damaged(file, s->by_name[i]->name, "the name appears twice");
        }
    }
    return PGD_OK;
}

const pgd_load_tensor *pgd_load_safetensors_find(const pgd_load_safetensors *s, pgd_str name) {
    return pgd_load_weights_search(s->by_name, s->n, name);
}

// Reads all entries of the header into s->tensors and extents.
static pgd_status read_entries(const char *file, const pgd_json *root, const uint8_t *data,
                               pgd_load_safetensors *s, extent *extents) {
    for (uint32_t i = 0; i < root->n; i++) {
        if (pgd_str_is(root->keys[i], "__metadata__")) {
            PGD_TRY(check_metadata(file, &root->items[i]));
            continue;
        }
        s->tensors[s->n].name = root->keys[i];
        extents[s->n].tensor = s->n;
        PGD_TRY(read_entry(file, &root->items[i], data, s->data_bytes, &s->tensors[s->n],
                           &extents[s->n]));
        s->n++;
    }
    return PGD_OK;
}

// Parses the header's JSON; a fault of the parser becomes a fault of the file.
static pgd_status parse_header(pgd_str text, const char *file, pgd_json_doc **out) {
    pgd_status status = pgd_json_parse(text, file, 8, out);
    if (status == PGD_INVALID) {
        pgd_text why = {0};
        status = pgd_text_format(&why, "%s", pgd_fail_text(PGD_INVALID));
        if (status == PGD_OK) {
            status = pgd_fail(PGD_DATA_LOSS, "%s: damaged: the header is no JSON: %s", file,
                              why.ptr != NULL ? why.ptr : "");
        }
        pgd_text_free(&why);
    }
    PGD_TRY(status);
    const pgd_json *root = pgd_json_root(*out); // an object: the text begins with {
    if (root->n > PGD_LOAD_SAFETENSORS_MAX_TENSORS) {
        return pgd_fail(PGD_DATA_LOSS, "%s: %lu tensors; at most %lu are allowed", file,
                        (unsigned long)root->n, (unsigned long)PGD_LOAD_SAFETENSORS_MAX_TENSORS);
    }
    return PGD_OK;
}

// Length of the header, checked against the file.
static pgd_status header_bytes(const uint8_t *bytes, uint64_t n_bytes, const char *file,
                               uint64_t *out) {
    uint64_t n = 0;
    if (n_bytes < 8) {
        return pgd_fail(PGD_DATA_LOSS, "%s: cut short: %llu bytes are no safetensors file", file,
                        (unsigned long long)n_bytes);
    }
    for (uint32_t i = 0; i < 8; i++) {
        n |= (uint64_t)bytes[i] << (8 * i);
    }
    if (n > PGD_LOAD_SAFETENSORS_MAX_HEADER) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: no safetensors file, or damaged: the header is said to have %llu "
                        "bytes; at most %lu are allowed",
                        file, (unsigned long long)n,
                        (unsigned long)PGD_LOAD_SAFETENSORS_MAX_HEADER);
    }
    if (n > n_bytes - 8) {
        return pgd_fail(PGD_DATA_LOSS,
                        "%s: cut short: a header of %llu bytes in a file of %llu bytes", file,
                        (unsigned long long)n, (unsigned long long)n_bytes);
    }
    if (n == 0 || bytes[8] != '{') {
        return pgd_fail(PGD_DATA_LOSS, "%s: damaged: the header does not begin with {", file);
    }
    *out = n;
    return PGD_OK;
}

pgd_status pgd_load_safetensors_parse(const void *bytes, uint64_t n_bytes, const char *file,
                                      pgd_load_safetensors *out) {
    const uint8_t *from = bytes;
    pgd_load_safetensors s = {0};
    extent *extents = NULL;
    uint64_t n_header = 0;
    pgd_status status = PGD_OK;
    *out = s;
    PGD_TRY(header_bytes(from, n_bytes, file, &n_header));
    s.data_bytes = n_bytes - 8 - n_header;
    status = parse_header((pgd_str){(const char *)from + 8, (size_t)n_header}, file, &s.header);
    if (status != PGD_OK) {
        goto done;
    }
    uint32_t n_entries = pgd_json_root(s.header)->n;
    s.tensors = pgd_mem_alloc(n_entries, sizeof(*s.tensors));
    s.by_name = pgd_mem_alloc(n_entries, sizeof(s.by_name[0]));
    extents = pgd_mem_alloc(n_entries, sizeof(*extents));
    if (s.tensors == NULL || s.by_name == NULL || extents == NULL) {
        status = no_memory(file);
        goto done;
    }
    status = read_entries(file, pgd_json_root(s.header), from + 8 + n_header, &s, extents);
    if (status == PGD_OK) {
        status = check_names(file, &s);
    }
    if (status == PGD_OK) {
        status = check_tiling(file, &s, extents);
    }
done:
    pgd_mem_free(extents);
    if (status != PGD_OK) {
        pgd_load_safetensors_free(&s);
        return status;
    }
    *out = s;
    return PGD_OK;
}

void pgd_load_safetensors_free(pgd_load_safetensors *s) {
    pgd_mem_free(s->by_name);
    pgd_mem_free(s->tensors);
    pgd_json_free(s->header);
    *s = (pgd_load_safetensors){0};
}
