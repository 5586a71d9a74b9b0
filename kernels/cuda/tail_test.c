// What gemm_small does behind its sums: qkv's heads have the bits of the two kernels that they are
// in one, are close to kernels/ref, and the best column of a row is the one that a look through
// the written row finds; x that is not packed changes nothing.
#define _POSIX_C_SOURCE 200809L
#include "test_cuda.h"

#include "portable/emulated.h"
#include "portable/portable.h"

enum { ROWS = 19, TOKENS = 16, BLOCKS = 3, AXES = 2, TABLE_ROWS = 40, VOCABULARY = 600, NANS = 5 };

typedef struct step {
    pgd_batch_head head;
    int32_t positions[AXES][ROWS];
    int32_t slots[ROWS];
} step;

typedef struct scene {
    int32_t q_heads;
    int32_t kv_heads;
    int32_t dim;
    int32_t rot_dim;
    int32_t style;
    int32_t sections[2];
    int32_t has_norms;
    int32_t has_bias;
    int32_t y_dtype;
    int32_t cache_dtype;
    int32_t k;
    int32_t slice;
} scene;

typedef struct stage {
    const scene *is;
    int32_t n;
    step step;
    void *w;
    uint16_t *packed;
    void *x;
    void *x_packed;
    float *bias;
    float *table;
    float *norms; // q, then k
    void *parts;
    uint32_t counters[64];
} stage;

static int64_t cache_bytes(const scene *s) {
    return (int64_t)BLOCKS * 2 * s->kv_heads * TOKENS * s->dim *
           (s->cache_dtype == PGD_F32 ? 4 : 2);
}

static void make(stage *g, const scene *s) {
    const int32_t k_pad = (s->k + KC_STEP - 1) / KC_STEP * KC_STEP;
    *g = (stage){.is = s, .n = (s->q_heads + 2 * s->kv_heads) * s->dim};
    g->step.head = (pgd_batch_head){.n_tokens = ROWS, .n_seqs = 1, .n_out = ROWS};
    g->w = test_numbers(PGD_BF16, (int64_t)g->n * s->k, 1, 0.2);
    g->x = test_numbers(PGD_BF16, (int64_t)ROWS * s->k, 2, 1);
    g->bias = test_numbers(PGD_F32, g->n, 3, 1);
    g->table = test_numbers(PGD_F32, (int64_t)TABLE_ROWS * s->rot_dim, 4, 1);
    g->norms = test_numbers(PGD_F32, 2 * s->dim, 5, 1);
    g->x_packed = test_room((int64_t)ROWS * k_pad * 2);
    g->parts = test_room((int64_t)((s->k + s->slice - 1) / s->slice) * ROWS * g->n * 4);
    g->packed = malloc((size_t)g->n * (size_t)s->k * 2);
    for (int32_t row = 0; row < g->n; row++) {
        for (int32_t k = 0; k < s->k; k++) {
            g->packed[((size_t)(row / 8) * (size_t)s->k + (size_t)k) * 8 + (size_t)(row % 8)] =
                ((uint16_t *)g->w)[(size_t)row * (size_t)s->k + (size_t)k];
        }
    }
    for (int32_t r = 0; r < ROWS; r++) {
        g->step.positions[0][r] = r * 2;
        g->step.positions[1][r] = TABLE_ROWS - 1 - r;
        g->step.slots[r] = (r * 7 + 3) % (BLOCKS * TOKENS);
    }
    const kc_pack_x_params p = {.x = {.s0 = s->k, .dtype = PGD_BF16},
                                .out_s0 = k_pad,
                                .rows = {.mode = 1, .n = ROWS},
                                .n = s->k,
                                .dtype = PGD_BF16};
    void *const m[8] = {&g->step, g->x, g->x_packed};
    test_launch(PGD_CUDA_pack_x, (uint32_t)(k_pad + 511) / 512, ROWS, 1, m, &p);
}

static void drop(stage *g) {
    void *all[] = {g->w, g->packed, g->x, g->x_packed, g->bias, g->table, g->norms, g->parts};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
}

