// Numbers in strings. Expected doubles are C literals, which the compiler reads; the hard ones are
// known cases of wrong rounding (Clinger 1990; Paxson 1991; bugs of other readers).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"

static void whole_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int ok;
        int64_t value;
    } rows[] = {
        {"0", 1, 0},
        {"-0", 1, 0},
        {"+7", 1, 7},
        {"007", 1, 7},
        {"9223372036854775807", 1, INT64_MAX},
        {"9223372036854775808", 0, 0},
        {"-9223372036854775808", 1, INT64_MIN},
        {"-9223372036854775809", 0, 0},
        {"18446744073709551616", 0, 0},
        {"", 0, 0},
        {"-", 0, 0},
        {"+", 0, 0},
        {" 1", 0, 0},
        {"1 ", 0, 0},
        {"1.0", 0, 0},
        {"1e3", 0, 0},
        {"0x10", 0, 0},
        {"--1", 0, 0},
        {"+-1", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t v = 99;
        assert_int_equal(pgd_str_to_i64(pgd_str_of(rows[i].text), &v), rows[i].ok);
        assert_true(v == (rows[i].ok ? rows[i].value : 99));
    }
    uint64_t u = 99;
    assert_int_equal(pgd_str_to_u64(PGD_STR("18446744073709551615"), &u), 1);
    assert_true(u == UINT64_MAX);
    assert_int_equal(pgd_str_to_u64(PGD_STR("18446744073709551616"), &u), 0);
    assert_int_equal(pgd_str_to_u64(PGD_STR("-1"), &u), 0);
    assert_int_equal(pgd_str_to_u64(PGD_STR("+1"), &u), 1);
    assert_int_equal(pgd_str_to_u64(PGD_STR("1\0002"), &u), 0);
    assert_int_equal(u, 1);
    pgd_str none = {NULL, 0};
    double f = 0;
    int64_t i = 0;
    assert_int_equal(pgd_str_to_i64(none, &i), 0);
    assert_int_equal(pgd_str_to_u64(none, &u), 0);
    assert_int_equal(pgd_str_to_f64(none, &f), 0);
    assert_int_equal(pgd_str_to_bytes(none, &u), 0);
}

static const struct {
    const char *text;
    double value; // NAN = refused
} floats[] = {
    {"0", 0.0},
    {"1", 1.0},
    {"-2.5", -2.5},
    {"+.5", 0.5},
    {"5.", 5.0},
    {"1e3", 1e3},
    {"1E+3", 1e3},
    {"25e-1", 2.5},
    {"0.1", 0.1},
    {"1.7976931348623157e308", DBL_MAX},
    {"1.7976931348623159e308", NAN},
    {"1e309", NAN},
    {"-1e999999999999999999999", NAN},
    {"1e-999999999999999999999", 0.0},
    {"0e999999999999999999999", 0.0},
    {"4.9406564584124654e-324", 4.9406564584124654e-324},
    {"2.4703282292062327e-324", 0.0},
    {"2.4703282292062328e-324", 4.9406564584124654e-324},
    {"2.2250738585072011e-308", 2.2250738585072011e-308},
    {"2.2250738585072012e-308", 2.2250738585072012e-308},
    {"9007199254740993", 9007199254740992.0},
    {"9007199254740993.00000000000000000000000000000000000000000000001", 9007199254740994.0},
    {"6.9294956446009195e15", 6.9294956446009195e15},
    {"1000000000000000019884624838656", 1e30},
    {"0.000000000000000000000000000000000000000000000000000000000000000001e66", 1.0},
    {"", NAN},
    {".", NAN},
    {"-", NAN},
    {"e5", NAN},
    {"1e", NAN},
    {"1e+", NAN},
    {"1e5.0", NAN},
    {"1.2.3", NAN},
    {"1,5", NAN},
    {" 1", NAN},
    {"1 ", NAN},
    {"0x1p3", NAN},
    {"inf", NAN},
    {"nan", NAN},
    {"1_0", NAN},
};

