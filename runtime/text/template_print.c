// Values as text: what {{ }} prints (Python's str and repr) and JSON (json.dumps as transformers
// calls it: no escaping of HTML or of characters beyond ASCII).
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "text/parts.h"
#include "text/template_parts.h"

static pgd_status add_zeros(pgd_text *t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        PGD_TRY(pgd_text_add(t, "0", 1));
    }
    return PGD_OK;
}

// Floats as Python's repr: the shortest digits that read back equal; an exponent below 1e-4 and
// from 1e16 on.
pgd_status pgd_text_template_add_float(pgd_text *t, double f) {
    if (isnan(f) || isinf(f)) {
        return pgd_text_add_str(t, pgd_str_of(isnan(f) ? "nan" : f > 0 ? "inf" : "-inf"));
    }
    pgd_text shortest = {0};
    pgd_status status = pgd_json_add_f64(&shortest, fabs(f));
    char digits[32];
    size_t n = 0;
    int64_t point = 0; // digits before the decimal point
    int64_t exponent = 0;
    int32_t behind = 0;
    for (size_t i = 0; status == PGD_OK && i < shortest.len && n < sizeof(digits); i++) {
        char c = shortest.ptr[i];
        if (c == 'e' || c == 'E') {
            size_t from = i + 1 + (shortest.ptr[i + 1] == '+');
            (void)pgd_str_to_i64((pgd_str){shortest.ptr + from, shortest.len - from}, &exponent);
            break;
        }
        if (c == '.') {
            behind = 1;
        } else if (n > 0 || c != '0') {
            digits[n++] = c;
            point += !behind;
        } else {
            point -= behind;
        }
    }
    pgd_text_free(&shortest);
    PGD_TRY(status);
    while (n > 0 && digits[n - 1] == '0') {
        n--;
    }
    point += exponent;
    PGD_TRY(signbit(f) ? pgd_text_add(t, "-", 1) : PGD_OK);
    if (n == 0) {
        return pgd_text_add(t, "0.0", 3);
    }
    if (point > 16 || point < -3) {
        PGD_TRY(pgd_text_add(t, digits, 1));
        PGD_TRY(n > 1 ? pgd_text_format(t, ".%.*s", (int)n - 1, digits + 1) : PGD_OK);
        int64_t e = point - 1;
        return pgd_text_format(t, "e%c%02lld", e < 0 ? '-' : '+', (long long)(e < 0 ? -e : e));
    }
    int64_t whole = point < 0 ? 0 : point < (int64_t)n ? point : (int64_t)n;
    PGD_TRY(whole > 0 ? pgd_text_add(t, digits, (size_t)whole) : pgd_text_add(t, "0", 1));
    PGD_TRY(add_zeros(t, point > whole ? point - whole : 0));
    PGD_TRY(pgd_text_add(t, ".", 1));
    PGD_TRY(add_zeros(t, point < 0 ? -point : 0));
    return (size_t)whole < n ? pgd_text_add(t, digits + whole, n - (size_t)whole)
                             : pgd_text_add(t, "0", 1);
}

// ---- str and repr ------------------------------------------------------------------------------

static int32_t printable(uint32_t cp) {
    if (cp < 0x7F) {
        return cp >= 0x20;
    }
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return 0;
    default: return 1;
    }
}

static pgd_status add_repr_string(pgd_text *t, pgd_str s) {
    int32_t single = s.len > 0 && memchr(s.ptr, '\'', s.len) != NULL;
    int32_t both = single && memchr(s.ptr, '"', s.len) != NULL;
    char quote = single && !both ? '"' : '\'';
    PGD_TRY(pgd_text_add(t, &quote, 1));
    size_t end = 0;
    for (size_t at = 0; at < s.len; at = end) {
        uint32_t cp = pgd_text_char(s, at, &end);
        if (cp == '\n' || cp == '\r' || cp == '\t') {
            PGD_TRY(pgd_text_format(t, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't'));
        } else if (cp == '\\' || cp == (uint32_t)quote) {
            PGD_TRY(pgd_text_format(t, "\\%c", (char)cp));
        } else if (printable(cp)) {
            PGD_TRY(pgd_text_add(t, s.ptr + at, end - at));
        } else {
            PGD_TRY(cp < 0x100     ? pgd_text_format(t, "\\x%02x", cp)
                    : cp < 0x10000 ? pgd_text_format(t, "\\u%04x", cp)
                                   : pgd_text_format(t, "\\U%08x", cp));
        }
    }
    return pgd_text_add(t, &quote, 1);
}

