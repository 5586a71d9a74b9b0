// Regular expressions of tokenizer files, on PCRE2.
//
// The files are written for Oniguruma. Where the two differ and it matters, the pattern is
// rewritten before it is compiled: \s (PCRE2 counts U+180E), \w (PCRE2 leaves out marks) and \h
// (a hexadecimal digit there, a blank here) become explicit sets; what Oniguruma's sets can do
// beyond PCRE2 (nesting, &&) is refused. ^ and $ hold at line ends as they do there.
//
// A pattern comes with the model and is not trusted: every search starts with a small step limit
// that grows in stages, what the stages cost is taken from one budget per finder, and an empty
// budget is an error instead of a hang.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "text/parts.h"

enum {
    FIRST_LIMIT = 1000, // steps of the first try
    LIMIT_GROWTH = 16,
    LAST_LIMIT = 256000000,
    BUDGET = 1000000000,
    BUDGET_PER_BYTE = 64,
    DEPTH_LIMIT = 10000, // nested groups of the interpreter
    HEAP_LIMIT_KIB = 65536,
    MAX_PATTERN_BYTES = 1 << 16,
};

struct pgd_text_regex {
    pcre2_general_context *general;
    pcre2_code *code; // NULL for a literal
    char *literal;
    size_t literal_len;
};

struct pgd_text_finder {
    const pgd_text_regex *regex;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pgd_str subject;
    size_t at;       // where the next search starts
    size_t last_end; // end of the last match; SIZE_MAX = none
    uint64_t budget;
};

static void *take(PCRE2_SIZE bytes, void *arg) {
    (void)arg;
    return pgd_mem_alloc(1, bytes);
}

static void give(void *ptr, void *arg) {
    (void)arg;
    pgd_mem_free(ptr);
}

// ---- from Oniguruma to PCRE2 -------------------------------------------------------------------

#define SPACE_SET                                                                   \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
// Oniguruma counts six characters of Latin-1 as word characters that no other property gives.
#define WORD_SET                                                                               \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define HEX_SET "0-9A-Fa-f"

static const char *set_of(char letter) {
    switch (letter) {
    case 's':
    case 'S': return SPACE_SET;
    case 'w':
    case 'W': return WORD_SET;
    case 'h':
    case 'H': return HEX_SET;
    default: return NULL;
    }
}

static pgd_status add_escape(pgd_text *out, char letter, int32_t in_set, const char *what) {
    const char *set = set_of(letter);
    if (set == NULL) {
        char both[2] = {'\\', letter};
        return pgd_text_add(out, both, 2);
    }
    int32_t negated = letter >= 'A' && letter <= 'Z';
    if (!in_set) {
        return pgd_text_format(out, negated ? "[^%s]" : "[%s]", set);
    }
    if (!negated) {
        return pgd_text_add_str(out, pgd_str_of(set));
    }
    if (letter == 'S') {
        return pgd_text_add(out, "\\S", 2);
    }
    return pgd_fail(PGD_UNSUPPORTED, "%s: \\%c inside [...] of a pattern is not supported", what,
                    letter);
}

static pgd_status rewrite(pgd_str p, const char *what, pgd_text *out) {
    int32_t in_set = 0;
    for (size_t i = 0; i < p.len; i++) {
        char c = p.ptr[i];
        if (c == '\\' && i + 1 < p.len) {
            i++;
            PGD_TRY(add_escape(out, p.ptr[i], in_set, what));
            continue;
        }
        if (in_set && c == '[' && i + 1 < p.len && p.ptr[i + 1] != ':') {
            return pgd_fail(PGD_UNSUPPORTED,
                            "%s: [ inside [...] of a pattern is not supported; "
                            "write \\[ for the character",
                            what);
        }
        if (in_set && c == '&' && i + 1 < p.len && p.ptr[i + 1] == '&') {
            return pgd_fail(PGD_UNSUPPORTED, "%s: && inside [...] of a pattern is not supported",
                            what);
        }
        PGD_TRY(pgd_text_add(out, &c, 1));
        if (in_set && c == '[') { // a POSIX class, up to its own ]
            while (i + 1 < p.len && p.ptr[i] != ']') {
                i++;
                PGD_TRY(pgd_text_add(out, &p.ptr[i], 1));
            }
        } else if (!in_set && c == '[') {
            in_set = 1;
            if (i + 1 < p.len && p.ptr[i + 1] == '^') {
                PGD_TRY(pgd_text_add(out, &p.ptr[++i], 1));
            }
            if (i + 1 < p.len && p.ptr[i + 1] == ']') { // the first ] is an ordinary character
                PGD_TRY(pgd_text_add(out, &p.ptr[++i], 1));
            }
        } else if (in_set && c == ']') {
            in_set = 0;
        }
    }
    return PGD_OK;
}

