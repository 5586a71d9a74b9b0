// Checksums against the examples of FIPS 180-4 and against git.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/digest.h"

static const pgd_str nothing = {"", 0};

static void sha256(void **state) {
    char out[PGD_SHA256_HEX + 1];
    (void)state;
    assert_int_equal(pgd_sha256_hex(nothing, PGD_STR("abc"), out), PGD_OK);
    assert_string_equal(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(pgd_sha256_hex(PGD_STR("a"), PGD_STR("bc"), out), PGD_OK);
    assert_string_equal(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(pgd_sha256_hex(nothing, nothing, out), PGD_OK);
    assert_string_equal(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void sha1(void **state) {
    char out[PGD_SHA1_HEX + 1];
    (void)state;
    assert_int_equal(pgd_sha1_hex(nothing, PGD_STR("abc"), out), PGD_OK);
    assert_string_equal(out, "a9993e364706816aba3e25717850c26c9cd0d89d");
    // git hash-object of a file that holds "hello world\n"
    assert_int_equal(pgd_sha1_hex(PGD_STR("blob 12\0"), PGD_STR("hello world\n"), out), PGD_OK);
    assert_string_equal(out, "3b18e512dba79e4c8300dd08aeb37f8e728b8dad");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sha256), cmocka_unit_test(sha1)};
    return cmocka_run_group_tests_name("base.digest", tests, NULL, NULL);
}
