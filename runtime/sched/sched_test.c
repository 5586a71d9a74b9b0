// The scheduler over hand-made sequences: rows and their order, slots, cancel, discard, errors.
// Who is preempted and admitted is in plan_test.c; what it decides step by step in
// tests/simulate/cases; random traces are in property_test.c.
#include "sched/inner.h"
#include "sched/test_bench.h"

static void test_prompt_is_cut_to_the_budget(void **state) {
    (void)state;
    bench *b = set_up(100, 16, plain);
    pgd_seq *a = add(b, 0, 40, 4);
    run_step(b);
    assert_int_equal(b->step.n_rows, 1);
    assert_int_equal(b->rows[0].n_tokens, 32);
    assert_int_equal(b->rows[0].gives, 0);
    assert_int_equal(b->step.n_out, 0);
    assert_int_equal(a->computed, 32);
    run_step(b);
    assert_int_equal(b->rows[0].start, 32);
    assert_int_equal(b->rows[0].n_tokens, 8);
    assert_int_equal(b->rows[0].kind, PGD_ROW_PREFILL);
    assert_int_equal(b->step.n_out, 1);
    run_step(b);
    assert_int_equal(b->rows[0].n_tokens, 1);
    assert_int_equal(b->rows[0].kind, PGD_ROW_DECODE);
    tear_down(b);
}

static void test_decode_rows_come_first_and_share_the_budget(void **state) {
    (void)state;
    bench *b = set_up(100, 16, plain);
    pgd_seq *a = add(b, 0, 5, 10);
    run_step(b);
    pgd_seq *c = add(b, 1, 60, 10);
    run_step(b);
    assert_int_equal(b->step.n_rows, 2);
    assert_ptr_equal(b->rows[0].seq, a);
    assert_ptr_equal(b->rows[1].seq, c);
    assert_int_equal(b->rows[1].n_tokens, 31);
    assert_int_equal(b->step.n_decode, 1);
    assert_int_equal(b->step.n_tokens, 32);
    // A prompt that is younger than a long one still decodes in front of it.
    run_step(b);
    assert_int_equal(b->step.n_decode, 1);
    assert_ptr_equal(b->rows[0].seq, a);
    assert_int_equal(b->rows[1].n_tokens, 29);
    assert_int_equal(b->rows[0].out, 0);
    assert_int_equal(b->rows[1].out, 1);
    tear_down(b);
}

static void test_long_prompts_are_limited_by_the_threshold(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.long_prefill_token_threshold = 10;
    bench *b = set_up(100, 16, config);
    (void)add(b, 0, 25, 2);
    (void)add(b, 1, 3, 2);
    run_step(b);
    assert_int_equal(b->step.n_rows, 2);
    assert_int_equal(b->rows[0].n_tokens, 10);
    assert_int_equal(b->rows[1].n_tokens, 3);
    tear_down(b);
}

static void test_prefill_beside_streams_is_limited(void **state) {
    (void)state;
    bench *b = set_up(100, 16, plain);
    (void)add(b, 0, 40, 10); // a stream that the limit finds still in its prompt
    pgd_sched_limit_prefill(b->sched, 6);
    run_step(b);
    assert_int_equal(b->rows[0].n_tokens, 32); // nobody waits for a next token
    run_step(b);
    pgd_seq *late = add(b, 1, 30, 4);
    (void)add(b, 2, 3, 4);
    run_step(b);
    assert_int_equal(b->step.n_decode, 1);
    assert_int_equal(b->step.n_tokens, 1 + 6);
    assert_int_equal(late->computed, 6);
    pgd_sched_limit_prefill(b->sched, 26);
    run_step(b);
    // 24 of the long prompt, 2 of the short one.
    assert_int_equal(b->step.n_tokens, 1 + 26);
    assert_int_equal(b->seqs[2].computed, 2);
    pgd_sched_limit_prefill(b->sched, 0);
    (void)add(b, 3, 40, 4);
    run_step(b);
    assert_int_equal(b->step.n_tokens, 32);
    tear_down(b);
}

