// Strings in templates with Python's meaning: strip, split, case, lines, replace, % formatting.
#include <string.h>
#include <utf8proc.h>

#include "text/parts.h"
#include "text/template_parts.h"

size_t pgd_text_template_count_chars(pgd_str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        n += ((uint8_t)s.ptr[i] & 0xC0) != 0x80;
    }
    return n;
}

// ---- strip -------------------------------------------------------------------------------------

// White space in Python's sense: the four separators U+001C-1F belong to it.
static int32_t is_space(uint32_t cp) {
    return (pgd_text_class(cp) & PGD_TEXT_SPACE) || (cp >= 0x1C && cp <= 0x1F);
}

static int32_t is_stripped(uint32_t cp, const pgd_str *chars) {
    if (chars == NULL) {
        return is_space(cp);
    }
    size_t end = 0;
    for (size_t at = 0; at < chars->len; at = end) {
        if (pgd_text_char(*chars, at, &end) == cp) {
            return 1;
        }
    }
    return 0;
}

pgd_str pgd_text_template_strip(pgd_str s, const pgd_str *chars, int32_t which) {
    size_t next = 0;
    while ((which & 1) && s.len > 0 && is_stripped(pgd_text_char(s, 0, &next), chars)) {
        s.ptr += next;
        s.len -= next;
    }
    while ((which & 2) && s.len > 0 && is_stripped(pgd_text_char_before(s, s.len, &next), chars)) {
        s.len = next;
    }
    return s;
}

// ---- case --------------------------------------------------------------------------------------

static pgd_status add_cased(pgd_text *t, uint32_t cp, int32_t upper) {
    char bytes[4];
    if (upper && cp == 0xDF) {
        return pgd_text_add(t, "SS", 2);
    }
    if (!upper && cp == 0x130) {
        return pgd_text_add(t, "i\xCC\x87", 3);
    }
    utf8proc_int32_t to =
        upper ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_tolower((utf8proc_int32_t)cp);
    return pgd_text_add(t, bytes, pgd_utf8_encode((uint32_t)to, bytes));
}

static pgd_status add_case(pgd_str s, int32_t how, pgd_text *t) {
    int32_t start = 1; // the next character begins a word
    size_t end = 0;
    for (size_t at = 0; at < s.len; at = end) {
        uint32_t cp = pgd_text_char(s, at, &end);
        int32_t upper = how == CASE_UPPER || (how != CASE_LOWER && start);
        PGD_TRY(add_cased(t, cp, upper));
        if (how == CASE_CAPITAL) {
            start = 0;
        } else if (how == CASE_TITLE) {
            start = !(pgd_text_class(cp) & PGD_TEXT_LETTER);
        } else {
            start = is_space(cp) || (cp < 128 && strchr("-({[<", (int)cp) != NULL);
        }
    }
    return PGD_OK;
}

pgd_status pgd_text_template_case(render *r, pgd_str s, int32_t how, value *out) {
    pgd_text t = {0};
    return pgd_text_template_finish(r, &t, add_case(s, how, &t), out);
}

// ---- search, replace, split --------------------------------------------------------------------

// Byte position of the first `what` at or behind `at`, SIZE_MAX = none.
static size_t find_text(pgd_str s, pgd_str what, size_t at) {
    for (; at + what.len <= s.len; at++) {
        if (what.len == 0) {
            return at;
        }
        const char *hit = memchr(s.ptr + at, what.ptr[0], s.len - at - what.len + 1);
        if (hit == NULL) {
            return SIZE_MAX;
        }
        at = (size_t)(hit - s.ptr);
        if (memcmp(hit, what.ptr, what.len) == 0) {
            return at;
        }
    }
    return SIZE_MAX;
}

static size_t find_last(pgd_str s, pgd_str what) {
    for (size_t at = s.len >= what.len ? s.len - what.len + 1 : 0; at-- > 0;) {
        if (what.len == 0 || memcmp(s.ptr + at, what.ptr, what.len) == 0) {
            return at;
        }
    }
    return SIZE_MAX;
}

