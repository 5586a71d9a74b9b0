// Calls in templates: macros, methods of dictionaries and lists, and the few functions of the
// sandbox. Nothing that changes a value is among them.
#define _POSIX_C_SOURCE 200809L // localtime_r
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "text/parts.h"
#include "text/template_parts.h"

// ---- arguments ---------------------------------------------------------------------------------

const value *pgd_text_template_arg(const call_args *args, size_t at, const char *name) {
    if (at < args->n) {
        return &args->items[at];
    }
    for (size_t i = 0; i < args->n_named && name != NULL; i++) {
        if (pgd_str_is(args->names[i], name)) {
            return &args->named[i];
        }
    }
    return NULL;
}

pgd_status pgd_text_template_int_arg(render *r, const call_args *args, size_t at, const char *name,
                                     int64_t otherwise, int64_t *out) {
    const value *v = pgd_text_template_arg(args, at, name);
    *out = otherwise;
    if (v == NULL || v->kind == V_NONE) {
        return PGD_OK;
    }
    if (v->kind != V_INT && v->kind != V_BOOL) {
        return TPL_FAIL(r, "argument %s must be an integer, not a %s", name,
                        pgd_text_template_type(v));
    }
    *out = v->i;
    return PGD_OK;
}

pgd_status pgd_text_template_str_arg(render *r, const call_args *args, size_t at, const char *name,
                                     pgd_str otherwise, pgd_str *out) {
    const value *v = pgd_text_template_arg(args, at, name);
    *out = otherwise;
    if (v == NULL || v->kind == V_NONE) {
        return PGD_OK;
    }
    if (v->kind != V_STRING) {
        return TPL_FAIL(r, "argument %s must be a string, not a %s", name,
                        pgd_text_template_type(v));
    }
    *out = v->str;
    return PGD_OK;
}

// ---- macros ------------------------------------------------------------------------------------

static pgd_status call_macro(render *r, const macro *m, const call_args *args, value *out) {
    const node *n = m->node;
    scope *s = NULL;
    if (args->n > n->named.n) {
        return TPL_FAIL(r, "macro %.*s takes %zu arguments, not %zu",
                        (int)(n->text.len < 60 ? n->text.len : 60), n->text.ptr, n->named.n,
                        args->n);
    }
    PGD_TRY(pgd_text_template_new_scope(r, m->home, &s));
    for (size_t i = 0; i < n->named.n; i++) {
        value v = pgd_text_template_undefined(n->names[i]);
        const value *given = i < args->n ? &args->items[i] : NULL;
        for (size_t k = 0; k < args->n_named; k++) {
            given = pgd_str_equal(args->names[k], n->names[i]) ? &args->named[k] : given;
        }
        if (given != NULL) {
            v = *given;
        } else if (n->named.items[i] != NULL) {
            PGD_TRY(pgd_text_template_eval(r, s, n->named.items[i], &v));
        }
        PGD_TRY(pgd_text_template_set(r, s, n->names[i], v));
    }
    pgd_text t = {0};
    pgd_status status = pgd_text_template_run(r, s, &n->body, &t);
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

// ---- functions of the sandbox ------------------------------------------------------------------

static pgd_status call_range(render *r, const call_args *args, value *out) {
    int64_t start = 0;
    int64_t stop = 0;
    int64_t step = 1;
    PGD_TRY(pgd_text_template_int_arg(r, args, 0, "stop", 0, &stop));
    if (args->n > 1) {
        start = stop;
        PGD_TRY(pgd_text_template_int_arg(r, args, 1, "stop", 0, &stop));
        PGD_TRY(pgd_text_template_int_arg(r, args, 2, "step", 1, &step));
    }
    if (step == 0 || args->n == 0) {
        return TPL_FAIL(r, "range() needs one to three integers and a step other than 0");
    }
    PGD_TRY(pgd_text_template_new_list(r, 0, V_LIST, out));
    double turns = ((double)stop - (double)start) / (double)step;
    if (turns > 100000) { // the limit of Jinja's sandbox
        return TPL_FAIL(r, "a range of more than 100000 numbers");
    }
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        PGD_TRY(pgd_text_template_append(r, out, pgd_text_template_int(i)));
    }
    return PGD_OK;
}

