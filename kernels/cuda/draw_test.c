// The draw: the tokens, counts and slots of kernels/ref to the bit, for rows of every kind, whether
// the best columns were kept by a product or not.
#define _POSIX_C_SOURCE 200809L
#include "test_cuda.h"

enum { ROWS = 14, SLOTS = 20, STATES = 3, MOST = 2051, BIASES = 5, TILE = 256 };

typedef struct step {
    pgd_batch_head head;
    int32_t out_slot[ROWS];
    int32_t last[SLOTS];
    int32_t sampled[ROWS];
    pgd_sampling sampling[ROWS];
    uint32_t mask[2][(MOST + 31) / 32];
    pgd_bias bias[BIASES];
} step;

typedef struct stage {
    int32_t n; // tokens
    step step;
    float *logits; // [ROWS, n]
    int32_t *state;
    int32_t ids[ROWS];
    char *scratch; // changed rows, then the best columns
} stage;

// What comes of a step: the reference's, and the kernel's.
typedef struct outcome {
    int32_t ids[ROWS];
    int32_t last[SLOTS];
    int32_t sampled[ROWS];
    int32_t state[STATES * MOST];
} outcome;

static void make(stage *g, int32_t n, uint64_t seed) {
    uint64_t rng = seed;
    *g = (stage){.n = n};
    g->step.head = (pgd_batch_head){.n_tokens = ROWS, .n_seqs = ROWS, .n_out = ROWS};
    g->logits = malloc((size_t)ROWS * (size_t)n * sizeof(float));
    g->state = calloc((size_t)STATES * (size_t)n, sizeof(int32_t));
    g->scratch = test_room((int64_t)ROWS * n * 4 + (int64_t)ROWS * (n / TILE + 1) * 8);
    for (int64_t i = 0; i < (int64_t)ROWS * n; i++) { // a sum of three, so that few are large
        const double v =
            (double)test_number(&rng) + (double)test_number(&rng) + (double)test_number(&rng);
        g->logits[i] = (float)(v * 5);
    }
    for (int32_t i = 0; i < n; i++) {
        g->logits[3 * n + i] = roundf(g->logits[3 * n + i]); // ties
        g->logits[4 * n + i] = i % 3 == 0 ? NAN : g->logits[4 * n + i];
        g->logits[5 * n + i] = NAN;
        g->logits[6 * n + i] = i % 5 == 0 ? -INFINITY : 2.5F; // all the same
        g->logits[7 * n + i] = i == n / 2 ? 3e38F : -3e38F;
        g->state[i] = i % 7 == 0 ? i % 3 : 0;
        g->state[n + i] = i % 11 == 0 ? 1 << 30 | i % 2 : 0;
    }
    for (int32_t r = 0; r < ROWS; r++) {
        g->step.out_slot[r] = SLOTS - 1 - r;
        g->step.sampling[r] =
            (pgd_sampling){.temperature = 1, .seed = seed * 77, .counter = (uint64_t)r << 31};
    }
    for (size_t i = 0; i < sizeof(g->step.mask) / 4; i++) {
        ((uint32_t *)g->step.mask)[i] = (uint32_t)i * UINT32_C(2654435761);
    }
    for (int32_t i = 0; i < BIASES; i++) {
        g->step.bias[i] = (pgd_bias){.id = i * 3 % n, .add = i == 1 ? -INFINITY : 9.5F};
    }
}

static void drop(stage *g) {
    free(g->logits);
    free(g->state);
    free(g->scratch);
}

static void take(const stage *g, outcome *o) {
    memset(o, 0, sizeof(*o));
    memcpy(o->ids, g->ids, sizeof(o->ids));
    memcpy(o->last, g->step.last, sizeof(o->last));
    memcpy(o->sampled, g->step.sampled, sizeof(o->sampled));
    memcpy(o->state, g->state, (size_t)STATES * (size_t)g->n * sizeof(int32_t));
}

static void clear(stage *g, const int32_t *state) {
    memset(g->ids, 0x55, sizeof(g->ids));
    memset(g->step.last, 0x55, sizeof(g->step.last));
    memset(g->step.sampled, 0x55, sizeof(g->step.sampled));
    memcpy(g->state, state, (size_t)STATES * (size_t)g->n * sizeof(int32_t));
}

