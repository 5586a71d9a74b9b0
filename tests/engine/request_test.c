// Steps of sampling and log probabilities of requests, over real arithmetic. Each token is judged
// by the definition (docs/sampling.md), recomputed in double from the model's logits.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/inner.h"
#include "request.h"

#define NEVER (-INFINITY)
#define MANY  4096 // at least the vocabulary of both models

// ---- the definition ----------------------------------------------------------------------------

static int32_t vocab_of(const pgd_engine *engine) {
    pgd_engine_info info = {.size = sizeof(info)};
    pgd_engine_get_info(engine, &info);
    assert_true(info.vocab_size <= MANY);
    return info.vocab_size;
}

static int32_t count(const int32_t *ids, int32_t n, int32_t id) {
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        found += ids[i] == id;
    }
    return found;
}

// The logit of a token once the request's steps have changed it; bad words of ids are the test's.
static double changed(const pgd_request_desc *d, const int32_t *out, int32_t n, int32_t id,
                      double l, const int32_t *bad, int32_t n_bad) {
    if (d->allowed_ids != NULL && count(d->allowed_ids, d->n_allowed, id) == 0) {
        return NEVER;
    }
    if (n_bad > 0 && bad[n_bad - 1] == id && n >= n_bad - 1 &&
        memcmp(out + n - (n_bad - 1), bad, (size_t)(n_bad - 1) * sizeof(*bad)) == 0) {
        return NEVER;
    }
    if (n < d->min_tokens && count(d->stop_ids, d->n_stop_ids, id) > 0) {
        return NEVER;
    }
    for (int32_t i = 0; i < d->n_bias; i++) {
        l += d->bias_ids[i] == id ? (double)d->bias_adds[i] : 0.0;
    }
    const int32_t times = count(out, n, id);
    if (d->repetition_penalty != 0.0f && (times > 0 || count(prompt, N_PROMPT, id) > 0)) {
        l = l > 0.0 ? l / (double)d->repetition_penalty : l * (double)d->repetition_penalty;
    }
    l -= (double)d->frequency_penalty * times;
    return l - (times > 0 ? (double)d->presence_penalty : 0.0);
}

// Runs a greedy request step by step; each token must be the best there is. Returns its output.
static pgd_request *run_judged(pgd_engine *engine, const pgd_request_desc *d, const int32_t *bad,
                               int32_t n_bad) {
    const int32_t vocab = vocab_of(engine);
    pgd_request *r = submit(engine, d);
    while (pgd_engine_busy(engine) > 0) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
        const pgd_output o = choice(r, 0);
        const float *logits = pgd_request_logits(r);
        const int32_t n = o.n_ids - 1;
        double best = NEVER;
        for (int32_t i = 0; i < vocab; i++) {
            best = fmax(best, changed(d, o.ids, n, i, (double)logits[i], bad, n_bad));
        }
        const int32_t got = o.ids[n];
        const double value = changed(d, o.ids, n, got, (double)logits[got], bad, n_bad);
        if (!(value >= best - 1e-5 * fabs(best))) {
            fail_msg("token %d is %d of value %g, the best has %g", n, got, value, best);
        }
    }
    return r;
}

// The tokens of a greedy request without any further step.
static void plain_tokens(pgd_engine *engine, int32_t *out) {
    const pgd_request_desc d = desc_of();
    pgd_request *r = run_judged(engine, &d, NULL, 0);
    memcpy(out, choice(r, 0).ids, N_NEW * sizeof(*out));
    pgd_request_release(r);
}

// ---- steps of sampling -------------------------------------------------------------------------

static void expect_change(pgd_engine *engine, const pgd_request_desc *d, const int32_t *plain) {
    pgd_request *r = run_judged(engine, d, NULL, 0);
    const pgd_output o = choice(r, 0);
    assert_true(o.n_ids != N_NEW || memcmp(o.ids, plain, N_NEW * sizeof(*plain)) != 0);
    pgd_request_release(r);
}

