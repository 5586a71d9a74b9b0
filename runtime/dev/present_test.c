// What manifests tell without anything being opened, on machines made of files: chips under
// <root>/sys, libraries under <root>/lib and in <root>/etc/ld.so.cache.
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dev/inner.h"

#include "base/fail.h"
#include "os/dl.h"
#include "os/folder.h"

static char root[64];

static void put(const char *name, const char *text, size_t n) {
    char path[300];
    pgd_os_file f;
    snprintf(path, sizeof(path), "%s/%s", root, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(pgd_os_folder_make(path), PGD_OK);
    *slash = '/';
    assert_int_equal(pgd_os_open_write(path, 0, &f), PGD_OK);
    assert_int_equal(pgd_os_write(f, text, n), PGD_OK);
    pgd_os_close(&f);
}

static void put_chip(const char *address, const char *vendor, const char *device) {
    char name[100];
    snprintf(name, sizeof(name), "sys/bus/pci/devices/%s/vendor", address);
    put(name, vendor, strlen(vendor));
    snprintf(name, sizeof(name), "sys/bus/pci/devices/%s/device", address);
    put(name, device, strlen(device));
}

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof(root), "/tmp/pgd-present-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state) {
    char command[120];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static pgd_dev_registry *open_registry(void) {
    const pgd_dev_search search = {.no_env = 1, .no_installed = 1, .root = root};
    pgd_dev_registry *r = NULL;
    assert_int_equal(pgd_dev_registry_create(&search, &r), PGD_OK);
    return r;
}

// A manifest with one pattern or library.
static pgd_dev_manifest manifest_of(const char *const *matches, const char *const *needs) {
    return (pgd_dev_manifest){.kind = "x",
                              .matches = matches,
                              .n_matches = matches != NULL,
                              .needs = needs,
                              .n_needs = needs != NULL};
}

static void test_matches(void **state) {
    static const struct {
        const char *pattern;
        int32_t absent;
    } cases[] = {
        {"pci:10de:*", 0},    {"pci:10DE:2330", 0}, {"pci:10de:2331", 1}, {"pci:*:2330", 0},
        {"pci:*:*", 0},       {"pci:1234:*", 1},    {"pci:10d:*", 1},     {"pci:10de", 1},
        {"pci:00010de:*", 1}, {"soc:any", 0},
    };
    char why[240];
    (void)state;
    put_chip("0000:65:00.0", "0x10de\n", "0x2330\n");
    put_chip("0000:00:1f.0", "0x8086\n", "0xa305\n");
    put("sys/bus/pci/devices/torn/vendor", "", 0);
    pgd_dev_registry *r = open_registry();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const pgd_dev_manifest m = manifest_of(&cases[i].pattern, NULL);
        if (pgd_dev_is_absent(r, &m, why, sizeof(why)) != cases[i].absent) {
            fail_msg("%s: %s", cases[i].pattern, why);
        }
        assert_int_equal(strstr(why, "no such chip") != NULL, cases[i].absent);
        assert_int_equal(strstr(why, cases[i].pattern) != NULL, cases[i].absent);
    }
    pgd_dev_registry_destroy(r);
}

static void test_addresses(void **state) {
    static const char *const pattern = "pci:10de:*";
    const pgd_dev_pci gpu = {.bus = 0x65};
    const pgd_dev_pci bridge = {.bus = 0, .slot = 0x1f};
    const pgd_dev_pci nobody = {.bus = 0x99};
    (void)state;
    put_chip("0000:65:00.0", "0x10de\n", "0x2330\n");
    put_chip("0000:00:1f.0", "0x8086\n", "0xa305\n");
    pgd_dev_registry *r = open_registry();
    pgd_dev_manifest m = manifest_of(&pattern, NULL);
    assert_true(pgd_dev_may_drive(r, &m, &gpu));
    assert_false(pgd_dev_may_drive(r, &m, &bridge));
    assert_true(pgd_dev_may_drive(r, &m, &nobody)); // not listed: nothing is ruled out
    m = manifest_of(NULL, NULL);
    assert_true(pgd_dev_may_drive(r, &m, &bridge));
    m.drives_no_pci = 1;
    assert_false(pgd_dev_may_drive(r, &m, &gpu));
    pgd_dev_registry_destroy(r);
}

// A system that does not list its chips rules out nothing.
static void test_no_list(void **state) {
    static const char *const pattern = "pci:10de:*";
    const pgd_dev_manifest m = manifest_of(&pattern, NULL);
    const pgd_dev_pci gpu = {.bus = 0x65};
    char why[240];
    (void)state;
    pgd_dev_registry *r = open_registry();
    assert_false(pgd_dev_is_absent(r, &m, why, sizeof(why)));
    assert_true(pgd_dev_may_drive(r, &m, &gpu));
    pgd_dev_registry_destroy(r);
}

static void test_needs(void **state) {
    static const char cache[] = "glibc-ld.so.cache1.1....\0libfirst.so.1\0/opt/x/libpath.so.2\0"
                                "libthree.so.30\0";
    static const struct {
        const char *name;
        int32_t there;
    } cases[] = {
        {"libfirst.so.1", 1},
        {"libpath.so.2", 1},
        {"libthree.so.30", 1},
        {"libthree.so.3", 0},
        {"first.so.1", 0},
        {"libfirst.so.1x", 0},
        {"libnone.so.1", 0},
        {"libplain.so", 1},
        {"/opt/acme/lib.so", 1},
        {"/opt/acme/no", 0},
        {"libfolder.so", 0},
        {"libno.so.2|libfirst.so.1", 1},
        {"libfirst.so.1|libno.so.2", 1},
        {"libno.so.3|libno.so.2|/opt/acme/lib.so", 1},
        {"libno.so.2|libno.so.1", 0},
        {"|", 0},
        {"libno.so.1|", 0},
    };
    char why[240];
    (void)state;
    put("etc/ld.so.cache", cache, sizeof(cache) - 1);
    put("usr/lib/libplain.so", "x", 1);
    put("usr/lib/libfolder.so/x", "x", 1);
    put("opt/acme/lib.so", "x", 1);
    pgd_dev_registry *r = open_registry();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const pgd_dev_manifest m = manifest_of(NULL, &cases[i].name);
        if (pgd_dev_is_absent(r, &m, why, sizeof(why)) == cases[i].there) {
            fail_msg("%s", cases[i].name);
        }
        assert_int_equal(strstr(why, "driver not installed") != NULL, !cases[i].there);
    }
    pgd_dev_registry_destroy(r);
    assert_true(pgd_os_dl_is_installed("", "libc.so.6"));
    assert_false(pgd_os_dl_is_installed("", "libpagoda-is-not-there.so.1"));
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {IN_ROOT(test_matches), IN_ROOT(test_addresses),
                                       IN_ROOT(test_no_list), IN_ROOT(test_needs)};
    return cmocka_run_group_tests_name("dev.present", tests, NULL, NULL);
}
