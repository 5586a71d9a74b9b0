// The engine on its own thread: every request ends once, whoever submits, cancels, releases and
// looks on meanwhile; an idle engine takes no processor time.
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <pagoda/pagoda.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/thread.h"

#define NANO PGD_TEST_SOURCE_DIR "/models/nano"

static pgd_engine *open_engine(const char *device) {
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = NANO,
        .device = device,
        .memory = "256MiB",
        .max_num_seqs = 8,
        .max_model_len = 256,
        .threads = 1,
        .scheduling_policy = "priority",
    };
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(&o, &engine), PGD_OK);
    return engine;
}

static pgd_async *open_async(pgd_engine *engine) {
    pgd_async *async = NULL;
    assert_int_equal(pgd_async_create(engine, &async), PGD_OK);
    return async;
}

// ---- what a request hears ----------------------------------------------------------------------

typedef struct heard {
    char text[2048];
    size_t n_text;
    int32_t n_ids;
    int32_t n_output;
    int32_t is_abort;
    _Atomic int32_t n_done;
} heard;

static void on_delta(void *arg, pgd_request *request, const pgd_delta *d) {
    heard *h = arg;
    (void)request;
    assert_true(h->n_text + d->text_len < sizeof(h->text));
    memcpy(h->text + h->n_text, d->text, d->text_len);
    h->n_text += d->text_len;
    h->n_ids += d->n_ids;
    h->n_output = d->n_output;
    if (d->done) {
        h->is_abort = strcmp(d->finish_reason, "abort") == 0;
        atomic_fetch_add(&h->n_done, 1);
    }
}

static pgd_request_desc desc_of(heard *h, const char *prompt, int32_t max_tokens) {
    return (pgd_request_desc){
        .size = sizeof(pgd_request_desc),
        .prompt = prompt,
        .max_tokens = max_tokens,
        .ignore_eos = 1,
        .on_delta = on_delta,
        .arg = h,
    };
}

static void wait_done(const heard *h) {
    while (atomic_load(&h->n_done) == 0) {
        pgd_clock_sleep_ns(100000);
    }
}

// ---- tests -------------------------------------------------------------------------------------

static void test_the_same_text_as_by_steps(void **state) {
    (void)state;
    pgd_engine *engine = open_engine("cpu");
    heard by_steps = {.n_done = 0};
    heard by_thread = {.n_done = 0};
    pgd_request_desc d = desc_of(&by_steps, "Once upon a time", 32);
    pgd_request *r = NULL;
    assert_int_equal(pgd_engine_submit(engine, &d, &r), PGD_OK);
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
    }
    pgd_request_release(r);
    pgd_async *async = open_async(engine);
    d.arg = &by_thread;
    assert_int_equal(pgd_async_submit(async, &d, &r), PGD_OK);
    wait_done(&by_thread);
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(r, &o);
    assert_string_equal(o.finish_reason, "length");
    assert_int_equal(o.text_len, by_thread.n_text);
    pgd_async_release(async, r);
    assert_int_equal(by_thread.n_ids, 32);
    assert_int_equal(by_thread.n_output, 32);
    assert_int_equal(by_thread.n_text, by_steps.n_text);
    assert_memory_equal(by_thread.text, by_steps.text, by_steps.n_text);
    pgd_async_destroy(async);
    pgd_engine_destroy(engine);
}

#define N_THREADS  4
#define N_REQUESTS 60

typedef struct client {
    pgd_async *async;
    uint64_t rng;
    pgd_os_thread thread;
    heard heard[N_REQUESTS];
    int32_t wanted[N_REQUESTS];
    int32_t cancelled[N_REQUESTS];
} client;

static pgd_status count_steps(void *arg, pgd_engine *engine) {
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    *(uint64_t *)arg = info.n_steps;
    return PGD_OK;
}

