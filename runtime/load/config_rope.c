// The rope section of config.json.
//
// Old files: rope_theta, partial_rotary_factor at the top and rope_scaling {type or rope_type, ...}
// (null = default). Files of transformers 5: rope_parameters {rope_type, rope_theta, ...}. A value
// inside the section wins over one at the top, but original_max_position_embeddings at the top
// wins over the one inside. A non-empty rope_scaling wins over rope_parameters.
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "load/config_inner.h"

#define DEFAULT_THETA 10000.0
#define MIN_THETA     1.001
#define MAX_THETA     1e15
#define MIN_FACTOR    1e-6
#define MAX_FACTOR    1e9

const char *pgd_load_rope_name(int32_t kind) {
    switch (kind) {
#define ROPE_CASE(name, number, text) \
    case number: return text;
        PGD_ROPE_LIST(ROPE_CASE)
#undef ROPE_CASE
    default: return "?";
    }
}

static int32_t is_filled_object(const pgd_json *v) {
    return pgd_json_is(v, PGD_JSON_OBJECT) && v->n != 0;
}

// The section with the scaling keys: of the file, or an empty one.
static pgd_status find_section(const pgd_load_fields *f, pgd_load_fields *out) {
    static const pgd_json empty = {.kind = PGD_JSON_OBJECT};
    static const char *const keys[2] = {"rope_scaling", "rope_parameters"};
    static const char *const groups[2] = {"rope_scaling.", "rope_parameters."};
    *out = (pgd_load_fields){.file = f->file, .group = "", .object = &empty};
    for (uint32_t i = 0; i < 2; i++) {
        const pgd_json *v = pgd_json_get(f->object, keys[i]);
        if (pgd_load_fields_has(f, keys[i]) && !pgd_json_is(v, PGD_JSON_OBJECT)) {
            return pgd_load_fields_wrong(f, keys[i], v, "an object or null");
        }
        if (!is_filled_object(v)) {
            continue;
        }
        if (pgd_json_get(v, "full_attention") != NULL ||
            pgd_json_get(v, "sliding_attention") != NULL) {
            return pgd_fail(PGD_UNSUPPORTED,
                            "%s: \"%s\" differs by layer type, which is not supported; one set "
                            "for all layers is",
                            f->file, keys[i]);
        }
        out->group = groups[i];
        out->object = v;
        return PGD_OK;
    }
    return PGD_OK;
}

static pgd_status read_kind(const pgd_load_fields *s, int32_t *out) {
    const char *key = pgd_load_fields_has(s, "rope_type") ? "rope_type" : "type";
    pgd_str text = PGD_STR("default");
    PGD_TRY(pgd_load_fields_str(s, key, PGD_LOAD_OPTIONAL, &text));
    if (pgd_str_is(text, "su")) { // the first name of longrope
        *out = PGD_ROPE_LONGROPE;
        return PGD_OK;
    }
#define ROPE_TEST(name, number, known) \
    if (pgd_str_is(text, known)) {     \
        *out = number;                 \
        return PGD_OK;                 \
    }
    PGD_ROPE_LIST(ROPE_TEST)
#undef ROPE_TEST
#define COMMA_NAME(name, number, known) ", " known
    static const char known_kinds[] = PGD_ROPE_LIST(COMMA_NAME);
#undef COMMA_NAME
    return pgd_fail(PGD_UNSUPPORTED, "%s: \"%s%s\" is \"%.*s\", which is not supported; %s are",
                    s->file, s->group, key, PGD_LOAD_SHOW(text), known_kinds + 2);
}

static pgd_status read_base(const pgd_load_fields *f, const pgd_load_fields *s,
                            pgd_load_config *c) {
    pgd_load_rope *r = &c->rope;
    double part = 1.0;
    r->theta = DEFAULT_THETA;
    PGD_TRY(
        pgd_load_fields_f64(f, "rope_theta", PGD_LOAD_OPTIONAL, MIN_THETA, MAX_THETA, &r->theta));
    PGD_TRY(
        pgd_load_fields_f64(s, "rope_theta", PGD_LOAD_OPTIONAL, MIN_THETA, MAX_THETA, &r->theta));
    PGD_TRY(pgd_load_fields_f64(f, "partial_rotary_factor", PGD_LOAD_OPTIONAL, 0, 1, &part));
    PGD_TRY(pgd_load_fields_f64(s, "partial_rotary_factor", PGD_LOAD_OPTIONAL, 0, 1, &part));
    r->rot_dim = (int32_t)(c->head_dim * part);
    if (r->rot_dim < 2 || r->rot_dim % 2 != 0) {
        return pgd_fail(PGD_INVALID,
                        "%s: \"partial_rotary_factor\" is %g, which turns %d of %d dimensions of a "
                        "head; an even number of them, at least 2, is needed",
                        f->file, part, (int)r->rot_dim, (int)c->head_dim);
    }
    return PGD_OK;
}

static pgd_status read_original_max(const pgd_load_fields *f, const pgd_load_fields *s,
                                    pgd_load_config *c) {
    const char *key = "original_max_position_embeddings";
    int32_t original = c->max_position;
    PGD_TRY(pgd_load_fields_i32(s, key, PGD_LOAD_OPTIONAL, 2, PGD_LOAD_MAX_POSITION, &original));
    PGD_TRY(pgd_load_fields_i32(f, key, PGD_LOAD_OPTIONAL, 2, PGD_LOAD_MAX_POSITION, &original));
    if (original < 2) {
        return pgd_fail(PGD_INVALID,
                        "%s: \"max_position_embeddings\" is %d; at least 2 is needed with this "
                        "rope type",
                        f->file, (int)original);
    }
    c->rope.original_max = original;
    return PGD_OK;
}