static void expect(stage *g) {
    const size_t bytes = (size_t)ROWS * (size_t)g->n * sizeof(float);
    float *logits = malloc(bytes); // the reference changes them
    const pgd_batch batch = {.size = sizeof(batch),
                             .cap_tokens = ROWS,
                             .cap_out = ROWS,
                             .cap_slots = SLOTS,
                             .sampling_stride = sizeof(pgd_sampling),
                             .mirror = &g->step,
                             .out_slot = offsetof(step, out_slot),
                             .last = offsetof(step, last),
                             .sampled = offsetof(step, sampled),
                             .sampling = offsetof(step, sampling),
                             .mask = offsetof(step, mask),
                             .bias = offsetof(step, bias),
                             .upload_bytes = sizeof(step)};
    pgd_sample_args a = {.size = sizeof(a),
                         .rows = PGD_ROWS_OUTPUTS,
                         .batch = &batch,
                         .logits = test_tensor(PGD_F32, logits, ROWS, 0, g->n, g->n),
                         .ids = {.offset = (uint64_t)(uintptr_t)g->ids,
                                 .dtype = PGD_I32,
                                 .rank = 1,
                                 .shape = {ROWS},
                                 .stride = {1}},
                         .state = test_tensor(PGD_I32, g->state, STATES, 0, g->n, g->n)};
    memcpy(logits, g->logits, bytes);
    assert_int_equal(pgd_ref_sample(NULL, &a), PGD_OK);
    free(logits);
}

// The best columns of every row, by tiles, as KC_TAIL_BEST writes them: a larger number is better.
static void keep_best(stage *g, char *to) {
    const int32_t tiles = (g->n + TILE - 1) / TILE;
    for (int32_t r = 0; r < ROWS; r++) {
        for (int32_t t = 0; t < tiles; t++) {
            uint64_t best = 0;
            int32_t at = -1;
            for (int32_t i = t * TILE; i < g->n && i < (t + 1) * TILE; i++) {
                const float v = g->logits[r * g->n + i];
                at = v == v && (at < 0 || v > g->logits[r * g->n + at]) ? i : at;
            }
            if (at >= 0) {
                const float v = g->logits[r * g->n + at] + 0.0F;
                uint32_t bits = 0;
                memcpy(&bits, &v, 4);
                bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
                best = (uint64_t)bits << 32 | ~(uint32_t)at;
            }
            memcpy(to + ((int64_t)r * tiles + t) * 8, &best, 8);
        }
    }
}

static void run(stage *g, int32_t keeps) {
    const int64_t best_at = ((int64_t)ROWS * g->n * 4 + 7) / 8 * 8;
    kc_draw_params p = {.s = {.draw = {.x = {.s0 = g->n, .dtype = K_F32},
                                       .out_slot_at = offsetof(step, out_slot),
                                       .last_at = offsetof(step, last),
                                       .sampled_at = offsetof(step, sampled),
                                       .rows = {.mode = 2, .n = ROWS},
                                       .n = g->n,
                                       .n_slots = SLOTS,
                                       .cap_out = ROWS},
                              .work = {.s0 = g->n, .dtype = K_F32},
                              .state = {.s0 = g->n, .dtype = K_F32},
                              .sampling_at = offsetof(step, sampling),
                              .mask_at = offsetof(step, mask),
                              .bias_at = offsetof(step, bias),
                              .sampling_stride = sizeof(pgd_sampling),
                              .n_state = STATES},
                        .best_at = best_at,
                        .n_best = keeps ? (g->n + TILE - 1) / TILE : 0};
    void *const m[8] = {&g->step, g->logits, g->scratch, g->ids, NULL, NULL, NULL, g->state};
    if (keeps) {
        keep_best(g, g->scratch + best_at);
    }
    test_launch(PGD_CUDA_draw, ROWS, 1, 1, m, &p);
}

