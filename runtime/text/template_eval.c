// The evaluator of chat templates: statements into text, expressions into values.
//
// Names are looked up from the innermost scope outwards. A turn of a loop, a macro call, a with, a
// generation and a captured block have a scope of their own; an if has none. A macro's scope hangs
// below the place where it was defined, so it does not see its caller's names.
#include <string.h>

#include "text/parts.h"
#include "text/template_parts.h"

// ---- scopes ------------------------------------------------------------------------------------

pgd_status pgd_text_template_new_scope(render *r, scope *parent, scope **out) {
    void *made = NULL;
    PGD_TRY(pgd_text_template_alloc(r, 1, sizeof(scope), &made));
    *out = made;
    (*out)->parent = parent;
    return PGD_OK;
}

pgd_status pgd_text_template_set(render *r, scope *s, pgd_str name, value v) {
    for (size_t i = 0; i < s->n; i++) {
        if (pgd_str_equal(s->names[i], name)) {
            s->values[i] = v;
            return PGD_OK;
        }
    }
    if (s->n == s->cap) {
        size_t cap = s->cap == 0 ? 4 : s->cap * 2;
        void *names = NULL;
        void *values = NULL;
        PGD_TRY(pgd_text_template_alloc(r, cap, sizeof(pgd_str), &names));
        PGD_TRY(pgd_text_template_alloc(r, cap, sizeof(value), &values));
        if (s->n > 0) {
            memcpy(names, s->names, s->n * sizeof(pgd_str));
            memcpy(values, s->values, s->n * sizeof(value));
        }
        s->names = names;
        s->values = values;
        s->cap = cap;
    }
    s->names[s->n] = name;
    s->values[s->n++] = v;
    return PGD_OK;
}

// A scope for the next turn of a loop: the last one, emptied, unless a macro still needs it.
static pgd_status next_scope(render *r, scope *parent, scope **io) {
    if (*io == NULL || (*io)->kept) {
        return pgd_text_template_new_scope(r, parent, io);
    }
    (*io)->n = 0;
    return PGD_OK;
}

static value find(const scope *s, pgd_str name) {
    for (; s != NULL; s = s->parent) {
        for (size_t i = 0; i < s->n; i++) {
            if (pgd_str_equal(s->names[i], name)) {
                return s->values[i];
            }
        }
    }
    if (pgd_text_template_has_global(name)) {
        return (value){.kind = V_GLOBAL, .str = name};
    }
    return pgd_text_template_undefined(name);
}

// ---- attributes and items ----------------------------------------------------------------------

static pgd_status loop_attr(render *r, const loop_state *l, pgd_str name, value *out) {
    int64_t at = (int64_t)l->at;
    int64_t n = (int64_t)l->items->n;
    const struct {
        const char *name;
        value v;
    } known[] = {
        {"index", pgd_text_template_int(at + 1)},
        {"index0", pgd_text_template_int(at)},
        {"revindex", pgd_text_template_int(n - at)},
        {"revindex0", pgd_text_template_int(n - at - 1)},
        {"first", pgd_text_template_bool(at == 0)},
        {"last", pgd_text_template_bool(at == n - 1)},
        {"length", pgd_text_template_int(n)},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (pgd_str_is(name, known[i].name)) {
            *out = known[i].v;
            return PGD_OK;
        }
    }
    if (pgd_str_is(name, "previtem") && at > 0) {
        *out = l->items->items[at - 1];
    } else if (pgd_str_is(name, "nextitem") && at + 1 < n) {
        *out = l->items->items[at + 1];
    } else if (!pgd_str_is(name, "previtem") && !pgd_str_is(name, "nextitem")) {
        return TPL_FAIL(r, "loop.%.*s is not supported", (int)(name.len < 60 ? name.len : 60),
                        name.ptr);
    }
    return PGD_OK;
}

static pgd_status method_of(render *r, const value *v, pgd_str name, value *out) {
    void *self = NULL;
    PGD_TRY(pgd_text_template_alloc(r, 1, sizeof(value), &self));
    *(value *)self = *v;
    *out = (value){.kind = V_METHOD, .str = name, .self = self};
    return PGD_OK;
}