static pgd_status add_replaced(pgd_str s, pgd_str from, pgd_str to, int64_t max, pgd_text *t) {
    size_t done = 0;
    size_t at = 0;
    for (int64_t n = 0; (max < 0 || n < max) && at <= s.len; n++) {
        size_t hit = find_text(s, from, at);
        if (hit == SIZE_MAX) {
            break;
        }
        PGD_TRY(pgd_text_add(t, s.ptr + done, hit - done));
        PGD_TRY(pgd_text_add_str(t, to));
        done = hit + from.len;
        at = done;
        if (from.len == 0) { // between all characters
            size_t next = hit + 1;
            if (hit < s.len) {
                pgd_text_char(s, hit, &next);
            }
            at = next;
        }
        if (t->len > TPL_MAX_OUTPUT) {
            return pgd_fail(PGD_INVALID, "chat template: a replaced string is longer than %d MiB",
                            TPL_MAX_OUTPUT >> 20);
        }
    }
    return pgd_text_add(t, s.ptr + done, s.len - done);
}

pgd_status pgd_text_template_replace(render *r, pgd_str s, pgd_str from, pgd_str to, int64_t max,
                                     value *out) {
    PGD_TRY(pgd_text_template_steps(r, s.len / 64));
    pgd_text t = {0};
    return pgd_text_template_finish(r, &t, add_replaced(s, from, to, max, &t), out);
}

static pgd_status add_piece(render *r, value *out, const char *from, const char *to) {
    return pgd_text_template_append(r, out,
                                    pgd_text_template_str((pgd_str){from, (size_t)(to - from)}));
}

static pgd_status split_spaces(render *r, pgd_str s, int64_t max, value *out) {
    for (int64_t n = 0;; n++) {
        s = pgd_text_template_strip(s, NULL, 1);
        if (s.len == 0) {
            return PGD_OK;
        }
        if (max >= 0 && n == max) {
            s = pgd_text_template_strip(s, NULL, 2);
            return add_piece(r, out, s.ptr, s.ptr + s.len);
        }
        size_t end = 0;
        size_t next = 0;
        while (end < s.len && !is_space(pgd_text_char(s, end, &next))) {
            end = next;
        }
        PGD_TRY(add_piece(r, out, s.ptr, s.ptr + end));
        s.ptr += end;
        s.len -= end;
    }
}

static pgd_status split_at(render *r, pgd_str s, pgd_str sep, int64_t max, value *out) {
    for (int64_t n = 0; max < 0 || n < max; n++) {
        size_t hit = find_text(s, sep, 0);
        if (hit == SIZE_MAX) {
            break;
        }
        PGD_TRY(add_piece(r, out, s.ptr, s.ptr + hit));
        s.ptr += hit + sep.len;
        s.len -= hit + sep.len;
    }
    return add_piece(r, out, s.ptr, s.ptr + s.len);
}

static void reverse(list *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        value v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

static pgd_status rsplit_at(render *r, pgd_str s, pgd_str sep, int64_t max, value *out) {
    for (int64_t n = 0; max < 0 || n < max; n++) {
        size_t hit = find_last(s, sep);
        if (hit == SIZE_MAX) {
            break;
        }
        PGD_TRY(add_piece(r, out, s.ptr + hit + sep.len, s.ptr + s.len));
        s.len = hit;
    }
    PGD_TRY(add_piece(r, out, s.ptr, s.ptr + s.len));
    reverse(out->list);
    return PGD_OK;
}

pgd_status pgd_text_template_split(render *r, pgd_str name, pgd_str s, const call_args *args,
                                   value *out) {
    pgd_str sep;
    int64_t max = -1;
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "sep", (pgd_str){0}, &sep));
    PGD_TRY(pgd_text_template_int_arg(r, args, 1, "maxsplit", -1, &max));
    PGD_TRY(pgd_text_template_steps(r, s.len / 64));
    PGD_TRY(pgd_text_template_new_list(r, 4, V_LIST, out));
    if (sep.ptr == NULL) {
        if (max >= 0 && pgd_str_is(name, "rsplit")) {
            return TPL_FAIL(r, "rsplit() with a limit needs a separator");
        }
        return split_spaces(r, s, max, out);
    }
    if (sep.len == 0) {
        return TPL_FAIL(r, "%.*s(): the separator is empty", (int)name.len, name.ptr);
    }
    return pgd_str_is(name, "split") ? split_at(r, s, sep, max, out)
                                     : rsplit_at(r, s, sep, max, out);
}

