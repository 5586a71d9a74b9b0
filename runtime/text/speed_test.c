// Time over length: no text takes more than its share. How fast the tokenizer is, is measured by
// tests/text/tokenize_bench.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/tokenizer.h"

// Sanitizers look at the addresses, not at the time, which they change.
#if defined(__SANITIZE_ADDRESS__)
enum { WHOLE = 1 << 16 };
#else
enum { WHOLE = 1 << 20 };
#endif

static void open_family(const char *name, pgd_text_tokenizer **out) {
    char path[600];
    snprintf(path, sizeof(path), "%s/tests/golden/tokenizers/%s", PGD_SOURCE_DIR, name);
    assert_int_equal(pgd_text_tokenizer_open(path, out), PGD_OK);
}

// Processor time for encoding and decoding n bytes of a repeated scrap, the better of two, in s.
static double seconds_for(const pgd_text_tokenizer *t, const char *scrap, size_t n, char *text) {
    double best = 1e9;
    size_t len = strlen(scrap);
    for (size_t i = 0; i + len <= n; i += len) {
        memcpy(text + i, scrap, len);
    }
    for (int round = 0; round < 2; round++) {
        pgd_text_ids ids = {0};
        pgd_text back = {0};
        clock_t start = clock();
        assert_int_equal(pgd_text_encode(t, (pgd_str){text, n / len * len}, 0, &ids), PGD_OK);
        assert_int_equal(pgd_text_decode(t, ids.ids, ids.n, 0, &back), PGD_OK);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        best = seconds < best ? seconds : best;
        pgd_text_ids_free(&ids);
        pgd_text_free(&back);
    }
    return best;
}

// One letter, spaces, line ends, marks, and a text that never merges: four times the text takes
// about four times as long, where quadratic work would take sixteen times.
static void time_grows_with_length(void **state) {
    (void)state;
    static const char *const families[] = {
        "gpt2", "llama3", "qwen2", "o200k", "deepseek", "llama2", "llama2-metaspace", "gemma"};
    static const char *const runs[] = {"a", " ", "\n", " \n", "1", "e\xCC\x81\xCC\xA3", "<", "ab "};
    char *text = pgd_mem_alloc(1, WHOLE);
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        pgd_text_tokenizer *t = NULL;
        open_family(families[f], &t);
        for (size_t k = 0; k < sizeof(runs) / sizeof(runs[0]); k++) {
            double quarter = seconds_for(t, runs[k], WHOLE / 4, text);
            double whole = seconds_for(t, runs[k], WHOLE, text);
            if (whole > 10 * quarter + 0.02) {
                fail_msg("%s: '%s': %.3f s for the whole, %.3f s for a quarter", families[f],
                         runs[k], whole, quarter);
            }
        }
        pgd_text_tokenizer_close(t);
    }
    pgd_mem_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_grows_with_length)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
