// Steps sent before the tokens of the step before are seen: what comes of requests is the same,
// byte for byte, whatever ends, stops, fails or goes away while a step is on its way.
//
//   ahead_test [DEVICE]
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/inner.h"
#include "request.h"

static const char *device = "cpu";

#define N_REQUESTS 14
#define MAX_TOLD   4096

// What a request came to, as text, so that a difference can be read.
typedef struct told {
    char text[MAX_TOLD];
    size_t n;
} told;

static pgd_engine *open_ahead(const char *on_device, const char *mode, int32_t num_blocks) {
    const pgd_engine_options o = {
        .size = sizeof(o),
        .model = NANO,
        .device = on_device,
        .memory = "256MiB",
        .block_size = BLOCK,
        .num_blocks = num_blocks,
        .max_num_seqs = 5,
        .max_num_batched_tokens = 24,
        .max_model_len = 48,
        .threads = 1,
        .async_scheduling = mode,
    };
    pgd_engine *engine = NULL;
    if (pgd_engine_create(&o, &engine) != PGD_OK) {
        fail_msg("%s", pgd_last_error());
    }
    return engine;
}

static uint64_t n_ahead(const pgd_engine *e) {
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_engine_get_stats(e, &s);
    return s.n_steps_ahead;
}

static void tell(told *t, const pgd_request *r) {
    for (int32_t i = 0; i < r->n; i++) {
        const pgd_output o = choice(r, i);
        t->n += (size_t)snprintf(t->text + t->n, MAX_TOLD - t->n,
                                 "%s/%s/%d:", o.finish_reason != NULL ? o.finish_reason : "-",
                                 o.stop_text != NULL ? o.stop_text : "-", o.stop_id);
        for (int32_t k = 0; k < o.n_ids; k++) {
            const size_t at = (size_t)k * ((size_t)o.n_logprobs + 1);
            t->n += (size_t)snprintf(t->text + t->n, MAX_TOLD - t->n, " %d", o.ids[k]);
            if (o.n_logprobs >= 0) {
                t->n += (size_t)snprintf(t->text + t->n, MAX_TOLD - t->n, "(%a %d)",
                                         (double)o.logprobs[at], o.ranks[k]);
            }
        }
        t->n += (size_t)snprintf(t->text + t->n, MAX_TOLD - t->n, " \"%s\"\n", o.text);
        assert_true(t->n < MAX_TOLD);
    }
}

// Requests of every kind that ends, counts or looks back.
static pgd_request_desc kind_of(int32_t i) {
    static const char *const stops[] = {"the", ". "};
    static const int32_t stop_ids[] = {262, 13, 266, 11};
    static const char *const bad_words[] = {" once upon", "a", ". The"};
    pgd_request_desc d = desc_of();
    d.n_ids = 1 + (i * 5) % N_PROMPT;
    d.max_tokens = 3 + (i * 7) % N_NEW;
    d.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    d.has_seed = 1;
    d.seed = 77 + (uint64_t)i;
    d.ignore_eos = i % 4 != 1;
    if (i % 5 == 1) {
        d.stop = stops;
        d.n_stop = 2;
    }
    if (i % 5 == 2) {
        d.stop_ids = stop_ids;
        d.n_stop_ids = 4;
        d.min_tokens = 2;
    }
    if (i % 6 == 3) {
        d.repetition_penalty = 1.3f;
        d.frequency_penalty = 0.4f;
    }
    if (i % 7 == 4) {
        d.bad_words = bad_words;
        d.n_bad_words = 3;
    }
    d.n_logprobs = i % 4 == 0 ? 2 : -1;
    d.n_prompt_logprobs = i % 6 == 5 ? 1 : -1;
    d.n = i % 6 == 0 ? 3 : 1;
    return d;
}