// how: bit 0 the logits are looked through, bit 1 the best columns are kept.
static void check(stage *g, int32_t how) {
    const size_t bytes = (size_t)STATES * (size_t)g->n * sizeof(int32_t);
    static outcome want, got;
    int32_t *state = malloc(bytes);
    memcpy(state, g->state, bytes);
    clear(g, state);
    expect(g);
    take(g, &want);
    for (int32_t keeps = 0; keeps < 2; keeps++) {
        if ((how >> keeps & 1) == 0) {
            continue;
        }
        clear(g, state);
        run(g, keeps);
        take(g, &got);
        for (int32_t r = 0; r < ROWS; r++) {
            if (got.ids[r] != want.ids[r]) {
                fail_msg("n %d, row %d, best kept %d: token %d, not %d", g->n, r, keeps, got.ids[r],
                         want.ids[r]);
            }
        }
        assert_memory_equal(&got, &want, sizeof(got));
    }
    free(state);
}

static const int32_t sizes[] = {1, 61, MOST};

// Every row with the same parameters.
static void limits(void **state) {
    static const pgd_sampling all[] = {
        {.flags = PGD_SAMPLE_GREEDY},
        {.temperature = 1},
        {.temperature = 0.3F, .min_p = 0.05F},
        {.temperature = 1, .top_k = 1},
        {.temperature = 2, .top_k = 40},
        {.temperature = 2, .top_k = 100000},
        {.temperature = 1, .top_p = 0.9F},
        {.temperature = 3, .top_p = 0.3F},
        {.temperature = 1, .top_p = 1e-30F},
        {.temperature = 1, .top_p = 0.99999F},
        {.temperature = 1.5F, .top_k = 50, .top_p = 0.95F, .min_p = 0.01F},
        {.temperature = 0.001F, .top_p = 0.5F},
    };
    (void)state;
    for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        for (size_t c = 0; c < sizeof(all) / sizeof(all[0]); c++) {
            stage g;
            make(&g, sizes[n], 11 + c);
            for (int32_t r = 0; r < ROWS; r++) {
                const pgd_sampling was = g.step.sampling[r];
                g.step.sampling[r] = all[c];
                g.step.sampling[r].seed = was.seed;
                g.step.sampling[r].counter = was.counter;
            }
            check(&g, 1 << (n + c) % 2);
            drop(&g);
        }
    }
}

// Rows of every kind in one step: changed, counted, given, greedy.
static void changes(void **state) {
    (void)state;
    for (size_t n = 1; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        stage g;
        make(&g, sizes[n], 5);
        pgd_sampling *s = g.step.sampling;
        s[0].flags = PGD_SAMPLE_GREEDY;
        s[1].state_row = 1;
        s[1].frequency = 0.5F;
        s[1].presence = 0.25F;
        s[2].state_row = 2;
        s[2].repetition = 1.3F;
        s[2].flags = PGD_SAMPLE_GREEDY;
        s[3].mask_row = 1;
        s[3].top_k = 20;
        s[4].mask_row = 2;
        s[4].flags = PGD_SAMPLE_GREEDY;
        s[5].state_row = 3; // a row of NaN counts nothing
        s[8].bias_count = BIASES;
        s[8].flags = PGD_SAMPLE_GREEDY;
        s[9].bias_start = 1;
        s[9].bias_count = 2;
        s[9].top_p = 0.8F;
        s[10].flags = PGD_SAMPLE_GIVEN;
        s[10].given = g.n - 1;
        s[10].mask_row = 1;
        check(&g, 3);
        drop(&g);
    }
}

static void other_order(void **state) {
    pgd_emulator_backwards = 1;
    changes(state);
    pgd_emulator_backwards = 0;
}

// Rows behind the live ones, and slots that there are not, stay as they are.
static void live_rows(void **state) {
    stage g;
    (void)state;
    make(&g, 61, 3);
    g.step.head.n_out = 4;
    g.step.out_slot[2] = SLOTS;
    memset(g.ids, 0x55, sizeof(g.ids));
    memset(g.step.last, 0x55, sizeof(g.step.last));
    run(&g, 1);
    for (int32_t r = 0; r < ROWS; r++) {
        assert_int_equal(g.ids[r] == 0x55555555, r >= 4);
        assert_int_equal(g.step.last[SLOTS - 1 - r] == 0x55555555, r >= 4 || r == 2);
    }
    drop(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),
        cmocka_unit_test(changes),
        cmocka_unit_test(other_order),
        cmocka_unit_test(live_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