static void test_penalties(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    int32_t plain[N_NEW];
    plain_tokens(engine, plain);
    pgd_request_desc d = desc_of();
    d.repetition_penalty = 1.3f;
    expect_change(engine, &d, plain);
    d = desc_of();
    d.presence_penalty = 2.0f;
    expect_change(engine, &d, plain);
    d = desc_of();
    d.frequency_penalty = 1.5f;
    expect_change(engine, &d, plain);
    d = desc_of();
    d.repetition_penalty = 0.7f;
    d.presence_penalty = -1.0f;
    d.frequency_penalty = 0.5f;
    pgd_request_release(run_judged(engine, &d, NULL, 0));
    pgd_engine_destroy(engine);
}

static void test_bias_and_allowed_tokens(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    int32_t plain[N_NEW];
    plain_tokens(engine, plain);
    const int32_t ids[] = {plain[0], plain[3], 77};
    const float adds[] = {-100.0f, -3.0f, 1.25f};
    pgd_request_desc d = desc_of();
    d.bias_ids = ids;
    d.bias_adds = adds;
    d.n_bias = 3;
    expect_change(engine, &d, plain);
    const float far[] = {-1e30f, 0.0f, 1e30f}; // cut to -100 and 100
    d.bias_adds = far;
    pgd_request *r = submit(engine, &d);
    run(engine);
    assert_int_equal(count(choice(r, 0).ids, N_NEW, 77), N_NEW);
    pgd_request_release(r);
    const int32_t allowed[] = {200, 31, 32, 255, 0};
    d = desc_of();
    d.allowed_ids = allowed;
    d.n_allowed = 5;
    r = run_judged(engine, &d, NULL, 0);
    for (int32_t i = 0; i < N_NEW; i++) {
        assert_int_equal(count(allowed, 5, choice(r, 0).ids[i]), 1);
    }
    pgd_request_release(r);
    pgd_engine_destroy(engine);
}

static void test_min_tokens_holds_stop_tokens_back(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    int32_t plain[N_NEW];
    plain_tokens(engine, plain);
    pgd_request_desc d = desc_of();
    d.stop_ids = plain;
    d.n_stop_ids = 1;
    d.min_tokens = 6;
    pgd_request *r = run_judged(engine, &d, NULL, 0);
    const pgd_output o = choice(r, 0);
    assert_true(o.n_ids >= 6);
    assert_int_equal(count(o.ids, 5, plain[0]), 0);
    pgd_request_release(r);
    d.min_tokens = 0;
    r = submit(engine, &d);
    run(engine);
    assert_int_equal(choice(r, 0).n_ids, 1);
    assert_int_equal(choice(r, 0).stop_id, plain[0]);
    pgd_request_release(r);
    pgd_engine_destroy(engine);
}

// The token sequences that stand for a word: as it is; with a blank in front if that gives as many
// tokens, of which the first is another.
static int32_t forms_of(const pgd_engine *engine, const char *word, pgd_text_ids out[2]) {
    char spaced[64] = " ";
    memcpy(spaced + 1, word, strlen(word) + 1);
    out[0].n = out[1].n = 0;
    assert_int_equal(pgd_text_encode(engine->tokenizer, pgd_str_of(word), 0, &out[0]), PGD_OK);
    assert_int_equal(pgd_text_encode(engine->tokenizer, pgd_str_of(spaced), 0, &out[1]), PGD_OK);
    return out[0].n == out[1].n && out[0].ids[0] != out[1].ids[0] ? 2 : 1;
}

static int32_t contains(const pgd_output *o, const pgd_text_ids *form) {
    for (int32_t i = 0; i + (int32_t)form->n <= o->n_ids; i++) {
        if (memcmp(o->ids + i, form->ids, form->n * sizeof(int32_t)) == 0) {
            return 1;
        }
    }
    return 0;
}

