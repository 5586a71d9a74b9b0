// Every function of <pagoda/pagoda.h> while failures are armed. The n-th call of the device fails,
// from opening it to the end of an engine on its own thread: what cannot be made up for is told,
// everything else gets its tokens, nothing leaks. Functions that return no status need no memory.
// The n-th allocation is in fault_test.c and engine_test.c.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "request.h"

#define N_ANSWER 6

static pgd_status open_device(const char *device, pgd_engine **out) {
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = MODEL,
        .device = device,
        .memory = "64MiB",
        .block_size = BLOCK,
        .max_num_seqs = 4,
        .max_model_len = 64,
        .threads = 1,
        .keep_logits = 1,
    };
    return pgd_engine_create(&o, out);
}

// Request i begins with another token, and goes on as all do.
static pgd_request_desc short_desc(int32_t i, int32_t *ids) {
    pgd_request_desc d = desc_of();
    memcpy(ids, prompt, sizeof(prompt));
    ids[0] += i;
    d.ids = ids;
    d.max_tokens = N_ANSWER;
    return d;
}

typedef struct answers {
    int32_t ids[3][N_ANSWER];
} answers;

static void take_answer(const pgd_request *r, int32_t i, answers *out) {
    pgd_output o = {.size = sizeof(o)};
    pgd_request_output(r, &o);
    assert_string_equal(o.finish_reason, "length");
    assert_int_equal(o.n_ids, N_ANSWER);
    memcpy(out->ids[i], o.ids, sizeof(out->ids[i]));
}

// Request 0 runs while 1 and 2 are a batch, and is preempted by a reset on the way.
static pgd_status run_together(pgd_engine *engine, answers *out) {
    int32_t ids[3][N_PROMPT];
    pgd_request *r[3] = {NULL, NULL, NULL};
    pgd_request_desc d[3];
    for (int32_t i = 0; i < 3; i++) {
        d[i] = short_desc(i, ids[i]);
    }
    PGD_TRY(pgd_engine_submit(engine, &d[0], &r[0]));
    pgd_status status = pgd_engine_step(engine);
    status = status == PGD_OK ? pgd_engine_reset_prefix_cache(engine, 1) : status;
    if (status == PGD_OK) {
        status = pgd_engine_generate(engine, &d[1], 2, NULL, NULL, &r[1]);
    }
    while (status == PGD_OK && pgd_engine_busy(engine) > 0) {
        status = pgd_engine_step(engine);
    }
    for (int32_t i = 0; i < 3; i++) {
        if (status == PGD_OK) {
            take_answer(r[i], i, out);
        }
        pgd_request_release(r[i]);
    }
    return status;
}

static void on_delta(void *arg, pgd_request *request, const pgd_delta *d) {
    (void)request;
    atomic_fetch_add((_Atomic int32_t *)arg, d->done);
}

static pgd_status stop_at_once(void *arg, pgd_engine *engine) {
    (void)arg;
    return pgd_engine_reset_prefix_cache(engine, 1);
}

// The same on a thread of its own; the fourth request is cancelled.
static pgd_status run_on_thread(pgd_engine *engine, answers *out) {
    int32_t ids[4][N_PROMPT];
    pgd_request *r[4];
    pgd_async *async = NULL;
    pgd_engine_stats s = {.size = sizeof(s)};
    _Atomic int32_t n_done = 0;
    PGD_TRY(pgd_async_create(engine, &async));
    for (int32_t i = 0; i < 4; i++) {
        pgd_request_desc d = short_desc(i, ids[i]);
        d.on_delta = on_delta;
        d.arg = &n_done;
        assert_int_equal(pgd_async_submit(async, &d, &r[i]), PGD_OK);
    }
    pgd_async_cancel(async, r[3]);
    const pgd_status status = pgd_async_call(async, stop_at_once, NULL);
    assert_int_equal(pgd_async_drain(async, UINT64_MAX), PGD_OK);
    pgd_async_get_stats(async, &s);
    assert_int_equal(n_done, 4);
    for (int32_t i = 0; i < 3; i++) {
        take_answer(r[i], i, out);
    }
    for (int32_t i = 0; i < 4; i++) {
        pgd_async_release(async, r[i]);
    }
    pgd_async_destroy(async);
    return status;
}

