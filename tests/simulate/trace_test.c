// The reader of traces and its ids: what it makes of a good trace, that nothing leaks when the n-th
// allocation fails, and that no twisted text does more than be refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/simulate.h"

static const char good[] =
    "{\"at\":0,\"add\":{\"id\":\"a\",\"prompt\":{\"concat\":[{\"seed\":7,\"len\":48},[1,2,3]]},"
    "\"max_tokens\":9,\"min_tokens\":2,\"ignore_eos\":true,\"stop_token_ids\":[5],\"output\":[10,"
    "11]}}"
    "\n\n"
    "{\"at\":1,\"add\":{\"id\":\"b\",\"prompt\":{\"seed\":4294967295,\"len\":5},\"priority\":-3,"
    "\"arrival\":2.5,\"cache_salt\":\"s\",\"lora\":null,\"prompt_logprobs\":true}}\n"
    "{\"at\":1,\"abort\":\"a\"}\n"
    "{\"at\":9,\"reset_prefix_cache\":{\"preempt_running\":true}}";

static pgd_status parse(const char *text, size_t len, sim_trace *out) {
    *out = (sim_trace){0};
    return cli_sim_trace_parse((pgd_str){text, len}, "t", out);
}

static void test_a_good_trace(void **state) {
    (void)state;
    sim_trace t;
    assert_int_equal(parse(good, strlen(good), &t), PGD_OK);
    assert_int_equal(t.n, 4);
    assert_int_equal(t.n_adds, 2);
    assert_int_equal(t.max_id, INT64_C(4294967296) * 1000000 + 5);
    const sim_add *a = t.events[0].add;
    assert_int_equal(a->n_prompt, 51);
    assert_int_equal(a->n_pieces, 2);
    assert_int_equal(a->pieces[0].first, 8000000);
    assert_int_equal(a->pieces[1].ids[2], 3);
    assert_int_equal(a->max_tokens, 9);
    assert_int_equal(a->min_tokens, 2);
    assert_int_equal(a->ignore_eos, 1);
    assert_int_equal(a->stop.ids[0], 5);
    assert_int_equal(a->output.n, 2);
    assert_true(a->arrival == 0.0);
    const sim_add *b = t.events[1].add;
    assert_int_equal(b->priority, -3);
    assert_true(b->arrival == 2.5);
    assert_true(pgd_str_is(b->salt, "s"));
    assert_int_equal(b->lora.len, 0);
    assert_int_equal(b->prompt_logprobs, 1);
    assert_int_equal(b->max_tokens, 16);
    assert_int_equal(t.events[2].kind, SIM_ABORT);
    assert_true(pgd_str_is(t.events[2].abort, "a"));
    assert_int_equal(t.events[3].at, 9);
    assert_int_equal(t.events[3].preempt_running, 1);
    cli_sim_trace_free(&t);
}

static void test_failed_allocations_leak_nothing(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    int32_t n_failed = 0;
    for (uint64_t n = 1;; n++) {
        sim_trace t;
        pgd_mem_fail_nth(n);
        pgd_status status = parse(good, strlen(good), &t);
        pgd_mem_fail_nth(0);
        cli_sim_trace_free(&t);
        assert_int_equal(pgd_mem_live(), live);
        if (status == PGD_OK) {
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        n_failed++;
    }
    assert_true(n_failed > 5);
}

static void test_every_torn_trace_is_refused_or_read(void **state) {
    (void)state;
    uint64_t live = pgd_mem_live();
    for (size_t len = 0; len < strlen(good); len++) {
        sim_trace t;
        pgd_status status = parse(good, len, &t);
        assert_true(status == PGD_OK || status == PGD_INVALID);
        cli_sim_trace_free(&t);
    }
    assert_int_equal(pgd_mem_live(), live);
}

static void test_twisted_traces(void **state) {
    (void)state;
    static const char *const words[] = {"null",    "-1", "1e999", "18446744073709551615",
                                        "[",       "{",  "\"\"",  "9007199254740993",
                                        "\\u0000", ",",  "]",     "}"};
    uint64_t seed = 5;
    uint64_t live = pgd_mem_live();
    int32_t n_read = 0;
    for (int32_t i = 0; i < 20000; i++) {
        char text[2 * sizeof(good)];
        size_t len = strlen(good);
        memcpy(text, good, len);
        for (uint64_t k = pgd_rng_next(&seed) % 3 + 1; k > 0; k--) {
            size_t at = pgd_rng_next(&seed) % len;
            const char *word = words[pgd_rng_next(&seed) % (sizeof(words) / sizeof(words[0]))];
            size_t n = strlen(word);
            if (pgd_rng_next(&seed) % 2 == 0) {
                text[at] = (char)pgd_rng_next(&seed);
            } else {
                memmove(text + at + n, text + at, len - at);
                memcpy(text + at, word, n);
                len += n;
            }
        }
        sim_trace t;
        pgd_status status = parse(text, len, &t);
        assert_true(status == PGD_OK || status == PGD_INVALID);
        n_read += status == PGD_OK;
        cli_sim_trace_free(&t);
    }
    assert_int_equal(pgd_mem_live(), live);
    assert_true(n_read > 0);
}

static void test_ids_and_tokens(void **state) {
    (void)state;
    static const int64_t ids[] = {0,
                                  7,
                                  INT32_MAX,
                                  INT64_C(2147483648),
                                  INT64_C(2147483649),
                                  INT64_C(9007199254740991),
                                  INT64_C(5000000000),
                                  INT64_C(2147483904)};
    enum { N = sizeof(ids) / sizeof(ids[0]) };
    int32_t tokens[N];
    int32_t again = 0;
    sim_names names = {0};
    assert_int_equal(cli_sim_names_create(&names), PGD_OK);
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(cli_sim_names_token(&names, ids[i], &tokens[i]), PGD_OK);
        assert_int_equal(tokens[i] >= 0, ids[i] <= INT32_MAX);
        for (int32_t k = 0; k < i; k++) {
            assert_int_not_equal(tokens[i], tokens[k]);
        }
    }
    for (int32_t i = N - 1; i >= 0; i--) {
        assert_int_equal(cli_sim_names_token(&names, ids[i], &again), PGD_OK);
        assert_int_equal(again, tokens[i]);
        assert_true(cli_sim_names_id(&names, again) == ids[i]);
    }
    cli_sim_names_free(&names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_trace),
        cmocka_unit_test(test_failed_allocations_leak_nothing),
        cmocka_unit_test(test_every_torn_trace_is_refused_or_read),
        cmocka_unit_test(test_twisted_traces),
        cmocka_unit_test(test_ids_and_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
