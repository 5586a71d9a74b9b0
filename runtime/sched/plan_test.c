// Who runs: victims and their order, where they return to, admission and what stops it, statistics.
// Written from the rules in sched.h and docs; the same through the program is tests/simulate/cases.
#include "sched/test_bench.h"

static bench *set_up_priority(int32_t n_blocks) {
    pgd_sched_config config = plain;
    config.policy = PGD_SCHED_PRIORITY;
    return set_up(n_blocks, 4, config);
}

static pgd_seq *add_ranked(bench *b, int32_t i, int32_t n_prompt, int32_t priority,
                           double arrival) {
    pgd_seq *seq = make_seq(b, i, n_prompt, 40);
    seq->priority = priority;
    seq->arrival = arrival;
    assert_int_equal(pgd_sched_add(b->sched, seq), PGD_OK);
    return seq;
}

static void check_list(const pgd_seq *seq, pgd_seq *const *expected, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        assert_ptr_equal(seq, expected[i]);
        seq = seq->next;
    }
    assert_null(seq);
}

// ---- preemption --------------------------------------------------------------------------------

static void test_victims_under_fcfs_are_the_youngest(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.long_prefill_token_threshold = 12;
    bench *b = set_up(11, 4, config); // 10 blocks
    pgd_seq *a = add(b, 0, 36, 1);
    pgd_seq *c = add(b, 1, 4, 9);
    pgd_seq *d = add(b, 2, 4, 9);
    c->priority = d->priority = -1; // of no account here
    run_step(b);                    // 3, 1 and 1 blocks
    run_step(b);                    // 6, 2 and 2
    assert_int_equal(b->step.n_preempted, 0);
    run_step(b); // a needs 3 more: both others go, the last one in front
    assert_int_equal(b->step.n_preempted, 2);
    assert_ptr_equal(b->step.preempted[0], d);
    assert_ptr_equal(b->step.preempted[1], c);
    check_list(pgd_sched_waiting(b->sched), (pgd_seq *const[]){c, d}, 2);
    assert_int_equal(a->finish, PGD_FINISH_LENGTH);
    tear_down(b);
}

static void test_the_queue_is_sorted_by_priority_arrival_and_order(void **state) {
    (void)state;
    bench *b = set_up_priority(100);
    pgd_seq *a = add_ranked(b, 0, 3, 5, 0.0);
    pgd_seq *c = add_ranked(b, 1, 3, 1, 7.5);
    pgd_seq *d = add_ranked(b, 2, 3, 1, 2.5);
    pgd_seq *e = add_ranked(b, 3, 3, -1, 9.0);
    pgd_seq *f = add_ranked(b, 4, 3, 1, 7.5);
    check_list(pgd_sched_waiting(b->sched), (pgd_seq *const[]){e, d, c, f, a}, 5);
    tear_down(b);
}

// The last of the running by that order, wherever it stands among them.
static void test_the_victim_under_priority_is_the_last_of_the_order(void **state) {
    (void)state;
    static const struct {
        int32_t priority[3];
        double arrival[3];
        int32_t victim;
    } cases[] = {
        {{1, 5, 2}, {0.0, 0.0, 0.0}, 1}, {{5, 1, 2}, {0.0, 0.0, 0.0}, 0},
        {{1, 1, 5}, {0.0, 0.0, 0.0}, 2}, {{2, 2, 2}, {1.0, 9.0, 3.0}, 1},
        {{2, 2, 2}, {4.0, 4.0, 4.0}, 2}, {{3, 2, 2}, {1.0, 9.0, 9.0}, 0},
    };
    for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
        bench *b = set_up_priority(7);    // 6 blocks
        for (int32_t i = 0; i < 3; i++) { // two each, in the order of adding
            (void)add_ranked(b, i, 5, cases[n].priority[i], cases[n].arrival[i]);
            run_step(b);
        }
        for (int32_t i = 0; i < 20 && b->step.n_preempted == 0; i++) {
            run_step(b);
        }
        assert_true(b->step.n_preempted > 0);
        assert_ptr_equal(b->step.preempted[0], &b->seqs[cases[n].victim]);
        tear_down(b);
    }
}

