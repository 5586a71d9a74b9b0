// Calls of tools: whole texts, the same cut at every byte, what is no call, and lack of memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/tools.h"
#include "base/mem.h"

#define CALL(body) "<tool_call>" body "</tool_call>"

typedef struct one_case {
    const char *text;
    const char *content;
    const char *calls; // name(arguments) one behind the other
    int32_t most;
} one_case;

static const one_case cases[] = {
    {"Hello.", "Hello.", "", 0},
    {"a < b << c <tool", "a < b << c <tool", "", 0},
    {" \n x \n", " \n x \n", "", 0},
    {CALL("{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"}\"}]}}"), "",
     "f({\"a\": [1, {\"b\": \"}\"}]})", 0},
    {"Let me see.\n" CALL("\n{\"name\":\"f\",\"arguments\":{}}\n") "\n", "Let me see.", "f({})", 0},
    {CALL("{\"arguments\": {\"x\": 1}, \"name\": \"late\"}"), "", "late({\"x\": 1})", 0},
    {CALL("{\"name\": \"g\", \"parameters\": {\"x\": null}}"), "", "g({\"x\": null})", 0},
    {CALL("{\"name\": \"h\"}"), "", "h({})", 0},
    {CALL("{\"name\": \"s\", \"arguments\": \"{\\\"q\\\": \\\"\\u00e9\\\"}\"}"), "",
     "s({\"q\": \"\xc3\xa9\"})", 0},
    {CALL("{\"name\": \"t\", \"arguments\": {\"q\": \"</tool_call> \\\" \\\\\"}}"), "",
     "t({\"q\": \"</tool_call> \\\" \\\\\"})", 0},
    {CALL("{\"id\": 7, \"type\": \"function\", \"name\": \"u\", \"arguments\": {}, \"x\": [{}]}"),
     "", "u({})", 0},
    {CALL("{\"name\":\"a\",\"arguments\":{\"i\":1}}") "\n" CALL(
         "{\"name\":\"b\",\"arguments\":{\"i\":2}}"),
     "", "a({\"i\":1})b({\"i\":2})", 0},
    {CALL("{\"name\":\"a\",\"arguments\":{}}") CALL("{\"name\":\"b\",\"arguments\":{}}") " more",
     " more", "a({})", 1},
    // Two without the closing tag between them.
    {"<tool_call>{\"name\":\"a\"}\n<tool_call>{\"name\":\"b\"}", "", "a({})b({})", 0},
    {CALL("{\"name\":\"a\"}") "Done. </tool_call>", "Done. </tool_call>", "a({})", 0},
    // What is no call is text.
    {CALL("not JSON"), CALL("not JSON"), "", 0},
    {CALL("{\"arguments\": {}}"), CALL("{\"arguments\": {}}"), "", 0},
    {"Hi\n \n" CALL("[]") "\n", "Hi\n \n" CALL("[]") "\n", "", 0},
    {CALL("{\"name\": 5}"), CALL("{\"name\": 5}"), "", 0},
    {CALL("{\"name\": \"\"}"), CALL("{\"name\": \"\"}"), "", 0},
    {"<tool_call>{\"na", "<tool_call>{\"na", "", 0},
    // Cut by the length limit: what has come stands.
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "", "f({\"a\": \"b)", 0},
};