static pgd_status read_llama3(const pgd_load_fields *s, pgd_load_rope *r) {
    PGD_TRY(pgd_load_fields_f64(s, "low_freq_factor", PGD_LOAD_REQUIRED, MIN_FACTOR, MAX_FACTOR,
                                &r->low_freq_factor));
    PGD_TRY(pgd_load_fields_f64(s, "high_freq_factor", PGD_LOAD_REQUIRED, MIN_FACTOR, MAX_FACTOR,
                                &r->high_freq_factor));
    if (!(r->high_freq_factor > r->low_freq_factor)) {
        return pgd_fail(PGD_INVALID,
                        "%s: \"%shigh_freq_factor\" is %g; a number above low_freq_factor (%g) is "
                        "needed",
                        s->file, s->group, r->high_freq_factor, r->low_freq_factor);
    }
    return PGD_OK;
}

static pgd_status read_yarn(const pgd_load_fields *s, pgd_load_rope *r) {
    PGD_TRY(pgd_load_fields_f64(s, "beta_fast", PGD_LOAD_OPTIONAL, 0, MAX_FACTOR, &r->beta_fast));
    PGD_TRY(pgd_load_fields_f64(s, "beta_slow", PGD_LOAD_OPTIONAL, 0, MAX_FACTOR, &r->beta_slow));
    // Zero counts as not given.
    r->beta_fast = r->beta_fast >= MIN_FACTOR ? r->beta_fast : 32;
    r->beta_slow = r->beta_slow >= MIN_FACTOR ? r->beta_slow : 1;
    PGD_TRY(pgd_load_fields_f64(s, "mscale", PGD_LOAD_OPTIONAL, 0, MAX_FACTOR, &r->mscale));
    PGD_TRY(pgd_load_fields_f64(s, "mscale_all_dim", PGD_LOAD_OPTIONAL, 0, MAX_FACTOR,
                                &r->mscale_all_dim));
    r->truncate = 1;
    return pgd_load_fields_bool(s, "truncate", PGD_LOAD_OPTIONAL, &r->truncate);
}

static pgd_status read_factors(const pgd_load_fields *s, const char *key, int32_t n, double **out) {
    const pgd_json *v = pgd_json_get(s->object, key);
    if (!pgd_json_is(v, PGD_JSON_ARRAY) || v->n != (uint32_t)n) {
        return pgd_load_fields_wrong(s, key, v,
                                     "a list of numbers, one for each pair of rotated dimensions,");
    }
    *out = pgd_mem_alloc((size_t)n, sizeof(**out));
    if (*out == NULL) {
        return PGD_MEM_FAIL(key, (size_t)n * sizeof(**out));
    }
    for (int32_t i = 0; i < n; i++) {
        double x = 0;
        if (!pgd_json_to_f64(&v->items[i], &x) || !(x >= MIN_FACTOR && x <= MAX_FACTOR)) {
            return pgd_load_fields_wrong(s, key, &v->items[i], "a list of numbers above 0");
        }
        (*out)[i] = x;
    }
    return PGD_OK;
}

// The factor s: needed by linear, dynamic and llama3; yarn and longrope derive it.
static pgd_status read_factor(const pgd_load_fields *s, pgd_load_config *c) {
    pgd_load_rope *r = &c->rope;
    int32_t derives = r->kind == PGD_ROPE_YARN || r->kind == PGD_ROPE_LONGROPE;
    r->factor = derives ? c->max_position / r->original_max : 1.0;
    return pgd_load_fields_f64(s, "factor", derives ? PGD_LOAD_OPTIONAL : PGD_LOAD_REQUIRED,
                               MIN_FACTOR, MAX_FACTOR, &r->factor);
}

pgd_status pgd_load_config_rope(const pgd_load_fields *f, pgd_load_config *c) {
    pgd_load_rope *r = &c->rope;
    pgd_load_fields s = {0};
    PGD_TRY(find_section(f, &s));
    PGD_TRY(read_kind(&s, &r->kind));
    PGD_TRY(read_base(f, &s, c));
    r->factor = 1.0;
    r->original_max = c->max_position;
    if (r->kind == PGD_ROPE_DEFAULT) {
        return PGD_OK;
    }
    if (r->kind == PGD_ROPE_DYNAMIC && r->rot_dim < 4) {
        return pgd_fail(PGD_INVALID,
                        "%s: \"%srope_type\" is dynamic with %d rotated dimensions; at least 4 are "
                        "needed",
                        f->file, s.group, (int)r->rot_dim);
    }
    if (r->kind != PGD_ROPE_LINEAR && r->kind != PGD_ROPE_DYNAMIC) {
        PGD_TRY(read_original_max(f, &s, c));
    }
    PGD_TRY(read_factor(&s, c));
    if (r->kind == PGD_ROPE_LLAMA3) {
        return read_llama3(&s, r);
    }
    if (r->kind == PGD_ROPE_YARN || r->kind == PGD_ROPE_LONGROPE) {
        PGD_TRY(pgd_load_fields_f64(&s, "attention_factor", PGD_LOAD_OPTIONAL, MIN_FACTOR,
                                    MAX_FACTOR, &r->attention_factor));
    }
    if (r->kind == PGD_ROPE_YARN) {
        return read_yarn(&s, r);
    }
    if (r->kind == PGD_ROPE_LONGROPE) {
        r->n_factors = r->rot_dim / 2;
        PGD_TRY(read_factors(&s, "short_factor", r->n_factors, &r->short_factor));
        PGD_TRY(read_factors(&s, "long_factor", r->n_factors, &r->long_factor));
    }
    return PGD_OK;
}
