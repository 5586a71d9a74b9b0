// Writing: strings as Python's json.dumps(ensure_ascii=False) escapes them, floats in their
// shortest form, whole values without blanks.
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

// What stands for a character inside quotes; NULL = the character itself.
static const char *escape_of(unsigned char c, char hex[8]) {
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
    }
    if (c >= 0x20) {
        return NULL;
    }
    (void)snprintf(hex, 8, "\\u%04x", (unsigned)c);
    return hex;
}

pgd_status pgd_json_add_str(pgd_text *t, pgd_str s) {
    char hex[8];
    size_t done = 0;
    if (s.len == 0) {
        return pgd_text_add(t, "\"\"", 2);
    }
    PGD_TRY(pgd_text_add(t, "\"", 1));
    for (size_t i = 0; i < s.len; i++) {
        const char *escape = escape_of((unsigned char)s.ptr[i], hex);
        if (escape != NULL) {
            PGD_TRY(pgd_utf8_add_lossy(t, (pgd_str){s.ptr + done, i - done}));
            PGD_TRY(pgd_text_add_str(t, pgd_str_of(escape)));
            done = i + 1;
        }
    }
    PGD_TRY(pgd_utf8_add_lossy(t, (pgd_str){s.ptr + done, s.len - done}));
    return pgd_text_add(t, "\"", 1);
}

// printf writes the decimal point of the C locale or of another one: whatever stands between the
// digits becomes '.'. Returns the length.
static size_t fix_point(char *text) {
    size_t n = strspn(text, "-0123456789");
    size_t end = n;
    if (text[n] == '\0' || text[n] == 'e') {
        return strlen(text);
    }
    end += strcspn(text + n, "0123456789");
    text[n] = '.';
    memmove(text + n + 1, text + end, strlen(text + end) + 1);
    return strlen(text);
}

pgd_status pgd_json_add_f64(pgd_text *t, double v) {
    char text[64];
    double back = 0;
    size_t len = 0;
    if (!isfinite(v)) {
        return pgd_text_add(t, "null", 4);
    }
    // Up to 15 digits survive the way through a normal double, so fewer need not be tried.
    int digits = fabs(v) < 2.2250738585072014e-308 ? 1 : 15;
    for (; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, v);
        len = fix_point(text);
        if (pgd_str_to_f64((pgd_str){text, len}, &back) && back == v) {
            break;
        }
    }
    PGD_TRY(pgd_text_add(t, text, len));
    return strpbrk(text, ".e") != NULL ? PGD_OK : pgd_text_add(t, ".0", 2);
}

static pgd_status add_items(pgd_text *t, const pgd_json *v) {
    int32_t object = v->kind == PGD_JSON_OBJECT;
    PGD_TRY(pgd_text_add(t, object ? "{" : "[", 1));
    for (uint32_t i = 0; i < v->n; i++) {
        if (i > 0) {
            PGD_TRY(pgd_text_add(t, ",", 1));
        }
        if (object) {
            PGD_TRY(pgd_json_add_str(t, v->keys[i]));
            PGD_TRY(pgd_text_add(t, ":", 1));
        }
        PGD_TRY(pgd_json_add(t, &v->items[i]));
    }
    return pgd_text_add(t, object ? "}" : "]", 1);
}

pgd_status pgd_json_add(pgd_text *t, const pgd_json *v) {
    switch (v->kind) {
    case PGD_JSON_NULL: return pgd_text_add(t, "null", 4);
    case PGD_JSON_FALSE: return pgd_text_add(t, "false", 5);
    case PGD_JSON_TRUE: return pgd_text_add(t, "true", 4);
    case PGD_JSON_INT: return pgd_text_format(t, "%lld", (long long)v->i);
    case PGD_JSON_UINT: return pgd_text_format(t, "%llu", (unsigned long long)v->u);
    case PGD_JSON_FLOAT: return pgd_json_add_f64(t, v->f);
    case PGD_JSON_STRING: return pgd_json_add_str(t, v->str);
    case PGD_JSON_ARRAY:
    case PGD_JSON_OBJECT: return add_items(t, v);
    default: return pgd_fail(PGD_INVALID, "json: %d is no kind of value", (int)v->kind);
    }
}
