// Typed reads of one JSON object of a model file. Every failure is a sentence that names the file,
// the key, the value and what is allowed.
#ifndef PGD_LOAD_FIELDS_H
#define PGD_LOAD_FIELDS_H

#include "base/json.h"

typedef struct pgd_load_fields {
    const char *file;  // for sentences
    const char *group; // "" or "rope_scaling.": put before the key in sentences
    const pgd_json *object;
} pgd_load_fields;

enum { PGD_LOAD_OPTIONAL = 0, PGD_LOAD_REQUIRED = 1 };

// 1 when the key is there and not null.
int32_t pgd_load_fields_has(const pgd_load_fields *f, const char *key);

// Reads: a missing or null value leaves *io as it is, or fails with INVALID when need is REQUIRED.
// Bounds are inclusive. Strings are borrowed from the document.
pgd_status pgd_load_fields_i32(const pgd_load_fields *f, const char *key, int32_t need, int32_t min,
                               int32_t max, int32_t *io) PGD_MUST_USE;
pgd_status pgd_load_fields_f64(const pgd_load_fields *f, const char *key, int32_t need, double min,
                               double max, double *io) PGD_MUST_USE;
pgd_status pgd_load_fields_bool(const pgd_load_fields *f, const char *key, int32_t need,
                                int32_t *io) PGD_MUST_USE;
pgd_status pgd_load_fields_str(const pgd_load_fields *f, const char *key, int32_t need,
                               pgd_str *io) PGD_MUST_USE;

// INVALID: `file: "key" is VALUE; needed` with the value shortened. v NULL: "is missing".
pgd_status pgd_load_fields_wrong(const pgd_load_fields *f, const char *key, const pgd_json *v,
                                 const char *needed);

// Longest piece of foreign text that goes into a sentence, for %.*s.
#define PGD_LOAD_SHOW(s) PGD_STR_SHOW(s)

#endif
