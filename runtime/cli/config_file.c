// YAML to JSON by the events of libyaml. See config_file.h.
#include "cli/config_file.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "cli/common.h"

#define SHOWN 80

static int32_t is_json(const char *path, pgd_str text) {
    pgd_str s = pgd_str_trim(text);
    return pgd_str_ends(pgd_str_of(path), PGD_STR(".json")) || (s.len > 0 && s.ptr[0] == '{');
}

#ifdef PGD_WITH_YAML

#include <yaml.h>

#define MAX_DEPTH 64
#define MAX_KEYS  4096 // of a map

// What an open list or map has had.
typedef struct level {
    int32_t is_map;
    int32_t n; // nodes: in a map keys and values
} level;

typedef struct reader {
    const char *path;
    yaml_parser_t parser;
    pgd_text *out;
    level levels[MAX_DEPTH];
    int32_t depth;
    int32_t n_documents;
} reader;

static pgd_status refuse(const reader *r, const yaml_mark_t *at, const char *what) {
    return pgd_fail(PGD_INVALID, "%s: line %zu, column %zu: %s", r->path, at->line + 1,
                    at->column + 1, what);
}

static int32_t is_one_of(pgd_str s, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (pgd_str_is(s, words[i])) {
            return 1;
        }
    }
    return 0;
}

// 1 for what the core schema calls a number.
static int32_t is_number(pgd_str s) {
    size_t i = s.len > 0 && (s.ptr[0] == '-' || s.ptr[0] == '+');
    size_t digits = 0;
    for (; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++) {
        digits++;
    }
    if (i < s.len && s.ptr[i] == '.') {
        for (i++; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++) {
            digits++;
        }
    }
    if (digits > 0 && i < s.len && (s.ptr[i] == 'e' || s.ptr[i] == 'E')) {
        i++;
        i += i < s.len && (s.ptr[i] == '-' || s.ptr[i] == '+');
        digits = 0;
        for (; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++) {
            digits++;
        }
    }
    return digits > 0 && i == s.len;
}

static pgd_status add_number(pgd_str s, pgd_text *out) {
    int64_t i = 0;
    uint64_t u = 0;
    double f = 0.0;
    if (s.ptr[0] == '+') {
        s.ptr++;
        s.len--;
    }
    if (pgd_str_to_i64(s, &i)) {
        return pgd_text_format(out, "%lld", (long long)i);
    }
    if (pgd_str_to_u64(s, &u)) {
        return pgd_text_format(out, "%llu", (unsigned long long)u);
    }
    return pgd_str_to_f64(s, &f) ? pgd_json_add_f64(out, f) : pgd_json_add_str(out, s);
}

static pgd_status add_plain(pgd_str s, pgd_text *out) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};
    if (is_one_of(s, nulls, sizeof(nulls) / sizeof(nulls[0]))) {
        return pgd_text_format(out, "null");
    }
    if (is_one_of(s, trues, sizeof(trues) / sizeof(trues[0]))) {
        return pgd_text_format(out, "true");
    }
    if (is_one_of(s, falses, sizeof(falses) / sizeof(falses[0]))) {
        return pgd_text_format(out, "false");
    }
    return is_number(s) ? add_number(s, out) : pgd_json_add_str(out, s);
}

// The comma or colon before a node. 1 in out_key when the node is a key.
static pgd_status begin_node(reader *r, const yaml_event_t *e, int32_t *out_key) {
    *out_key = 0;
    if (r->depth == 0) {
        return PGD_OK;
    }
    level *l = &r->levels[r->depth - 1];
    *out_key = l->is_map && l->n % 2 == 0;
    if (*out_key && e->type != YAML_SCALAR_EVENT) {
        return refuse(r, &e->start_mark, "a key that is no word");
    }
    const char *sep = l->n == 0 ? "" : l->is_map && l->n % 2 == 1 ? ":" : ",";
    l->n++;
    return pgd_text_format(r->out, "%s", sep);
}

static pgd_status on_scalar(reader *r, const yaml_event_t *e) {
    pgd_str s = {(const char *)e->data.scalar.value, e->data.scalar.length};
    int32_t is_key = 0;
    PGD_TRY(begin_node(r, e, &is_key));
    if (is_key || e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        return pgd_json_add_str(r->out, s);
    }
    return add_plain(s, r->out);
}

static pgd_status on_open(reader *r, const yaml_event_t *e, int32_t is_map) {
    int32_t is_key = 0;
    if (r->depth == MAX_DEPTH) {
        return refuse(r, &e->start_mark, "more than 64 levels");
    }
    PGD_TRY(begin_node(r, e, &is_key));
    r->levels[r->depth++] = (level){.is_map = is_map};
    return pgd_text_format(r->out, is_map ? "{" : "[");
}

static pgd_status on_close(reader *r) {
    const level *l = &r->levels[--r->depth];
    return pgd_text_format(r->out, l->is_map ? "}" : "]");
}

