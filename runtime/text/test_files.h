// For the tests of this room: reads files of the source tree (PGD_SOURCE_DIR).
#ifndef PGD_TEXT_TEST_FILES_H
#define PGD_TEXT_TEST_FILES_H

#include "base/json.h"
#include "base/mem.h"
#include "os/file.h"

// Whole file; free with pgd_mem_free.
static inline pgd_str test_read(const char *path) {
    uint64_t bytes = 0;
    if (pgd_os_kind(path, &bytes) != PGD_OS_REGULAR) {
        fail_msg("no file %s", path);
    }
    char *text = pgd_mem_alloc(1, (size_t)bytes + 1);
    assert_non_null(text);
    uint64_t n = 0;
    assert_int_equal(pgd_os_read_file(path, text, bytes, &n), PGD_OK);
    return (pgd_str){text, (size_t)n};
}

typedef void (*test_line)(void *arg, uint32_t line, const pgd_json *row);

// Calls fn for every line of a JSON Lines file.
static inline void test_each_line(const char *path, test_line fn, void *arg) {
    pgd_str all = test_read(path);
    pgd_str rest = all;
    for (uint32_t line = 1; rest.len > 0; line++) {
        pgd_str text = pgd_str_cut(rest, '\n', &rest);
        if (text.len == 0) {
            continue;
        }
        pgd_json_doc *doc = NULL;
        assert_int_equal(pgd_json_parse(text, "a golden case", 0, &doc), PGD_OK);
        fn(arg, line, pgd_json_root(doc));
        pgd_json_free(doc);
    }
    pgd_mem_free((void *)all.ptr);
}

#endif
