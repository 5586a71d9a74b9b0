// The filters behind | in templates that work on lists and dictionaries.
#include <string.h>

#include "text/parts.h"
#include "text/template_parts.h"

static const call_args no_args;

// a.b.c of an item: names or numbers, each as an index.
static pgd_status attribute_of(render *r, const value *item, const value *path, value *out) {
    if (path->kind != V_STRING) {
        return pgd_text_template_index(r, item, path, out);
    }
    value at = *item;
    pgd_str rest = path->str;
    do {
        pgd_str name = pgd_str_cut(rest, '.', &rest);
        int64_t number = 0;
        value key = pgd_str_to_i64(name, &number) ? pgd_text_template_int(number)
                                                  : pgd_text_template_str(name);
        PGD_TRY(pgd_text_template_index(r, &at, &key, out));
        at = *out;
    } while (rest.len > 0);
    return PGD_OK;
}

static pgd_status items_of(render *r, const value *v, list **out) {
    PGD_TRY(pgd_text_template_items(r, v, out));
    return pgd_text_template_steps(r, (*out)->n);
}

// map, select and reject take anything false for an empty list.
static pgd_status items_or_none(render *r, const value *v, list **out) {
    value empty = pgd_text_template_undefined((pgd_str){0});
    return items_of(r, pgd_text_template_is_true(v) ? v : &empty, out);
}

static int32_t flag(const call_args *args, size_t at, const char *name, int32_t otherwise) {
    const value *v = pgd_text_template_arg(args, at, name);
    return v != NULL ? pgd_text_template_is_true(v) : otherwise;
}

// ---- simple ------------------------------------------------------------------------------------

static pgd_status f_length(render *r, const value *v, const call_args *args, value *out) {
    int64_t n = 0;
    (void)args;
    if (v->kind == V_STRING) {
        n = (int64_t)pgd_text_template_count_chars(v->str);
    } else if (v->kind == V_LIST || v->kind == V_TUPLE) {
        n = (int64_t)v->list->n;
    } else if (v->kind == V_DICT) {
        n = (int64_t)v->dict->n;
    } else if (v->kind != V_UNDEFINED) {
        return TPL_FAIL(r, "a %s has no length", pgd_text_template_type(v));
    }
    *out = pgd_text_template_int(n);
    return PGD_OK;
}

static pgd_status f_list(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    (void)args;
    PGD_TRY(items_of(r, v, &l));
    *out = (value){.kind = V_LIST, .list = l};
    return PGD_OK;
}

static pgd_status f_first(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    (void)args;
    PGD_TRY(items_of(r, v, &l));
    *out = l->n > 0 ? l->items[0] : pgd_text_template_undefined(PGD_STR("first of nothing"));
    return PGD_OK;
}

static pgd_status f_last(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    (void)args;
    PGD_TRY(items_of(r, v, &l));
    *out = l->n > 0 ? l->items[l->n - 1] : pgd_text_template_undefined(PGD_STR("last of nothing"));
    return PGD_OK;
}

static pgd_status f_join(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    value between = pgd_text_template_str(PGD_STR(""));
    const value *given = pgd_text_template_arg(args, 0, "d");
    const value *path = pgd_text_template_arg(args, 1, "attribute");
    PGD_TRY(items_of(r, v, &l));
    PGD_TRY(given != NULL ? pgd_text_template_text_of(r, given, &between) : PGD_OK);
    pgd_text t = {0};
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < l->n && status == PGD_OK; i++) {
        value item = l->items[i];
        status = path != NULL ? attribute_of(r, &l->items[i], path, &item) : PGD_OK;
        if (status == PGD_OK && i > 0) {
            status = pgd_text_add_str(&t, between.str);
        }
        if (status == PGD_OK) {
            status = pgd_text_template_print(r, &item, &t);
        }
    }
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

