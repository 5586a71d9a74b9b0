// Requests as a whole: several answers, cancelling, callbacks, text without a request, the null
// device, and wrong input by name.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/inner.h"
#include "request.h"

// ---- several answers ---------------------------------------------------------------------------

static void test_answers_are_those_of_single_requests(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    pgd_request_desc d = desc_of();
    d.temperature = 1.2f;
    d.presence_penalty = 0.5f;
    d.has_seed = 1;
    d.seed = 40;
    d.n = 6; // more than run at once
    d.has_prompt_logprobs = 1;
    pgd_request *all = submit(engine, &d);
    assert_int_equal(choice(all, 0).n_running, 6);
    run(engine);
    d.n = 1;
    d.has_prompt_logprobs = 0;
    for (int32_t i = 0; i < 6; i++) {
        d.seed = 40 + (uint64_t)i;
        pgd_request *one = submit(engine, &d);
        run(engine);
        const pgd_output a = choice(all, i);
        const pgd_output b = choice(one, 0);
        assert_int_equal(a.index, i);
        assert_int_equal(a.n, 6);
        assert_int_equal(a.n_running, 0);
        assert_int_equal(a.n_ids, N_NEW);
        assert_memory_equal(a.ids, b.ids, N_NEW * sizeof(int32_t));
        // Full blocks of the prompt are held together; the scored one computes it.
        assert_int_equal(a.n_cached, i == 0 ? 0 : (N_PROMPT - 1) / BLOCK * BLOCK);
        assert_int_equal(a.n_prompt_scored, N_PROMPT);
        pgd_request_release(one);
    }
    pgd_request_release(all);
    pgd_engine_destroy(engine);
}

static void test_cancelling_ends_all_answers(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    pgd_request_desc d = desc_of();
    d.n = 5;
    pgd_request *r = submit(engine, &d);
    assert_int_equal(pgd_engine_busy(engine), 1);
    assert_int_equal(pgd_engine_step(engine), PGD_OK);
    pgd_request_cancel(r);
    run(engine);
    for (int32_t i = 0; i < 5; i++) {
        assert_string_equal(choice(r, i).finish_reason, "abort");
    }
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_engine_get_stats(engine, &s);
    assert_int_equal(s.n_abort, 5);
    assert_int_equal(s.blocks_used, 0);
    pgd_engine_destroy(engine);
}

// ---- callbacks ---------------------------------------------------------------------------------

typedef struct chain {
    pgd_engine *engine;
    pgd_request *other; // released by a callback of another request
    int32_t n_ended;
    int32_t n_left;
} chain;

// At its end a request submits the next one and releases itself, and once another that runs.
static void on_link(void *arg, pgd_request *request, const pgd_delta *d) {
    chain *c = arg;
    if (!d->done) {
        return;
    }
    c->n_ended++;
    if (c->n_left-- > 0) {
        pgd_request_desc next = desc_of();
        next.max_tokens = 2;
        next.on_delta = on_link;
        next.arg = c;
        (void)submit(c->engine, &next);
    }
    pgd_request_release(request);
    pgd_request_release(request); // once more is harmless while the step runs
    pgd_request_release(c->other);
    c->other = NULL;
}

static void test_callbacks_may_submit_and_release(void **state) {
    (void)state;
    uint64_t before = pgd_mem_live();
    chain c = {.engine = open_engine(MODEL, "cpu"), .n_left = 5};
    uint64_t alive = pgd_mem_live();
    pgd_request_desc d = desc_of();
    c.other = submit(c.engine, &d);
    d.max_tokens = 2;
    d.on_delta = on_link;
    d.arg = &c;
    (void)submit(c.engine, &d);
    run(c.engine);
    assert_int_equal(c.n_ended, 6);
    assert_int_equal(pgd_mem_live(), alive);
    pgd_engine_stats s = {.size = sizeof(s)};
    pgd_engine_get_stats(c.engine, &s);
    assert_int_equal(s.n_length, 6);
    assert_int_equal(s.n_running + s.n_waiting + s.blocks_used, 0);
    pgd_engine_destroy(c.engine);
    assert_int_equal(pgd_mem_live(), before);
}

