// The filters behind | in templates: text and numbers. Those on lists are in template_list.c.
#include <math.h>
#include <string.h>

#include "text/parts.h"
#include "text/template_parts.h"

static pgd_status text_of(render *r, const value *v, pgd_str *out) {
    value text;
    PGD_TRY(pgd_text_template_text_of(r, v, &text));
    *out = text.str;
    return PGD_OK;
}

// ---- text --------------------------------------------------------------------------------------

static pgd_status f_trim(render *r, const value *v, const call_args *args, value *out) {
    pgd_str s;
    pgd_str chars;
    PGD_TRY(text_of(r, v, &s));
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "chars", (pgd_str){0}, &chars));
    *out = pgd_text_template_str(pgd_text_template_strip(s, chars.ptr != NULL ? &chars : NULL, 3));
    return PGD_OK;
}

#define CASE_FILTER(name, how)                                                                 \
    static pgd_status f_##name(render *r, const value *v, const call_args *args, value *out) { \
        pgd_str s;                                                                             \
        (void)args;                                                                            \
        PGD_TRY(text_of(r, v, &s));                                                            \
        return pgd_text_template_case(r, s, (how), out);                                       \
    }

CASE_FILTER(upper, CASE_UPPER)
CASE_FILTER(lower, CASE_LOWER)
CASE_FILTER(capitalize, CASE_CAPITAL)
CASE_FILTER(title, CASE_TITLE_FILTER)

static pgd_status f_string(render *r, const value *v, const call_args *args, value *out) {
    (void)args;
    return pgd_text_template_text_of(r, v, out);
}

static pgd_status f_replace(render *r, const value *v, const call_args *args, value *out) {
    pgd_str s;
    pgd_str from;
    pgd_str to;
    int64_t max = -1;
    PGD_TRY(text_of(r, v, &s));
    if (args->n + args->n_named < 2) {
        return TPL_FAIL(r, "replace needs two strings");
    }
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "old", PGD_STR(""), &from));
    PGD_TRY(pgd_text_template_str_arg(r, args, 1, "new", PGD_STR(""), &to));
    PGD_TRY(pgd_text_template_int_arg(r, args, 2, "count", -1, &max));
    return pgd_text_template_replace(r, s, from, to, max, out);
}

static pgd_status add_escaped(pgd_str s, pgd_text *t) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    for (size_t i = 0; i < s.len; i++) {
        const char *hit = s.ptr[i] != 0 ? strchr(from, s.ptr[i]) : NULL;
        PGD_TRY(hit != NULL ? pgd_text_add_str(t, pgd_str_of(to[hit - from]))
                            : pgd_text_add(t, &s.ptr[i], 1));
    }
    return PGD_OK;
}

static pgd_status f_escape(render *r, const value *v, const call_args *args, value *out) {
    pgd_str s;
    pgd_text t = {0};
    (void)args;
    PGD_TRY(text_of(r, v, &s));
    return pgd_text_template_finish(r, &t, add_escaped(s, &t), out);
}

static pgd_status add_indented(const list *lines, pgd_str pad, int32_t first, int32_t blank,
                               pgd_text *t) {
    for (size_t i = 0; i < lines->n; i++) {
        pgd_str line = lines->items[i].str;
        PGD_TRY(i > 0 ? pgd_text_add(t, "\n", 1) : PGD_OK);
        if (i == 0 ? first : blank || line.len > 0) {
            PGD_TRY(pgd_text_add_str(t, pad));
        }
        PGD_TRY(pgd_text_add_str(t, line));
    }
    return PGD_OK;
}

static pgd_status f_indent(render *r, const value *v, const call_args *args, value *out) {
    value lines;
    value pad;
    value space = pgd_text_template_str(PGD_STR(" "));
    if (v->kind != V_STRING) {
        return TPL_FAIL(r, "indent needs a string, not a %s", pgd_text_template_type(v));
    }
    pgd_str s = v->str;
    const value *width = pgd_text_template_arg(args, 0, "width");
    const value *first = pgd_text_template_arg(args, 1, "first");
    const value *blank = pgd_text_template_arg(args, 2, "blank");
    value four = pgd_text_template_int(4);
    width = width != NULL ? width : &four;
    if (width->kind == V_STRING) {
        pad = *width;
    } else {
        PGD_TRY(pgd_text_template_binary(r, OP_MUL, &space, width, &pad));
    }
    PGD_TRY(pgd_text_template_lines(r, s, 0, &lines));
    if (s.len == 0 || s.ptr[s.len - 1] == '\n') { // a last, empty line
        PGD_TRY(pgd_text_template_append(r, &lines, pgd_text_template_str(PGD_STR(""))));
    }
    pgd_text t = {0};
    return pgd_text_template_finish(
        r, &t,
        add_indented(lines.list, pad.str, first != NULL && pgd_text_template_is_true(first),
                     blank != NULL && pgd_text_template_is_true(blank), &t),
        out);
}