static pgd_status add_repr(render *r, const value *v, pgd_text *out);

static pgd_status add_repr_list(render *r, const value *v, pgd_text *out) {
    int32_t tuple = v->kind == V_TUPLE;
    PGD_TRY(pgd_text_add(out, tuple ? "(" : "[", 1));
    for (size_t i = 0; i < v->list->n; i++) {
        PGD_TRY(i > 0 ? pgd_text_add(out, ", ", 2) : PGD_OK);
        PGD_TRY(add_repr(r, &v->list->items[i], out));
    }
    return pgd_text_add_str(out, pgd_str_of(!tuple ? "]" : v->list->n == 1 ? ",)" : ")"));
}

static pgd_status add_repr_dict(render *r, const value *v, pgd_text *out) {
    PGD_TRY(pgd_text_add(out, "{", 1));
    for (size_t i = 0; i < v->dict->n; i++) {
        PGD_TRY(i > 0 ? pgd_text_add(out, ", ", 2) : PGD_OK);
        PGD_TRY(add_repr(r, &v->dict->keys[i], out));
        PGD_TRY(pgd_text_add(out, ": ", 2));
        PGD_TRY(add_repr(r, &v->dict->values[i], out));
    }
    return pgd_text_add(out, "}", 1);
}

static pgd_status add_repr(render *r, const value *v, pgd_text *out) {
    PGD_TRY(pgd_text_template_steps(r, 1));
    if (r->depth > TPL_MAX_DEPTH || out->len > TPL_MAX_OUTPUT) {
        return TPL_FAIL(r, "a value is too large or too deep to print");
    }
    switch (v->kind) {
    case V_UNDEFINED: return pgd_text_add_str(out, PGD_STR("Undefined"));
    case V_NONE: return pgd_text_add_str(out, PGD_STR("None"));
    case V_BOOL: return pgd_text_add_str(out, pgd_str_of(v->i ? "True" : "False"));
    case V_INT: return pgd_text_format(out, "%lld", (long long)v->i);
    case V_FLOAT: return pgd_text_template_add_float(out, v->f);
    case V_STRING: return add_repr_string(out, v->str);
    default: break;
    }
    pgd_status status = PGD_OK;
    r->depth++;
    if (pgd_text_template_is_list(v)) {
        status = add_repr_list(r, v, out);
    } else if (v->kind == V_DICT) {
        status = add_repr_dict(r, v, out);
    } else {
        status = TPL_FAIL(r, "a %s cannot be printed", pgd_text_template_type(v));
    }
    r->depth--;
    return status;
}

pgd_status pgd_text_template_print(render *r, const value *v, pgd_text *out) {
    if (v->kind == V_UNDEFINED) {
        return PGD_OK;
    }
    if (v->kind != V_STRING) {
        return add_repr(r, v, out);
    }
    if (out->len + v->str.len > TPL_MAX_OUTPUT) {
        return TPL_FAIL(r, "the text is longer than %d MiB", TPL_MAX_OUTPUT >> 20);
    }
    return pgd_text_add_str(out, v->str);
}

