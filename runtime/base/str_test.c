// Views and growing texts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

static void views(void **state) {
    (void)state;
    assert_int_equal(pgd_str_of(NULL).len, 0);
    assert_true(pgd_str_equal(PGD_STR(""), pgd_str_of(NULL)));
    assert_true(pgd_str_equal(PGD_STR("ab"), PGD_STR("ab")));
    assert_false(pgd_str_equal(PGD_STR("ab"), PGD_STR("abc")));
    assert_false(pgd_str_equal(PGD_STR("ab"), PGD_STR("ac")));
    assert_true(pgd_str_is(PGD_STR("ab"), "ab"));
    assert_true(pgd_str_equal(PGD_STR("a\0b"), PGD_STR("a\0b")));
    assert_false(pgd_str_equal(PGD_STR("a\0b"), PGD_STR("a\0c")));
    assert_true(pgd_str_starts(PGD_STR("model.x"), PGD_STR("model.")));
    assert_true(pgd_str_starts(PGD_STR("model"), PGD_STR("")));
    assert_false(pgd_str_starts(PGD_STR("mo"), PGD_STR("model")));
    assert_true(pgd_str_ends(PGD_STR("a.json"), PGD_STR(".json")));
    assert_false(pgd_str_ends(PGD_STR("json"), PGD_STR(".json")));
    assert_true(pgd_str_ends(pgd_str_of(NULL), PGD_STR("")));
    assert_true(pgd_str_is(pgd_str_trim(PGD_STR(" \t\r\n\v\f a b \n")), "a b"));
    assert_int_equal(pgd_str_trim(PGD_STR("  ")).len, 0);
    assert_true(pgd_str_is(pgd_str_trim(PGD_STR("\xC2\xA0 a")), "\xC2\xA0 a"));
}

static void cuts(void **state) {
    (void)state;
    pgd_str rest = PGD_STR("a,,b");
    assert_true(pgd_str_is(pgd_str_cut(rest, ',', &rest), "a"));
    assert_true(pgd_str_is(rest, ",b"));
    assert_true(pgd_str_is(pgd_str_cut(rest, ',', &rest), ""));
    assert_true(pgd_str_is(pgd_str_cut(rest, ',', &rest), "b"));
    assert_int_equal(rest.len, 0);
    assert_int_equal(pgd_str_cut(rest, ',', &rest).len, 0);
}

static void texts(void **state) {
    (void)state;
    pgd_text t = {0};
    uint64_t live = pgd_mem_live();
    assert_int_equal(pgd_text_add(&t, NULL, 0), PGD_OK);
    assert_string_equal(t.ptr, "");
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(pgd_text_format(&t, "%d,", i), PGD_OK);
        assert_int_equal(strlen(t.ptr), t.len);
        assert_true(t.len < t.cap);
    }
    assert_int_equal(t.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_true(pgd_str_ends(pgd_text_view(&t), PGD_STR("998,999,")));
    pgd_text_clear(&t);
    assert_string_equal(t.ptr, "");
    size_t cap = t.cap;
    assert_int_equal(pgd_text_add_str(&t, PGD_STR("a\0b")), PGD_OK);
    assert_int_equal(t.len, 3);
    assert_int_equal(t.cap, cap);
    assert_int_equal(pgd_text_reserve(&t, SIZE_MAX), PGD_OUT_OF_MEMORY);
    assert_int_equal(pgd_text_add(&t, "x", SIZE_MAX), PGD_OUT_OF_MEMORY);
    assert_int_equal(t.len, 3);
    pgd_text_free(&t);
    assert_null(t.ptr);
    assert_int_equal(pgd_mem_live(), live);
}

static void text_without_memory(void **state) {
    (void)state;
    pgd_text t = {0};
    pgd_mem_fail_nth(1);
    assert_int_equal(pgd_text_add(&t, "abc", 3), PGD_OUT_OF_MEMORY);
    assert_null(t.ptr);
    assert_int_equal(pgd_text_add(&t, "abc", 3), PGD_OK);
    pgd_mem_fail_nth(1);
    assert_int_equal(pgd_text_format(&t, "%200d", 1), PGD_OUT_OF_MEMORY);
    assert_string_equal(t.ptr, "abc");
    pgd_text_free(&t);
}

static void sentences_show_the_beginning(void **state) {
    (void)state;
    char text[300];
    char shown[400];
    memset(text, 'x', sizeof(text));
    (void)snprintf(shown, sizeof(shown), "<%.*s>", PGD_STR_SHOW(((pgd_str){text, 300})));
    assert_int_equal(strlen(shown), PGD_STR_SHOWN + 2);
    (void)snprintf(shown, sizeof(shown), "<%.*s>", PGD_STR_SHOW(((pgd_str){text, 3})));
    assert_string_equal(shown, "<xxx>");
    (void)snprintf(shown, sizeof(shown), "<%.*s>", PGD_STR_SHOW((pgd_str){0}));
    assert_string_equal(shown, "<>");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_show_the_beginning),
        cmocka_unit_test(views),
        cmocka_unit_test(cuts),
        cmocka_unit_test(texts),
        cmocka_unit_test(text_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
