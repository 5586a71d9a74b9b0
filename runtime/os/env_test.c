// Environment, time, randomness, errors, and what the machine has.
#define _DEFAULT_SOURCE // setenv
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "os/cpu.h"
#include "os/env.h"

static void variables(void **state) {
    (void)state;
    assert_int_equal(setenv("PGD_ENV_TEST", "x", 1), 0);
    assert_string_equal(pgd_os_env("PGD_ENV_TEST"), "x");
    assert_string_equal(pgd_os_env_secure("PGD_ENV_TEST"), "x");
    assert_int_equal(unsetenv("PGD_ENV_TEST"), 0);
    assert_null(pgd_os_env("PGD_ENV_TEST"));
    assert_null(pgd_os_env_secure("PGD_ENV_TEST"));
    assert_int_equal(pgd_os_is_terminal(-1), 0);
}

static void times(void **state) {
    (void)state;
    uint64_t start = pgd_os_monotonic_ns();
    pgd_os_sleep_ns(3000000);
    assert_true(pgd_os_monotonic_ns() - start >= 3000000);
    int64_t ms = pgd_os_unix_ms();
    assert_true(llabs(ms / 1000 - (int64_t)time(NULL)) <= 1);
}

static void random_bytes(void **state) {
    (void)state;
    unsigned char bytes[1000] = {0};
    int counts[256] = {0};
    int n_seen = 0;
    assert_int_equal(pgd_os_random(bytes, sizeof(bytes)), 1);
    assert_int_equal(pgd_os_random(bytes, 0), 1);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        n_seen += counts[bytes[i]]++ == 0;
    }
    assert_true(n_seen > 200); // 251 expected
}

static void errors(void **state) {
    (void)state;
    char buffer[100];
    errno = 0;
    assert_int_equal(close(-1), -1);
    assert_int_equal(pgd_os_last_error(), EBADF);
    assert_string_equal(pgd_os_error_text(ENOENT, buffer, sizeof(buffer)),
                        "No such file or directory");
    assert_non_null(strstr(pgd_os_error_text(98765, buffer, sizeof(buffer)), "98765"));
}

static void machine(void **state) {
    (void)state;
    uint64_t total = pgd_os_memory_total();
    uint64_t available = pgd_os_memory_available();
    assert_true(pgd_os_cpu_count() >= 1);
    assert_true(pgd_os_cpu_count() <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
    assert_true(total > 1u << 20);
    assert_true(available > 0 && available <= total);
    assert_true(total <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables), cmocka_unit_test(times),   cmocka_unit_test(random_bytes),
        cmocka_unit_test(errors),    cmocka_unit_test(machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