static pgd_status call_dict(render *r, const call_args *args, value_kind kind, value *out) {
    PGD_TRY(pgd_text_template_new_dict(r, args->n_named, out));
    const value *from = args->n > 0 ? &args->items[0] : NULL;
    if (from != NULL && from->kind != V_DICT) {
        return TPL_FAIL(r, "a dictionary is made of another or of names, not of a %s",
                        pgd_text_template_type(from));
    }
    for (size_t i = 0; from != NULL && i < from->dict->n; i++) {
        PGD_TRY(
            pgd_text_template_dict_set(r, out->dict, from->dict->keys[i], from->dict->values[i]));
    }
    for (size_t i = 0; i < args->n_named; i++) {
        PGD_TRY(pgd_text_template_dict_set(r, out->dict, pgd_text_template_str(args->names[i]),
                                           args->named[i]));
    }
    out->kind = kind;
    return PGD_OK;
}

static pgd_status call_raise(render *r, const call_args *args) {
    value message = pgd_text_template_str(PGD_STR("raise_exception without a message"));
    const value *given = pgd_text_template_arg(args, 0, "message");
    if (given != NULL) {
        PGD_TRY(pgd_text_template_text_of(r, given, &message));
    }
    return TPL_FAIL(r, "%.*s", (int)(message.str.len < 500 ? message.str.len : 500),
                    message.str.ptr);
}

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

static pgd_status add_date_part(render *r, char c, const struct tm *t, pgd_text *out) {
    int hour = t->tm_hour % 12 == 0 ? 12 : t->tm_hour % 12;
    switch (c) {
    case 'Y': return pgd_text_format(out, "%04d", t->tm_year + 1900);
    case 'y': return pgd_text_format(out, "%02d", t->tm_year % 100);
    case 'm': return pgd_text_format(out, "%02d", t->tm_mon + 1);
    case 'd': return pgd_text_format(out, "%02d", t->tm_mday);
    case 'e': return pgd_text_format(out, "%2d", t->tm_mday);
    case 'H': return pgd_text_format(out, "%02d", t->tm_hour);
    case 'I': return pgd_text_format(out, "%02d", hour);
    case 'M': return pgd_text_format(out, "%02d", t->tm_min);
    case 'S': return pgd_text_format(out, "%02d", t->tm_sec);
    case 'j': return pgd_text_format(out, "%03d", t->tm_yday + 1);
    case 'p': return pgd_text_add(out, t->tm_hour < 12 ? "AM" : "PM", 2);
    case 'A': return pgd_text_add_str(out, pgd_str_of(days[t->tm_wday]));
    case 'a': return pgd_text_add(out, days[t->tm_wday], 3);
    case 'B': return pgd_text_add_str(out, pgd_str_of(months[t->tm_mon]));
    case 'b': return pgd_text_add(out, months[t->tm_mon], 3);
    case '%': return pgd_text_add(out, "%", 1);
    default: return TPL_FAIL(r, "strftime_now: %%%c is not supported", c);
    }
}

static pgd_status call_date(render *r, const call_args *args, value *out) {
    pgd_str format;
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "format", (pgd_str){0}, &format));
    time_t seconds = (time_t)(pgd_clock_unix_ms() / 1000);
    struct tm now;
    if (localtime_r(&seconds, &now) == NULL) {
        return TPL_FAIL(r, "strftime_now: the clock has no date");
    }
    pgd_text t = {0};
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < format.len && status == PGD_OK; i++) {
        if (format.ptr[i] == '%' && i + 1 < format.len) {
            status = add_date_part(r, format.ptr[++i], &now, &t);
        } else {
            status = pgd_text_add(&t, &format.ptr[i], 1);
        }
    }
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

int32_t pgd_text_template_has_global(pgd_str name) {
    return pgd_str_is(name, "range") || pgd_str_is(name, "namespace") || pgd_str_is(name, "dict") ||
           pgd_str_is(name, "raise_exception") || pgd_str_is(name, "strftime_now");
}

static pgd_status call_global(render *r, pgd_str name, const call_args *args, value *out) {
    if (pgd_str_is(name, "range")) {
        return call_range(r, args, out);
    }
    if (pgd_str_is(name, "namespace")) {
        return call_dict(r, args, V_NAMESPACE, out);
    }
    if (pgd_str_is(name, "dict")) {
        return call_dict(r, args, V_DICT, out);
    }
    return pgd_str_is(name, "strftime_now") ? call_date(r, args, out) : call_raise(r, args);
}

