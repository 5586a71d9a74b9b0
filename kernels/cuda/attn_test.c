// Attention on tensor cores, lane by lane on the emulator: close to kernels/ref, and the same bits
// from prefill, from decode, and from both where each takes its sequences.
#define _POSIX_C_SOURCE 200809L
#include "test_cuda.h"

enum { SEQS = 4, SLOTS = 5, TABLE = 80, BLOCKS = 90 };

// The arrays of a step's batch.
typedef struct step {
    pgd_batch_head head;
    int32_t q_start[SEQS + 1];
    int32_t kv_len[SEQS];
    int32_t seq_slot[SEQS];
    int32_t table[SLOTS][TABLE];
} step;

typedef struct scene {
    int32_t dtype; // of the cache and of q
    int32_t out_dtype;
    int32_t dim;
    int32_t heads;
    int32_t kv_heads;
    int32_t tokens; // of a block
    int32_t n_seqs;
    int32_t rows[SEQS];
    int32_t len[SEQS];
    int32_t causal;
    int32_t window;
    int32_t window_right;
    int32_t has_sinks;
    float softcap;
} scene;

typedef struct stage {
    const scene *is;
    step *step;
    int32_t rows; // of the step
    int64_t q_stride;
    int64_t k_bytes; // of all heads of a block
    unsigned char *ref;
    unsigned char *cache;
    void *q;
    float *sinks;
    float *lse; // reference
    float *want;
    void *parts;
    uint32_t *counters;
} stage;

static int64_t cache_at(const scene *s, int32_t which, int32_t block, int32_t head, int32_t token,
                        int32_t dim) {
    const int64_t head_elements = (int64_t)s->tokens * s->dim;
    int64_t at = ((int64_t)block * 2 + which) * s->kv_heads * head_elements;
    at += head * head_elements;
    return which == 0 ? at + (dim / 8 * s->tokens + token) * 8 + dim % 8
                      : at + (int64_t)token * s->dim + dim;
}

// Random keys and values in the blocks of the sequences; all else is NaN.
static void fill_cache(stage *g) {
    const scene *s = g->is;
    const int64_t elements = (int64_t)BLOCKS * 2 * s->kv_heads * s->tokens * s->dim;
    uint64_t rng = 5;
    int32_t next = 1;
    g->cache = malloc((size_t)elements * 2);
    g->ref = malloc((size_t)elements * 2);
    memset(g->cache, 0xff, (size_t)elements * 2);
    memset(g->ref, 0xff, (size_t)elements * 2);
    memset(g->step->table, 0x7f, sizeof(g->step->table)); // entries nobody may follow
    for (int32_t i = 0; i < s->n_seqs; i++) {
        int32_t *table = g->step->table[g->step->seq_slot[i]];
        for (int32_t j = 0; j < s->len[i]; j++) {
            if (j % s->tokens == 0) {
                table[j / s->tokens] = next * 37 % BLOCKS; // 37 and BLOCKS share no factor
                next++;
            }
            const int32_t block = table[j / s->tokens], token = j % s->tokens;
            for (int32_t which = 0; which < 2; which++) {
                for (int32_t h = 0; h < s->kv_heads; h++) {
                    for (int32_t d = 0; d < s->dim; d++) {
                        const double v = (double)test_number(&rng);
                        const int64_t at =
                            (((int64_t)block * 2 + which) * s->tokens + token) * s->kv_heads + h;
                        pgd_ref_store(s->dtype, g->ref, at * s->dim + d, v);
                        pgd_ref_store(s->dtype, g->cache, cache_at(s, which, block, h, token, d),
                                      v);
                    }
                }
            }
        }
        assert_true(next <= BLOCKS);
    }
}