static pgd_status f_wordcount(render *r, const value *v, const call_args *args, value *out) {
    pgd_str s;
    (void)args;
    PGD_TRY(text_of(r, v, &s));
    int64_t n = 0;
    int32_t inside = 0;
    size_t end = 0;
    for (size_t at = 0; at < s.len; at = end) {
        int32_t word = (pgd_text_class(pgd_text_char(s, at, &end)) & PGD_TEXT_WORD) != 0;
        n += word && !inside;
        inside = word;
    }
    *out = pgd_text_template_int(n);
    return PGD_OK;
}

static pgd_status f_format(render *r, const value *v, const call_args *args, value *out) {
    pgd_str s;
    PGD_TRY(text_of(r, v, &s));
    if (args->n_named > 0) {
        return TPL_FAIL(r, "format with named values is not supported");
    }
    return pgd_text_template_format(r, s, args->items, args->n, 0, out);
}

static pgd_status read_json_style(render *r, const call_args *args, json_style *style) {
    const value *v = pgd_text_template_arg(args, 0, "ensure_ascii");
    style->ascii = v != NULL && pgd_text_template_is_true(v);
    v = pgd_text_template_arg(args, 3, "sort_keys");
    style->sort_keys = v != NULL && pgd_text_template_is_true(v);
    PGD_TRY(pgd_text_template_int_arg(r, args, 1, "indent", -1, &style->indent));
    if (style->indent > 64) {
        return TPL_FAIL(r, "tojson: indent %lld; at most 64", (long long)style->indent);
    }
    style->item_separator = style->indent >= 0 ? PGD_STR(",") : PGD_STR(", ");
    style->key_separator = PGD_STR(": ");
    v = pgd_text_template_arg(args, 2, "separators");
    if (v != NULL && v->kind != V_NONE) {
        if ((v->kind != V_TUPLE && v->kind != V_LIST) || v->list->n != 2 ||
            v->list->items[0].kind != V_STRING || v->list->items[1].kind != V_STRING) {
            return TPL_FAIL(r, "tojson: separators must be two strings");
        }
        style->item_separator = v->list->items[0].str;
        style->key_separator = v->list->items[1].str;
    }
    return PGD_OK;
}

static pgd_status f_tojson(render *r, const value *v, const call_args *args, value *out) {
    json_style style = {0};
    pgd_text t = {0};
    PGD_TRY(read_json_style(r, args, &style));
    return pgd_text_template_finish(r, &t, pgd_text_template_to_json(r, v, &style, 0, &t), out);
}

// ---- numbers -----------------------------------------------------------------------------------

static value whole(double f) {
    return f > -9.2e18 && f < 9.2e18 ? pgd_text_template_int((int64_t)f) : pgd_text_template_int(0);
}

// int and float make their default of anything but of what is not defined.
static pgd_status needs_defined(render *r, const value *v) {
    if (v->kind == V_UNDEFINED) {
        return TPL_FAIL(r, "'%.*s' is undefined", (int)(v->str.len < 60 ? v->str.len : 60),
                        v->str.ptr);
    }
    return PGD_OK;
}

static pgd_status f_int(render *r, const value *v, const call_args *args, value *out) {
    const value *otherwise = pgd_text_template_arg(args, 0, "default");
    int64_t base = 10;
    PGD_TRY(pgd_text_template_int_arg(r, args, 1, "base", 10, &base));
    if (base != 10) {
        return TPL_FAIL(r, "int: only base 10 is supported, not %lld", (long long)base);
    }
    PGD_TRY(needs_defined(r, v));
    *out = otherwise != NULL ? *otherwise : pgd_text_template_int(0);
    int64_t i = 0;
    double f = 0;
    if (v->kind == V_INT || v->kind == V_BOOL) {
        *out = pgd_text_template_int(v->i);
    } else if (v->kind == V_FLOAT) {
        *out = whole(v->f);
    } else if (v->kind == V_STRING) {
        pgd_str s = pgd_text_template_strip(v->str, NULL, 3);
        if (pgd_str_to_i64(s, &i)) {
            *out = pgd_text_template_int(i);
        } else if (pgd_str_to_f64(s, &f)) {
            *out = whole(f);
        }
    }
    return PGD_OK;
}

