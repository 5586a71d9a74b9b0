// The template's edges: what is refused while parsing, budgets while rendering, files, and the n-th
// allocation that fails.
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

static pgd_status render(const char *source, const char *vars, pgd_text *out) {
    pgd_text_template *t = NULL;
    pgd_json_doc *doc = NULL;
    pgd_status status = pgd_text_template_parse(pgd_str_of(source), &t);
    if (status == PGD_OK) {
        status = pgd_json_parse(pgd_str_of(vars), "variables", 0, &doc);
    }
    if (status == PGD_OK) {
        status = pgd_text_template_render(t, pgd_json_root(doc), out);
    }
    pgd_json_free(doc);
    pgd_text_template_close(t);
    return status;
}

static void unknown_constructs_are_refused_by_name_and_line(void **state) {
    (void)state;
    static const struct {
        const char *source;
        pgd_status status;
        const char *names;
    } rows[] = {
        {"a\n{% include 'x' %}", PGD_UNSUPPORTED, "line 2: statement 'include'"},
        {"{% if false %}\n\n{{ 1 | groupby('a') }}{% endif %}", PGD_UNSUPPORTED,
         "line 3: filter 'groupby'"},
        {"{{ 1 is escaped }}", PGD_UNSUPPORTED, "test 'escaped'"},
        {"{{ f(*args) }}", PGD_UNSUPPORTED, "* and **"},
        {"{{ cycler(1) }}", PGD_UNSUPPORTED, "cycler()"},
        {"{% for x in y recursive %}{% endfor %}", PGD_UNSUPPORTED, "recursive"},
        {"{% if x %}", PGD_INVALID, "endif"},
        {"{% endif %}", PGD_UNSUPPORTED, "endif"},
        {"{% break %}", PGD_INVALID, "break"},
        {"{{ 'a }}", PGD_INVALID, "string"},
        {"{# a", PGD_INVALID, "comment"},
        {"{{ a", PGD_INVALID, "}}"},
        {"{{ 1 + }}", PGD_INVALID, "expression"},
        {"{{ a ? b }}", PGD_INVALID, "'?'"},
        {"{% raw %}", PGD_INVALID, "endraw"},
        {"{{ '\\ud800' }}", PGD_INVALID, "escape"},
        {"{{ 99999999999999999999 }}", PGD_INVALID, "number"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_text_template *t = NULL;
        pgd_status status = pgd_text_template_parse(pgd_str_of(rows[i].source), &t);
        pgd_text_template_close(t);
        if (status != rows[i].status || strstr(pgd_fail_text(status), rows[i].names) == NULL) {
            fail_msg("%s: status %d, '%s'", rows[i].source, status, pgd_fail_text(status));
        }
    }
}

static void deep_sources_are_refused(void **state) {
    (void)state;
    static const char *const parts[][2] = {
        {"(", ")"}, {"[", "]"}, {"- ", ""}, {"not ", ""}, {"x[", "]"}};
    for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
        pgd_text source = {0};
        assert_int_equal(pgd_text_format(&source, "{{ "), PGD_OK);
        for (size_t i = 0; i < 100000; i++) {
            assert_int_equal(pgd_text_add_str(&source, pgd_str_of(parts[p][0])), PGD_OK);
        }
        assert_int_equal(pgd_text_format(&source, "1"), PGD_OK);
        for (size_t i = 0; i < 100000; i++) {
            assert_int_equal(pgd_text_add_str(&source, pgd_str_of(parts[p][1])), PGD_OK);
        }
        assert_int_equal(pgd_text_format(&source, " }}"), PGD_OK);
        pgd_text_template *t = NULL;
        assert_int_equal(pgd_text_template_parse(pgd_text_view(&source), &t), PGD_INVALID);
        assert_non_null(strstr(pgd_fail_text(PGD_INVALID), "nested"));
        pgd_text_free(&source);
    }
}