static void test_a_victim_returns_to_its_sorted_place(void **state) {
    (void)state;
    bench *b = set_up_priority(5); // 4 blocks
    pgd_seq *c = add_ranked(b, 0, 7, 0, 0.0);
    pgd_seq *a = add_ranked(b, 1, 7, 2, 0.0);
    run_step(b);
    pgd_seq *x = add_ranked(b, 2, 12, 1, 0.0);
    run_step(b);
    run_step(b); // c needs a third block: a goes, behind x
    check_list(pgd_sched_running(b->sched), (pgd_seq *const[]){c}, 1);
    check_list(pgd_sched_waiting(b->sched), (pgd_seq *const[]){x, a}, 2);
    tear_down(b);
}

// Then the running loop ends, though what it gave up would be enough for the next one.
static void test_the_one_that_asked_may_be_the_victim(void **state) {
    (void)state;
    bench *b = set_up_priority(5); // 4 blocks
    pgd_seq *a = add_ranked(b, 0, 7, 5, 0.0);
    run_step(b);
    pgd_seq *c = add_ranked(b, 1, 8, 0, 0.0);
    run_step(b);
    const int32_t second = a->blocks[1];
    run_step(b); // a needs a third block, there is none
    assert_int_equal(b->step.n_preempted, 1);
    assert_ptr_equal(b->step.preempted[0], a);
    assert_int_equal(b->step.n_rows, 0);
    assert_int_equal(pgd_kv_pool_free_count(b->pool), 2);
    assert_int_equal(pgd_kv_pool_is_cached(b->pool, second), 1); // filled one step before
    run_step(b);
    assert_ptr_equal(b->rows[0].seq, c);
    tear_down(b);
}

// Its tokens go to the rows behind it.
static void test_a_planned_row_is_given_back(void **state) {
    (void)state;
    pgd_sched_config config = {.max_num_batched_tokens = 4,
                               .max_num_seqs = 8,
                               .max_model_len = 200,
                               .policy = PGD_SCHED_PRIORITY,
                               .no_reserve_full_prompt = 1};
    bench *b = set_up(6, 4, config); // 5 blocks
    pgd_seq *a = add_ranked(b, 0, 1, 5, 0.0);
    run_step(b);
    pgd_seq *c = add_ranked(b, 1, 1, 0, 0.0);
    pgd_seq *d = make_seq(b, 2, 12, 1);
    assert_int_equal(pgd_sched_add(b->sched, d), PGD_OK);
    for (int32_t i = 0; i < 4; i++) {
        run_step(b); // a and c a token each, d two
        assert_int_equal(b->step.n_tokens, 4);
    }
    run_step(b); // c needs a second block: a, whose row was planned, goes; its token is d's
    assert_int_equal(b->step.n_preempted, 1);
    assert_ptr_equal(b->step.preempted[0], a);
    assert_int_equal(a->row, -1);
    assert_int_equal(b->step.n_rows, 2);
    assert_ptr_equal(b->rows[0].seq, c);
    assert_ptr_equal(b->rows[1].seq, d);
    assert_int_equal(b->rows[1].n_tokens, 3);
    tear_down(b);
}

// A row of the victim that fills a block: the block was in the map for this step only.
static void test_a_block_that_was_only_planned_leaves_the_map(void **state) {
    (void)state;
    bench *b = set_up_priority(5); // 4 blocks
    pgd_seq *a = add_ranked(b, 0, 6, 5, 0.0);
    run_step(b);                              // 7 known, 6 in 2 blocks
    pgd_seq *c = add_ranked(b, 1, 8, 0, 0.0); // 2 blocks, full
    run_step(b);                              // 8 known
    const int32_t second = a->blocks[1];
    run_step(b); // a's row fills its second block, then c needs a third: a goes
    assert_int_equal(b->step.n_preempted, 1);
    assert_ptr_equal(b->step.preempted[0], a);
    assert_int_equal(b->step.n_rows, 1);
    assert_ptr_equal(b->rows[0].seq, c);
    assert_int_equal(c->blocks[2], second); // without content: nothing was evicted for it
    int32_t n_evicted = 0;
    (void)pgd_kv_pool_evicted(b->pool, &n_evicted);
    assert_int_equal(n_evicted, 0);
    tear_down(b);
}