pgd_status pgd_text_template_text_of(render *r, const value *v, value *out) {
    if (v->kind == V_STRING) {
        *out = *v;
        return PGD_OK;
    }
    pgd_text t = {0};
    pgd_status status = pgd_text_template_print(r, v, &t);
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

// ---- JSON --------------------------------------------------------------------------------------

static pgd_status add_json_string(pgd_text *t, pgd_str s, int32_t ascii) {
    if (!ascii) {
        return pgd_json_add_str(t, s);
    }
    pgd_text plain = {0};
    pgd_status status = pgd_json_add_str(&plain, s);
    size_t end = 0;
    for (size_t at = 0; status == PGD_OK && at < plain.len; at = end) {
        uint32_t cp = pgd_text_char(pgd_text_view(&plain), at, &end);
        if (cp < 0x80) {
            status = pgd_text_add(t, plain.ptr + at, 1);
        } else if (cp < 0x10000) {
            status = pgd_text_format(t, "\\u%04x", cp);
        } else {
            uint32_t low = cp - 0x10000;
            status =
                pgd_text_format(t, "\\u%04x\\u%04x", 0xD800 + (low >> 10), 0xDC00 + (low & 0x3FF));
        }
    }
    pgd_text_free(&plain);
    return status;
}

static pgd_status new_line(const json_style *style, uint32_t level, pgd_text *out) {
    if (style->indent < 0) {
        return PGD_OK;
    }
    PGD_TRY(pgd_text_add(out, "\n", 1));
    for (int64_t i = 0; i < style->indent * (int64_t)level; i++) {
        PGD_TRY(pgd_text_add(out, " ", 1));
    }
    return PGD_OK;
}

static pgd_status add_json_key(render *r, const value *key, const json_style *style,
                               pgd_text *out) {
    if (key->kind == V_STRING) {
        return add_json_string(out, key->str, style->ascii);
    }
    if (key->kind != V_NONE && !pgd_text_template_is_number(key)) {
        return TPL_FAIL(r, "a %s cannot be a key in JSON", pgd_text_template_type(key));
    }
    PGD_TRY(pgd_text_add(out, "\"", 1));
    PGD_TRY(pgd_text_template_to_json(r, key, style, 0, out));
    return pgd_text_add(out, "\"", 1);
}

// Indexes of the keys in sorted order.
static pgd_status sorted_keys(render *r, const dict *d, size_t **out) {
    void *made = NULL;
    PGD_TRY(pgd_text_template_alloc(r, d->n, sizeof(size_t), &made));
    size_t *order = made;
    PGD_TRY(pgd_text_template_steps(r, d->n * (d->n / 8 + 1)));
    for (size_t i = 0; i < d->n; i++) {
        size_t k = i;
        for (; k > 0; k--) {
            int32_t c = 0;
            PGD_TRY(pgd_text_template_order(r, &d->keys[order[k - 1]], &d->keys[i], &c));
            if (c <= 0) {
                break;
            }
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
    *out = order;
    return PGD_OK;
}

static pgd_status add_json_dict(render *r, const value *v, const json_style *style, uint32_t level,
                                pgd_text *out) {
    size_t *order = NULL;
    PGD_TRY(style->sort_keys ? sorted_keys(r, v->dict, &order) : PGD_OK);
    PGD_TRY(pgd_text_add(out, "{", 1));
    for (size_t k = 0; k < v->dict->n; k++) {
        size_t i = order != NULL ? order[k] : k;
        PGD_TRY(k > 0 ? pgd_text_add_str(out, style->item_separator) : PGD_OK);
        PGD_TRY(new_line(style, level + 1, out));
        PGD_TRY(add_json_key(r, &v->dict->keys[i], style, out));
        PGD_TRY(pgd_text_add_str(out, style->key_separator));
        PGD_TRY(pgd_text_template_to_json(r, &v->dict->values[i], style, level + 1, out));
    }
    PGD_TRY(v->dict->n > 0 ? new_line(style, level, out) : PGD_OK);
    return pgd_text_add(out, "}", 1);
}

static pgd_status add_json_list(render *r, const value *v, const json_style *style, uint32_t level,
                                pgd_text *out) {
    PGD_TRY(pgd_text_add(out, "[", 1));
    for (size_t i = 0; i < v->list->n; i++) {
        PGD_TRY(i > 0 ? pgd_text_add_str(out, style->item_separator) : PGD_OK);
        PGD_TRY(new_line(style, level + 1, out));
        PGD_TRY(pgd_text_template_to_json(r, &v->list->items[i], style, level + 1, out));
    }
    PGD_TRY(v->list->n > 0 ? new_line(style, level, out) : PGD_OK);
    return pgd_text_add(out, "]", 1);
}

pgd_status pgd_text_template_to_json(render *r, const value *v, const json_style *style,
                                     uint32_t level, pgd_text *out) {
    PGD_TRY(pgd_text_template_steps(r, 1));
    if (level > TPL_MAX_DEPTH || out->len > TPL_MAX_OUTPUT) {
        return TPL_FAIL(r, "a value is too large or too deep for JSON");
    }
    switch (v->kind) {
    case V_NONE: return pgd_text_add(out, "null", 4);
    case V_BOOL: return pgd_text_add_str(out, pgd_str_of(v->i ? "true" : "false"));
    case V_INT: return pgd_text_format(out, "%lld", (long long)v->i);
    case V_FLOAT:
        if (isnan(v->f) || isinf(v->f)) {
            return pgd_text_add_str(out, pgd_str_of(isnan(v->f) ? "NaN"
                                                    : v->f > 0  ? "Infinity"
                                                                : "-Infinity"));
        }
        return pgd_text_template_add_float(out, v->f);
    case V_STRING: return add_json_string(out, v->str, style->ascii);
    case V_LIST:
    case V_TUPLE: return add_json_list(r, v, style, level, out);
    case V_DICT: return add_json_dict(r, v, style, level, out);
    default: return TPL_FAIL(r, "a %s cannot be written as JSON", pgd_text_template_type(v));
    }
}
