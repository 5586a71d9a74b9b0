// Values of a rendering: making them, comparing them, and what a loop sees of them.
#include <stdio.h>
#include <string.h>

#include "text/parts.h"
#include "text/template_parts.h"

pgd_status pgd_text_template_fail(const render *r, const char *fmt, ...) {
    char buffer[600];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(buffer, sizeof(buffer), fmt, args);
    va_end(args);
    return pgd_fail(PGD_INVALID, "chat template, line %u: %s", r->line, buffer);
}

// ---- budgets -----------------------------------------------------------------------------------

pgd_status pgd_text_template_alloc(render *r, size_t n, size_t item_bytes, void **out) {
    uint64_t bytes = 0;
    *out = NULL;
    if (!pgd_size_mul(n, item_bytes, &bytes) || bytes > TPL_MAX_BYTES - r->bytes) {
        return TPL_FAIL(r, "the template needs more than %d MiB of memory", TPL_MAX_BYTES >> 20);
    }
    r->bytes += bytes + 16;
    r->bytes = r->bytes > TPL_MAX_BYTES ? TPL_MAX_BYTES : r->bytes;
    *out = pgd_arena_alloc(r->arena, n > 0 ? n : 1, item_bytes);
    return *out == NULL ? PGD_MEM_FAIL("a chat template", (size_t)bytes) : PGD_OK;
}

pgd_status pgd_text_template_steps(render *r, uint64_t n) {
    r->steps += n;
    return r->steps > TPL_MAX_STEPS
               ? TPL_FAIL(r, "the template takes more than %d steps", TPL_MAX_STEPS)
               : PGD_OK;
}

// ---- making ------------------------------------------------------------------------------------

value pgd_text_template_bool(int32_t b) {
    return (value){.kind = V_BOOL, .i = b != 0};
}

value pgd_text_template_int(int64_t i) {
    return (value){.kind = V_INT, .i = i};
}

value pgd_text_template_float(double f) {
    return (value){.kind = V_FLOAT, .f = f};
}

value pgd_text_template_str(pgd_str s) {
    return (value){.kind = V_STRING, .str = s};
}

value pgd_text_template_undefined(pgd_str name) {
    return (value){.kind = V_UNDEFINED, .str = name};
}

pgd_status pgd_text_template_copy(render *r, pgd_str s, value *out) {
    void *bytes = NULL;
    PGD_TRY(pgd_text_template_alloc(r, s.len + 1, 1, &bytes));
    if (s.len > 0) {
        memcpy(bytes, s.ptr, s.len);
    }
    *out = pgd_text_template_str((pgd_str){bytes, s.len});
    return PGD_OK;
}

pgd_status pgd_text_template_take(render *r, pgd_text *t, value *out) {
    pgd_status status = pgd_text_template_copy(r, pgd_text_view(t), out);
    pgd_text_free(t);
    return status;
}

pgd_status pgd_text_template_finish(render *r, pgd_text *t, pgd_status status, value *out) {
    if (status != PGD_OK) {
        pgd_text_free(t);
        return status;
    }
    return pgd_text_template_take(r, t, out);
}

pgd_status pgd_text_template_new_list(render *r, size_t cap, value_kind kind, value *out) {
    void *made = NULL;
    void *items = NULL;
    PGD_TRY(pgd_text_template_alloc(r, 1, sizeof(list), &made));
    PGD_TRY(pgd_text_template_alloc(r, cap, sizeof(value), &items));
    list *l = made;
    l->items = items;
    l->cap = cap;
    *out = (value){.kind = kind, .list = l};
    return PGD_OK;
}

