// UTF-8 by table 3-7 of the Unicode standard ("Well-Formed UTF-8 Byte Sequences").
#include <string.h>

#include "base/str.h"

// First byte -> bytes of the sequence and the allowed range of the second byte.
static const struct {
    unsigned char first, last; // range of the first byte
    unsigned char low, high;   // range of the second byte
    unsigned char n;
} rows[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
    {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

size_t pgd_utf8_decode(const char *s, size_t len, uint32_t *out) {
    if (len == 0) {
        return 0;
    }
    const unsigned char *b = (const unsigned char *)s;
    if (b[0] < 0x80) {
        *out = b[0];
        return 1;
    }
    *out = PGD_UTF8_BAD;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        if (b[0] < rows[r].first || b[0] > rows[r].last) {
            continue;
        }
        size_t n = rows[r].n;
        if (len < 2 || b[1] < rows[r].low || b[1] > rows[r].high) {
            return 1;
        }
        uint32_t cp = (uint32_t)(b[0] & (0x7F >> n)) << 6 | (b[1] & 0x3Fu);
        for (size_t i = 2; i < n; i++) {
            if (i >= len || (b[i] & 0xC0) != 0x80) {
                return i;
            }
            cp = cp << 6 | (b[i] & 0x3Fu);
        }
        *out = cp;
        return n;
    }
    return 1;
}

size_t pgd_utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            return 0;
        }
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    if (cp > 0x10FFFF) {
        return 0;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

// Length of the well-formed front of s.
static size_t good_front(const char *s, size_t len) {
    size_t at = 0;
    while (at < len) {
        uint64_t eight;
        while (len - at >= 8) {
            memcpy(&eight, s + at, 8);
            if (eight & 0x8080808080808080u) {
                break;
            }
            at += 8;
        }
        uint32_t cp = 0;
        size_t n = pgd_utf8_decode(s + at, len - at, &cp);
        if (n == 0 || cp == PGD_UTF8_BAD) {
            break;
        }
        at += n;
    }
    return at;
}

int32_t pgd_utf8_valid(pgd_str s) {
    return good_front(s.ptr, s.len) == s.len;
}

pgd_status pgd_utf8_add_lossy(pgd_text *t, pgd_str s) {
    while (s.len > 0) {
        uint32_t cp = 0;
        size_t good = good_front(s.ptr, s.len);
        PGD_TRY(pgd_text_add(t, s.ptr, good));
        s.ptr += good;
        s.len -= good;
        if (s.len > 0) {
            size_t bad = pgd_utf8_decode(s.ptr, s.len, &cp);
            PGD_TRY(pgd_text_add(t, "\xEF\xBF\xBD", 3));
            s.ptr += bad;
            s.len -= bad;
        }
    }
    return PGD_OK;
}
