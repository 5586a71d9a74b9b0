// The device fails while requests run: an operation fails, its outputs are no numbers, it hangs, it
// is lost and comes back or does not. Who is not concerned gets the tokens of a healthy device.
#define _DEFAULT_SOURCE // mkdtemp
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define TINY       PGD_TEST_SOURCE_DIR "/tests/golden/models/llama-default"
#define N_REQUESTS 6
#define N_NEW      40

// Of a thousand losses; the thread sanitizer sees in a hundred what it sees in all.
#if defined(__SANITIZE_THREAD__)
#define PER_THOUSAND(n) ((n) / 10)
#else
#define PER_THOUSAND(n) (n)
#endif

// What an engine may be opened with beside the device.
typedef struct setup {
    const char *device;
    const char *standby;
    uint32_t timeout_ms;
    const char *weight_cache;
    const char *cache;
    const char *quant;
} setup;

static pgd_engine *open_engine(const setup *s) {
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = TINY,
        .device = s->device,
        .standby = s->standby,
        .step_timeout_ms = s->timeout_ms,
        .weight_cache = s->weight_cache != NULL ? s->weight_cache : "off",
        .cache = s->cache,
        .quant = s->quant,
        .memory = "64MiB",
        .block_size = 4,
        .max_num_seqs = 4,
        .max_num_batched_tokens = 24,
        .max_model_len = 96,
        .threads = 1,
    };
    pgd_engine *engine = NULL;
    if (pgd_engine_create(&o, &engine) != PGD_OK) {
        fail_msg("%s: %s", s->device, pgd_last_error());
    }
    return engine;
}

// Greedy and seeded, with and without penalties and log probabilities of the prompt.
static pgd_request_desc desc_of(int32_t i) {
    static int32_t prompts[N_REQUESTS][24];
    for (int32_t k = 0; k < 24; k++) {
        prompts[i][k] = 3 + (k * 7 + (i / 2) * 31) % 50;
    }
    return (pgd_request_desc){
        .size = sizeof(pgd_request_desc),
        .ids = prompts[i],
        .n_ids = 9 + 3 * i,
        .max_tokens = N_NEW,
        .temperature = i % 2 == 0 ? 0.0f : 0.9f,
        .has_seed = 1,
        .seed = 11 + (uint64_t)i,
        .repetition_penalty = i >= 4 ? 1.2f : 1.0f,
        .frequency_penalty = i == 3 ? 0.5f : 0.0f,
        .has_prompt_logprobs = i == 2,
        .ignore_eos = 1,
    };
}

static pgd_output output(const pgd_request *r) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(r, &o);
    return o;
}

static pgd_engine_stats stats(const pgd_engine *engine) {
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_engine_get_stats(engine, &s);
    return s;
}

typedef struct answers {
    int32_t ids[N_REQUESTS][N_NEW];
    float prompt_logprobs[64]; // of request 2
} answers;

static void submit_all(pgd_engine *engine, pgd_request **r) {
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const pgd_request_desc d = desc_of(i);
        if (pgd_engine_submit(engine, &d, &r[i]) != PGD_OK) {
            fail_msg("%s", pgd_last_error());
        }
    }
}

static void release_all(pgd_request **r) {
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        pgd_request_release(r[i]);
    }
}

static void right_answers_of(const setup *s, answers *out) {
    pgd_request *r[N_REQUESTS];
    pgd_engine *engine = open_engine(s);
    memset(out, 0, sizeof(*out));
    submit_all(engine, r);
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
    }
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const pgd_output o = output(r[i]);
        assert_int_equal(o.n_ids, N_NEW);
        memcpy(out->ids[i], o.ids, sizeof(out->ids[i]));
        if (o.prompt_logprobs != NULL) {
            memcpy(out->prompt_logprobs, o.prompt_logprobs, (size_t)o.n_prompt * sizeof(float));
        }
    }
    release_all(r);
    pgd_engine_destroy(engine);
}

static void right_answers(const char *device, answers *out) {
    const setup s = {.device = device};
    right_answers_of(&s, out);
}