static void *live(void *arg) {
    client *c = arg;
    pgd_request *requests[N_REQUESTS];
    for (int i = 0; i < N_REQUESTS; i++) {
        c->wanted[i] = 1 + (int32_t)(pgd_rng_next(&c->rng) % 40);
        pgd_request_desc d = desc_of(&c->heard[i], "Tell me a story.", c->wanted[i]);
        d.priority = (int32_t)(pgd_rng_next(&c->rng) % 3);
        d.n = 1 + (int32_t)(pgd_rng_next(&c->rng) % 2);
        c->wanted[i] *= d.n;
        pgd_status status = pgd_async_submit(c->async, &d, &requests[i]);
        assert_int_equal(status, PGD_OK);
        switch (pgd_rng_next(&c->rng) % 6) {
        case 0:
            c->cancelled[i] = 1;
            pgd_async_cancel(c->async, requests[i]);
            pgd_async_cancel(c->async, requests[i]);
            break;
        case 1: // gives up the handle at once
            c->cancelled[i] = 1;
            pgd_async_release(c->async, requests[i]);
            requests[i] = NULL;
            break;
        case 2: {
            uint64_t n_steps = 0;
            assert_int_equal(pgd_async_call(c->async, count_steps, &n_steps), PGD_OK);
            pgd_engine_stats s = {.size = sizeof(s)};
            pgd_async_get_stats(c->async, &s);
            assert_true(s.n_steps + 1 >= n_steps);
            break;
        }
        case 3: wait_done(&c->heard[i]); break;
        default: break;
        }
    }
    for (int i = 0; i < N_REQUESTS; i++) {
        wait_done(&c->heard[i]);
        pgd_async_release(c->async, requests[i]);
    }
    return NULL;
}

static void test_many_threads(void **state) {
    (void)state;
    uint64_t alive = pgd_mem_live();
    pgd_engine *engine = open_engine("null{step_us=20}");
    pgd_async *async = open_async(engine);
    client *clients = calloc(N_THREADS, sizeof(*clients));
    for (uint64_t i = 0; i < N_THREADS; i++) {
        clients[i].async = async;
        clients[i].rng = i + 1;
        assert_int_equal(pgd_os_thread_start("client", live, &clients[i], &clients[i].thread),
                         PGD_OK);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pgd_os_thread_join(clients[i].thread);
    }
    assert_int_equal(pgd_async_drain(async, UINT64_MAX), PGD_OK);
    uint64_t n_answers = 0;
    for (int t = 0; t < N_THREADS; t++) {
        for (int i = 0; i < N_REQUESTS; i++) {
            const heard *h = &clients[t].heard[i];
            assert_int_equal(h->n_done, 1);
            assert_true(h->is_abort ? clients[t].cancelled[i] : h->n_ids == clients[t].wanted[i]);
        }
    }
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_async_get_stats(async, &s);
    n_answers = s.n_length + s.n_abort;
    assert_true(n_answers >= N_THREADS * N_REQUESTS);
    assert_int_equal(s.n_error + s.n_stop, 0);
    assert_int_equal(s.n_running + s.n_waiting + s.blocks_used, 0);
    pgd_async_destroy(async);
    pgd_engine_destroy(engine);
    free(clients);
    assert_int_equal(pgd_mem_live(), alive);
}

static void test_drain_and_destroy(void **state) {
    (void)state;
    pgd_engine *engine = open_engine("null{step_us=2000}");
    pgd_async *async = open_async(engine);
    heard h[3] = {{.n_done = 0}, {.n_done = 0}, {.n_done = 0}};
    pgd_request *r[3] = {0};
    for (int i = 0; i < 3; i++) {
        const pgd_request_desc d = desc_of(&h[i], "go on", 200);
        assert_int_equal(pgd_async_submit(async, &d, &r[i]), PGD_OK);
    }
    assert_int_equal(pgd_async_drain(async, UINT64_C(10000000)), PGD_TIMEOUT);
    pgd_request *refused = NULL;
    const pgd_request_desc d = desc_of(&h[0], "too late", 1);
    assert_int_equal(pgd_async_submit(async, &d, &refused), PGD_UNAVAILABLE);
    assert_null(refused);
    pgd_async_release(async, r[0]);
    pgd_async_destroy(async);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(h[i].n_done, 1);
        assert_true(h[i].is_abort);
    }
    pgd_output o = {.size = sizeof(o)}; // what was not released is the engine's again
    pgd_request_output(r[1], &o);
    assert_string_equal(o.finish_reason, "abort");
    pgd_request_release(r[1]);
    pgd_engine_destroy(engine);
}