// Rows that wait for nothing more of the budget do not hold up those behind them.
static void test_a_sequence_without_work_is_stepped_over(void **state) {
    (void)state;
    bench *b = set_up(100, 16, plain);
    pgd_seq *a = add(b, 0, 5, 2);
    pgd_seq *c = add(b, 1, 5, 9);
    pgd_sched_plan(b->sched, &b->step);
    a->n_ahead = 1; // its first token is on its way; so is c's
    c->n_ahead = 1;
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(b->step.n_rows, 2);
    a->n_ahead = 2; // its last one
    c->n_ahead = 2;
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(b->step.n_rows, 1);
    assert_ptr_equal(b->rows[0].seq, c);
    tear_down(b);
}

// An older prompt takes all that prompts may have; the stream behind it goes on.
static void test_streams_do_not_wait_for_the_room_of_prompts(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.long_prefill_token_threshold = 10;
    bench *b = set_up(100, 16, config);
    pgd_seq *a = add(b, 0, 100, 9);
    pgd_seq *c = add(b, 1, 3, 9);
    run_step(b);
    pgd_sched_limit_prefill(b->sched, 4);
    run_step(b);
    assert_int_equal(b->step.n_rows, 2);
    assert_ptr_equal(b->rows[0].seq, c);
    assert_int_equal(a->computed, 14);
    tear_down(b);
}

// ---- admission ---------------------------------------------------------------------------------

static void test_a_preemption_bars_admission_in_its_step(void **state) {
    (void)state;
    bench *b = set_up_priority(5); // 4 blocks
    pgd_seq *a = add_ranked(b, 0, 7, 0, 0.0);
    pgd_seq *c = add_ranked(b, 1, 7, 9, 0.0);
    run_step(b);
    run_step(b);
    pgd_seq *d = add_ranked(b, 2, 1, 5, 0.0);
    run_step(b); // c goes; d would fit and is the head of the queue
    check_list(pgd_sched_running(b->sched), (pgd_seq *const[]){a}, 1);
    check_list(pgd_sched_waiting(b->sched), (pgd_seq *const[]){d, c}, 2);
    assert_int_equal(b->step.n_admitted, 0);
    assert_int_equal(pgd_kv_pool_free_count(b->pool), 1);
    run_step(b);
    assert_int_equal(b->step.n_admitted, 1);
    assert_int_equal(d->state, PGD_SEQ_RUNNING);
    tear_down(b);
}

static void test_as_many_run_as_may(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.max_num_seqs = 2;
    bench *b = set_up(100, 4, config);
    pgd_seq *a = add(b, 0, 3, 2);
    pgd_seq *c = add(b, 1, 3, 9);
    pgd_seq *d = add(b, 2, 3, 9);
    run_step(b);
    check_list(pgd_sched_running(b->sched), (pgd_seq *const[]){a, c}, 2);
    run_step(b); // a ends
    run_step(b);
    check_list(pgd_sched_running(b->sched), (pgd_seq *const[]){c, d}, 2);
    tear_down(b);
}

static void test_whole_prompts_wait_for_the_whole_budget(void **state) {
    (void)state;
    const pgd_sched_config config = {.max_num_batched_tokens = 32,
                                     .max_num_seqs = 8,
                                     .max_model_len = 32,
                                     .no_chunked_prefill = 1};
    bench *b = set_up(100, 4, config);
    (void)add(b, 0, 20, 9);
    pgd_seq *c = add(b, 1, 13, 9); // 12 are left
    pgd_seq *d = add(b, 2, 2, 9);  // would fit
    run_step(b);
    assert_int_equal(b->step.n_rows, 1);
    check_list(pgd_sched_waiting(b->sched), (pgd_seq *const[]){c, d}, 2);
    run_step(b);
    assert_int_equal(b->step.n_rows, 3);
    assert_int_equal(b->rows[1].n_tokens, 13);
    tear_down(b);
}

// Prompts of two chunks: admitted when all of it fits, or with the first chunk.
static void test_a_prompt_enters_when_all_of_it_fits(void **state) {
    (void)state;
    for (int32_t chunk_only = 0; chunk_only < 2; chunk_only++) {
        pgd_sched_config config = plain;
        config.max_num_batched_tokens = 12;
        config.no_reserve_full_prompt = chunk_only;
        bench *b = set_up(7, 4, config); // 6 blocks
        (void)add(b, 0, 8, 9);           // 2, soon 3
        run_step(b);
        (void)add(b, 1, 16, 2); // 4
        run_step(b);            // 3 are left
        assert_int_equal(b->step.n_admitted, chunk_only);
        tear_down(b);
    }
}