pgd_status pgd_text_template_attr(render *r, const value *v, pgd_str name, int32_t attribute,
                                  value *out) {
    *out = pgd_text_template_undefined(name);
    if (v->kind == V_UNDEFINED) {
        return TPL_FAIL(r, "'%.*s' is undefined", (int)(v->str.len < 100 ? v->str.len : 100),
                        v->str.ptr != NULL ? v->str.ptr : "");
    }
    if (v->kind == V_LOOP) {
        return loop_attr(r, v->loop, name, out);
    }
    int32_t method = pgd_text_template_has_method(v, name);
    if (method && attribute) {
        return method_of(r, v, name, out);
    }
    if (v->kind == V_DICT || v->kind == V_NAMESPACE) {
        value key = pgd_text_template_str(name);
        PGD_TRY(pgd_text_template_steps(r, v->dict->n / 16));
        const value *item = pgd_text_template_dict_get(v->dict, &key);
        if (item != NULL) {
            *out = *item;
            return PGD_OK;
        }
    }
    return method ? method_of(r, v, name, out) : PGD_OK;
}

static void string_item(pgd_str s, int64_t i, value *out) {
    int64_t n = i < 0 ? (int64_t)pgd_text_template_count_chars(s) : 0;
    i = i < 0 ? i + n : i;
    size_t at = 0;
    size_t end = 0;
    for (; i >= 0 && at < s.len; i--, at = end) {
        pgd_text_char(s, at, &end);
        if (i == 0) {
            *out = pgd_text_template_str((pgd_str){s.ptr + at, end - at});
            return;
        }
    }
}

pgd_status pgd_text_template_index(render *r, const value *v, const value *key, value *out) {
    if (key->kind == V_STRING) {
        return pgd_text_template_attr(r, v, key->str, 0, out);
    }
    *out = pgd_text_template_undefined(PGD_STR("an item"));
    if (v->kind == V_UNDEFINED) {
        return pgd_text_template_attr(r, v, PGD_STR(""), 0, out);
    }
    if (v->kind == V_DICT) {
        const value *item = pgd_text_template_dict_get(v->dict, key);
        *out = item != NULL ? *item : *out;
        return PGD_OK;
    }
    if (key->kind != V_INT && key->kind != V_BOOL) {
        return PGD_OK;
    }
    if (v->kind == V_STRING) {
        PGD_TRY(pgd_text_template_steps(r, v->str.len / 64));
        string_item(v->str, key->i, out);
    } else if (v->kind == V_LIST || v->kind == V_TUPLE) {
        int64_t n = (int64_t)v->list->n;
        int64_t i = key->i < 0 ? key->i + n : key->i;
        if (i >= 0 && i < n) {
            *out = v->list->items[i];
        }
    }
    return PGD_OK;
}

// ---- expressions -------------------------------------------------------------------------------

static pgd_status eval_items(render *r, scope *s, const nodes *items, value **out) {
    void *made = NULL;
    PGD_TRY(pgd_text_template_alloc(r, items->n, sizeof(value), &made));
    *out = made;
    for (size_t i = 0; i < items->n; i++) {
        PGD_TRY(pgd_text_template_eval(r, s, items->items[i], &(*out)[i]));
    }
    return PGD_OK;
}

static pgd_status eval_args(render *r, scope *s, const node *n, call_args *out) {
    *out = (call_args){.n = n->items.n, .names = n->names, .n_named = n->named.n};
    PGD_TRY(eval_items(r, s, &n->items, &out->items));
    return eval_items(r, s, &n->named, &out->named);
}

static pgd_status eval_list(render *r, scope *s, const node *n, value *out) {
    PGD_TRY(pgd_text_template_new_list(r, 0, n->kind == N_LIST ? V_LIST : V_TUPLE, out));
    out->list->n = n->items.n;
    return eval_items(r, s, &n->items, &out->list->items);
}

static pgd_status eval_dict(render *r, scope *s, const node *n, value *out) {
    value *items = NULL;
    PGD_TRY(eval_items(r, s, &n->items, &items));
    PGD_TRY(pgd_text_template_new_dict(r, n->items.n / 2, out));
    for (size_t i = 0; i + 1 < n->items.n; i += 2) {
        PGD_TRY(pgd_text_template_dict_set(r, out->dict, items[i], items[i + 1]));
    }
    return PGD_OK;
}

static pgd_status eval_slice(render *r, scope *s, const node *n, value *out) {
    value parts[3] = {{.kind = V_NONE}, {.kind = V_NONE}, {.kind = V_NONE}};
    for (size_t i = 0; i < 3; i++) {
        if (n->items.items[i] != NULL) {
            PGD_TRY(pgd_text_template_eval(r, s, n->items.items[i], &parts[i]));
        }
    }
    value v;
    PGD_TRY(pgd_text_template_eval(r, s, n->a, &v));
    return pgd_text_template_slice(r, &v, parts, out);
}

