// A file's identity changes with whatever happens to it, also behind the back of its times.
#define _GNU_SOURCE

#include "os/identity.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call) assert_int_equal((call), PGD_OK)

static char path[256];

static void put(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

// File systems keep times in steps of a timer tick.
static void let_time_pass(void) {
    const struct timespec t = {.tv_nsec = 20000000};
    nanosleep(&t, NULL);
}

static int32_t is_same(const pgd_os_identity *a, const pgd_os_identity *b) {
    return a->bytes == b->bytes && a->inode == b->inode && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns;
}

static int set_up(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/pagoda-identity-XXXXXX", base != NULL ? base : "/tmp");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int tear_down(void **state) {
    (void)state;
    return unlink(path);
}

static void stays_and_changes(void **state) {
    pgd_os_identity first;
    pgd_os_identity second;
    (void)state;
    put("some text");
    OK(pgd_os_identify(path, &first));
    assert_int_equal(first.bytes, 9);
    assert_int_equal(first.own, 1);
    let_time_pass();
    OK(pgd_os_identify(path, &second));
    assert_true(is_same(&first, &second));
    // The same size and time of modification, other bytes.
    put("some more");
    const struct timespec back[2] = {
        {.tv_sec = first.modified_ns / 1000000000, .tv_nsec = first.modified_ns % 1000000000},
        {.tv_sec = first.modified_ns / 1000000000, .tv_nsec = first.modified_ns % 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, back, 0), 0);
    OK(pgd_os_identify(path, &second));
    assert_int_equal(second.bytes, first.bytes);
    assert_int_equal(second.modified_ns, first.modified_ns);
    assert_int_not_equal(second.changed_ns, first.changed_ns);
}

static void touch_says_now(void **state) {
    pgd_os_identity id;
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    (void)state;
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    OK(pgd_os_identify(path, &id));
    assert_int_equal(id.modified_ns, INT64_C(1000000000000));
    OK(pgd_os_touch(path));
    OK(pgd_os_identify(path, &id));
    assert_true(id.modified_ns / 1000000000 >= (int64_t)time(NULL) - 2);
}

static void missing(void **state) {
    pgd_os_identity id;
    (void)state;
    assert_int_equal(pgd_os_identify("/no/such/file", &id), PGD_NOT_FOUND);
    assert_int_equal(id.bytes, 0);
    assert_int_equal(pgd_os_touch("/no/such/file"), PGD_NOT_FOUND);
    assert_int_equal(pgd_os_process_id(), getpid());
}

static void boot_has_a_name(void **state) {
    char first[17];
    char second[17];
    (void)state;
    OK(pgd_os_boot_name(first));
    OK(pgd_os_boot_name(second));
    assert_string_equal(first, second);
    assert_int_equal(strspn(first, "0123456789abcdef"), 16);
    assert_int_equal(strlen(first), 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stays_and_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(touch_says_now, set_up, tear_down),
        cmocka_unit_test(missing),
        cmocka_unit_test(boot_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
