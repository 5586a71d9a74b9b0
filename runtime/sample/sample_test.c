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

static void expect_bias(const pgd_sample_arrays *a, const pgd_sampling *p, const int32_t *ids,
                        int32_t n) {
    assert_int_equal(p->bias_count, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(a->bias[p->bias_start + i].id, ids[i]);
    }
}

static void test_biases_of_each_place(void **state) {
    (void)state;
    int32_t tokens[] = {4, 7, 8, 7, 8, 0};
    const int32_t words[] = {1, 90, 3, 7, 8, 91, 2, 7, 92, 4, 4, 7, 8, 93};
    const int32_t stops[] = {60, 61};
    const pgd_bias bias[] = {{50, 1.5f}, {51, -2.0f}};
    pgd_seq a = {.tokens = tokens,
                 .n_prompt = 1,
                 .n_tokens = 5, // out is 7 8 7 8
                 .bias = bias,
                 .n_bias = 2,
                 .bad_words = words,
                 .n_bad_words = 4,
                 .stop_ids = stops,
                 .n_stop_ids = 2,
                 .min_tokens = 5,
                 .has_counts = 1,
                 .has_mask = 1,
                 .slot = 6};
    pgd_seq b = a;
    b.n_tokens = 2; // out is 7
    b.min_tokens = 1;
    b.has_counts = 0;
    b.has_mask = 0;
    pgd_step_row rows[] = {{.seq = &a, .out = 0}, {.seq = &b, .out = 1}};
    const pgd_step step = {.rows = rows, .n_rows = 2};
    pgd_sampling out[2];
    pgd_bias room[2 * PGD_SAMPLE_ROW_BIAS];
    pgd_sample_arrays arrays = {
        .rows = (unsigned char *)out, .bias = room, .stride = sizeof(out[0])};
    pgd_sample_fill(&step, &arrays);
    const int32_t first[] = {50, 51, 60, 61, 90, 91};
    const int32_t second[] = {50, 51, 90, 92};
    expect_bias(&arrays, &out[0], first, 6);
    expect_bias(&arrays, &out[1], second, 4);
    assert_int_equal(arrays.n_bias, 10);
    assert_true(room[0].add == 1.5f && room[1].add == -2.0f && isinf(room[2].add));
    assert_int_equal(out[0].state_row, 7);
    assert_int_equal(out[0].mask_row, 7);
    assert_int_equal(out[1].state_row, 0);
    assert_int_equal(out[1].mask_row, 0);
}

static void test_scored_positions_are_given(void **state) {
    (void)state;
    int32_t tokens[] = {4, 7, 8, 9};
    pgd_seq seq = {.tokens = tokens,
                   .n_prompt = 4,
                   .n_tokens = 4,
                   .n_prompt_logprobs = 3,
                   .has_counts = 1,
                   .slot = 2};
    pgd_step_row row = {.seq = &seq, .out = -1, .scored = 2, .n_scored = 2, .out_scored = 1};
    const pgd_step step = {.rows = &row, .n_rows = 1};
    pgd_sampling out[3] = {{.top_k = 77}};
    pgd_sample_arrays arrays = {.rows = (unsigned char *)out, .stride = sizeof(out[0])};
    pgd_sample_fill(&step, &arrays);
    assert_int_equal(out[0].top_k, 77);
    for (int32_t i = 1; i < 3; i++) {
        assert_int_equal(out[i].given, tokens[1 + i]);
        assert_int_equal(out[i].n_logprobs, 3);
        assert_int_equal(out[i].state_row, 0);
        assert_true((out[i].flags & PGD_SAMPLE_GIVEN) && (out[i].flags & PGD_SAMPLE_LOGPROBS));
    }
}

static void test_counts(void **state) {
    (void)state;
    int32_t tokens[] = {1, 3, 3, 5, 3, 5, 5};
    const pgd_seq seq = {.tokens = tokens, .n_prompt = 3, .n_tokens = 7};
    int32_t counts[7];
    memset(counts, 0xEE, sizeof(counts));
    pgd_sample_count(&seq, counts, 7);
    const int32_t expected[7] = {0, 1 << 30, 0, 1 << 30 | 1, 0, 3, 0};
    assert_memory_equal(counts, expected, sizeof(expected));
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
        cmocka_unit_test(test_biases_of_each_place),
        cmocka_unit_test(test_scored_positions_are_given),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
