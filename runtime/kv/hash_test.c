// Hashes of blocks. The expected digests come from Python's hashlib over the bytes hash.h names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kv/hash.h"

static void check(const pgd_kv_hash *hash, const char *expected) {
    char text[65];
    const unsigned char *bytes = (const unsigned char *)hash;
    for (size_t i = 0; i < sizeof(*hash); i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    assert_string_equal(text, expected);
}

static void test_chain(void **state) {
    (void)state;
    int32_t tokens[] = {1, 2, 3, -4, 5};
    pgd_kv_hash hashes[2];
    pgd_seq seq = {.tokens = tokens, .n_tokens = 5, .hashes = hashes};
    pgd_kv_hasher *h = NULL;
    assert_int_equal(pgd_kv_hasher_create(2, &h), PGD_OK);
    assert_int_equal(pgd_kv_hasher_extend(h, &seq, 1), 1);
    assert_int_equal(seq.n_hashes, 1);
    assert_int_equal(pgd_kv_hasher_extend(h, &seq, 2), 1);
    check(&hashes[0], "a8a051bdfa2e865ed9c1d8fe04bb1e48382975cbae37ab1e2540b37614dfbc92");
    check(&hashes[1], "8a003912c81988c847b80a705bba20d7505839275d694fb2c4cc862ebaf94a99");
    seq.n_hashes = 0;
    seq.adapter = "lo";
    seq.adapter_len = 2;
    seq.cache_salt = "abc";
    seq.cache_salt_len = 3;
    assert_int_equal(pgd_kv_hasher_extend(h, &seq, 2), 1);
    check(&hashes[0], "f18f0043b545f2a32bd1069ad554a2f5b525df0ecaadd216ea64de1cb3d40faf");
    check(&hashes[1], "1552ed0d4f935f4f019d7dc38d5c543defc096484c02e9e307250df26a228d50");
    seq.hashes = NULL;
    assert_int_equal(pgd_kv_hasher_extend(h, &seq, 2), 0);
    pgd_kv_hasher_destroy(h);
}

static void test_failed_allocations_leak_nothing(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    pgd_kv_hasher *h = NULL;
    pgd_mem_fail_nth(1);
    assert_int_equal(pgd_kv_hasher_create(2, &h), PGD_OUT_OF_MEMORY);
    pgd_mem_fail_nth(0);
    assert_null(h);
    assert_int_equal(pgd_mem_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_failed_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
