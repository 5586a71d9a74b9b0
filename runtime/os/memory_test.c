// Pages that come when touched and go when told to; processor time that is used; a child's output.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "os/memory.h"
#include "os/process.h"
#include "os/usage.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t resident(void) {
    pgd_os_usage u;
    pgd_os_usage_read(&u);
    return u.rss_bytes;
}

static void test_pages(void **state) {
    (void)state;
    void *ptr = NULL;
    uint64_t bytes = 64 * MIB;
    uint64_t before = resident();
    assert_int_equal(pgd_os_memory_reserve(bytes, &ptr), PGD_OK);
    assert_true(resident() < before + 16 * MIB);
    memset(ptr, 7, bytes);
    assert_true(resident() > before + 48 * MIB);
    // Half a page at each end stays.
    uint64_t half = pgd_os_memory_page() / 2;
    unsigned char *p = ptr;
    pgd_os_memory_drop(p + half, bytes - 2 * half);
    assert_int_equal(p[half], 7);
    assert_int_equal(p[bytes - 1], 7);
    assert_int_equal(p[bytes / 2], 0);
    assert_true(resident() < before + 16 * MIB);
    pgd_os_memory_release(ptr, bytes);
    assert_int_equal(pgd_os_memory_reserve(0, &ptr), PGD_OK);
    assert_null(ptr);
    pgd_os_memory_release(NULL, 0);
}

static void test_usage(void **state) {
    (void)state;
    pgd_os_usage a;
    pgd_os_usage b;
    volatile uint64_t sum = 0;
    pgd_os_usage_read(&a);
    for (uint64_t i = 0; i < 200 * MIB; i++) {
        sum += i;
    }
    pgd_os_usage_read(&b);
    assert_true(sum > 0);
    assert_true(b.own_ns > a.own_ns);
    assert_true(b.all_ns > a.all_ns);
    assert_true(b.peak_bytes >= a.peak_bytes);
}

static void test_child(void **state) {
    (void)state;
    char out[8];
    int32_t code = 0;
    char shell[] = "/bin/sh";
    char flag[] = "-c";
    char script[] = "echo 123456789; exit 3";
    char *argv[] = {shell, flag, script, NULL};
    assert_int_equal(pgd_os_process_run(argv, out, sizeof(out), &code), PGD_OK);
    assert_string_equal(out, "1234567");
    assert_int_equal(code, 3);
    char nothing[] = "/no/such/program";
    char *wrong[] = {nothing, NULL};
    assert_int_equal(pgd_os_process_run(wrong, out, sizeof(out), &code), PGD_UNAVAILABLE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
