// Reading: the tree of a document and how to ask it.
//
// simdjson refuses integers beyond 64 bits, but files of the field hold them (a tokenizer's
// "model_max_length": 1000000000000000019884624838656). When it complains about a number, each
// whole number that 64 bits cannot hold gets an "e0" and the text is parsed once more: those
// come out as floats.
#include "base/json.h"

#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/json_simdjson.h"
#include "base/mem.h"
#include "os/env.h"
#include "os/file.h"

enum { DEFAULT_DEPTH = 256, MOST_DEPTH = 1024 };
static const uint64_t most_bytes = UINT32_MAX - 4096; // what simdjson takes

struct pgd_json_doc {
    pgd_arena *arena;
    pgd_json root;
};

static void *tree_alloc(void *arg, size_t n, size_t item_bytes) {
    return pgd_arena_alloc(arg, n, item_bytes);
}

static const char *tree_copy(void *arg, const char *bytes, size_t len) {
    return pgd_arena_copy(arg, (pgd_str){bytes, len}).ptr;
}

static int32_t in_number(char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// Whether a run of number characters is a whole number that 64 bits cannot hold.
static int32_t is_big(pgd_str run) {
    int64_t i = 0;
    uint64_t u = 0;
    size_t sign = run.ptr[0] == '-';
    for (size_t k = sign; k < run.len; k++) {
        if (run.ptr[k] < '0' || run.ptr[k] > '9') {
            return 0;
        }
    }
    return run.len - sign >= 19 && !pgd_str_to_i64(run, &i) && !pgd_str_to_u64(run, &u);
}

// Appends text to out, with "e0" behind whole numbers that 64 bits cannot hold.
static pgd_status widen_numbers(pgd_str text, pgd_text *out) {
    size_t done = 0;
    size_t i = 0;
    while (i < text.len) {
        size_t begin = i;
        if (text.ptr[i] == '"') {
            for (i++; i < text.len && text.ptr[i] != '"'; i++) {
                i += text.ptr[i] == '\\';
            }
            i++;
            continue;
        }
        while (i < text.len && in_number(text.ptr[i])) {
            i++;
        }
        if (i == begin) {
            i++;
        } else if (is_big((pgd_str){text.ptr + begin, i - begin})) {
            PGD_TRY(pgd_text_add(out, text.ptr + done, i - done));
            PGD_TRY(pgd_text_add(out, "e0", 2));
            done = i;
        }
    }
    return pgd_text_add(out, text.ptr + done, text.len - done);
}

// Parses a text that PGD_JSON_PADDING readable bytes follow.
static pgd_status parse_padded(pgd_str text, const char *what, uint32_t depth, pgd_json_doc *doc) {
    const pgd_json_memory memory = {.arg = doc->arena, .alloc = tree_alloc, .copy = tree_copy};
    const char *why = "";
    pgd_text wide = {0};
    pgd_status status = PGD_OK;
    int32_t rc = pgd_json_simdjson(text.ptr, text.len, depth, &memory, &doc->root, &why);
    if (rc == PGD_JSON_BIG) {
        status = widen_numbers(text, &wide);
        if (status == PGD_OK) {
            status = pgd_text_reserve(&wide, wide.len + PGD_JSON_PADDING);
        }
        if (status != PGD_OK) {
            goto done;
        }
        memset(wide.ptr + wide.len, 0, PGD_JSON_PADDING);
        rc = pgd_json_simdjson(wide.ptr, wide.len, depth, &memory, &doc->root, &why);
    }
    if (rc == PGD_JSON_NO_MEMORY) {
        status = PGD_MEM_FAIL(what, text.len);
    } else if (rc != PGD_JSON_PARSED) {
        uint32_t line = 0;
        uint32_t column = 0;
        pgd_json_line_at(text, pgd_json_where(text, depth), &line, &column);
        status =
            pgd_fail(PGD_INVALID, "%s: no valid JSON at line %u, column %u (at most %u levels): %s",
                     what, line, column, (unsigned)depth, why);
    }
done:
    pgd_text_free(&wide);
    return status;
}

// Takes the text (a block of pgd_mem_alloc with padding) and frees it.
static pgd_status parse_taken(char *text, size_t len, const char *what, uint32_t max_depth,
                              pgd_json_doc **out) {
    uint32_t depth = max_depth == 0 ? DEFAULT_DEPTH : max_depth;
    pgd_status status = PGD_OK;
    pgd_json_doc *doc = pgd_mem_alloc(1, sizeof(*doc));
    depth = depth > MOST_DEPTH ? MOST_DEPTH : depth;
    if (doc == NULL) {
        status = PGD_MEM_FAIL(what, sizeof(*doc));
        goto done;
    }
    status = pgd_arena_create(0, &doc->arena);
    if (status != PGD_OK) {
        goto done;
    }
    status = parse_padded((pgd_str){text, len}, what, depth, doc);
    if (status != PGD_OK) {
        goto done;
    }
    *out = doc;
    doc = NULL;
done:
    pgd_json_free(doc);
    pgd_mem_free(text);
    return status;
}

// A block for len bytes and the padding.
static pgd_status alloc_padded(uint64_t len, const char *what, char **out) {
    *out = NULL;
    if (len > most_bytes) {
        return pgd_fail(PGD_INVALID, "%s: %llu bytes of JSON, at most %llu are read", what,
                        (unsigned long long)len, (unsigned long long)most_bytes);
    }
    *out = pgd_mem_alloc((size_t)len + PGD_JSON_PADDING, 1);
    return *out != NULL ? PGD_OK : PGD_MEM_FAIL(what, len);
}

pgd_status pgd_json_parse(pgd_str text, const char *what, uint32_t max_depth, pgd_json_doc **out) {
    char *copy = NULL;
    *out = NULL;
    PGD_TRY(alloc_padded(text.len, what, &copy));
    if (text.len > 0) {
        memcpy(copy, text.ptr, text.len);
    }
    return parse_taken(copy, text.len, what, max_depth, out);
}

pgd_status pgd_json_read_file(const char *path, pgd_json_doc **out) {
    uint64_t bytes = 0;
    uint64_t n_read = 0;
    char *text = NULL;
    *out = NULL;
    (void)pgd_os_kind(path, &bytes);
    PGD_TRY(alloc_padded(bytes, path, &text));
    pgd_status status = pgd_os_read_file(path, text, bytes, &n_read);
    if (status != PGD_OK) {
        char reason[128];
        int32_t error = pgd_os_last_error();
        pgd_mem_free(text);
        return pgd_fail(status, "%s: cannot be read: %s", path,
                        pgd_os_error_text(error, reason, sizeof(reason)));
    }
    return parse_taken(text, (size_t)n_read, path, 0, out);
}

void pgd_json_free(pgd_json_doc *doc) {
    if (doc != NULL) {
        pgd_arena_destroy(doc->arena);
        pgd_mem_free(doc);
    }
}

const pgd_json *pgd_json_root(const pgd_json_doc *doc) {
    return doc != NULL ? &doc->root : NULL;
}

const pgd_json *pgd_json_get(const pgd_json *v, const char *key) {
    if (!pgd_json_is(v, PGD_JSON_OBJECT)) {
        return NULL;
    }
    pgd_str want = pgd_str_of(key);
    for (uint32_t i = v->n; i > 0; i--) {
        if (pgd_str_equal(v->keys[i - 1], want)) {
            return &v->items[i - 1];
        }
    }
    return NULL;
}

int32_t pgd_json_is(const pgd_json *v, int32_t kind) {
    return v != NULL && v->kind == kind;
}

int32_t pgd_json_is_number(const pgd_json *v) {
    return v != NULL &&
           (v->kind == PGD_JSON_INT || v->kind == PGD_JSON_UINT || v->kind == PGD_JSON_FLOAT);
}

int32_t pgd_json_to_i64(const pgd_json *v, int64_t *out) {
    const double limit = 9223372036854775808.0; // 2^63
    if (pgd_json_is(v, PGD_JSON_INT)) {
        *out = v->i;
        return 1;
    }
    if (!pgd_json_is(v, PGD_JSON_FLOAT) || !(v->f >= -limit && v->f < limit) ||
        (double)(int64_t)v->f != v->f) {
        return 0;
    }
    *out = (int64_t)v->f;
    return 1;
}

int32_t pgd_json_to_f64(const pgd_json *v, double *out) {
    if (!pgd_json_is_number(v)) {
        return 0;
    }
    *out = v->kind == PGD_JSON_INT ? (double)v->i : v->kind == PGD_JSON_UINT ? (double)v->u : v->f;
    return 1;
}

int32_t pgd_json_to_bool(const pgd_json *v, int32_t *out) {
    if (!pgd_json_is(v, PGD_JSON_TRUE) && !pgd_json_is(v, PGD_JSON_FALSE)) {
        return 0;
    }
    *out = v->kind == PGD_JSON_TRUE;
    return 1;
}

int32_t pgd_json_to_str(const pgd_json *v, pgd_str *out) {
    if (!pgd_json_is(v, PGD_JSON_STRING)) {
        return 0;
    }
    *out = v->str;
    return 1;
}

const char *pgd_json_kind_name(int32_t kind) {
    static const char *const names[] = {
        [PGD_JSON_NULL] = "null",     [PGD_JSON_FALSE] = "boolean", [PGD_JSON_TRUE] = "boolean",
        [PGD_JSON_INT] = "integer",   [PGD_JSON_UINT] = "integer",  [PGD_JSON_FLOAT] = "number",
        [PGD_JSON_STRING] = "string", [PGD_JSON_ARRAY] = "array",   [PGD_JSON_OBJECT] = "object",
    };
    return kind >= 0 && kind <= PGD_JSON_OBJECT ? names[kind] : "unknown";
}
