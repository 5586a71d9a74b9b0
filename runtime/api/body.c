// See body.h. Source of names and ranges: OpenAI's API reference, vLLM's extra parameters.
#include "api/body.h"

#include <string.h>

#include "base/fail.h"

#define MAX_DEPTH 64
#define B         (PGD_API_CHAT | PGD_API_COMPLETION)
#define C         PGD_API_CHAT
#define P         PGD_API_COMPLETION

static const pgd_api_field fields[] = {
#define X(name_, where_, type_, low_, high_, otherwise_, note_) \
    {.name = #name_,                                            \
     .type = PGD_API_TYPE_##type_,                              \
     .otherwise = (otherwise_),                                 \
     .note = (note_),                                           \
     .low = (low_),                                             \
     .high = (high_),                                           \
     .where = (where_)},
#include "api/fields.inc"
#undef X
};

#undef B
#undef C
#undef P

static const char *const ignored[] = {
#define X(name) #name,
#include "api/ignored.inc"
#undef X
};

static const char *const refused[] = {
#define REFUSED(name) #name,
#include "api/ignored.inc"
#undef REFUSED
};

const pgd_api_field *pgd_api_field_at(int32_t at) {
    return at >= 0 && at < PGD_API_FIELDS ? &fields[at] : NULL;
}

static int32_t find(pgd_str name, int32_t where) {
    for (int32_t i = 0; i < PGD_API_FIELDS; i++) {
        if (pgd_str_is(name, fields[i].name)) {
            return (fields[i].where & where) != 0 ? i : -1;
        }
    }
    return -1;
}

static int32_t among(pgd_str name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (pgd_str_is(name, names[i])) {
            return 1;
        }
    }
    return 0;
}

static int32_t wrong_type(pgd_api_error *e, const pgd_api_field *f, const pgd_json *v,
                          const char *allowed) {
    return pgd_api_refuse(e, 400, f->name, NULL, "%s is of type %s; %s is allowed", f->name,
                          pgd_json_kind_name(v->kind), allowed);
}

static int32_t read_int(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                        pgd_api_error *e) {
    if (!pgd_json_is_number(v)) {
        return wrong_type(e, f, v, "a whole number");
    }
    if (!pgd_json_to_i64(v, &out->i) || (double)out->i < f->low || (double)out->i > f->high) {
        double given = 0.0;
        (void)pgd_json_to_f64(v, &given);
        return pgd_api_refuse(e, 400, f->name, NULL,
                              "%s is %.17g; a whole number from %.0f to %.0f is allowed", f->name,
                              given, f->low, f->high);
    }
    out->f = (double)out->i;
    return 0;
}

static int32_t read_number(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                           pgd_api_error *e) {
    if (!pgd_json_to_f64(v, &out->f)) {
        return wrong_type(e, f, v, "a number");
    }
    if (!(out->f >= f->low && out->f <= f->high)) {
        return pgd_api_refuse(e, 400, f->name, NULL, "%s is %g; %g to %g is allowed", f->name,
                              out->f, f->low, f->high);
    }
    return 0;
}

static int32_t check_count(const pgd_api_field *f, const pgd_json *v, pgd_api_error *e) {
    if (v->n < f->low || v->n > f->high) {
        return pgd_api_refuse(e, 400, f->name, NULL, "%s has %u entries; %.0f to %.0f are allowed",
                              f->name, v->n, f->low, f->high);
    }
    return 0;
}

static int32_t read_strings(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                            pgd_api_error *e) {
    (void)out;
    if (pgd_json_is(v, PGD_JSON_STRING)) {
        return 0;
    }
    if (!pgd_json_is(v, PGD_JSON_ARRAY)) {
        return wrong_type(e, f, v, "a string or a list of strings");
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (!pgd_json_is(&v->items[i], PGD_JSON_STRING)) {
            return wrong_type(e, f, &v->items[i], "a string or a list of strings");
        }
    }
    return check_count(f, v, e);
}

static int32_t read_ids(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                        pgd_api_error *e) {
    (void)out;
    if (!pgd_json_is(v, PGD_JSON_ARRAY)) {
        return wrong_type(e, f, v, "a list of token ids");
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t id = 0;
        if (!pgd_json_to_i64(&v->items[i], &id) || id < 0 || id > INT32_MAX) {
            return pgd_api_refuse(e, 400, f->name, NULL,
                                  "%s[%u] is no token id; whole numbers from 0 are allowed",
                                  f->name, i);
        }
    }
    return check_count(f, v, e);
}

static int32_t read_map(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                        pgd_api_error *e) {
    (void)out;
    if (!pgd_json_is(v, PGD_JSON_OBJECT)) {
        return wrong_type(e, f, v, "an object of numbers by token id");
    }
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t id = 0;
        double add = 0.0;
        if (!pgd_str_to_i64(v->keys[i], &id) || id < 0 || id > INT32_MAX ||
            !pgd_json_to_f64(&v->items[i], &add)) {
            return pgd_api_refuse(e, 400, f->name, NULL,
                                  "%s: \"%.32s\" is no token id with a number", f->name,
                                  v->keys[i].ptr);
        }
    }
    return check_count(f, v, e);
}

static int32_t read_bool(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                         pgd_api_error *e) {
    int32_t on = 0;
    if (!pgd_json_to_bool(v, &on)) {
        return wrong_type(e, f, v, "true or false");
    }
    out->i = on;
    return 0;
}

static int32_t read_string(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                           pgd_api_error *e) {
    (void)out;
    if (!pgd_json_is(v, PGD_JSON_STRING)) {
        return wrong_type(e, f, v, "a string");
    }
    if ((double)v->str.len < f->low || (double)v->str.len > f->high) {
        return pgd_api_refuse(e, 400, f->name, NULL, "%s has %zu bytes; %.0f to %.0f are allowed",
                              f->name, v->str.len, f->low, f->high);
    }
    return 0;
}

