// Manifests and the search for plugins, with empty files as libraries: nothing here is opened.
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include <cmocka.h>

#include "dev/inner.h"

#include "base/fail.h"
#include "base/mem.h"

static char folder[64];

static void write_file(const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/pgd-registry-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    char command[120];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

// A good manifest with one pair of braces' inside replaced: key -> text.
static void write_manifest(const char *file, const char *kind, const char *abi, const char *more) {
    char text[600];
    snprintf(text, sizeof(text),
             "{\"schema\":1,\"kind\":\"%s\",\"name\":\"N\",\"vendor\":\"V\",\"version\":\"1\","
             "\"role\":\"backend\",\"abi\":%s,\"library\":\"libpgd-%s.so\",\"unheard\":[1,{}]%s}",
             kind, abi, kind, more);
    write_file(file, text);
}

#define ABI "{\"major\":0,\"minor\":1,\"min_host_minor\":1}"

static pgd_dev_registry *open_folder(void) {
    const char *folders[] = {"/nonexistent/pgd", folder};
    const pgd_dev_search search = {
        .folders = folders, .n_folders = 2, .no_env = 1, .no_installed = 1};
    pgd_dev_registry *r = NULL;
    assert_int_equal(pgd_dev_registry_create(&search, &r), PGD_OK);
    return r;
}

static const pgd_dev_manifest *only(pgd_dev_registry *r) {
    assert_int_equal(pgd_dev_registry_count(r), 1);
    return pgd_dev_registry_get(r, 0);
}

static void test_good(void **state) {
    (void)state;
    write_manifest(
        "libpgd-acme.json", "acme", ABI,
        ",\"license\":\"MIT\",\"aliases\":[\"accel\",\"ac\"],\"options\":[{\"key\":\"a\","
        "\"type\":\"int\",\"default\":\"1\",\"help\":\"h\"}]");
    write_file("libpgd-acme.so", "");
    write_file("unrelated.json", "{");
    pgd_dev_registry *r = open_folder();
    const pgd_dev_manifest *m = only(r);
    assert_null(m->unusable);
    assert_string_equal(m->kind, "acme");
    assert_string_equal(m->license, "MIT");
    assert_int_equal(m->n_aliases, 2);
    assert_string_equal(m->aliases[1], "ac");
    assert_int_equal(m->n_options, 1);
    assert_string_equal(m->options[0].value, "1");
    assert_non_null(strstr(m->path, "libpgd-acme.so"));
    pgd_dev_desc desc = {.uri = "acme"};
    pgd_dev *dev = NULL;
    assert_int_equal(pgd_dev_open(r, &desc, &dev), PGD_UNAVAILABLE); // an empty file is no library
    desc.uri = "accel:0";
    assert_int_equal(pgd_dev_open(r, &desc, &dev), PGD_UNAVAILABLE);
    desc.uri = "other";
    assert_int_equal(pgd_dev_open(r, &desc, &dev), PGD_INVALID);
    assert_non_null(strstr(pgd_fail_text(PGD_INVALID), "auto, acme"));
    desc.uri = "auto";
    assert_int_equal(pgd_dev_open(r, &desc, &dev), PGD_NOT_FOUND);
    assert_non_null(strstr(pgd_fail_text(PGD_NOT_FOUND), "acme: "));
    pgd_dev_registry_destroy(r);
}

static void check_unusable(const char *text, const char *reason) {
    write_file("libpgd-bad.json", text);
    write_file("libpgd-bad.so", "");
    pgd_dev_registry *r = open_folder();
    const pgd_dev_manifest *m = only(r);
    if (m->unusable == NULL || strstr(m->unusable, reason) == NULL) {
        fail_msg("%s: '%s', not '%s'", text, m->unusable == NULL ? "usable" : m->unusable, reason);
    }
    pgd_dev_registry_destroy(r);
}

#define START "{\"schema\":1,\"kind\":\"bad\",\"name\":\"N\",\"vendor\":\"V\",\"version\":\"1\","

#define SHA_START "012345678901234567890123456789012345678901234567890123456789abc" // 63 digits

static void test_unusable(void **state) {
    (void)state;
    check_unusable("", "cannot be read");
    check_unusable("[]", "no JSON object");
    check_unusable("{}", "\"schema\"");
    check_unusable("{\"schema\":2}", "schema 2");
    check_unusable("{\"schema\":\"1\"}", "\"schema\"");
    check_unusable("{\"schema\":1}", "\"kind\"");
    check_unusable("{\"schema\":1,\"kind\":\"Bad\"}", "'Bad'");
    check_unusable("{\"schema\":1,\"kind\":\"auto\"}", "reserved");
    check_unusable("{\"schema\":1,\"kind\":\"bad\",\"name\":5}", "\"name\"");
    check_unusable(START "\"role\":\"driver\"}", "'driver'");
    check_unusable(START "\"role\":\"backend\"}", "\"major\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":{\"major\":7,\"minor\":0,"
                         "\"min_host_minor\":0}}",
                   "version 7, this host has 0");
    check_unusable(START "\"role\":\"backend\",\"abi\":{\"major\":0,\"minor\":99,"
                         "\"min_host_minor\":99}}",
                   "0.99 or later, this host has 0.2");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"aliases\":[5]}", "\"aliases\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"options\":[{}]}", "\"key\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"matches\":\"x\"}", "\"matches\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"needs\":[\"\"]}", "\"needs\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"sha256\":\"ABC\"}", "'ABC'");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"sha256\":5}", "\"sha256\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"sha256\":\"" SHA_START "G\"}",
                   "is not 64 digits");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"matches\":5}", "\"matches\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"needs\":[\"\"]}", "\"needs\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"needs\":[\"a\\u0000\"]}",
                   "\"needs\"");
    check_unusable("{\"schema\":1,\"kind\":\"uuid\"}", "reserved");
    check_unusable("{\"schema\":1,\"kind\":\"pci\"}", "reserved");
    check_unusable("{\"schema\":1,\"kind\":\"aaaaaaaaaaaaaaaaaaaaaaaaa\"}", "1 to 24");
    // Nothing is wrong with a good checksum; the library is what is missed behind it.
    check_unusable(START "\"role\":\"layer\",\"abi\":" ABI
                         ",\"library\":\"x.so\",\"sha256\":\"" SHA_START "0\"}",
                   "x.so is not there");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI "}", "\"library\"");
    check_unusable(START "\"role\":\"backend\",\"abi\":" ABI ",\"library\":\"libpgd-none.so\"}",
                   "libpgd-none.so is not there");
}

