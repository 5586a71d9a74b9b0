// The engine's promises on a tiny model: wrong input named, cancel and release at any time, seeds,
// no allocation in a step, and nothing leaked when the n-th allocation fails.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#include "base/mem.h"
#include "engine/inner.h"

#define MODEL PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"
#define NANO  PGD_TEST_SOURCE_DIR "/models/nano"

static pgd_engine_options options_of(const char *model) {
    return (pgd_engine_options){
        .size = sizeof(pgd_engine_options),
        .model = model,
        .device = "cpu",
        .memory = "256MiB",
        .max_num_seqs = 4,
        .max_model_len = 64,
        .threads = 2,
    };
}

static pgd_engine *open_engine(const char *model) {
    pgd_engine_options o = options_of(model);
    pgd_engine *engine = NULL;
    pgd_status status = pgd_engine_create(&o, &engine);
    if (status != PGD_OK) {
        print_error("%s\n", pgd_last_error());
    }
    assert_int_equal(status, PGD_OK);
    return engine;
}

static const int32_t prompt[] = {5, 9, 33, 120, 7, 8, 11};

static pgd_request_desc desc_of(int32_t max_tokens) {
    return (pgd_request_desc){
        .size = sizeof(pgd_request_desc),
        .ids = prompt,
        .n_ids = (int32_t)(sizeof(prompt) / sizeof(prompt[0])),
        .max_tokens = max_tokens,
        .ignore_eos = 1,
    };
}

static void run(pgd_engine *engine) {
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
    }
}

static void expect_create(pgd_engine_options o, pgd_status code, const char *word) {
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(&o, &engine), code);
    assert_null(engine);
    if (strstr(pgd_last_error(), word) == NULL) {
        fail_msg("\"%s\" does not name \"%s\"", pgd_last_error(), word);
    }
}

static void test_wrong_options_are_named(void **state) {
    (void)state;
    pgd_engine_options o = options_of(MODEL);
    o.size = 4;
    expect_create(o, PGD_INVALID, "size");
    o = options_of("/no/such/folder");
    expect_create(o, PGD_NOT_FOUND, "/no/such/folder");
    o = options_of(MODEL);
    o.device = "warp:0";
    expect_create(o, PGD_INVALID, "warp");
    o = options_of(MODEL);
    o.device = "cpu:7";
    expect_create(o, PGD_NOT_FOUND, "cpu");
    o = options_of(MODEL);
    o.memory = "lots";
    expect_create(o, PGD_INVALID, "lots");
    o = options_of(MODEL);
    o.memory = "100KB";
    expect_create(o, PGD_OUT_OF_MEMORY, "bytes");
    o = options_of(MODEL);
    o.kv_cache_dtype = "int3";
    expect_create(o, PGD_INVALID, "int3");
    o = options_of(MODEL);
    o.max_model_len = 100000000;
    expect_create(o, PGD_OUT_OF_RANGE, "max-model-len");
    o = options_of(MODEL);
    o.num_blocks = 2;
    expect_create(o, PGD_OUT_OF_RANGE, "max-model-len");
    o = options_of(MODEL);
    o.max_num_batched_tokens = 1;
    expect_create(o, PGD_OUT_OF_RANGE, "max-num-batched-tokens");
    o = options_of(MODEL);
    o.threads = -1;
    expect_create(o, PGD_OUT_OF_RANGE, "threads");
}

static void expect_submit(pgd_engine *engine, pgd_request_desc d, pgd_status code,
                          const char *word) {
    pgd_request *request = NULL;
    assert_int_equal(pgd_engine_submit(engine, &d, &request), code);
    assert_null(request);
    if (strstr(pgd_last_error(), word) == NULL) {
        fail_msg("\"%s\" does not name \"%s\"", pgd_last_error(), word);
    }
}

