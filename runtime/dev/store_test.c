// The store of packed weights: what is kept comes back, whatever is wrong counts as none, the
// files used longest ago make room.
#define _GNU_SOURCE

#include "dev/store.h"

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

#include "base/mem.h"
#include "os/folder.h"
#include "os/identity.h"

#define OK(call) assert_int_equal((call), PGD_OK)

static char folder[256];

static int32_t remove_one(void *arg, const char *name) {
    char path[600];
    (void)arg;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
    return 0;
}

static int set_up(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/pagoda-store-XXXXXX", base != NULL ? base : "/tmp");
    return mkdtemp(folder) == NULL;
}

static int tear_down(void **state) {
    (void)state;
    return pgd_os_list(folder, remove_one, NULL) != PGD_OK || rmdir(folder) != 0;
}

static int32_t count_one(void *arg, const char *name) {
    (void)name;
    (*(int *)arg)++;
    return 0;
}

static int count_files(void) {
    int n = 0;
    OK(pgd_os_list(folder, count_one, &n));
    return n;
}

static pgd_dev_store store_of(uint64_t most) {
    return (pgd_dev_store){.folder = folder, .most_bytes = most};
}

static pgd_hash key_of(uint64_t number) {
    return (pgd_hash){.low = number, .high = 7};
}

// Entry i of a file holds sizes[i] bytes of value i + salt.
static pgd_status write_file(const pgd_dev_store *s, uint64_t number, const uint64_t *sizes,
                             uint32_t n, int salt) {
    pgd_dev_store_writer *w = NULL;
    PGD_TRY(pgd_dev_store_begin(s, key_of(number), sizes, n, &w));
    for (uint32_t i = 0; i < n; i++) {
        unsigned char *bytes = malloc(sizes[i] + 1);
        memset(bytes, (int)i + salt, sizes[i] + 1);
        // In two pieces, so that an entry goes on where it stopped.
        pgd_status status = pgd_dev_store_add(w, bytes, sizes[i] / 3);
        if (status == PGD_OK) {
            status = pgd_dev_store_add(w, bytes, sizes[i] - sizes[i] / 3);
        }
        free(bytes);
        if (status != PGD_OK) {
            pgd_dev_store_drop(w);
            return status;
        }
    }
    return pgd_dev_store_finish(w);
}

static void check_file(const pgd_dev_store *s, uint64_t number, const uint64_t *sizes, uint32_t n,
                       int salt) {
    pgd_dev_blob blob;
    OK(pgd_dev_store_find(s, key_of(number), &blob));
    assert_int_equal(blob.n, n);
    for (uint32_t i = 0; i < n; i++) {
        pgd_range r = pgd_dev_blob_entry(&blob, i);
        const unsigned char *bytes = (const unsigned char *)blob.map.ptr + r.offset;
        assert_int_equal(r.bytes, sizes[i]);
        assert_int_equal((uintptr_t)bytes % PGD_DEV_STORE_ALIGN, 0);
        for (uint64_t j = 0; j < r.bytes; j++) {
            assert_int_equal(bytes[j], (int)i + salt);
        }
    }
    pgd_dev_blob_close(&blob);
}

static const uint64_t some_sizes[] = {1, 4096, 0, 4097, 10000};
#define N_SOME 5

static void comes_back(void **state) {
    const pgd_dev_store s = store_of(1 << 20);
    pgd_dev_blob blob;
    (void)state;
    assert_int_equal(pgd_dev_store_find(&s, key_of(1), &blob), PGD_NOT_FOUND);
    OK(write_file(&s, 1, some_sizes, N_SOME, 1));
    OK(write_file(&s, 2, some_sizes, 2, 100));
    check_file(&s, 1, some_sizes, N_SOME, 1);
    check_file(&s, 2, some_sizes, 2, 100);
    assert_int_equal(pgd_dev_store_find(&s, key_of(3), &blob), PGD_NOT_FOUND);
    assert_int_equal(count_files(), 2);
    // Replaced as a whole; what is mapped stays as it was.
    OK(pgd_dev_store_find(&s, key_of(1), &blob));
    OK(write_file(&s, 1, some_sizes, N_SOME, 50));
    const pgd_range r = pgd_dev_blob_entry(&blob, 1);
    assert_int_equal(((const unsigned char *)blob.map.ptr)[r.offset], 2);
    pgd_dev_blob_close(&blob);
    check_file(&s, 1, some_sizes, N_SOME, 50);
    assert_int_equal(count_files(), 2);
}

