// Folders, links, locks and moves, in a folder of their own.
#define _DEFAULT_SOURCE // mkdtemp, readlink, fork
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/folder.h"

static char folder[64];

static const char *in_folder(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void put_file(const char *name, const char *text) {
    pgd_os_file f;
    assert_int_equal(pgd_os_open_write(in_folder(name), 0, &f), PGD_OK);
    assert_int_equal(pgd_os_write(f, text, strlen(text)), PGD_OK);
    pgd_os_close(&f);
}

static int make_folder(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/pgd_os_folder_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    char command[100];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

static void making(void **state) {
    char longest[5000];
    (void)state;
    assert_int_equal(pgd_os_folder_make(in_folder("a/b/c")), PGD_OK);
    assert_int_equal(pgd_os_kind(in_folder("a/b/c"), NULL), PGD_OS_FOLDER);
    assert_int_equal(pgd_os_folder_make(in_folder("a/b/c")), PGD_OK);
    assert_int_equal(pgd_os_folder_make(in_folder("a/d/")), PGD_OK);
    put_file("file", "x");
    assert_int_equal(pgd_os_folder_make(in_folder("file")), PGD_EXISTS);
    assert_int_equal(pgd_os_folder_make(in_folder("file/below")), PGD_EXISTS);
    assert_int_equal(errno, EEXIST);
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(pgd_os_folder_make(longest), PGD_OUT_OF_RANGE);
    assert_int_equal(pgd_os_folder_make(""), PGD_OUT_OF_RANGE);
}

static void links(void **state) {
    char text[64] = "";
    (void)state;
    put_file("target", "one");
    assert_int_equal(pgd_os_folder_link("target", in_folder("link")), PGD_OK);
    assert_int_equal(readlink(in_folder("link"), text, sizeof(text) - 1), 6);
    assert_string_equal(text, "target");
    assert_int_equal(pgd_os_kind(in_folder("link"), NULL), PGD_OS_REGULAR);
    assert_int_equal(pgd_os_folder_link("elsewhere", in_folder("link")), PGD_OK);
    assert_int_equal(pgd_os_kind(in_folder("link"), NULL), PGD_OS_NONE);
    assert_int_equal(pgd_os_kind(in_folder("target"), NULL), PGD_OS_REGULAR);
    assert_int_equal(pgd_os_folder_link("x", in_folder("none/link")), PGD_NOT_FOUND);
    assert_int_equal(pgd_os_folder_make(in_folder("place")), PGD_OK);
    assert_int_not_equal(pgd_os_folder_link("x", in_folder("place")), PGD_OK);
    // Nothing is left beside it.
    char command[100];
    (void)snprintf(command, sizeof(command), "test -z \"$(ls %s | grep '[.]link$')\"", folder);
    assert_int_equal(system(command), 0);
}

static void moving_and_removing(void **state) {
    uint64_t bytes = 0;
    (void)state;
    put_file("from", "new");
    put_file("to", "older");
    assert_int_equal(pgd_os_folder_move(in_folder("from"), in_folder("to")), PGD_OK);
    assert_int_equal(pgd_os_kind(in_folder("to"), &bytes), PGD_OS_REGULAR);
    assert_int_equal(bytes, 3);
    assert_int_equal(pgd_os_kind(in_folder("from"), NULL), PGD_OS_NONE);
    assert_int_equal(pgd_os_folder_move(in_folder("from"), in_folder("to")), PGD_NOT_FOUND);
    assert_int_equal(pgd_os_folder_remove(in_folder("to")), PGD_OK);
    assert_int_equal(pgd_os_folder_remove(in_folder("to")), PGD_NOT_FOUND);
}

static void room(void **state) {
    uint64_t bytes = 0;
    (void)state;
    assert_int_equal(pgd_os_folder_room(folder, &bytes), PGD_OK);
    assert_true(bytes > 0);
    assert_int_equal(pgd_os_folder_room(in_folder("none"), &bytes), PGD_NOT_FOUND);
    assert_int_equal(bytes, 0);
}

static void locks(void **state) {
    pgd_os_file mine = {-1};
    pgd_os_file other = {-1};
    (void)state;
    assert_int_equal(pgd_os_folder_lock(in_folder("lock"), 0, &mine), PGD_OK);
    assert_int_equal(pgd_os_folder_lock(in_folder("lock"), 0, &other), PGD_PRECONDITION);
    assert_int_equal(other.fd, -1);
    pgd_os_close(&mine);
    assert_int_equal(pgd_os_folder_lock(in_folder("lock"), 0, &other), PGD_OK);
    // Who waits gets it when its holder ends, even by accident.
    pid_t child = fork();
    if (child == 0) {
        _exit(pgd_os_folder_lock(in_folder("second"), 1, &mine) != PGD_OK);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(pgd_os_folder_lock(in_folder("second"), 1, &mine), PGD_OK);
    pgd_os_close(&mine);
    pgd_os_close(&other);
    assert_int_equal(pgd_os_folder_lock(in_folder("none/lock"), 0, &mine), PGD_NOT_FOUND);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(making), IN_FOLDER(links), IN_FOLDER(moving_and_removing),
        IN_FOLDER(room),   IN_FOLDER(locks),
    };
    return cmocka_run_group_tests_name("os.folder", tests, NULL, NULL);
}