static pgd_status eval_filter(render *r, scope *s, const node *n, const value *input, value *out) {
    call_args args;
    PGD_TRY(eval_args(r, s, n, &args));
    r->line = n->line;
    return pgd_text_template_filter(r, n->text, input, &args, out);
}

// A chain of filters over what a block made; the innermost has no input of its own.
static pgd_status eval_filters_of_block(render *r, scope *s, const node *n, value input,
                                        value *out) {
    if (n->a != NULL) {
        PGD_TRY(eval_filters_of_block(r, s, n->a, input, &input));
    }
    return eval_filter(r, s, n, &input, out);
}

static pgd_status eval_test(render *r, scope *s, const node *n, value *out) {
    call_args args;
    value v;
    int32_t yes = 0;
    PGD_TRY(pgd_text_template_eval(r, s, n->a, &v));
    PGD_TRY(eval_args(r, s, n, &args));
    r->line = n->line;
    PGD_TRY(pgd_text_template_test(r, n->text, &v, &args, &yes));
    *out = pgd_text_template_bool(yes);
    return PGD_OK;
}

static pgd_status eval_concat(render *r, scope *s, const node *n, value *out) {
    pgd_text t = {0};
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < n->items.n && status == PGD_OK; i++) {
        value v;
        status = pgd_text_template_eval(r, s, n->items.items[i], &v);
        if (status == PGD_OK) {
            status = pgd_text_template_print(r, &v, &t);
        }
    }
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

static pgd_status eval_compare(render *r, scope *s, const node *n, value *out) {
    value left;
    int32_t yes = 1;
    PGD_TRY(pgd_text_template_eval(r, s, n->a, &left));
    for (size_t i = 0; i < n->items.n && yes; i++) {
        value right;
        PGD_TRY(pgd_text_template_eval(r, s, n->items.items[i], &right));
        r->line = n->line;
        PGD_TRY(pgd_text_template_compare(r, n->ops[i], &left, &right, &yes));
        left = right;
    }
    *out = pgd_text_template_bool(yes);
    return PGD_OK;
}

static pgd_status eval_sign(render *r, const node *n, const value *v, value *out) {
    if (!pgd_text_template_is_number(v) || (v->kind == V_INT && v->i == INT64_MIN)) {
        return TPL_FAIL(r, "a sign does not work on a %s", pgd_text_template_type(v));
    }
    if (v->kind == V_FLOAT) {
        *out = pgd_text_template_float(n->kind == N_NEG ? -v->f : v->f);
    } else {
        *out = pgd_text_template_int(n->kind == N_NEG ? -v->i : v->i);
    }
    return PGD_OK;
}

// Kinds whose first operand decides what else is evaluated.
static pgd_status eval_choice(render *r, scope *s, const node *n, value *out) {
    value v;
    PGD_TRY(pgd_text_template_eval(r, s, n->kind == N_IF ? n->b : n->a, &v));
    int32_t yes = pgd_text_template_is_true(&v);
    if (n->kind == N_IF) {
        const node *taken = yes ? n->a : n->c;
        *out = pgd_text_template_undefined(PGD_STR("the other case of an inline if"));
        return taken != NULL ? pgd_text_template_eval(r, s, taken, out) : PGD_OK;
    }
    if (yes == (n->kind == N_OR)) {
        *out = v;
        return PGD_OK;
    }
    return pgd_text_template_eval(r, s, n->b, out);
}

// Kinds that begin with the value of a.
static pgd_status eval_on(render *r, scope *s, const node *n, value *out) {
    value a;
    value b;
    call_args args;
    PGD_TRY(pgd_text_template_eval(r, s, n->a, &a));
    r->line = n->line;
    switch (n->kind) {
    case N_ATTR: return pgd_text_template_attr(r, &a, n->text, 1, out);
    case N_FILTER: return eval_filter(r, s, n, &a, out);
    case N_NOT: *out = pgd_text_template_bool(!pgd_text_template_is_true(&a)); return PGD_OK;
    case N_NEG:
    case N_POS: return eval_sign(r, n, &a, out);
    case N_CALL:
        PGD_TRY(eval_args(r, s, n, &args));
        r->line = n->line;
        return pgd_text_template_call(r, &a, &args, out);
    default: break;
    }
    PGD_TRY(pgd_text_template_eval(r, s, n->b, &b));
    r->line = n->line;
    return n->kind == N_INDEX ? pgd_text_template_index(r, &a, &b, out)
                              : pgd_text_template_binary(r, n->i, &a, &b, out);
}