// A key that stands twice, in the whole document.
static pgd_status check_keys(const char *path, const pgd_json *v) {
    if (v->kind == PGD_JSON_OBJECT && v->n > MAX_KEYS) {
        return pgd_fail(PGD_INVALID, "%s: %u keys; at most %d are allowed", path, v->n, MAX_KEYS);
    }
    for (uint32_t i = 0; v->kind == PGD_JSON_OBJECT && i < v->n; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (pgd_str_equal(v->keys[i], v->keys[k])) {
                size_t n = v->keys[i].len < SHOWN ? v->keys[i].len : SHOWN;
                return pgd_fail(PGD_INVALID, "%s: the key \"%.*s\" stands twice", path, (int)n,
                                v->keys[i].ptr);
            }
        }
    }
    int32_t holds = v->kind == PGD_JSON_OBJECT || v->kind == PGD_JSON_ARRAY;
    for (uint32_t i = 0; holds && i < v->n; i++) {
        PGD_TRY(check_keys(path, &v->items[i]));
    }
    return PGD_OK;
}

static pgd_status check_properties(const reader *r, const yaml_event_t *e) {
    const yaml_char_t *anchor = e->type == YAML_SCALAR_EVENT ? e->data.scalar.anchor
                                : e->type == YAML_SEQUENCE_START_EVENT
                                    ? e->data.sequence_start.anchor
                                : e->type == YAML_MAPPING_START_EVENT ? e->data.mapping_start.anchor
                                                                      : NULL;
    const yaml_char_t *tag = e->type == YAML_SCALAR_EVENT           ? e->data.scalar.tag
                             : e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.tag
                             : e->type == YAML_MAPPING_START_EVENT  ? e->data.mapping_start.tag
                                                                    : NULL;
    if (anchor != NULL || e->type == YAML_ALIAS_EVENT) {
        return refuse(r, &e->start_mark, "anchors and aliases are not read");
    }
    return tag != NULL ? refuse(r, &e->start_mark, "tags are not read") : PGD_OK;
}

static pgd_status on_event(reader *r, const yaml_event_t *e) {
    PGD_TRY(check_properties(r, e));
    switch (e->type) {
    case YAML_SCALAR_EVENT: return on_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT: return on_open(r, e, 0);
    case YAML_MAPPING_START_EVENT: return on_open(r, e, 1);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return on_close(r);
    case YAML_DOCUMENT_START_EVENT:
        return r->n_documents++ > 0 ? refuse(r, &e->start_mark, "a second document") : PGD_OK;
    default: return PGD_OK;
    }
}

static pgd_status read_events(reader *r) {
    yaml_event_t e;
    pgd_status status = PGD_OK;
    int32_t end = 0;
    while (status == PGD_OK && !end) {
        if (!yaml_parser_parse(&r->parser, &e)) {
            return refuse(r, &r->parser.problem_mark,
                          r->parser.problem != NULL ? r->parser.problem : "no memory");
        }
        end = e.type == YAML_STREAM_END_EVENT;
        status = on_event(r, &e);
        yaml_event_delete(&e);
    }
    return status;
}

static pgd_status read_yaml(const char *path, pgd_str text, pgd_json_doc **out) {
    pgd_text json = {0};
    reader r = {.path = path, .out = &json};
    if (!yaml_parser_initialize(&r.parser)) {
        return PGD_MEM_FAIL("the YAML parser", sizeof(r.parser));
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.ptr, text.len);
    pgd_status status = read_events(&r);
    yaml_parser_delete(&r.parser);
    if (status == PGD_OK) {
        // An empty file is an empty map.
        status = pgd_json_parse(json.len > 0 ? pgd_text_view(&json) : PGD_STR("{}"), path,
                                MAX_DEPTH + 1, out);
    }
    pgd_text_free(&json);
    if (status == PGD_OK) {
        status = check_keys(path, pgd_json_root(*out));
    }
    if (status != PGD_OK) {
        pgd_json_free(*out);
        *out = NULL;
    }
    return status;
}

#else

static pgd_status read_yaml(const char *path, pgd_str text, pgd_json_doc **out) {
    (void)text;
    *out = NULL;
    return pgd_fail(PGD_UNSUPPORTED,
                    "%s: this build was made without libyaml; a JSON object is needed", path);
}

#endif

pgd_status cli_config_file_read(const char *path, pgd_json_doc **out) {
    pgd_text text = {0};
    *out = NULL;
    pgd_status status = cli_read_input(path, &text);
    if (status == PGD_OK) {
        pgd_str view = {text.ptr != NULL ? text.ptr : "", text.len};
        status =
            is_json(path, view) ? pgd_json_parse(view, path, 0, out) : read_yaml(path, view, out);
    }
    pgd_text_free(&text);
    return status;
}
