// Numbers in strings, without a locale.
//
// A double is read by strtod, but never with a decimal point, the one character that depends on the
// locale: "12.5e3" is handed over as "125e2". That keeps strtod's correct rounding.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static int32_t is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Digits only, at least one; 0 = not a number or above UINT64_MAX.
static int32_t read_digits(pgd_str s, uint64_t *out) {
    uint64_t v = 0;
    if (s.len == 0) {
        return 0;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (!is_digit(s.ptr[i])) {
            return 0;
        }
        uint64_t digit = (uint64_t)(s.ptr[i] - '0');
        if (v > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        v = v * 10 + digit;
    }
    *out = v;
    return 1;
}

// Takes a sign from the front; 1 = minus.
static int32_t take_sign(pgd_str *s) {
    if (s->len == 0 || (s->ptr[0] != '-' && s->ptr[0] != '+')) {
        return 0;
    }
    int32_t minus = s->ptr[0] == '-';
    s->ptr++;
    s->len--;
    return minus;
}

int32_t pgd_str_to_u64(pgd_str s, uint64_t *out) {
    if (s.len > 0 && s.ptr[0] == '+') {
        (void)take_sign(&s);
    }
    return read_digits(s, out);
}

int32_t pgd_str_to_i64(pgd_str s, int64_t *out) {
    uint64_t v = 0;
    int32_t minus = take_sign(&s);
    if (!read_digits(s, &v) || v > (uint64_t)INT64_MAX + (uint64_t)minus) {
        return 0;
    }
    *out = !minus ? (int64_t)v : v == 0 ? 0 : -(int64_t)(v - 1) - 1;
    return 1;
}

// What strtod gets: sign, digits, 'e', exponent. A double is decided by 768 significant digits; of
// those behind only whether one is not 0 counts, and one '1' stands for that.
enum { MOST_DIGITS = 800 };

typedef struct decimal {
    char text[MOST_DIGITS + 32];
    size_t n;         // bytes in text
    size_t n_digits;  // significant digits in text
    int64_t exponent; // of ten
    int32_t any;      // a digit was seen
    int32_t more;     // a digit other than 0 was left out
} decimal;

static void add_digit(decimal *d, char c, int32_t behind_point) {
    d->any = 1;
    if (d->n_digits == 0 && c == '0') {
        d->exponent -= behind_point; // leading zero
        return;
    }
    if (d->n_digits < MOST_DIGITS) {
        d->text[d->n++] = c;
        d->n_digits++;
        d->exponent -= behind_point;
        return;
    }
    d->more |= c != '0';
    d->exponent += !behind_point;
}

// "e", sign, digits; saturates far outside of what a double can hold.
static int32_t read_exponent(pgd_str s, int64_t *out) {
    const int64_t most = 1000000000;
    int64_t v = 0;
    s.ptr++;
    s.len--;
    int32_t minus = take_sign(&s);
    if (s.len == 0) {
        return 0;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (!is_digit(s.ptr[i])) {
            return 0;
        }
        v = v < most ? v * 10 + (s.ptr[i] - '0') : v;
    }
    *out = minus ? -v : v;
    return 1;
}

int32_t pgd_str_to_f64(pgd_str s, double *out) {
    decimal d = {0};
    int64_t exponent = 0;
    int32_t behind_point = 0;
    if (take_sign(&s)) {
        d.text[d.n++] = '-';
    }
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (is_digit(c)) {
            add_digit(&d, c, behind_point);
        } else if (c == '.' && !behind_point) {
            behind_point = 1;
        } else if ((c == 'e' || c == 'E') && d.any) {
            if (!read_exponent((pgd_str){s.ptr + i, s.len - i}, &exponent)) {
                return 0;
            }
            break;
        } else {
            return 0;
        }
    }
    if (!d.any) {
        return 0;
    }
    if (d.n_digits == 0) {
        d.text[d.n++] = '0';
        d.exponent = 0;
        exponent = 0;
    }
    if (d.more) {
        d.text[d.n++] = '1';
        d.exponent--;
    }
    (void)snprintf(d.text + d.n, sizeof(d.text) - d.n, "e%lld", (long long)(d.exponent + exponent));
    double v = strtod(d.text, NULL);
    if (!isfinite(v)) {
        return 0;
    }
    *out = v;
    return 1;
}

static const struct {
    const char *suffix;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"k", 1000},
    {"K", 1ull << 10},
    {"kB", 1000},
    {"KB", 1000},
    {"KiB", 1ull << 10},
    {"m", 1000000},
    {"M", 1ull << 20},
    {"MB", 1000000},
    {"MiB", 1ull << 20},
    {"g", 1000000000},
    {"G", 1ull << 30},
    {"GB", 1000000000},
    {"GiB", 1ull << 30},
    {"t", 1000000000000},
    {"T", 1ull << 40},
    {"TB", 1000000000000},
    {"TiB", 1ull << 40},
};

// Digits behind the point count to the sixth (2^40 * 10^6 fits 64 bits).
static int32_t read_fraction(pgd_str s, uint64_t unit, uint64_t *out) {
    uint64_t scale = 1;
    uint64_t v = 0;
    if (s.len == 0) {
        return 0;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (!is_digit(s.ptr[i])) {
            return 0;
        }
        if (i < 6) {
            v = v * 10 + (uint64_t)(s.ptr[i] - '0');
            scale *= 10;
        }
    }
    *out = unit * v / scale;
    return 1;
}

int32_t pgd_str_to_bytes(pgd_str s, uint64_t *out) {
    size_t n = 0;
    if (s.len == 0) {
        return 0;
    }
    while (n < s.len && (is_digit(s.ptr[n]) || s.ptr[n] == '.')) {
        n++;
    }
    pgd_str suffix = {s.ptr + n, s.len - n};
    pgd_str fraction;
    pgd_str whole = pgd_str_cut((pgd_str){s.ptr, n}, '.', &fraction);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        uint64_t v = 0;
        uint64_t part = 0;
        if (!pgd_str_is(suffix, units[i].suffix)) {
            continue;
        }
        if (!read_digits(whole, &v) || v > UINT64_MAX / units[i].bytes) {
            return 0;
        }
        v *= units[i].bytes;
        if (whole.len != n && !read_fraction(fraction, units[i].bytes, &part)) {
            return 0;
        }
        if (v > UINT64_MAX - part) {
            return 0;
        }
        *out = v + part;
        return 1;
    }
    return 0;
}