// As many streams as the step has tokens: a prompt still goes on, by a token a step.
static void test_limited_prefill_never_stops(void **state) {
    (void)state;
    const pgd_sched_config tight = {
        .max_num_batched_tokens = 4, .max_num_seqs = 4, .max_model_len = 200};
    bench *b = set_up(100, 16, tight);
    pgd_sched_limit_prefill(b->sched, 1);
    for (int32_t i = 0; i < 4; i++) {
        (void)add(b, i, 9, 40);
    }
    for (int32_t i = 0; i < 60; i++) {
        run_step(b);
        assert_true(b->step.n_tokens <= 4 && b->step.n_tokens - b->step.n_decode <= 4);
    }
    for (int32_t i = 0; i < 4; i++) {
        assert_true(b->seqs[i].n_tokens > 9);
    }
    tear_down(b);
}

// Prompts whose log probabilities are wanted: each position but the first gets an output once, in
// order, at most max_scored of them in a step; a preemption does not repeat any.
static void test_scored_prompts_are_cut_and_numbered(void **state) {
    (void)state;
    bench *b = set_up(64, 4,
                      (pgd_sched_config){.max_num_batched_tokens = 40,
                                         .max_num_seqs = 4,
                                         .max_model_len = 100,
                                         .max_scored = 6});
    int32_t seen[3] = {1, 1, 1};
    for (int32_t i = 0; i < 3; i++) {
        pgd_seq *seq = make_seq(b, i, 9 + i, 2);
        seq->scores_prompt = i != 1;
        seq->skip_cache = seq->scores_prompt;
        seq->n_scored = 1;
        assert_int_equal(pgd_sched_add(b->sched, seq), PGD_OK);
    }
    for (int32_t n = 0; n < 12; n++) {
        run_step(b);
        int32_t n_scored = 0;
        int32_t n_tokens = 0;
        for (int32_t k = 0; k < b->step.n_rows; k++) {
            const pgd_step_row *row = &b->rows[k];
            const int32_t i = (int32_t)(row->seq - b->seqs);
            assert_true(row->n_scored == 0 || row->scored == seen[i]);
            assert_true(row->n_scored == 0 || row->out_scored == b->step.n_tokens_out + n_scored);
            assert_true(row->n_scored == 0 || row->scored + row->n_scored <= row->seq->n_prompt);
            seen[i] += row->n_scored;
            n_scored += row->n_scored;
            n_tokens += row->gives;
        }
        assert_true(n_scored <= 6);
        assert_int_equal(b->step.n_tokens_out, n_tokens);
        assert_int_equal(b->step.n_out, n_tokens + n_scored);
        if (n == 1) {
            (void)pgd_sched_reset_cache(b->sched, 1); // all come back and compute again
        }
    }
    assert_int_equal(seen[0], 9);
    assert_int_equal(seen[1], 1);
    assert_int_equal(seen[2], 11);
    assert_int_equal(pgd_sched_n_running(b->sched) + pgd_sched_n_waiting(b->sched), 0);
    tear_down(b);
}

static void test_nobody_overtakes_a_prompt_that_does_not_fit(void **state) {
    (void)state;
    bench *b = set_up(5, 4, plain); // 4 usable blocks of 4
    (void)add(b, 0, 7, 8);          // 2 blocks
    (void)add(b, 1, 12, 2);         // 3 blocks: waits
    (void)add(b, 2, 2, 2);          // would fit
    run_step(b);
    assert_int_equal(b->step.n_rows, 1);
    assert_int_equal(pgd_sched_n_waiting(b->sched), 2);
    tear_down(b);
}

static void test_youngest_is_preempted_and_keeps_its_tokens(void **state) {
    (void)state;
    bench *b = set_up(5, 4, plain); // 4 usable blocks of 4
    pgd_seq *a = add(b, 0, 7, 20);
    pgd_seq *c = add(b, 1, 7, 20);
    run_step(b); // 2 blocks each, 8 tokens known each
    run_step(b); // both still fit in 2 blocks, 9 known
    assert_int_equal(b->step.n_preempted, 0);
    run_step(b); // a needs a third block: c goes
    assert_int_equal(b->step.n_preempted, 1);
    assert_int_equal(b->step.n_rows, 1);
    assert_ptr_equal(b->rows[0].seq, a);
    assert_int_equal(c->state, PGD_SEQ_WAITING);
    assert_int_equal(c->computed, 0);
    assert_int_equal(c->n_tokens, 9);
    assert_int_equal(c->n_preempted, 1);
    assert_int_equal(c->slot, -1);
    assert_int_equal(c->n_blocks, 0);
    tear_down(b);
}