static void test_wrong_requests_are_named(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL);
    const int32_t bad[] = {3, 256};
    int32_t many[64] = {1};
    pgd_request_desc d = desc_of(4);
    d.ids = bad;
    d.n_ids = 2;
    expect_submit(engine, d, PGD_OUT_OF_RANGE, "256");
    d = desc_of(4);
    d.ids = many;
    d.n_ids = 64;
    expect_submit(engine, d, PGD_OUT_OF_RANGE, "64 tokens");
    d = desc_of(4);
    d.n_ids = 0;
    expect_submit(engine, d, PGD_OUT_OF_RANGE, "0 tokens");
    d = desc_of(4);
    d.temperature = -1.0f;
    expect_submit(engine, d, PGD_OUT_OF_RANGE, "temperature");
    d = desc_of(4);
    d.temperature = 1.0f;
    d.top_p = 1.5f;
    expect_submit(engine, d, PGD_OUT_OF_RANGE, "top_p");
    d = desc_of(4);
    d.min_tokens = 5;
    expect_submit(engine, d, PGD_OUT_OF_RANGE, "min_tokens");
    d = desc_of(-4);
    expect_submit(engine, d, PGD_OUT_OF_RANGE, "max_tokens");
    d = desc_of(4);
    d.ids = NULL;
    expect_submit(engine, d, PGD_INVALID, "prompt");
    d = desc_of(4);
    d.ids = NULL;
    d.prompt = "text";
    expect_submit(engine, d, PGD_INVALID, "tokenizer");
    assert_int_equal(pgd_engine_busy(engine), 0);
    pgd_engine_destroy(engine);
}

static void test_cancel_and_release_leave_the_others_alone(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL);
    pgd_request_desc d = desc_of(20);
    pgd_request *r[6] = {0};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pgd_engine_submit(engine, &d, &r[i]), PGD_OK);
    }
    assert_int_equal(pgd_engine_step(engine), PGD_OK);
    pgd_request_cancel(r[1]); // running
    pgd_request_cancel(r[5]); // waiting
    pgd_request_release(r[2]);
    run(engine);
    pgd_output a = {.size = sizeof(a)};
    pgd_output b = {.size = sizeof(b)};
    pgd_request_output(r[0], &a);
    assert_int_equal(a.n_ids, 20);
    assert_string_equal(a.finish_reason, "length");
    pgd_request_output(r[4], &b);
    assert_int_equal(b.n_ids, 20);
    assert_memory_equal(a.ids, b.ids, 20 * sizeof(int32_t));
    pgd_request_output(r[1], &b);
    assert_string_equal(b.finish_reason, "abort");
    assert_int_equal(b.n_ids, 1);
    pgd_request_output(r[5], &b);
    assert_string_equal(b.finish_reason, "abort");
    assert_int_equal(b.n_ids, 0);
    pgd_request_cancel(r[0]); // ended: nothing
    assert_int_equal(pgd_engine_step(engine), PGD_OK);
    pgd_engine_destroy(engine); // releases the rest
}

static void test_seeds(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL);
    pgd_request_desc d = desc_of(24);
    d.temperature = 1.5f;
    d.has_seed = 1;
    const uint64_t seeds[] = {1, 1, 2};
    int32_t ids[3][24];
    for (int i = 0; i < 3; i++) {
        pgd_request *r = NULL;
        d.seed = seeds[i];
        assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
        run(engine);
        pgd_output o = {.size = sizeof(o)};
        pgd_request_output(r, &o);
        memcpy(ids[i], o.ids, sizeof(ids[i]));
        pgd_request_release(r);
    }
    assert_memory_equal(ids[0], ids[1], sizeof(ids[0]));
    assert_memory_not_equal(ids[0], ids[2], sizeof(ids[0]));
    pgd_engine_destroy(engine);
}

static void test_stop_ids(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL);
    pgd_request_desc d = desc_of(10);
    pgd_request *r = NULL;
    assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
    run(engine);
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(r, &o);
    int32_t first[10];
    memcpy(first, o.ids, sizeof(first));
    pgd_request_release(r);
    d.stop_ids = &first[4];
    d.n_stop_ids = 1;
    int32_t at = 0;
    while (first[at] != first[4]) {
        at++;
    }
    assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
    run(engine);
    pgd_request_output(r, &o);
    assert_string_equal(o.finish_reason, "stop");
    assert_int_equal(o.stop_id, first[4]);
    assert_int_equal(o.n_ids, at + 1);
    pgd_engine_destroy(engine);
}