// ---- text without a request --------------------------------------------------------------------

static void test_encode_and_decode(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(NANO, "null");
    const char *text = "Ada has 12 apples; \xc3\xa9\xe4\xb8\xad.";
    int32_t *ids = NULL;
    int32_t n = 0;
    char *back = NULL;
    assert_int_equal(pgd_engine_encode(engine, text, 0, 1, &ids, &n), PGD_OK);
    assert_true(n > 5);
    assert_int_equal(pgd_engine_decode(engine, ids, (size_t)n, 0, &back), PGD_OK);
    assert_string_equal(back, text);
    pgd_free(back);
    pgd_free(ids);
    assert_int_equal(pgd_engine_encode(engine, text, 3, 1, &ids, &n), PGD_OK);
    assert_int_equal(pgd_engine_decode(engine, ids, (size_t)n, 0, &back), PGD_OK);
    assert_string_equal(back, "Ada");
    pgd_free(back);
    pgd_free(ids);
    assert_int_equal(pgd_engine_decode(engine, NULL, 0, 0, &back), PGD_OK);
    assert_string_equal(back, "");
    pgd_free(back);
    pgd_engine_destroy(engine);
    engine = open_engine(MODEL, "null");
    assert_int_equal(pgd_engine_encode(engine, text, 0, 1, &ids, &n), PGD_NOT_FOUND);
    assert_null(ids);
    assert_int_equal(pgd_engine_decode(engine, prompt, 1, 0, &back), PGD_NOT_FOUND);
    assert_null(back);
    pgd_engine_destroy(engine);
}

// ---- the null device ---------------------------------------------------------------------------

static void test_the_null_device_is_certain(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(NANO, "null{tokens=words}");
    pgd_request_desc d = desc_of();
    d.has_logprobs = 1;
    d.n_logprobs = 2;
    d.has_prompt_logprobs = 1;
    d.n = 2;
    pgd_request *r = submit(engine, &d);
    run(engine);
    for (int32_t k = 0; k < 2; k++) {
        const pgd_output o = choice(r, k);
        assert_int_equal(o.n_ids, N_NEW);
        for (int32_t i = 0; i < N_NEW; i++) {
            assert_true(o.logprobs[3 * i] == 0.0f && o.logprobs[3 * i + 1] == 0.0f);
            assert_true(isinf(o.logprobs[3 * i + 2]));
            assert_int_equal(o.logprob_ids[3 * i], o.ids[i]);
            assert_int_equal(o.ranks[i], 1);
        }
        assert_int_equal(o.n_prompt_scored, N_PROMPT);
        assert_int_equal(o.prompt_logprob_ids[N_PROMPT - 1], prompt[N_PROMPT - 1]);
    }
    pgd_engine_destroy(engine);
}

// ---- wrong input -------------------------------------------------------------------------------

