// The prefix cache and the order of requests, through the public interface on a tiny model.
//
//   prefix_test [DEVICE]     cpu
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#include "engine/inner.h"

#define MODEL    PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"
#define N_PROMPT 11
#define BLOCK    4

static const char *device = "cpu";

static pgd_engine_options options_of(void) {
    return (pgd_engine_options){
        .size = sizeof(pgd_engine_options),
        .model = MODEL,
        .device = device,
        .memory = "256MiB",
        .block_size = BLOCK,
        .max_num_seqs = 4,
        .max_model_len = 64,
        .threads = 1,
    };
}

static pgd_engine *open_engine(const pgd_engine_options *o) {
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(o, &engine), PGD_OK);
    return engine;
}

static const int32_t prompt[N_PROMPT] = {5, 9, 33, 120, 7, 8, 11, 4, 99, 3, 2};

static pgd_request *submit(pgd_engine *engine, const char *salt, int32_t priority) {
    pgd_request *request = NULL;
    const pgd_request_desc d = {
        .size = sizeof(d),
        .ids = prompt,
        .n_ids = N_PROMPT,
        .max_tokens = 6,
        .ignore_eos = 1,
        .cache_salt = salt,
        .priority = priority,
    };
    assert_int_equal(pgd_engine_submit(engine, &d, &request), PGD_OK);
    return request;
}

static pgd_output run(pgd_engine *engine, const pgd_request *request) {
    pgd_output o = {.size = sizeof(o)};
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
    }
    pgd_request_output(request, &o);
    return o;
}

static int32_t cached_of(pgd_engine *engine, const char *salt) {
    pgd_request *request = submit(engine, salt, 0);
    int32_t n = run(engine, request).n_cached;
    pgd_request_release(request);
    return n;
}

static void test_a_second_prompt_is_read_from_the_cache(void **state) {
    (void)state;
    const pgd_engine_options options = options_of();
    pgd_engine *engine = open_engine(&options);
    pgd_request *a = submit(engine, NULL, 0);
    const pgd_output first = run(engine, a);
    pgd_request *b = submit(engine, NULL, 0);
    const pgd_output second = run(engine, b);
    assert_int_equal(first.n_cached, 0);
    assert_int_equal(second.n_cached, 2 * BLOCK);
    assert_int_equal(second.n_ids, 6);
    assert_memory_equal(first.ids, second.ids, 6 * sizeof(int32_t));
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    assert_int_equal(info.n_prompt_tokens_asked, 2 * N_PROMPT);
    assert_int_equal(info.n_prompt_tokens_cached, 2 * BLOCK);
    assert_int_equal(engine->step_allocations, 0);
    pgd_engine_destroy(engine);
}

static void test_salts_keep_apart(void **state) {
    (void)state;
    const pgd_engine_options options = options_of();
    pgd_engine *engine = open_engine(&options);
    assert_int_equal(cached_of(engine, "x"), 0);
    assert_int_equal(cached_of(engine, NULL), 0);
    assert_int_equal(cached_of(engine, "y"), 0);
    assert_int_equal(cached_of(engine, "x"), 2 * BLOCK);
    pgd_engine_destroy(engine);
}

static void test_it_can_be_off(void **state) {
    (void)state;
    pgd_engine_options options = options_of();
    options.no_prefix_caching = 1;
    pgd_engine *engine = open_engine(&options);
    assert_int_equal(cached_of(engine, NULL), 0);
    assert_int_equal(cached_of(engine, NULL), 0);
    pgd_engine_destroy(engine);
}

static void test_lower_priority_numbers_run_first(void **state) {
    (void)state;
    pgd_engine_options options = options_of();
    options.scheduling_policy = "priority";
    options.max_num_seqs = 1;
    pgd_engine *engine = open_engine(&options);
    pgd_request *requests[3];
    const int32_t priorities[3] = {5, 1, -2};
    for (int32_t i = 0; i < 3; i++) {
        requests[i] = submit(engine, NULL, priorities[i]);
    }
    pgd_output out[3];
    for (int32_t i = 0; i < 3; i++) {
        out[i] = run(engine, requests[i]);
    }
    // The later submitted ended earlier, although all were submitted before the first step.
    assert_true(out[2].total_ns < out[1].total_ns && out[1].total_ns < out[0].total_ns);
    assert_memory_equal(out[0].ids, out[2].ids, 6 * sizeof(int32_t));
    pgd_engine_destroy(engine);
}

// ---- windows -----------------------------------------------------------------------------------

#define WINDOW 8