static void expect_right(const pgd_request *r, int32_t i, const answers *right) {
    const pgd_output o = output(r);
    assert_string_equal(o.finish_reason, "length");
    assert_int_equal(o.n_ids, N_NEW);
    assert_memory_equal(o.ids, right->ids[i], sizeof(right->ids[i]));
    if (o.prompt_logprobs != NULL) {
        assert_int_equal(o.n_prompt_scored, o.n_prompt);
        assert_memory_equal(o.prompt_logprobs + 1, right->prompt_logprobs + 1,
                            (size_t)(o.n_prompt - 1) * sizeof(float));
    }
}

// All requests to their end; every step must succeed and every answer be right.
static void run_all(pgd_engine *engine, const answers *right) {
    pgd_request *r[N_REQUESTS];
    submit_all(engine, r);
    while (pgd_engine_busy(engine) > 0) {
        if (pgd_engine_step(engine) != PGD_OK) {
            fail_msg("%s", pgd_last_error());
        }
    }
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        expect_right(r[i], i, right);
    }
    release_all(r);
    assert_int_equal(stats(engine).blocks_used, 0);
}

// ---- the device is lost ------------------------------------------------------------------------

// Lost at the n-th call after each opening, n from `first` to first + 5 in turn, until it was lost
// `most` times; returns how often.
static uint64_t lose_often(const char *inner, const char *op, int32_t first, uint64_t most,
                           const answers *right) {
    uint64_t n_lost = 0;
    for (int32_t n = first; n_lost < most; n = n < first + 5 ? n + 1 : first) {
        char device[128];
        (void)snprintf(device, sizeof(device), "fault{op=%s;lose_nth=%d}(%s)", op, n, inner);
        const setup s = {.device = device};
        pgd_engine *engine = open_engine(&s);
        run_all(engine, right);
        const pgd_engine_stats now = stats(engine);
        assert_int_equal(now.n_device_lost, now.n_device_opened);
        assert_true(now.n_device_lost > 0);
        assert_int_equal(now.n_error, 0);
        n_lost += now.n_device_lost;
        pgd_engine_destroy(engine);
    }
    return n_lost;
}

static void test_streams_go_on_after_a_thousand_losses(void **state) {
    (void)state;
    answers right;
    right_answers("cpu", &right);
    uint64_t n = lose_often("cpu", "head_sample", 2, PER_THOUSAND(500), &right);
    n += lose_often("cpu", "ops", 40, PER_THOUSAND(350), &right);
    n += lose_often("cpu", "copy", 30, PER_THOUSAND(150), &right);
    assert_true(n >= PER_THOUSAND(1000));
    right_answers("null{tokens=hash}", &right);
    const uint64_t most = PER_THOUSAND(250);
    assert_true(lose_often("null{tokens=hash}", "head_sample", 2, most, &right) >= most);
}

