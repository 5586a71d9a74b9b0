// JSON in and out. What is valid follows RFC 8259; floats and escapes are compared with what
// Python's json module writes (rows made with json.dumps(x, ensure_ascii=False)).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

static pgd_json_doc *parse(const char *text) {
    pgd_json_doc *doc = NULL;
    if (pgd_json_parse(pgd_str_of(text), "test", 0, &doc) != PGD_OK) {
        fail_msg("%s: %s", text, pgd_fail_text(PGD_INVALID));
    }
    return doc;
}

// Compact form of a text.
static void check_again(const char *text, const char *want) {
    pgd_json_doc *doc = parse(text);
    pgd_text t = {0};
    assert_int_equal(pgd_json_add(&t, pgd_json_root(doc)), PGD_OK);
    assert_string_equal(t.ptr, want);
    pgd_text_free(&t);
    pgd_json_free(doc);
}

static void valid_texts(void **state) {
    (void)state;
    check_again("null", "null");
    check_again(" true\n", "true");
    check_again("false", "false");
    check_again("\"\"", "\"\"");
    check_again("[]", "[]");
    check_again("{}", "{}");
    check_again("[ 1 , -2,\t3.5 ]", "[1,-2,3.5]");
    check_again("[[],[[]],{\"a\":{}}]", "[[],[[]],{\"a\":{}}]");
    check_again("{\"b\":1,\"a\":[true,null],\"b\":2}", "{\"b\":1,\"a\":[true,null],\"b\":2}");
    check_again("\"\\u00e9\\n\\/\\\"\\\\\\b\\f\\r\\t\"", "\"\xC3\xA9\\n/\\\"\\\\\\b\\f\\r\\t\"");
    check_again("\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\"");
    check_again("\"\\u0000\\u001f\x7f\"", "\"\\u0000\\u001f\x7f\"");
    check_again("[0,-0,-0.0,1E5,1e-7,1.50]", "[0,0,-0.0,100000.0,1e-07,1.5]");
    check_again("9223372036854775807", "9223372036854775807");
    check_again("-9223372036854775808", "-9223372036854775808");
    check_again("9223372036854775808", "9223372036854775808");
    check_again("18446744073709551615", "18446744073709551615");
    check_again("9007199254740993", "9007199254740993");
}

static void invalid_texts(void **state) {
    (void)state;
    static const char *const rows[] = {
        "",
        " ",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x10",
        "1 2",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{",
        "}",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{1:2}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1,,\"b\":2}",
        "{\"a\"::1}",
        "\"",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\n\"",
        "\"\x01\"",
        "'a'",
        "\"\xFF\"",
        "\"\xC0\xAF\"",
        "\"\xED\xA0\x80\"",
        "[1]x",
        "[1],",
        "{}{}",
        "/**/1",
        "1//",
        "1e400",
        "-1e400",
        "[truefalse]",
        "[1true]",
        "\xEF\xBB\xBF 1",
        "[\"a\" : 1]",
        "000000000000000000000000001",
        "[1,2,3",
        "{\"a\":[1}",
        "[1]]",
        "[[[",
        "{{}}",
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_json_doc *doc = NULL;
        pgd_status status = pgd_json_parse(pgd_str_of(rows[i]), "test", 0, &doc);
        if (status != PGD_INVALID || doc != NULL) {
            fail_msg("'%s' gave %s", rows[i], pgd_status_name(status));
        }
        assert_true(strncmp(pgd_fail_text(status), "test: ", 6) == 0);
    }
    pgd_json_doc *doc = NULL;
    assert_int_equal(pgd_json_parse(PGD_STR("1\0"), "test", 0, &doc), PGD_INVALID);
    assert_int_equal(pgd_json_parse(PGD_STR("\"a\0b\""), "test", 0, &doc), PGD_INVALID);
}

// Whole numbers beyond 64 bits become floats; strings beside them stay.
// Offsets counted by hand; those marked are what Python's json.JSONDecodeError has in `pos`.
static void positions(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t at;
    } rows[] = {
        {"", 0},                      // Python
        {"  nul", 2},                 // Python
        {"[1, 2", 6 - 1},             // the text ends
        {"[1 2]", 3},                 // Python
        {"[1,]", 3},                  // Python 3.11
        {"{\"a\" 1}", 5},             // Python
        {"{\"a\":1,}", 7},            // Python 3.11
        {"{a:1}", 1},                 // Python
        {"{\"a\": tru}", 6},          // Python
        {"1 2", 2},                   // Python
        {"[01]", 2},                  // Python
        {"[1.]", 3},                  // the digit that is missing
        {"[1e+x]", 4},                //
        {"-", 1},                     //
        {"[\"a\tb\"]", 3},            // Python: a control character
        {"[\"\\x\"]", 2},             // the escape
        {"\"\\ud800\"", 1},           // half a pair
        {"\"\\ud83d\\ude00\" x", 15}, // Python
        {"\"\xC3\x28\"", 1},          // no UTF-8
        {"[[[[]]]]", 3},              // four levels where three are allowed
        {"]", 0},                     // Python
        {"{\"a\":[{},[],1.5e-3,-0,true,null,\"\\n\"]}", 38},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const size_t at = pgd_json_where(pgd_str_of(rows[i].text), 3);
        if (at != rows[i].at) {
            fail_msg("%s: %zu, not %zu", rows[i].text, at, rows[i].at);
        }
    }
    uint32_t line = 0;
    uint32_t column = 0;
    pgd_json_line_at(PGD_STR("{\n \"\xC3\xA9\": x"), 9, &line, &column);
    assert_int_equal(line, 2);
    assert_int_equal(column, 7);
    pgd_json_doc *doc = NULL;
    assert_int_equal(pgd_json_parse(PGD_STR("{\n\"a\": tru}"), "f", 0, &doc), PGD_INVALID);
    assert_non_null(strstr(pgd_fail_text(PGD_INVALID), "line 2, column 6"));
}

