// For the tests of this room: a folder of its own per test, files in it, safetensors bytes.
#ifndef PGD_LOAD_TEST_FOLDER_H
#define PGD_LOAD_TEST_FOLDER_H

#define _POSIX_C_SOURCE 200809L // mkdtemp, popen, truncate; this header comes first

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

typedef struct test_folder {
    char path[64];
    char names[8][64];
    int n;
} test_folder;

static inline void test_folder_make(test_folder *f) {
    *f = (test_folder){.path = "/tmp/pgd_load_test_XXXXXX"};
    assert_non_null(mkdtemp(f->path));
}

static inline void test_folder_write(test_folder *f, const char *name, const void *bytes,
                                     size_t n) {
    char path[160];
    int known = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", f->path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    for (int i = 0; i < f->n; i++) {
        known = known || strcmp(f->names[i], name) == 0;
    }
    if (!known) {
        assert_true(f->n < 8);
        (void)snprintf(f->names[f->n++], sizeof(f->names[0]), "%s", name);
    }
}

static inline void test_folder_remove(test_folder *f) {
    char path[160];
    for (int i = 0; i < f->n; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", f->path, f->names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(f->path), 0);
}

// A safetensors file in memory of exactly its size, so that a sanitizer sees every byte too many.
// The data counts up from 0.
static inline uint8_t *test_safetensors(const char *header, size_t n_data, size_t *out_n) {
    size_t n = strlen(header);
    uint8_t *bytes = malloc(8 + n + n_data);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)n >> (8 * i));
    }
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < n_data; i++) {
        bytes[8 + n + i] = (uint8_t)i;
    }
    *out_n = 8 + n + n_data;
    return bytes;
}

// Fails the test unless the last sentence of `status` holds `piece`.
static inline void test_says(pgd_status status, const char *piece) {
    const char *text = pgd_fail_text(status);
    if (strstr(text, piece) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", piece, text);
    }
}

#endif