// Tokens of a long answer; out_blocks: the most blocks it held behind a step.
static void run_long(const char *model, int32_t num_blocks, int32_t *ids, int32_t *out_blocks) {
    pgd_engine_options o = options_of();
    o.model = model;
    o.num_blocks = num_blocks;
    o.max_num_seqs = 1;
    o.max_num_batched_tokens = 4;
    pgd_engine *engine = open_engine(&o);
    const pgd_request_desc d = {
        .size = sizeof(d), .ids = prompt, .n_ids = N_PROMPT, .max_tokens = 50, .ignore_eos = 1};
    pgd_request *request = NULL;
    assert_int_equal(pgd_engine_submit(engine, &d, &request), PGD_OK);
    *out_blocks = 0;
    while (pgd_engine_busy(engine) > 0) {
        pgd_engine_stats s = {.size = sizeof(s)};
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
        pgd_engine_get_stats(engine, &s);
        *out_blocks = s.blocks_used > *out_blocks ? s.blocks_used : *out_blocks;
    }
    const pgd_output out = run(engine, request);
    assert_int_equal(out.n_ids, 50);
    assert_int_equal(out.n_preempted, 0);
    memcpy(ids, out.ids, 50 * sizeof(*ids));
    pgd_engine_destroy(engine);
}

// Every layer slides: 61 tokens need 16 blocks of 4, the window never more than 4.
static void test_blocks_that_left_the_window_are_given_back(void **state) {
    (void)state;
    int32_t ids[2][50];
    int32_t n_blocks[2];
    const char *model = PGD_TEST_SOURCE_DIR "/tests/golden/models/mistral-window";
    run_long(model, 0, ids[0], &n_blocks[0]);
    run_long(model, 5, ids[1], &n_blocks[1]); // the null block and four
    assert_memory_equal(ids[0], ids[1], sizeof(ids[0]));
    assert_in_range(n_blocks[0], WINDOW / BLOCK, 4);
    assert_in_range(n_blocks[1], WINDOW / BLOCK, 4);
}

// One layer of two slides: one group of each kind over one pool.
static void test_a_full_and_a_window_group(void **state) {
    (void)state;
    int32_t ids[2][50];
    int32_t n_blocks[2];
    const char *model = PGD_TEST_SOURCE_DIR "/tests/golden/models/qwen2-window";
    run_long(model, 0, ids[0], &n_blocks[0]);
    run_long(model, 21, ids[1], &n_blocks[1]); // 16 and 4
    assert_memory_equal(ids[0], ids[1], sizeof(ids[0]));
    assert_in_range(n_blocks[1], 16 + WINDOW / BLOCK, 20);
}

static void expect_create(pgd_engine_options o, pgd_status code, const char *word) {
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(&o, &engine), code);
    assert_null(engine);
    assert_non_null(strstr(pgd_last_error(), word));
}

static void test_wrong_values_are_named(void **state) {
    (void)state;
    pgd_engine_options o = options_of();
    o.scheduling_policy = "lifo";
    expect_create(o, PGD_INVALID, "lifo");
    o = options_of();
    o.watermark = 1.5;
    expect_create(o, PGD_OUT_OF_RANGE, "watermark");
    o = options_of();
    o.no_chunked_prefill = 1;
    o.max_num_batched_tokens = 32;
    expect_create(o, PGD_OUT_OF_RANGE, "max_num_batched_tokens");
    o = options_of();
    o.model = PGD_TEST_SOURCE_DIR "/tests/golden/models/qwen2-window";
    o.num_blocks = 20;
    o.max_num_seqs = 1;
    o.max_num_batched_tokens = 4;
    expect_create(o, PGD_OUT_OF_RANGE, "max-model-len is 64; with 20 blocks of 4 tokens 2 to 60");
    o = options_of();
    pgd_engine *engine = open_engine(&o);
    pgd_request *request = NULL;
    const pgd_request_desc d = {
        .size = sizeof(d), .ids = prompt, .n_ids = N_PROMPT, .cache_salt = ""};
    assert_int_equal(pgd_engine_submit(engine, &d, &request), PGD_OUT_OF_RANGE);
    assert_non_null(strstr(pgd_last_error(), "cache_salt"));
    pgd_engine_destroy(engine);
}

int main(int argc, char **argv) {
    device = argc > 1 ? argv[1] : device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_prompt_is_read_from_the_cache),
        cmocka_unit_test(test_salts_keep_apart),
        cmocka_unit_test(test_it_can_be_off),
        cmocka_unit_test(test_lower_priority_numbers_run_first),
        cmocka_unit_test(test_blocks_that_left_the_window_are_given_back),
        cmocka_unit_test(test_a_full_and_a_window_group),
        cmocka_unit_test(test_wrong_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
