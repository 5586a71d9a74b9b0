// Classes of code points as the `tokenizers` library has them (unicode_table.c), with a short cut
// for ASCII.
#include "text/parts.h"

// Classes of ASCII, by code point.
#define C_    0
#define CS    PGD_TEXT_SPACE
#define CP    PGD_TEXT_PUNCT
#define CN    (PGD_TEXT_NUMBER | PGD_TEXT_DIGIT | PGD_TEXT_WORD)
#define CL    (PGD_TEXT_LETTER | PGD_TEXT_WORD)
#define CU    (PGD_TEXT_PUNCT | PGD_TEXT_WORD)
#define X8(c) c, c, c, c, c, c, c, c
static const uint8_t ascii_class[128] = {
    X8(C_), C_,     CS, CS, CS, CS, CS, C_, C_,     // 00-0F
    X8(C_), X8(C_),                                 // 10-1F
    CS,     CP,     CP, CP, CP, CP, CP, CP, X8(CP), // 20-2F
    X8(CN), CN,     CN, CP, CP, CP, CP, CP, CP,     // 30-3F
    CP,     CL,     CL, CL, CL, CL, CL, CL, X8(CL), // 40-4F
    X8(CL), CL,     CL, CL, CP, CP, CP, CP, CU,     // 50-5F
    CP,     CL,     CL, CL, CL, CL, CL, CL, X8(CL), // 60-6F
    X8(CL), CL,     CL, CL, CP, CP, CP, CP, C_,     // 70-7F
};

// The last entry at or below cp.
static uint32_t wide_class(uint32_t cp) {
    const uint32_t *at = pgd_text_class_table;
    for (size_t n = pgd_text_class_table_n; n > 1;) {
        size_t half = n / 2;
        at = at[half] >> 8 <= cp ? at + half : at;
        n -= half;
    }
    return *at & 0xFF;
}

uint32_t pgd_text_class(uint32_t cp) {
    if (cp < 128) {
        return ascii_class[cp];
    }
    return cp <= 0x10FFFF ? wide_class(cp) : 0;
}

uint32_t pgd_text_char(pgd_str s, size_t at, size_t *end) {
    uint8_t c = (uint8_t)s.ptr[at];
    if (c < 128) {
        *end = at + 1;
        return c;
    }
    uint32_t cp = 0;
    *end = at + pgd_utf8_decode(s.ptr + at, s.len - at, &cp);
    return cp;
}

uint32_t pgd_text_char_before(pgd_str s, size_t at, size_t *start) {
    size_t i = at - 1;
    while (i > 0 && at - i < 4 && ((uint8_t)s.ptr[i] & 0xC0) == 0x80) {
        i--;
    }
    *start = i;
    uint32_t cp = 0;
    pgd_utf8_decode(s.ptr + i, at - i, &cp);
    return cp;
}

// The range of the second byte, one of 80 to BF, is what makes a beginning hopeless early (Unicode
// standard, table 3-7).
static int32_t second_byte_fits(uint8_t lead, uint8_t second) {
    switch (lead) {
    case 0xE0: return second >= 0xA0;
    case 0xED: return second <= 0x9F;
    case 0xF0: return second >= 0x90;
    case 0xF4: return second <= 0x8F;
    default: return 1;
    }
}

size_t pgd_text_open_tail(pgd_str s) {
    size_t max = s.len < 3 ? s.len : 3;
    for (size_t n = 1; n <= max; n++) {
        uint8_t lead = (uint8_t)s.ptr[s.len - n];
        if ((lead & 0xC0) == 0x80) {
            continue;
        }
        size_t want = lead >= 0xC2 && lead <= 0xDF   ? 2
                      : lead >= 0xE0 && lead <= 0xEF ? 3
                      : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                     : 0;
        if (want <= n) {
            return 0;
        }
        if (n >= 2 && !second_byte_fits(lead, (uint8_t)s.ptr[s.len - n + 1])) {
            return 0;
        }
        return n;
    }
    return 0;
}