// 1: the n-th call of the device failed, and was told or made up for. 0: there are fewer.
static int32_t live(int32_t n, const answers *right) {
    char device[96];
    (void)snprintf(device, sizeof(device), "fault{op=all;fail_nth=%d}(null{tokens=hash})", n);
    pgd_engine *engine = NULL;
    const pgd_status opened = open_device(device, &engine);
    if (opened != PGD_OK) {
        assert_int_equal(opened, PGD_INTERNAL);
        assert_null(engine);
        assert_non_null(strstr(pgd_last_error(), "fault"));
        return 1;
    }
    answers got;
    assert_int_equal(run_together(engine, &got), PGD_OK);
    assert_memory_equal(&got, right, sizeof(got));
    assert_int_equal(run_on_thread(engine, &got), PGD_OK);
    assert_memory_equal(&got, right, sizeof(got));
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_engine_get_stats(engine, &s);
    assert_int_equal(s.blocks_used, 0);
    assert_int_equal(s.n_error, 0);
    pgd_engine_destroy(engine);
    return s.n_step_retries > 0;
}

static void test_each_call_of_the_device_in_a_life(void **state) {
    (void)state;
    answers right;
    pgd_engine *engine = NULL;
    assert_int_equal(open_device("null{tokens=hash}", &engine), PGD_OK);
    assert_int_equal(run_together(engine, &right), PGD_OK);
    pgd_engine_destroy(engine);
    (void)live(1, &right);
    const uint64_t alive = pgd_mem_live();
    int32_t n_missed = 0; // how many calls the thread makes depends on how requests meet
    int32_t n_hit = 0;
    for (int32_t n = 1; n_missed < 20; n++) {
        const int32_t hit = live(n, &right);
        n_missed = hit ? 0 : n_missed + 1;
        n_hit += hit;
        assert_int_equal(pgd_mem_live(), alive);
    }
    assert_true(n_hit > 200);
}

// ---- functions without a status ----------------------------------------------------------------

static void read_engine(pgd_engine *engine, pgd_request *r) {
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_request_desc d = {.size = sizeof(d)};
    pgd_output o = {.size = sizeof(o)};
    pgd_engine_get_info(engine, &info);
    assert_true(info.vocab_size > 0);
    pgd_engine_get_stats(engine, &s);
    assert_int_equal(s.n_running, 1);
    assert_int_equal(pgd_engine_busy(engine), 1);
    pgd_engine_defaults(engine, &d);
    assert_true(d.temperature >= 0.0f);
    pgd_request_output(r, &o);
    assert_int_equal(o.n_ids, 1);
    pgd_request_choice(r, 0, &o);
    assert_null(o.finish_reason);
    assert_non_null(pgd_request_logits(r));
    assert_string_equal(pgd_status_name(PGD_OUT_OF_MEMORY), "OUT_OF_MEMORY");
    assert_true(strlen(pgd_version()) > 0);
    assert_non_null(pgd_last_error());
}

static pgd_status nothing(void *arg, pgd_engine *engine) {
    (void)arg;
    (void)engine;
    return PGD_OK;
}

// The armed failure is still to come behind each of them.
static void test_what_returns_no_status_needs_no_memory(void **state) {
    (void)state;
    int32_t ids[N_PROMPT];
    const pgd_request_desc d = short_desc(0, ids);
    pgd_engine *engine = NULL;
    assert_int_equal(open_device("null{tokens=hash}", &engine), PGD_OK);
    pgd_request *r = submit(engine, &d);
    assert_int_equal(pgd_engine_step(engine), PGD_OK);
    pgd_mem_fail_nth(1);
    read_engine(engine, r);
    assert_int_equal(pgd_engine_step(engine), PGD_OK);
    pgd_request_cancel(r);
    assert_int_equal(pgd_engine_step(engine), PGD_OK);
    assert_int_equal(pgd_engine_busy(engine), 0);
    pgd_request_release(r);
    pgd_request_release(NULL);
    pgd_engine_destroy(NULL);
    pgd_free(NULL);
    assert_true(pgd_mem_is_armed());
    pgd_mem_fail_nth(0);

    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_async *async = NULL;
    assert_int_equal(pgd_async_create(engine, &async), PGD_OK);
    assert_int_equal(pgd_async_submit(async, &d, &r), PGD_OK);
    pgd_mem_fail_nth(1);
    pgd_async_cancel(async, r);
    assert_int_equal(pgd_async_drain(async, UINT64_MAX), PGD_OK);
    for (int32_t i = 0; i < 2; i++) { // behind the second one the thread has published its numbers
        assert_int_equal(pgd_async_call(async, nothing, NULL), PGD_OK);
    }
    pgd_async_get_stats(async, &s);
    assert_int_equal(s.n_running, 0);
    assert_int_equal(pgd_async_step_ns(async), 0);
    pgd_async_release(async, r);
    pgd_async_destroy(async);
    pgd_async_destroy(NULL);
    assert_true(pgd_mem_is_armed());
    pgd_mem_fail_nth(0);
    pgd_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_of_the_device_in_a_life),
        cmocka_unit_test(test_what_returns_no_status_needs_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
