// argmax and sample: rules by hand, ids against an independent program, and the distribution.
#include "ref/ref_test.h"

enum { N = 61 };

enum { BEST = 8 };

typedef struct setup {
    block b;
    pgd_batch batch;
    float logits[OUTPUTS * N];
    int32_t ids[OUTPUTS];
    float logprobs[OUTPUTS * (1 + BEST)];
    int32_t top_ids[OUTPUTS * (1 + BEST)];
    int32_t ranks[OUTPUTS];
    int32_t state[2 * N];
    pgd_sample_args a;
} setup;

static void prepare(setup *s, int32_t rows, int64_t columns) {
    int i;
    memset(s, 0, sizeof(*s));
    s->b.head.n_out = rows;
    s->batch = batch_of(&s->b);
    for (i = 0; i < rows; i++) {
        s->b.sampling[i].temperature = 1;
        s->b.out_slot[i] = SLOTS - 1 - i % SLOTS;
    }
    s->a = (pgd_sample_args){.size = sizeof(s->a),
                             .rows = PGD_ROWS_OUTPUTS,
                             .batch = &s->batch,
                             .logits = tensor2(PGD_F32, s->logits, rows, columns),
                             .ids = tensor1(PGD_I32, s->ids, rows)};
}

static void test_argmax(void **state) {
    setup s;
    const float rows[4][4] = {{NAN, 1, 3, 3},
                              {NAN, NAN, NAN, NAN},
                              {-INFINITY, -INFINITY, NAN, -INFINITY},
                              {-0.0F, 0, -1, 0}};
    const int32_t want[4] = {2, -1, 0, 0};
    pgd_argmax_args a = {.size = sizeof(a)};
    (void)state;
    prepare(&s, 4, 4);
    memcpy(s.logits, rows, sizeof(rows));
    a.rows = PGD_ROWS_OUTPUTS;
    a.batch = &s.batch;
    a.x = s.a.logits;
    a.out = s.a.ids;
    assert_int_equal(pgd_ref_argmax(NULL, &a), PGD_OK);
    assert_memory_equal(s.ids, want, sizeof(want));
    assert_memory_equal(s.b.sampled, want, sizeof(want));
    assert_int_equal(s.b.last[5], 2);
    assert_int_equal(s.b.last[4], -1);
    assert_int_equal(s.b.last[2], 0);
    s.b.out_slot[3] = SLOTS;
    assert_int_equal(pgd_ref_argmax(NULL, &a), PGD_INVALID);
    a.batch = NULL;
    a.rows = PGD_ROWS_SHAPE;
    s.ids[0] = 9;
    assert_int_equal(pgd_ref_argmax(NULL, &a), PGD_OK);
    assert_int_equal(s.ids[0], 2);
}

// Ids by a program that sorts, sums and takes logarithms in the plain way (Python, math.log).
static void test_ids(void **state) {
    static const struct {
        pgd_sampling p;
        int32_t ids[16];
    } cases[] = {
        {{.temperature = 1}, {30, 35, 37, 20, 60, 50, 27, 19, 45, 27, 55, 14, 50, 32, 55, 37}},
        {{.temperature = 3, .top_p = 1},
         {30, 35, 18, 49, 60, 50, 29, 0, 12, 34, 52, 14, 53, 32, 55, 37}},
        {{.temperature = 0.25F}, {55, 60, 37, 42, 60, 50, 37, 19, 42, 37, 60, 14, 50, 32, 55, 42}},
        {{.temperature = 2, .min_p = 0.2F},
         {30, 35, 37, 20, 60, 50, 27, 19, 45, 27, 20, 14, 53, 32, 55, 37}},
        {{.temperature = 2, .top_k = 5},
         {19, 19, 37, 37, 60, 60, 37, 19, 42, 37, 55, 19, 37, 55, 55, 37}},
        {{.temperature = 2, .top_p = 0.6F},
         {4, 35, 37, 9, 60, 50, 27, 19, 45, 27, 55, 14, 53, 32, 55, 37}},
        {{.temperature = 1.5F, .min_p = 0.05F, .top_k = 12, .top_p = 0.8F},
         {19, 19, 37, 37, 60, 50, 37, 19, 45, 37, 55, 14, 50, 32, 55, 37}},
    };
    setup s;
    size_t c, i;
    (void)state;
    prepare(&s, 1, N);
    for (i = 0; i < N; i++) {
        s.logits[i] = (float)(number((int64_t)i, 5) * 2 + (double)i / 64);
    }
    for (c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (i = 0; i < 16; i++) {
            s.b.sampling[0] = cases[c].p;
            s.b.sampling[0].seed = UINT64_C(0x0123456789abcdef);
            s.b.sampling[0].counter = i + ((uint64_t)i << 33);
            assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
            assert_int_equal(s.ids[0], cases[c].ids[i]);
            assert_int_equal(s.b.sampled[0], cases[c].ids[i]);
            assert_int_equal(s.b.last[SLOTS - 1], cases[c].ids[i]);
        }
    }
}

