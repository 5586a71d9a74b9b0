// The n-th allocation and the n-th call of the device fail, in every function of the public
// interface: who is not concerned finishes with the right tokens, and nothing leaks.
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/inner.h"

#define NANO       PGD_TEST_SOURCE_DIR "/models/nano"
#define N_REQUESTS 4
#define N_NEW      9
#define TOGETHER   2

// How far apart the places are that fail. The thread sanitizer looks for races, not for places, and
// an engine without a thread of its own has few to find.
#if defined(__SANITIZE_THREAD__)
#define EVERY 7
#else
#define EVERY 1
#endif

static pgd_engine *open_engine(void) {
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = NANO,
        .device = "cpu",
        .memory = "256MiB",
        .block_size = 4,
        .max_num_seqs = TOGETHER,
        .max_model_len = 64,
        .threads = 1,
    };
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(&o, &engine), PGD_OK);
    return engine;
}

// Everything a request can ask for.
static const char *const stops[] = {"\n\n\n", "zzz"};
static const char *const bad_words[] = {"dragon"};
static const int32_t bias_ids[] = {17, 18};
static const float bias_adds[] = {-1.0f, 1.0f};
static int32_t allowed[400];

static pgd_request_desc desc_of(int32_t i) {
    static const char *const prompts[N_REQUESTS] = {"Once upon a time there was", "The cat sat on",
                                                    "Once upon a time there were", "Why is it"};
    pgd_request_desc d = {
        .size = sizeof(d),
        .prompt = prompts[i],
        .max_tokens = N_NEW,
        .temperature = 0.7f,
        .has_seed = 1,
        .seed = 5 + (uint64_t)i,
        .ignore_eos = 1,
    };
    if (i % 2 == 0) {
        return d;
    }
    for (int32_t k = 0; k < 400; k++) {
        allowed[k] = 100 + k;
    }
    d.n = i == 1 ? 2 : 1;
    d.repetition_penalty = 1.1f;
    d.stop = stops;
    d.n_stop = 2;
    d.bad_words = bad_words;
    d.n_bad_words = 1;
    d.bias_ids = bias_ids;
    d.bias_adds = bias_adds;
    d.n_bias = 2;
    d.allowed_ids = allowed;
    d.n_allowed = 400;
    d.has_logprobs = 1;
    d.n_logprobs = 3;
    d.has_prompt_logprobs = 1;
    d.cache_salt = i == 3 ? "salt" : NULL;
    return d;
}

static pgd_output output(const pgd_request *r) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(r, &o);
    return o;
}

typedef struct answers {
    int32_t ids[N_REQUESTS][N_NEW];
} answers;

static void expect_right(const pgd_request *r, const int32_t *ids) {
    const pgd_output o = output(r);
    assert_string_equal(o.finish_reason, "length");
    assert_int_equal(o.n_ids, N_NEW);
    assert_memory_equal(o.ids, ids, N_NEW * sizeof(*ids));
}

static void right_answers(pgd_engine *engine, answers *out) {
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const pgd_request_desc d = desc_of(i);
        pgd_request *r = NULL;
        if (pgd_engine_generate(engine, &d, 1, NULL, NULL, &r) != PGD_OK) {
            fail_msg("%s", pgd_last_error());
        }
        memcpy(out->ids[i], output(r).ids, sizeof(out->ids[i]));
        pgd_request_release(r);
    }
}

// ---- calls of the device -----------------------------------------------------------------------

#define SENTENCE "the device did not feel like it"

static pgd_queue_table queue_calls; // as they were
static pgd_graph_table graph_calls;
// The step's call, the wait for what it has enqueued, the next step's call.
#define IN_A_ROW 3

static int64_t calls_left;
static int32_t faults_left; // from that call on so many fail

static pgd_status count_call(void) {
    if (--calls_left > 0 || faults_left == 0) {
        return PGD_OK;
    }
    faults_left--;
    return pgd_fail(PGD_INTERNAL, SENTENCE);
}