static void expect(stage *g) {
    const scene *s = g->is;
    const pgd_batch batch = {.size = sizeof(batch),
                             .cap_tokens = g->rows,
                             .cap_seqs = SEQS,
                             .cap_slots = SLOTS,
                             .n_groups = 1,
                             .cap_blocks = {TABLE},
                             .mirror = g->step,
                             .q_start = offsetof(step, q_start),
                             .kv_len = offsetof(step, kv_len),
                             .seq_slot = offsetof(step, seq_slot),
                             .block_table = {offsetof(step, table)}};
    const pgd_ref_kv kv = {.desc = {.size = sizeof(pgd_kv_desc),
                                    .layers = 1,
                                    .heads = s->kv_heads,
                                    .k_dim = s->dim,
                                    .v_dim = s->dim,
                                    .k_dtype = s->dtype,
                                    .v_dtype = s->dtype,
                                    .block_tokens = s->tokens},
                           .n_blocks = BLOCKS,
                           .mem = g->ref};
    const pgd_attn_args a = {
        .size = sizeof(a),
        .rows = PGD_ROWS_TOKENS,
        .batch = &batch,
        .kv = (pgd_kv *)&kv,
        .q = test_tensor(s->dtype, g->q, g->rows, s->heads, s->dim, g->q_stride),
        .out = test_tensor(PGD_F32, g->want, g->rows, s->heads, s->dim, s->heads * s->dim),
        .sinks = {.offset = (uint64_t)(uintptr_t)g->sinks,
                  .dtype = PGD_F32,
                  .rank = s->has_sinks ? 1 : 0,
                  .shape = {s->heads},
                  .stride = {1}},
        .lse = test_tensor(PGD_F32, g->lse, g->rows, 0, s->heads, s->heads),
        .scale = 0.5F,
        .softcap = s->softcap,
        .window_left = s->window,
        .window_right = s->window_right,
        .causal = s->causal};
    assert_int_equal(pgd_ref_attn(NULL, &a), PGD_OK);
}

static void make(stage *g, const scene *s) {
    *g = (stage){.is = s, .q_stride = s->heads * s->dim + 8};
    g->step = calloc(1, sizeof(*g->step));
    for (int32_t i = 0; i < s->n_seqs; i++) {
        g->step->q_start[i] = g->rows;
        g->rows += s->rows[i];
        g->step->q_start[i + 1] = g->rows;
        g->step->kv_len[i] = s->len[i];
        g->step->seq_slot[i] = (i * 3 + 1) % SLOTS;
        if (s->len[i] > g->step->head.max_kv) {
            g->step->head.max_kv = s->len[i];
        }
    }
    g->step->head.n_tokens = g->rows;
    g->step->head.n_seqs = s->n_seqs;
    fill_cache(g);
    g->q = test_numbers(s->dtype, g->rows * g->q_stride, 7, 1);
    g->sinks = test_numbers(PGD_F32, s->heads, 8, 2);
    g->want = test_room((int64_t)g->rows * s->heads * s->dim * 4);
    g->lse = test_room((int64_t)g->rows * s->heads * 4);
    g->counters = calloc((size_t)g->rows * (size_t)s->heads, sizeof(uint32_t));
    g->parts = test_room((int64_t)g->rows * s->heads * ((g->step->head.max_kv + 63) / 64) *
                         (s->dim + 2) * 4);
    expect(g);
}

static void drop(stage *g) {
    void *all[] = {g->step, g->ref,  g->cache, g->q,       g->sinks,
                   g->lse,  g->want, g->parts, g->counters};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
}

static int32_t log2_of(int32_t n) {
    int32_t shift = 0;
    while (1 << shift < n) {
        shift++;
    }
    return shift;
}