static void run_kinds(const char *mode, int32_t num_blocks, told *t, uint64_t *out_ahead,
                      uint64_t *out_preempted) {
    pgd_engine *engine = open_ahead(device, mode, num_blocks);
    pgd_request *r[N_REQUESTS];
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const pgd_request_desc d = kind_of(i);
        r[i] = submit(engine, &d);
        if (i % 3 == 2) { // some come while others run
            assert_int_equal(pgd_engine_step(engine), PGD_OK);
        }
    }
    run(engine);
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    *out_preempted = info.n_preemptions;
    *out_ahead = n_ahead(engine);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        t[i].n = 0;
        tell(&t[i], r[i]);
    }
    assert_int_equal(engine->step_allocations, 0);
    pgd_engine_destroy(engine);
}

static told off[N_REQUESTS];
static told on[N_REQUESTS];

static void compare(int32_t num_blocks, int32_t wants_preemption) {
    uint64_t ahead = 0;
    uint64_t preempted = 0;
    run_kinds("off", num_blocks, off, &ahead, &preempted);
    assert_int_equal(ahead, 0);
    run_kinds("on", num_blocks, on, &ahead, &preempted);
    assert_true(ahead > 20);
    assert_true((preempted > 0) == wants_preemption);
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        assert_string_equal(on[i].text, off[i].text);
    }
}

static void test_all_kinds_are_the_same(void **state) {
    (void)state;
    compare(0, 0);
}

static void test_with_preemption_too(void **state) {
    (void)state;
    compare(16, 1);
}

// Tokens that a row reads have to be seen: no step runs ahead of them.
static void test_bad_words_wait(void **state) {
    (void)state;
    static const char *const words[] = {"of several tokens", "a"};
    for (int32_t k = 0; k < 2; k++) {
        pgd_engine *engine = open_ahead(device, "on", 0);
        pgd_request_desc d = desc_of();
        d.bad_words = &words[k];
        d.n_bad_words = 1;
        submit(engine, &d);
        run(engine);
        assert_true((n_ahead(engine) == 0) == (k == 0));
        pgd_engine_destroy(engine);
    }
}

// The host knows where an answer ends by length: no step is wasted on it.
static void test_length_wastes_no_row(void **state) {
    (void)state;
    uint64_t steps[2];
    for (int32_t k = 0; k < 2; k++) {
        pgd_engine *engine = open_ahead(device, k == 0 ? "off" : "on", 0);
        const pgd_request_desc d = desc_of();
        submit(engine, &d);
        run(engine);
        assert_int_equal(engine->n_flights, 0);
        steps[k] = engine->n_steps;
        pgd_engine_destroy(engine);
    }
    assert_true(steps[1] <= steps[0] + 1); // a plan that found nothing counts
}

// Cancelled, released and reset between steps, with a step on its way.
static void test_who_goes_while_a_step_is_on_its_way(void **state) {
    (void)state;
    pgd_engine *engine = open_ahead(device, "on", 0);
    const pgd_request_desc d = desc_of();
    for (int32_t n = 1; n < 9; n++) {
        pgd_request *stays = submit(engine, &d);
        pgd_request *cancelled = submit(engine, &d);
        pgd_request *released = submit(engine, &d);
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(pgd_engine_step(engine), PGD_OK);
        }
        assert_int_equal(engine->n_flights, 1);
        pgd_request_release(released);
        pgd_request_cancel(cancelled);
        const int32_t had = choice(cancelled, 0).n_ids;
        if (n % 2 == 0) {
            assert_int_equal(pgd_engine_reset_prefix_cache(engine, 1), PGD_OK);
        }
        run(engine);
        assert_string_equal(choice(cancelled, 0).finish_reason, "abort");
        assert_int_equal(choice(cancelled, 0).n_ids, had);
        told t = {{0}, 0};
        told again = {{0}, 0};
        tell(&t, stays);
        pgd_request *alone = submit(engine, &d);
        run(engine);
        tell(&again, alone);
        assert_string_equal(t.text, again.text);
    }
    pgd_engine_destroy(engine);
}

static void release_at_once(void *arg, pgd_request *r, const char *text, size_t len, int32_t done) {
    (void)text;
    (void)len;
    (void)done;
    int32_t *n = arg;
    if (++*n == 2) {
        pgd_request_release(r);
    }
}