static pgd_status copy(const pgd_device *d, pgd_queue *q, const pgd_copy *list, uint32_t n) {
    PGD_TRY(count_call());
    return queue_calls.copy(d, q, list, n);
}

static pgd_status signal(const pgd_device *d, pgd_queue *q, uint64_t *out) {
    PGD_TRY(count_call());
    return queue_calls.signal(d, q, out);
}

static pgd_status host_wait(const pgd_device *d, pgd_queue *q, uint64_t value, uint64_t timeout) {
    PGD_TRY(count_call());
    return queue_calls.host_wait(d, q, value, timeout);
}

static pgd_status launch(const pgd_device *d, pgd_queue *q, pgd_graph *graph) {
    PGD_TRY(count_call());
    return graph_calls.launch(d, q, graph);
}

static void wrap_calls(pgd_engine *engine) {
    pgd_queue_table *queue = (pgd_queue_table *)(uintptr_t)engine->d->queue;
    pgd_graph_table *graph = (pgd_graph_table *)(uintptr_t)engine->d->graph;
    queue_calls = *queue;
    graph_calls = *graph;
    queue->copy = copy;
    queue->signal = signal;
    queue->host_wait = host_wait;
    graph->launch = launch;
}

static uint64_t n_retries(const pgd_engine *engine) {
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_engine_get_stats(engine, &s);
    return s.n_step_retries;
}

// All requests while n_faults calls from the n-th on fail; returns how many ended with that. One
// step that fails is made up for, a second one in a row is not.
static int32_t run_with_fault(pgd_engine *engine, int64_t n, int32_t n_faults,
                              const answers *right) {
    pgd_request *r[N_REQUESTS];
    int32_t n_wrong = 0;
    int32_t n_failed_steps = 0;
    const uint64_t before = n_retries(engine);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const pgd_request_desc d = desc_of(i);
        assert_int_equal(pgd_engine_submit(engine, &d, &r[i]), PGD_OK);
    }
    calls_left = n;
    faults_left = n_faults;
    while (pgd_engine_busy(engine) > 0) {
        if (pgd_engine_step(engine) != PGD_OK) {
            n_failed_steps++;
            assert_non_null(strstr(pgd_last_error(), SENTENCE));
        }
    }
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const pgd_output o = output(r[i]);
        if (strcmp(o.finish_reason, "error") == 0) {
            assert_non_null(strstr(o.error, SENTENCE));
            n_wrong++;
        } else {
            expect_right(r[i], right->ids[i]);
        }
        pgd_request_release(r[i]);
    }
    assert_int_equal(n_failed_steps, faults_left == 0 && n_faults == IN_A_ROW);
    assert_int_equal(n_retries(engine) - before, faults_left < n_faults);
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_engine_get_stats(engine, &s);
    assert_int_equal(s.blocks_used, 0);
    return n_wrong;
}

static void fail_each_call(int32_t n_faults) {
    pgd_engine *engine = open_engine();
    answers right;
    right_answers(engine, &right);
    wrap_calls(engine);
    uint64_t alive = pgd_mem_live();
    int64_t n = 1;
    for (; n < 10000; n += EVERY) {
        int32_t n_wrong = run_with_fault(engine, n, n_faults, &right);
        assert_int_equal(pgd_mem_live(), alive);
        if (calls_left > 0) {
            assert_int_equal(n_wrong, 0);
            break;
        }
        // The second of the two answers of a request may be the one that failed.
        assert_true(n_wrong <= (n_faults == 1 ? 0 : TOGETHER));
    }
    assert_true(n > 100 && n < 10000);
    pgd_engine_destroy(engine);
}

static void test_each_call_of_the_device(void **state) {
    (void)state;
    fail_each_call(1);
}

static void test_each_call_and_the_next_step(void **state) {
    (void)state;
    fail_each_call(IN_A_ROW);
}

// ---- allocations -------------------------------------------------------------------------------

