// The status slot: codes, cuts, notes, threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/fail.h"
#include "os/thread.h"

static void names_and_texts(void **state) {
    (void)state;
    assert_string_equal(pgd_status_name(PGD_OK), "OK");
    assert_string_equal(pgd_status_name(PGD_OUT_OF_MEMORY), "OUT_OF_MEMORY");
    assert_string_equal(pgd_status_name(99), "UNKNOWN");
    assert_string_equal(pgd_status_name(-1), "UNKNOWN");
    assert_string_equal(pgd_status_text(PGD_NOT_FOUND), "no such thing");
}

static void sentence_and_place(void **state) {
    (void)state;
    assert_int_equal(pgd_fail(PGD_INVALID, "x is %d", 7), PGD_INVALID);
    assert_int_equal(pgd_fail_line(), __LINE__ - 1);
    assert_non_null(strstr(pgd_fail_file(), "fail_test.c"));
    assert_string_equal(pgd_fail_text(PGD_INVALID), "x is 7");
    assert_string_equal(pgd_fail_text(PGD_DENIED), pgd_status_text(PGD_DENIED));
    pgd_fail_set(PGD_DENIED, "100 % of it");
    assert_string_equal(pgd_fail_text(PGD_DENIED), "100 % of it");
    assert_string_equal(pgd_fail_file(), "");
    assert_int_equal(pgd_fail_line(), 0);
}

static void notes(void **state) {
    (void)state;
    (void)pgd_fail(PGD_INVALID, "sentence");
    assert_int_equal(pgd_fail_note(PGD_OK, "nothing"), PGD_OK);
    assert_int_equal(pgd_fail_note(PGD_INVALID, "reading %s", "a"), PGD_INVALID);
    (void)pgd_fail_note(PGD_INVALID, "while loading b");
    assert_string_equal(pgd_fail_text(PGD_INVALID), "sentence (while reading a; while loading b)");
    for (int i = 0; i < 5; i++) {
        (void)pgd_fail_note(PGD_INVALID, "n%d", i);
    }
    assert_string_equal(pgd_fail_text(PGD_INVALID),
                        "sentence (while reading a; while loading b; while n0; while n1)");
    (void)pgd_fail(PGD_INVALID, "next");
    assert_string_equal(pgd_fail_text(PGD_INVALID), "next");
    (void)pgd_fail_note(PGD_TIMEOUT, "waiting");
    assert_string_equal(pgd_fail_text(PGD_TIMEOUT),
                        "not done within the given time (while waiting)");
}

static void own_text_as_argument(void **state) {
    (void)state;
    (void)pgd_fail(PGD_INVALID, "inner");
    (void)pgd_fail_note(PGD_INVALID, "a");
    (void)pgd_fail(PGD_DENIED, "outer: %s", pgd_fail_text(PGD_INVALID));
    assert_string_equal(pgd_fail_text(PGD_DENIED), "outer: inner (while a)");
}

static void long_sentences_are_cut(void **state) {
    (void)state;
    char text[3000];
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    (void)pgd_fail(PGD_INVALID, "%s", text);
    assert_int_equal(strlen(pgd_fail_text(PGD_INVALID)), 1000);
    for (int i = 0; i < 4; i++) {
        (void)pgd_fail_note(PGD_INVALID, "%s", text);
    }
    const char *whole = pgd_fail_text(PGD_INVALID);
    assert_int_equal(whole[strlen(whole) - 1], ')');
    // A code point that does not fit is left out whole: 999 bytes of 'a', then one of 3 bytes.
    memcpy(text + 999, "\xE2\x82\xAC", 3);
    (void)pgd_fail(PGD_INVALID, "%s", text);
    assert_int_equal(strlen(pgd_fail_text(PGD_INVALID)), 999);
    // One that ends exactly at the limit stays.
    memcpy(text + 996,
           "a\xE2\x82\xAC"
           "a",
           5);
    (void)pgd_fail(PGD_INVALID, "%s", text);
    assert_int_equal(strlen(pgd_fail_text(PGD_INVALID)), 1000);
}

static void *other_thread(void *arg) {
    (void)pgd_fail(PGD_TIMEOUT, "of the other thread");
    *(int *)arg = strcmp(pgd_fail_text(PGD_TIMEOUT), "of the other thread") == 0;
    return NULL;
}

static void one_slot_per_thread(void **state) {
    (void)state;
    int seen = 0;
    pgd_os_thread thread;
    (void)pgd_fail(PGD_INVALID, "of this thread");
    assert_int_equal(pgd_os_thread_start("test", other_thread, &seen, &thread), PGD_OK);
    pgd_os_thread_join(thread);
    assert_int_equal(seen, 1);
    assert_string_equal(pgd_fail_text(PGD_INVALID), "of this thread");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_texts),
        cmocka_unit_test(sentence_and_place),
        cmocka_unit_test(notes),
        cmocka_unit_test(own_text_as_argument),
        cmocka_unit_test(long_sentences_are_cut),
        cmocka_unit_test(one_slot_per_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