static void test_steps_allocate_nothing(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL);
    pgd_request_desc d = desc_of(30);
    pgd_request *r[8] = {0};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pgd_engine_submit(engine, &d, &r[i]), PGD_OK);
    }
    run(engine);
    assert_true(engine->n_steps > 30);
    assert_int_equal(engine->step_allocations, 0);
    pgd_engine_destroy(engine);
}

// Everything a decode step computes is one run of the thread team.
static void test_a_decode_step_is_one_run(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(NANO);
    pgd_request_desc d = desc_of(20);
    pgd_request *r[3] = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pgd_engine_submit(engine, &d, &r[i]), PGD_OK);
    }
    assert_int_equal(pgd_engine_step(engine), PGD_OK);
    for (int i = 0; i < 15; i++) {
        uint64_t before = pgd_team_runs(engine->team);
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
        assert_int_equal(engine->step_tokens, 3);
        assert_int_equal(pgd_team_runs(engine->team), before + 1);
    }
    pgd_engine_destroy(engine);
}

typedef struct heard {
    char text[4096];
    size_t n;
    int32_t n_done;
} heard;

static void on_text(void *arg, pgd_request *request, const char *text, size_t len, int32_t done) {
    (void)request;
    heard *h = arg;
    assert_true(h->n + len < sizeof(h->text));
    memcpy(h->text + h->n, text, len);
    h->n += len;
    h->n_done += done;
}

static void test_streamed_text_is_the_whole_text(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(NANO);
    heard h = {0};
    pgd_request_desc d = {.size = sizeof(d),
                          .prompt = "Once upon a time",
                          .max_tokens = 40,
                          .on_text = on_text,
                          .arg = &h};
    pgd_request *r = NULL;
    assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
    run(engine);
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(r, &o);
    assert_int_equal(h.n_done, 1);
    assert_int_equal(h.n, o.text_len);
    assert_true(o.text_len > 40);
    assert_memory_equal(h.text, o.text, h.n);
    pgd_engine_destroy(engine);
}

// One engine's life with three requests; PGD_OK or what failed.
static pgd_status live(const char *model, const char *text) {
    pgd_engine_options o = options_of(model);
    pgd_request_desc d[3] = {desc_of(5), desc_of(6), desc_of(7)};
    pgd_request *r[3] = {0};
    pgd_engine *engine = NULL;
    PGD_TRY(pgd_engine_create(&o, &engine));
    for (int i = 0; i < 3 && text != NULL; i++) {
        d[i].ids = NULL;
        d[i].prompt = text;
    }
    pgd_status status = pgd_engine_generate(engine, d, 3, NULL, NULL, r);
    for (int i = 0; i < 3; i++) {
        pgd_request_release(r[i]);
    }
    pgd_engine_destroy(engine);
    return status;
}

static void fail_each_allocation(const char *model, const char *text, uint64_t stride) {
    assert_int_equal(live(model, text), PGD_OK);
    uint64_t alive = pgd_mem_live();
    uint64_t n = 1;
    for (;; n += n < 64 ? 1 : stride) {
        pgd_mem_fail_nth(n);
        pgd_status status = live(model, text);
        pgd_mem_fail_nth(0);
        assert_int_equal(pgd_mem_live(), alive);
        if (status == PGD_OK) {
            break;
        }
        if (status != PGD_OUT_OF_MEMORY) {
            fail_msg("allocation %llu: %s: %s", (unsigned long long)n, pgd_status_name(status),
                     pgd_last_error());
        }
    }
    assert_true(n > 60);
}

static void test_failed_allocations_leak_nothing(void **state) {
    (void)state;
    fail_each_allocation(MODEL, NULL, 1);
}

static void test_failed_allocations_leak_nothing_with_text(void **state) {
    (void)state;
    fail_each_allocation(NANO, "Tell me a story.", 23);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_options_are_named),
        cmocka_unit_test(test_wrong_requests_are_named),
        cmocka_unit_test(test_cancel_and_release_leave_the_others_alone),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_a_decode_step_is_one_run),
        cmocka_unit_test(test_streamed_text_is_the_whole_text),
        cmocka_unit_test(test_failed_allocations_leak_nothing),
        cmocka_unit_test(test_failed_allocations_leak_nothing_with_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