static k_cache cache_of(const scene *s) {
    const int64_t item = s->cache_dtype == PGD_F32 ? 4 : 2;
    const int64_t half = (int64_t)s->kv_heads * TOKENS * s->dim * item;
    return (k_cache){.block_bytes = 2 * half,
                     .v_at = half,
                     .n_blocks = BLOCKS,
                     .tokens = TOKENS,
                     .heads = s->kv_heads,
                     .k_dim = s->dim,
                     .v_dim = s->dim,
                     .k_units = s->dim / 8,
                     .k_dtype = s->cache_dtype,
                     .v_dtype = s->cache_dtype};
}

static kc_gemm_params params_of(const stage *g, int32_t tail) {
    const scene *s = g->is;
    kc_gemm_params p = {
        .g = {.w = {.n = g->n, .k = s->k, .format = PGD_BF16, .layout = K_LAYOUT_PANELS},
              .x = {.s0 = (s->k + KC_STEP - 1) / KC_STEP * KC_STEP, .dtype = PGD_BF16},
              .y = {.s0 = g->n, .dtype = s->y_dtype},
              .rows = {.mode = 1, .n = ROWS},
              .has_bias = s->has_bias,
              .alpha = 1},
        .slice = s->slice,
        .n_slices = (s->k + s->slice - 1) / s->slice,
        .panels = (g->n + 7) / 8,
        .merges = 1,
        .tail = tail,
        .heads = {.table = (int64_t)(intptr_t)g->table,
                  .q_norm = (int64_t)(intptr_t)g->norms,
                  .k_norm = (int64_t)(intptr_t)(g->norms + s->dim),
                  .cache = cache_of(s),
                  .positions_at = offsetof(step, positions),
                  .slots_at = offsetof(step, slots),
                  .q_heads = s->q_heads,
                  .kv_heads = s->kv_heads,
                  .dim = s->dim,
                  .table_rows = TABLE_ROWS,
                  .cap_tokens = ROWS,
                  .rot_dim = s->rot_dim,
                  .style = s->style,
                  .sections = {s->sections[0], s->sections[1]},
                  .has_norms = s->has_norms,
                  .eps = 1e-5F}};
    return p;
}

static void launch(stage *g, int32_t kernel, kc_gemm_params *p, void *y, void *cache) {
    const int32_t rows = (int32_t)pgd_cuda_kernels[kernel].rows;
    void *const m[8] = {&g->step, g->packed,  p->x_plain ? g->x : g->x_packed, y, g->bias, cache,
                        g->parts, g->counters};
    p->g.x.s0 = p->x_plain ? g->is->k : p->g.x.s0;
    test_launch(kernel, (uint32_t)(p->panels + 31) / 32, (uint32_t)p->n_slices,
                (uint32_t)((ROWS + rows - 1) / rows), m, p);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(g->counters[i], 0);
    }
}

// The product, then portable's kernel for heads.
static void unfused(stage *g, void *y, void *cache) {
    const scene *s = g->is;
    const int64_t item = s->y_dtype == PGD_F32 ? 4 : 2;
    kc_gemm_params p = params_of(g, KC_TAIL_STORE);
    launch(g, PGD_CUDA_gemm_small_bf16_r32, &p, y, NULL);
    const int64_t k_at = (int64_t)s->q_heads * s->dim * item;
    const int64_t v_at = k_at + (int64_t)s->kv_heads * s->dim * item;
    const k_heads_params h = {.q = {.s0 = g->n, .s1 = s->dim, .dtype = s->y_dtype},
                              .k = {.at = k_at, .s0 = g->n, .s1 = s->dim, .dtype = s->y_dtype},
                              .v = {.at = v_at, .s0 = g->n, .s1 = s->dim, .dtype = s->y_dtype},
                              .cache = cache_of(s),
                              .positions_at = offsetof(step, positions),
                              .slots_at = offsetof(step, slots),
                              .k_norm_at = (int64_t)s->dim * (int64_t)sizeof(float),
                              .rows = {.mode = 1, .n = ROWS},
                              .q_heads = s->q_heads,
                              .k_heads = s->kv_heads,
                              .q_dim = s->dim,
                              .k_dim = s->dim,
                              .v_dim = s->dim,
                              .table_rows = TABLE_ROWS,
                              .cap_tokens = ROWS,
                              .rot_dim = s->rot_dim,
                              .style = s->style,
                              .sections = {s->sections[0], s->sections[1]},
                              .has_norms = s->has_norms,
                              .writes = 1,
                              .eps = 1e-5F};
    k_u8 *const m[8] = {(k_u8 *)&g->step, y,    y, y, (k_u8 *)g->table, (k_u8 *)g->norms,
                        (k_u8 *)g->norms, cache};
    const k_u32 groups[3] = {(k_u32)(s->q_heads + s->kv_heads), ROWS, 1};
    assert_int_equal(
        pgd_emulator_run(pgd_emulated_kernels[PGD_PORTABLE_heads], groups, K_WG, m, &h), 0);
}