static int32_t is_line_end(uint32_t cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

pgd_status pgd_text_template_lines(render *r, pgd_str s, int32_t keep_ends, value *out) {
    PGD_TRY(pgd_text_template_new_list(r, 4, V_LIST, out));
    size_t start = 0;
    size_t end = 0;
    for (size_t at = 0; at < s.len; at = end) {
        uint32_t cp = pgd_text_char(s, at, &end);
        if (!is_line_end(cp)) {
            continue;
        }
        end += cp == '\r' && end < s.len && s.ptr[end] == '\n';
        PGD_TRY(add_piece(r, out, s.ptr + start, s.ptr + (keep_ends ? end : at)));
        start = end;
    }
    return start < s.len ? add_piece(r, out, s.ptr + start, s.ptr + s.len) : PGD_OK;
}

// ---- % formatting ------------------------------------------------------------------------------

typedef struct {
    int32_t left, zero, plus, space;
    int64_t width, precision; // precision -1 = none
    char kind;
} format_spec;

static int32_t take_digits(pgd_str s, size_t *at, int64_t *out) {
    size_t from = *at;
    while (*at < s.len && s.ptr[*at] >= '0' && s.ptr[*at] <= '9') {
        *at += 1;
    }
    return *at == from || (pgd_str_to_i64((pgd_str){s.ptr + from, *at - from}, out) && *out < 4096);
}

// What follows a % at s[*at]; 0 = not understood.
static int32_t read_spec(pgd_str s, size_t *at, format_spec *f) {
    *f = (format_spec){.precision = -1};
    for (; *at < s.len && strchr("-0+ ", s.ptr[*at]) != NULL && s.ptr[*at] != 0; *at += 1) {
        f->left |= s.ptr[*at] == '-';
        f->zero |= s.ptr[*at] == '0';
        f->plus |= s.ptr[*at] == '+';
        f->space |= s.ptr[*at] == ' ';
    }
    if (!take_digits(s, at, &f->width)) {
        return 0;
    }
    if (*at < s.len && s.ptr[*at] == '.') {
        *at += 1;
        f->precision = 0;
        if (!take_digits(s, at, &f->precision)) {
            return 0;
        }
    }
    f->kind = *at < s.len ? s.ptr[(*at)++] : 0;
    return f->kind != 0;
}

// Digits of a number of fixed decimals, without the locale's point.
static pgd_status add_fixed(pgd_text *t, double f, int64_t decimals) {
    int n = decimals > 17 ? 17 : (int)decimals;
    double scale = 1;
    for (int i = 0; i < n; i++) {
        scale *= 10;
    }
    if (!(f * scale < 9e15)) {
        return pgd_text_format(t, "%.0f", f);
    }
    unsigned long long scaled = (unsigned long long)(f * scale + 0.5);
    unsigned long long unit = (unsigned long long)scale;
    PGD_TRY(pgd_text_format(t, "%llu", scaled / unit));
    return n > 0 ? pgd_text_format(t, ".%0*llu", n, scaled % unit) : PGD_OK;
}

static pgd_status add_number(render *r, const format_spec *f, const value *v, pgd_text *t) {
    if (!pgd_text_template_is_number(v)) {
        return TPL_FAIL(r, "%%%c needs a number, not a %s", f->kind, pgd_text_template_type(v));
    }
    double d = pgd_text_template_number(v);
    int32_t negative = v->kind == V_FLOAT ? d < 0 : v->i < 0;
    PGD_TRY(negative   ? pgd_text_add(t, "-", 1)
            : f->plus  ? pgd_text_add(t, "+", 1)
            : f->space ? pgd_text_add(t, " ", 1)
                       : PGD_OK);
    if (f->kind == 'f' || f->kind == 'F') {
        return add_fixed(t, d < 0 ? -d : d, f->precision < 0 ? 6 : f->precision);
    }
    if (v->kind == V_FLOAT && !(d > -9e18 && d < 9e18)) {
        return TPL_FAIL(r, "a number is too large for %%%c", f->kind);
    }
    int64_t i = v->kind == V_FLOAT ? (int64_t)d : v->i;
    unsigned long long size = i < 0 ? 0ull - (unsigned long long)i : (unsigned long long)i;
    switch (f->kind) {
    case 'x': return pgd_text_format(t, "%llx", size);
    case 'X': return pgd_text_format(t, "%llX", size);
    case 'o': return pgd_text_format(t, "%llo", size);
    default: return pgd_text_format(t, "%llu", size);
    }
}

static pgd_status add_padded(const format_spec *f, pgd_str s, pgd_text *t) {
    size_t chars = pgd_text_template_count_chars(s);
    int64_t pad = f->width - (int64_t)chars;
    int32_t number = f->kind != 's' && f->kind != 'r';
    int32_t zeros = f->zero && !f->left && number;
    size_t sign = zeros && s.len > 0 && strchr("+- ", s.ptr[0]) != NULL;
    PGD_TRY(pgd_text_add(t, s.ptr, sign));
    for (int64_t i = 0; i < pad && !f->left; i++) {
        PGD_TRY(pgd_text_add(t, zeros ? "0" : " ", 1));
    }
    PGD_TRY(pgd_text_add(t, s.ptr + sign, s.len - sign));
    for (int64_t i = 0; i < pad && f->left; i++) {
        PGD_TRY(pgd_text_add(t, " ", 1));
    }
    return PGD_OK;
}

static pgd_status add_item(render *r, const format_spec *f, const value *v, pgd_text *t) {
    pgd_text one = {0};
    pgd_status status = PGD_OK;
    if (f->kind == 's') {
        status = pgd_text_template_print(r, v, &one);
    } else if (strchr("diufFxXo", f->kind) != NULL) {
        status = add_number(r, f, v, &one);
    } else {
        status = TPL_FAIL(r, "%%%c in a format is not supported", f->kind);
    }
    if (status == PGD_OK) {
        pgd_str s = one.ptr != NULL ? pgd_text_view(&one) : PGD_STR("");
        size_t end = s.len;
        if (f->kind == 's' && f->precision >= 0) {
            end = 0;
            for (int64_t i = 0; i < f->precision && end < s.len; i++) {
                pgd_text_char(s, end, &end);
            }
        }
        status = add_padded(f, (pgd_str){s.ptr, end}, t);
    }
    pgd_text_free(&one);
    return status;
}

static pgd_status add_format(render *r, pgd_str format, const value *items, size_t n, int32_t spare,
                             pgd_text *t) {
    size_t used = 0;
    for (size_t at = 0; at < format.len;) {
        if (format.ptr[at] != '%') {
            PGD_TRY(pgd_text_add(t, &format.ptr[at++], 1));
            continue;
        }
        format_spec f;
        at++;
        if (!read_spec(format, &at, &f)) {
            return TPL_FAIL(r, "a format ends in the middle or is too wide");
        }
        if (f.kind == '%') {
            PGD_TRY(pgd_text_add(t, "%", 1));
            continue;
        }
        if (used == n) {
            return TPL_FAIL(r, "a format has more places than the %zu values given", n);
        }
        PGD_TRY(add_item(r, &f, &items[used++], t));
    }
    return used == n || spare ? PGD_OK
                              : TPL_FAIL(r, "a format has fewer places than the %zu values", n);
}

pgd_status pgd_text_template_format(render *r, pgd_str format, const value *items, size_t n,
                                    int32_t spare, value *out) {
    pgd_text t = {0};
    return pgd_text_template_finish(r, &t, add_format(r, format, items, n, spare, &t), out);
}