static pgd_status eval_kind(render *r, scope *s, const node *n, value *out) {
    switch (n->kind) {
    case N_NONE: *out = (value){.kind = V_NONE}; return PGD_OK;
    case N_BOOL: *out = pgd_text_template_bool(n->i != 0); return PGD_OK;
    case N_INT: *out = pgd_text_template_int(n->i); return PGD_OK;
    case N_FLOAT: *out = pgd_text_template_float(n->f); return PGD_OK;
    case N_STRING: *out = pgd_text_template_str(n->text); return PGD_OK;
    case N_NAME: *out = find(s, n->text); return PGD_OK;
    case N_LIST:
    case N_TUPLE: return eval_list(r, s, n, out);
    case N_DICT: return eval_dict(r, s, n, out);
    case N_SLICE: return eval_slice(r, s, n, out);
    case N_TEST: return eval_test(r, s, n, out);
    case N_AND:
    case N_OR:
    case N_IF: return eval_choice(r, s, n, out);
    case N_CONCAT: return eval_concat(r, s, n, out);
    case N_COMPARE: return eval_compare(r, s, n, out);
    default: return eval_on(r, s, n, out);
    }
}

pgd_status pgd_text_template_eval(render *r, scope *s, const node *n, value *out) {
    r->line = n->line;
    PGD_TRY(pgd_text_template_steps(r, 1));
    if (r->depth >= TPL_MAX_DEPTH) {
        return TPL_FAIL(r, "calls and expressions are nested more than %d deep", TPL_MAX_DEPTH);
    }
    r->depth++;
    pgd_status status = eval_kind(r, s, n, out);
    r->depth--;
    return status;
}

// ---- statements --------------------------------------------------------------------------------

static pgd_status assign(render *r, scope *s, const node *target, const value *v) {
    if (target->kind == N_NAME) {
        return pgd_text_template_set(r, s, target->text, *v);
    }
    if (target->kind == N_ATTR) {
        value ns = find(s, target->a->text);
        if (ns.kind != V_NAMESPACE) {
            return TPL_FAIL(r, "only attributes of a namespace can be set, %.*s is a %s",
                            (int)(target->a->text.len < 60 ? target->a->text.len : 60),
                            target->a->text.ptr, pgd_text_template_type(&ns));
        }
        return pgd_text_template_dict_set(r, ns.dict, pgd_text_template_str(target->text), *v);
    }
    list *l = NULL;
    PGD_TRY(pgd_text_template_items(r, v, &l));
    if (l->n != target->items.n) {
        return TPL_FAIL(r, "%zu values for %zu names", l->n, target->items.n);
    }
    for (size_t i = 0; i < l->n; i++) {
        PGD_TRY(assign(r, s, target->items.items[i], &l->items[i]));
    }
    return PGD_OK;
}