static void check_heads(const scene *s) {
    const size_t item = s->y_dtype == PGD_F32 ? 4 : 2;
    stage g;
    make(&g, s);
    const size_t y_bytes = ROWS * (size_t)g.n * item, c_bytes = (size_t)cache_bytes(s);
    char *want = test_room((int64_t)y_bytes), *want_cache = test_room((int64_t)c_bytes);
    g.step.slots[4] = -1;              // nothing is written for it
    g.step.slots[9] = BLOCKS * TOKENS; // nor for a block that there is not
    unfused(&g, want, want_cache);
    for (int32_t i = PGD_CUDA_gemm_small_bf16_r8; i <= PGD_CUDA_gemm_small_bf16_r64; i++) {
        char *y = test_room((int64_t)y_bytes), *cache = test_room((int64_t)c_bytes);
        kc_gemm_params p = params_of(&g, KC_TAIL_HEADS);
        launch(&g, i, &p, y, cache);
        assert_memory_equal(cache, want_cache, c_bytes);
        for (int32_t r = 0; r < ROWS; r++) { // of y only q is promised, and k, v are left alone
            const char *row = y + (size_t)r * (size_t)g.n * item;
            const size_t q_bytes = (size_t)(s->q_heads * s->dim) * item;
            assert_memory_equal(row, want + (size_t)r * (size_t)g.n * item, q_bytes);
            for (size_t j = q_bytes; j < (size_t)g.n * item; j++) {
                assert_int_equal((unsigned char)row[j], 0xee);
            }
        }
        free(y);
        free(cache);
    }
    free(want);
    free(want_cache);
    drop(&g);
}

static const scene scenes[] = {
    {4, 2, 64, 64, PGD_ROPE_HALF, {0, 0}, 0, 0, PGD_BF16, PGD_BF16, 192, 64},
    {3, 1, 128, 128, PGD_ROPE_HALF, {0, 0}, 3, 1, PGD_BF16, PGD_BF16, 100, 128},
    {2, 2, 128, 96, PGD_ROPE_INTERLEAVED, {20, 28}, 1, 0, PGD_F32, PGD_BF16, 130, 64},
    {5, 1, 64, 32, PGD_ROPE_HALF, {5, 11}, 2, 1, PGD_F16, PGD_F32, 64, 64},
    {1, 1, 64, 0, PGD_ROPE_HALF, {0, 0}, 3, 1, PGD_BF16, PGD_F16, 70, 64},
};

static void heads_are_two_kernels_in_one(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        check_heads(&scenes[i]);
    }
}

static void other_order(void **state) {
    (void)state;
    pgd_emulator_backwards = 1;
    check_heads(&scenes[1]);
    pgd_emulator_backwards = 0;
}

// kernels/ref over the same step: a cache of its own layout, and room for one rounding of qkv, the
// norm and the turn each.
static void assert_near(double got, double want, double most, const char *what, int32_t row,
                        int32_t i) {
    if (!(fabs(got - want) <= 0x1p-6 * most)) {
        fail_msg("%s of row %d, %d: %.9g, not %.9g", what, row, i, got, want);
    }
}

static pgd_tensor vector(float *p, int32_t n) {
    return (pgd_tensor){
        .offset = (uint64_t)(uintptr_t)p, .dtype = PGD_F32, .rank = 1, .shape = {n}, .stride = {1}};
}