static void budgets_end_a_rendering(void **state) {
    (void)state;
    static const struct {
        const char *source;
        const char *names;
    } rows[] = {
        {"{% set r = range(9999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
         "steps"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested"},
        {"{{ 'a' * 1000000000000 }}", "longer"},
        {"{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}", "longer"},
        {"{% set n = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
         "{% set n.x = n.x + n.x %}{% endfor %}",
         "memory"},
        {"{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
         "{% endfor %}{{ n.x }}",
         "steps"},
        {"{{ range(1000000) }}", "range"},
        {"{{ '%9999999s' % 1 }}", "format"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ 1 // 0 }}", "zero"},
        {"{{ 2 ** 64 }}", "64 bits"},
        {"{{ x.y }}", "'x' is undefined"},
        {"{{ m.append(1) }}", "append"},
        {"{{ raise_exception('roles: ' ~ m[0]) }}", "roles: 7"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_text out = {0};
        assert_int_equal(pgd_text_add(&out, "old", 3), PGD_OK);
        pgd_status status = render(rows[i].source, "{\"m\":[7]}", &out);
        if (status != PGD_INVALID || strstr(pgd_fail_text(status), rows[i].names) == NULL) {
            fail_msg("%s: status %d, '%s'", rows[i].source, status, pgd_fail_text(status));
        }
        assert_string_equal(out.ptr, "old");
        pgd_text_free(&out);
    }
}

// Known answers of Python: repr of floats, and date parts have their length.
static void values_print_as_in_python(void **state) {
    (void)state;
    static const struct {
        const char *source;
        const char *want;
    } rows[] = {
        {"{{ [0.0, -0.0, 1.0, 0.1, 1e15, 1e16, 123456789012345680.0, 0.0001, 0.00001, 1.5e300] }}",
         "[0.0, -0.0, 1.0, 0.1, 1000000000000000.0, 1e+16, 1.2345678901234568e+17, 0.0001, 1e-05, "
         "1.5e+300]"},
        {"{{ 12345.678 }} {{ 100.0 }} {{ 5e-324 }}", "12345.678 100.0 5e-324"},
        {"{{ [\"it's\", '\"', '\\n\\x01', 'é'] }}", "[\"it's\", '\"', '\\n\\x01', 'é']"},
        {"{{ strftime_now('%Y-%m-%d') | length }}{{ strftime_now('%d %b %Y') | length }}", "1011"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pgd_text out = {0};
        assert_int_equal(render(rows[i].source, "{}", &out), PGD_OK);
        assert_string_equal(out.ptr, rows[i].want);
        pgd_text_free(&out);
    }
}

static void opens_folders(void **state) {
    (void)state;
    pgd_text_template *t = NULL;
    assert_int_equal(pgd_text_template_open("/nowhere", &t), PGD_NOT_FOUND);
    assert_null(t);
}

static void failing_allocations_leak_nothing(void **state) {
    (void)state;
    static const char source[] =
        "{% macro f(a, b='x') %}{{ a ~ b }}{% endmacro %}{% set ns = namespace(n=0) %}"
        "{%- for m in messages if m.role %}{% set ns.n = ns.n + 1 %}{{ f(m.role) | upper }}"
        "{{ m | tojson(indent=2) }}{{ m.content.split(' ') | map('trim') | join(',') }}"
        "{{ '%s' % ns.n }}{{ messages[::-1] | sort(attribute='role') | list }}{% endfor %}"
        "{% filter upper %}{{ 'a' * 20 }}{% endfilter %}{% set b %}x{% endset %}{{ b[0:1] }}";
    static const char vars[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a b\"},"
                               "{\"role\":\"bot\",\"content\":\"c 1.5\"}]}";
    uint64_t failed = 0;
    for (uint64_t n = 1;; n++) {
        pgd_text out = {0};
        pgd_mem_fail_nth(n);
        pgd_status status = render(source, vars, &out);
        pgd_mem_fail_nth(0);
        pgd_text_free(&out);
        assert_int_equal(pgd_mem_live(), 0);
        if (status == PGD_OK) {
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        failed++;
    }
    assert_true(failed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_constructs_are_refused_by_name_and_line),
        cmocka_unit_test(deep_sources_are_refused),
        cmocka_unit_test(budgets_end_a_rendering),
        cmocka_unit_test(values_print_as_in_python),
        cmocka_unit_test(opens_folders),
        cmocka_unit_test(failing_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