static void check_floats(void) {
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        double v = 99;
        int32_t ok = pgd_str_to_f64(pgd_str_of(floats[i].text), &v);
        double want = isnan(floats[i].value) ? 99 : floats[i].value;
        if (ok != !isnan(floats[i].value) || memcmp(&v, &want, sizeof(v)) != 0) {
            fail_msg("%s gave %d, %.17g", floats[i].text, (int)ok, v);
        }
    }
    double zero = 1;
    assert_int_equal(pgd_str_to_f64(PGD_STR("-0.0"), &zero), 1);
    assert_true(zero == 0 && signbit(zero));
}

static void float_table(void **state) {
    (void)state;
    check_floats();
}

// strtod reads the same numbers in one go in the C locale.
static void random_floats(void **state) {
    (void)state;
    uint64_t rng = 1;
    char text[64];
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = pgd_rng_next(&rng);
        double want;
        double got = 0;
        memcpy(&want, &bits, sizeof(want));
        if (!isfinite(want)) {
            continue;
        }
        int digits = 1 + (int)(pgd_rng_next(&rng) % 20);
        int n = snprintf(text, sizeof(text), i % 2 ? "%.*g" : "%.*e", digits, want);
        want = strtod(text, NULL);
        assert_int_equal(pgd_str_to_f64((pgd_str){text, (size_t)n}, &got), isfinite(want) != 0);
        assert_true(!isfinite(want) || memcmp(&want, &got, sizeof(got)) == 0);
    }
}

// Half way between 1 and its successor, then 10,000 zeros and a last digit that decides.
static void many_digits(void **state) {
    (void)state;
    const char *half = "1.00000000000000011102230246251565404236316680908203125";
    static char text[10100];
    size_t n = strlen(half);
    double v = 0;
    memcpy(text, half, n);
    memset(text + n, '0', 10000);
    assert_int_equal(pgd_str_to_f64((pgd_str){text, n + 10000}, &v), 1);
    assert_true(v == 1.0);
    text[n + 9999] = '1';
    assert_int_equal(pgd_str_to_f64((pgd_str){text, n + 10000}, &v), 1);
    assert_true(v == 1.0000000000000002220446049250313);
    memset(text, '1', 309);
    assert_int_equal(pgd_str_to_f64((pgd_str){text, 309}, &v), 1);
    assert_true(v > 1.1e308 && v < 1.2e308);
    memset(text, '1', 1000);
    memcpy(text + 1000, "e-999", 5);
    assert_int_equal(pgd_str_to_f64((pgd_str){text, 1005}, &v), 1);
    assert_true(v == 1.1111111111111112);
}

static void no_locale(void **state) {
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL) {
        skip();
    }
    check_floats();
    (void)setlocale(LC_ALL, "C");
}

static void bytes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int ok;
        uint64_t value;
    } rows[] = {
        {"4096", 1, 4096},
        {"0", 1, 0},
        {"1B", 1, 1},
        {"16KiB", 1, 16384},
        {"4GiB", 1, 4294967296},
        {"1.5GB", 1, 1500000000},
        {"512k", 1, 512000},
        {"512K", 1, 524288},
        {"2m", 1, 2000000},
        {"2M", 1, 2097152},
        {"0.5GiB", 1, 536870912},
        {"1.25T", 1, 1374389534720},
        {"16383PiB", 0, 0},
        {"18446744073709551615", 1, UINT64_MAX},
        {"16777216TiB", 0, 0},
        {"16777215.999999TiB", 1, 18446744073708452104ull},
        {"", 0, 0},
        {"k", 0, 0},
        {".5k", 0, 0},
        {"1.k", 0, 0},
        {"1.2.3k", 0, 0},
        {"-1", 0, 0},
        {"1 k", 0, 0},
        {"1kk", 0, 0},
        {"90%", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t v = 99;
        int32_t ok = pgd_str_to_bytes(pgd_str_of(rows[i].text), &v);
        if (ok != rows[i].ok || v != (rows[i].ok ? rows[i].value : 99)) {
            fail_msg("%s gave %d, %llu", rows[i].text, (int)ok, (unsigned long long)v);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers), cmocka_unit_test(float_table),
        cmocka_unit_test(random_floats), cmocka_unit_test(many_digits),
        cmocka_unit_test(no_locale),     cmocka_unit_test(bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