// ---- compile -----------------------------------------------------------------------------------

static pgd_status compile(pgd_text_regex *r, pgd_str pattern, const char *what) {
    pgd_text text = {0};
    pgd_status status = rewrite(pattern, what, &text);
    pcre2_compile_context *context = NULL;
    if (status != PGD_OK) {
        goto done;
    }
    context = pcre2_compile_context_create(r->general);
    if (context == NULL) {
        status = PGD_MEM_FAIL("a pattern", text.len);
        goto done;
    }
    int code = 0;
    PCRE2_SIZE at = 0;
    r->code = pcre2_compile((PCRE2_SPTR)(text.ptr != NULL ? text.ptr : ""), text.len,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, context);
    if (r->code == NULL && (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)) {
        status = PGD_MEM_FAIL("a pattern", text.len);
    } else if (r->code == NULL) {
        PCRE2_UCHAR reason[200] = {0};
        pcre2_get_error_message(code, reason, sizeof(reason));
        status = pgd_fail(PGD_INVALID, "%s: bad pattern '%.*s': %s", what, PGD_STR_SHOW(pattern),
                          (const char *)reason);
    } else {
        // Without JIT (not built in, no executable memory) the interpreter does the same work.
        (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    }
done:
    pcre2_compile_context_free(context);
    pgd_text_free(&text);
    return status;
}

pgd_status pgd_text_regex_create(pgd_str pattern, int32_t literal, const char *what,
                                 pgd_text_regex **out) {
    *out = NULL;
    if (pattern.len == 0 || pattern.len > MAX_PATTERN_BYTES) {
        return pgd_fail(PGD_INVALID, "%s: a pattern of %zu bytes; 1 to %d are allowed", what,
                        pattern.len, MAX_PATTERN_BYTES);
    }
    pgd_text_regex *r = pgd_mem_alloc(1, sizeof(*r));
    if (r == NULL) {
        return PGD_MEM_FAIL("a pattern", sizeof(*r));
    }
    pgd_status status = PGD_OK;
    if (literal) {
        r->literal = pgd_mem_alloc(1, pattern.len);
        if (r->literal == NULL) {
            status = PGD_MEM_FAIL("a pattern", pattern.len);
        } else {
            memcpy(r->literal, pattern.ptr, pattern.len);
            r->literal_len = pattern.len;
        }
    } else {
        r->general = pcre2_general_context_create(take, give, NULL);
        status =
            r->general == NULL ? PGD_MEM_FAIL("a pattern", pattern.len) : compile(r, pattern, what);
    }
    if (status != PGD_OK) {
        pgd_text_regex_destroy(r);
        return status;
    }
    *out = r;
    return PGD_OK;
}

void pgd_text_regex_destroy(pgd_text_regex *regex) {
    if (regex == NULL) {
        return;
    }
    pcre2_code_free(regex->code);
    pcre2_general_context_free(regex->general);
    pgd_mem_free(regex->literal);
    pgd_mem_free(regex);
}

// ---- search ------------------------------------------------------------------------------------

pgd_status pgd_text_finder_create(const pgd_text_regex *regex, size_t n_bytes,
                                  pgd_text_finder **out) {
    *out = NULL;
    pgd_text_finder *f = pgd_mem_alloc(1, sizeof(*f));
    if (f == NULL) {
        return PGD_MEM_FAIL("a search", sizeof(*f));
    }
    f->regex = regex;
    f->budget = (uint64_t)BUDGET + (uint64_t)BUDGET_PER_BYTE * n_bytes;
    if (regex->code != NULL) {
        f->data = pcre2_match_data_create(1, regex->general);
        f->context = pcre2_match_context_create(regex->general);
        if (f->data == NULL || f->context == NULL) {
            pgd_text_finder_destroy(f);
            return PGD_MEM_FAIL("a search", sizeof(*f));
        }
        pcre2_set_depth_limit(f->context, DEPTH_LIMIT);
        pcre2_set_heap_limit(f->context, HEAP_LIMIT_KIB);
    }
    *out = f;
    return PGD_OK;
}

void pgd_text_finder_destroy(pgd_text_finder *finder) {
    if (finder == NULL) {
        return;
    }
    pcre2_match_data_free(finder->data);
    pcre2_match_context_free(finder->context);
    pgd_mem_free(finder);
}

void pgd_text_finder_start(pgd_text_finder *finder, pgd_str subject) {
    finder->subject = subject;
    finder->at = 0;
    finder->last_end = SIZE_MAX;
}

static int32_t find_literal(pgd_text_finder *f, size_t *start, size_t *end) {
    const pgd_text_regex *r = f->regex;
    for (size_t at = f->at; f->subject.len - at >= r->literal_len; at++) {
        size_t window = f->subject.len - at - r->literal_len + 1;
        const char *hit = memchr(f->subject.ptr + at, r->literal[0], window);
        if (hit == NULL) {
            return 0;
        }
        at = (size_t)(hit - f->subject.ptr);
        if (memcmp(hit, r->literal, r->literal_len) == 0) {
            *start = at;
            *end = at + r->literal_len;
            f->at = *end;
            return 1;
        }
    }
    return 0;
}

static pgd_status search(pgd_text_finder *f, int32_t *found) {
    for (uint32_t limit = FIRST_LIMIT;; limit *= LIMIT_GROWTH) {
        pcre2_set_match_limit(f->context, limit);
        int rc = pcre2_match(f->regex->code, (PCRE2_SPTR)f->subject.ptr, f->subject.len, f->at,
                             PCRE2_NO_UTF_CHECK, f->data, f->context);
        if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) {
            *found = rc >= 0;
            return PGD_OK;
        }
        if (rc == PCRE2_ERROR_NOMEMORY) {
            return PGD_MEM_FAIL("a search", f->subject.len);
        }
        uint64_t cost = (uint64_t)limit;
        if (rc != PCRE2_ERROR_MATCHLIMIT || limit > LAST_LIMIT / LIMIT_GROWTH || f->budget < cost) {
            return pgd_fail(PGD_INVALID,
                            "a split pattern of the tokenizer needs too many steps "
                            "for this text (%zu bytes)",
                            f->subject.len);
        }
        f->budget -= cost;
    }
}

pgd_status pgd_text_finder_next(pgd_text_finder *finder, size_t *start, size_t *end,
                                int32_t *found) {
    pgd_text_finder *f = finder;
    *found = 0;
    if (f->regex->code == NULL) {
        *found = find_literal(f, start, end);
        return PGD_OK;
    }
    while (f->at <= f->subject.len) {
        int32_t hit = 0;
        PGD_TRY(search(f, &hit));
        if (!hit) {
            f->at = f->subject.len + 1;
            return PGD_OK;
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(f->data);
        if (range[0] == range[1] && range[1] == f->last_end) {
            // an empty match right behind the last one does not count
            size_t behind = f->at + 1;
            if (f->at < f->subject.len) {
                pgd_text_char(f->subject, f->at, &behind);
            }
            f->at = behind;
            continue;
        }
        *start = range[0];
        *end = range[1] >= range[0] ? range[1] : range[0]; // \K in a lookahead
        f->at = *end;
        f->last_end = *end;
        *found = 1;
        return PGD_OK;
    }
    return PGD_OK;
}