static void big_integers(void **state) {
    (void)state;
    double f = 0;
    int64_t i = 0;
    pgd_json_doc *doc = parse("{\"model_max_length\": 1000000000000000019884624838656,"
                              "\"s 18446744073709551616\": \"\\\"18446744073709551616\\\\\","
                              "\"u\":18446744073709551616,\"v\":-9223372036854775809,"
                              "\"w\":[9223372036854775807,18446744073709551615],"
                              "\"x\":123456789012345678901.5}");
    const pgd_json *root = pgd_json_root(doc);
    assert_int_equal(pgd_json_to_f64(pgd_json_get(root, "model_max_length"), &f), 1);
    assert_true(f == 1e30);
    assert_int_equal(pgd_json_to_i64(pgd_json_get(root, "model_max_length"), &i), 0);
    assert_string_equal(pgd_json_get(root, "s 18446744073709551616")->str.ptr,
                        "\"18446744073709551616\\");
    assert_true(pgd_json_get(root, "u")->f == 18446744073709551616.0);
    assert_true(pgd_json_get(root, "v")->f == -9223372036854775808.0);
    const pgd_json *w = pgd_json_get(root, "w");
    assert_int_equal(w->items[0].kind, PGD_JSON_INT);
    assert_int_equal(w->items[1].kind, PGD_JSON_UINT);
    assert_true(w->items[1].u == UINT64_MAX);
    assert_true(pgd_json_get(root, "x")->f == 123456789012345678901.5);
    pgd_json_free(doc);
}

static void depth(void **state) {
    (void)state;
    static char text[5000];
    for (uint32_t limit = 0; limit <= 1000; limit += 100) {
        uint32_t most = limit == 0 ? 256 : limit;
        pgd_json_doc *doc = NULL;
        for (uint32_t levels = most; levels <= most + 1; levels++) {
            memset(text, '[', levels);
            memset(text + levels, ']', levels);
            pgd_str s = {text, 2 * (size_t)levels};
            assert_int_equal(pgd_json_parse(s, "test", limit, &doc),
                             levels == most ? PGD_OK : PGD_INVALID);
            pgd_json_free(doc);
        }
    }
    pgd_json_doc *doc = NULL;
    memset(text, '[', sizeof(text));
    pgd_str s = {text, sizeof(text)};
    assert_int_equal(pgd_json_parse(s, "test", UINT32_MAX, &doc), PGD_INVALID);
    assert_int_equal(pgd_json_parse(PGD_STR("{\"a\":{}}"), "test", 1, &doc), PGD_INVALID);
    assert_int_equal(pgd_json_parse(PGD_STR("{\"a\":[1]}"), "test", 1, &doc), PGD_INVALID);
    assert_int_equal(pgd_json_parse(PGD_STR("[[[]]]"), "test", 2, &doc), PGD_INVALID);
    assert_int_equal(pgd_json_parse(PGD_STR("[[[1]]]"), "test", 3, &doc), PGD_OK);
    pgd_json_free(doc);
    assert_int_equal(pgd_json_parse(PGD_STR("{\"a\":1}"), "test", 1, &doc), PGD_OK);
    pgd_json_free(doc);
}