static pgd_status f_items(render *r, const value *v, const call_args *args, value *out) {
    PGD_TRY(pgd_text_template_new_list(r, 0, V_LAZY, out));
    if (v->kind == V_UNDEFINED) {
        return PGD_OK;
    }
    if (v->kind != V_DICT) {
        return TPL_FAIL(r, "items needs a dictionary, not a %s", pgd_text_template_type(v));
    }
    value method;
    PGD_TRY(pgd_text_template_attr(r, v, PGD_STR("items"), 1, &method));
    PGD_TRY(pgd_text_template_call(r, &method, args, out));
    out->kind = V_LAZY;
    return PGD_OK;
}

static pgd_status f_reverse(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    (void)args;
    if (v->kind == V_STRING) {
        value parts[3] = {{.kind = V_NONE}, {.kind = V_NONE}, pgd_text_template_int(-1)};
        return pgd_text_template_slice(r, v, parts, out);
    }
    PGD_TRY(items_of(r, v, &l));
    PGD_TRY(pgd_text_template_new_list(r, l->n, V_LAZY, out));
    for (size_t i = l->n; i > 0; i--) {
        PGD_TRY(pgd_text_template_append(r, out, l->items[i - 1]));
    }
    return PGD_OK;
}

static pgd_status f_sum(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    const value *path = pgd_text_template_arg(args, 0, "attribute");
    const value *start = pgd_text_template_arg(args, 1, "start");
    PGD_TRY(items_of(r, v, &l));
    *out = start != NULL ? *start : pgd_text_template_int(0);
    for (size_t i = 0; i < l->n; i++) {
        value item = l->items[i];
        value sum;
        if (path != NULL && path->kind != V_NONE) {
            PGD_TRY(attribute_of(r, &l->items[i], path, &item));
        }
        PGD_TRY(pgd_text_template_binary(r, OP_ADD, out, &item, &sum));
        *out = sum;
    }
    return PGD_OK;
}

// ---- order -------------------------------------------------------------------------------------

// What an item is sorted by: its attribute, strings in lower case unless case counts.
static pgd_status sort_key(render *r, const value *item, const value *path, int32_t case_sensitive,
                           value *out) {
    *out = *item;
    if (path != NULL && path->kind != V_NONE) {
        PGD_TRY(attribute_of(r, item, path, out));
    }
    return out->kind == V_STRING && !case_sensitive
               ? pgd_text_template_case(r, out->str, CASE_LOWER, out)
               : PGD_OK;
}

typedef struct {
    value key;
    value item;
} keyed;

// Stable merge sort of items[0, n) by key; down 1 = largest first.
static pgd_status sort_keyed(render *r, keyed *items, size_t n, keyed *tmp, int32_t down) {
    PGD_TRY(pgd_text_template_steps(r, n));
    if (n < 2) {
        return PGD_OK;
    }
    size_t half = n / 2;
    PGD_TRY(sort_keyed(r, items, half, tmp, down));
    PGD_TRY(sort_keyed(r, items + half, n - half, tmp, down));
    size_t a = 0;
    size_t b = half;
    for (size_t i = 0; i < n; i++) {
        int32_t c = a == half ? 1 : -1;
        if (a < half && b < n) {
            PGD_TRY(pgd_text_template_order(r, &items[a].key, &items[b].key, &c));
            c = down ? -c : c;
        }
        tmp[i] = c <= 0 ? items[a++] : items[b++];
    }
    memcpy(items, tmp, n * sizeof(*items));
    return PGD_OK;
}

static pgd_status keyed_items(render *r, const list *l, const value *path, int32_t case_sensitive,
                              keyed **out) {
    void *made = NULL;
    PGD_TRY(pgd_text_template_alloc(r, l->n, 2 * sizeof(keyed), &made)); // and as much to sort
    *out = made;
    for (size_t i = 0; i < l->n; i++) {
        (*out)[i].item = l->items[i];
        PGD_TRY(sort_key(r, &l->items[i], path, case_sensitive, &(*out)[i].key));
    }
    return PGD_OK;
}

