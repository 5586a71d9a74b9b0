// JSON in and out.
//
// In: a document is parsed once (simdjson: strict UTF-8, exact integers) into a tree of plain C
// values in one arena; values are borrowed from the document. Out: text is appended to a pgd_text.
#ifndef PGD_BASE_JSON_H
#define PGD_BASE_JSON_H

#include "base/str.h"

enum {
    PGD_JSON_NULL = 0,
    PGD_JSON_FALSE = 1,
    PGD_JSON_TRUE = 2,
    PGD_JSON_INT = 3,  // fits i64
    PGD_JSON_UINT = 4, // above i64, fits u64
    PGD_JSON_FLOAT = 5,
    PGD_JSON_STRING = 6,
    PGD_JSON_ARRAY = 7,
    PGD_JSON_OBJECT = 8,
};

typedef struct pgd_json pgd_json;
struct pgd_json {
    int32_t kind; // PGD_JSON_...
    uint32_t n;   // items of an array or object
    union {
        int64_t i;
        uint64_t u;
        double f;
        pgd_str str;           // NUL-terminated too
        const pgd_json *items; // array: n values; object: n values
    };
    const pgd_str *keys; // object: n keys in file order (duplicates are kept)
};

typedef struct pgd_json_doc pgd_json_doc;

// Parses all of `text`. what names the source in sentences ("config.json").
//   fails  INVALID with the parser's reason; more than max_depth (0 = 256) levels is INVALID
pgd_status pgd_json_parse(pgd_str text, const char *what, uint32_t max_depth,
                          pgd_json_doc **out) PGD_MUST_USE;
// Reads and parses a file.
pgd_status pgd_json_read_file(const char *path, pgd_json_doc **out) PGD_MUST_USE;
void pgd_json_free(pgd_json_doc *doc); // NULL is fine
const pgd_json *pgd_json_root(const pgd_json_doc *doc);

// Offset of the first byte with which the text is no JSON of so many levels; its length when it
// ends too early, or nothing is wrong. Line and column (characters) of an offset, from 1.
size_t pgd_json_where(pgd_str text, uint32_t max_depth);
void pgd_json_line_at(pgd_str text, size_t at, uint32_t *out_line, uint32_t *out_column);

// The value of a key, NULL if v is no object (or NULL) or has no such key. The last duplicate wins.
const pgd_json *pgd_json_get(const pgd_json *v, const char *key);
// 1 when v is a non-NULL value of that kind; number accepts INT, UINT and FLOAT.
int32_t pgd_json_is(const pgd_json *v, int32_t kind);
int32_t pgd_json_is_number(const pgd_json *v);
// Typed reads: 1 and *out when v is of that kind (floats with an integer value count as integers),
// else 0 and *out unchanged.
int32_t pgd_json_to_i64(const pgd_json *v, int64_t *out);
int32_t pgd_json_to_f64(const pgd_json *v, double *out);
int32_t pgd_json_to_bool(const pgd_json *v, int32_t *out);
int32_t pgd_json_to_str(const pgd_json *v, pgd_str *out);
const char *pgd_json_kind_name(int32_t kind); // "null", "boolean", "integer", "number", ...

// ---- writing -----------------------------------------------------------------------------------

// Appends a quoted string: escapes ", \ and control characters; everything else as it is, with
// ill-formed UTF-8 replaced.
pgd_status pgd_json_add_str(pgd_text *t, pgd_str s) PGD_MUST_USE;
// Shortest form that reads back equal ("1.0", "0.1", "1e+30"); NaN and infinities give null.
pgd_status pgd_json_add_f64(pgd_text *t, double v) PGD_MUST_USE;
// Appends a parsed value in compact form.
pgd_status pgd_json_add(pgd_text *t, const pgd_json *v) PGD_MUST_USE;

#endif
