// Every golden case of tests/golden/templates: templates rendered by transformers' Jinja
// environment (tools/golden).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail.h"
#include "text/template.h"
#include "text/test_files.h"

static uint32_t done;
static uint32_t wrong;

// name: what messages call the template, its text or its file.
static pgd_str source_of(const pgd_json *row, pgd_str *name, pgd_str *file) {
    char path[600];
    *file = (pgd_str){0};
    if (pgd_json_to_str(pgd_json_get(row, "template"), name)) {
        return *name;
    }
    assert_true(pgd_json_to_str(pgd_json_get(row, "template_file"), name));
    snprintf(path, sizeof(path), "%s/%.*s", PGD_SOURCE_DIR, (int)name->len, name->ptr);
    *file = test_read(path);
    return *file;
}

static void check(void *arg, uint32_t line, const pgd_json *row) {
    (void)arg;
    pgd_str file;
    pgd_str name;
    pgd_str source = source_of(row, &name, &file);
    pgd_text_template *t = NULL;
    pgd_text got = {0};
    pgd_status status = pgd_text_template_parse(source, &t);
    if (status == PGD_OK) {
        status = pgd_text_template_render(t, pgd_json_get(row, "vars"), &got);
    }
    pgd_str want = {0};
    pgd_str kind = {0};
    int32_t succeeds = pgd_json_to_str(pgd_json_get(row, "out"), &want);
    done++;
    if (!succeeds) {
        assert_true(pgd_json_to_str(pgd_json_get(row, "error"), &want));
        (void)pgd_json_to_str(pgd_json_get(row, "kind"), &kind);
        // what a template says with raise_exception reaches the reader
        int32_t said =
            !pgd_str_is(kind, "TemplateError") || strstr(pgd_fail_text(status), want.ptr) != NULL;
        if (status == PGD_OK || !said) {
            wrong++;
            print_message("line %u: %.*s\n  wants the error %s\n  got %s\n", line, (int)name.len,
                          name.ptr, want.ptr, status == PGD_OK ? "text" : pgd_fail_text(status));
        }
    } else if (status != PGD_OK || !pgd_str_equal(want, pgd_text_view(&got))) {
        wrong++;
        print_message("line %u: %.*s\n  want '%.*s'\n  got  '%s'\n", line, (int)name.len, name.ptr,
                      (int)want.len, want.ptr,
                      status != PGD_OK  ? pgd_fail_text(status)
                      : got.ptr != NULL ? got.ptr
                                        : "");
    }
    pgd_text_free(&got);
    pgd_text_template_close(t);
    pgd_mem_free((void *)file.ptr);
}

static void renders(void **state) {
    (void)state;
    char path[600];
    snprintf(path, sizeof(path), "%s/tests/golden/templates/cases.jsonl", PGD_SOURCE_DIR);
    test_each_line(path, check, NULL);
    snprintf(path, sizeof(path), "%s/tests/golden/templates/families.jsonl", PGD_SOURCE_DIR);
    test_each_line(path, check, NULL);
    snprintf(path, sizeof(path), "%s/tests/golden/templates/nano.jsonl", PGD_SOURCE_DIR);
    if (pgd_os_kind(path, NULL) == PGD_OS_REGULAR) {
        test_each_line(path, check, NULL);
    }
    print_message("%u cases, %u wrong\n", done, wrong);
    assert_true(done > 0);
    assert_int_equal(wrong, 0);
}

static void nothing_leaks(void **state) {
    (void)state;
    assert_int_equal(pgd_mem_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders),
        cmocka_unit_test(nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