static pgd_status f_sort(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    keyed *items = NULL;
    PGD_TRY(items_of(r, v, &l));
    PGD_TRY(keyed_items(r, l, pgd_text_template_arg(args, 2, "attribute"),
                        flag(args, 1, "case_sensitive", 0), &items));
    PGD_TRY(sort_keyed(r, items, l->n, items + l->n, flag(args, 0, "reverse", 0)));
    PGD_TRY(pgd_text_template_new_list(r, l->n, V_LIST, out));
    for (size_t i = 0; i < l->n; i++) {
        PGD_TRY(pgd_text_template_append(r, out, items[i].item));
    }
    return PGD_OK;
}

static pgd_status f_dictsort(render *r, const value *v, const call_args *args, value *out) {
    if (v->kind != V_DICT) {
        return TPL_FAIL(r, "dictsort needs a dictionary, not a %s", pgd_text_template_type(v));
    }
    pgd_str by;
    value pairs;
    keyed *items = NULL;
    PGD_TRY(pgd_text_template_str_arg(r, args, 1, "by", PGD_STR("key"), &by));
    PGD_TRY(f_items(r, v, &no_args, &pairs));
    value path = pgd_text_template_int(pgd_str_is(by, "value"));
    PGD_TRY(keyed_items(r, pairs.list, &path, flag(args, 0, "case_sensitive", 0), &items));
    size_t n = pairs.list->n;
    PGD_TRY(sort_keyed(r, items, n, items + n, flag(args, 2, "reverse", 0)));
    PGD_TRY(pgd_text_template_new_list(r, n, V_LIST, out));
    for (size_t i = 0; i < n; i++) {
        PGD_TRY(pgd_text_template_append(r, out, items[i].item));
    }
    return PGD_OK;
}

static pgd_status extreme(render *r, const value *v, const call_args *args, int32_t sign,
                          value *out) {
    list *l = NULL;
    keyed *items = NULL;
    PGD_TRY(items_of(r, v, &l));
    PGD_TRY(keyed_items(r, l, pgd_text_template_arg(args, 1, "attribute"),
                        flag(args, 0, "case_sensitive", 0), &items));
    *out = pgd_text_template_undefined(PGD_STR("the extreme of nothing"));
    size_t best = 0;
    for (size_t i = 1; i < l->n; i++) {
        int32_t c = 0;
        PGD_TRY(pgd_text_template_order(r, &items[i].key, &items[best].key, &c));
        best = c * sign > 0 ? i : best;
    }
    *out = l->n > 0 ? l->items[best] : *out;
    return PGD_OK;
}

static pgd_status f_max(render *r, const value *v, const call_args *args, value *out) {
    return extreme(r, v, args, 1, out);
}

static pgd_status f_min(render *r, const value *v, const call_args *args, value *out) {
    return extreme(r, v, args, -1, out);
}

static pgd_status f_unique(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    keyed *items = NULL;
    value seen;
    PGD_TRY(items_of(r, v, &l));
    PGD_TRY(keyed_items(r, l, pgd_text_template_arg(args, 1, "attribute"),
                        flag(args, 0, "case_sensitive", 0), &items));
    PGD_TRY(pgd_text_template_new_list(r, l->n, V_LIST, &seen));
    PGD_TRY(pgd_text_template_new_list(r, l->n, V_LAZY, out));
    for (size_t i = 0; i < l->n; i++) {
        int32_t old = 0;
        PGD_TRY(pgd_text_template_contains(r, &seen, &items[i].key, &old));
        if (!old) {
            PGD_TRY(pgd_text_template_append(r, &seen, items[i].key));
            PGD_TRY(pgd_text_template_append(r, out, items[i].item));
        }
    }
    return PGD_OK;
}

// ---- map and select ----------------------------------------------------------------------------

// The arguments behind the first n.
static call_args behind(const call_args *args, size_t n) {
    call_args rest = *args;
    n = n < args->n ? n : args->n;
    rest.items += n;
    rest.n -= n;
    return rest;
}

