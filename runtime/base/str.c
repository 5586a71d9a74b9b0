// Views and growing texts.
#include "base/str.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

pgd_str pgd_str_shown(pgd_str s) {
    if (s.len == 0) {
        return PGD_STR("");
    }
    s.len = s.len < PGD_STR_SHOWN ? s.len : PGD_STR_SHOWN;
    return s;
}

pgd_str pgd_str_of(const char *text) {
    return text != NULL ? (pgd_str){text, strlen(text)} : (pgd_str){NULL, 0};
}

int32_t pgd_str_equal(pgd_str a, pgd_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

int32_t pgd_str_is(pgd_str a, const char *text) {
    return pgd_str_equal(a, pgd_str_of(text));
}

int32_t pgd_str_starts(pgd_str s, pgd_str prefix) {
    return prefix.len == 0 || (s.len >= prefix.len && memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

int32_t pgd_str_ends(pgd_str s, pgd_str suffix) {
    return suffix.len == 0 ||
           (s.len >= suffix.len && memcmp(s.ptr + s.len - suffix.len, suffix.ptr, suffix.len) == 0);
}

static int32_t is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

pgd_str pgd_str_trim(pgd_str s) {
    while (s.len > 0 && is_space(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && is_space(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

pgd_str pgd_str_cut(pgd_str s, char sep, pgd_str *rest) {
    const char *at = s.len > 0 ? memchr(s.ptr, sep, s.len) : NULL;
    if (at == NULL) {
        *rest = (pgd_str){NULL, 0};
        return s;
    }
    size_t n = (size_t)(at - s.ptr);
    *rest = (pgd_str){at + 1, s.len - n - 1};
    return (pgd_str){s.ptr, n};
}

pgd_status pgd_text_reserve(pgd_text *t, size_t len) {
    const int32_t fits = len < t->cap;
    if (fits && !pgd_mem_is_armed()) {
        return PGD_OK;
    }
    if (len > PTRDIFF_MAX / 2) {
        return PGD_MEM_FAIL("a text", len);
    }
    size_t cap = fits ? t->cap : t->cap < 64 ? 64 : t->cap * 2;
    cap = cap > len ? cap : len + 1;
    char *grown = pgd_mem_realloc(t->ptr, cap, 1);
    if (grown == NULL) {
        return PGD_MEM_FAIL("a text", cap);
    }
    grown[t->len] = '\0';
    t->ptr = grown;
    t->cap = cap;
    return PGD_OK;
}

pgd_status pgd_text_add(pgd_text *t, const char *bytes, size_t len) {
    uint64_t all = 0;
    if (!pgd_size_add(t->len, len, &all)) {
        return PGD_MEM_FAIL("a text", len);
    }
    PGD_TRY(pgd_text_reserve(t, (size_t)all));
    if (len > 0) {
        memcpy(t->ptr + t->len, bytes, len);
    }
    t->len = (size_t)all;
    t->ptr[t->len] = '\0';
    return PGD_OK;
}

pgd_status pgd_text_add_str(pgd_text *t, pgd_str s) {
    return pgd_text_add(t, s.ptr, s.len);
}

pgd_status pgd_text_format(pgd_text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        return pgd_fail(PGD_INVALID, "text: the format \"%s\" cannot be written", fmt);
    }
    PGD_TRY(pgd_text_reserve(t, t->len + (size_t)n));
    va_start(args, fmt);
    (void)vsnprintf(t->ptr + t->len, (size_t)n + 1, fmt, args);
    va_end(args);
    t->len += (size_t)n;
    return PGD_OK;
}

void pgd_text_clear(pgd_text *t) {
    t->len = 0;
    if (t->ptr != NULL) {
        t->ptr[0] = '\0';
    }
}

void pgd_text_free(pgd_text *t) {
    pgd_mem_free(t->ptr);
    *t = (pgd_text){0};
}

pgd_str pgd_text_view(const pgd_text *t) {
    return (pgd_str){t->ptr, t->len};
}