// Which of the tokens can come out at all, over many draws; bit i = token i.
static unsigned seen(setup *s, const pgd_sampling *p) {
    unsigned set = 0;
    int i;
    for (i = 0; i < 4000; i++) {
        s->b.sampling[0] = *p;
        s->b.sampling[0].counter = (uint64_t)i;
        assert_int_equal(pgd_ref_sample(NULL, &s->a), PGD_OK);
        set |= s->ids[0] < 0 ? 1u << 31 : 1u << s->ids[0];
    }
    return set;
}

// Probabilities 0.4, 0.1, 0.2, 0.2, 0.1, and one NaN.
static void test_filters(void **state) {
    setup s;
    (void)state;
    prepare(&s, 1, 6);
    s.logits[0] = (float)log(4);
    s.logits[2] = s.logits[3] = (float)log(2);
    s.logits[5] = NAN;
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1}), 0x1f);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_k = 1}), 0x01);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_k = 2}), 0x0d); // tie stays
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_k = 4}), 0x1f);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_k = 999}), 0x1f);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_p = 0.81F}), 0x1f);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_p = 0.79F}), 0x0d);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_p = 0.41F}), 0x0d);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_p = 0.39F}), 0x01);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_p = 1e-30F}), 0x01);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .min_p = 0.24F}), 0x1f);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .min_p = 0.26F}), 0x0d);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .min_p = 1}), 0x01);
    // half of 0.4, 0.2, 0.2 is the best alone; of all five it would not be
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_k = 3, .top_p = 0.49F}), 0x01);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_p = 0.49F}), 0x0d);
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1e-3F}), 0x01);
    assert_int_equal(seen(&s, &(pgd_sampling){.flags = PGD_SAMPLE_GREEDY}), 0x01);
}

static void test_extremes(void **state) {
    setup s;
    int i;
    (void)state;
    prepare(&s, 1, 4);
    for (i = 0; i < 4; i++) {
        s.logits[i] = NAN;
    }
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1}), 1u << 31);
    s.logits[1] = s.logits[3] = -INFINITY;
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1, .top_p = 0.5F}), 0x0a);
    s.logits[0] = -1e38F;
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1e-38F}), 0x01);
    s.logits[2] = 3e38F;
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1e38F, .top_k = 2}), 0x05);
    s.logits[1] = INFINITY;
    assert_int_equal(seen(&s, &(pgd_sampling){.temperature = 1e38F}), 0x02);
}