static kc_attn_params params_of(const stage *g) {
    const scene *s = g->is;
    const int64_t half = (int64_t)s->kv_heads * s->tokens * s->dim * 2;
    return (kc_attn_params){
        .a = {.q = {.s0 = g->q_stride, .s1 = s->dim, .dtype = s->dtype},
              .out = {.s0 = s->heads * s->dim, .s1 = s->dim, .dtype = s->out_dtype},
              .cache = {.block_bytes = half * 2,
                        .v_at = half,
                        .n_blocks = BLOCKS,
                        .tokens = s->tokens,
                        .heads = s->kv_heads,
                        .k_dim = s->dim,
                        .v_dim = s->dim,
                        .k_units = s->dim / 8,
                        .k_dtype = s->dtype,
                        .v_dtype = s->dtype},
              .lse_stride = s->heads,
              .q_start_at = offsetof(step, q_start),
              .kv_len_at = offsetof(step, kv_len),
              .seq_slot_at = offsetof(step, seq_slot),
              .table_at = offsetof(step, table),
              .rows = {.mode = 1, .n = g->rows},
              .heads = s->heads,
              .cap_seqs = SEQS,
              .cap_blocks = TABLE,
              .n_slots = SLOTS,
              .has = (s->has_sinks ? 1 : 0) | 4,
              .scale = 0.5F,
              .softcap = s->softcap,
              .window_left = s->window,
              .window_right = s->window_right,
              .causal = s->causal,
              .n_parts = (g->step->head.max_kv + 63) / 64},
        .token_shift = log2_of(s->tokens)};
}

typedef struct result {
    void *out;
    float *lse;
    size_t out_bytes;
    size_t lse_bytes;
} result;

// few: of sequences with at most so many rows decode runs, prefill of the rest.
static result run(stage *g, int32_t few) {
    const scene *s = g->is;
    const int32_t base =
        s->dtype == PGD_BF16 ? PGD_CUDA_attn_prefill_bf16_d64 : PGD_CUDA_attn_prefill_f16_d64;
    const int32_t prefill = base + (s->dim == 128 ? 2 : 0);
    const int32_t share = s->heads / s->kv_heads, tokens = KC_PREFILL / share;
    kc_attn_params p = params_of(g);
    result r = {.out_bytes =
                    (size_t)(g->rows * s->heads * s->dim) * (s->out_dtype == PGD_F32 ? 4 : 2),
                .lse_bytes = (size_t)(g->rows * s->heads) * 4};
    r.out = test_room((int64_t)r.out_bytes);
    r.lse = test_room((int64_t)r.lse_bytes);
    void *const m[8] = {g->step, g->q, g->cache, r.out, g->sinks, g->counters, r.lse, g->parts};
    p.few = few;
    test_launch(prefill, (uint32_t)((g->rows + tokens - 1) / tokens), (uint32_t)s->kv_heads, 1, m,
                &p);
    test_launch(prefill + 1, (uint32_t)((g->step->head.max_kv + KC_CHUNK - 1) / KC_CHUNK),
                (uint32_t)(s->kv_heads * ((share + KC_HEADS - 1) / KC_HEADS)), (uint32_t)g->rows, m,
                &p);
    for (int32_t i = 0; i < g->rows * s->heads; i++) {
        assert_int_equal(g->counters[i], 0);
    }
    return r;
}

// Half a unit in the last place of a dtype, at most, relative to the number.
static double rounding(int32_t dtype) {
    return dtype == PGD_F32 ? 0 : dtype == PGD_BF16 ? 0x1p-8 : 0x1p-11;
}

// Weights are rounded to the cache's dtype, above and below the line; values are at most 1.
static void assert_near(const stage *g, const result *r) {
    const scene *s = g->is;
    const double unit = rounding(s->dtype);
    for (int64_t i = 0; i < (int64_t)g->rows * s->heads * s->dim; i++) {
        const double got = pgd_ref_load(s->out_dtype, r->out, i);
        const double size = fabs((double)g->want[i]);
        const double room = unit * (1 + size) + rounding(s->out_dtype) * size + 1e-5;
        if (!(fabs(got - (double)g->want[i]) <= room)) {
            fail_msg("row %d, head %d, dim %d: %.9g, not %.9g", (int)(i / s->dim / s->heads),
                     (int)(i / s->dim % s->heads), (int)(i % s->dim), got, (double)g->want[i]);
        }
    }
    for (int32_t i = 0; i < g->rows * s->heads; i++) {
        if (g->lse[i] != r->lse[i] &&
            !(fabs((double)g->lse[i] - (double)r->lse[i]) <= unit + 1e-5)) {
            fail_msg("row %d, head %d: lse %.9g, not %.9g", i / s->heads, i % s->heads,
                     (double)r->lse[i], (double)g->lse[i]);
        }
    }
}

