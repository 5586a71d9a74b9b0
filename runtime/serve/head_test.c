// Framing: good requests stay good and broken ones are broken, however they are cut.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/head.h"

static const pgd_serve_head_limits limits = {
    .line_bytes = 200, .header_bytes = 500, .headers = 4, .body_bytes = 1000};

typedef struct one_case {
    const char *bytes;
    int32_t status;  // 0 = good
    int32_t pending; // a good one that is not complete
} one_case;

#define POST    "POST /x HTTP/1.1\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const one_case cases[] = {
    {"GET / HTTP/1.1\r\n\r\n", 0, 0},
    {"GET / HTTP/1.0\n\n", 0, 0},
    {"GET /a?b=c#d HTTP/1.1\r\nHost: x\r\n\r\nHEAD / HTTP/1.1\r\n\r\n", 0, 0},
    {"GET / HTTP/1.1\r\nHost:", 0, 1},
    {"G", 0, 1},
    {POST "Content-Length: 5\r\n\r\nhello", 0, 0},
    {POST "content-length:\t5 \r\n\r\nhell", 0, 1},
    {POST "Content-Length: 0\r\n\r\n" POST "Content-Length: 1\r\n\r\nx", 0, 0},
    {CHUNKED "5\r\nhello\r\n0\r\n\r\n", 0, 0},
    {CHUNKED "A\r\n0123456789\r\n1\nx\n0\nTrailer: y\n\n", 0, 0},
    {CHUNKED "5\r\nhello\r\n0\r\n", 0, 1},
    {"\r\nGET / HTTP/1.1\r\n\r\n", 400, 0},
    {"GET  / HTTP/1.1\r\n\r\n", 400, 0},
    {"GET / HTTP/1.1 \r\n\r\n", 400, 0},
    {"GET * HTTP/1.1\r\n\r\n", 400, 0},
    {"GET /\t HTTP/1.1\r\n\r\n", 400, 0},
    {"TRACE / HTTP/1.1\r\n\r\n", 405, 0},
    {" / HTTP/1.1\r\n\r\n", 405, 0},
    {"GET / HTTP/1.2\r\n\r\n", 505, 0},
    {"GET / \r\n\r\n", 400, 0},
    {"GET / HTTP/1.1\r\n: x\r\n\r\n", 400, 0},
    {"GET / HTTP/1.1\r\nA b: x\r\n\r\n", 400, 0},
    {"GET / HTTP/1.1\r\nA: \x7f\r\n\r\n", 400, 0},
    {"GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n", 400, 0},
    {"GET / HTTP/1.1\r\nA:\r\nB:\r\nC:\r\nD:\r\nE:\r\n\r\n", 431, 0},
    {POST "\r\n", 411, 0},
    {POST "Content-Length: +5\r\n\r\n", 400, 0},
    {POST "Content-Length:\r\n\r\n", 400, 0},
    {POST "Content-Length: 1001\r\n\r\n", 413, 0},
    {POST "Content-Length: 18446744073709551621\r\n\r\n", 400, 0},
    {POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400, 0},
    {POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501, 0},
    {POST "Transfer-Encoding: chunked, identity\r\n\r\n", 501, 0},
    {CHUNKED "\r\n", 400, 0},
    {CHUNKED "-1\r\n", 400, 0},
    {CHUNKED "5\r\nhelloo\r\n", 400, 0},
    {CHUNKED "3E9\r\n", 413, 0},
    {CHUNKED "1000000000000005\r\n", 413, 0},
    {CHUNKED "0000000000000005\r\n", 400, 0},
    {CHUNKED "0\r\nContent-Length: 5\r\n\r\n", 400, 0},
    {"DELETE / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 400, 0},
};

static void test_cases_however_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t len = strlen(cases[i].bytes);
        for (size_t n = 1; n <= len; n++) {
            pgd_serve_head h;
            pgd_serve_head_init(&h, &limits);
            for (size_t at = 0; at < len; at += n) {
                (void)pgd_serve_head_read(&h, cases[i].bytes + at, n < len - at ? n : len - at);
            }
            assert_int_equal(h.status, cases[i].status);
            assert_int_equal(h.problem != NULL, cases[i].status != 0);
            if (h.status == 0) {
                assert_int_equal(pgd_serve_head_pending(&h), cases[i].pending);
            }
        }
    }
}

// Lines and heads without end are refused at their limit, not kept.
static void test_limits_of_bytes(void **state) {
    static const struct {
        const char *begin;
        int32_t status;
        int32_t most;
    } endless[] = {
        {"GET /", 414, 200}, {"GET / HTTP/1.1\r\nA: ", 431, 220}, {"GET / HTTP/1.1\r\n", 431, 220}};
    (void)state;
    for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++) {
        pgd_serve_head h;
        pgd_serve_head_init(&h, &limits);
        assert_int_equal(pgd_serve_head_read(&h, endless[i].begin, strlen(endless[i].begin)), 0);
        int32_t n = 0;
        while (pgd_serve_head_read(&h, "a", 1) == 0 && n < 1000) {
            n++;
        }
        assert_int_equal(h.status, endless[i].status);
        assert_true(n <= endless[i].most);
    }
}

static void test_bodies_are_counted_over_chunks(void **state) {
    pgd_serve_head h;
    char zeros[100] = {0};
    (void)state;
    pgd_serve_head_init(&h, &limits);
    assert_int_equal(pgd_serve_head_read(&h, CHUNKED, strlen(CHUNKED)), 0);
    int32_t n = 0;
    while (n < 100 && pgd_serve_head_read(&h, "64\r\n", 4) == 0) {
        assert_int_equal(pgd_serve_head_read(&h, zeros, sizeof(zeros)), 0);
        assert_int_equal(pgd_serve_head_in_body(&h), 1);
        assert_int_equal(pgd_serve_head_read(&h, "\r\n", 2), 0);
        n++;
    }
    assert_int_equal(n, 10);
    assert_int_equal(h.status, 413);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_however_cut),
        cmocka_unit_test(test_limits_of_bytes),
        cmocka_unit_test(test_bodies_are_counted_over_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