static void test_bad_words(void **state) {
    (void)state;
    pgd_engine *engine = open_engine(NANO, "cpu");
    pgd_request_desc d = desc_of();
    d.ids = NULL;
    d.prompt = "Once upon a time";
    pgd_request *plain = submit(engine, &d);
    run(engine);
    const pgd_output before = choice(plain, 0);
    static const char *const words[] = {"there", "was", "a", "Tom",  "forest.", " happy", "horse",
                                        "named", ".",   ",", "than", "The",     "loved"};
    int32_t n_differ = 0;
    int32_t n_twice = 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        pgd_text_ids forms[2] = {{0}, {0}};
        const char *word = words[i][0] == ' ' ? words[i] + 1 : words[i];
        const int32_t n = forms_of(engine, word, forms);
        d.bad_words = &words[i];
        d.n_bad_words = 1;
        pgd_request *r = submit(engine, &d);
        run(engine);
        const pgd_output o = choice(r, 0);
        for (int32_t k = 0; k < n; k++) {
            assert_false(contains(&o, &forms[k]));
        }
        n_twice += n == 2;
        // Where a form stood, the output went another way.
        const int32_t stood =
            contains(&before, &forms[0]) || (n == 2 && contains(&before, &forms[1]));
        assert_int_equal(stood, memcmp(before.ids, o.ids, N_NEW * sizeof(int32_t)) != 0);
        n_differ += stood;
        pgd_request_release(r);
        pgd_text_ids_free(&forms[0]);
        pgd_text_ids_free(&forms[1]);
    }
    assert_true(n_differ >= 3 && n_twice >= 2);
    pgd_engine_destroy(engine);
}

// ---- log probabilities -------------------------------------------------------------------------

typedef struct table {
    double p[MANY]; // log probabilities
} table;

static void log_softmax(const float *logits, int32_t n, table *out) {
    double most = NEVER;
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        most = fmax(most, (double)logits[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - most);
    }
    for (int32_t i = 0; i < n; i++) {
        out->p[i] = (double)logits[i] - most - log(sum);
    }
}

static void judge_row(const table *t, int32_t vocab, int32_t token, const float *row,
                      const int32_t *ids, int32_t rank, int32_t n) {
    int32_t expected_rank = 0;
    for (int32_t i = 0; i < vocab; i++) {
        expected_rank += t->p[i] >= t->p[token];
    }
    assert_int_equal(ids[0], token);
    assert_int_equal(rank, expected_rank);
    for (int32_t i = 0; i <= n; i++) {
        assert_true(fabs((double)row[i] - t->p[ids[i]]) < 1e-5);
    }
    for (int32_t i = 1; i <= n; i++) {
        int32_t above = 0;
        for (int32_t k = 0; k < vocab; k++) {
            above += t->p[k] > t->p[ids[i]];
        }
        assert_true(above < i); // at most i - 1 tokens are likelier
        assert_int_equal(count(ids + 1, n, ids[i]), 1);
        assert_true(i == 1 || row[i] <= row[i - 1]);
    }
}

static void test_log_probabilities(void **state) {
    (void)state;
    static table t;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    const int32_t vocab = vocab_of(engine);
    pgd_request_desc d = desc_of();
    d.temperature = 0.9f; // none of these changes what is told
    d.top_k = 3;
    d.repetition_penalty = 1.2f;
    d.has_logprobs = 1;
    d.n_logprobs = 5;
    pgd_request *r = submit(engine, &d);
    double sum = 0.0;
    for (int32_t i = 0; i < N_NEW; i++) {
        assert_int_equal(pgd_engine_step(engine), PGD_OK);
        const pgd_output o = choice(r, 0);
        log_softmax(pgd_request_logits(r), vocab, &t);
        assert_int_equal(o.n_logprobs, 5);
        judge_row(&t, vocab, o.ids[i], o.logprobs + i * 6, o.logprob_ids + i * 6, o.ranks[i], 5);
        sum += t.p[o.ids[i]];
        assert_true(fabs(o.cumulative_logprob - sum) < 1e-4);
    }
    assert_int_equal(pgd_engine_busy(engine), 0);
    pgd_request_release(r);
    pgd_engine_destroy(engine);
}