// Chi-square over 200,000 draws. The 0.9999 quantile for 9 degrees of freedom is 33.7; counter and
// seed are fixed, so this passes always or never.
static void chi_square(int by_seed) {
    static const double share[10] = {0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01};
    int count[10] = {0};
    double chi = 0;
    setup s;
    int i;
    prepare(&s, 1, 10);
    for (i = 0; i < 10; i++) {
        s.logits[i] = (float)(log(share[i]) * 0.5); // temperature 0.5 takes it back
    }
    for (i = 0; i < 200000; i++) {
        s.b.sampling[0].temperature = 0.5F;
        s.b.sampling[0].seed = by_seed ? (uint64_t)i : 42;
        s.b.sampling[0].counter = by_seed ? 7 : (uint64_t)i;
        assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
        count[s.ids[0]]++;
    }
    for (i = 0; i < 10; i++) {
        double want = 200000 * share[i];
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    assert_true(chi < 33.7);
}

static void test_distribution(void **state) {
    (void)state;
    chi_square(0);
    chi_square(1);
}

static void test_refusals(void **state) {
    static const pgd_sampling unsupported[] = {{.temperature = 1, .state_row = 1},
                                               {.temperature = 1, .flags = PGD_SAMPLE_LOGPROBS},
                                               {.flags = PGD_SAMPLE_GIVEN | PGD_SAMPLE_LOGPROBS},
                                               {.temperature = 1, .typical_p = 0.5F},
                                               {.temperature = 1, .flags = 8}};
    static const pgd_sampling invalid[] = {{.temperature = 0},
                                           {.temperature = -1},
                                           {.temperature = NAN},
                                           {.temperature = INFINITY},
                                           {.temperature = 1, .top_p = 1.5F},
                                           {.temperature = 1, .top_p = NAN},
                                           {.temperature = 1, .min_p = -1},
                                           {.temperature = 1, .top_k = -1},
                                           {.temperature = 1, .mask_row = 1},
                                           {.temperature = 1, .mask_row = -1},
                                           {.temperature = 1, .bias_count = 1},
                                           {.temperature = 1, .bias_count = -1},
                                           {.temperature = 1, .state_row = -1},
                                           {.temperature = 1, .repetition = 1.1F},
                                           {.temperature = 1, .repetition = -1},
                                           {.temperature = 1, .presence = 0.1F},
                                           {.temperature = 1, .presence = NAN},
                                           {.flags = PGD_SAMPLE_GREEDY, .frequency = 0.1F},
                                           {.flags = PGD_SAMPLE_GIVEN, .given = -1},
                                           {.flags = PGD_SAMPLE_GIVEN, .given = 4}};
    setup s;
    size_t i;
    (void)state;
    prepare(&s, 2, 4);
    s.batch.mask = s.batch.bias = 0;
    s.ids[0] = 77;
    for (i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
        s.b.sampling[1] = unsupported[i];
        assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_UNSUPPORTED);
    }
    for (i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
        s.b.sampling[1] = invalid[i];
        assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_INVALID);
    }
    assert_int_equal(s.ids[0], 77); // nothing was written, not even by the first row
    assert_int_equal(s.b.sampled[0], 0);
    s.b.sampling[1] = (pgd_sampling){.temperature = 1, .typical_p = 1, .repetition = 1};
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    s.b.head.n_out = 0;
    s.batch.sampling = 0;
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
}

// One row with everything there is to tell.
static void prepare_told(setup *s, const float *logits, int n) {
    int i;
    prepare(s, 1, n);
    memcpy(s->logits, logits, (size_t)n * sizeof(float));
    for (i = 0; i < 1 + BEST; i++) {
        s->logprobs[i] = 99;
        s->top_ids[i] = 99;
    }
    s->a.logprobs = tensor2(PGD_F32, s->logprobs, 1, 1 + BEST);
    s->a.top_ids = tensor2(PGD_I32, s->top_ids, 1, 1 + BEST);
    s->a.ranks = tensor1(PGD_I32, s->ranks, 1);
    s->a.state = tensor2(PGD_I32, s->state, 2, n);
    s->b.sampling[0].flags = PGD_SAMPLE_GREEDY | PGD_SAMPLE_LOGPROBS;
    s->b.sampling[0].n_logprobs = BEST - 1;
}

static void check_told(const setup *s, int n, const int32_t *ids, const double *logprobs,
                       int32_t rank) {
    int i;
    assert_memory_equal(s->top_ids, ids, (size_t)n * sizeof(int32_t));
    assert_int_equal(s->ranks[0], rank);
    for (i = 0; i < n; i++) {
        assert_true((double)s->logprobs[i] == logprobs[i] ||
                    fabs((double)s->logprobs[i] - logprobs[i]) < 2e-7);
    }
    for (; i < 1 + BEST; i++) {
        assert_true(s->logprobs[i] == 99 && s->top_ids[i] == 99);
    }
}

