// Names of contents: the published numbers of XXH3's 128-bit form, and that every byte counts.
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void known_numbers(void **state) {
    (void)state;
    // xxHash's own documentation: XXH3_128bits of nothing.
    const pgd_hash nothing = pgd_hash_of(NULL, 0);
    assert_true(nothing.high == UINT64_C(0x99aa06d3014798d8));
    assert_true(nothing.low == UINT64_C(0x6001c324468d497f));
}

static void every_byte_counts(void **state) {
    unsigned char bytes[300];
    (void)state;
    memset(bytes, 7, sizeof(bytes));
    const pgd_hash plain = pgd_hash_of(bytes, sizeof(bytes));
    assert_true(pgd_hash_equal(plain, pgd_hash_of(bytes, sizeof(bytes))));
    assert_false(pgd_hash_equal(plain, pgd_hash_of(bytes, sizeof(bytes) - 1)));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 1;
        assert_false(pgd_hash_equal(plain, pgd_hash_of(bytes, sizeof(bytes))));
        bytes[i] ^= 1;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_numbers),
        cmocka_unit_test(every_byte_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
