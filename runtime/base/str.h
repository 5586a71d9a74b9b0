// Strings: pgd_str is a view (whoever stores copies); pgd_text grows.
#ifndef PGD_BASE_STR_H
#define PGD_BASE_STR_H

#include <stdarg.h>
#include <stddef.h>

#include <pagoda/status.h>

typedef struct pgd_str {
    const char *ptr; // not NUL-terminated
    size_t len;      // bytes
} pgd_str;

#define PGD_STR(literal) ((pgd_str){(literal), sizeof(literal) - 1})

// The two arguments of "%.*s" in a sentence: at most the first PGD_STR_SHOWN bytes of s.
#define PGD_STR_SHOWN   100
#define PGD_STR_SHOW(s) (int)pgd_str_shown(s).len, pgd_str_shown(s).ptr
pgd_str pgd_str_shown(pgd_str s); // never NULL

pgd_str pgd_str_of(const char *text);              // NULL gives an empty view
int32_t pgd_str_equal(pgd_str a, pgd_str b);       // 1 or 0
int32_t pgd_str_is(pgd_str a, const char *text);   // 1 or 0
int32_t pgd_str_starts(pgd_str s, pgd_str prefix); // 1 or 0
int32_t pgd_str_ends(pgd_str s, pgd_str suffix);   // 1 or 0
pgd_str pgd_str_trim(pgd_str s);                   // ASCII white space at both ends
// Cuts s at the first `sep`: head before it, *rest behind it (empty when there is none).
pgd_str pgd_str_cut(pgd_str s, char sep, pgd_str *rest);

// Whole-string numbers, no locale, no white space; 0 = not one, or out of range (out unchanged).
int32_t pgd_str_to_i64(pgd_str s, int64_t *out);
int32_t pgd_str_to_u64(pgd_str s, uint64_t *out);
int32_t pgd_str_to_f64(pgd_str s, double *out);
// "4096", "16KiB", "4GiB", "1.5GB", "512k" (1000), "512K" (1024) ... -> bytes.
int32_t pgd_str_to_bytes(pgd_str s, uint64_t *out);

// A growing text; zero-initialise it. `ptr` is always NUL-terminated once anything was added.
typedef struct pgd_text {
    char *ptr;
    size_t len;
    size_t cap;
} pgd_text;

pgd_status pgd_text_add(pgd_text *t, const char *bytes, size_t len) PGD_MUST_USE;
pgd_status pgd_text_add_str(pgd_text *t, pgd_str s) PGD_MUST_USE;
pgd_status pgd_text_format(pgd_text *t, const char *fmt, ...) PGD_PRINTF(2, 3) PGD_MUST_USE;
pgd_status pgd_text_reserve(pgd_text *t, size_t len) PGD_MUST_USE; // room for len bytes in all
void pgd_text_clear(pgd_text *t);                                  // keeps the memory
void pgd_text_free(pgd_text *t);
pgd_str pgd_text_view(const pgd_text *t);

// ---- UTF-8 -------------------------------------------------------------------------------------

#define PGD_UTF8_BAD UINT32_MAX

// Decodes one code point at s[0, len): returns its bytes (1-4) and sets *out; for an ill-formed
// sequence returns the length of its maximal subpart (at least 1) and sets *out = PGD_UTF8_BAD.
// len 0 returns 0.
size_t pgd_utf8_decode(const char *s, size_t len, uint32_t *out);
// Writes 1-4 bytes, returns how many; 0 if cp is a surrogate or above U+10FFFF.
size_t pgd_utf8_encode(uint32_t cp, char out[4]);
// 1 when all of s is well-formed.
int32_t pgd_utf8_valid(pgd_str s);
// Appends s, each maximal ill-formed subpart replaced by U+FFFD (as bytes.decode("utf-8",
// "replace") in Python and the Unicode standard, section 3.9, do).
pgd_status pgd_utf8_add_lossy(pgd_text *t, pgd_str s) PGD_MUST_USE;

#endif
