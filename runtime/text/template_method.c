// The methods of strings in templates.
#include <string.h>
#include <utf8proc.h>

#include "text/parts.h"
#include "text/template_parts.h"

static const char *const methods[] = {
    "strip",    "lstrip",  "rstrip", "split",        "rsplit",       "splitlines", "startswith",
    "endswith", "upper",   "lower",  "title",        "capitalize",   "replace",    "find",
    "rfind",    "count",   "join",   "isdigit",      "isalpha",      "isalnum",    "isspace",
    "isupper",  "islower", "format", "removeprefix", "removesuffix", "index",
};

int32_t pgd_text_template_has_string_method(pgd_str name) {
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (pgd_str_is(name, methods[i])) {
            return 1;
        }
    }
    return 0;
}

static pgd_status strip(render *r, pgd_str name, pgd_str self, const call_args *args, value *out) {
    pgd_str chars;
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "chars", (pgd_str){0}, &chars));
    int32_t which = name.ptr[0] == 'l' ? 1 : name.ptr[0] == 'r' ? 2 : 3;
    *out = pgd_text_template_str(
        pgd_text_template_strip(self, chars.ptr != NULL ? &chars : NULL, which));
    return PGD_OK;
}

static pgd_status affix(render *r, int32_t start, pgd_str self, const call_args *args, value *out) {
    const value *what = pgd_text_template_arg(args, 0, NULL);
    int32_t yes = 0;
    if (what == NULL || args->n > 1 || (what->kind != V_STRING && what->kind != V_TUPLE)) {
        return TPL_FAIL(r, "startswith() and endswith() need a string or a tuple of strings");
    }
    size_t n = what->kind == V_TUPLE ? what->list->n : 1;
    for (size_t i = 0; i < n && !yes; i++) {
        const value *one = what->kind == V_TUPLE ? &what->list->items[i] : what;
        if (one->kind != V_STRING) {
            return TPL_FAIL(r, "startswith() and endswith() need strings, not a %s",
                            pgd_text_template_type(one));
        }
        yes = start ? pgd_str_starts(self, one->str) : pgd_str_ends(self, one->str);
    }
    *out = pgd_text_template_bool(yes);
    return PGD_OK;
}

// find, rfind, index, count: positions are characters.
static pgd_status search(render *r, pgd_str name, pgd_str self, const call_args *args, value *out) {
    pgd_str what;
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "sub", PGD_STR(""), &what));
    if (args->n != 1) {
        return TPL_FAIL(r, "%.*s() needs one string", (int)name.len, name.ptr);
    }
    PGD_TRY(pgd_text_template_steps(r, self.len / 16));
    int64_t found = -1;
    int64_t n = 0;
    for (size_t at = 0; at + what.len <= self.len;) {
        if (what.len == 0 || memcmp(self.ptr + at, what.ptr, what.len) == 0) {
            found = name.ptr[0] == 'r' || found < 0 ? (int64_t)at : found;
            n++;
            if (name.ptr[0] == 'f' || name.ptr[0] == 'i') {
                break;
            }
            at += what.len > 0 && name.ptr[0] == 'c' ? what.len : 1;
        } else {
            at++;
        }
    }
    if (name.ptr[0] == 'i' && found < 0) {
        return TPL_FAIL(r, "index(): no such part");
    }
    if (found > 0) {
        found = (int64_t)pgd_text_template_count_chars((pgd_str){self.ptr, (size_t)found});
    }
    if (what.len == 0 && name.ptr[0] == 'c') {
        n = (int64_t)pgd_text_template_count_chars(self) + 1;
    }
    *out = pgd_text_template_int(name.ptr[0] == 'c' ? n : found);
    return PGD_OK;
}

static pgd_status join(render *r, pgd_str self, const call_args *args, value *out) {
    const value *what = pgd_text_template_arg(args, 0, NULL);
    list *l = NULL;
    if (what == NULL) {
        return TPL_FAIL(r, "join() needs a list");
    }
    PGD_TRY(pgd_text_template_items(r, what, &l));
    pgd_text t = {0};
    pgd_status status = PGD_OK;
    for (size_t i = 0; i < l->n && status == PGD_OK; i++) {
        if (l->items[i].kind != V_STRING) {
            status = TPL_FAIL(r, "join(): item %zu is a %s, not a string", i,
                              pgd_text_template_type(&l->items[i]));
            break;
        }
        status = i > 0 ? pgd_text_add_str(&t, self) : PGD_OK;
        if (status == PGD_OK) {
            status = pgd_text_template_print(r, &l->items[i], &t);
        }
    }
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

static int32_t is_kind(uint32_t cp, pgd_str name) {
    uint32_t class_bits = pgd_text_class(cp);
    if (pgd_str_is(name, "isspace")) {
        return (class_bits & PGD_TEXT_SPACE) != 0 || (cp >= 0x1C && cp <= 0x1F);
    }
    if (pgd_str_is(name, "isalpha")) {
        return (class_bits & PGD_TEXT_LETTER) != 0;
    }
    int32_t digit = utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND;
    return pgd_str_is(name, "isdigit")
               ? digit
               : digit || (class_bits & (PGD_TEXT_LETTER | PGD_TEXT_NUMBER));
}

static int32_t all_are(pgd_str name, pgd_str self) {
    int32_t case_test = pgd_str_is(name, "isupper") || pgd_str_is(name, "islower");
    int32_t cased = 0;
    size_t end = 0;
    for (size_t at = 0; at < self.len; at = end) {
        uint32_t cp = pgd_text_char(self, at, &end);
        if (!case_test) {
            if (!is_kind(cp, name)) {
                return 0;
            }
            continue;
        }
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        int32_t upper = c == UTF8PROC_CATEGORY_LU;
        int32_t lower = c == UTF8PROC_CATEGORY_LL;
        if (c == UTF8PROC_CATEGORY_LT || (name.ptr[2] == 'u' ? lower : upper)) {
            return 0;
        }
        cased |= upper || lower;
    }
    return case_test ? cased : self.len > 0;
}

static pgd_status remove_affix(render *r, int32_t start, pgd_str self, const call_args *args,
                               value *out) {
    pgd_str what;
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "part", PGD_STR(""), &what));
    if (start && pgd_str_starts(self, what)) {
        self.ptr += what.len;
        self.len -= what.len;
    } else if (!start && pgd_str_ends(self, what)) {
        self.len -= what.len;
    }
    *out = pgd_text_template_str(self);
    return PGD_OK;
}