static void check(const scene *s) {
    stage g;
    result first;
    const int32_t ways[] = {0, 1, 1 << 30}; // all prefill, each its own, all decode
    make(&g, s);
    first = run(&g, ways[0]);
    assert_near(&g, &first);
    for (int i = 1; i < 3; i++) {
        result r = run(&g, ways[i]);
        assert_near(&g, &r);
        assert_memory_equal(first.out, r.out, r.out_bytes);
        assert_memory_equal(first.lse, r.lse, r.lse_bytes);
        free(r.out);
        free(r.lse);
    }
    free(first.out);
    free(first.lse);
    drop(&g);
}

static const scene usual = {.dtype = PGD_BF16,
                            .out_dtype = PGD_F32,
                            .dim = 64,
                            .heads = 8,
                            .kv_heads = 2,
                            .tokens = 16,
                            .n_seqs = 3,
                            .rows = {1, 20, 1},
                            .len = {130, 75, 1},
                            .causal = 1};

static void shapes(void **state) {
    scene s = usual;
    (void)state;
    check(&s);
    s.dim = 128;
    s.out_dtype = PGD_BF16;
    check(&s);
    s.dtype = PGD_F16;
    s.tokens = 32;
    s.heads = s.kv_heads = 2; // 64 rows of one head
    check(&s);
    s = usual;
    s.dtype = s.out_dtype = PGD_F16;
    s.tokens = 64;
    s.heads = 20; // more heads than a group of decode takes
    s.kv_heads = 1;
    check(&s);
    s = usual;
    s.heads = 6; // 21 rows of 3 heads, one row of a tile left over
    s.tokens = 8;
    s.len[0] = 257;
    check(&s);
}

// More than one group of tiles: the last one merges.
static void long_rows(void **state) {
    scene s = usual;
    (void)state;
    s.heads = 4;
    s.kv_heads = 1;
    s.n_seqs = 2;
    s.rows[1] = 3;
    s.len[0] = 641;
    s.len[1] = 513;
    check(&s);
    s.window = 300; // the first groups see nothing
    check(&s);
}

static void masks(void **state) {
    scene s = usual;
    (void)state;
    s.window = 40;
    check(&s);
    s.window = 65;
    s.has_sinks = 1;
    s.softcap = 3;
    check(&s);
    s.window = 0;
    s.causal = 0;
    check(&s);
    s.window_right = 5;
    check(&s);
}

// A wrong entry of the block table is passed over, and only its own sequence knows of it.
static void wrong_blocks(void **state) {
    const int32_t wrong[] = {BLOCKS, -7, 0x7fffffff};
    const scene *s = &usual;
    stage g;
    result right, r;
    (void)state;
    make(&g, s);
    right = run(&g, 1);
    for (int i = 0; i < 3; i++) {
        g.step->table[g.step->seq_slot[1]][1] = wrong[i];
        g.step->table[g.step->seq_slot[0]][0] = wrong[i];
        r = run(&g, 1);
        const size_t row = (size_t)s->heads * (size_t)s->dim * sizeof(float);
        const char *last = (const char *)right.out + (size_t)(g.rows - 1) * row;
        assert_memory_equal(last, (const char *)r.out + (size_t)(g.rows - 1) * row, row);
        assert_memory_not_equal(right.out, r.out, row);
        free(r.out);
        free(r.lse);
    }
    free(right.out);
    free(right.lse);
    drop(&g);
}

static void other_order(void **state) {
    pgd_emulator_backwards = 1;
    shapes(state);
    pgd_emulator_backwards = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),       cmocka_unit_test(long_rows),   cmocka_unit_test(masks),
        cmocka_unit_test(wrong_blocks), cmocka_unit_test(other_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