// Text of a body in a scope of its own.
static pgd_status capture(render *r, scope *s, const nodes *body, value *out) {
    scope *inner = NULL;
    PGD_TRY(pgd_text_template_new_scope(r, s, &inner));
    pgd_text t = {0};
    pgd_status status = pgd_text_template_run(r, inner, body, &t);
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

// The items a loop visits: all, or those for which the condition holds.
static pgd_status loop_items(render *r, scope *s, const node *n, list **out) {
    value what;
    PGD_TRY(pgd_text_template_eval(r, s, n->b, &what));
    r->line = n->line;
    PGD_TRY(pgd_text_template_items(r, &what, out));
    if (n->c == NULL) {
        return PGD_OK;
    }
    const list *all = *out;
    value kept;
    PGD_TRY(pgd_text_template_new_list(r, all->n, V_LIST, &kept));
    scope *inner = NULL;
    for (size_t i = 0; i < all->n; i++) {
        value yes;
        PGD_TRY(next_scope(r, s, &inner));
        PGD_TRY(assign(r, inner, n->a, &all->items[i]));
        PGD_TRY(pgd_text_template_eval(r, inner, n->c, &yes));
        if (pgd_text_template_is_true(&yes)) {
            PGD_TRY(pgd_text_template_append(r, &kept, all->items[i]));
        }
    }
    *out = kept.list;
    return PGD_OK;
}

// The else part runs when no turn came to its end, so after a break or continue in all of them too.
static pgd_status run_for(render *r, scope *s, const node *n, pgd_text *out) {
    list *items = NULL;
    scope *inner = NULL;
    int32_t ended = 0;
    PGD_TRY(loop_items(r, s, n, &items));
    void *made = NULL;
    PGD_TRY(pgd_text_template_alloc(r, 1, sizeof(loop_state), &made));
    loop_state *loop = made;
    loop->items = items;
    for (size_t i = 0; i < items->n; i++) {
        loop->at = i;
        PGD_TRY(pgd_text_template_steps(r, 1));
        PGD_TRY(next_scope(r, s, &inner));
        PGD_TRY(pgd_text_template_set(r, inner, PGD_STR("loop"),
                                      (value){.kind = V_LOOP, .loop = loop}));
        PGD_TRY(assign(r, inner, n->a, &items->items[i]));
        PGD_TRY(pgd_text_template_run(r, inner, &n->body, out));
        int32_t jump = r->jump;
        r->jump = 0;
        ended |= jump == 0;
        if (jump == N_BREAK) {
            break;
        }
    }
    if (ended) {
        return PGD_OK;
    }
    PGD_TRY(pgd_text_template_new_scope(r, s, &inner));
    return pgd_text_template_run(r, inner, &n->other, out);
}

static pgd_status run_captured(render *r, scope *s, const node *n, pgd_text *out) {
    value v;
    PGD_TRY(capture(r, s, &n->body, &v));
    if (n->b != NULL) {
        PGD_TRY(eval_filters_of_block(r, s, n->b, v, &v));
    }
    return n->kind == N_SET_BLOCK ? assign(r, s, n->a, &v) : pgd_text_template_print(r, &v, out);
}

// A block with a scope of its own. Its values see the names around the block, not each other.
static pgd_status run_with(render *r, scope *s, const node *n, pgd_text *out) {
    scope *inner = NULL;
    value *values = NULL;
    PGD_TRY(pgd_text_template_new_scope(r, s, &inner));
    PGD_TRY(eval_items(r, s, &n->named, &values));
    for (size_t i = 0; i < n->named.n; i++) {
        PGD_TRY(pgd_text_template_set(r, inner, n->names[i], values[i]));
    }
    return pgd_text_template_run(r, inner, &n->body, out);
}

static pgd_status run_macro(render *r, scope *s, const node *n) {
    void *made = NULL;
    PGD_TRY(pgd_text_template_alloc(r, 1, sizeof(macro), &made));
    macro *m = made;
    m->node = n;
    m->home = s;
    for (scope *at = s; at != NULL; at = at->parent) {
        at->kept = 1;
    }
    return pgd_text_template_set(r, s, n->text, (value){.kind = V_MACRO, .macro = m});
}

static pgd_status run_one(render *r, scope *s, const node *n, pgd_text *out) {
    value v;
    r->line = n->line;
    switch (n->kind) {
    case N_DATA: v = pgd_text_template_str(n->text); return pgd_text_template_print(r, &v, out);
    case N_OUTPUT:
        PGD_TRY(pgd_text_template_eval(r, s, n->a, &v));
        return pgd_text_template_print(r, &v, out);
    case N_IF_BLOCK:
        PGD_TRY(pgd_text_template_eval(r, s, n->a, &v));
        return pgd_text_template_run(r, s, pgd_text_template_is_true(&v) ? &n->body : &n->other,
                                     out);
    case N_FOR: return run_for(r, s, n, out);
    case N_SET: PGD_TRY(pgd_text_template_eval(r, s, n->b, &v)); return assign(r, s, n->a, &v);
    case N_SET_BLOCK:
    case N_FILTER_BLOCK: return run_captured(r, s, n, out);
    case N_MACRO: return run_macro(r, s, n);
    case N_WITH:
    case N_GENERATION: return run_with(r, s, n, out);
    default: r->jump = (int32_t)n->kind; return PGD_OK;
    }
}

pgd_status pgd_text_template_run(render *r, scope *s, const nodes *body, pgd_text *out) {
    if (r->depth >= TPL_MAX_DEPTH) {
        return TPL_FAIL(r, "blocks are nested more than %d deep", TPL_MAX_DEPTH);
    }
    r->depth++;
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < body->n && status == PGD_OK && r->jump == 0; i++) {
        status = pgd_text_template_steps(r, 1);
        if (status == PGD_OK) {
            status = run_one(r, s, body->items[i], out);
        }
    }
    r->depth--;
    return status;
}