// Path of a file that was just written.
static void path_of(uint64_t number, char *out, size_t cap) {
    char boot[17];
    OK(pgd_os_boot_name(boot));
    snprintf(out, cap, "%s/%016x%016llx.%s.fresh", folder, 7, (unsigned long long)number, boot);
}

static void settled_path_of(uint64_t number, char *out, size_t cap) {
    snprintf(out, cap, "%s/%016x%016llx.weights", folder, 7, (unsigned long long)number);
}

static void set_modified(const char *path, time_t seconds) {
    const struct timespec t[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

// Fresh at first; settled by the first look-up a minute later; lost with the start of the system.
static void settles(void **state) {
    const pgd_dev_store s = store_of(1 << 20);
    char fresh[600];
    char settled[600];
    char other[600];
    pgd_dev_blob blob;
    (void)state;
    path_of(1, fresh, sizeof(fresh));
    settled_path_of(1, settled, sizeof(settled));
    OK(write_file(&s, 1, some_sizes, N_SOME, 1));
    check_file(&s, 1, some_sizes, N_SOME, 1);
    assert_int_equal(access(fresh, F_OK), 0);
    set_modified(fresh, time(NULL) - 61);
    check_file(&s, 1, some_sizes, N_SOME, 1);
    assert_int_equal(access(fresh, F_OK), -1);
    assert_int_equal(access(settled, F_OK), 0);
    check_file(&s, 1, some_sizes, N_SOME, 1);
    // Of another start of the system: nobody knows what reached the disk.
    OK(write_file(&s, 2, some_sizes, N_SOME, 1));
    path_of(2, fresh, sizeof(fresh));
    snprintf(other, sizeof(other), "%s/%016x%016x.0123456789abcdef.fresh", folder, 7, 2);
    assert_int_equal(rename(fresh, other), 0);
    assert_int_equal(pgd_dev_store_find(&s, key_of(2), &blob), PGD_NOT_FOUND);
    OK(write_file(&s, 3, some_sizes, 1, 1));
    assert_int_equal(access(other, F_OK), -1);
    assert_int_equal(count_files(), 2);
}

static void damaged_is_none(void **state) {
    const pgd_dev_store s = store_of(1 << 20);
    char path[600];
    pgd_dev_blob blob;
    struct stat st;
    (void)state;
    path_of(1, path, sizeof(path));
    OK(write_file(&s, 1, some_sizes, N_SOME, 1));
    assert_int_equal(stat(path, &st), 0);
    // Torn at every length near an edge.
    const off_t cuts[] = {0, 1, 63, 64, 65, 100, 143, 144, 4096, st.st_size - 1};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        OK(write_file(&s, 1, some_sizes, N_SOME, 1));
        assert_int_equal(truncate(path, cuts[i]), 0);
        assert_int_equal(pgd_dev_store_find(&s, key_of(1), &blob), PGD_NOT_FOUND);
        assert_null(blob.map.ptr);
    }
    // Longer than it says.
    OK(write_file(&s, 1, some_sizes, N_SOME, 1));
    assert_int_equal(truncate(path, st.st_size + 1), 0);
    assert_int_equal(pgd_dev_store_find(&s, key_of(1), &blob), PGD_NOT_FOUND);
    // Each byte of header and table matters.
    for (off_t at = 0; at < 64 + 16 * N_SOME; at++) {
        unsigned char byte = 0;
        OK(write_file(&s, 1, some_sizes, N_SOME, 1));
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        assert_int_equal(pgd_dev_store_find(&s, key_of(1), &blob), PGD_NOT_FOUND);
    }
    // Another key's file under this name.
    char other[600];
    path_of(2, other, sizeof(other));
    OK(write_file(&s, 2, some_sizes, N_SOME, 1));
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(pgd_dev_store_find(&s, key_of(1), &blob), PGD_NOT_FOUND);
    // Written anew, it is right again.
    OK(write_file(&s, 1, some_sizes, N_SOME, 9));
    check_file(&s, 1, some_sizes, N_SOME, 9);
}

static void unfinished_leaves_nothing(void **state) {
    const pgd_dev_store s = store_of(1 << 20);
    const uint64_t size = 100;
    pgd_dev_store_writer *w = NULL;
    pgd_dev_blob blob;
    (void)state;
    OK(pgd_dev_store_begin(&s, key_of(1), &size, 1, &w));
    OK(pgd_dev_store_add(w, "short", 5));
    assert_int_equal(count_files(), 1);
    assert_int_equal(pgd_dev_store_find(&s, key_of(1), &blob), PGD_NOT_FOUND);
    assert_int_equal(pgd_dev_store_finish(w), PGD_INTERNAL);
    assert_int_equal(count_files(), 0);
    OK(pgd_dev_store_begin(&s, key_of(1), &size, 1, &w));
    char more[200] = {0};
    assert_int_equal(pgd_dev_store_add(w, more, sizeof(more)), PGD_INTERNAL);
    pgd_dev_store_drop(w);
    assert_int_equal(count_files(), 0);
}

static void set_age(uint64_t number, int seconds) {
    char path[600];
    settled_path_of(number, path, sizeof(path));
    set_modified(path, 1000000 + seconds);
}

static void oldest_make_room(void **state) {
    // A file of one entry of 10,000 bytes takes 4096 + 12288 bytes.
    const uint64_t size = 10000;
    const pgd_dev_store s = store_of(3 * 16384);
    pgd_dev_blob blob;
    (void)state;
    for (uint64_t i = 1; i <= 3; i++) {
        char fresh[600];
        OK(write_file(&s, i, &size, 1, 1));
        path_of(i, fresh, sizeof(fresh));
        set_modified(fresh, 1000);
        check_file(&s, i, &size, 1, 1); // settles it
        set_age(i, (int)i);
    }
    assert_int_equal(count_files(), 3);
    // Used now: no longer the oldest.
    OK(pgd_dev_store_find(&s, key_of(1), &blob));
    pgd_dev_blob_close(&blob);
    OK(write_file(&s, 4, &size, 1, 1));
    assert_int_equal(count_files(), 3);
    assert_int_equal(pgd_dev_store_find(&s, key_of(2), &blob), PGD_NOT_FOUND);
    check_file(&s, 1, &size, 1, 1);
    check_file(&s, 3, &size, 1, 1);
    check_file(&s, 4, &size, 1, 1);
    // What is larger than all of it removes nothing.
    const uint64_t large = 3 * 16384;
    assert_int_equal(write_file(&s, 5, &large, 1, 1), PGD_OUT_OF_RANGE);
    assert_int_equal(count_files(), 3);
    // A smaller store takes away what is too much.
    const pgd_dev_store tight = store_of(16384);
    OK(write_file(&tight, 6, &size, 1, 1));
    assert_int_equal(count_files(), 1);
    check_file(&tight, 6, &size, 1, 1);
}

static void old_parts_go(void **state) {
    const pgd_dev_store s = store_of(1 << 20);
    char path[600];
    (void)state;
    const char *names[] = {"x.weights.1.2.part", "y.weights.1.2.part"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
    }
    set_modified(path, 1000000);
    OK(write_file(&s, 1, some_sizes, 1, 1));
    assert_int_equal(access(path, F_OK), -1); // a day old: gone
    assert_int_equal(count_files(), 2);       // somebody may still write the other
}

static void folder_of_a_user(void **state) {
    char out[300];
    (void)state;
    OK(pgd_dev_store_folder("/given", out, sizeof(out)));
    assert_string_equal(out, "/given/weights");
    setenv("XDG_CACHE_HOME", "/cache", 1);
    setenv("HOME", "/home/x", 1);
    OK(pgd_dev_store_folder(NULL, out, sizeof(out)));
    assert_string_equal(out, "/cache/pagoda/weights");
    setenv("XDG_CACHE_HOME", "relative", 1);
    OK(pgd_dev_store_folder("", out, sizeof(out)));
    assert_string_equal(out, "/home/x/.cache/pagoda/weights");
    assert_int_equal(pgd_dev_store_folder(NULL, out, 10), PGD_OUT_OF_RANGE);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(pgd_dev_store_folder(NULL, out, sizeof(out)), PGD_NOT_FOUND);
}

static void each_allocation_fails(void **state) {
    const pgd_dev_store s = store_of(1 << 20);
    uint64_t live = pgd_mem_live();
    pgd_status status = PGD_OUT_OF_MEMORY;
    (void)state;
    for (uint64_t nth = 1; status != PGD_OK; nth++) {
        assert_true(nth < 100);
        pgd_mem_fail_nth(nth);
        status = write_file(&s, 1, some_sizes, N_SOME, 1);
        pgd_mem_fail_nth(0);
        assert_int_equal(pgd_mem_live(), live);
        assert_true(status == PGD_OK || (status == PGD_OUT_OF_MEMORY && count_files() == 0));
    }
    check_file(&s, 1, some_sizes, N_SOME, 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(comes_back),
        TEST(settles),
        TEST(damaged_is_none),
        TEST(unfinished_leaves_nothing),
        TEST(oldest_make_room),
        TEST(old_parts_go),
        TEST(each_allocation_fails),
        cmocka_unit_test(folder_of_a_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
