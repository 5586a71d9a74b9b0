// Stop rules, rows of sampling parameters, ranges.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sample/sample.h"

static void test_stop_rules(void **state) {
    (void)state;
    int32_t tokens[8] = {5, 6};
    const int32_t stops[] = {9, 7};
    pgd_seq seq = {.tokens = tokens,
                   .n_prompt = 2,
                   .n_tokens = 2,
                   .cap_tokens = 6,
                   .stop_ids = stops,
                   .n_stop_ids = 2,
                   .min_tokens = 2,
                   .stop_id = -1};
    pgd_sample_accept(&seq, 7); // before min_tokens: does not stop
    assert_int_equal(seq.finish, PGD_FINISH_NONE);
    assert_int_equal(seq.n_tokens, 3);
    pgd_sample_accept(&seq, 3);
    assert_int_equal(seq.finish, PGD_FINISH_NONE);
    pgd_sample_accept(&seq, 7);
    assert_int_equal(seq.finish, PGD_FINISH_STOP);
    assert_int_equal(seq.stop_id, 7);
    assert_int_equal(tokens[4], 7);
    seq.finish = PGD_FINISH_NONE;
    pgd_sample_accept(&seq, 1);
    assert_int_equal(seq.finish, PGD_FINISH_LENGTH);
}

static void test_min_tokens_does_not_hold_back_length(void **state) {
    (void)state;
    int32_t tokens[4] = {5};
    pgd_seq seq = {
        .tokens = tokens, .n_prompt = 1, .n_tokens = 1, .cap_tokens = 2, .min_tokens = 9};
    pgd_sample_accept(&seq, 4);
    assert_int_equal(seq.finish, PGD_FINISH_LENGTH);
}

static void test_rows_go_to_their_outputs(void **state) {
    (void)state;
    pgd_seq a = {.n_tokens = 11, .sampling = {.temperature = 0.5f, .seed = 3}};
    pgd_seq b = {.n_tokens = 22, .sampling = {.flags = PGD_SAMPLE_GREEDY}};
    pgd_seq c = {.n_tokens = 33, .sampling = {.top_k = 4, .temperature = 1.0f}};
    pgd_step_row rows[] = {{.seq = &a, .out = 1}, {.seq = &b, .out = -1}, {.seq = &c, .out = 0}};
    const pgd_step step = {.rows = rows, .n_rows = 3};
    unsigned char out[3 * 96];
    memset(out, 0xEE, sizeof(out));
    pgd_sample_arrays arrays = {.rows = out, .stride = 96};
    pgd_sample_fill(&step, &arrays);
    pgd_sampling first;
    pgd_sampling second;
    memcpy(&first, out, sizeof(first));
    memcpy(&second, out + 96, sizeof(second));
    assert_int_equal(first.top_k, 4);
    assert_int_equal(first.counter, 33);
    assert_int_equal(second.seed, 3);
    assert_int_equal(second.counter, 11);
    assert_int_equal(out[2 * 96], 0xEE);
}

static void test_ranges(void **state) {
    (void)state;
    const float nan = nanf("");
    const pgd_sampling good = {.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.1f, .top_k = 5};
    pgd_sampling p = good;
    assert_int_equal(pgd_sample_check(&p), PGD_OK);
    p.temperature = 0.0f;
    assert_int_equal(pgd_sample_check(&p), PGD_OUT_OF_RANGE);
    p.flags = PGD_SAMPLE_GREEDY;
    assert_int_equal(pgd_sample_check(&p), PGD_OK);
    p = good;
    p.temperature = nan;
    assert_int_equal(pgd_sample_check(&p), PGD_OUT_OF_RANGE);
    p = good;
    p.top_p = 1.5f;
    assert_int_equal(pgd_sample_check(&p), PGD_OUT_OF_RANGE);
    p = good;
    p.min_p = -0.1f;
    assert_int_equal(pgd_sample_check(&p), PGD_OUT_OF_RANGE);
    p = good;
    p.top_k = -1;
    assert_int_equal(pgd_sample_check(&p), PGD_OUT_OF_RANGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_rules),
        cmocka_unit_test(test_min_tokens_does_not_hold_back_length),
        cmocka_unit_test(test_rows_go_to_their_outputs),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
