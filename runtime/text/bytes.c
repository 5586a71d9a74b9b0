// The table of byte-level tokenizers (GPT-2): every byte has a printable character. Bytes that are
// printable in Latin-1 stand for themselves; the other 68 follow, in order, from U+0100.
//
//   0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF -> the same code point
//   0x00-0x20 -> U+0100..0120, 0x7F-0xA0 -> U+0121..0142, 0xAD -> U+0143
#include "text/parts.h"

enum { FIRST_MOVED = 0x100 };

uint32_t pgd_text_byte_char(uint8_t byte) {
    if (byte <= 0x20) {
        return FIRST_MOVED + byte;
    }
    if (byte >= 0x7F && byte <= 0xA0) {
        return FIRST_MOVED + 0x21 + (uint32_t)(byte - 0x7F);
    }
    return byte == 0xAD ? FIRST_MOVED + 0x43 : byte;
}

int32_t pgd_text_char_byte(uint32_t cp) {
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xFF && cp != 0xAD)) {
        return (int32_t)cp;
    }
    if (cp >= 0x100 && cp <= 0x120) {
        return (int32_t)(cp - 0x100);
    }
    if (cp >= 0x121 && cp <= 0x142) {
        return (int32_t)(cp - 0x121 + 0x7F);
    }
    return cp == 0x143 ? 0xAD : -1;
}

pgd_status pgd_text_add_bytes_as_chars(pgd_text *t, pgd_str s) {
    char block[512];
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        uint32_t cp = pgd_text_byte_char((uint8_t)s.ptr[i]);
        if (cp < 0x80) {
            block[n++] = (char)cp;
        } else {
            block[n++] = (char)(0xC0 | (cp >> 6));
            block[n++] = (char)(0x80 | (cp & 0x3F));
        }
        if (n + 2 > sizeof(block)) {
            PGD_TRY(pgd_text_add(t, block, n));
            n = 0;
        }
    }
    return pgd_text_add(t, block, n);
}