static void test_no_manifest(void **state) {
    (void)state;
    write_file("libpgd-lone.so", "");
    pgd_dev_registry *r = open_folder();
    const pgd_dev_manifest *m = only(r);
    assert_non_null(strstr(m->unusable, "no manifest"));
    assert_non_null(strstr(m->path, "libpgd-lone.so"));
    pgd_dev_registry_destroy(r);
}

static void test_same_kind_twice(void **state) {
    (void)state;
    write_manifest("libpgd-a.json", "acme", ABI, "");
    write_manifest("libpgd-acme.json", "acme", ABI, "");
    write_manifest("libpgd-b.json", "acme", ABI, ",\"library\":\"libpgd-b.so\"");
    write_file("libpgd-acme.so", "");
    write_file("libpgd-b.so", "");
    pgd_dev_registry *r = open_folder();
    assert_int_equal(pgd_dev_registry_count(r), 2); // two manifests of one library are one plugin
    assert_null(pgd_dev_registry_get(r, 0)->unusable);
    assert_non_null(strstr(pgd_dev_registry_get(r, 1)->unusable, "already given by"));
    pgd_dev_registry_destroy(r);
}

static pgd_status open_file(const char *path, pgd_dev_registry **out) {
    const char *files[] = {path};
    const pgd_dev_search search = {.files = files, .n_files = 1, .no_env = 1, .no_installed = 1};
    return pgd_dev_registry_create(&search, out);
}

static void test_file(void **state) {
    char path[200];
    pgd_dev_registry *r = NULL;
    (void)state;
    write_manifest("libpgd-acme.json", "acme", ABI, "");
    write_file("libpgd-acme.so", "");
    snprintf(path, sizeof(path), "%s/libpgd-acme.so", folder);
    assert_int_equal(open_file(path, &r), PGD_OK);
    assert_null(only(r)->unusable);
    pgd_dev_registry_destroy(r);
    snprintf(path, sizeof(path), "%s/libpgd-acme.json", folder);
    assert_int_equal(open_file(path, &r), PGD_INVALID);
    snprintf(path, sizeof(path), "%s/libpgd-none.so", folder);
    assert_int_equal(open_file(path, &r), PGD_NOT_FOUND);
    assert_null(r);
    write_manifest("libpgd-liar.json", "acme", ABI, "");
    write_file("libpgd-liar.so", "");
    snprintf(path, sizeof(path), "%s/libpgd-liar.so", folder);
    assert_int_equal(open_file(path, &r), PGD_OK);
    assert_non_null(strstr(only(r)->unusable, "another library"));
    pgd_dev_registry_destroy(r);
}

static void test_environment(void **state) {
    char value[200];
    const pgd_dev_search search = {.no_installed = 1};
    pgd_dev_registry *r = NULL;
    (void)state;
    write_manifest("libpgd-acme.json", "acme", ABI, "");
    write_file("libpgd-acme.so", "");
    snprintf(value, sizeof(value), "relative:.::%s", folder);
    assert_int_equal(setenv("PAGODA_PLUGIN_PATH", value, 1), 0);
    assert_int_equal(pgd_dev_registry_create(&search, &r), PGD_OK);
    assert_null(only(r)->unusable);
    pgd_dev_registry_destroy(r);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(setenv("PAGODA_PLUGIN_PATH", ".:", 1), 0);
    assert_int_equal(pgd_dev_registry_create(&search, &r), PGD_OK);
    assert_int_equal(pgd_dev_registry_count(r), 0); // never the current folder
    pgd_dev_registry_destroy(r);
    assert_int_equal(chdir("/"), 0);
    unsetenv("PAGODA_PLUGIN_PATH");
}

static void test_out_of_memory(void **state) {
    const char *folders[] = {folder};
    const pgd_dev_search search = {
        .folders = folders, .n_folders = 1, .no_env = 1, .no_installed = 1};
    pgd_status code = PGD_OUT_OF_MEMORY;
    uint64_t live = pgd_mem_live();
    (void)state;
    write_manifest("libpgd-acme.json", "acme", ABI, ",\"aliases\":[\"x\"]");
    write_file("libpgd-acme.so", "");
    write_file("libpgd-lone.so", "");
    for (uint64_t n = 1; code != PGD_OK; n++) {
        pgd_dev_registry *r = NULL;
        pgd_mem_fail_nth(n);
        code = pgd_dev_registry_create(&search, &r);
        pgd_mem_fail_nth(0);
        assert_true(code == PGD_OK || code == PGD_OUT_OF_MEMORY);
        pgd_dev_registry_destroy(r);
        assert_int_equal(pgd_mem_live(), live);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_good),          IN_FOLDER(test_unusable),
        IN_FOLDER(test_no_manifest),   IN_FOLDER(test_same_kind_twice),
        IN_FOLDER(test_file),          IN_FOLDER(test_environment),
        IN_FOLDER(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("dev.registry", tests, NULL, NULL);
}