static void test_cancelled_is_taken_out_at_the_next_plan(void **state) {
    (void)state;
    bench *b = set_up(100, 16, plain);
    pgd_seq *a = add(b, 0, 5, 10);
    pgd_seq *c = add(b, 1, 100, 10);
    run_step(b);
    pgd_sched_cancel(b->sched, a);
    pgd_sched_cancel(b->sched, a);
    pgd_sched_cancel(b->sched, c);
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(b->step.n_finished, 2);
    assert_int_equal(b->sched->n_cancelled, 0); // nobody is looked for any more
    assert_int_equal(a->finish, PGD_FINISH_ABORT);
    assert_int_equal(b->step.n_rows, 0);
    assert_int_equal(pgd_kv_pool_free_count(b->pool), 99);
    assert_int_equal(pgd_sched_n_running(b->sched) + pgd_sched_n_waiting(b->sched), 0);
    pgd_sched_cancel(b->sched, a);
    pgd_sched_finish(b->sched, a);
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(b->step.n_finished, 0);
    tear_down(b);
}

static void test_wrong_sizes_are_refused(void **state) {
    (void)state;
    bench *b = set_up(5, 4, plain);
    pgd_seq *seq = make_seq(b, 0, 0, 1);
    assert_int_equal(pgd_sched_add(b->sched, seq), PGD_OUT_OF_RANGE);
    seq = make_seq(b, 0, 200, 1);
    assert_int_equal(pgd_sched_add(b->sched, seq), PGD_OUT_OF_RANGE);
    seq = make_seq(b, 0, 17, 1); // 5 blocks of 4
    assert_int_equal(pgd_sched_add(b->sched, seq), PGD_OUT_OF_RANGE);
    pgd_sched *none = NULL;
    pgd_sched_config config = plain;
    config.max_num_batched_tokens = 0;
    assert_int_equal(pgd_sched_create(&config, b->cache, &none), PGD_OUT_OF_RANGE);
    config = plain;
    config.no_chunked_prefill = 1;
    assert_int_equal(pgd_sched_create(&config, b->cache, &none), PGD_OUT_OF_RANGE);
    config = plain;
    config.watermark = 1.5;
    assert_int_equal(pgd_sched_create(&config, b->cache, &none), PGD_OUT_OF_RANGE);
    config = plain;
    config.long_prefill_token_threshold = -1;
    assert_int_equal(pgd_sched_create(&config, b->cache, &none), PGD_OUT_OF_RANGE);
    config = plain;
    config.max_num_seqs = 0;
    assert_int_equal(pgd_sched_create(&config, b->cache, &none), PGD_OUT_OF_RANGE);
    config = plain;
    config.max_model_len = 1;
    assert_int_equal(pgd_sched_create(&config, b->cache, &none), PGD_OUT_OF_RANGE);
    tear_down(b);
}

static void test_turns_name_rows_in_the_order_of_scheduling(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.long_prefill_token_threshold = 4;
    bench *b = set_up(100, 16, config);
    pgd_seq *a = add(b, 0, 20, 2);
    pgd_seq *c = add(b, 1, 3, 9);
    pgd_seq *d = add(b, 2, 20, 2);
    pgd_seq *e = add(b, 3, 2, 9);
    run_step(b);
    run_step(b);
    pgd_seq *const order[] = {a, c, d, e};
    pgd_seq *const rows[] = {c, e, a, d};
    for (int32_t i = 0; i < 4; i++) {
        assert_ptr_equal(b->rows[i].seq, rows[i]);
        assert_ptr_equal(b->rows[b->step.turns[i]].seq, order[i]);
        assert_int_equal(b->rows[b->step.turns[i]].turn, i);
    }
    assert_int_equal(b->step.n_decode, 2);
    tear_down(b);
}

// Rows of a failed step are not to be found, what was computed before is.
static void test_discarded_rows_leave_the_cache(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.long_prefill_token_threshold = 8;
    bench *b = set_up(100, 4, config);
    pgd_seq *a = add(b, 0, 30, 2);
    run_step(b);
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(a->computed, 16);
    pgd_sched_discard(b->sched, &b->step);
    pgd_sched_finish(b->sched, a);
    pgd_seq *c = make_seq(b, 1, 30, 2);
    for (int32_t k = 0; k < 30; k++) {
        b->tokens[1][k] = b->tokens[0][k];
    }
    assert_int_equal(pgd_sched_add(b->sched, c), PGD_OK);
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(c->cached_tokens, 8);
    tear_down(b);
}