// ---- methods -----------------------------------------------------------------------------------

static const char *const dict_methods[] = {"get", "items", "keys", "values", "copy"};
static const char *const list_methods[] = {"count", "index"};

int32_t pgd_text_template_has_method(const value *self, pgd_str name) {
    if (self->kind == V_STRING) {
        return pgd_text_template_has_string_method(name);
    }
    int32_t is_dict = self->kind == V_DICT;
    if (!is_dict && self->kind != V_LIST && self->kind != V_TUPLE) {
        return 0;
    }
    size_t n = is_dict ? sizeof(dict_methods) / sizeof(dict_methods[0])
                       : sizeof(list_methods) / sizeof(list_methods[0]);
    for (size_t i = 0; i < n; i++) {
        if (pgd_str_is(name, is_dict ? dict_methods[i] : list_methods[i])) {
            return 1;
        }
    }
    return 0;
}

static pgd_status call_dict_method(render *r, pgd_str name, const dict *d, const call_args *args,
                                   value *out) {
    if (pgd_str_is(name, "get")) {
        const value *key = pgd_text_template_arg(args, 0, NULL);
        const value *otherwise = pgd_text_template_arg(args, 1, NULL);
        if (key == NULL) {
            return TPL_FAIL(r, "get() needs a key");
        }
        const value *item = pgd_text_template_dict_get(d, key);
        *out = item != NULL ? *item : otherwise != NULL ? *otherwise : (value){.kind = V_NONE};
        return PGD_OK;
    }
    if (pgd_str_is(name, "copy")) {
        PGD_TRY(pgd_text_template_new_dict(r, d->n, out));
        for (size_t i = 0; i < d->n; i++) {
            PGD_TRY(pgd_text_template_dict_set(r, out->dict, d->keys[i], d->values[i]));
        }
        return PGD_OK;
    }
    PGD_TRY(pgd_text_template_new_list(r, d->n, V_LIST, out));
    for (size_t i = 0; i < d->n; i++) {
        value item = pgd_str_is(name, "keys") ? d->keys[i] : d->values[i];
        if (pgd_str_is(name, "items")) {
            PGD_TRY(pgd_text_template_new_list(r, 2, V_TUPLE, &item));
            PGD_TRY(pgd_text_template_append(r, &item, d->keys[i]));
            PGD_TRY(pgd_text_template_append(r, &item, d->values[i]));
        }
        PGD_TRY(pgd_text_template_append(r, out, item));
    }
    return PGD_OK;
}

static pgd_status call_list_method(render *r, pgd_str name, const list *l, const call_args *args,
                                   value *out) {
    int64_t n = 0;
    if (args->n != 1) {
        return TPL_FAIL(r, "count() and index() need one value");
    }
    for (size_t i = 0; i < l->n; i++) {
        if (!pgd_text_template_equal(&l->items[i], &args->items[0])) {
            continue;
        }
        if (pgd_str_is(name, "index")) {
            *out = pgd_text_template_int((int64_t)i);
            return PGD_OK;
        }
        n++;
    }
    if (pgd_str_is(name, "index")) {
        return TPL_FAIL(r, "index(): the value is not in the list");
    }
    *out = pgd_text_template_int(n);
    return PGD_OK;
}

pgd_status pgd_text_template_call(render *r, const value *f, const call_args *args, value *out) {
    switch (f->kind) {
    case V_MACRO: return call_macro(r, f->macro, args, out);
    case V_GLOBAL: return call_global(r, f->str, args, out);
    case V_METHOD:
        if (f->self->kind == V_STRING) {
            return pgd_text_template_string_method(r, f->str, f->self->str, args, out);
        }
        return f->self->kind == V_DICT ? call_dict_method(r, f->str, f->self->dict, args, out)
                                       : call_list_method(r, f->str, f->self->list, args, out);
    case V_UNDEFINED:
        return TPL_FAIL(r, "'%.*s' is undefined or not allowed here, so it cannot be called",
                        (int)(f->str.len < 100 ? f->str.len : 100),
                        f->str.ptr != NULL ? f->str.ptr : "");
    default: return TPL_FAIL(r, "a %s cannot be called", pgd_text_template_type(f));
    }
}