static void access_to_values(void **state) {
    (void)state;
    pgd_json_doc *doc =
        parse("{\"i\":5,\"f\":2.0,\"h\":2.5,\"t\":true,\"s\":\"a\\u0000b\",\"n\":null,"
              "\"u\":18446744073709551615,\"e\":1e300,\"i\":6,\"\":7}");
    const pgd_json *root = pgd_json_root(doc);
    int64_t i = 0;
    double f = 0;
    int32_t b = 0;
    pgd_str s = {0};
    assert_int_equal(root->n, 10);
    assert_int_equal(pgd_json_to_i64(pgd_json_get(root, "i"), &i), 1);
    assert_int_equal(i, 6);
    assert_int_equal(root->items[0].i, 5);
    assert_true(pgd_str_is(root->keys[8], "i"));
    assert_int_equal(pgd_json_to_i64(pgd_json_get(root, ""), &i), 1);
    assert_int_equal(i, 7);
    assert_int_equal(pgd_json_to_i64(pgd_json_get(root, "f"), &i), 1);
    assert_int_equal(i, 2);
    const char *const no_integers[] = {"h", "t", "s", "n", "u", "e", "missing"};
    for (size_t k = 0; k < sizeof(no_integers) / sizeof(no_integers[0]); k++) {
        assert_int_equal(pgd_json_to_i64(pgd_json_get(root, no_integers[k]), &i), 0);
        assert_int_equal(i, 2);
    }
    assert_int_equal(pgd_json_to_f64(pgd_json_get(root, "u"), &f), 1);
    assert_true(f == 18446744073709551615.0);
    assert_int_equal(pgd_json_to_f64(pgd_json_get(root, "i"), &f), 1);
    assert_true(f == 6);
    assert_int_equal(pgd_json_to_f64(pgd_json_get(root, "t"), &f), 0);
    assert_int_equal(pgd_json_to_bool(pgd_json_get(root, "t"), &b), 1);
    assert_int_equal(b, 1);
    assert_int_equal(pgd_json_to_bool(pgd_json_get(root, "i"), &b), 0);
    assert_int_equal(pgd_json_to_str(pgd_json_get(root, "s"), &s), 1);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.ptr, "a\0b", 4);
    assert_int_equal(pgd_json_to_str(pgd_json_get(root, "n"), &s), 0);
    assert_true(pgd_json_is(pgd_json_get(root, "n"), PGD_JSON_NULL));
    assert_false(pgd_json_is(NULL, PGD_JSON_NULL));
    assert_false(pgd_json_is_number(NULL));
    assert_true(pgd_json_is_number(pgd_json_get(root, "u")));
    assert_null(pgd_json_get(NULL, "a"));
    assert_null(pgd_json_get(pgd_json_get(root, "i"), "a"));
    assert_null(pgd_json_root(NULL));
    assert_string_equal(pgd_json_kind_name(PGD_JSON_UINT), "integer");
    assert_string_equal(pgd_json_kind_name(99), "unknown");
    pgd_json_free(doc);
    pgd_json_free(NULL);
}

static const struct {
    double value;
    const char *text;
} floats[] = {
    {0.0, "0.0"},
    {-0.0, "-0.0"},
    {1.0, "1.0"},
    {0.1, "0.1"},
    {1e30, "1e+30"},
    {100.0, "100.0"},
    {1.0 / 3, "0.3333333333333333"},
    {0.1 + 0.2, "0.30000000000000004"},
    {5e-324, "5e-324"},
    {DBL_MAX, "1.7976931348623157e+308"},
    {DBL_MIN, "2.2250738585072014e-308"},
    {2.225073858507201e-308, "2.225073858507201e-308"},
    {123456789012345680.0, "1.2345678901234568e+17"},
    {NAN, "null"},
    {HUGE_VAL, "null"},
    {-HUGE_VAL, "null"},
};