static void expect(stage *g, void *qkv, unsigned char *cache) {
    const scene *s = g->is;
    const pgd_batch batch = {.size = sizeof(batch),
                             .cap_tokens = ROWS,
                             .n_axes = 1,
                             .n_groups = 1,
                             .mirror = &g->step,
                             .positions = offsetof(step, positions),
                             .slots = {offsetof(step, slots)}};
    const pgd_ref_weight w = {
        .dtype = PGD_BF16, .act_dtype = PGD_BF16, .n = g->n, .k = s->k, .rows = g->w};
    const pgd_ref_kv kv = {.desc = {.size = sizeof(pgd_kv_desc),
                                    .layers = 1,
                                    .heads = s->kv_heads,
                                    .k_dim = s->dim,
                                    .v_dim = s->dim,
                                    .k_dtype = s->cache_dtype,
                                    .v_dtype = s->cache_dtype,
                                    .block_tokens = TOKENS},
                           .n_blocks = BLOCKS,
                           .mem = cache};
    uint16_t *y = qkv;
    pgd_qkv_rope_write_args a = {
        .size = sizeof(a),
        .rows = PGD_ROWS_TOKENS,
        .batch = &batch,
        .w = (pgd_weight *)(uintptr_t)&w,
        .kv = (pgd_kv *)(uintptr_t)&kv,
        .x = test_tensor(PGD_BF16, g->x, ROWS, 0, s->k, s->k),
        .bias = vector(g->bias, g->n),
        .qkv = test_tensor(PGD_BF16, y, ROWS, 0, g->n, g->n),
        .q = test_tensor(PGD_BF16, y, ROWS, s->q_heads, s->dim, g->n),
        .k = test_tensor(PGD_BF16, y + s->q_heads * s->dim, ROWS, s->kv_heads, s->dim, g->n),
        .v = test_tensor(PGD_BF16, y + (s->q_heads + s->kv_heads) * s->dim, ROWS, s->kv_heads,
                         s->dim, g->n),
        .table = test_tensor(PGD_F32, g->table, TABLE_ROWS, s->rot_dim / 2, 2, s->rot_dim),
        .q_norm = vector(g->norms, s->dim),
        .k_norm = vector(g->norms + s->dim, s->dim),
        .eps = 1e-5F,
        .style = s->style,
        .rot_dim = s->rot_dim};
    assert_int_equal(pgd_ref_qkv_rope_write(NULL, &a), PGD_OK);
}

static void heads_are_close_to_the_reference(void **state) {
    const scene *s = &scenes[1]; // norms, bias, dim 128
    stage g;
    (void)state;
    make(&g, s);
    kc_gemm_params p = params_of(&g, KC_TAIL_HEADS);
    const k_cache c = cache_of(s);
    unsigned char *cache = test_room(cache_bytes(s)), *ref = test_room(cache_bytes(s));
    void *y = test_room((int64_t)ROWS * g.n * 2), *want = test_room((int64_t)ROWS * g.n * 2);
    launch(&g, PGD_CUDA_gemm_small_bf16_r8, &p, y, cache);
    expect(&g, want, ref);
    for (int32_t r = 0; r < ROWS; r++) {
        for (int32_t i = 0; i < s->q_heads * s->dim; i++) {
            assert_near(pgd_ref_load(PGD_BF16, y, (int64_t)r * g.n + i),
                        pgd_ref_load(PGD_BF16, want, (int64_t)r * g.n + i), 4, "q", r, i);
        }
        const int32_t slot = g.step.slots[r], block = slot / TOKENS, token = slot % TOKENS;
        for (int32_t i = 0; i < s->kv_heads * s->dim; i++) {
            const int32_t head = i / s->dim, d = i % s->dim;
            const int64_t at = block * c.block_bytes / 2 + (int64_t)head * TOKENS * s->dim;
            const int64_t from = ((int64_t)block * 2 * TOKENS + token) * s->kv_heads + head;
            assert_near(pgd_ref_load(PGD_BF16, cache, at + (d / 8 * TOKENS + token) * 8 + d % 8),
                        pgd_ref_load(PGD_BF16, ref, from * s->dim + d), 4, "k", r, i);
            assert_near(
                pgd_ref_load(PGD_BF16, cache, at + c.v_at / 2 + token * s->dim + d),
                pgd_ref_load(PGD_BF16, ref, (from + (int64_t)TOKENS * s->kv_heads) * s->dim + d), 4,
                "v", r, i);
        }
    }
    free(cache);
    free(ref);
    free(y);
    free(want);
    drop(&g);
}

// ---- the best column, and x as it lies ---------------------------------------------------------

static int32_t best_of(const float *row, int32_t n) {
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (row[i] == row[i] && (best < 0 || row[i] > row[best])) {
            best = i;
        }
    }
    return best;
}