static void test_a_callback_releases(void **state) {
    (void)state;
    pgd_engine *engine = open_ahead(device, "on", 0);
    for (int32_t i = 0; i < 6; i++) {
        int32_t n = 0;
        pgd_request_desc d = desc_of();
        d.on_text = release_at_once;
        d.arg = &n;
        submit(engine, &d);
        d = desc_of();
        pgd_request *other = submit(engine, &d);
        run(engine);
        assert_int_equal(n, 2);
        assert_int_equal(choice(other, 0).n_ids, N_NEW);
    }
    pgd_engine_destroy(engine);
}

// Blocks that only a step on its way has filled are found by the next prompt.
static void test_an_answer_is_found_in_the_cache(void **state) {
    (void)state;
    pgd_engine *engine = open_ahead(device, "on", 0);
    pgd_request_desc d = desc_of();
    pgd_request *first = submit(engine, &d);
    run(engine);
    int32_t ids[N_PROMPT + N_NEW];
    const pgd_output o = choice(first, 0);
    memcpy(ids, prompt, sizeof(prompt));
    memcpy(ids + N_PROMPT, o.ids, (size_t)o.n_ids * sizeof(*ids));
    d.ids = ids;
    d.n_ids = N_PROMPT + o.n_ids;
    d.max_tokens = 1;
    pgd_request *second = submit(engine, &d);
    run(engine);
    // all but the token that was drawn last, which nobody has computed; whole blocks
    assert_int_equal(choice(second, 0).n_cached, (N_PROMPT + N_NEW - 1) / BLOCK * BLOCK);
    pgd_engine_destroy(engine);
}

// A call that fails, and a device that is lost, with two steps on their way: the same tokens.
static void test_failures_cost_no_token(void **state) {
    (void)state;
    static const char *const faults[] = {
        "fault{op=gemm_add;fail_nth=%d}(%s)",
        "fault{op=copy;fail_nth=%d}(%s)",
        "fault{op=host_wait;fail_nth=%d;code=DEVICE_LOST}(%s)",
    };
    told whole = {{0}, 0};
    pgd_engine *engine = open_ahead(device, "off", 0);
    const pgd_request_desc d = desc_of();
    pgd_request *r = submit(engine, &d);
    run(engine);
    tell(&whole, r);
    pgd_engine_destroy(engine);
    uint64_t n_seen = 0;
    for (size_t k = 0; k < sizeof(faults) / sizeof(faults[0]); k++) {
        for (int32_t nth = 5; nth < 60; nth += 9) {
            char name[128];
            (void)snprintf(name, sizeof(name), faults[k], nth, device);
            const pgd_engine_options o = {.size = sizeof(o),
                                          .model = NANO,
                                          .device = name,
                                          .memory = "256MiB",
                                          .block_size = BLOCK,
                                          .max_num_seqs = 4,
                                          .max_model_len = 96,
                                          .threads = 1,
                                          .async_scheduling = "on"};
            if (pgd_engine_create(&o, &engine) != PGD_OK) {
                continue; // the fault came while it was loaded
            }
            told t = {{0}, 0};
            r = submit(engine, &d);
            run(engine);
            tell(&t, r);
            assert_string_equal(t.text, whole.text);
            n_seen += engine->stats.n_step_retries + engine->stats.n_device_lost;
            pgd_engine_destroy(engine);
        }
    }
    assert_true(n_seen > 4);
}

static void test_a_wrong_mode_is_named(void **state) {
    (void)state;
    const pgd_engine_options o = {
        .size = sizeof(o), .model = NANO, .device = device, .async_scheduling = "maybe"};
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(&o, &engine), PGD_INVALID);
    assert_non_null(strstr(pgd_last_error(), "maybe"));
}

int main(int argc, char **argv) {
    device = argc > 1 ? argv[1] : device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds_are_the_same),
        cmocka_unit_test(test_with_preemption_too),
        cmocka_unit_test(test_bad_words_wait),
        cmocka_unit_test(test_length_wastes_no_row),
        cmocka_unit_test(test_who_goes_while_a_step_is_on_its_way),
        cmocka_unit_test(test_a_callback_releases),
        cmocka_unit_test(test_an_answer_is_found_in_the_cache),
        cmocka_unit_test(test_failures_cost_no_token),
        cmocka_unit_test(test_a_wrong_mode_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