// A call while another request runs; PGD_OUT_OF_MEMORY is the only failure allowed.
typedef pgd_status (*attempt)(pgd_engine *engine);

static pgd_status attempt_request(pgd_engine *engine) {
    const pgd_request_desc d = desc_of(1);
    pgd_request *r = NULL;
    PGD_TRY(pgd_engine_submit(engine, &d, &r));
    pgd_mem_fail_nth(0); // what comes later may hit the other request
    pgd_request_release(r);
    return PGD_OK;
}

static pgd_status attempt_chat(pgd_engine *engine) {
    char *text = NULL;
    PGD_TRY(pgd_engine_chat_prompt(
        engine, "[{\"role\":\"user\",\"content\":\"hi\"}]",
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]", &text));
    pgd_free(text);
    return PGD_OK;
}

static pgd_status attempt_text(pgd_engine *engine) {
    int32_t *ids = NULL;
    int32_t n = 0;
    char *text = NULL;
    PGD_TRY(pgd_engine_encode(engine, "The little dog", 0, 0, &ids, &n));
    pgd_status status = pgd_engine_decode(engine, ids, (size_t)n, 0, &text);
    pgd_free(ids);
    pgd_free(text);
    return status;
}

// Who runs is preempted and computed again.
static pgd_status attempt_reset(pgd_engine *engine) {
    return pgd_engine_reset_prefix_cache(engine, 1);
}

// On failure nothing is left, and no request either; another's answer goes on meanwhile.
static pgd_status attempt_batch(pgd_engine *engine) {
    pgd_request_desc d[2] = {desc_of(1), desc_of(2)};
    pgd_request *r[2] = {NULL, NULL};
    const pgd_status told = pgd_engine_generate(engine, d, 2, NULL, NULL, r);
    pgd_status status = told;
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(r[i] != NULL, told == PGD_OK);
        if (r[i] != NULL && strcmp(output(r[i]).finish_reason, "error") == 0) {
            status = PGD_OUT_OF_MEMORY; // while it ran: told by its own reason
        }
    }
    pgd_request_release(r[0]);
    pgd_request_release(r[1]);
    return status;
}

static void fail_each_allocation(attempt call, uint64_t least) {
    pgd_engine *engine = open_engine();
    answers right;
    right_answers(engine, &right);
    uint64_t alive = pgd_mem_live();
    uint64_t n = 1;
    for (;; n += EVERY) {
        const pgd_request_desc d = desc_of(0);
        pgd_request *r = NULL;
        assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
        pgd_mem_fail_nth(n);
        pgd_status status = call(engine);
        pgd_mem_fail_nth(0);
        assert_true(status == PGD_OK || status == PGD_OUT_OF_MEMORY);
        while (pgd_engine_busy(engine) > 0) {
            assert_int_equal(pgd_engine_step(engine), PGD_OK);
        }
        expect_right(r, right.ids[0]);
        pgd_request_release(r);
        assert_int_equal(pgd_mem_live(), alive);
        if (status == PGD_OK) {
            break;
        }
    }
    assert_true(n > least);
    pgd_engine_destroy(engine);
}

static void test_each_allocation_of_a_request(void **state) {
    (void)state;
    fail_each_allocation(attempt_request, 20);
}

static void test_each_allocation_of_a_chat_prompt(void **state) {
    (void)state;
    fail_each_allocation(attempt_chat, 3);
}

static void test_each_allocation_of_token_ids(void **state) {
    (void)state;
    fail_each_allocation(attempt_text, 2);
}

static void test_each_allocation_of_a_batch(void **state) {
    (void)state;
    fail_each_allocation(attempt_batch, 20);
}

static void test_each_allocation_of_a_reset(void **state) {
    (void)state;
    fail_each_allocation(attempt_reset, 0);
}