// Columns that tie, and rows of NaN: those of x.
static void set_traps(stage *g) {
    const int32_t k = g->is->k;
    for (int32_t i = 0; i < k; i++) {
        for (int32_t twin = 0; twin < 3; twin++) { // columns 7, 300 and 599 are one
            g->packed[((size_t)((twin == 0   ? 7
                                 : twin == 1 ? 300
                                             : 599) /
                                8) *
                           (size_t)k +
                       (size_t)i) *
                          8 +
                      (twin == 0   ? 7
                       : twin == 1 ? 4
                                   : 7)] = (uint16_t)(i % 2 == 0 ? 0x4000 : 0xc000);
        }
    }
    for (int32_t i = 0; i < k; i++) {
        ((uint16_t *)g->x)[2 * k + i] = (uint16_t)(i % 2 == 0 ? 0x3f80 : 0xbf80); // they win
        ((uint16_t *)g->x)[NANS * k + i] = 0x7fc0;
        ((uint16_t *)g->x)[6 * k + i] = 0; // all columns tie at zero
    }
}

static void check_best(int32_t slice, int32_t x_plain) {
    // 600 columns: a panel's and a group's last ones are not there
    const scene s = {.q_heads = VOCABULARY, .dim = 1, .y_dtype = PGD_F32, .k = 128, .slice = slice};
    enum { TILES = 3 };
    stage g;
    make(&g, &s);
    set_traps(&g);
    const kc_pack_x_params again = {.x = {.s0 = s.k, .dtype = PGD_BF16},
                                    .out_s0 = s.k,
                                    .rows = {.mode = 1, .n = ROWS},
                                    .n = s.k,
                                    .dtype = PGD_BF16};
    void *const m[8] = {&g.step, g.x, g.x_packed};
    test_launch(PGD_CUDA_pack_x, 1, ROWS, 1, m, &again);
    float *want = test_room((int64_t)ROWS * g.n * 4);
    kc_gemm_params plain = params_of(&g, KC_TAIL_STORE);
    launch(&g, PGD_CUDA_gemm_small_bf16_r16, &plain, want, NULL);
    const int32_t last = x_plain ? PGD_CUDA_gemm_small_bf16_r8 : PGD_CUDA_gemm_small_bf16_r64;
    for (int32_t i = PGD_CUDA_gemm_small_bf16_r8; i <= last; i++) {
        kc_gemm_params p = params_of(&g, KC_TAIL_BEST);
        const int64_t parts = (int64_t)p.n_slices * ROWS * g.n * 4;
        float *y = test_room((int64_t)ROWS * g.n * 4);
        free(g.parts);
        g.parts = test_room(parts + (int64_t)ROWS * TILES * 8);
        p.best_at = parts;
        p.x_plain = x_plain;
        launch(&g, i, &p, y, NULL);
        for (int32_t r = 0; r < ROWS; r++) {
            uint64_t best = 0;
            if (r != NANS) { // pack_x gives all NaN one payload
                assert_memory_equal(y + r * g.n, want + r * g.n, (size_t)g.n * 4);
            }
            for (int32_t t = 0; t < TILES; t++) {
                uint64_t one = 0;
                memcpy(&one, (char *)g.parts + parts + (r * TILES + t) * 8, 8);
                best = one > best ? one : best;
            }
            assert_int_equal(best == 0 ? -1 : (int32_t) ~(uint32_t)best,
                             best_of(want + (size_t)r * (size_t)g.n, g.n));
        }
        free(y);
    }
    assert_int_equal(best_of(want + 2 * (size_t)g.n, g.n), 7);
    assert_int_equal(best_of(want + NANS * (size_t)g.n, g.n), -1);
    assert_int_equal(best_of(want + 6 * (size_t)g.n, g.n), 0);
    free(want);
    drop(&g);
}

static void the_best_of_each_row(void **state) {
    (void)state;
    check_best(128, 0);
    check_best(64, 0);
}

static void rows_that_are_not_packed(void **state) {
    (void)state;
    check_best(128, 1);
    check_best(64, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_two_kernels_in_one),     cmocka_unit_test(other_order),
        cmocka_unit_test(heads_are_close_to_the_reference), cmocka_unit_test(the_best_of_each_row),
        cmocka_unit_test(rows_that_are_not_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
