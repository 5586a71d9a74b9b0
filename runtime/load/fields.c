// Typed reads of one JSON object of a model file (see fields.h).
#include "load/fields.h"

#include <stdio.h>

#include "base/fail.h"

int32_t pgd_load_fields_has(const pgd_load_fields *f, const char *key) {
    const pgd_json *v = pgd_json_get(f->object, key);
    return v != NULL && !pgd_json_is(v, PGD_JSON_NULL);
}

pgd_status pgd_load_fields_wrong(const pgd_load_fields *f, const char *key, const pgd_json *v,
                                 const char *needed) {
    if (v == NULL) {
        return pgd_fail(PGD_INVALID, "%s: \"%s%s\" is missing; %s is needed", f->file, f->group,
                        key, needed);
    }
    pgd_text shown = {0};
    if (pgd_json_add(&shown, v) != PGD_OK) {
        pgd_text_free(&shown);
        return pgd_fail(PGD_INVALID, "%s: \"%s%s\" is a wrong %s; %s is needed", f->file, f->group,
                        key, pgd_json_kind_name(v->kind), needed);
    }
    pgd_str text = pgd_text_view(&shown);
    pgd_status status =
        pgd_fail(PGD_INVALID, "%s: \"%s%s\" is %.*s%s; %s is needed", f->file, f->group, key,
                 PGD_LOAD_SHOW(text), text.len > PGD_STR_SHOWN ? "..." : "", needed);
    pgd_text_free(&shown);
    return status;
}

// The value of a key, NULL when it is missing or null and may be.
static pgd_status value_of(const pgd_load_fields *f, const char *key, int32_t need,
                           const char *needed, const pgd_json **out) {
    *out = NULL;
    if (!pgd_load_fields_has(f, key)) {
        if (need == PGD_LOAD_REQUIRED) {
            return pgd_load_fields_wrong(f, key, pgd_json_get(f->object, key), needed);
        }
        return PGD_OK;
    }
    *out = pgd_json_get(f->object, key);
    return PGD_OK;
}

pgd_status pgd_load_fields_i32(const pgd_load_fields *f, const char *key, int32_t need, int32_t min,
                               int32_t max, int32_t *io) {
    char needed[64];
    const pgd_json *v = NULL;
    int64_t i = 0;
    (void)snprintf(needed, sizeof(needed), "an integer from %d to %d", (int)min, (int)max);
    PGD_TRY(value_of(f, key, need, needed, &v));
    if (v == NULL) {
        return PGD_OK;
    }
    if (!pgd_json_to_i64(v, &i) || i < min || i > max) {
        return pgd_load_fields_wrong(f, key, v, needed);
    }
    *io = (int32_t)i;
    return PGD_OK;
}

pgd_status pgd_load_fields_f64(const pgd_load_fields *f, const char *key, int32_t need, double min,
                               double max, double *io) {
    char needed[96];
    const pgd_json *v = NULL;
    double x = 0;
    (void)snprintf(needed, sizeof(needed), "a number from %g to %g", min, max);
    PGD_TRY(value_of(f, key, need, needed, &v));
    if (v == NULL) {
        return PGD_OK;
    }
    if (!pgd_json_to_f64(v, &x) || !(x >= min && x <= max)) {
        return pgd_load_fields_wrong(f, key, v, needed);
    }
    *io = x;
    return PGD_OK;
}

pgd_status pgd_load_fields_bool(const pgd_load_fields *f, const char *key, int32_t need,
                                int32_t *io) {
    const pgd_json *v = NULL;
    PGD_TRY(value_of(f, key, need, "true or false", &v));
    if (v != NULL && !pgd_json_to_bool(v, io)) {
        return pgd_load_fields_wrong(f, key, v, "true or false");
    }
    return PGD_OK;
}

pgd_status pgd_load_fields_str(const pgd_load_fields *f, const char *key, int32_t need,
                               pgd_str *io) {
    const pgd_json *v = NULL;
    PGD_TRY(value_of(f, key, need, "a string", &v));
    if (v != NULL && !pgd_json_to_str(v, io)) {
        return pgd_load_fields_wrong(f, key, v, "a string");
    }
    return PGD_OK;
}