static void refuse(pgd_engine *engine, const pgd_request_desc *d, pgd_status code,
                   const char *words) {
    pgd_request *r = NULL;
    assert_int_equal(pgd_engine_submit(engine, d, &r), code);
    assert_null(r);
    if (strstr(pgd_last_error(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", pgd_last_error(), words);
    }
}

static void test_wrong_numbers_are_named(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    static const struct {
        size_t offset;
        float value;
        const char *words;
    } floats[] = {
        {offsetof(pgd_request_desc, repetition_penalty), -1.0f, "repetition_penalty is -1"},
        {offsetof(pgd_request_desc, repetition_penalty), INFINITY, "repetition_penalty is inf"},
        {offsetof(pgd_request_desc, presence_penalty), 2.5f, "presence_penalty is 2.5; -2 to 2"},
        {offsetof(pgd_request_desc, frequency_penalty), NAN, "frequency_penalty is"},
    };
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        pgd_request_desc d = desc_of();
        memcpy((unsigned char *)&d + floats[i].offset, &floats[i].value, sizeof(float));
        refuse(engine, &d, PGD_OUT_OF_RANGE, floats[i].words);
    }
    static const struct {
        size_t offset;
        int32_t value;
        const char *words;
    } ints[] = {
        {offsetof(pgd_request_desc, n), 129, "n is 129; 1 to 128"},
        {offsetof(pgd_request_desc, n), -1, "n is -1"},
        {offsetof(pgd_request_desc, n_bias), 1025, "n_bias is 1025; 0 to 1024"},
        {offsetof(pgd_request_desc, n_stop_ids), 65, "n_stop_ids is 65; 0 to 64"},
        {offsetof(pgd_request_desc, n_bad_words), 65, "n_bad_words is 65; 0 to 64"},
        {offsetof(pgd_request_desc, n_logprobs), 21, "n_logprobs is 21; 0 to 20"},
        {offsetof(pgd_request_desc, n_logprobs), -1, "n_logprobs is -1, the whole vocabulary (256"},
        {offsetof(pgd_request_desc, n_prompt_logprobs), -1, "with max-logprobs -1"},
        {offsetof(pgd_request_desc, n_prompt_logprobs), -2, "n_prompt_logprobs is -2; 0 to 20"},
    };
    for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
        pgd_request_desc d = desc_of();
        d.has_logprobs = 1;
        d.has_prompt_logprobs = 1;
        memcpy((unsigned char *)&d + ints[i].offset, &ints[i].value, sizeof(int32_t));
        refuse(engine, &d, PGD_OUT_OF_RANGE, ints[i].words);
    }
    pgd_engine_destroy(engine);
}

static void test_wrong_lists_are_named(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    const int32_t ids[] = {3, 256};
    const float adds[] = {1.0f, NAN};
    const char *const words[] = {"x"};
    pgd_request_desc d = desc_of();
    d.allowed_ids = ids;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "n_allowed is 0");
    d.n_allowed = 2;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "allowed_ids[1] is token 256; 0 to 255");
    d = desc_of();
    d.bias_ids = ids;
    d.bias_adds = adds;
    d.n_bias = 2;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "bias_ids[1] is token 256");
    const int32_t fine[] = {3, 4};
    d.bias_ids = fine;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "bias_adds[1] is NaN");
    d = desc_of();
    d.stop_ids = ids;
    d.n_stop_ids = 2;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "stop_ids[1] is token 256");
    d = desc_of();
    d.stop = words;
    d.n_stop = 1;
    refuse(engine, &d, PGD_INVALID, "stop: the model has no tokenizer");
    d = desc_of();
    d.bad_words = words;
    d.n_bad_words = 1;
    refuse(engine, &d, PGD_INVALID, "bad_words: the model has no tokenizer");
    pgd_engine_destroy(engine);
    engine = open_engine(NANO, "cpu");
    const char *const blank[] = {" \t "};
    d.bad_words = blank;
    refuse(engine, &d, PGD_INVALID, "bad_words[0] is blank");
    const char *const empty[] = {"x", ""};
    d.bad_words = empty;
    d.n_bad_words = 2;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "bad_words[1] has 0 bytes");
    d.n_bad_words = 0;
    d.stop = empty;
    d.n_stop = 2;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "stop[1] has 0 bytes");
    d.n_stop = 17;
    refuse(engine, &d, PGD_OUT_OF_RANGE, "stop has 17 strings; 0 to 16");
    assert_int_equal(pgd_engine_busy(engine), 0);
    pgd_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_those_of_single_requests),
        cmocka_unit_test(test_cancelling_ends_all_answers),
        cmocka_unit_test(test_callbacks_may_submit_and_release),
        cmocka_unit_test(test_encode_and_decode),
        cmocka_unit_test(test_the_null_device_is_certain),
        cmocka_unit_test(test_wrong_numbers_are_named),
        cmocka_unit_test(test_wrong_lists_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
