// Addresses: which of them may see a token, and names in them. What is asked of a server is tested
// in tests/hub.
#include "load/test_folder.h"

#include "load/http.h"

static void origins(void **state) {
    static const struct {
        const char *a;
        const char *b;
        int32_t same;
    } cases[] = {
        {"https://hub.co", "https://hub.co/a/b", 1},
        {"https://hub.co/x", "https://HUB.co?y", 1},
        {"http://127.0.0.1:8000/x", "http://127.0.0.1:8000", 1},
        {"https://hub.co", "http://hub.co", 0},
        {"https://hub.co", "https://hub.co:8443", 0},
        {"https://hub.co", "https://cdn.hub.co", 0},
        {"https://hub.co", "https://hub.co.evil.org", 0},
        {"https://hub.co", "https://hub.co@evil.org", 0},
        {"https://a@hub.co", "https://a@hub.co", 0},
        {"https://hub.co", "/relative", 0},
        {"", "", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (pgd_load_http_same_origin(cases[i].a, cases[i].b) != cases[i].same) {
            fail_msg("%s and %s", cases[i].a, cases[i].b);
        }
    }
}

static void escapes(void **state) {
    char out[32];
    (void)state;
    pgd_load_http_escape(PGD_STR("refs/pr/1"), out, sizeof(out));
    assert_string_equal(out, "refs%2Fpr%2F1");
    pgd_load_http_escape(PGD_STR("a-b._~Z9 ?#%"), out, sizeof(out));
    assert_string_equal(out, "a-b._~Z9%20%3F%23%25");
    pgd_load_http_escape(PGD_STR("\xc3\xa4"), out, sizeof(out));
    assert_string_equal(out, "%C3%A4");
    pgd_load_http_escape(PGD_STR("//////"), out, 8);
    assert_string_equal(out, "%2F%2F");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(origins), cmocka_unit_test(escapes)};
    return cmocka_run_group_tests_name("load.http", tests, NULL, NULL);
}
