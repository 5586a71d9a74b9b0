// Files, in a folder of their own below the current one.
#define _DEFAULT_SOURCE // mkfifo, symlink, mkdtemp
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/file.h"

static char folder[] = "file_test_XXXXXX";

static const char *in_folder(const char *name) {
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put_file(const char *name, const char *text) {
    pgd_os_file f;
    assert_int_equal(pgd_os_open_write(in_folder(name), 0, &f), PGD_OK);
    assert_int_equal(pgd_os_write(f, text, strlen(text)), PGD_OK);
    assert_int_equal(pgd_os_sync(f), PGD_OK);
    pgd_os_close(&f);
    assert_int_equal(f.fd, -1);
    pgd_os_close(&f);
}

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    put_file("a", "hello");
    put_file("empty", "");
    return mkdir(in_folder("sub"), 0777) != 0 || mkfifo(in_folder("pipe"), 0600) != 0 ||
           symlink("a", in_folder("link")) != 0 || symlink("nowhere", in_folder("broken")) != 0;
}

static int remove_folder(void **state) {
    (void)state;
    const char *const names[] = {"a", "empty", "pipe", "link", "broken", "new"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unlink(in_folder(names[i]));
    }
    return rmdir(in_folder("sub")) | rmdir(folder);
}

static void kinds(void **state) {
    (void)state;
    uint64_t bytes = 99;
    assert_int_equal(pgd_os_kind(in_folder("a"), &bytes), PGD_OS_REGULAR);
    assert_int_equal(bytes, 5);
    assert_int_equal(pgd_os_kind(in_folder("link"), &bytes), PGD_OS_REGULAR);
    assert_int_equal(pgd_os_kind(in_folder("sub"), NULL), PGD_OS_FOLDER);
    assert_int_equal(pgd_os_kind(in_folder("pipe"), &bytes), PGD_OS_OTHER);
    assert_int_equal(bytes, 0);
    assert_int_equal(pgd_os_kind(in_folder("broken"), NULL), PGD_OS_NONE);
    assert_int_equal(pgd_os_kind(in_folder("none"), NULL), PGD_OS_NONE);
}

static void maps(void **state) {
    (void)state;
    pgd_os_map map;
    assert_int_equal(pgd_os_map_file(in_folder("a"), &map), PGD_OK);
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.ptr, "hello", 5);
    pgd_os_unmap(&map);
    assert_null(map.ptr);
    pgd_os_unmap(&map);
    assert_int_equal(pgd_os_map_file(in_folder("empty"), &map), PGD_OK);
    assert_null(map.ptr);
    assert_int_equal(map.bytes, 0);
    assert_int_equal(pgd_os_map_file(in_folder("none"), &map), PGD_NOT_FOUND);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(pgd_os_map_file(in_folder("a/b"), &map), PGD_NOT_FOUND);
    assert_int_equal(pgd_os_map_file(in_folder("sub"), &map), PGD_INVALID);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(pgd_os_map_file(in_folder("pipe"), &map), PGD_INVALID);
    assert_int_equal(pgd_os_map_file("", &map), PGD_NOT_FOUND);
    assert_int_equal(pgd_os_map_file("/dev/null", &map), PGD_INVALID);
}

static void reads(void **state) {
    (void)state;
    char buffer[16] = {0};
    uint64_t n = 99;
    assert_int_equal(pgd_os_read_file(in_folder("a"), buffer, sizeof(buffer), &n), PGD_OK);
    assert_int_equal(n, 5);
    assert_string_equal(buffer, "hello");
    memset(buffer, 0, sizeof(buffer));
    assert_int_equal(pgd_os_read_file(in_folder("a"), buffer, 3, &n), PGD_OK);
    assert_int_equal(n, 3);
    assert_string_equal(buffer, "hel");
    assert_int_equal(pgd_os_read_file(in_folder("none"), buffer, 3, &n), PGD_NOT_FOUND);
    assert_int_equal(n, 0);
    assert_int_equal(pgd_os_read_file(in_folder("sub"), buffer, 3, &n), PGD_INVALID);
}

static void writes(void **state) {
    (void)state;
    pgd_os_file f;
    char buffer[16] = {0};
    uint64_t n = 0;
    put_file("new", "one");
    assert_int_equal(pgd_os_open_write(in_folder("new"), 1, &f), PGD_OK);
    assert_int_equal(pgd_os_write(f, "two", 3), PGD_OK);
    pgd_os_close(&f);
    assert_int_equal(pgd_os_read_file(in_folder("new"), buffer, sizeof(buffer), &n), PGD_OK);
    assert_string_equal(buffer, "onetwo");
    put_file("new", "x");
    assert_int_equal(pgd_os_read_file(in_folder("new"), buffer, sizeof(buffer), &n), PGD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(pgd_os_open_write(in_folder("none/x"), 0, &f), PGD_NOT_FOUND);
    assert_int_equal(f.fd, -1);
    assert_int_equal(pgd_os_open_write(in_folder("sub"), 0, &f), PGD_INVALID);
    assert_int_equal(pgd_os_open_write("/dev/full", 0, &f), PGD_OK);
    assert_int_equal(pgd_os_write(f, "x", 1), PGD_UNAVAILABLE);
    assert_int_equal(errno, ENOSPC);
    pgd_os_close(&f);
}

static int32_t join_name(void *arg, const char *name) {
    char *all = arg;
    size_t n = strlen(all);
    (void)snprintf(all + n, 256 - n, "%s ", name);
    return strcmp(name, "empty") == 0;
}

static int32_t join_all(void *arg, const char *name) {
    (void)join_name(arg, name);
    return 0;
}

static void lists(void **state) {
    (void)state;
    char all[256] = "";
    (void)unlink(in_folder("new"));
    assert_int_equal(pgd_os_list(folder, join_all, all), PGD_OK);
    assert_string_equal(all, "a broken empty link pipe sub ");
    all[0] = '\0';
    assert_int_equal(pgd_os_list(folder, join_name, all), PGD_OK);
    assert_string_equal(all, "a broken empty ");
    all[0] = '\0';
    assert_int_equal(pgd_os_list(in_folder("sub"), join_all, all), PGD_OK);
    assert_string_equal(all, "");
    assert_int_equal(pgd_os_list(in_folder("none"), join_all, all), PGD_NOT_FOUND);
    assert_int_equal(pgd_os_list(in_folder("a"), join_all, all), PGD_NOT_FOUND);
}

static void paths(void **state) {
    (void)state;
    char path[4096];
    char short_path[4];
    assert_int_equal(pgd_os_real_path(in_folder("sub/../link"), path, sizeof(path)), PGD_OK);
    assert_int_equal(path[0], '/');
    assert_string_equal(path + strlen(path) - 2, "/a");
    assert_int_equal(pgd_os_real_path(in_folder("broken"), path, sizeof(path)), PGD_NOT_FOUND);
    assert_string_equal(path, "");
    assert_int_equal(pgd_os_real_path(folder, short_path, sizeof(short_path)), PGD_OUT_OF_RANGE);
    assert_int_equal(pgd_os_program_path(path, sizeof(path)), PGD_OK);
    assert_int_equal(pgd_os_kind(path, NULL), PGD_OS_REGULAR);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),  cmocka_unit_test(maps),  cmocka_unit_test(reads),
        cmocka_unit_test(writes), cmocka_unit_test(lists), cmocka_unit_test(paths),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
