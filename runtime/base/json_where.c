// Where a text stops being JSON: simdjson says why, but not where. Read only when it has refused.
// Source: RFC 8259.
#include <string.h>

#include "base/json.h"

#define MOST_LEVELS 4096

enum {
    WANT_VALUE = 0,
    WANT_VALUE_OR_END, // behind [
    WANT_KEY,
    WANT_KEY_OR_END, // behind {
    WANT_NEXT,       // behind a value
};

typedef struct scan {
    pgd_str text;
    size_t at;
    uint32_t depth;
    uint32_t most;
    uint8_t is_object[MOST_LEVELS / 8];
} scan;

static int32_t in_object(const scan *c) {
    return c->depth > 0 && (c->is_object[(c->depth - 1) / 8] >> ((c->depth - 1) % 8) & 1);
}

static char here(const scan *c) {
    return c->at < c->text.len ? c->text.ptr[c->at] : '\0';
}

static void skip_space(scan *c) {
    while (c->at < c->text.len && strchr(" \t\r\n", c->text.ptr[c->at]) != NULL &&
           c->text.ptr[c->at] != '\0') {
        c->at++;
    }
}

static int32_t is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Four digits behind \u as a number, -1 = there are not so many.
static int32_t hex_at(const scan *c, size_t at) {
    int32_t value = 0;
    for (size_t i = at; i < at + 4; i++) {
        const char digit = i < c->text.len ? c->text.ptr[i] : '\0';
        const char *place = digit != '\0' ? strchr("0123456789abcdefABCDEF", digit) : NULL;
        if (place == NULL) {
            return -1;
        }
        value = value * 16 + (is_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    return value;
}

// Moves behind an escape; 0 = it is none.
static int32_t read_escape(scan *c) {
    const char kind = c->at + 1 < c->text.len ? c->text.ptr[c->at + 1] : '\0';
    if (kind != 'u') {
        c->at += 2;
        return kind != '\0' && strchr("\"\\/bfnrt", kind) != NULL;
    }
    const int32_t high = hex_at(c, c->at + 2);
    const int32_t is_pair = high >= 0xD800 && high <= 0xDBFF;
    const int32_t low = is_pair && c->at + 7 < c->text.len && c->text.ptr[c->at + 6] == '\\' &&
                                c->text.ptr[c->at + 7] == 'u'
                            ? hex_at(c, c->at + 8)
                            : -1;
    c->at += is_pair ? 12 : 6;
    return high >= 0 && (is_pair ? low >= 0xDC00 && low <= 0xDFFF : high < 0xDC00 || high > 0xDFFF);
}

// Each reader moves behind what it reads; 0 = it is not well formed, and `at` is where it stops.
static int32_t read_string(scan *c) {
    c->at++;
    while (c->at < c->text.len) {
        const unsigned char byte = (unsigned char)c->text.ptr[c->at];
        const size_t begin = c->at;
        uint32_t code = 0;
        if (byte == '"') {
            c->at++;
            return 1;
        }
        if (byte == '\\') {
            if (!read_escape(c)) {
                c->at = begin;
                return 0;
            }
            continue;
        }
        const size_t n = pgd_utf8_decode(c->text.ptr + begin, c->text.len - begin, &code);
        if (byte < ' ' || code == PGD_UTF8_BAD) {
            return 0;
        }
        c->at += n;
    }
    return 0;
}

static int32_t read_digits(scan *c) {
    const size_t begin = c->at;
    while (is_digit(here(c))) {
        c->at++;
    }
    return c->at > begin;
}

static int32_t read_number(scan *c) {
    c->at += here(c) == '-';
    if (here(c) == '0') {
        c->at++; // no digit may follow it
    } else if (!read_digits(c)) {
        return 0;
    }
    if (here(c) == '.') {
        c->at++;
        if (!read_digits(c)) {
            return 0;
        }
    }
    if (here(c) == 'e' || here(c) == 'E') {
        c->at++;
        c->at += here(c) == '+' || here(c) == '-';
        return read_digits(c);
    }
    return 1;
}

static int32_t read_word(scan *c) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t n = strlen(words[i]);
        if (c->text.len - c->at >= n && memcmp(c->text.ptr + c->at, words[i], n) == 0) {
            c->at += n;
            return 1;
        }
    }
    return 0;
}

static int32_t open_level(scan *c, int32_t is_object) {
    if (c->depth >= c->most || c->depth >= MOST_LEVELS) {
        return 0;
    }
    const uint8_t bit = (uint8_t)(1U << (c->depth % 8));
    uint8_t *byte = &c->is_object[c->depth / 8];
    *byte = (uint8_t)(is_object ? *byte | bit : *byte & ~bit);
    c->depth++;
    c->at++;
    return 1;
}

// Reads a value or its opening bracket; what is wanted behind it, or -1.
static int32_t read_value(scan *c) {
    const char first = here(c);
    if (first == '[' || first == '{') {
        return !open_level(c, first == '{') ? -1
               : first == '{'               ? WANT_KEY_OR_END
                                            : WANT_VALUE_OR_END;
    }
    const int32_t good = first == '"'                      ? read_string(c)
                         : first == '-' || is_digit(first) ? read_number(c)
                                                           : read_word(c);
    return good ? WANT_NEXT : -1;
}

static int32_t read_key(scan *c) {
    if (here(c) != '"' || !read_string(c)) {
        return -1;
    }
    skip_space(c);
    if (here(c) != ':') {
        return -1;
    }
    c->at++;
    return WANT_VALUE;
}

static int32_t close_or_next(scan *c) {
    const int32_t object = in_object(c);
    if (c->depth == 0) {
        return -1;
    }
    if (here(c) == (object ? '}' : ']')) {
        c->depth--;
        c->at++;
        return WANT_NEXT;
    }
    if (here(c) != ',') {
        return -1;
    }
    c->at++;
    return object ? WANT_KEY : WANT_VALUE;
}

size_t pgd_json_where(pgd_str text, uint32_t max_depth) {
    scan c = {.text = text, .most = max_depth};
    int32_t want = WANT_VALUE;
    for (;;) {
        skip_space(&c);
        if (c.at >= text.len) {
            return text.len;
        }
        const char first = here(&c);
        if ((want == WANT_VALUE_OR_END && first == ']') ||
            (want == WANT_KEY_OR_END && first == '}') || want == WANT_NEXT) {
            want = close_or_next(&c);
        } else if (want == WANT_KEY || want == WANT_KEY_OR_END) {
            want = read_key(&c);
        } else {
            want = read_value(&c);
        }
        if (want < 0) {
            return c.at < text.len ? c.at : text.len;
        }
    }
}

void pgd_json_line_at(pgd_str text, size_t at, uint32_t *out_line, uint32_t *out_column) {
    *out_line = 1;
    *out_column = 1;
    for (size_t i = 0; i < at && i < text.len; i++) {
        const unsigned char byte = (unsigned char)text.ptr[i];
        if (byte == '\n') {
            ++*out_line;
            *out_column = 1;
        } else {
            *out_column += (byte & 0xC0) != 0x80;
        }
    }
}
