// UTF-8 against tables 3-7 and 3-8 to 3-11 of the Unicode standard (section 3.9) and against
// Python: the rows are b.hex() and b.decode("utf-8", "replace").encode().hex().
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/str.h"

static const char *const rows[][2] = {
    {"", ""},
    {"616263", "616263"},
    {"61f1808080e180c262806380bf64", "61f1808080efbfbdefbfbd62efbfbd63efbfbdefbfbd64"},
    {"61f18080e180c262806380bf64", "61efbfbdefbfbdefbfbd62efbfbd63efbfbdefbfbd64"},
    {"c0afe080bff0818241", "efbfbdefbfbdefbfbdefbfbdefbfbdefbfbdefbfbdefbfbd41"},
    {"eda080edbfbfedaf41", "efbfbdefbfbdefbfbdefbfbdefbfbdefbfbdefbfbdefbfbd41"},
    {"f4919293ff4180bf42", "efbfbdefbfbdefbfbdefbfbdefbfbd41efbfbdefbfbd42"},
    {"e18080e2f09192f1bf41", "e18080efbfbdefbfbdefbfbd41"},
    {"f48fbfbf", "f48fbfbf"},
    {"f4908080", "efbfbdefbfbdefbfbdefbfbd"},
    {"efbfbd", "efbfbd"},
    {"e2", "efbfbd"},
    {"e282", "efbfbd"},
    {"f09f92", "efbfbd"},
    {"c3", "efbfbd"},
    {"feff", "efbfbdefbfbd"},
    {"efbbbf41", "efbbbf41"},
    {"0041", "0041"},
    {"3132333435363738e282ac3930313233343536ff", "3132333435363738e282ac3930313233343536efbfbd"},
    {"31323334353637c3a9", "31323334353637c3a9"},
    {"c0ffdff5fff3ee", "efbfbdefbfbdefbfbdefbfbdefbfbdefbfbdefbfbd"},
    {"ecbff3", "efbfbdefbfbd"},
    {"9f8fdf", "efbfbdefbfbdefbfbd"},
    {"bfe0ef8ff0bf", "efbfbdefbfbdefbfbdefbfbd"},
    {"ffa0e1", "efbfbdefbfbdefbfbd"},
    {"9fe09f8090", "efbfbdefbfbdefbfbdefbfbdefbfbd"},
    {"f1ec90904141a0", "efbfbdec90904141efbfbd"},
    {"9f9fc1c2", "efbfbdefbfbdefbfbdefbfbd"},
    {"eff4f3a0", "efbfbdefbfbdefbfbd"},
    {"f5a0e0c1", "efbfbdefbfbdefbfbdefbfbd"},
    {"dfe19f", "efbfbdefbfbd"},
    {"c080c2c1", "efbfbdefbfbdefbfbdefbfbd"},
    {"f041f1f4f5c280", "efbfbd41efbfbdefbfbdefbfbdc280"},
    {"dfc1edf5c2", "efbfbdefbfbdefbfbdefbfbdefbfbd"},
    {"ededf59f", "efbfbdefbfbdefbfbdefbfbd"},
    {"c041ff", "efbfbd41efbfbd"},
    {"e041efe1df", "efbfbd41efbfbdefbfbdefbfbd"},
    {"f041ec7ff59f", "efbfbd41efbfbd7fefbfbdefbfbd"},
    {"a08fbfecdfeedf", "efbfbdefbfbdefbfbdefbfbdefbfbdefbfbdefbfbd"},
    {"c0ec8ff0ffdfc1", "efbfbdefbfbdefbfbdefbfbdefbfbdefbfbd"},
    {"e180a0", "e180a0"},
    {"eef1df90c2", "efbfbdefbfbddf90efbfbd"},
    {"f5ef80c1f4", "efbfbdefbfbdefbfbdefbfbd"},
    {"c19f80f390", "efbfbdefbfbdefbfbdefbfbd"},
};

static size_t from_hex(const char *hex, char *out) {
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;
    for (; hex[0] != '\0'; hex += 2) {
        out[n++] =
            (char)((strchr(digits, hex[0]) - digits) << 4 | (strchr(digits, hex[1]) - digits));
    }
    return n;
}

static void lossy_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char in[64];
        char want[128];
        pgd_text t = {0};
        pgd_str s = {in, from_hex(rows[i][0], in)};
        size_t n = from_hex(rows[i][1], want);
        assert_int_equal(pgd_text_reserve(&t, 0), PGD_OK);
        assert_int_equal(pgd_utf8_add_lossy(&t, s), PGD_OK);
        assert_int_equal(t.len, n);
        assert_memory_equal(t.ptr, want, n);
        assert_int_equal(pgd_utf8_valid(s), strcmp(rows[i][0], rows[i][1]) == 0);
        assert_true(pgd_utf8_valid(pgd_text_view(&t)));
        pgd_text_free(&t);
    }
}

// Scalar values are U+0000..U+D7FF and U+E000..U+10FFFF (definition D76).
static void every_code_point(void **state) {
    (void)state;
    uint32_t n_good = 0;
    for (uint32_t cp = 0; cp < 0x120000; cp++) {
        char bytes[4] = {0};
        uint32_t back = 0;
        size_t n = pgd_utf8_encode(cp, bytes);
        if (n == 0) {
            assert_true((cp >= 0xD800 && cp <= 0xDFFF) || cp > 0x10FFFF);
            continue;
        }
        n_good++;
        assert_int_equal(n, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        assert_int_equal(pgd_utf8_decode(bytes, 4, &back), n);
        assert_int_equal(back, cp);
        if (n > 1) {
            assert_int_equal(pgd_utf8_decode(bytes, n - 1, &back), n - 1);
            assert_true(back == PGD_UTF8_BAD);
        }
    }
    assert_int_equal(n_good, 1112064);
}

// Of all sequences of two and three bytes so many are well-formed as table 3-7 has.
static void every_short_sequence(void **state) {
    (void)state;
    uint32_t n_two = 0;
    uint32_t n_three = 0;
    for (uint32_t v = 0; v < 1u << 24; v++) {
        const char b[3] = {(char)(v >> 16), (char)(v >> 8), (char)v};
        uint32_t cp = 0;
        size_t n = pgd_utf8_decode(b, 3, &cp);
        assert_true(n >= 1 && n <= 3);
        n_three += n == 3 && cp != PGD_UTF8_BAD;
        if ((v & 0xFF) == 0) {
            n_two += n == 2 && cp != PGD_UTF8_BAD;
        }
    }
    assert_int_equal(n_two, 0x800 - 0x80);
    assert_int_equal(n_three, 0x10000 - 0x800 - 0x800);
}

static void ends(void **state) {
    (void)state;
    uint32_t cp = 7;
    assert_int_equal(pgd_utf8_decode("", 0, &cp), 0);
    assert_int_equal(pgd_utf8_decode("\0", 1, &cp), 1);
    assert_int_equal(cp, 0);
    assert_true(pgd_utf8_valid((pgd_str){NULL, 0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lossy_rows),
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(every_short_sequence),
        cmocka_unit_test(ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
