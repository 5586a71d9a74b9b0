// A folder that stands for the root of a system, for the tests of this room and of base. The
// including file defines _GNU_SOURCE.
#ifndef PGD_OS_FAKE_ROOT_TEST_H
#define PGD_OS_FAKE_ROOT_TEST_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fake_root[64];

// Writes a file below it, making its folders.
static void fake_put(const char *path, const char *text) {
    char full[512];
    int n = snprintf(full, sizeof(full), "%s%s", fake_root, path);
    assert_true(n > 0 && (size_t)n < sizeof(full));
    for (char *p = full + strlen(fake_root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0777);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static int fake_make(void **state) {
    (void)state;
    (void)snprintf(fake_root, sizeof(fake_root), "fake_root_XXXXXX");
    return mkdtemp(fake_root) == NULL;
}

static int fake_remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static int fake_remove(void **state) {
    (void)state;
    return nftw(fake_root, fake_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