static pgd_status fail_here(void *arg, pgd_engine *engine) {
    (void)arg;
    return pgd_engine_reset_prefix_cache(engine, 0);
}

static pgd_status reset(void *arg, pgd_engine *engine) {
    (void)arg;
    return pgd_engine_reset_prefix_cache(engine, 1);
}

static void test_calls_bring_their_sentence(void **state) {
    (void)state;
    pgd_engine *engine = open_engine("null{step_us=1000}");
    pgd_async *async = open_async(engine);
    pgd_engine_stats s = {.size = sizeof(s)};
    heard h = {.n_done = 0};
    pgd_request *r = NULL;
    const pgd_request_desc d = desc_of(&h, "go on", 100);
    assert_int_equal(pgd_async_submit(async, &d, &r), PGD_OK);
    while (s.n_generated_tokens == 0) {
        pgd_async_get_stats(async, &s);
    }
    pgd_async_get_stats(async, &s); // each number for itself: this one was perhaps older
    assert_int_equal(s.n_running, 1);
    assert_true(s.blocks_used > 0);
    assert_int_equal(pgd_async_call(async, fail_here, NULL), PGD_PRECONDITION);
    assert_non_null(strstr(pgd_last_error(), "1 running"));
    assert_int_equal(pgd_async_call(async, reset, NULL), PGD_OK);
    wait_done(&h); // preempted, computed again, ended
    assert_int_equal(h.n_ids, 100);
    pgd_async_release(async, r);
    pgd_async_destroy(async);
    pgd_engine_destroy(engine);
}

static double process_seconds(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static void test_an_idle_engine_sleeps(void **state) {
    (void)state;
    pgd_engine *engine = open_engine("null");
    pgd_async *async = open_async(engine);
    heard h = {.n_done = 0};
    pgd_request *r = NULL;
    const pgd_request_desc d = desc_of(&h, "go on", 5);
    assert_int_equal(pgd_async_submit(async, &d, &r), PGD_OK);
    wait_done(&h);
    pgd_async_release(async, r);
    pgd_clock_sleep_ns(UINT64_C(20000000));
    double before = process_seconds();
    pgd_clock_sleep_ns(UINT64_C(500000000));
    double used = process_seconds() - before;
    if (used > 0.005) {
        fail_msg("%.1f ms of processor time in 500 ms", used * 1e3);
    }
    pgd_async_destroy(async);
    pgd_engine_destroy(engine);
}

static void test_wrong_requests_are_refused_at_once(void **state) {
    (void)state;
    pgd_engine *engine = open_engine("null");
    pgd_async *async = open_async(engine);
    pgd_async *second = NULL;
    heard h = {.n_done = 0};
    pgd_request *r = NULL;
    pgd_request_desc d = desc_of(&h, "go on", 5);
    d.n = 1000;
    assert_int_equal(pgd_async_submit(async, &d, &r), PGD_OUT_OF_RANGE);
    assert_non_null(strstr(pgd_last_error(), "n is 1000"));
    assert_int_equal(pgd_async_create(engine, &second), PGD_PRECONDITION);
    assert_int_equal(pgd_async_drain(async, UINT64_MAX), PGD_OK);
    pgd_async_destroy(async);
    pgd_async_destroy(NULL);
    assert_int_equal(h.n_done, 0);
    pgd_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_text_as_by_steps),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_drain_and_destroy),
        cmocka_unit_test(test_calls_bring_their_sentence),
        cmocka_unit_test(test_an_idle_engine_sleeps),
        cmocka_unit_test(test_wrong_requests_are_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