static void check_floats(void) {
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        pgd_text t = {0};
        assert_int_equal(pgd_json_add_f64(&t, floats[i].value), PGD_OK);
        assert_string_equal(t.ptr, floats[i].text);
        pgd_text_free(&t);
    }
}

static void float_texts(void **state) {
    (void)state;
    check_floats();
    if (setlocale(LC_ALL, "de_DE.UTF-8") != NULL) {
        check_floats();
        (void)setlocale(LC_ALL, "C");
    }
}

static void floats_come_back(void **state) {
    (void)state;
    uint64_t rng = 11;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = pgd_rng_next(&rng);
        double v;
        pgd_text t = {0};
        memcpy(&v, &bits, sizeof(v));
        if (!isfinite(v)) {
            continue;
        }
        assert_int_equal(pgd_json_add_f64(&t, v), PGD_OK);
        pgd_json_doc *doc = parse(t.ptr);
        assert_int_equal(pgd_json_root(doc)->kind, PGD_JSON_FLOAT);
        assert_memory_equal(&pgd_json_root(doc)->f, &v, sizeof(v));
        pgd_json_free(doc);
        pgd_text_free(&t);
    }
}

static void strings_out(void **state) {
    (void)state;
    pgd_text t = {0};
    assert_int_equal(pgd_json_add_str(&t, PGD_STR("a\"\\/\b\f\n\r\t\x01\x1f\x7f\xC3\xA9\0z")),
                     PGD_OK);
    assert_string_equal(t.ptr, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xC3\xA9\\u0000z\"");
    pgd_text_clear(&t);
    assert_int_equal(pgd_json_add_str(&t, PGD_STR("\xE2\x82"
                                                  "a\xFF\n\xC3")),
                     PGD_OK);
    assert_string_equal(t.ptr, "\"\xEF\xBF\xBD"
                               "a\xEF\xBF\xBD\\n\xEF\xBF\xBD\"");
    pgd_text_clear(&t);
    assert_int_equal(pgd_json_add_str(&t, pgd_str_of(NULL)), PGD_OK);
    assert_string_equal(t.ptr, "\"\"");
    pgd_text_free(&t);
}

static void files(void **state) {
    (void)state;
    const char *path = "json_test.tmp";
    pgd_json_doc *doc = NULL;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    (void)fputs("{\"a\": [1, 2]}", f);
    (void)fclose(f);
    assert_int_equal(pgd_json_read_file(path, &doc), PGD_OK);
    assert_int_equal(pgd_json_get(pgd_json_root(doc), "a")->n, 2);
    pgd_json_free(doc);
    (void)remove(path);
    assert_int_equal(pgd_json_read_file(path, &doc), PGD_NOT_FOUND);
    assert_null(doc);
    assert_string_equal(pgd_fail_text(PGD_NOT_FOUND),
                        "json_test.tmp: cannot be read: No such file or directory");
    assert_int_equal(pgd_json_read_file("/", &doc), PGD_INVALID);
}

// Every allocation fails once, with and without the second parse.
static void no_memory(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"a\":[1,\"b\",{\"c\":2.5}]}",
        "[18446744073709551616,\"x\"]",
    };
    uint64_t live = pgd_mem_live();
    for (size_t i = 0; i < 2; i++) {
        for (uint64_t n = 1;; n++) {
            pgd_json_doc *doc = NULL;
            pgd_text t = {0};
            pgd_mem_fail_nth(n);
            pgd_status status = pgd_json_parse(pgd_str_of(texts[i]), "test", 0, &doc);
            if (status == PGD_OK) {
                status = pgd_json_add(&t, pgd_json_root(doc));
            } else {
                assert_null(doc);
            }
            pgd_mem_fail_nth(0);
            pgd_json_free(doc);
            pgd_text_free(&t);
            assert_int_equal(pgd_mem_live(), live);
            if (status == PGD_OK) {
                assert_true(n > 4);
                break;
            }
            assert_int_equal(status, PGD_OUT_OF_MEMORY);
            assert_true(n < 50);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts), cmocka_unit_test(invalid_texts),
        cmocka_unit_test(positions),   cmocka_unit_test(big_integers),
        cmocka_unit_test(depth),       cmocka_unit_test(access_to_values),
        cmocka_unit_test(float_texts), cmocka_unit_test(floats_come_back),
        cmocka_unit_test(strings_out), cmocka_unit_test(files),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
