// Classes of code points as the tokenizers of this room need them: a table for ASCII, utf8proc's
// categories for the rest. White space is the Unicode property White_Space; a word character is
// what UTS #18 calls one (Alphabetic, M, Nd, Pc, Join_Control).
#include <utf8proc.h>

#include "text/parts.h"

// Classes of ASCII, by code point.
#define C_    0
#define CS    PGD_TEXT_SPACE
#define CP    PGD_TEXT_PUNCT
#define CN    (PGD_TEXT_NUMBER | PGD_TEXT_WORD)
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

// Alphabetic characters that are neither letters, marks nor numbers of kind Nl.
static int32_t is_other_alphabetic(uint32_t cp) {
    return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
           (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
}

static uint32_t wide_class(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return PGD_TEXT_LETTER | PGD_TEXT_WORD;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: return PGD_TEXT_NUMBER | PGD_TEXT_WORD;
    case UTF8PROC_CATEGORY_NO: return PGD_TEXT_NUMBER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return PGD_TEXT_MARK | PGD_TEXT_WORD;
    case UTF8PROC_CATEGORY_PC: return PGD_TEXT_PUNCT | PGD_TEXT_WORD;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return PGD_TEXT_PUNCT;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return PGD_TEXT_SPACE;
    default: break;
    }
    if (cp == 0x85) {
        return PGD_TEXT_SPACE;
    }
    return cp == 0x200C || cp == 0x200D || is_other_alphabetic(cp) ? PGD_TEXT_WORD : 0;
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

// The second byte's range is what makes a beginning hopeless early (Unicode standard, table 3-7).
static int32_t second_byte_fits(uint8_t lead, uint8_t second) {
    switch (lead) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return second >= 0x80 && second <= 0xBF;
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
