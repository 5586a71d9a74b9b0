// Shared libraries, with the C library as the one that is always there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "os/dl.h"
#include "os/file.h"

static int here;

static void paths_of_addresses(void **state) {
    (void)state;
    char program[4096];
    char path[4096];
    assert_int_equal(pgd_os_program_path(program, sizeof(program)), PGD_OK);
    assert_int_equal(pgd_os_dl_path_of(&here, path, sizeof(path)), PGD_OK);
    assert_string_equal(path, program);
    int on_stack = 0;
    assert_int_equal(pgd_os_dl_path_of(&on_stack, path, sizeof(path)), PGD_NOT_FOUND);
    assert_string_equal(path, "");
    assert_int_equal(pgd_os_dl_path_of(&here, path, 3), PGD_OUT_OF_RANGE);
}

static void libraries(void **state) {
    (void)state;
    char path[4096];
    char why[200];
    void *lib = NULL;
    void *symbol = NULL;
    FILE *const *address_in_libc = &stdout;
    assert_int_equal(pgd_os_dl_path_of(*address_in_libc, path, sizeof(path)), PGD_OK);
    assert_int_equal(path[0], '/');
    assert_int_equal(pgd_os_dl_open(path, &lib, why, sizeof(why)), PGD_OK);
    assert_string_equal(why, "");
    assert_int_equal(pgd_os_dl_symbol(lib, "getenv", &symbol), PGD_OK);
    assert_non_null(symbol);
    assert_int_equal(pgd_os_dl_symbol(lib, "no_such_symbol_here", &symbol), PGD_NOT_FOUND);
    assert_null(symbol);
}

static void refusals(void **state) {
    (void)state;
    char why[200];
    char short_why[8];
    void *lib = &here;
    assert_int_equal(pgd_os_dl_open("libc.so.6", &lib, why, sizeof(why)), PGD_INVALID);
    assert_null(lib);
    assert_non_null(strstr(why, "absolute"));
    assert_int_equal(pgd_os_dl_open("/nowhere/x.so", &lib, why, sizeof(why)), PGD_UNAVAILABLE);
    assert_non_null(strstr(why, "/nowhere/x.so"));
    assert_int_equal(pgd_os_dl_open("/nowhere/x.so", &lib, short_why, 8), PGD_UNAVAILABLE);
    assert_int_equal(strlen(short_why), 7);
    assert_int_equal(pgd_os_dl_open("/dev/null", &lib, NULL, 0), PGD_UNAVAILABLE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_of_addresses),
        cmocka_unit_test(libraries),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