static void test_weights_come_from_the_store(void **state) {
    (void)state;
    char folder[] = "/tmp/pagoda-loss-XXXXXX";
    answers right;
    right_answers("cpu", &right);
    assert_non_null(mkdtemp(folder));
    const setup s = {.device = "fault{op=head_sample;lose_nth=9}(cpu)",
                     .weight_cache = "64MiB",
                     .cache = folder};
    for (int32_t i = 0; i < 2; i++) {
        pgd_engine *engine = open_engine(&s);
        run_all(engine, &right);
        assert_true(stats(engine).n_device_opened >= 5);
        pgd_engine_destroy(engine);
    }
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

// What is loaded again is quantized again.
static void test_quantized_weights(void **state) {
    (void)state;
    answers plain;
    answers right;
    const setup healthy = {.device = "cpu", .quant = "q4_0"};
    const setup s = {.device = "fault{op=head_sample;lose_nth=9}(cpu)", .quant = "q4_0"};
    right_answers("cpu", &plain);
    right_answers_of(&healthy, &right);
    assert_memory_not_equal(&plain, &right, sizeof(right));
    pgd_engine *engine = open_engine(&s);
    run_all(engine, &right);
    assert_true(stats(engine).n_device_lost > 0);
    pgd_engine_destroy(engine);
}

static void test_standby(void **state) {
    (void)state;
    answers right;
    right_answers("cpu", &right);
    const setup s = {.device = "fault{lose_nth=200;reopen=fail;id=1}(cpu)", .standby = "cpu"};
    pgd_engine *engine = open_engine(&s);
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    assert_string_equal(info.device, "fault(cpu:0)");
    run_all(engine, &right);
    pgd_engine_get_info(engine, &info);
    assert_string_equal(info.device, "cpu:0");
    assert_int_equal(stats(engine).n_device_lost, 1);
    assert_int_equal(stats(engine).n_device_opened, 1);
    run_all(engine, &right);
    assert_int_equal(stats(engine).n_device_lost, 1);
    pgd_engine_destroy(engine);
}

// A device that is lost before a step is done is left for the standby at once.
static void test_standby_when_nothing_gets_done(void **state) {
    (void)state;
    answers right;
    right_answers("cpu", &right);
    const setup s = {.device = "fault{op=embed;lose_nth=1}(cpu)", .standby = "cpu"};
    pgd_engine *engine = open_engine(&s);
    run_all(engine, &right);
    assert_int_equal(stats(engine).n_device_lost, 2);
    pgd_engine_destroy(engine);
}

static void expect_all_failed(pgd_engine *engine, pgd_request **r, const char *why) {
    assert_int_equal(pgd_engine_busy(engine), 0);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const pgd_output o = output(r[i]);
        assert_string_equal(o.finish_reason, "error");
        assert_non_null(strstr(o.error, why));
    }
    assert_int_equal(stats(engine).blocks_used, 0);
}

static void run_until_idle(pgd_engine *engine) {
    while (pgd_engine_busy(engine) > 0) {
        (void)!pgd_engine_step(engine);
    }
}

static void test_gone_for_good(void **state) {
    (void)state;
    pgd_request *r[N_REQUESTS];
    answers right;
    right_answers("cpu", &right);
    const setup s = {.device = "fault{lose_nth=300;reopen=fail;id=2}(cpu)"};
    const setup healthy = {.device = "cpu"};
    pgd_engine *other = open_engine(&healthy);
    pgd_engine *engine = open_engine(&s);
    for (int32_t round = 0; round < 2; round++) { // the second one finds no device to begin with
        submit_all(engine, r);
        run_until_idle(engine);
        expect_all_failed(engine, r, "the device is gone");
        release_all(r);
        run_all(other, &right); // other engines of the process live on
    }
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    assert_string_equal(info.device, "");
    assert_int_equal(stats(engine).n_device_opened, 0);
    pgd_engine_destroy(engine);
    pgd_engine_destroy(other);
}

// Lost again and again without a step done, and nobody to stand in: it ends.
static void test_never_gets_done(void **state) {
    (void)state;
    pgd_request *r[N_REQUESTS];
    const setup s = {.device = "fault{op=embed;lose_nth=1}(cpu)"};
    pgd_engine *engine = open_engine(&s);
    submit_all(engine, r);
    run_until_idle(engine);
    expect_all_failed(engine, r, "the device is lost");
    assert_true(stats(engine).n_device_lost <= 10);
    release_all(r);
    pgd_engine_destroy(engine);
}

static void test_wrong_standby(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"no_such_kind", "no such kind"}, {"auto", "name a device"}, {"fault", "is a layer"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const pgd_engine_options o = {
            .size = sizeof(o), .model = TINY, .device = "cpu", .standby = wrong[i][0]};
        pgd_engine *engine = NULL;
        assert_int_equal(pgd_engine_create(&o, &engine), PGD_INVALID);
        assert_non_null(strstr(pgd_last_error(), wrong[i][1]));
    }
}

// ---- hangs -------------------------------------------------------------------------------------