// ... and the log probabilities of the prompt are made again.
static void test_discarded_scores_are_made_again(void **state) {
    (void)state;
    bench *b = set_up(100, 4, plain);
    pgd_seq *a = make_seq(b, 0, 9, 2);
    a->scores_prompt = a->skip_cache = 1;
    a->n_scored = 1;
    assert_int_equal(pgd_sched_add(b->sched, a), PGD_OK);
    for (int32_t i = 0; i < 2; i++) {
        pgd_sched_plan(b->sched, &b->step);
        assert_int_equal(b->rows[0].scored, 1);
        assert_int_equal(b->rows[0].n_scored, 8);
        assert_int_equal(a->n_scored, 9);
        pgd_sched_discard(b->sched, &b->step);
        assert_int_equal(a->n_scored, 1);
        pgd_sched_requeue(b->sched);
    }
    tear_down(b);
}

static void test_a_reset_lists_what_it_preempts(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.max_num_seqs = 2; // so their places are needed again
    bench *b = set_up(100, 4, config);
    pgd_seq *a = add(b, 0, 5, 9);
    pgd_seq *c = add(b, 1, 5, 9);
    run_step(b);
    assert_int_equal(pgd_sched_reset_cache(b->sched, 0), 0);
    assert_int_equal(pgd_sched_reset_cache(b->sched, 1), 1);
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(b->step.n_preempted, 2);
    assert_ptr_equal(b->step.preempted[0], c);
    assert_int_equal(b->step.n_resumed, 2);
    assert_ptr_equal(b->step.resumed[0], a);
    assert_int_equal(b->step.n_admitted, 0);
    assert_int_equal(b->step.n_rows, 2);
    assert_int_equal(pgd_sched_get_stats(b->sched)->n_preemptions, 2);
    tear_down(b);
}

// A step allocates nothing, preemptions, hits and evictions included.
static void test_a_step_allocates_nothing(void **state) {
    (void)state;
    bench *b = set_up(12, 4, plain);
    for (int32_t i = 0; i < 12; i++) {
        (void)add(b, i, 5 + i, 20);
    }
    uint64_t before = pgd_mem_count();
    for (int32_t i = 0; i < 60; i++) {
        run_step(b);
    }
    assert_int_equal(pgd_mem_count(), before);
    assert_true(pgd_sched_get_stats(b->sched)->n_preemptions > 0);
    tear_down(b);
}

static void test_failed_allocations_leak_nothing(void **state) {
    (void)state;
    const pgd_kv_cache_config config = {.num_blocks = 10, .block_size = 4};
    uint64_t live = pgd_mem_live();
    int32_t n_failed = 0;
    for (uint64_t n = 1;; n++) {
        pgd_kv_cache *cache = NULL;
        pgd_sched *sched = NULL;
        pgd_mem_fail_nth(n);
        pgd_status status = pgd_kv_cache_create(&config, &cache);
        if (status == PGD_OK) {
            status = pgd_sched_create(&plain, cache, &sched);
        }
        pgd_mem_fail_nth(0);
        pgd_sched_destroy(sched);
        pgd_kv_cache_destroy(cache);
        assert_int_equal(pgd_mem_live(), live);
        if (status == PGD_OK) {
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        n_failed++;
    }
    assert_int_equal(n_failed, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_is_cut_to_the_budget),
        cmocka_unit_test(test_decode_rows_come_first_and_share_the_budget),
        cmocka_unit_test(test_long_prompts_are_limited_by_the_threshold),
        cmocka_unit_test(test_prefill_beside_streams_is_limited),
        cmocka_unit_test(test_limited_prefill_never_stops),
        cmocka_unit_test(test_scored_prompts_are_cut_and_numbered),
        cmocka_unit_test(test_nobody_overtakes_a_prompt_that_does_not_fit),
        cmocka_unit_test(test_youngest_is_preempted_and_keeps_its_tokens),
        cmocka_unit_test(test_cancelled_is_taken_out_at_the_next_plan),
        cmocka_unit_test(test_wrong_sizes_are_refused),
        cmocka_unit_test(test_turns_name_rows_in_the_order_of_scheduling),
        cmocka_unit_test(test_discarded_rows_leave_the_cache),
        cmocka_unit_test(test_discarded_scores_are_made_again),
        cmocka_unit_test(test_a_reset_lists_what_it_preempts),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_failed_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