pgd_status pgd_text_template_append(render *r, value *to, value item) {
    list *l = to->list;
    if (l->n == l->cap) {
        size_t cap = l->cap < 4 ? 8 : l->cap * 2;
        void *items = NULL;
        PGD_TRY(pgd_text_template_alloc(r, cap, sizeof(value), &items));
        if (l->n > 0) {
            memcpy(items, l->items, l->n * sizeof(value));
        }
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = item;
    return PGD_OK;
}

pgd_status pgd_text_template_new_dict(render *r, size_t cap, value *out) {
    void *made = NULL;
    void *keys = NULL;
    void *values = NULL;
    PGD_TRY(pgd_text_template_alloc(r, 1, sizeof(dict), &made));
    PGD_TRY(pgd_text_template_alloc(r, cap, sizeof(value), &keys));
    PGD_TRY(pgd_text_template_alloc(r, cap, sizeof(value), &values));
    dict *d = made;
    d->keys = keys;
    d->values = values;
    d->cap = cap;
    *out = (value){.kind = V_DICT, .dict = d};
    return PGD_OK;
}

static value *dict_find(const dict *d, const value *key) {
    for (size_t i = 0; i < d->n; i++) {
        if (pgd_text_template_equal(&d->keys[i], key)) {
            return &d->values[i];
        }
    }
    return NULL;
}

const value *pgd_text_template_dict_get(const dict *d, const value *key) {
    return dict_find(d, key);
}

pgd_status pgd_text_template_dict_set(render *r, dict *d, value key, value item) {
    if (key.kind == V_LIST || key.kind == V_DICT || key.kind == V_LAZY) {
        return TPL_FAIL(r, "a %s cannot be a key", pgd_text_template_type(&key));
    }
    PGD_TRY(pgd_text_template_steps(r, 1 + d->n / 16));
    value *old = dict_find(d, &key);
    if (old != NULL) {
        *old = item;
        return PGD_OK;
    }
    if (d->n == d->cap) {
        value grown;
        PGD_TRY(pgd_text_template_new_dict(r, d->cap < 4 ? 8 : d->cap * 2, &grown));
        if (d->n > 0) {
            memcpy(grown.dict->keys, d->keys, d->n * sizeof(value));
            memcpy(grown.dict->values, d->values, d->n * sizeof(value));
        }
        grown.dict->n = d->n;
        *d = *grown.dict;
    }
    d->keys[d->n] = key;
    d->values[d->n++] = item;
    return PGD_OK;
}

static pgd_status dict_from_json(render *r, const pgd_json *json, value *out) {
    PGD_TRY(pgd_text_template_new_dict(r, json->n, out));
    for (uint32_t i = 0; i < json->n; i++) {
        value item;
        PGD_TRY(pgd_text_template_from_json(r, &json->items[i], &item));
        PGD_TRY(
            pgd_text_template_dict_set(r, out->dict, pgd_text_template_str(json->keys[i]), item));
    }
    return PGD_OK;
}

pgd_status pgd_text_template_from_json(render *r, const pgd_json *json, value *out) {
    switch (json->kind) {
    case PGD_JSON_FALSE:
    case PGD_JSON_TRUE: *out = pgd_text_template_bool(json->kind == PGD_JSON_TRUE); break;
    case PGD_JSON_INT: *out = pgd_text_template_int(json->i); break;
    case PGD_JSON_UINT: *out = pgd_text_template_float((double)json->u); break;
    case PGD_JSON_FLOAT: *out = pgd_text_template_float(json->f); break;
    case PGD_JSON_STRING: *out = pgd_text_template_str(json->str); break;
    case PGD_JSON_OBJECT: return dict_from_json(r, json, out);
    case PGD_JSON_ARRAY:
        PGD_TRY(pgd_text_template_new_list(r, json->n, V_LIST, out));
        for (uint32_t i = 0; i < json->n; i++) {
            value item;
            PGD_TRY(pgd_text_template_from_json(r, &json->items[i], &item));
            PGD_TRY(pgd_text_template_append(r, out, item));
        }
        break;
    default: *out = (value){.kind = V_NONE}; break;
    }
    return PGD_OK;
}

// ---- asking ------------------------------------------------------------------------------------

int32_t pgd_text_template_is_list(const value *v) {
    return v->kind == V_LIST || v->kind == V_TUPLE || v->kind == V_LAZY;
}

int32_t pgd_text_template_is_true(const value *v) {
    switch (v->kind) {
    case V_UNDEFINED:
    case V_NONE: return 0;
    case V_BOOL:
    case V_INT: return v->i != 0;
    case V_FLOAT: return v->f != 0;
    case V_STRING: return v->str.len > 0;
    case V_LIST:
    case V_TUPLE: return v->list->n > 0;
    case V_DICT: return v->dict->n > 0;
    default: return 1;
    }
}

int32_t pgd_text_template_is_number(const value *v) {
    return v->kind == V_BOOL || v->kind == V_INT || v->kind == V_FLOAT;
}

double pgd_text_template_number(const value *v) {
    return v->kind == V_FLOAT ? v->f : (double)v->i;
}

const char *pgd_text_template_type(const value *v) {
    static const char *const names[] = {"undefined value", "none",       "boolean",   "integer",
                                        "float",           "string",     "list",      "tuple",
                                        "generator",       "dictionary", "namespace", "loop",
                                        "macro",           "method",     "function"};
    return names[v->kind];
}

// ---- comparing ---------------------------------------------------------------------------------

static int32_t lists_equal(const list *a, const list *b) {
    if (a->n != b->n) {
        return 0;
    }
    for (size_t i = 0; i < a->n; i++) {
        if (!pgd_text_template_equal(&a->items[i], &b->items[i])) {
            return 0;
        }
    }
    return 1;
}

static int32_t dicts_equal(const dict *a, const dict *b) {
    if (a->n != b->n) {
        return 0;
    }
    for (size_t i = 0; i < a->n; i++) {
        const value *other = dict_find(b, &a->keys[i]);
        if (other == NULL || !pgd_text_template_equal(&a->values[i], other)) {
            return 0;
        }
    }
    return 1;
}

int32_t pgd_text_template_equal(const value *a, const value *b) {
    if (pgd_text_template_is_number(a) && pgd_text_template_is_number(b)) {
        return a->kind != V_FLOAT && b->kind != V_FLOAT
                   ? a->i == b->i
                   : pgd_text_template_number(a) == pgd_text_template_number(b);
    }
    if (a->kind != b->kind) {
        return 0;
    }
    switch (a->kind) {
    case V_UNDEFINED:
    case V_NONE: return 1;
    case V_STRING: return pgd_str_equal(a->str, b->str);
    case V_LIST:
    case V_TUPLE: return lists_equal(a->list, b->list);
    case V_DICT: return dicts_equal(a->dict, b->dict);
    case V_METHOD:
    case V_GLOBAL: return pgd_str_equal(a->str, b->str);
    default: return a->list == b->list; // the same object
    }
}

static int32_t order_of_strings(pgd_str a, pgd_str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n > 0 ? memcmp(a.ptr, b.ptr, n) : 0;
    return c != 0 ? c : a.len < b.len ? -1 : a.len > b.len;
}

pgd_status pgd_text_template_order(render *r, const value *a, const value *b, int32_t *out) {
    if (pgd_text_template_is_number(a) && pgd_text_template_is_number(b)) {
        if (a->kind != V_FLOAT && b->kind != V_FLOAT) {
            *out = a->i < b->i ? -1 : a->i > b->i;
        } else {
            double x = pgd_text_template_number(a);
            double y = pgd_text_template_number(b);
            *out = x < y ? -1 : x > y;
        }
        return PGD_OK;
    }
    if (a->kind == V_STRING && b->kind == V_STRING) {
        *out = order_of_strings(a->str, b->str);
        return PGD_OK;
    }
    if (a->kind != b->kind || (a->kind != V_LIST && a->kind != V_TUPLE)) {
        return TPL_FAIL(r, "a %s and a %s have no order", pgd_text_template_type(a),
                        pgd_text_template_type(b));
    }
    size_t n = a->list->n < b->list->n ? a->list->n : b->list->n;
    for (size_t i = 0; i < n; i++) {
        if (!pgd_text_template_equal(&a->list->items[i], &b->list->items[i])) {
            return pgd_text_template_order(r, &a->list->items[i], &b->list->items[i], out);
        }
    }
    *out = a->list->n < b->list->n ? -1 : a->list->n > b->list->n;
    return PGD_OK;
}

static int32_t has_text(pgd_str box, pgd_str item) {
    if (item.len == 0) {
        return 1;
    }
    for (size_t i = 0; i + item.len <= box.len; i++) {
        const char *hit = memchr(box.ptr + i, item.ptr[0], box.len - i - item.len + 1);
        if (hit == NULL) {
            return 0;
        }
        i = (size_t)(hit - box.ptr);
        if (memcmp(hit, item.ptr, item.len) == 0) {
            return 1;
        }
    }
    return 0;
}

pgd_status pgd_text_template_contains(render *r, const value *box, const value *item,
                                      int32_t *out) {
    *out = 0;
    if (box->kind == V_UNDEFINED) {
        return PGD_OK;
    }
    if (box->kind == V_STRING) {
        if (item->kind != V_STRING) {
            return TPL_FAIL(r, "'in' a string needs a string, not a %s",
                            pgd_text_template_type(item));
        }
        PGD_TRY(pgd_text_template_steps(r, box->str.len / 256));
        *out = has_text(box->str, item->str);
        return PGD_OK;
    }
    if (box->kind == V_DICT) {
        PGD_TRY(pgd_text_template_steps(r, box->dict->n / 16));
        *out = dict_find(box->dict, item) != NULL;
        return PGD_OK;
    }
    if (!pgd_text_template_is_list(box)) {
        return TPL_FAIL(r, "'in' does not work on a %s", pgd_text_template_type(box));
    }
    PGD_TRY(pgd_text_template_steps(r, box->list->n / 16));
    for (size_t i = 0; i < box->list->n && !*out; i++) {
        *out = pgd_text_template_equal(&box->list->items[i], item);
    }
    return PGD_OK;
}

pgd_status pgd_text_template_items(render *r, const value *v, list **out) {
    value made;
    if (pgd_text_template_is_list(v)) {
        *out = v->list;
        return PGD_OK;
    }
    if (v->kind == V_DICT) {
        PGD_TRY(pgd_text_template_new_list(r, v->dict->n, V_LIST, &made));
        for (size_t i = 0; i < v->dict->n; i++) {
            PGD_TRY(pgd_text_template_append(r, &made, v->dict->keys[i]));
        }
        *out = made.list;
        return PGD_OK;
    }
    PGD_TRY(pgd_text_template_new_list(r, 0, V_LIST, &made));
    *out = made.list;
    if (v->kind == V_UNDEFINED) {
        return PGD_OK;
    }
    if (v->kind != V_STRING) {
        return TPL_FAIL(r, "a %s cannot be looped over", pgd_text_template_type(v));
    }
    size_t end = 0;
    for (size_t at = 0; at < v->str.len; at = end) {
        pgd_text_char(v->str, at, &end);
        value c = pgd_text_template_str((pgd_str){v->str.ptr + at, end - at});
        PGD_TRY(pgd_text_template_append(r, &made, c));
    }
    return PGD_OK;
}