static void test_a_hang_is_bounded(void **state) {
    (void)state;
    answers right;
    right_answers("cpu", &right);
    const setup s = {.device = "fault{op=head_sample;hang_nth=40}(cpu)", .timeout_ms = 50};
    pgd_engine *engine = open_engine(&s);
    const uint64_t begin = pgd_clock_ns();
    run_all(engine, &right);
    const pgd_engine_stats now = stats(engine);
    assert_true(now.n_device_lost >= 1);
    assert_true(pgd_clock_ns() - begin >= now.n_device_lost * UINT64_C(50000000));
    pgd_engine_destroy(engine);
    const setup gone = {.device = "fault{op=head_sample;hang_nth=1}(cpu)", .timeout_ms = 20};
    pgd_request *r[N_REQUESTS];
    engine = open_engine(&gone);
    submit_all(engine, r);
    run_until_idle(engine);
    expect_all_failed(engine, r, "20 ms for the step");
    release_all(r);
    pgd_engine_destroy(engine);
}

// Slow is not lost: each call takes longer, no bound is reached, the answers are right.
static void test_slow_is_not_lost(void **state) {
    (void)state;
    answers right;
    right_answers("cpu", &right);
    const setup s = {.device = "fault{op=head_sample;slow_us=3000}(cpu)", .timeout_ms = 5000};
    pgd_engine *engine = open_engine(&s);
    const uint64_t begin = pgd_clock_ns();
    run_all(engine, &right);
    const pgd_engine_stats now = stats(engine);
    assert_true(now.n_steps > 0);
    assert_true(pgd_clock_ns() - begin >= now.n_steps * UINT64_C(3000000));
    assert_int_equal(now.n_device_lost, 0);
    assert_int_equal(now.n_step_retries, 0);
    pgd_engine_destroy(engine);
}

// ---- failures and numbers ----------------------------------------------------------------------

// Each operation of a step fails once; OUT_OF_MEMORY too.
static void test_a_failing_op_is_computed_again(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int32_t nth; // behind the last call of loading, and more than a step has
    } ops[] = {{"embed", 7},     {"qkv_rope_write", 17}, {"attn", 17},
               {"gemm_add", 33}, {"gate_up", 17},        {"head_sample", 7},
               {"copy", 45},     {"signal", 45},         {"host_wait", 45}};
    static const char *const inner[] = {"cpu", "null{tokens=hash}"};
    for (size_t k = 0; k < 2; k++) {
        answers right;
        right_answers(inner[k], &right);
        for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
            char device[160];
            (void)snprintf(device, sizeof(device), "fault{op=%s;fail_nth=%d;repeat=on;code=%s}(%s)",
                           ops[i].name, ops[i].nth, i % 2 == 0 ? "INTERNAL" : "OUT_OF_MEMORY",
                           inner[k]);
            const setup s = {.device = device};
            pgd_engine *engine = open_engine(&s);
            run_all(engine, &right);
            if (stats(engine).n_step_retries == 0) {
                fail_msg("%s: nothing failed", device);
            }
            assert_int_equal(stats(engine).n_device_lost, 0);
            pgd_engine_destroy(engine);
        }
    }
}

// One row of logits is no number: its request ends, the others get their tokens; later ones with
// the same prompt find nothing of it in the prefix cache.
static void spoil(const char *device, const answers *right, int32_t n_spoiled) {
    const setup s = {.device = device};
    pgd_request *r[N_REQUESTS];
    int32_t n_wrong = 0;
    pgd_engine *engine = open_engine(&s);
    submit_all(engine, r);
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
    }
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        if (strcmp(output(r[i]).finish_reason, "error") == 0) {
            assert_non_null(strstr(output(r[i]).error, "NaN"));
            n_wrong++;
        } else {
            expect_right(r[i], i, right);
        }
    }
    assert_int_equal(n_wrong, n_spoiled);
    release_all(r);
    run_all(engine, right);
    run_all(engine, right);
    pgd_engine_destroy(engine);
}

static void test_nan_ends_one_request(void **state) {
    (void)state;
    answers right;
    right_answers("cpu", &right);
    spoil("fault{op=head_sample;nan_nth=13;row=1}(cpu)", &right, 1);
    spoil("fault{op=head_sample;nan_nth=3;row=0}(cpu)", &right, 1);
    // Inside the model: keys and values of later layers are NaN from that row on.
    spoil("fault{op=gemm_add;nan_nth=61;row=1}(cpu)", &right, 1);
    spoil("fault{op=embed;nan_nth=20;row=2}(cpu)", &right, 1);
    right_answers("null{tokens=hash}", &right);
    spoil("fault{op=head_sample;nan_nth=13;row=1}(null{tokens=hash})", &right, 1);
}