static void test_told(void **state) {
    const float odd[6] = {1, NAN, 3, 3, -INFINITY, 2};
    const float nans[2] = {NAN, NAN}, high[3] = {INFINITY, 1, INFINITY};
    const float low[3] = {-INFINITY, NAN, -INFINITY};
    const double lse = log(2 * exp(3) + exp(2) + exp(1));
    setup s;
    (void)state;
    prepare_told(&s, odd, 6);
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    check_told(&s, 7, (const int32_t[]){2, 2, 3, 5, 0, 4, 1},
               (const double[]){3 - lse, 3 - lse, 3 - lse, 2 - lse, 1 - lse, -INFINITY, -INFINITY},
               2);
    assert_memory_equal(s.logits, odd, sizeof(odd)); // they stay
    s.b.sampling[0] = (pgd_sampling){.flags = PGD_SAMPLE_GIVEN | PGD_SAMPLE_LOGPROBS, .given = 1};
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    assert_true(s.top_ids[0] == 1 && s.logprobs[0] == -INFINITY && s.ranks[0] == 6);
    s.b.sampling[0].given = 5;
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    assert_true(s.top_ids[0] == 5 && s.ranks[0] == 3);
    prepare_told(&s, nans, 2);
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    check_told(&s, 3, (const int32_t[]){-1, 0, 1},
               (const double[]){-INFINITY, -INFINITY, -INFINITY}, 0);
    prepare_told(&s, high, 3);
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    check_told(&s, 4, (const int32_t[]){0, 0, 2, 1},
               (const double[]){-log(2), -log(2), -log(2), -INFINITY}, 2);
    prepare_told(&s, low, 3);
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    check_told(&s, 4, (const int32_t[]){0, 0, 2, 1},
               (const double[]){-log(2), -log(2), -log(2), -INFINITY}, 2);
}

// Nothing is drawn, changed or counted, and a slot of -1 is nobody's.
static void test_given(void **state) {
    const float logits[3] = {1, 2, 3};
    setup s;
    (void)state;
    prepare_told(&s, logits, 3);
    memset(s.b.last, 0x55, sizeof(s.b.last));
    s.b.out_slot[0] = -1;
    s.b.sampling[0] = (pgd_sampling){.flags = PGD_SAMPLE_GIVEN,
                                     .given = 1,
                                     .state_row = 2,
                                     .mask_row = 1,
                                     .repetition = 2,
                                     .typical_p = 0.5F};
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    assert_int_equal(s.ids[0], 1);
    assert_int_equal(s.b.sampled[0], 1);
    assert_int_equal(s.b.last[0], 0x55555555);
    assert_int_equal(s.b.last[SLOTS - 1], 0x55555555);
    assert_int_equal(s.state[3 + 1], 0);
    s.b.out_slot[0] = 2;
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_OK);
    assert_int_equal(s.b.last[2], 1);
    s.b.out_slot[0] = -2;
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_INVALID);
}

static int32_t token_of(setup *s, const pgd_sampling *p) {
    s->b.sampling[0] = *p;
    assert_int_equal(pgd_ref_sample(NULL, &s->a), PGD_OK);
    return s->ids[0];
}

static void test_mask_and_bias(void **state) {
    const float logits[35] = {[0] = 4, [1] = -INFINITY, [34] = 5};
    const uint32_t greedy = PGD_SAMPLE_GREEDY;
    setup s;
    (void)state;
    prepare_told(&s, logits, 35);
    s.b.mask[0][0] = 1u << 1 | 1u << 7;
    s.b.mask[0][1] = 1u << 3 | 1u << 9; // behind the vocabulary
    s.b.mask[1][0] = 1u << 1;
    assert_int_equal(token_of(&s, &(pgd_sampling){.flags = greedy}), 34);
    assert_int_equal(token_of(&s, &(pgd_sampling){.flags = greedy, .mask_row = 1}), 7);
    // -infinity is a logit; a token that is not allowed is none
    assert_int_equal(token_of(&s, &(pgd_sampling){.flags = greedy, .mask_row = 2}), 1);
    assert_int_equal(token_of(&s, &(pgd_sampling){.temperature = 1, .mask_row = 2}), 1);
    s.b.mask[1][0] = 0;
    assert_int_equal(token_of(&s, &(pgd_sampling){.temperature = 1, .mask_row = 2}), -1);
    s.b.bias[0] = (pgd_bias){34, -INFINITY};
    s.b.bias[1] = (pgd_bias){0, -3};
    s.b.bias[2] = (pgd_bias){0, -1.5F};
    s.b.bias[3] = (pgd_bias){7, 9};
    assert_int_equal(token_of(&s, &(pgd_sampling){.flags = greedy, .bias_count = 1}), 0);
    assert_int_equal(token_of(&s, &(pgd_sampling){.flags = greedy, .bias_count = 2}), 0);
    assert_int_equal(token_of(&s, &(pgd_sampling){.flags = greedy, .bias_count = 3}), 2);
    assert_int_equal(
        token_of(&s, &(pgd_sampling){.flags = greedy, .bias_start = 3, .bias_count = 1}), 7);
    assert_memory_equal(s.logits, logits, sizeof(logits));
    s.b.bias[3].id = 35;
    s.b.sampling[0] = (pgd_sampling){.flags = greedy, .bias_start = 3, .bias_count = 1};
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_INVALID);
    s.b.bias[3] = (pgd_bias){1, NAN};
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_INVALID);
    s.batch.upload_bytes = s.batch.bias + 3 * sizeof(pgd_bias); // the fourth is not there
    s.b.bias[3].add = 1;
    assert_int_equal(pgd_ref_sample(NULL, &s.a), PGD_INVALID);
}