// The value of one {} place: by position or by name, without format specification.
static const value *place(pgd_str name, size_t *next, const call_args *args) {
    int64_t at = 0;
    if (name.len == 0) {
        at = (int64_t)(*next)++;
        return (size_t)at < args->n ? &args->items[at] : NULL;
    }
    if (pgd_str_to_i64(name, &at)) {
        return at >= 0 && (size_t)at < args->n ? &args->items[at] : NULL;
    }
    for (size_t i = 0; i < args->n_named; i++) {
        if (pgd_str_equal(args->names[i], name)) {
            return &args->named[i];
        }
    }
    return NULL;
}

static pgd_status add_places(render *r, pgd_str s, const call_args *args, pgd_text *t) {
    size_t next = 0;
    for (size_t at = 0; at < s.len; at++) {
        char c = s.ptr[at];
        if ((c == '{' || c == '}') && at + 1 < s.len && s.ptr[at + 1] == c) {
            at++;
        } else if (c == '{') {
            size_t end = at + 1;
            while (end < s.len && s.ptr[end] != '}') {
                end++;
            }
            const value *v = place((pgd_str){s.ptr + at + 1, end - at - 1}, &next, args);
            if (end == s.len || v == NULL) {
                return TPL_FAIL(r, "format(): a place without a value, or one that is more than "
                                   "a name or a number");
            }
            PGD_TRY(pgd_text_template_print(r, v, t));
            at = end;
            continue;
        } else if (c == '}') {
            return TPL_FAIL(r, "format(): a single }");
        }
        PGD_TRY(pgd_text_add(t, &c, 1));
    }
    return PGD_OK;
}

static pgd_status format(render *r, pgd_str self, const call_args *args, value *out) {
    pgd_text t = {0};
    pgd_status status = add_places(r, self, args, &t);
    if (status != PGD_OK) {
        pgd_text_free(&t);
        return status;
    }
    return pgd_text_template_take(r, &t, out);
}

static pgd_status replace(render *r, pgd_str self, const call_args *args, value *out) {
    pgd_str from;
    pgd_str to;
    int64_t max = -1;
    if (args->n < 2) {
        return TPL_FAIL(r, "replace() needs two strings");
    }
    PGD_TRY(pgd_text_template_str_arg(r, args, 0, "old", PGD_STR(""), &from));
    PGD_TRY(pgd_text_template_str_arg(r, args, 1, "new", PGD_STR(""), &to));
    PGD_TRY(pgd_text_template_int_arg(r, args, 2, "count", -1, &max));
    return pgd_text_template_replace(r, self, from, to, max, out);
}

pgd_status pgd_text_template_string_method(render *r, pgd_str name, pgd_str self,
                                           const call_args *args, value *out) {
    static const char *const cases[] = {"upper", "lower", "capitalize", "title"};
    for (int32_t i = 0; i < 4; i++) {
        if (pgd_str_is(name, cases[i])) {
            return pgd_text_template_case(r, self, i, out);
        }
    }
    if (pgd_str_ends(name, PGD_STR("strip"))) {
        return strip(r, name, self, args, out);
    }
    if (pgd_str_is(name, "startswith") || pgd_str_is(name, "endswith")) {
        return affix(r, name.ptr[0] == 's', self, args, out);
    }
    if (pgd_str_is(name, "splitlines")) {
        const value *keep = pgd_text_template_arg(args, 0, "keepends");
        return pgd_text_template_lines(r, self, keep != NULL && pgd_text_template_is_true(keep),
                                       out);
    }
    if (pgd_str_starts(name, PGD_STR("remove"))) {
        return remove_affix(r, pgd_str_is(name, "removeprefix"), self, args, out);
    }
    if (pgd_str_is(name, "join")) {
        return join(r, self, args, out);
    }
    if (pgd_str_is(name, "replace")) {
        return replace(r, self, args, out);
    }
    if (pgd_str_is(name, "format")) {
        return format(r, self, args, out);
    }
    if (pgd_str_ends(name, PGD_STR("split"))) {
        return pgd_text_template_split(r, name, self, args, out);
    }
    if (pgd_str_starts(name, PGD_STR("is"))) {
        *out = pgd_text_template_bool(all_are(name, self));
        return PGD_OK;
    }
    return search(r, name, self, args, out);
}
