// Hand-written matchers of the split patterns that most models use. Each gives the match that
// starts at a place; the patterns cover every character, so a match always begins there. Their
// agreement with PCRE2 is tested on random strings.
//
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   cl100k  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//           | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+            (also Llama 3)
//   qwen2   as cl100k with \p{N} for \p{N}{1,3}
#include "text/parts.h"

const char *const pgd_text_pattern_gpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define CL100K(digits)                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { L = PGD_TEXT_LETTER, N = PGD_TEXT_NUMBER, S = PGD_TEXT_SPACE };

static uint32_t kind_at(pgd_str s, size_t at, size_t *end) {
    return pgd_text_class(pgd_text_char(s, at, end)) & (L | N | S);
}

static int32_t is_newline(char c) {
    return c == '\r' || c == '\n';
}

// Takes characters of one kind (0 = neither letter, number nor space).
static size_t run_of(pgd_str s, size_t at, uint32_t kind) {
    size_t end = at;
    while (at < s.len && kind_at(s, at, &end) == kind) {
        at = end;
    }
    return at;
}

// \s+(?!\S)|\s+ : all of a run at the end of the text, else all but its last character, which
// goes with what follows, unless it is the only one.
static size_t spaces(pgd_str s, size_t at) {
    size_t end = run_of(s, at, S);
    if (end == s.len) {
        return end;
    }
    size_t last = 0;
    pgd_text_char_before(s, end, &last);
    return last > at ? last : end;
}

// Length of an English contraction behind the apostrophe at s[at], 0 = none.
static size_t contraction(pgd_str s, size_t at, char fold) {
    if (s.ptr[at] != '\'' || at + 1 >= s.len) {
        return 0;
    }
    char a = (char)(s.ptr[at + 1] | fold);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    if (at + 2 >= s.len) {
        return 0;
    }
    if (fold != 0 && (uint8_t)s.ptr[at + 1] == 0xC5 && (uint8_t)s.ptr[at + 2] == 0xBF) {
        return 3; // U+017F, the long s, folds to s
    }
    char b = (char)(s.ptr[at + 2] | fold);
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t gpt2(pgd_str s, size_t at) {
    size_t n = contraction(s, at, 0);
    if (n != 0) {
        return at + n;
    }
    size_t end = 0;
    uint32_t kind = kind_at(s, at, &end);
    if (kind != S) {
        return run_of(s, end, kind);
    }
    if (s.ptr[at] == ' ' && end < s.len) {
        size_t second = 0;
        uint32_t next = kind_at(s, end, &second);
        if (next != S) {
            return run_of(s, second, next);
        }
    }
    return spaces(s, at);
}

// Behind the last line end of the white space at s[at]; at when there is none.
static size_t last_newline(pgd_str s, size_t at) {
    size_t found = at;
    size_t end = at;
    while (at < s.len && kind_at(s, at, &end) == S) {
        if (is_newline(s.ptr[at])) {
            found = end;
        }
        at = end;
    }
    return found;
}

static size_t symbols(pgd_str s, size_t at) {
    size_t end = run_of(s, at, 0);
    while (end < s.len && is_newline(s.ptr[end])) {
        end++;
    }
    return end;
}

static size_t numbers(pgd_str s, size_t at, size_t max) {
    size_t end = at;
    for (size_t i = 0; i < max && at < s.len && kind_at(s, at, &end) == N; i++) {
        at = end;
    }
    return at;
}

static size_t cl100k_with(pgd_str s, size_t at, size_t max_digits) {
    size_t n = contraction(s, at, 0x20);
    if (n != 0) {
        return at + n;
    }
    size_t end = 0;
    uint32_t kind = kind_at(s, at, &end);
    if (kind == L) {
        return run_of(s, end, L);
    }
    if (kind == N) {
        return numbers(s, at, max_digits);
    }
    size_t second = 0;
    uint32_t next = end < s.len ? kind_at(s, end, &second) : S;
    if (next == L && !is_newline(s.ptr[at])) {
        return run_of(s, second, L);
    }
    if (kind == 0) {
        return symbols(s, at);
    }
    if (s.ptr[at] == ' ' && next == 0) {
        return symbols(s, end);
    }
    size_t line = last_newline(s, at);
    return line > at ? line : spaces(s, at);
}

static size_t cl100k(pgd_str s, size_t at) {
    return cl100k_with(s, at, 3);
}

static size_t qwen2(pgd_str s, size_t at) {
    return cl100k_with(s, at, 1);
}

pgd_text_fast pgd_text_fast_find(pgd_str pattern) {
    if (pgd_str_is(pattern, pgd_text_pattern_gpt2)) {
        return gpt2;
    }
    if (pgd_str_is(pattern, CL100K("\\p{N}{1,3}"))) {
        return cl100k;
    }
    return pgd_str_is(pattern, CL100K("\\p{N}")) ? qwen2 : NULL;
}