// From submit to the end: whatever fails while a request runs ends that request alone.
static void test_each_allocation_while_requests_run(void **state) {
    (void)state;
    pgd_engine *engine = open_engine();
    answers right;
    right_answers(engine, &right);
    uint64_t alive = pgd_mem_live();
    int32_t n_wrong = 1;
    uint64_t n = 1;
    for (; n_wrong > 0; n += EVERY) {
        pgd_request *r[2];
        for (int32_t i = 0; i < 2; i++) {
            const pgd_request_desc d = desc_of(2 + i);
            assert_int_equal(pgd_engine_submit(engine, &d, &r[i]), PGD_OK);
        }
        pgd_mem_fail_nth(n);
        n_wrong = 0;
        while (pgd_engine_busy(engine) > 0) {
            (void)!pgd_engine_step(engine);
        }
        pgd_mem_fail_nth(0);
        for (int32_t i = 0; i < 2; i++) {
            const pgd_output o = output(r[i]);
            for (int32_t k = 0; k < o.n_ids && o.n_logprobs >= 0; k++) {
                assert_true(o.ranks[k] >= 1 && o.logprobs[4 * k] <= 0.0f); // a row a token
            }
            if (strcmp(output(r[i]).finish_reason, "error") == 0) {
                n_wrong++;
            } else {
                expect_right(r[i], right.ids[2 + i]);
            }
            pgd_request_release(r[i]);
        }
        assert_true(n_wrong <= 1);
        assert_int_equal(pgd_mem_live(), alive);
    }
    assert_true(n > 2);
    pgd_engine_destroy(engine);
}

// ---- the engine on its own thread --------------------------------------------------------------

static void on_delta(void *arg, pgd_request *request, const pgd_delta *d) {
    (void)request;
    atomic_fetch_add((_Atomic int32_t *)arg, d->done);
}

static pgd_status submit_and_wait(pgd_async *async, int32_t which) {
    _Atomic int32_t n_done = 0;
    pgd_request_desc d = desc_of(which);
    pgd_request *r = NULL;
    d.on_delta = on_delta;
    d.arg = &n_done;
    PGD_TRY(pgd_async_submit(async, &d, &r));
    while (atomic_load(&n_done) == 0) {
        pgd_clock_sleep_ns(20000);
    }
    pgd_status status = strcmp(output(r).finish_reason, "error") == 0 ? PGD_OUT_OF_MEMORY : PGD_OK;
    pgd_async_release(async, r);
    return status;
}

static pgd_status ask(void *arg, pgd_engine *engine) {
    (void)arg;
    return attempt_text(engine);
}

static pgd_status live(pgd_engine *engine) {
    pgd_async *async = NULL;
    PGD_TRY(pgd_async_create(engine, &async));
    pgd_status status = submit_and_wait(async, 1);
    status = status == PGD_OK ? pgd_async_call(async, ask, NULL) : status;
    pgd_mem_fail_nth(0);
    assert_int_equal(submit_and_wait(async, 0), PGD_OK);
    pgd_async_destroy(async);
    return status;
}

static void test_each_allocation_with_a_thread(void **state) {
    (void)state;
    pgd_engine *engine = open_engine();
    assert_int_equal(live(engine), PGD_OK);
    uint64_t alive = pgd_mem_live();
    uint64_t n = 1;
    for (;; n++) {
        pgd_mem_fail_nth(n);
        pgd_status status = live(engine);
        pgd_mem_fail_nth(0);
        assert_int_equal(pgd_mem_live(), alive);
        if (status == PGD_OK) {
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
    }
    assert_true(n > 20);
    pgd_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_of_the_device),
        cmocka_unit_test(test_each_call_and_the_next_step),
        cmocka_unit_test(test_each_allocation_of_a_request),
        cmocka_unit_test(test_each_allocation_of_a_chat_prompt),
        cmocka_unit_test(test_each_allocation_of_token_ids),
        cmocka_unit_test(test_each_allocation_of_a_batch),
        cmocka_unit_test(test_each_allocation_of_a_reset),
        cmocka_unit_test(test_each_allocation_while_requests_run),
        cmocka_unit_test(test_each_allocation_with_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