// What came back is known further than its prompt: all of it must fit.
static void test_all_known_tokens_are_reserved(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.max_num_batched_tokens = 6;
    bench *b = set_up(7, 4, config); // 6 blocks
    (void)add(b, 0, 4, 40);
    pgd_seq *c = make_seq(b, 1, 2, 40);
    c->n_tokens = 20; // 5 blocks, of which the step takes 2
    assert_int_equal(pgd_sched_add(b->sched, c), PGD_OK);
    run_step(b);
    assert_int_equal(b->step.n_admitted, 2);
    tear_down(b);
    b = set_up(6, 4, config); // 5 blocks
    (void)add(b, 0, 4, 40);
    c = make_seq(b, 1, 2, 40);
    c->n_tokens = 20;
    assert_int_equal(pgd_sched_add(b->sched, c), PGD_OK);
    run_step(b);
    assert_int_equal(b->step.n_admitted, 1);
    tear_down(b);
}

// 20 blocks of which floor(0.15 * 20) = 3 stay free, where something runs.
static void test_the_watermark_stays_free_beside_others(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.max_num_batched_tokens = 100;
    config.watermark = 0.15;
    for (int32_t n = 32; n <= 33; n++) {
        bench *b = set_up(20, 4, config); // 19 to take
        (void)add(b, 0, 32, 1);           // 8
        (void)add(b, 1, n, 1);            // 8 or 9; 11 - 3 are allowed
        run_step(b);
        assert_int_equal(b->step.n_admitted, n == 32 ? 2 : 1);
        tear_down(b);
    }
    bench *b = set_up(20, 4, config);
    (void)add(b, 0, 76, 1); // all 19: nothing else runs
    run_step(b);
    assert_int_equal(b->step.n_admitted, 1);
    tear_down(b);
}

static void test_the_longest_prompts_allowed(void **state) {
    (void)state;
    pgd_sched_config config = plain;
    config.max_model_len = 16;
    bench *b = set_up(4, 4, config); // 3 blocks
    assert_int_equal(pgd_sched_check(b->sched, 12), PGD_OK);
    assert_int_equal(pgd_sched_check(b->sched, 13), PGD_OUT_OF_RANGE);
    tear_down(b);
    b = set_up(100, 4, config);
    assert_int_equal(pgd_sched_check(b->sched, 15), PGD_OK);
    assert_int_equal(pgd_sched_check(b->sched, 16), PGD_OUT_OF_RANGE);
    tear_down(b);
}

// Its tokens no longer fit an empty pool.
static void test_what_outgrows_the_pool_ends_with_an_error(void **state) {
    (void)state;
    bench *b = set_up(3, 4, plain); // 2 blocks
    pgd_seq *a = add(b, 0, 6, 20);
    for (int32_t i = 0; i < 3; i++) {
        run_step(b);
        assert_int_equal(b->step.n_finished, 0);
    }
    run_step(b);
    assert_int_equal(b->step.n_finished, 1);
    assert_int_equal(b->step.n_preempted, 1);
    assert_int_equal(a->finish, PGD_FINISH_ERROR);
    assert_int_equal(a->n_tokens, 9);
    assert_int_equal(pgd_sched_n_waiting(b->sched), 0);
    assert_int_equal(pgd_kv_pool_free_count(b->pool), 2);
    tear_down(b);
}

// ---- the prefix cache --------------------------------------------------------------------------

static pgd_seq *add_like(bench *b, int32_t i, int32_t like, int32_t n_prompt) {
    pgd_seq *seq = make_seq(b, i, n_prompt, 40);
    for (int32_t k = 0; k < n_prompt; k++) {
        b->tokens[i][k] = b->tokens[like][k];
    }
    assert_int_equal(pgd_sched_add(b->sched, seq), PGD_OK);
    return seq;
}