// Wrong numbers are noticed by nobody, but they stay with their row.
static void test_wrong_numbers_stay_in_their_row(void **state) {
    (void)state;
    const setup s = {.device = "fault{op=head_sample;wrong_nth=12;row=0}(cpu)"};
    pgd_request *r[N_REQUESTS];
    answers right;
    int32_t n_wrong = 0;
    right_answers("cpu", &right);
    pgd_engine *engine = open_engine(&s);
    submit_all(engine, r);
    run_until_idle(engine);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        n_wrong += memcmp(output(r[i]).ids, right.ids[i], sizeof(right.ids[i])) != 0;
    }
    assert_int_equal(n_wrong, 1);
    release_all(r);
    pgd_engine_destroy(engine);
}

// ---- on a thread of its own --------------------------------------------------------------------

typedef struct heard {
    _Atomic int32_t n_done;
    _Atomic int32_t n_error;
} heard;

static void on_delta(void *arg, pgd_request *r, const pgd_delta *d) {
    heard *h = arg;
    (void)r;
    atomic_fetch_add(&h->n_error, d->done && strcmp(d->finish_reason, "error") == 0);
    atomic_fetch_add(&h->n_done, d->done);
}

static void log_sink(void *arg, int32_t level, const char *text) {
    _Atomic int32_t *n = arg;
    atomic_fetch_add(n, level == PGD_LEVEL_ERROR && strstr(text, "is lost") != NULL);
}

static void test_with_a_thread(void **state) {
    (void)state;
    const setup s = {.device = "fault{op=head_sample;lose_nth=15}(cpu)"};
    heard h = {0};
    _Atomic int32_t n_lines = 0;
    answers right;
    pgd_request *r[N_REQUESTS];
    pgd_async *async = NULL;
    right_answers("cpu", &right);
    pgd_log_set(log_sink, &n_lines, PGD_LEVEL_INFO);
    pgd_engine *engine = open_engine(&s);
    assert_int_equal(pgd_async_create(engine, &async), PGD_OK);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        pgd_request_desc d = desc_of(i);
        d.on_delta = on_delta;
        d.arg = &h;
        assert_int_equal(pgd_async_submit(async, &d, &r[i]), PGD_OK);
    }
    assert_int_equal(pgd_async_drain(async, UINT64_C(60000000000)), PGD_OK);
    assert_int_equal(atomic_load(&h.n_done), N_REQUESTS);
    assert_int_equal(atomic_load(&h.n_error), 0);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        expect_right(r[i], i, &right);
        pgd_async_release(async, r[i]);
    }
    pgd_async_destroy(async);
    pgd_log_set(NULL, NULL, 0);
    const pgd_engine_stats now = stats(engine);
    assert_true(now.n_device_lost >= 3);
    assert_int_equal(atomic_load(&n_lines), now.n_device_lost);
    pgd_engine_destroy(engine);
}

static void test_nothing_leaks(void **state) {
    (void)state;
    answers right;
    right_answers("cpu", &right);
    const uint64_t live = pgd_mem_live();
    (void)lose_often("cpu", "head_sample", 5, 20, &right);
    assert_int_equal(pgd_mem_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_go_on_after_a_thousand_losses),
        cmocka_unit_test(test_weights_come_from_the_store),
        cmocka_unit_test(test_quantized_weights),
        cmocka_unit_test(test_standby),
        cmocka_unit_test(test_standby_when_nothing_gets_done),
        cmocka_unit_test(test_gone_for_good),
        cmocka_unit_test(test_never_gets_done),
        cmocka_unit_test(test_wrong_standby),
        cmocka_unit_test(test_a_hang_is_bounded),
        cmocka_unit_test(test_slow_is_not_lost),
        cmocka_unit_test(test_a_failing_op_is_computed_again),
        cmocka_unit_test(test_nan_ends_one_request),
        cmocka_unit_test(test_wrong_numbers_stay_in_their_row),
        cmocka_unit_test(test_with_a_thread),
        cmocka_unit_test(test_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