static int32_t read_list(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                         pgd_api_error *e) {
    (void)out;
    return pgd_json_is(v, PGD_JSON_ARRAY) ? check_count(f, v, e) : wrong_type(e, f, v, "a list");
}

static int32_t read_object(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                           pgd_api_error *e) {
    (void)out;
    return pgd_json_is(v, PGD_JSON_OBJECT) ? 0 : wrong_type(e, f, v, "an object");
}

static int32_t read_any(pgd_api_value *out, const pgd_api_field *f, const pgd_json *v,
                        pgd_api_error *e) {
    (void)out;
    (void)f;
    (void)v;
    (void)e;
    return 0;
}

static int32_t (*const readers[])(pgd_api_value *, const pgd_api_field *, const pgd_json *,
                                  pgd_api_error *) = {
    [PGD_API_TYPE_INT] = read_int,      [PGD_API_TYPE_NUM] = read_number,
    [PGD_API_TYPE_BOOL] = read_bool,    [PGD_API_TYPE_STR] = read_string,
    [PGD_API_TYPE_STRS] = read_strings, [PGD_API_TYPE_IDS] = read_ids,
    [PGD_API_TYPE_MAP] = read_map,      [PGD_API_TYPE_OBJ] = read_object,
    [PGD_API_TYPE_LIST] = read_list,    [PGD_API_TYPE_ANY] = read_any,
};

static int32_t read_stream_options(pgd_api_body *b, pgd_api_error *e) {
    const pgd_json *v = b->values[PGD_API_stream_options].json;
    if (v == NULL) {
        return 0;
    }
    if (!b->values[PGD_API_stream].i) {
        return pgd_api_refuse(e, 400, "stream_options", NULL,
                              "stream_options is only allowed with \"stream\": true");
    }
    for (uint32_t i = 0; i < v->n; i++) {
        const int32_t usage = pgd_str_is(v->keys[i], "include_usage");
        int32_t *out = usage ? &b->include_usage : &b->continuous_usage;
        if (!usage && !pgd_str_is(v->keys[i], "continuous_usage_stats")) {
            b->n_unknown++;
        } else if (v->items[i].kind != PGD_JSON_NULL && !pgd_json_to_bool(&v->items[i], out)) {
            return pgd_api_refuse(e, 400, "stream_options", NULL,
                                  "stream_options.%s: true or false is allowed", v->keys[i].ptr);
        }
    }
    b->include_usage |= b->continuous_usage;
    return 0;
}

// One key of the body.
static int32_t read_field(pgd_api_body *b, pgd_str name, const pgd_json *v, int32_t where,
                          int32_t strict, pgd_api_error *e) {
    int32_t at = find(name, where);
    if (at >= 0) {
        b->values[at] = (pgd_api_value){0};
        if (v->kind == PGD_JSON_NULL) {
            return 0;
        }
        b->values[at].json = v;
        return readers[fields[at].type](&b->values[at], &fields[at], v, e);
    }
    if (among(name, refused, sizeof(refused) / sizeof(refused[0])) && v->kind != PGD_JSON_NULL) {
        return pgd_api_refuse(e, 400, name.ptr, "unsupported_parameter",
                              "%s is not supported by this server", name.ptr);
    }
    if (!among(name, ignored, sizeof(ignored) / sizeof(ignored[0]))) {
        b->n_unknown++;
        if (strict) {
            return pgd_api_refuse(e, 400, NULL, "unknown_parameter", "%.64s: no such field",
                                  name.ptr);
        }
    }
    return 0;
}

int32_t pgd_api_body_read(pgd_api_body *b, pgd_str text, int32_t where, int32_t strict,
                          pgd_api_error *e) {
    pgd_json_doc *doc = NULL;
    pgd_status status = pgd_json_parse(text, "the body", MAX_DEPTH, &doc);
    if (status != PGD_OK) {
        *b = (pgd_api_body){0};
        return pgd_api_refuse_status(e, status, NULL);
    }
    const int32_t result = pgd_api_body_check(b, pgd_json_root(doc), where, strict, e);
    b->doc = doc;
    return result;
}

int32_t pgd_api_body_check(pgd_api_body *b, const pgd_json *root, int32_t where, int32_t strict,
                           pgd_api_error *e) {
    *b = (pgd_api_body){.is_chat = where == PGD_API_CHAT};
    if (!pgd_json_is(root, PGD_JSON_OBJECT)) {
        return pgd_api_refuse(e, 400, NULL, NULL, "the body is of type %s; an object is allowed",
                              pgd_json_kind_name(root->kind));
    }
    for (uint32_t i = 0; i < root->n; i++) {
        if (read_field(b, root->keys[i], &root->items[i], where, strict, e) != 0) {
            return -1;
        }
    }
    return read_stream_options(b, e);
}

void pgd_api_body_free(pgd_api_body *b) {
    pgd_json_free(b->doc);
    b->doc = NULL;
}

const pgd_json *pgd_api_tools_offered(const pgd_api_body *b) {
    const pgd_json *tools = b->values[PGD_API_tools].json;
    pgd_str choice = {"", 0};
    (void)pgd_json_to_str(b->values[PGD_API_tool_choice].json, &choice);
    return tools != NULL && tools->n > 0 && !pgd_str_is(choice, "none") ? tools : NULL;
}

int64_t pgd_api_int(const pgd_api_body *b, int32_t field, int64_t otherwise) {
    return b->values[field].json != NULL ? b->values[field].i : otherwise;
}

double pgd_api_number(const pgd_api_body *b, int32_t field, double otherwise) {
    return b->values[field].json != NULL ? b->values[field].f : otherwise;
}