// Equal prompts of one step share what is full of them; the last block is computed in any case.
static void test_equal_prompts_share_within_a_step(void **state) {
    (void)state;
    bench *b = set_up(100, 4, plain);
    pgd_seq *a = add(b, 0, 12, 40);
    pgd_seq *c = add_like(b, 1, 0, 12);
    pgd_seq *d = add_like(b, 2, 0, 13);
    run_step(b);
    assert_int_equal(a->cached_tokens, 0);
    assert_int_equal(c->cached_tokens, 8);
    assert_int_equal(d->cached_tokens, 12);
    assert_int_equal(b->step.n_tokens, 12 + 4 + 1);
    assert_int_equal(pgd_kv_pool_ref_count(b->pool, a->blocks[1]), 3);
    assert_int_equal(pgd_kv_pool_ref_count(b->pool, a->blocks[2]), 2);
    assert_true(c->blocks[2] != a->blocks[2]);
    tear_down(b);
}

// Requests that may not read the cache are not asked about, and those that came back not again.
static void test_statistics_count_a_request_once(void **state) {
    (void)state;
    bench *b = set_up(100, 4, plain);
    const pgd_sched_stats *stats = pgd_sched_get_stats(b->sched);
    pgd_seq *a = add(b, 0, 9, 40);
    run_step(b);
    pgd_seq *c = add_like(b, 1, 0, 9);
    pgd_seq *d = make_seq(b, 2, 9, 40);
    d->skip_cache = 1;
    b->tokens[2][0] = b->tokens[0][0];
    assert_int_equal(pgd_sched_add(b->sched, d), PGD_OK);
    run_step(b);
    assert_int_equal(c->cached_tokens, 8);
    assert_int_equal(d->cached_tokens, 0);
    assert_int_equal(stats->n_lookups, 2);
    assert_int_equal(stats->n_asked, 18);
    assert_int_equal(stats->n_hit, 8);
    pgd_sched_requeue(b->sched);
    run_step(b);
    assert_int_equal(b->step.n_resumed, 3);
    assert_int_equal(b->rows[0].start, 8); // found this time ...
    assert_int_equal(a->cached_tokens, 0); // ... and not at the first admission
    assert_int_equal(stats->n_lookups, 2);
    assert_int_equal(stats->n_asked, 18);
    assert_int_equal(stats->n_hit, 8);
    tear_down(b);
}

// A preempted sequence whose token is on its way waits for it.
static void test_nothing_returns_while_its_token_is_on_its_way(void **state) {
    (void)state;
    bench *b = set_up(100, 4, plain);
    pgd_seq *a = add(b, 0, 5, 9);
    pgd_sched_plan(b->sched, &b->step);
    a->n_ahead = 1;
    assert_int_equal(pgd_sched_reset_cache(b->sched, 1), 1);
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(b->step.n_rows, 0);
    a->n_ahead = 0;
    a->n_tokens++;
    pgd_sched_plan(b->sched, &b->step);
    assert_int_equal(b->step.n_resumed, 1);
    assert_int_equal(b->rows[0].n_tokens, 6);
    tear_down(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_victims_under_fcfs_are_the_youngest),
        cmocka_unit_test(test_the_queue_is_sorted_by_priority_arrival_and_order),
        cmocka_unit_test(test_the_victim_under_priority_is_the_last_of_the_order),
        cmocka_unit_test(test_a_victim_returns_to_its_sorted_place),
        cmocka_unit_test(test_the_one_that_asked_may_be_the_victim),
        cmocka_unit_test(test_a_planned_row_is_given_back),
        cmocka_unit_test(test_a_block_that_was_only_planned_leaves_the_map),
        cmocka_unit_test(test_a_sequence_without_work_is_stepped_over),
        cmocka_unit_test(test_streams_do_not_wait_for_the_room_of_prompts),
        cmocka_unit_test(test_a_preemption_bars_admission_in_its_step),
        cmocka_unit_test(test_as_many_run_as_may),
        cmocka_unit_test(test_whole_prompts_wait_for_the_whole_budget),
        cmocka_unit_test(test_a_prompt_enters_when_all_of_it_fits),
        cmocka_unit_test(test_all_known_tokens_are_reserved),
        cmocka_unit_test(test_the_watermark_stays_free_beside_others),
        cmocka_unit_test(test_the_longest_prompts_allowed),
        cmocka_unit_test(test_what_outgrows_the_pool_ends_with_an_error),
        cmocka_unit_test(test_equal_prompts_share_within_a_step),
        cmocka_unit_test(test_statistics_count_a_request_once),
        cmocka_unit_test(test_nothing_returns_while_its_token_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