static void test_penalties(void **state) {
    const int32_t prompt = 1 << 30, most = prompt - 1;
    const float logits[4] = {2, -1, 1.25F, 1};
    const uint32_t greedy = PGD_SAMPLE_GREEDY;
    setup s;
    (void)state;
    prepare_told(&s, logits, 4);
    s.state[4 + 0] = prompt;
    s.state[4 + 2] = 2;
    // 2 / 2 = 1, 1.25 / 2, 1: the tie goes to token 0, which is then counted
    assert_int_equal(
        token_of(&s, &(pgd_sampling){.flags = greedy, .state_row = 2, .repetition = 2}), 0);
    assert_int_equal(s.state[4 + 0], prompt | 1);
    // prompts do not count: 2 - 0.75, 1.25 - 1.5, 1
    assert_int_equal(
        token_of(&s, &(pgd_sampling){.flags = greedy, .state_row = 2, .frequency = 0.75F}), 0);
    assert_int_equal(s.state[4 + 0], prompt | 2);
    // 2 - 1.5, 1.25 - 1.5, 1
    assert_int_equal(
        token_of(&s, &(pgd_sampling){.flags = greedy, .state_row = 2, .frequency = 0.75F}), 3);
    // 2 - 1.125, 1.25 - 1.125, 1 - 1.125
    assert_int_equal(
        token_of(&s, &(pgd_sampling){.flags = greedy, .state_row = 2, .presence = 1.125F}), 0);
    s.state[4 + 1] = most;
    s.state[4 + 3] = prompt | most;
    // 2 + 9 against 1 + 9
    assert_int_equal(token_of(&s, &(pgd_sampling){.flags = greedy, .state_row = 2, .presence = -9}),
                     0);
    s.b.bias[0] = (pgd_bias){3, 50};
    assert_int_equal(
        token_of(&s, &(pgd_sampling){.flags = greedy, .state_row = 2, .bias_count = 1}), 3);
    assert_int_equal(s.state[4 + 3], prompt | most); // it stays there
    assert_int_equal(s.state[0] + s.state[1] + s.state[2] + s.state[3], 0);
}

// exp and log of the draw against the C library.
static void test_numbers(void **state) {
    double v;
    (void)state;
    assert_true(pgd_ref_exp(0) == 1 && pgd_ref_exp(-INFINITY) == 0 && pgd_ref_exp(-701) == 0);
    for (v = -700; v < 0; v += 0.0371) {
        assert_true(fabs(pgd_ref_exp(v) / exp(v) - 1) < 5e-16);
    }
    assert_true(pgd_ref_log(1) == 0);
    for (v = 0x1p-33; v < 1 - 0x1p-33; v += v < 0.5 ? v * 0.013 : (1 - v) * 0.013) {
        assert_true(fabs(pgd_ref_log(v) / log(v) - 1) < 5e-16);
    }
    assert_true(fabs(pgd_ref_log(1 - 0x1p-33) / -0x1p-33 - 1) < 1e-10);
    for (v = 1e-10; v < 23; v *= 1.013) {
        assert_true(fabs(pgd_ref_log(v) - log(v)) < 5e-16 * (1 + fabs(log(v))));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_argmax),       cmocka_unit_test(test_ids),
        cmocka_unit_test(test_filters),      cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_told),
        cmocka_unit_test(test_given),        cmocka_unit_test(test_mask_and_bias),
        cmocka_unit_test(test_penalties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