// Reads in pieces of n bytes; asserts that what is told of grows and never changes.
static void check(const one_case *c, size_t n) {
    pgd_api_tools t = {.most = c->most};
    pgd_text content = {0};
    pgd_text calls = {0};
    const size_t len = strlen(c->text);
    int32_t shown = 0;
    size_t sent = 0;
    for (size_t at = 0; at < len; at += n) {
        const pgd_str piece = {c->text + at, n < len - at ? n : len - at};
        assert_int_equal(pgd_api_tools_read(&t, piece, &content), PGD_OK);
        const int32_t now = pgd_api_tools_shown(&t);
        assert_true(now >= shown);
        sent = now > shown ? 0 : sent;
        if (now > 0) {
            assert_true(t.calls[now - 1].name.len > 0);
            assert_true(t.calls[now - 1].arguments.len >= sent);
            sent = t.calls[now - 1].arguments.len;
        }
        shown = now;
    }
    assert_int_equal(pgd_api_tools_end(&t, &content), PGD_OK);
    assert_int_equal(pgd_api_tools_shown(&t), t.n_calls);
    for (int32_t i = 0; i < t.n_calls; i++) {
        const pgd_str arguments = pgd_text_view(&t.calls[i].arguments);
        assert_int_equal(pgd_text_format(&calls, "%s(%.*s)", t.calls[i].name.ptr,
                                         (int)arguments.len, arguments.ptr),
                         PGD_OK);
    }
    assert_string_equal(content.ptr != NULL ? content.ptr : "", c->content);
    assert_string_equal(calls.ptr != NULL ? calls.ptr : "", c->calls);
    pgd_text_free(&content);
    pgd_text_free(&calls);
    pgd_api_tools_free(&t);
}

static void test_cases_however_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t n = 1; n <= strlen(cases[i].text); n++) {
            check(&cases[i], n);
        }
    }
}

static void test_many_calls_are_bounded(void **state) {
    (void)state;
    pgd_api_tools t = {0};
    pgd_text content = {0};
    for (int32_t i = 0; i < PGD_API_MAX_CALLS + 50; i++) {
        assert_int_equal(pgd_api_tools_read(&t, PGD_STR(CALL("{\"name\":\"f\"}")), &content),
                         PGD_OK);
    }
    assert_int_equal(pgd_api_tools_shown(&t), PGD_API_MAX_CALLS);
    pgd_text_free(&content);
    pgd_api_tools_free(&t);
}

// CVE-2025-48944: time grows with the text, not with its square or worse.
static void test_hostile_text_takes_one_look(void **state) {
    (void)state;
    static const char *const hostile[] = {"<tool_call>", "<tool_call", "{\"name\":", "[[[[",
                                          "\\\\\\"};
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        pgd_api_tools t = {0};
        pgd_text content = {0};
        assert_int_equal(pgd_api_tools_read(&t, PGD_STR("<tool_call>"), &content), PGD_OK);
        for (int32_t k = 0; k < 100000; k++) {
            assert_int_equal(pgd_api_tools_read(&t, pgd_str_of(hostile[i]), &content), PGD_OK);
        }
        assert_int_equal(pgd_api_tools_end(&t, &content), PGD_OK);
        assert_int_equal(pgd_api_tools_shown(&t), 0);
        assert_true(content.len >= 100000 * strlen(hostile[i]));
        pgd_text_free(&content);
        pgd_api_tools_free(&t);
    }
}

static void test_failed_allocations_leak_nothing(void **state) {
    (void)state;
    const char *text = "Hi " CALL("{\"name\":\"f\",\"arguments\":{\"a\":1}}") CALL("{\"name\":3}");
    const uint64_t live = pgd_mem_live();
    int32_t n_failed = 0;
    for (int64_t nth = 1; nth < 100; nth++) {
        pgd_api_tools t = {0};
        pgd_text content = {0};
        pgd_mem_fail_nth(nth);
        pgd_status status = pgd_api_tools_read(&t, pgd_str_of(text), &content);
        status = status == PGD_OK ? pgd_api_tools_end(&t, &content) : status;
        pgd_mem_fail_nth(0);
        pgd_api_tools_free(&t);
        pgd_text_free(&content);
        assert_int_equal(pgd_mem_live(), live);
        if (status == PGD_OK) {
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        n_failed++;
    }
    assert_true(n_failed > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_however_cut),
        cmocka_unit_test(test_many_calls_are_bounded),
        cmocka_unit_test(test_hostile_text_takes_one_look),
        cmocka_unit_test(test_failed_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
