// Stop strings against a search of the whole text, over random texts cut at random places.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/stop.h"

static pgd_text_stop *make(const char *const *strings, uint32_t n) {
    pgd_text_stop *s = NULL;
    assert_int_equal(pgd_text_stop_create(strings, n, &s), PGD_OK);
    return s;
}

// ---- a search that knows nothing of pieces -----------------------------------------------------

typedef struct found {
    int32_t which; // -1 = none
    size_t end;
} found;

// The string whose end comes first in text; of several the first in the list.
static found search(const char *const *strings, uint32_t n, const char *text, size_t len) {
    for (size_t end = 1; end <= len; end++) {
        for (uint32_t i = 0; i < n; i++) {
            size_t m = strlen(strings[i]);
            if (m <= end && memcmp(text + end - m, strings[i], m) == 0) {
                return (found){(int32_t)i, end};
            }
        }
    }
    return (found){-1, len};
}

// The longest suffix of text that is a proper prefix of a string.
static size_t suffix(const char *const *strings, uint32_t n, const char *text, size_t len) {
    for (size_t k = len; k > 0; k--) {
        for (uint32_t i = 0; i < n; i++) {
            if (k < strlen(strings[i]) && memcmp(text + len - k, strings[i], k) == 0) {
                return k;
            }
        }
    }
    return 0;
}

// ---- random ------------------------------------------------------------------------------------

static const char *const letters[] = {"a", "b", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x99\x82"};

static size_t random_text(uint64_t *rng, size_t n_letters, size_t kinds, char *out) {
    size_t len = 0;
    for (size_t i = 0; i < n_letters; i++) {
        const char *letter = letters[pgd_rng_next(rng) % kinds];
        memcpy(out + len, letter, strlen(letter));
        len += strlen(letter);
    }
    out[len] = '\0';
    return len;
}

static void one_round(uint64_t *rng) {
    char room[4][64];
    const char *strings[4];
    char text[400];
    uint32_t n = 1 + (uint32_t)(pgd_rng_next(rng) % 4);
    size_t kinds = 1 + pgd_rng_next(rng) % 5;
    for (uint32_t i = 0; i < n; i++) {
        (void)random_text(rng, 1 + pgd_rng_next(rng) % 6, kinds, room[i]);
        strings[i] = room[i];
    }
    size_t len = random_text(rng, pgd_rng_next(rng) % 80, kinds, text);
    pgd_text_stop *s = make(strings, n);
    pgd_text_stop_state state = {{0}};
    const found expected = search(strings, n, text, len);
    int32_t which = -1;
    size_t at = 0;
    while (at < len && which < 0) {
        size_t piece = 1 + pgd_rng_next(rng) % 9;
        piece = piece < len - at ? piece : len - at;
        at += pgd_text_stop_scan(s, &state, (pgd_str){text + at, piece}, &which);
        if (which < 0) {
            assert_int_equal(pgd_text_stop_held(s, &state), suffix(strings, n, text, at));
        }
    }
    assert_int_equal(which, expected.which);
    assert_int_equal(at, expected.end);
    pgd_text_stop_destroy(s);
}

static void test_random_texts_and_cuts(void **state) {
    (void)state;
    uint64_t rng = 20261121;
    for (int i = 0; i < 20000; i++) {
        one_round(&rng);
    }
}

// ---- by hand -----------------------------------------------------------------------------------

static void test_going_on_behind_a_string(void **state) {
    (void)state;
    const char *const strings[] = {"aba"};
    pgd_text_stop *s = make(strings, 1);
    pgd_text_stop_state at = {{0}};
    int32_t which = 0;
    assert_int_equal(pgd_text_stop_scan(s, &at, PGD_STR("xabab"), &which), 4);
    assert_int_equal(which, 0);
    assert_int_equal(pgd_text_stop_held(s, &at), 1);
    assert_int_equal(pgd_text_stop_scan(s, &at, PGD_STR("ba"), &which), 2);
    assert_int_equal(which, 0); // "aba" again, over its own end
    pgd_text_stop_destroy(s);
}

static void test_the_first_to_end_wins(void **state) {
    (void)state;
    const char *const strings[] = {"long one", "one", "g one", "e"};
    pgd_text_stop *s = make(strings, 4);
    pgd_text_stop_state at = {{0}};
    int32_t which = 0;
    assert_int_equal(pgd_text_stop_scan(s, &at, PGD_STR("a long one"), &which), 10);
    assert_int_equal(which, 0);
    assert_true(pgd_str_is(pgd_text_stop_string(s, 0), "long one"));
    pgd_text_stop_destroy(s);
}

static void expect(const char *const *strings, uint32_t n, pgd_status code) {
    pgd_text_stop *s = NULL;
    assert_int_equal(pgd_text_stop_create(strings, n, &s), code);
    assert_null(s);
}

static void test_limits(void **state) {
    (void)state;
    char long_one[PGD_TEXT_MAX_STOP_BYTES + 2];
    const char *many[PGD_TEXT_MAX_STOPS + 1];
    const char *wrong[] = {""};
    memset(long_one, 'x', sizeof(long_one));
    long_one[sizeof(long_one) - 1] = '\0';
    for (size_t i = 0; i < PGD_TEXT_MAX_STOPS + 1; i++) {
        many[i] = "x";
    }
    expect(many, PGD_TEXT_MAX_STOPS + 1, PGD_OUT_OF_RANGE);
    expect(wrong, 1, PGD_OUT_OF_RANGE);
    wrong[0] = NULL;
    expect(wrong, 1, PGD_OUT_OF_RANGE);
    wrong[0] = long_one;
    expect(wrong, 1, PGD_OUT_OF_RANGE);
    wrong[0] = "\xe2\x82";
    expect(wrong, 1, PGD_INVALID);
    pgd_text_stop_destroy(make(many, PGD_TEXT_MAX_STOPS));
    wrong[0] = long_one + 1;
    pgd_text_stop_destroy(make(wrong, 1));
    pgd_mem_fail_nth(1);
    expect(many, 1, PGD_OUT_OF_MEMORY);
    pgd_mem_fail_nth(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_texts_and_cuts),
        cmocka_unit_test(test_going_on_behind_a_string),
        cmocka_unit_test(test_the_first_to_end_wins),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