static pgd_status f_float(render *r, const value *v, const call_args *args, value *out) {
    const value *otherwise = pgd_text_template_arg(args, 0, "default");
    double f = 0;
    PGD_TRY(needs_defined(r, v));
    *out = otherwise != NULL ? *otherwise : pgd_text_template_float(0);
    if (pgd_text_template_is_number(v)) {
        *out = pgd_text_template_float(pgd_text_template_number(v));
    } else if (v->kind == V_STRING &&
               pgd_str_to_f64(pgd_text_template_strip(v->str, NULL, 3), &f)) {
        *out = pgd_text_template_float(f);
    }
    return PGD_OK;
}

static pgd_status f_abs(render *r, const value *v, const call_args *args, value *out) {
    (void)args;
    if (!pgd_text_template_is_number(v) || (v->kind == V_INT && v->i == INT64_MIN)) {
        return TPL_FAIL(r, "abs needs a number, not a %s", pgd_text_template_type(v));
    }
    *out = v->kind == V_FLOAT ? pgd_text_template_float(fabs(v->f))
                              : pgd_text_template_int(v->i < 0 ? -v->i : v->i);
    return PGD_OK;
}

static pgd_status f_round(render *r, const value *v, const call_args *args, value *out) {
    int64_t digits = 0;
    pgd_str method;
    PGD_TRY(pgd_text_template_int_arg(r, args, 0, "precision", 0, &digits));
    PGD_TRY(pgd_text_template_str_arg(r, args, 1, "method", PGD_STR("common"), &method));
    if (!pgd_text_template_is_number(v) || digits < 0 || digits > 15) {
        return TPL_FAIL(r, "round needs a number and a precision of 0 to 15");
    }
    if (v->kind != V_FLOAT && pgd_str_is(method, "common")) {
        *out = pgd_text_template_int(v->i);
        return PGD_OK;
    }
    double scale = pow(10, (double)digits);
    double f = pgd_text_template_number(v) * scale;
    if (pgd_str_is(method, "common")) {
        f = rint(f);
    } else if (pgd_str_is(method, "ceil")) {
        f = ceil(f);
    } else if (pgd_str_is(method, "floor")) {
        f = floor(f);
    } else {
        return TPL_FAIL(r, "round: the method must be common, ceil or floor");
    }
    *out = pgd_text_template_float(f / scale);
    return PGD_OK;
}

static pgd_status f_default(render *r, const value *v, const call_args *args, value *out) {
    const value *otherwise = pgd_text_template_arg(args, 0, "default_value");
    const value *boolean = pgd_text_template_arg(args, 1, "boolean");
    int32_t falsy = boolean != NULL && pgd_text_template_is_true(boolean);
    (void)r;
    if (v->kind != V_UNDEFINED && !(falsy && !pgd_text_template_is_true(v))) {
        *out = *v;
    } else {
        *out = otherwise != NULL ? *otherwise : pgd_text_template_str(PGD_STR(""));
    }
    return PGD_OK;
}

// ---- the table ---------------------------------------------------------------------------------

static const struct {
    const char *name;
    filter_run run;
} filters[] = {
    {"trim", f_trim},       {"upper", f_upper},
    {"lower", f_lower},     {"capitalize", f_capitalize},
    {"title", f_title},     {"string", f_string},
    {"safe", f_string},     {"replace", f_replace},
    {"e", f_escape},        {"escape", f_escape},
    {"indent", f_indent},   {"wordcount", f_wordcount},
    {"format", f_format},   {"tojson", f_tojson},
    {"int", f_int},         {"float", f_float},
    {"abs", f_abs},         {"round", f_round},
    {"default", f_default}, {"d", f_default},
};

static filter_run find(pgd_str name) {
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        if (pgd_str_is(name, filters[i].name)) {
            return filters[i].run;
        }
    }
    return pgd_text_template_list_filter(name);
}

int32_t pgd_text_template_has_filter(pgd_str name) {
    return find(name) != NULL;
}

pgd_status pgd_text_template_filter(render *r, pgd_str name, const value *v, const call_args *args,
                                    value *out) {
    filter_run run = find(name);
    if (run == NULL) {
        return TPL_FAIL(r, "filter '%.*s' is not supported", (int)(name.len < 60 ? name.len : 60),
                        name.ptr);
    }
    return run(r, v, args, out);
}