static pgd_status f_map(render *r, const value *v, const call_args *args, value *out) {
    list *l = NULL;
    PGD_TRY(items_or_none(r, v, &l));
    PGD_TRY(pgd_text_template_new_list(r, l->n, V_LAZY, out));
    const value *path = args->n == 0 ? pgd_text_template_arg(args, 0, "attribute") : NULL;
    const value *otherwise = pgd_text_template_arg(args, SIZE_MAX, "default");
    if (path == NULL && (args->n == 0 || args->items[0].kind != V_STRING)) {
        return TPL_FAIL(r, "map needs a filter's name or attribute=");
    }
    call_args rest = behind(args, 1);
    for (size_t i = 0; i < l->n; i++) {
        value item;
        if (path == NULL) {
            PGD_TRY(pgd_text_template_filter(r, args->items[0].str, &l->items[i], &rest, &item));
        } else {
            PGD_TRY(attribute_of(r, &l->items[i], path, &item));
            item = item.kind == V_UNDEFINED && otherwise != NULL ? *otherwise : item;
        }
        PGD_TRY(pgd_text_template_append(r, out, item));
    }
    return PGD_OK;
}

// Keeps items for which a test (or their truth) is `wanted`; n_path 1: of an attribute.
static pgd_status choose(render *r, const value *v, const call_args *args, size_t n_path,
                         int32_t wanted, value *out) {
    list *l = NULL;
    PGD_TRY(items_or_none(r, v, &l));
    PGD_TRY(pgd_text_template_new_list(r, l->n, V_LAZY, out));
    if (args->n < n_path || (args->n > n_path && args->items[n_path].kind != V_STRING)) {
        return TPL_FAIL(r, "select and reject need the name of a test%s",
                        n_path > 0 ? " behind that of an attribute" : "");
    }
    call_args rest = behind(args, n_path + 1);
    for (size_t i = 0; i < l->n; i++) {
        value item = l->items[i];
        if (n_path > 0) {
            PGD_TRY(attribute_of(r, &l->items[i], &args->items[0], &item));
        }
        int32_t yes = pgd_text_template_is_true(&item);
        if (args->n > n_path) {
            PGD_TRY(pgd_text_template_test(r, args->items[n_path].str, &item, &rest, &yes));
        }
        if (yes == wanted) {
            PGD_TRY(pgd_text_template_append(r, out, l->items[i]));
        }
    }
    return PGD_OK;
}

static pgd_status f_select(render *r, const value *v, const call_args *args, value *out) {
    return choose(r, v, args, 0, 1, out);
}

static pgd_status f_reject(render *r, const value *v, const call_args *args, value *out) {
    return choose(r, v, args, 0, 0, out);
}

static pgd_status f_selectattr(render *r, const value *v, const call_args *args, value *out) {
    return choose(r, v, args, 1, 1, out);
}

static pgd_status f_rejectattr(render *r, const value *v, const call_args *args, value *out) {
    return choose(r, v, args, 1, 0, out);
}

filter_run pgd_text_template_list_filter(pgd_str name) {
    static const struct {
        const char *name;
        filter_run run;
    } filters[] = {
        {"length", f_length},
        {"count", f_length},
        {"list", f_list},
        {"first", f_first},
        {"last", f_last},
        {"join", f_join},
        {"items", f_items},
        {"reverse", f_reverse},
        {"sum", f_sum},
        {"sort", f_sort},
        {"dictsort", f_dictsort},
        {"max", f_max},
        {"min", f_min},
        {"unique", f_unique},
        {"map", f_map},
        {"select", f_select},
        {"reject", f_reject},
        {"selectattr", f_selectattr},
        {"rejectattr", f_rejectattr},
    };
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        if (pgd_str_is(name, filters[i].name)) {
            return filters[i].run;
        }
    }
    return NULL;
}