static void test_log_probabilities_of_the_prompt(void **state) {
    (void)state;
    static table t;
    pgd_engine *engine = open_engine(MODEL, "cpu");
    const int32_t vocab = vocab_of(engine);
    pgd_request_desc d = desc_of();
    d.has_prompt_logprobs = 1;
    d.n_prompt_logprobs = 3;
    d.max_tokens = 2;
    pgd_request *scored = submit(engine, &d);
    run(engine);
    const pgd_output o = choice(scored, 0);
    assert_int_equal(o.n_prompt, N_PROMPT);
    assert_int_equal(o.n_prompt_scored, N_PROMPT);
    assert_int_equal(o.n_prompt_logprobs, 3);
    assert_int_equal(o.n_cached, 0);
    assert_null(o.logprobs);
    assert_memory_equal(o.prompt_ids, prompt, sizeof(prompt));
    for (int32_t i = 1; i < N_PROMPT; i++) {
        pgd_request_desc shorter = desc_of();
        shorter.n_ids = i;
        shorter.max_tokens = 1;
        pgd_request *r = submit(engine, &shorter);
        run(engine);
        log_softmax(pgd_request_logits(r), vocab, &t);
        judge_row(&t, vocab, prompt[i], o.prompt_logprobs + i * 4, o.prompt_logprob_ids + i * 4,
                  o.prompt_ranks[i], 3);
        pgd_request_release(r);
    }
    pgd_request_release(scored);
    scored = submit(engine, &d); // nothing is read from the cache, so nothing is missing
    run(engine);
    assert_int_equal(choice(scored, 0).n_prompt_scored, N_PROMPT);
    assert_int_equal(choice(scored, 0).n_cached, 0);
    pgd_engine_destroy(engine);
}

// Minus one asks for all of the vocabulary, of tokens and of the prompt, and each token has a place.
static void test_log_probabilities_of_all(void **state) {
    (void)state;
    static table t;
    const pgd_engine_options options = {.size = sizeof(options),
                                        .model = MODEL,
                                        .device = "cpu",
                                        .keep_logits = 1,
                                        .max_num_seqs = 2,
                                        .max_logprobs = -1};
    pgd_engine *engine = NULL;
    assert_int_equal(pgd_engine_create(&options, &engine), PGD_OK);
    const int32_t vocab = vocab_of(engine);
    const size_t columns = (size_t)vocab + 1;
    pgd_request_desc d = desc_of();
    d.has_logprobs = 1;
    d.n_logprobs = -1;
    d.has_prompt_logprobs = 1;
    d.n_prompt_logprobs = -1;
    d.max_tokens = 1;
    pgd_request *r = submit(engine, &d);
    run(engine);
    const pgd_output o = choice(r, 0);
    log_softmax(pgd_request_logits(r), vocab, &t);
    assert_int_equal(o.n_logprobs, vocab);
    assert_int_equal(o.n_prompt_logprobs, vocab);
    judge_row(&t, vocab, o.ids[0], o.logprobs, o.logprob_ids, o.ranks[0], vocab);
    for (size_t i = 1; i < N_PROMPT; i++) {
        const float *row = o.prompt_logprobs + i * columns;
        double sum = 0.0;
        for (int32_t k = 1; k <= vocab; k++) {
            sum += exp((double)row[k]);
            assert_int_equal(count(o.prompt_logprob_ids + i * columns + 1, vocab, k - 1), 1);
        }
        assert_true(fabs(sum - 1.0) < 1e-4);
        assert_int_equal(o.prompt_logprob_ids[i * columns], prompt[i]);
        assert_true(row[0] <= row[o.prompt_ranks[i]] && row[0] >= row[o.prompt_ranks[i]]);
    }
    pgd_request_release(r);
    pgd_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_bias_and_allowed_tokens),
        cmocka_unit_test(test_min_tokens_holds_stop_tokens_back),
        cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_log_probabilities),
        cmocka_unit_test(test_log_probabilities_of_the_prompt),
        cmocka_unit_test(test_log_probabilities_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
